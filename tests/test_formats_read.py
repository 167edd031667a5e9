"""Everybody's trace formats: what their lines mean, what is lost, what they come wrapped in."""

from __future__ import annotations

import bz2
import contextlib
import gzip
import importlib
import lzma
import sys
import zipfile
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from format_cases import MUNGED, RAWLOG, TEXTS

import pyallocx as px

A, F, R = px.OP_ALLOC, px.OP_FREE, px.OP_REALLOC


def load(tmp_path: Path, data: str | bytes, **options: Any) -> px.Trace:
    path = tmp_path / "t"
    path.write_bytes(data.encode() if isinstance(data, str) else data)
    return px.load(path, **options)


def shape(trace: px.Trace) -> list[tuple[int, int, int]]:
    return list(
        zip(trace.op.tolist(), trace.object.tolist(), trace.size_bytes.tolist(), strict=True)
    )


def calls(trace: px.Trace) -> list[str]:
    assert trace.call is not None
    return [px.CALLS[call] for call in trace.call.tolist()]


# ---- what the lines mean ------------------------------------------------------------------------


def test_aosp_with_present_bytes(tmp_path: Path) -> None:
    trace = load(tmp_path, TEXTS["aosp"])
    assert shape(trace) == [(A, 0, 48), (A, 1, 15), (A, 2, 100), (R, 0, 64), (F, 1, 0)]
    assert trace.time_ns is not None
    assert trace.time_ns.tolist() == [1, 3, 5, 7, 9]
    assert trace.metadata["counts"] == {"lines": 6, "threads_done": 1, "present_bytes": 2}


def test_logalloc(tmp_path: Path) -> None:
    trace = load(tmp_path, TEXTS["logalloc"])
    # The address of the second process is another object than the same one of the first.
    assert shape(trace) == [(A, 0, 32), (A, 1, 15), (R, 0, 84), (A, 2, 100), (A, 3, 5), (F, 1, 0)]
    assert calls(trace) == ["malloc", "calloc", "realloc", "posix_memalign", "valloc", "free"]
    assert trace.thread.tolist() == [0, 1, 0, 2, 2, 1]
    assert trace.metadata["pids"] == [18545, 18545, 1]
    assert trace.metadata["tids"] == [18545, 18546, 1]
    assert trace.metadata["counts"] == {"lines": 7, "other_calls": 1}
    assert trace.align_log2 is not None
    assert trace.align_log2.tolist() == [0, 0, 0, 6, 0, 0]


def test_logalloc_munged_slots_are_used_again(tmp_path: Path) -> None:
    trace = load(tmp_path, MUNGED)
    assert shape(trace) == [(A, 0, 32), (A, 1, 33), (R, 0, 84), (A, 2, 5), (F, 1, 0)]
    assert trace.metadata["counts"] == {"lines": 6, "frees_of_null": 1}


def test_logalloc_without_threads(tmp_path: Path) -> None:
    trace = load(tmp_path, "7 malloc(1)=0x10\n7 free(0x10)\n")
    assert shape(trace) == [(A, 0, 1), (F, 0, 0)]
    assert (trace.metadata["pids"], trace.metadata["tids"]) == ([7], [7])


def test_ltrace(tmp_path: Path) -> None:
    trace = load(tmp_path, TEXTS["ltrace"])
    assert shape(trace) == [
        (A, 0, 10),
        (F, 0, 0),
        (A, 1, 7),
        (A, 2, 16),
        (A, 3, 16),
        (R, 2, 100),
    ]
    assert calls(trace) == ["memalign", "free", "realloc", "malloc", "malloc", "realloc"]
    assert trace.thread.tolist() == [0, 0, 0, 1, 2, 1]
    assert trace.metadata["tids"] == [0, 22399, 22400]
    assert trace.time_ns is None


def test_ltrace_calls_within_calls(tmp_path: Path) -> None:
    text = """\
p->reallocarray(0, 3, 7, 0 <unfinished ...>
libc.so.6->calloc(0, 21)                = 0x10
<... reallocarray resumed> )            = 0x10
p->calloc(1, 8 <unfinished ...>
p->malloc(8 <unfinished ...>
<... malloc resumed> )                  = 0x20
<... calloc resumed> )                  = 0x20
free(0x10)                              = <void>
"""
    trace = load(tmp_path, text)
    assert shape(trace) == [(A, 0, 21), (A, 1, 8), (F, 0, 0)]
    assert calls(trace) == ["reallocarray", "calloc", "free"]
    assert trace.metadata["counts"] == {"lines": 8, "reallocs_of_null": 1, "nested_calls": 2}


def test_valgrind_shouts(tmp_path: Path) -> None:
    text = """\
**25830** Program aborting because of call to pvalloc
--25830-- malloc(10) = 0x4A42040
**25830**
--25830-- free(0x4A42040)
"""
    trace = load(tmp_path, text)
    assert shape(trace) == [(A, 0, 10), (F, 0, 0)]
    assert trace.metadata["counts"]["other_lines"] == 2
    with pytest.raises(px.TraceError, match=r"line 2: expected --PID--, ==PID== or \*\*PID\*\*"):
        load(tmp_path, "--1-- malloc(10) = 0x10\n*1* x\n")


def test_ltrace_with_one_thread_has_no_numbers(tmp_path: Path) -> None:
    assert "tids" not in load(tmp_path, "malloc(1) = 0x10\n").metadata


def test_valgrind(tmp_path: Path) -> None:
    trace = load(tmp_path, TEXTS["valgrind"])
    assert shape(trace) == [
        (A, 0, 100),
        (F, 0, 0),
        (A, 1, 15),
        (F, 1, 0),
        (A, 2, 7),
        (R, 2, 1000),
        (A, 3, 41),
        (F, 3, 0),
    ]
    assert calls(trace)[3:5] == ["realloc", "realloc"]
    assert calls(trace)[-2:] == ["new", "delete"]
    assert trace.metadata["pids"] == [22391]
    assert trace.metadata["counts"]["usable_sizes"] == 1


def test_utrace(tmp_path: Path) -> None:
    assert shape(load(tmp_path, TEXTS["utrace"])) == [(A, 0, 10), (R, 0, 45), (F, 0, 0)]


def test_rep_checks_its_counts(tmp_path: Path) -> None:
    trace = load(tmp_path, TEXTS["rep"])
    assert shape(trace) == [(A, 0, 512), (A, 1, 128), (R, 0, 640), (F, 1, 0), (F, 0, 0)]
    short = TEXTS["rep"][: -len(b"f 0\n")]
    with pytest.raises(px.TraceError, match=r"line 8: expected as many requests as the header"):
        load(tmp_path, short)
    trace = load(tmp_path, short, on_error="skip")
    assert len(trace) == 4
    assert trace.metadata["dropped"] == {"count_wrong": 1}
    with pytest.raises(px.TraceError, match="line 6: expected an id below the number of ids"):
        load(tmp_path, TEXTS["rep"].replace(b"a 1", b"a 2"))


def test_heaptrack(tmp_path: Path) -> None:
    trace = load(tmp_path, TEXTS["heaptrack"])
    assert shape(trace) == [(A, 0, 0x11C00), (A, 1, 0x64), (F, 1, 0)]
    assert trace.time_ns is not None
    assert trace.key is not None
    assert trace.time_ns.tolist() == [0, 10_000_000, 10_000_000]
    assert trace.key.tolist() == [0, 1, 1]
    assert trace.metadata["key_names"] == ["0x7fe6752f0b03", "0x7fe675306b9f"]


def test_heaptrack_interpreted(tmp_path: Path) -> None:
    trace = load(tmp_path, TEXTS["heaptrack_interpreted"])
    # The last of a kind goes first.
    assert trace.object.tolist() == [0, 1, 2, 2, 1]
    assert trace.metadata["key_names"] == ["_dl_init", "main"]
    assert "last object of its size and call stack" in trace.metadata["identity"]


def test_minimalloc_lifetimes_are_half_open(tmp_path: Path) -> None:
    trace = load(tmp_path, TEXTS["minimalloc"])
    # b1 ends at step 3, before b2 begins there.
    assert shape(trace) == [(A, 0, 4), (A, 1, 2), (F, 0, 0), (A, 2, 4), (F, 2, 0), (F, 1, 0)]
    assert trace.summary()["peak_live_bytes"] == 6


def test_minimalloc_against_a_plain_sort(tmp_path: Path) -> None:
    random = np.random.default_rng(4)
    rows = [(int(a), int(a) + 1 + int(d)) for a, d in random.integers(0, 60, (500, 2))]
    text = "id,lower,upper,size\n" + "".join(f"{i},{a},{b},{i}\n" for i, (a, b) in enumerate(rows))
    trace = load(tmp_path, text)
    moments = sorted(
        [(a, 1, i) for i, (a, _) in enumerate(rows)] + [(b, 0, i) for i, (_, b) in enumerate(rows)]
    )
    made: dict[int, int] = {}
    wanted = []
    for _, begins, row in moments:
        wanted.append((A, made.setdefault(row, len(made)), row) if begins else (F, made[row], 0))
    assert shape(trace) == wanted


def test_malloc_sql(tmp_path: Path) -> None:
    trace = load(tmp_path, TEXTS["malloc_sql"])
    assert shape(trace) == [(A, 0, 48), (A, 1, 15), (A, 2, 100), (R, 0, 64), (F, 1, 0)]
    assert trace.metadata["counts"] == {"lines": 8, "other_lines": 3}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("1 1 malloc(32)=zz\n", r"line 1: expected an address or #slot.*'1 1 malloc\(32\)=zz'"),
        ("malloc(32) = zz\n", "line 1: expected '=' and what the call answered"),
        ("--1-- malloc(x) = 0x10\n", "line 1: expected arguments that are numbers"),
        ("<jemalloc>:utrace: 1 x\n", "line 1: expected a call"),
        ("Alloc(x),\n", "line 1: expected a decimal number"),
        ("1\n1\na 0 5\n", "line 3: expected one of the four numbers"),
        ("v zz 3\n", "expected a trace"),
        ("v 1 3\n+ zz 0 10\n", "line 2: expected"),
        ("id,upper,lower,size\n", "line 1: expected the header id,lower,upper,size"),
        ("{MALLOC, x, 5, 0},\n", "line 1: expected a decimal number"),
        ("1: malloc 0x10 x\n", "line 1: expected a decimal number"),
        ("@ ./t:[0x1] + 0x10\n", r"line 1: expected '\+ PTR SIZE'"),
    ],
)
def test_a_broken_first_line_gets_the_error_of_its_format(
    tmp_path: Path, text: str, message: str
) -> None:
    with pytest.raises(px.TraceError, match=message):
        load(tmp_path, text)


def test_raw_logs_are_known_by_their_first_bytes(tmp_path: Path) -> None:
    with pytest.raises(px.TraceError, match="ends inside its header"):
        load(tmp_path, b"AXRAWLOG" + bytes(100))
    for data in (RAWLOG, gzip.compress(RAWLOG), lzma.compress(RAWLOG)):
        trace = load(tmp_path, data)
        assert shape(trace) == [(A, 0, 48), (A, 1, 100), (F, 0, 0)]


# ---- real files ---------------------------------------------------------------------------------


def test_wee_alloc_samples(shared_data: Path) -> None:
    events = {"dogfood": 46_076, "ffmpeg": 3_637, "gcc-hello": 17_775}
    for name, count in events.items():
        trace = px.load(shared_data / f"traces/wee_alloc/{name}.trace")
        assert (trace.metadata["reader"], len(trace)) == ("wee_alloc", count)


def test_ltrace_sample(shared_data: Path) -> None:
    trace = px.load(shared_data / "traces/formats/ltrace.txt")
    assert len(trace) == 1500
    assert trace.size_bytes[:4].tolist() == [16, 23, 30, 37]


def test_heaptrack_samples(shared_data: Path) -> None:
    small = px.load(shared_data / "traces/heaptrack/heaptrack.david.18594.gz")
    assert len(small) == 2_896 + 2_859
    assert "g_malloc0" in small.metadata["key_names"]
    pytest.importorskip("zstandard")
    large = px.load(shared_data / "traces/heaptrack/heaptrack.heaptrack_gui.99454.zst")
    assert len(large) == 278_534 + 263_117


# ---- wrappings ----------------------------------------------------------------------------------

TEXT = b"1: malloc 0x10 5\n1: free 0x10\n"


def zstd(data: bytes) -> bytes:
    packed: bytes = pytest.importorskip("zstandard").ZstdCompressor().compress(data)
    return packed


PACKERS: dict[str, Any] = {
    "xz": partial(lzma.compress, preset=1),
    "bz2": bz2.compress,
    "zstd": zstd,
}


@pytest.mark.parametrize("name", PACKERS)
def test_packed(tmp_path: Path, name: str) -> None:
    pack = PACKERS[name]
    for data in (
        pack(TEXT),
        pack(TEXT[:9]) + pack(TEXT[9:]),
        gzip.compress(pack(TEXT)),
        pack(gzip.compress(pack(TEXT))),
    ):
        assert load(tmp_path, data).op.tolist() == [A, F]
    many = b"".join(b"1: malloc %#x %d\n" % (16 * i + 16, i) for i in range(60_000))
    assert len(load(tmp_path, pack(many))) == 60_000


@pytest.mark.parametrize("name", PACKERS)
def test_packed_and_damaged(tmp_path: Path, name: str) -> None:
    pack = PACKERS[name]
    random = np.random.default_rng(5)
    text = b"".join(b"1: malloc %#x %d\n" % (16 * i + 16, i * i) for i in range(300))
    data = pack(text)
    for cut in {*range(5, len(data), len(data) // 25), len(data) - 1}:
        with pytest.raises(px.TraceError, match=r"damaged or truncated|expected a trace"):
            load(tmp_path, data[:cut])
    for _ in range(60):
        damaged = bytearray(data)
        damaged[int(random.integers(len(data)))] ^= int(random.integers(1, 256))
        with contextlib.suppress(px.TraceError):
            load(tmp_path, bytes(damaged))


@pytest.mark.parametrize("name", PACKERS)
def test_packed_too_often(tmp_path: Path, name: str) -> None:
    data = TEXT
    for _ in range(8):
        data = PACKERS[name](data)
    with pytest.raises(px.TraceError, match="wrapped more than"):
        load(tmp_path, data)


def test_what_unpacks_to_much_is_read_in_pieces(tmp_path: Path) -> None:
    """16 MiB of blanks in one line: refused at its beginning, whatever packs it."""
    bomb = b"1: malloc 0x10 5\n" + b" " * (16 << 20)
    for pack in (lambda data: lzma.compress(data, preset=0), bz2.compress, zstd):
        with pytest.raises(px.TraceError, match="line 2: expected a line of at most"):
            load(tmp_path, pack(bomb))


def test_xz_that_wants_much_memory_is_refused(tmp_path: Path) -> None:
    filters = [{"id": lzma.FILTER_LZMA2, "dict_size": 1 << 20}]
    packed = bytearray(lzma.compress(TEXT, filters=filters))
    # The dictionary that a reader must have room for is one byte of the block's header.
    packed[packed.index(b"\x21\x01", 12) + 2] = 40
    with pytest.raises(px.TraceError, match="damaged"):
        load(tmp_path, bytes(packed))


def test_zstd_without_its_packages(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    data = zstd(TEXT)
    for name in ("zstandard", "compression.zstd"):
        monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(px.TraceError, match=r"pip install 'pyallocx\[zstd\]'"):
        load(tmp_path, data)


def test_zstd_of_the_standard_library(tmp_path: Path) -> None:
    """The other way in, where this Python has it."""
    try:
        standard = importlib.import_module("compression.zstd")
    except ImportError:
        pytest.skip("before Python 3.14")
    assert load(tmp_path, standard.compress(TEXT)).op.tolist() == [A, F]


def test_profiles_are_unpacked_too(tmp_path: Path) -> None:
    path = tmp_path / "p"
    path.write_bytes(lzma.compress(b"16 3\n32 5\n"))
    assert px.load_profile(path).sizes.tolist() == [16, 32]


def test_npz_inside_xz(tmp_path: Path) -> None:
    trace = load(tmp_path, TEXT)
    trace.save(tmp_path / "t.npz")
    assert load(tmp_path, lzma.compress((tmp_path / "t.npz").read_bytes())) == trace
    with zipfile.ZipFile(tmp_path / "z", "w") as archive:
        archive.writestr("a", bz2.compress(TEXT))
    assert px.load(tmp_path / "z") == trace
