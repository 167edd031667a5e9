"""Code traces that are cut off, malformed or made to do harm: what is refused, and how."""

from __future__ import annotations

import contextlib
import gzip
import re
import struct
import tracemalloc
from pathlib import Path

import pytest
from code_cases import SAMPLES, a_dump, header, load, loaded, moved, record, shape
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

import pyallocx as px
from pyallocx import codetraces

QUICK = settings(suppress_health_check=[HealthCheck.function_scoped_fixture])


# ---- logs that are cut off ----------------------------------------------------------------------

V8_LINE = b"code-creation,JS,13,50,0x10900,512,g a.js:1:1,0x77,*"
INSTALL = b"[30ns][info ][nmethod,install      ] Installing method (3) C.g([II)Ljava/lang/String; "
OSR = b"[30ns][info ][nmethod,install      ] Installing osr method (3) C.g([II)I @ 62"
USED = b"[31ns][debug][codecache] CodeCache: size=20480Kb used=105Kb max_used=999Kb free=17Kb"
FLUSH = SAMPLES["hotspot_xlog"].splitlines()[-1]
NMETHOD = b"<nmethod compile_id='9' compiler='c2' size='10' address='0x7f0000009000' stamp='2.5'/>"


@pytest.mark.parametrize(
    ("format", "whole", "first_whole"),
    [
        # From how many bytes on such a last line can be told from a cut one.
        ("v8", V8_LINE, len(V8_LINE) - 1),
        ("v8", b"code-move,0x10100,0x10a00", 25),
        ("v8", b"delete,MemoryChunk,0x10000", 26),
        ("v8", b"script-details,1,a.js", None),
        ("v8", b"no-such-kind,1", None),
        ("hotspot_logcompilation", NMETHOD, len(NMETHOD)),
        ("hotspot_logcompilation", b"<task compile_id='9'>", 21),
        ("hotspot_logcompilation", b"the program says", None),
        ("hotspot_xlog", INSTALL, len(INSTALL) - 1),
        ("hotspot_xlog", OSR, len(OSR) - 1),
        ("hotspot_xlog", USED, len(USED)),
        ("hotspot_xlog", FLUSH, len(FLUSH)),
        ("hotspot_xlog", b"[32ns][trace][gc] GC(6) oops_do_marking_epilogue", None),
        ("perfmap", b"7f009000 100 JS:^h a.js:1:1", 17),
        ("perfmap", b"7f009000 100 Builtin:Entry", 21),
        ("jvmti", b"A,50,0x3000,8,nmethod", 21),
        ("jvmti", b"A,50,0x3000,8,stub", 18),
        ("luajit", b"A,0.001600,0x55b74c8afc00,120,tr1,loop", 38),
    ],
)
def test_a_log_cut_inside_its_last_line(
    tmp_path: Path, format: str, whole: bytes, first_whole: int | None
) -> None:
    data = SAMPLES[format]
    if whole.startswith(b"delete"):
        data += b"new,MemoryChunk,0x10000,4096\n"
    number = data.count(b"\n") + 1
    before = load(tmp_path, data)
    for length in range(1, len(whole) + 1):
        cut = data + whole[:length]
        if first_whole is not None and length >= first_whole:
            trace = load(tmp_path, cut)
            assert trace.metadata["counts"]["unended_lines"] == 1
            assert shape(trace) == shape(load(tmp_path, cut + b"\n"))
            continue
        with pytest.raises(px.TraceError, match=rf"code: line {number}: .*expected ") as caught:
            load(tmp_path, cut)
        shown = whole[:length].decode().rstrip()[:80]
        assert shown in str(caught.value)
        trace = load(tmp_path, cut, on_error="skip")
        assert sum(trace.metadata["dropped"].values()) == 1
        assert shape(trace) == shape(before)
        # In the middle of a file the same is no sign of anything.
        trace = load(tmp_path, cut + b"\n", on_error="skip")
        assert "unended_lines" not in trace.metadata["counts"]
        assert "truncated" not in trace.metadata["dropped"]


@pytest.mark.parametrize("format", ["v8", "hotspot_xlog", "hotspot_logcompilation"])
def test_a_cut_line_is_told_from_a_malformed_one(tmp_path: Path, format: str) -> None:
    line = {"v8": V8_LINE[:30], "hotspot_xlog": FLUSH[:70]}.get(format, NMETHOD[:40])
    cut = SAMPLES[format] + line
    with pytest.raises(px.TraceError, match="the file ends inside this line: expected "):
        load(tmp_path, cut)
    assert load(tmp_path, cut, on_error="skip").metadata["dropped"] == {"truncated": 1}
    assert load(tmp_path, cut + b"\n", on_error="skip").metadata["dropped"] == {"syntax": 1}


@pytest.mark.parametrize(
    ("format", "line"),
    [
        ("v8", b"script-source,2,b.js,"),
        ("hotspot_logcompilation", b"<jvms "),
        ("hotspot_xlog", b"[9ns] "),
    ],
)
def test_a_log_cut_inside_a_line_of_any_length(tmp_path: Path, format: str, line: bytes) -> None:
    reader = codetraces.FORMATS[format](False)
    for length in (reader.most_line_bytes + 1, reader.most_line_bytes + 2, 3_000_000):
        cut = SAMPLES[format] + line.ljust(length, b"x")
        with pytest.raises(px.TraceError, match="the file ends inside this line"):
            load(tmp_path, cut)
        trace = load(tmp_path, cut, on_error="skip")
        assert trace.metadata["dropped"] == {"truncated": 1}
        assert "unended_lines" not in load(tmp_path, cut + b"\n").metadata["counts"]


def test_what_a_program_writes_last_may_lack_its_end(tmp_path: Path) -> None:
    for text in (b"done", b"[1, 2", b"[12, 3]", b"[INFO] Built", b"done" * 40_000):
        trace = load(tmp_path, SAMPLES["hotspot_xlog"] + text)
        assert shape(trace) == shape(load(tmp_path, SAMPLES["hotspot_xlog"]))
        assert trace.metadata["counts"]["unended_lines"] == 1


def test_a_compilation_log_that_a_killed_vm_left(tmp_path: Path) -> None:
    data = SAMPLES["hotspot_logcompilation"]
    assert load(tmp_path, data).metadata["counts"]["unclosed_logs"] == 1
    closed = data + b"</hotspot_log>"
    counts = load(tmp_path, closed + b"\n").metadata["counts"]
    assert "unclosed_logs" not in counts
    assert "unended_lines" not in counts
    for more in (b"", b"\nthe program goes on", b"\n" + b"x" * 70_000):
        counts = load(tmp_path, closed + more).metadata["counts"]
        assert "unclosed_logs" not in counts
        assert counts["unended_lines"] == 1


@pytest.mark.parametrize("format", SAMPLES)
def test_gzip_cut_off(tmp_path: Path, format: str) -> None:
    packed = gzip.compress(SAMPLES[format])
    for cut in (len(packed) - 1, len(packed) - 8, len(packed) // 2):
        for on_error in ("raise", "skip"):
            with pytest.raises(
                px.TraceError, match=r"code: damaged or truncated after \d[\d,]* unpacked bytes: "
            ):
                load(tmp_path, packed[:cut], on_error=on_error, format=format)


# ---- jitdumps -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("more", "message"),
    [
        (b"\0" * 7, "expected 16 bytes of id, size and time, found 7, in "),
        (struct.pack("<IIQ", 2, 15, 1), "at least 16 bytes, not 15; this record is DEBUG_INFO"),
        (struct.pack("<IIQ", 77, 3, 1), r"this record is unknown \(id 77\) of 3 bytes, in "),
        (loaded("<", 1, 1, 9)[:-1], r"expected 71 bytes, found 70; this record is LOAD \(id 0\)"),
        (loaded("<", 1, 1, 9)[:40], r"expected 71 bytes, found 40; this record is LOAD \(id 0\)"),
        (record("<", 3, 1, b"1234")[:18], r"expected 20 bytes, found 18; this record is CLOSE"),
        (loaded("<", 1, (1 << 64) - 1, 2), r"not 2 bytes at 0xf+; this record is LOAD"),
        (
            moved("<", 1, 0x9999, 1, 4),
            r"not from 0x9999 to 0x1; this record is MOVE \(id 1\) of 64",
        ),
    ],
)
def test_jitdump_errors_say_what_was_found(tmp_path: Path, more: bytes, message: str) -> None:
    data = a_dump()
    with pytest.raises(px.TraceError, match=rf"code: offset {len(data)}: .*{message}") as caught:
        load(tmp_path, data + more)
    # The bytes themselves: those of id, size and time.
    shown = "".join(chr(b) if 32 <= b < 127 and b != 92 else f"\\x{b:02x}" for b in more[:4])
    assert f"in '{shown}" in str(caught.value).replace("\\\\", "\\")


def test_jitdump_headers_say_what_was_found(tmp_path: Path) -> None:
    for data, message in (
        (header()[:39], "offset 0: expected a header of 40 bytes, the file has 39, in 'DTiJ"),
        (header(size=64)[:50], "offset 0: expected a header of 64 bytes, found 50"),
        (header(version=7), "offset 4: expected version 1, not 7, in 'DTiJ"),
    ):
        with pytest.raises(px.TraceError, match=message):
            load(tmp_path, data)


@pytest.mark.parametrize("id", [0, 1, 2, 9])
def test_a_record_that_claims_4_gib_takes_no_memory(tmp_path: Path, id: int) -> None:
    body = struct.pack("<IIQQQQ", 7, 7, 1, 0x9000, 0xFFFFFF00, 0) + b"f" * (2 << 20)
    data = a_dump() + struct.pack("<IIQ", id, 0xFFFFFFFF, 99) + body
    load(tmp_path, a_dump())
    tracemalloc.start()
    with pytest.raises(px.TraceError, match=rf"offset {len(a_dump())}: .*4294967295 bytes"):
        load(tmp_path, data)
    trace = load(tmp_path, data, on_error="skip")
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 8 << 20
    assert trace.n_objects == load(tmp_path, a_dump()).n_objects


# ---- files whose beginning is malformed ---------------------------------------------------------


@pytest.mark.parametrize(
    ("format", "text"),
    [
        ("jvmti", "A,10,0x1000,29\n"),
        ("jvmti", "A,10,1000,29,stub\n"),
        ("jvmti", "A,ten,0x1000,29,stub\n"),
        ("jvmti", "F,30,2000\n"),
        ("jvmti", "A,10,0x1000,29,stub,more\n"),
        ("jvmti", "\nA,10,0x1000,29\n"),
        ("luajit", "A,0.1,0x1,2,tr1\n"),
        ("luajit", "A,one,0x1,2,tr1,root\n"),
        ("v8", "code-creation,JS,11,26866\n"),
        ("v8", "code-move,1,2\n"),
        ("perfmap", "7f001000 100\n7f001000 100 f\n7f002000 100 g\n"),
        ("hotspot_logcompilation", "<nmethod id='1'/>\n"),
        ("hotspot_xlog", "[1ns][info] Installing method java.lang.Object.<init>()V\n"),
    ],
)
def test_a_malformed_first_line_gets_the_error_of_its_format(
    tmp_path: Path, format: str, text: str
) -> None:
    with pytest.raises(px.TraceError, match=r"code: line \d: expected ") as caught:
        load(tmp_path, text)
    with pytest.raises(px.TraceError) as named:
        load(tmp_path, text, format=format)
    assert str(caught.value) == str(named.value)


# ---- anything -----------------------------------------------------------------------------------


@st.composite
def hostile(draw: st.DrawFn) -> tuple[str, bytes]:
    """Return a sample with damage as disks, editors and attackers do it."""
    format = draw(st.sampled_from(sorted(SAMPLES)))
    data = bytearray(SAMPLES[format])
    for _ in range(draw(st.integers(1, 4))):
        at = draw(st.integers(0, len(data)))
        kind = draw(
            st.sampled_from(["flip", "drop", "double", "huge", "nul", "crlf", "latin", "word"])
        )
        if kind == "flip" and data:
            data[at % len(data)] ^= 1 << draw(st.integers(0, 7))
        elif kind in ("drop", "double"):
            lines = bytes(data).split(b"\n")
            which = draw(st.integers(0, len(lines) - 1))
            lines[which : which + 1] = [] if kind == "drop" else [lines[which]] * 2
            data = bytearray(b"\n".join(lines))
        elif kind == "huge":
            numbers = list(re.finditer(rb"[0-9a-f]+", data))
            if numbers:
                number = numbers[draw(st.integers(0, len(numbers) - 1))]
                data[number.start() : number.end()] = draw(
                    st.sampled_from([b"9" * 19, b"f" * 16, b"9" * 5000, b"0", b"-1", b"1" * 21])
                )
        elif kind == "nul":
            data[at:at] = b"\0" * draw(st.integers(1, 3))
        elif kind == "crlf":
            data = bytearray(bytes(data).replace(b"\n", b"\r\n"))
        elif kind == "latin":
            data[at:at] = draw(st.sampled_from([b"\xe9", b"\xff\xfe", b"\xed\xa0\x80", b"\x1b[2J"]))
        else:
            # What a jitdump says of sizes, mostly.
            word = draw(st.sampled_from([0, 1, 15, 16, 57, 1 << 31, (1 << 32) - 1]))
            data[at - at % 4 : at - at % 4 + 4] = struct.pack("<I", word)
    return format, bytes(data[: draw(st.integers(0, len(data)))] if draw(st.booleans()) else data)


WHERE = re.compile(
    r"/code: (line [1-9]\d*: |offset \d+: |the file is empty|this begins with .*; expected a trace "
    r"|expected plain ASCII text|not one line is an event|nothing is left, every event was dropped)"
)


@QUICK
@given(made=hostile(), on_error=st.sampled_from(["raise", "skip"]), named=st.booleans())
@example(("jvmti", b"A,10,0x1000,29"), "raise", False)
@example(("jitdump", a_dump() + struct.pack("<IIQ", 0, 0xFFFFFFFF, 1)), "raise", True)
@example(("v8", b"v8-version,1\0" + SAMPLES["v8"]), "raise", False)
@example(
    ("hotspot_xlog", b"[1ns] Installing method (" + b"9" * 5000 + b") A.f()V\n"), "raise", True
)
@example(
    ("hotspot_xlog", b"[" + b"9" * 5000 + b"ns] Installing method (3) A.f()V\n"), "raise", True
)
def test_hostile_files_give_a_trace_or_a_place(
    tmp_path: Path, made: tuple[str, bytes], on_error: str, named: bool
) -> None:
    format, data = made
    outcome: px.Trace | str
    try:
        outcome = load(tmp_path, data, on_error=on_error, format=format if named else None)
    except px.TraceError as error:
        outcome = str(error)
    if isinstance(outcome, str):
        assert WHERE.search(outcome)
        assert outcome.isprintable()
        assert len(outcome) < 1200
        return
    trace = outcome
    # The constructor checks every event once more.
    assert px.Trace(**trace.columns()) == trace
    trace.summary()


@pytest.mark.parametrize("format", SAMPLES)
def test_memory_does_not_grow_with_a_line(tmp_path: Path, format: str) -> None:
    data = SAMPLES[format]
    for filler in (b"9" * (8 << 20), b"\0" * (8 << 20), b"\n" * 10_000, b"[" * (4 << 20)):
        for text in (data + filler, data.rstrip(b"\n") + filler, filler + b"\n" + data):
            tracemalloc.start()
            with contextlib.suppress(px.TraceError):
                load(tmp_path, text, on_error="skip", format=format)
            _, peak = tracemalloc.get_traced_memory()
            tracemalloc.stop()
            assert peak < 8 << 20
