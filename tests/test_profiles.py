"""The readers of profiles: what they read, what they refuse, that nothing breaks them."""

import contextlib
import gzip
import io
import json
import math
import re
import zipfile
from collections import Counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import pyallocx as px
from pyallocx.cli import main
from pyallocx.profiles import FORMATS, _json, _reader, recognise

SCUDO = b"""<malloc version="scudo-1">
<alloc size="0" count="4"/>
<alloc size="24" count="100"/>
<alloc size="70000" count="2"/>
</malloc>
"""
GLIBC = b"""<malloc version="1">
<heap nr="0">
<sizes>
  <size from="17" to="32" total="96" count="3"/>
  <size from="65" to="65" total="195" count="3"/>
  <size from="1057" to="1089" total="3203" count="3"/>
  <unsorted from="113" to="113" total="113" count="1"/>
</sizes>
<total type="fast" count="3" size="96"/>
<total type="rest" count="8" size="9000"/>
<system type="current" size="135168"/>
<system type="max" size="135168"/>
<aspace type="total" size="135168"/>
<aspace type="mprotect" size="135168"/>
</heap>
<heap nr="1">
<sizes>
  <size from="85" to="85" total="170" count="2"/>
</sizes>
<total type="rest" count="2" size="170"/>
<aspace type="subheaps" size="1"/>
</heap>
<total type="mmap" count="0" size="0"/>
</malloc>
"""
MEMCACHED = b"STAT 96 35\r\nSTAT 128 7\r\nSTAT 1024 1\r\nEND\r\n"
FLEET = b"1, 158.5, 19.5\n24, 2e3, 0.125\n64, 0, 7\n4096, 0.001, 1e-5\n"
TEXT = b"# by hand\n\n16 10\n48\t2.5  # a comment\n4096 1e3\n16 1\n"
SAVED = b"# pyallocx profile "
HEAPTRACK = b"8\t5\n24\t100\n1000\t1\n"


def arena(requests, live, large=1, large_live=(0, 2)):
    return {
        "large": {"nrequests": large},
        "bins": [
            {"nrequests": r, "curregs": c, "nmalloc": 99}
            for r, c in zip(requests, live, strict=True)
        ],
        "lextents": [{"curlextents": count} for count in large_live],
    }


def jemalloc_json(**arenas):
    document = {
        "jemalloc": {
            "version": "5",
            "opt": {"stats_print": True},
            "arenas": {
                "bin": [{"size": 8}, {"size": 16}, {"size": 32}],
                "lextent": [{"size": 16384}, {"size": 20480}],
            },
            "stats.arenas": arenas,
        }
    }
    return json.dumps(document).encode()


JEMALLOC = jemalloc_json(**{"0": arena([5, 0, 7], [1, 0, 0])})
DHAT = json.dumps(
    {
        "dhatFileVersion": 2,
        "mode": "heap",
        "pps": [{"tb": 35, "tbk": 10, "gb": 12, "gbk": 3, "eb": 0, "ebk": 0, "fs": [1]}],
    }
).encode()
BPFTRACE = b"""Attaching 1 probe...
^C

@bytes:
[0]                    5 |@@                         |
[16, 32)              12 |@@@@                       |
[1K, 2K)               1 |                           |

"""
MEMLEAK = b"""Attaching to pid 5193, Ctrl+C to quit.
[11:16:33] Top 10 stacks with outstanding allocations:
\t80 bytes in 5 allocations from stack
\t\tmain+0x6d [allocs]
\t\t__libc_start_main+0xf0 [libc-2.21.so]
"""
SAMPLES = {
    "dhat": DHAT,
    "bpftrace": BPFTRACE,
    "memleak": MEMLEAK,
    "scudo": SCUDO,
    "glibc-free": GLIBC,
    "memcached": MEMCACHED,
    "fleet": FLEET,
    "text": TEXT,
    "heaptrack": HEAPTRACK,
    "jemalloc": JEMALLOC,
}


def load(data, tmp_path, name="p.txt", **options):
    path = tmp_path / name
    path.write_bytes(data)
    return px.load_profile(path, **options)


def as_dict(profile):
    return dict(zip(profile.sizes.tolist(), profile.counts.tolist(), strict=True))


def test_every_format_has_a_sample():
    assert SAMPLES.keys() == FORMATS.keys()


def test_every_format_is_explained(repository):
    text = (repository / "docs" / "profiles.md").read_text()
    rows = re.findall(r"(?m)^\| `([a-z-]+)` \| .* \| (.+) \| (.+) \|$", text)
    written = {format: (weights.split(", "), sizes) for format, weights, sizes in rows}
    assert written == {
        format: (list(reader.weights) or ["as written"], reader.sizes)
        for format, reader in FORMATS.items()
    }
    for format in FORMATS:
        assert f"\n    {format} " in px.load_profile.__doc__


# ---- what is read -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("format", "given", "expected", "about"),
    [
        ("scudo", None, {0: 4, 24: 100, 70000: 2}, {"weight": "as written", "sizes": "requests"}),
        (
            "glibc-free",
            "glibc-free",
            {32: 3, 64: 3, 1066: 1, 1067: 2, 112: 1, 80: 2},
            {"weight": "end", "ranges_at_mean": 1},
        ),
        ("memcached", None, {96: 35, 128: 7, 1024: 1}, {"weight": "end"}),
        (
            "fleet",
            None,
            {1: 158.5, 24: 2000, 4096: 0.001},
            {"weight": "count", "sizes_without_weight": 1},
        ),
        ("text", None, {16: 11, 48: 2.5, 4096: 1000}, {"weight": "as written"}),
        ("heaptrack", "heaptrack", {8: 5, 24: 100, 1000: 1}, {"weight": "count"}),
        ("text", "text", {16: 11, 48: 2.5, 4096: 1000}, {"sizes": "as written"}),
        (
            "jemalloc",
            None,
            {8: 5, 32: 7},
            {"weight": "count", "sizes": "size classes", "large_requests_left_out": 1},
        ),
    ],
)
def test_reads(tmp_path, format, given, expected, about):
    for end in (b"\n", b"\r\n"):
        data = SAMPLES[format].replace(b"\r\n", b"\n").replace(b"\n", end)
        profile = load(data, tmp_path, format=given)
        assert as_dict(profile) == expected
        assert profile.name == "p"
        assert profile.metadata.items() >= {"format": format, "file": "p.txt", **about}.items()


def test_weights(tmp_path):
    live = {1: 19.5, 24: 0.125, 64: 7, 4096: 1e-5}
    for weight in ("peak", "end", "byte_time"):
        assert as_dict(load(FLEET, tmp_path, weight=weight)) == live
    for weight in ("peak", "end"):
        profile = load(JEMALLOC, tmp_path, weight=weight)
        assert as_dict(profile) == {8: 1, 20480: 2}
        assert profile.metadata["weight"] == weight
    with pytest.raises(ValueError, match="carries no weight 'byte_time'"):
        load(JEMALLOC, tmp_path, weight="byte_time")
    with pytest.raises(ValueError, match="allowed are 'count'"):
        load(FLEET, tmp_path, weight="bytes")
    with pytest.raises(ValueError, match="allowed are 'text'"):
        load(FLEET, tmp_path, format="csv")
    # What has one histogram gives it, whatever is asked for.
    assert load(SCUDO, tmp_path, weight="peak").metadata["weight"] == "as written"


def test_jemalloc_adds_up_its_arenas(tmp_path):
    one, two, ended = (arena([n, 0, n], [0, n, 0], n, (n, 0)) for n in (1, 10, 100))
    both = arena([11, 0, 11], [0, 11, 0], 11, (11, 0))
    apart = load(jemalloc_json(**{"0": one, "3": two, "destroyed": ended}), tmp_path)
    merged = load(
        jemalloc_json(**{"merged": both, "destroyed": ended, "0": one, "3": two}), tmp_path
    )
    assert as_dict(apart) == as_dict(merged) == {8: 111, 32: 111}
    assert apart.metadata["large_requests_left_out"] == 111
    live = load(jemalloc_json(merged=both), tmp_path, weight="end")
    assert as_dict(live) == {16: 11, 16384: 11}


def test_through_wrappings(tmp_path):
    zipped = io.BytesIO()
    with zipfile.ZipFile(zipped, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("inner.xml", SCUDO)
    for data in (
        gzip.compress(SCUDO),
        zipped.getvalue(),
        gzip.compress(zipped.getvalue()),
        b"\xef\xbb\xbf" + SCUDO,
    ):
        assert as_dict(load(data, tmp_path, "p.xml")) == {0: 4, 24: 100, 70000: 2}
    with zipfile.ZipFile(zipped, "a") as archive:
        archive.writestr("other.txt", TEXT)
    with pytest.raises(px.TraceError, match="one member or a profile, this one has 2"):
        load(zipped.getvalue(), tmp_path)
    profile = load(zipped.getvalue(), tmp_path, member="other.txt")
    assert profile.metadata["member"] == "other.txt"
    assert profile.total_count == 1013.5


def test_a_trace_is_no_profile_but_has_one(tmp_path):
    path = tmp_path / "trace.npz"
    trace = px.synthesize(500, seed=1)
    trace.save(path)
    with pytest.raises(px.TraceError, match=r"expected a profile, this is a trace"):
        px.load_profile(path)
    for weight in (None, "peak", "byte_time"):
        profile = px.load_profile_or_trace(path, weight)
        assert profile == trace.profile(weight or "count")
        assert profile.name == "trace"
        assert profile.metadata["sizes"] == "requests"
    path = tmp_path / "m.txt"
    path.write_bytes(b"= Start\n@ ./t:[0x11a0] + 0x56317a78e2a0 0xa\n")
    assert as_dict(px.load_profile_or_trace(path)) == {10: 1}
    with pytest.raises(px.TraceError, match="expected a profile"):
        px.load_profile(path)
    path.write_bytes(SCUDO)
    assert px.load_profile_or_trace(path, "peak") == px.load_profile(path)
    with pytest.raises(px.TraceError, match=r"px\.load_profile"):
        px.load(path)


# ---- what is refused, and where -----------------------------------------------------------------


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (b"", "empty"),
        (b"no profile\n", "expected a profile"),
        ("<malloc".encode("utf-16"), "expected a profile"),
        (b"\n" + SCUDO, "expected a profile"),
        (b' <malloc version="scudo-1">\n', "expected a profile"),
        (SCUDO.replace(b'1">', b'2">', 1), "line 1: expected '<malloc version"),
        (SCUDO.replace(b'1">', b'1"> ', 1), "line 1: expected '<malloc version"),
        (GLIBC, "line 1: glibc's malloc_info lists free chunks"),
        (SCUDO.replace(b"</malloc>\n", b""), "line 5: expected '</malloc>', found the end"),
        (SCUDO + b"<alloc", "line 6: expected nothing after"),
        (SCUDO.replace(b"100", b"0"), "line 3: expected a count of at least 1"),
        (SCUDO.replace(b"100", b"-1"), "line 3: expected a count as a whole number"),
        (SCUDO.replace(b"100", b"1.5"), "line 3: expected a count as a whole number"),
        (SCUDO.replace(b"100", b"9" * 500), "line 3: expected a count as a whole number"),
        (SCUDO.replace(b"100", b"9" * 399), "line 3: expected counts that add up"),
        (SCUDO.replace(b"24", str(2**64).encode()), "line 3: expected a size of at most"),
        (SCUDO.replace(b"24", b"0x18"), "line 3: expected a size as a whole number"),
        (SCUDO.replace(b'count="100"', b'number="100"'), "line 3: expected '<alloc size"),
        (SCUDO.replace(b"/>\n<alloc", b"/><alloc", 1), "line 2: expected '<alloc size"),
        (b'<malloc version="scudo-1">\n</malloc>\n', "it holds no size"),
        (b"16 10\n32\n", "line 2: expected 'size count'"),
        (b"16 10\n32 1 1\n", "line 2: expected 'size count'"),
        (b"16 -1\n", "line 1: expected a count as a number without a sign, in '16 -1'"),
        (b"16 0\n", "line 1: expected a count above 0"),
        (b"16 0.0\n", "line 1: expected a count above 0"),
        (b"16 1e-999\n", "line 1: expected a count above 0"),
        (b"16 NaN\n", "line 1: expected a count as a number"),
        (b"16 inf\n", "line 1: expected a count as a number"),
        (b"16 1e400\n", "line 1: expected a count that fits a float"),
        (b"16 1e301\n", "line 1: expected counts that add up"),
        (b"16 1\n-8 1\n", "line 2: expected a size as a whole number"),
        (b"16 1\n1e3 1\n", "line 2: expected a size as a whole number"),
        (b"16 1\n" + b" " * 70000 + b"\n", "line 2: expected a line of at most 65536 bytes"),
        (b"16 1\n" + b"7" * 70000, "line 2: expected a line of at most 65536 bytes"),
        (b"281474976710656 1e299\n", "too large"),
        (b"# pyallocx profile []\n16 1\n", "line 1: expected JSON with the name"),
        (SAVED + b'{"name": "", "metadata": {"a": 1e999}}\n16 1\n', "line 1: expected JSON"),
        (SAVED + b'{"name": "", "metadata": {"a": NaN}}\n16 1\n', "line 1: expected JSON"),
        (SAVED + b'{"name": 5, "metadata": {}}\n16 1\n', "line 1: expected JSON"),
        (b"STAT sizes_status disabled\r\nEND\r\n", "line 1: expected sizes, but memcached"),
        (b"STAT sizes_status enabled\r\nEND\r\n", "line 1: expected 'STAT size count', found"),
        (b"END\r\n", "it holds no size"),
        (MEMCACHED[:-5], "line 4: expected 'END' as the last line, found the end"),
        (MEMCACHED + b"STAT 1 1\r\n", "line 5: expected nothing after 'END'"),
        (MEMCACHED.replace(b"128 7", b"128"), "line 2: expected 'STAT size count' or 'END'"),
        (MEMCACHED.replace(b"128 7", b"128 0"), "line 2: expected a count of at least 1"),
        (FLEET + b"5, 1\n", "line 5: expected 'size, rate, live'"),
        (FLEET + b"5, -1, 1\n", "line 5: expected a rate as a number without a sign"),
        (FLEET + b"5, 1, nan\n", "line 5: expected a number alive as a number"),
        (b"5, 0, 1\n", "it holds no size"),
        (JEMALLOC[:-1], "line 1, column"),
        (JEMALLOC.replace(b'"nrequests": 5', b'"nrequests": -5'), r"bins\[0\]\.nrequests"),
        (JEMALLOC.replace(b'"nrequests": 5', b'"nrequests": true'), "expected a whole number"),
        (JEMALLOC.replace(b'"nrequests": 5', b'"nrequests": NaN'), "found NaN"),
        (JEMALLOC.replace(b'"nrequests": 5', b'"nrequests": ' + b"9" * 5000), "expected the JSON"),
        (JEMALLOC.replace(b'"size": 8', b'"size": 8, "size": 9'), "'size' is there twice"),
        (JEMALLOC.replace(b'{"size": 16}, ', b""), "expected 2 entries, as in arenas.bin, found 3"),
        (JEMALLOC.replace(b'"0"', b'"zero"'), "expected numbers of arenas, found 'zero'"),
        (JEMALLOC.replace(b'"size": 8', b'"size": ' + str(2**63).encode()), "at most 2"),
        (JEMALLOC.replace(b'"version"', b'\n\xff"version"'), "line 2: expected UTF-8"),
        (b'{"jemalloc":' + b"[" * 100_000, "nested"),
        (b'{"jemalloc": 5}', "jemalloc: expected an object, found 5"),
    ],
)  # fmt: skip
def test_refuses(tmp_path, data, said):
    with pytest.raises(px.TraceError, match=said) as caught:
        load(data, tmp_path)
    assert str(caught.value).startswith(f"{tmp_path / 'p.txt'}: ")


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        (b'count="1"/>', b'count="0"/>', "line 7: expected count chunks"),
        (b'total="195"', b'total="196"', "line 5: expected count chunks"),
        (b'total="96"', b'total="80"', "line 4: expected count chunks of B bytes"),
        (b'from="65"', b'from="66"', "line 5: expected count chunks"),
        (b"</sizes>\n", b"", "line 8: expected '<size from=.*/>' or '</sizes>'"),
        (
            b"</heap>\n",
            b"",
            "line 15: expected a line of glibc's malloc_info or '</heap>', "
            """in '<heap nr="1">'""",
        ),
        (
            b'<heap nr="1">',
            b"<bin>",
            "line 16: expected a line of glibc's malloc_info, in '<bin>'",
        ),
        (b"</heap>\n", b"</sizes>\n", "line 15: .* or '</heap>', in '</sizes>'"),
        (b"</malloc>\n", b"", "line 24: expected '</malloc>', found the end"),
        (b'version="1"', b'version="2"', "line 1: expected '<malloc version=\"1\">' as the first"),
        (b"</heap>\n<total", b"</malloc>\n<total", "line 22: expected '</heap>'"),
    ],
)
def test_glibc_refuses(tmp_path, old, new, said):
    assert old in GLIBC
    # To the end: what stands behind is what was found, and nothing else.
    with pytest.raises(px.TraceError, match=rf"{said}(?:[^']*, (?:in '.*'|found the end))?$"):
        load(GLIBC.replace(old, new), tmp_path, format="glibc-free")


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (b"8 5\n", "line 1: expected 'size<tab>count'"),
        (b"8\t5\n8\t1\n", "line 2: expected a size larger"),
        (b"8\t5\n9\t0\n", "line 2: expected a count of at least 1"),
        (b"8\t5\n9\t1.5\n", "line 2: expected a count as a whole number"),
        (b"8\t5\n\n", "line 2: expected 'size<tab>count'"),
    ],
)
def test_heaptrack_refuses(tmp_path, data, said):
    with pytest.raises(px.TraceError, match=said):
        load(data, tmp_path, format="heaptrack")


def test_memory_is_bounded(tmp_path, monkeypatch):
    monkeypatch.setattr(_reader, "_MOST_SIZES", 3)
    assert len(load(b"1 1\n2 1\n3 1\n3 1\n", tmp_path)) == 3
    with pytest.raises(px.TraceError, match="line 4: expected at most 3 different sizes"):
        load(b"1 1\n2 1\n3 1\n4 1\n", tmp_path)
    monkeypatch.setattr(_json, "_MOST_BYTES", 1 << 20)
    with pytest.raises(px.TraceError, match="at most 1 MiB of JSON"):
        load(gzip.compress(JEMALLOC + b" " * (1 << 20)), tmp_path)


def test_recognising_takes_one_look():
    for long in (b"1" * 65536, b"1," + b"2" * 65534, b"1 " * 32768, b" " * 65536, b"#" * 65536):
        assert recognise(long) is None
    assert recognise(b"\n" * 65536) is None


# ---- whatever comes -----------------------------------------------------------------------------

EVIL = [
    *(b"0", b"-1", b"NaN", b"Infinity", b"1e400", b"1e-400", b"18446744073709551616", b"9" * 350),
    *(b"1e299", b"281474976710657", b"\0", b"\xff", b'"', b"<", b">", b"{", b"}", b"#", b","),
    *(b"\n", b"\r", b"\t", b" ", b"</malloc>", b"END", b"null", b"0x10", b"1_0", b"\xd9\xa3"),
]


@st.composite
def damaged(draw):
    format = draw(st.sampled_from(sorted(SAMPLES)))
    data = SAMPLES[format]
    for _ in range(draw(st.integers(0, 4))):
        at = draw(st.integers(0, len(data)))
        to = draw(st.one_of(st.just(at), st.integers(at, min(len(data), at + 12))))
        data = data[:at] + draw(st.one_of(st.sampled_from(EVIL), st.binary(max_size=3))) + data[to:]
    if draw(st.booleans()):
        lines = data.splitlines(keepends=True)
        if lines:
            data = b"".join(draw(st.lists(st.sampled_from(lines), max_size=12)))
    if draw(st.booleans()):
        data = data[: draw(st.integers(0, len(data)))]
    return draw(st.sampled_from([None, format])), data


@given(damaged(), st.sampled_from(["count", "end", None]))
def test_nothing_but_a_profile_or_an_error_comes_out(tmp_path_factory, what, weight):
    format, data = what
    path = tmp_path_factory.mktemp("damaged") / "p"
    path.write_bytes(data)
    profile = error = either = None
    try:
        profile = px.load_profile(path, format=format, weight=weight)
    except px.TraceError as caught:
        error = str(caught)
    if profile is None:
        assert error.startswith(f"{path}: ")
    else:
        assert len(profile) >= 1
        assert np.all(np.diff(profile.sizes.astype(np.int64)) > 0)
        assert np.all((profile.counts > 0) & np.isfinite(profile.counts))
        assert math.isfinite(profile.total_bytes)
    # A trace may come out, even one that has no profile: both are no damage.
    with contextlib.suppress(ValueError):
        either = px.load_profile_or_trace(path, weight)
    assert profile is None or format is not None or either == profile


@pytest.mark.parametrize("format", ["scudo", "memcached", "jemalloc", "glibc-free"])
def test_a_file_that_is_cut_is_refused(tmp_path, format):
    data = SAMPLES[format].rstrip()
    for length in range(len(data)):
        with pytest.raises(px.TraceError):
            load(data[:length], tmp_path, format=format)


@given(st.lists(st.tuples(st.integers(0, 2**48), st.integers(1, 10**6)), min_size=1), st.integers())
def test_pieces_may_end_anywhere(entries, seed):
    data = b'<malloc version="scudo-1">\r\n' + b"".join(
        b'<alloc size="%d" count="%d"/>\r\n' % entry for entry in entries
    )
    data += b"</malloc>"
    reader = FORMATS["scudo"]()
    step = 1 + seed % 17
    for start in range(0, len(data), step):
        reader.feed(data[start : start + step])
    reader.finish()
    expected = Counter()
    for size, count in entries:
        expected[size] += count
    assert as_dict(reader.profile("", {})) == expected


# ---- the command --------------------------------------------------------------------------------


def test_info(tmp_path, capsys):
    path = tmp_path / "p.xml"
    path.write_bytes(SCUDO)
    assert main(["info", str(path)]) == 0
    out = capsys.readouterr().out
    for line in (
        "profile: p.xml",
        "  total_count          106",
        "  total_bytes          142,400 bytes (139 KiB)",
        "  distinct_sizes       3",
        "  50%                              24         70,000",
        "  70,000                            2        137 KiB   98.3%",
        "  weight               as written",
    ):
        assert line in out.splitlines()
    assert main(["info", str(path), "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    profile = px.load_profile(path)
    assert document["profile"] == "p.xml"
    assert document["summary"] == profile.summary()
    assert document["metadata"] == dict(profile.metadata)


def test_the_command_tells_profiles_from_traces(tmp_path, capsys):
    path = tmp_path / "p.xml"
    path.write_bytes(SCUDO)
    assert main(["sweep", "arena", str(path)]) == 1
    assert "p.xml: this is a profile" in capsys.readouterr().err
    assert main(["info", "--on-error", "skip", str(path)]) == 2
    assert "read strictly" in capsys.readouterr().err
    path.write_bytes(SCUDO[:-4])
    assert main(["info", str(path)]) == 1
    assert "line 5: expected" in capsys.readouterr().err


# ---- real files ---------------------------------------------------------------------------------


def real(folder):
    files = sorted(folder.iterdir()) if folder.is_dir() else []
    if not files:
        pytest.skip(f"no data in {folder}")
    return files


def test_real_scudo(shared_data):
    for path in real(shared_data / "sizeclass" / "profiles"):
        found = re.findall(rb'size="(\d+)" count="(\d+)"', path.read_bytes())
        profile = px.load_profile(path)
        assert profile.total_count == sum(int(count) for _, count in found)
        assert profile.total_bytes == sum(int(size) * int(count) for size, count in found)
        assert len(profile) == len({size for size, _ in found})
        assert profile.metadata["format"] == "scudo"


def test_real_formats(shared_data):
    folder = shared_data / "traces" / "formats"
    real(folder)
    path = folder / "jemalloc_stats.json"
    arenas = re.search(rb'"stats.arenas":(.*)', path.read_bytes(), re.DOTALL)[1]
    bins = re.search(rb'"bins":\[(.*?\}\})\]', arenas, re.DOTALL)[1]
    for weight, key in (("count", rb"nrequests"), ("end", rb"curregs")):
        expected = sum(map(int, re.findall(rb'"%s":(\d+)' % key, bins)))
        small = px.load_profile(path, weight=weight).below(14336)
        assert small.total_count == expected
    path = folder / "glibc_malloc_info.xml"
    with pytest.raises(px.TraceError, match="free chunks"):
        px.load_profile(path)
    found = re.findall(rb'from="\d+" to="\d+" total="(\d+)" count="(\d+)"', path.read_bytes())
    profile = px.load_profile(path, format="glibc-free")
    assert profile.total_count == sum(int(count) for _, count in found)
    assert profile.total_bytes == sum(int(total) - int(count) for total, count in found)
    # glibc answered here, though scudo was the allocator: there is not one chunk.
    with pytest.raises(px.TraceError, match="holds no size"):
        px.load_profile(folder / "scudo_malloc_info.xml", format="glibc-free")


def test_real_fleets(shared_data):
    files = [p for p in real(shared_data / "traces" / "fleetbench") if "TCMALLOC" in p.name]
    for path in files:
        rows = [line.split(",") for line in path.read_text().splitlines()]
        for weight, column in (("count", 1), ("end", 2)):
            profile = px.load_profile(path, weight=weight)
            assert profile.total_count == pytest.approx(
                math.fsum(float(row[column]) for row in rows), rel=1e-12
            )
            assert len(profile) == len(rows)


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"16,5\n", "this begins with b'16,5"),
        (b"size count\n16 5\n", "this begins with b'size count"),
        (b"-16 5\n", "this begins with b'-16 5"),
        (b"# nothing\n\n# more\n", "this has only comments"),
    ],
)
def test_a_near_miss_is_told_of_profiles_and_traces(content, words, tmp_path):
    path = tmp_path / "near"
    path.write_bytes(content)
    with pytest.raises(px.TraceError) as failure:
        px.profile.load_profile_or_trace(path)
    text = str(failure.value)
    # What the file begins with comes first: it is what tells the user what was mistaken for what.
    assert text.startswith(f"{path}: {words}")
    assert "expected a trace or a profile (such as 'size count' lines" in text
    assert "`pyallocx formats` lists" in text
    assert len(text) < len(str(path)) + 230
    assert "px." not in text


@pytest.mark.parametrize(
    "content",
    [b"16 5 7\n32 6 2\n", b"4096 5 7\n65536 6 2\n", b"1000000 5 7", b"16 5 seven\n", b"10 5 0.5\n"],
)
def test_three_columns_are_no_perf_map(content, tmp_path):
    path = tmp_path / "three"
    path.write_bytes(content)
    with pytest.raises(px.TraceError, match="no profile, whose lines have two columns"):
        px.profile.load_profile_or_trace(path)
    path.write_bytes(b"7f0000001000 20 name\n7f0000002000 30 5\n")
    assert px.profile.load_profile_or_trace(path).sizes.tolist() == [32, 48]
