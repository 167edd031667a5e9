"""Foreign formats: what their lines mean, what is refused, and what they come wrapped in."""

from __future__ import annotations

import gzip
import io
import itertools
import threading
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from trace_cases import columns_of, events

import pyallocx as px
from pyallocx import _core

A, F, R = px.OP_ALLOC, px.OP_FREE, px.OP_REALLOC

# Hypothesis runs a test many times in one tmp_path; each run writes its file anew.
QUICK = settings(suppress_health_check=[HealthCheck.function_scoped_fixture])


def load_text(tmp_path: Path, text: str | bytes, **options: Any) -> px.Trace:
    path = tmp_path / "trace.txt"
    path.write_bytes(text.encode() if isinstance(text, str) else text)
    return px.load(path, **options)


def load_or_message(tmp_path: Path, text: bytes, **options: Any) -> px.Trace | str:
    try:
        return load_text(tmp_path, text, **options)
    except px.TraceError as error:
        return str(error)


# ---- aosp ---------------------------------------------------------------------------------------


def aosp_text(made: list[dict[str, int]], timed: bool) -> str:
    """Write events as memory_replay does; object k lives at 16 * (k + 1), moved by each realloc."""
    lines = []
    moves: dict[int, int] = {}
    for event in made:
        name = event["object"]
        address = 16 * (name + 1) + (moves.get(name, 0) << 32)
        tid = 100 + event["thread"]
        if event["op"] == A and event["align_log2"]:
            line = f"{tid}: memalign {address:#x} {1 << event['align_log2']} {event['size_bytes']}"
        elif event["op"] == A:
            line = f"{tid}: malloc {address:#x} {event['size_bytes']}"
        elif event["op"] == F:
            line = f"{tid}: free {address:#x}"
        else:
            moves[name] = moves.get(name, 0) + 1
            line = f"{tid}: realloc {address + (1 << 32):#x} {address:#x} {event['size_bytes']}"
        lines.append(line + (f" {event['time_ns']} {event['time_ns'] + 5}" if timed else ""))
    return "\n".join(lines) + "\n"


def dense(threads: np.ndarray[Any, Any]) -> list[int]:
    order: dict[int, int] = {}
    return [order.setdefault(int(t), len(order)) for t in threads]


@QUICK
@given(made=events().filter(len), timed=st.booleans())
def test_aosp_round_trip(tmp_path: Path, made: list[dict[str, int]], timed: bool) -> None:
    loaded = load_text(tmp_path, aosp_text(made, timed))
    columns = columns_of(made, "thread", *(["time_ns"] if timed else []))
    names = {A: "malloc", F: "free", R: "realloc"}
    columns["call"] = np.array(
        [
            px.CALLS.index("memalign" if e["op"] == A and e["align_log2"] else names[e["op"]])
            for e in made
        ],
        dtype=np.uint8,
    )
    columns["thread"] = np.array(dense(columns["thread"]), dtype=np.uint32)
    if any(event["align_log2"] for event in made):
        columns |= columns_of(made, "align_log2")
    assert loaded == px.Trace(**columns)
    assert loaded.metadata["reader"] == "aosp"
    assert loaded.metadata["dropped"] == {}
    assert dense(np.array(loaded.metadata["tids"])) == list(range(len(loaded.metadata["tids"])))


def test_aosp_what_is_counted(tmp_path: Path) -> None:
    trace = load_text(
        tmp_path,
        "5: malloc 0x10 8\n5: realloc 0x20 0x0 9\n6: realloc 0x0 0x10 0\n6: realloc 0x0 0x20 77\n"
        "6: malloc 0x0 5\n6: free 0x0\n6: thread_done 0x0\n7: memalign 0x30 24 1\n",
    )
    assert trace.metadata == {
        "format_version": 1,
        "reader": "aosp",
        "file": "trace.txt",
        "counts": {
            "lines": 8,
            "reallocs_of_null": 1,
            "reallocs_to_null": 1,
            "failed_allocs": 1,
            "failed_reallocs": 1,
            "frees_of_null": 1,
            "threads_done": 1,
            "alignments_raised": 1,
        },
        "dropped": {},
        "tids": [5, 6, 7],
    }
    assert trace.op.tolist() == [A, A, F, A]
    # A realloc of NULL is an alloc, one to nothing a free: both are reallocs of the program.
    assert trace.call is not None
    assert [px.CALLS[c] for c in trace.call] == ["malloc", "realloc", "realloc", "memalign"]
    assert trace.align_log2 is not None
    assert trace.align_log2.tolist() == [0, 0, 0, 5]


def test_aosp_names_the_function_of_each_event(tmp_path: Path) -> None:
    trace = load_text(
        tmp_path,
        "1: malloc 0x10 1\n1: calloc 0x20 2 3\n1: memalign 0x30 64 1\n1: realloc 0x40 0x10 2\n"
        "1: calloc 0x50 1 1\n1: free 0x20\n1: realloc 0x60 0x0 1\n",
    )
    assert trace.call is not None
    names = ["malloc", "calloc", "memalign", "realloc", "calloc", "free", "realloc"]
    assert [px.CALLS[call] for call in trace.call] == names


def test_many_addresses(tmp_path: Path) -> None:
    """Thousands of live addresses, freed in any order: the map loses none and keeps none."""
    random = np.random.default_rng(5)
    live: list[tuple[int, int]] = []
    op, names, lines = [], [], []
    for name in range(20_000):
        address = 8 * int(random.integers(1, 1 << 40)) if name % 3 else 0x7F0000000000 + 16 * name
        live.append((name, address))
        op.append(A)
        names.append(name)
        lines.append(f"1: malloc {address:#x} 1")
        while len(live) > 3000 * (1 + name % 2):
            freed, address = live.pop(int(random.integers(len(live))))
            op.append(F)
            names.append(freed)
            lines.append(f"1: free {address:#x}")
    trace = load_text(tmp_path, "\n".join(lines))
    assert trace.op.tolist() == op
    assert trace.object.tolist() == names


def test_aosp_times_are_made_to_run_forward(tmp_path: Path) -> None:
    trace = load_text(
        tmp_path, "1: malloc 0x10 8 50 60\n2: malloc 0x20 8 40 70\n1: free 0x10 80 90"
    )
    assert trace.time_ns is not None
    assert trace.time_ns.tolist() == [50, 50, 80]
    assert trace.metadata["counts"]["times_raised"] == 1


BAD_LINES = [
    ("1: malloc 0x10", "decimal number"),
    ("1: malloc 0x10 -5", "decimal number that fits 64 bits"),
    ("1: malloc 0x10 18446744073709551616", "decimal number that fits 64 bits"),
    ("1: malloc 0x10000000000000000 5", "16 hexadecimal digits"),
    ("1: calloc 0x10 4294967296 4294967296", "count times size fits 64 bits"),
    ("1: memalign 0x10 18446744073709551615 5", "alignment of at most"),
    ("1: free 0x10", "free of an address that is not live"),
    ("1: realloc 0x10 0x20 5", "realloc of an address that is not live"),
    ("1: malloc 0x1 5", "allocation at an address that is live"),
    ("1: realloc 0x1 0x2 5", "realloc to an address of another live object"),
    ("1: malloc 0x10 5 10 20", "expected no times"),
    ("1: destroy 0x10", "expected malloc, calloc"),
]


@pytest.mark.parametrize(("line", "message"), BAD_LINES)
def test_aosp_refusals_name_file_line_and_expectation(
    tmp_path: Path, line: str, message: str
) -> None:
    text = f"1: malloc 0x1 5\n1: malloc 0x2 5\n{line}\n1: free 0x1\n"
    with pytest.raises(px.TraceError, match=message) as caught:
        load_text(tmp_path, text)
    assert "trace.txt: line 3: " in str(caught.value)
    assert line in str(caught.value)
    assert "skip" in str(caught.value)
    trace = load_text(tmp_path, text, on_error="skip")
    assert trace.op.tolist() == [A, A, F]
    assert sum(trace.metadata["dropped"].values()) == 1


# ---- mtrace -------------------------------------------------------------------------------------


@QUICK
@given(
    made=events().filter(len), where=st.sampled_from(["", "@ ./a b:(f+0x1)[0x2] ", "@ + 0x1 2 "])
)
def test_mtrace_round_trip(tmp_path: Path, made: list[dict[str, int]], where: str) -> None:
    lines = ["= Start"]
    moves: dict[int, int] = {}
    for event in made:
        name = event["object"]
        address = 16 * (name + 1) + (moves.get(name, 0) << 32)
        size = f"{event['size_bytes']:#x}" if event["size_bytes"] else "0"
        if event["op"] == A:
            lines.append(f"{where}+ {address:#x} {size}")
        elif event["op"] == F:
            lines.append(f"{where}- {address:#x}")
        else:
            moves[name] = moves.get(name, 0) + 1
            lines += [f"{where}< {address:#x}", f"{where}> {address + (1 << 32):#x} {size}"]
    loaded = load_text(tmp_path, "\n".join([*lines, "= End", ""]))
    assert loaded == px.Trace(**columns_of(made))
    assert loaded.metadata["reader"] == "mtrace"


def test_mtrace_frees_from_before_tracing(tmp_path: Path) -> None:
    text = "= Start\n+ 0x10 5\n- 0x99\n< 0x98\n> 0x97 8\n= End\nsegfault\n"
    with pytest.raises(px.TraceError, match=r"line 3: free of .* not live.*on_error=\"skip\""):
        load_text(tmp_path, text)
    trace = load_text(tmp_path, text, on_error="skip")
    assert len(trace) == 1
    assert trace.metadata["dropped"] == {"free_of_unknown": 1, "realloc_of_unknown": 1}
    assert trace.metadata["counts"] == {"lines": 7, "lines_after_end": 1}


def test_mtrace_realloc_cut_off(tmp_path: Path) -> None:
    with pytest.raises(px.TraceError, match=r"line 3: expected '> NEW SIZE'.*end of the file"):
        load_text(tmp_path, "= Start\n+ 0x10 5\n< 0x10\n")


def test_mtrace_realloc_leaves_its_address(tmp_path: Path) -> None:
    text = "= Start\n+ 0x10 5\n< 0x10\n> 0x20 6\n+ 0x10 7\n- 0x20\n- 0x10\n= End\n"
    trace = load_text(tmp_path, text)
    assert list(trace.op) == [A, R, A, F, F]
    assert list(trace.object) == [0, 0, 1, 0, 1]


def test_mtrace_without_events_is_a_trace(tmp_path: Path) -> None:
    assert len(load_text(tmp_path, "= Start\n= End\n")) == 0


# ---- any bytes ----------------------------------------------------------------------------------

FRAGMENTS = st.sampled_from(
    [
        *(line for line, _ in BAD_LINES),
        *("1: malloc 0x10 5", "2: free 0x10", "1: realloc 0x20 0x10 6", "3: thread_done 0x0"),
        *("= Start", "= End", "+ 0x10 0x5", "- 0x10", "< 0x10", "> 0x20 0x6", "@ x ! 0x1 0x2"),
        *("", " ", "\0", "\r", "1:", "@", "@ ", "+", "= ", "0x", "\u1234", "9" * 30),
    ]
)
TEXTS = st.one_of(
    st.binary(max_size=200),
    st.lists(FRAGMENTS, max_size=12).map(lambda lines: "\n".join(lines).encode()),
    st.lists(FRAGMENTS | st.text(max_size=3), max_size=20).map(lambda bits: "".join(bits).encode()),
)


@QUICK
@given(text=TEXTS, format=st.sampled_from([None, "aosp", "mtrace", "npz"]), skip=st.booleans())
@example(text=b"PK\3\4", format=None, skip=True)
@example(text=b"\x1f\x8b", format=None, skip=False)
def test_any_bytes_only_raise_trace_error(
    tmp_path: Path, text: bytes, format: str | None, skip: bool
) -> None:
    outcome = load_or_message(tmp_path, text, format=format, on_error="skip" if skip else "raise")
    if isinstance(outcome, str):
        assert "trace.txt" in outcome
    else:
        # Checked once more by the constructor.
        assert outcome == px.Trace(**outcome.columns())


def read(format: str, skip: bool, pieces: list[bytes]) -> object:
    reader = _core.TraceReader(format, skip)
    try:
        for piece in pieces:
            reader.feed(piece)
        reader.finish()
    except px.TraceError as error:
        return str(error)
    columns = {n: c if c is None else np.asarray(c).tolist() for n, c in reader.columns().items()}
    return columns, reader.counts(), reader.threads()


@QUICK
@given(
    text=TEXTS,
    format=st.sampled_from(["aosp", "mtrace"]),
    skip=st.booleans(),
    cuts=st.lists(st.integers(0, 300)),
)
def test_pieces_do_not_matter(text: bytes, format: str, skip: bool, cuts: list[int]) -> None:
    whole = read(format, skip, [text])
    assert read(format, skip, [text[i : i + 1] for i in range(len(text))]) == whole
    edges = [0, *sorted(min(cut, len(text)) for cut in cuts), len(text)]
    pieces = [text[a:b] for a, b in itertools.pairwise(edges)]
    assert read(format, skip, pieces) == whole


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (b"", "the file is empty"),
        (b"hello\n", "begins with b'hello"),
        (bytes(range(256)), "expected a trace"),
        ("1: malloc 0x10 5\n".encode("utf-16"), "UTF-16"),
        (b"\x89PNG\r\n\x1a\n", "expected a trace"),
        (b"PK\3\4 and no more", "damaged or truncated"),
        (b"\x1f\x8b and no more", "damaged or truncated"),
    ],
)
def test_what_is_no_trace(tmp_path: Path, text: bytes, message: str) -> None:
    with pytest.raises(px.TraceError, match=message):
        load_text(tmp_path, text)


def test_skip_does_not_make_a_trace_of_nothing(tmp_path: Path) -> None:
    with pytest.raises(px.TraceError, match="not one line"):
        load_text(tmp_path, b"\x89PNG\r\n\x1a\n", format="aosp", on_error="skip")


def test_skip_says_what_was_dropped_where_nothing_is_left(tmp_path: Path) -> None:
    text = b"1: free 0x10\n1: free 0x20\n1: realloc 0x30 0x40 5\nhello\n"
    with pytest.raises(px.TraceError) as caught:
        load_text(tmp_path, text, on_error="skip")
    message = str(caught.value)
    assert "every event was dropped: 1 syntax, 2 free_of_unknown, 1 realloc_of_unknown" in message


@pytest.mark.parametrize("wrap", [bytes, gzip.compress, lambda text: zipped({"t.txt": text})])
@pytest.mark.parametrize("text", [b"1: malloc 0x10 5\n1: free 0x10\n", b"+ 0x10 0x5\n- 0x10\n"])
def test_a_byte_order_mark_is_no_part_of_the_first_line(
    tmp_path: Path, wrap: Any, text: bytes
) -> None:
    trace = load_text(tmp_path, wrap(b"\xef\xbb\xbf" + text))
    assert trace == load_text(tmp_path, text)
    with pytest.raises(px.TraceError, match="begins with b'hello"):
        load_text(tmp_path, b"\xef\xbb\xbfhello")


def test_line_too_long(tmp_path: Path) -> None:
    text = b"1: malloc 0x10 5\n1: malloc 0x20 5" + b" " * 70_000 + b"\n1: free 0x10\n"
    with pytest.raises(px.TraceError, match="line 2: expected a line of at most 65536 bytes"):
        load_text(tmp_path, text)
    trace = load_text(tmp_path, text, on_error="skip")
    assert len(trace) == 2
    assert trace.metadata["dropped"] == {"syntax": 1}


def test_wrong_options(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="on_error is 'ignore'"):
        load_text(tmp_path, "1: free 0x0", on_error="ignore")
    with pytest.raises(ValueError, match="format is 'elf'"):
        load_text(tmp_path, "1: free 0x0", format="elf")
    with pytest.raises(ValueError, match="member is 'a'"):
        load_text(tmp_path, "1: free 0x0", member="a")
    with pytest.raises(ValueError, match="format is 'elf'"):
        _core.TraceReader("elf")


# ---- wrappings ----------------------------------------------------------------------------------

TEXT = b"1: malloc 0x10 5\n1: free 0x10\n"


def zipped(members: dict[str, bytes], method: int = zipfile.ZIP_DEFLATED) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", method) as archive:
        for name, data in members.items():
            archive.writestr(name, data)
    return buffer.getvalue()


@pytest.mark.parametrize(
    "data",
    [
        gzip.compress(TEXT),
        gzip.compress(TEXT[:9]) + gzip.compress(TEXT[9:]),
        zipped({"a": TEXT}),
        zipped({"a": TEXT}, zipfile.ZIP_STORED),
        zipped({"folder/": b"", "folder/a": TEXT}),
        gzip.compress(gzip.compress(TEXT)),
        gzip.compress(zipped({"a": TEXT})),
        zipped({"a": gzip.compress(zipped({"b": TEXT}))}),
    ],
)
def test_wrapped(tmp_path: Path, data: bytes) -> None:
    assert load_text(tmp_path, data).op.tolist() == [A, F]


def test_wrapped_npz(tmp_path: Path) -> None:
    trace = load_text(tmp_path, TEXT)
    for compress in (True, False):
        trace.save(tmp_path / "t.npz", compress=compress)
        data = (tmp_path / "t.npz").read_bytes()
        assert load_text(tmp_path, gzip.compress(data)) == trace
        assert load_text(tmp_path, zipped({"t.npz": data})) == trace


def test_zip_with_several_members(tmp_path: Path) -> None:
    data = zipped({"a.txt": TEXT, "b.txt": b"2: malloc 0x1 1\n"})
    with pytest.raises(px.TraceError, match=r"has 2 members: a.txt, b.txt; member= chooses"):
        load_text(tmp_path, data)
    trace = load_text(tmp_path, data, member="b.txt")
    assert trace.metadata["member"] == "b.txt"
    assert trace.metadata["tids"] == [2]
    with pytest.raises(px.TraceError, match=r"expected one member 'c', found 0: a.txt, b.txt"):
        load_text(tmp_path, data, member="c")
    with pytest.raises(px.TraceError, match="has 0 members"):
        load_text(tmp_path, zipped({}))


def test_errors_inside_a_zip_name_file_and_member(tmp_path: Path) -> None:
    with pytest.raises(px.TraceError, match=r"trace.txt\[a\]: line 2: "):
        load_text(tmp_path, zipped({"a": b"1: malloc 0x1 1\n1: free 0x2\n"}))
    with pytest.raises(px.TraceError, match=r"trace.txt\[a\]: the file is empty"):
        load_text(tmp_path, zipped({"a": b""}))


@pytest.mark.parametrize("method", [zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA])
def test_zip_methods_without_a_bound(tmp_path: Path, method: int) -> None:
    with pytest.raises(
        px.TraceError, match=r"trace.txt\[a\]: expected a member stored or deflated"
    ):
        load_text(tmp_path, zipped({"a": TEXT}, method))


def test_member_without_a_name(tmp_path: Path) -> None:
    damaged = bytearray(zipped({"a": TEXT}))
    damaged[damaged.index(b"PK\1\2") + 46] = 0
    with pytest.raises(px.TraceError):
        load_text(tmp_path, bytes(damaged))


def test_too_many_wrappings(tmp_path: Path) -> None:
    data = TEXT
    for _ in range(8):
        data = gzip.compress(data)
    with pytest.raises(px.TraceError, match="wrapped more than"):
        load_text(tmp_path, data)


def test_encrypted_member(tmp_path: Path) -> None:
    data = bytearray(zipped({"a": TEXT}))
    data[6] |= 1
    data[data.index(b"PK\1\2") + 8] |= 1
    with pytest.raises(px.TraceError, match="encrypted"):
        load_text(tmp_path, bytes(data))


@QUICK
@given(
    kind=st.sampled_from(["gzip", "zip", "stored"]),
    cut=st.integers(0, 10_000),
    at=st.none() | st.integers(0, 10_000),
)
def test_truncated_or_damaged_wrapping(tmp_path: Path, kind: str, cut: int, at: int | None) -> None:
    text = b"".join(b"1: malloc %#x %d\n" % (16 * i + 16, i) for i in range(200))
    data = {
        "gzip": gzip.compress(text),
        "zip": zipped({"a": text}),
        "stored": zipped({"a": text}, zipfile.ZIP_STORED),
    }[kind]
    if at is None:
        with pytest.raises(px.TraceError):
            load_text(tmp_path, data[: cut % len(data)])
        return
    damaged = bytearray(data)
    damaged[at % len(data)] ^= 1 + cut % 255
    outcome = load_or_message(tmp_path, bytes(damaged))
    assert "trace.txt" in outcome if isinstance(outcome, str) else len(outcome) == 200


# ---- the binding --------------------------------------------------------------------------------


def test_reader_states() -> None:
    reader = _core.TraceReader("aosp")
    with pytest.raises(RuntimeError, match="after finish"):
        reader.columns()
    with pytest.raises(TypeError):
        reader.feed("text")  # type: ignore[arg-type]
    reader.feed(memoryview(TEXT))
    reader.finish()
    with pytest.raises(RuntimeError, match="finished"):
        reader.feed(b"x")
    with pytest.raises(RuntimeError, match="finished"):
        reader.finish()
    columns = reader.columns()
    with pytest.raises(RuntimeError, match="once"):
        reader.columns()
    column = columns["size_bytes"]
    assert column is not None
    view = memoryview(column)
    assert view.readonly
    assert (view.format, view.itemsize, view.tolist()) == ("Q", 8, [5, 0])
    array = np.asarray(column)
    del reader, columns, column, view
    assert array.tolist() == [5, 0]
    with pytest.raises(TypeError):
        _core.Column()
    bad = _core.TraceReader("aosp")
    with pytest.raises(px.TraceError, match="line 1"):
        bad.feed(b"x\n")
    with pytest.raises(RuntimeError):
        bad.feed(b"x\n")


def test_reader_refuses_reentry() -> None:
    reader = _core.TraceReader("mtrace")
    data = b"".join(b"+ %#x 0x10\n" % (16 * i + 16) for i in range(300_000))
    refused = []
    thread = threading.Thread(target=lambda: reader.feed(data))
    thread.start()
    while thread.is_alive():
        try:
            reader.threads()
        except RuntimeError as error:
            refused.append(str(error))
    thread.join()
    assert set(refused) <= {"reader is in use by another thread"}
    reader.finish()
    assert reader.counts()[0]["lines"] == 300_000


# ---- real files ---------------------------------------------------------------------------------


def test_surfaceflinger(shared_data: Path) -> None:
    """The numbers of its description; its 3,833 objects are the most that ever lived."""
    trace = px.load(shared_data / "traces/aosp/surfaceflinger.zip")
    counts = trace.metadata["counts"]
    assert counts["lines"] == 2_455_240
    assert counts["reallocs_of_null"] == 8_073
    assert counts["frees_of_null"] == 2_514
    assert counts["threads_done"] == 1
    assert len(trace) == 2_455_240 - 2_514 - 1
    assert trace.metadata["dropped"] == {}
    assert len(trace.metadata["tids"]) == 15
    summary = trace.summary()
    assert summary["threads"] == 15
    assert summary["distinct_sizes"] == 550
    assert summary["peak_live_bytes"] == 2_063_697
    assert summary["most_live_objects"] == 3_833
    assert summary["cross_thread_frees"] == 22_209


def test_git_log(shared_data: Path) -> None:
    trace = px.load(shared_data / "traces/recorded/git_log.zip")
    assert trace.metadata["counts"]["lines"] == 214_138
    summary = trace.summary()
    assert summary["distinct_sizes"] == 6_795
    assert summary["most_live_objects"] == 3_655
    assert summary["peak_live_bytes"] == pytest.approx(38.6e6, rel=2e-3)
    assert summary["threads"] == 1


def test_aosp_samples(shared_data: Path) -> None:
    for name in ("test.txt", "test.zip"):
        assert px.load(shared_data / "traces/aosp" / name).op.tolist() == [A, F]


def test_glibc_mtrace_sample(shared_data: Path) -> None:
    trace = px.load(shared_data / "traces/formats/glibc_mtrace.txt")
    assert trace.op.tolist() == [A, R, F, A, F, A, F, A, F]
    assert trace.size_bytes.tolist() == [10, 100_000, 0, 21, 0, 128, 0, 5, 0]


def test_a_thread_number_has_32_bits(tmp_path):
    path = tmp_path / "t.txt"
    path.write_text("4294967295: malloc 0x10 8\n4294967296: malloc 0x20 8\n")
    with pytest.raises(px.TraceError, match=r"line 2.*thread number is above 4294967295"):
        px.load(path)
