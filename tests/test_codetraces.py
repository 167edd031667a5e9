"""Code traces: what the lines of each format mean, what is inferred, what is refused, recording."""

from __future__ import annotations

import gzip
import itertools
import struct
import zipfile
from pathlib import Path

import pytest
from code_cases import (
    COMPILATION,
    JVMTI,
    LUAJIT,
    MAP,
    SAMPLES,
    V8,
    XLOG,
    A,
    F,
    a_dump,
    flush,
    header,
    inferred,
    install,
    kinds,
    load,
    loaded,
    moved,
    record,
    shape,
    times,
    used,
)
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

import pyallocx as px
from pyallocx import codetraces
from pyallocx.cli import main
from pyallocx.codetraces._intervals import LiveCode

QUICK = settings(suppress_health_check=[HealthCheck.function_scoped_fixture])


# ---- intervals ----------------------------------------------------------------------------------


@given(
    st.lists(
        st.tuples(st.sampled_from("aatm"), st.integers(0, 60), st.integers(0, 12)), max_size=60
    )
)
def test_intervals_are_those_of_a_set_of_bytes(steps: list[tuple[str, int, int]]) -> None:
    live, model = LiveCode(), dict[int, tuple[int, int]]()
    for object, (what, start, size) in enumerate(steps):
        if what == "t":
            taken = live.take(start)
            assert (None if taken is None else taken.object) == model.pop(start, (0, None))[1]
            continue
        mine = set(range(start, start + max(size, 1)))
        hit = {
            at: each for at, each in model.items() if mine & set(range(at, at + max(each[0], 1)))
        }
        assert [each.start for each in live.overlapping(start, size)] == sorted(hit)
        if what == "a":
            found = live.take_overlapping(start, size)
            assert [each.object for each in found] == [hit[at][1] for at in sorted(hit)]
            model = {at: each for at, each in model.items() if at not in hit}
            live.add(start, size, object)
            model[start] = (size, object)
        assert len(live) == len(model)
    assert [each.object for each in live.take_all()] == sorted(o for _, o in model.values())
    assert len(live) == 0


# ---- V8 -----------------------------------------------------------------------------------------


def test_v8_drops_what_is_not_in_code_space(tmp_path: Path) -> None:
    trace = load(tmp_path, V8)
    assert shape(trace) == [("A", 0, 256), ("A", 1, 512)]
    assert kinds(trace) == ["JS:^", "JS:*"]
    assert times(trace) == [20_000, 30_000]
    assert trace.metadata["reader"] == "v8"
    assert trace.metadata["v8_version"] == "11.3.244.8"
    assert trace.metadata["counts"] == {"embedded": 2, "bytecode": 1}
    assert trace.metadata["obtained"] == {
        "allocs": {"seen": 2, "inferred": {}},
        "frees": {"seen": 0, "inferred": {}},
    }


def test_v8_bytecode_without_a_tier_has_the_kind_of_other_bytecode(tmp_path: Path) -> None:
    lines = "code-creation,JS,10,40,0x6000,9,g,0x77,\ncode-creation,JS,9,41,0x10800,16,h,0x77,\n"
    trace = load(tmp_path, V8 + lines)
    assert trace.metadata["counts"]["bytecode"] == 2
    assert kinds(trace)[2:] == ["JS"]


def test_v8_copies_of_the_interpreter_are_machine_code(tmp_path: Path) -> None:
    trace = load(tmp_path, V8 + "code-creation,JS,2,40,0x10800,300,g,0x77,~\n")
    assert kinds(trace) == ["JS:^", "JS:*", "JS:~"]


@pytest.mark.parametrize(
    "name",
    [
        r"f a\x2Cb.js:1:1",
        '"f a,b.js:1:1"',
        '"say ""f,0x12,~"" now"',
        "f a,b,0x1,c.js",
        "",
        "\xe9\u4e2d\x07",
    ],
)
def test_v8_names_may_hold_anything(tmp_path: Path, name: str) -> None:
    trace = load(tmp_path, V8 + f"code-creation,JS,13,40,0x10800,16,{name},0x7f,*\n")
    assert shape(trace)[2:] == [("A", 2, 16)]
    assert kinds(trace)[2:] == ["JS:*"]
    trace = load(tmp_path, V8 + f"code-creation,RegExp,3,40,0x10800,16,{name}\n")
    assert kinds(trace)[2:] == ["RegExp"]


def test_v8_overlap(tmp_path: Path) -> None:
    # Of the two, the last byte of the one and the first of the other.
    trace = load(tmp_path, V8 + "code-creation,JS,11,40,0x100ff,2,g,0x7f,^\n")
    assert shape(trace)[2:] == [("F", 0, 0), ("F", 1, 0), ("A", 2, 2)]
    assert times(trace)[2:] == [40_000] * 3
    assert inferred(trace) == {"overlap": 2}
    assert kinds(trace) == ["JS:^", "JS:*", "JS:^"]
    beside = "code-creation,JS,11,40,0x10300,2,g,0x7f,^\ncode-creation,JS,11,40,0xffff,1,g,0x7f,^\n"
    assert inferred(load(tmp_path, V8 + beside)) == {}


def test_v8_embedded_code_and_bytecode_end_nothing(tmp_path: Path) -> None:
    lines = "code-creation,Builtin,2,40,0x10000,8,B\ncode-creation,JS,10,40,0x10000,8,g,0x7f,~\n"
    assert inferred(load(tmp_path, V8 + lines)) == {}


def test_v8_moves_come_before_overlap(tmp_path: Path) -> None:
    moved = V8 + "code-move,0x10000,0x10800\ncode-creation,JS,11,40,0x10000,256,g,0x7f,^\n"
    trace = load(tmp_path, moved)
    assert shape(trace)[2:] == [("A", 2, 256)]
    assert trace.metadata["counts"]["moves"] == 1
    trace = load(tmp_path, moved + "code-creation,JS,11,50,0x10880,8,g,0x7f,^\n")
    assert shape(trace)[3:] == [("F", 0, 0), ("A", 3, 8)]


def test_v8_moves_over_what_is_there(tmp_path: Path) -> None:
    trace = load(tmp_path, V8 + "code-move,0x10000,0x10101\ncode-move,0x10101,0x10110\n")
    assert shape(trace)[2:] == [("F", 1, 0)]
    assert inferred(trace) == {"overlap": 1}
    assert trace.metadata["counts"]["moves"] == 2


def test_v8_moves_of_others(tmp_path: Path) -> None:
    lines = "code-move,0x5000,0x5800\ncode-move,0x5800,0x5000\ncode-move,0x1,0x2\n"
    trace = load(tmp_path, V8 + lines)
    assert shape(trace) == shape(load(tmp_path, V8))
    assert trace.metadata["counts"]["moves_of_others"] == 2
    assert trace.metadata["counts"]["moves_of_unknown"] == 1


def test_v8_deleted_chunks(tmp_path: Path) -> None:
    lines = "delete,LargeObjectChunk,0x10000\ndelete,MemoryChunk,0x10000\nnew,CodeRange,0x30,0\n"
    later = "code-creation,JS,11,40,0x80000,16,g,0x7f,^\n"
    trace = load(tmp_path, V8 + lines + "delete,CodeRange,0x30\n" + later)
    assert shape(trace)[2:] == [("F", 0, 0), ("F", 1, 0), ("A", 2, 16)]
    assert inferred(trace) == {"deleted_chunk": 2}
    assert trace.metadata["counts"]["deletes_of_unknown"] == 1


def test_v8_the_end_of_the_program_is_no_death(tmp_path: Path) -> None:
    """Only where all code dies after the last creation or move; the trace ends before it."""
    more = "new,MemoryChunk,0x20000,4096\ncode-creation,JS,11,40,0x20000,16,g,0x7f,^\n"
    ends = ["delete,MemoryChunk,0x10000\n", "delete,MemoryChunk,0x20000\n"]
    trace = load(tmp_path, V8 + more + "".join(ends))
    assert shape(trace) == shape(load(tmp_path, V8 + more))
    assert inferred(trace) == {}
    assert trace.metadata["counts"]["deaths_at_exit"] == 3
    assert trace.summary()["live_objects_end"] == 3
    # A collector took a page, and the log ended while other code lived.
    trace = load(tmp_path, V8 + more + ends[0])
    assert inferred(trace) == {"deleted_chunk": 2}
    assert "deaths_at_exit" not in trace.metadata["counts"]
    # One page died in the run.
    trace = load(tmp_path, V8 + ends[0] + more + ends[1])
    assert shape(trace)[-1] == ("A", 2, 16)
    assert inferred(trace) == {"deleted_chunk": 2}
    assert trace.metadata["counts"]["deaths_at_exit"] == 1


def test_v8_lines_passed_over(tmp_path: Path) -> None:
    lines = "code-deopt,1,2\nscript-source,1,a.js,delete\\x2Call\nno-such-kind,1\nhello\n\n"
    trace = load(tmp_path, V8 + lines + "script-source,2,b.js," + "x" * 3_000_000 + "\n" + V8)
    assert trace.metadata["counts"]["unknown_lines"] == 3
    assert trace.metadata["counts"]["long_lines"] == 1
    assert trace.n_objects == 4


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("code-creation,JS,11,26866,0x7f2", "expected 'code-creation,TYPE,KIND"),
        ("code-creation,JS,11,26866,7f2,8,f", "expected 'code-creation,TYPE,KIND"),
        ("code-creation,JS,11,0x7f2,8,f", "expected 'code-creation,TYPE,KIND"),
        ("code-creation,JS,-1,1,0x7f2,8,f", "expected 'code-creation,TYPE,KIND"),
        ("code-creation,JS,11,1,0xffffffffffffffff,2,f,0x7f,^", "ends below 2\\*\\*64"),
        ("code-creation,JS,11,1,0x1,18446744073709551616,f,0x7f,^", "a number below"),
        ("code-creation,JS,11,1,0x" + "1" * 5000 + ",2,f,0x7f,^", "a number below"),
        ("code-creation,JS,11,99999999999999999,0x1,2,f,0x7f,^", "a number below"),
        ("code-move,0x1", "expected 'code-move,0xFROM,0xTO'"),
        ("code-move,0x10000,0xfffffffffffffff0", "ends below 2\\*\\*64"),
        ("new,MemoryChunk,0x1", "expected 'new,NAME,0xADDRESS,BYTES'"),
        ("delete,MemoryChunk", "expected 'delete,NAME,0xADDRESS'"),
        ("code-creation,JS,11,1,0x1,2," + "f" * (1 << 20), "at most 1048576 bytes"),
    ],
)
def test_v8_refusals(tmp_path: Path, line: str, expected: str) -> None:
    with pytest.raises(px.TraceError, match=f"code: line 8: .*{expected}.*, in '"):
        load(tmp_path, V8 + line + "\n")
    trace = load(tmp_path, V8 + line + "\n", on_error="skip")
    assert trace.metadata["dropped"] == {"syntax": 1}
    assert shape(trace) == shape(load(tmp_path, V8))


def test_times_are_made_to_run_forward(tmp_path: Path) -> None:
    trace = load(tmp_path, V8 + "code-creation,JS,11,7,0x10800,16,g,0x7f,^\n")
    assert times(trace) == [20_000, 30_000, 30_000]
    assert trace.metadata["counts"]["times_raised"] == 1


# ---- perf ---------------------------------------------------------------------------------------


def test_perf_map(tmp_path: Path) -> None:
    trace = load(tmp_path, MAP)
    assert shape(trace)[:4] == [("A", 0, 0x300), ("A", 1, 0x100), ("A", 2, 0x40), ("A", 3, 0x40)]
    assert shape(trace)[4:] == [("F", 1, 0), ("F", 2, 0), ("A", 4, 2)]
    assert kinds(trace) == ["Builtin", "JS:^", "py", "code", "JS:*"]
    assert trace.time_ns is None
    assert trace.metadata["reader"] == "perfmap"
    assert trace.metadata["counts"] == {"embedded": 1, "bytecode": 1}
    assert inferred(trace) == {"overlap": 2}


@pytest.mark.parametrize(
    "line", ["7f001000 100", "0x7f001000 100 f", "7f001000 -1 f", "1" * 17 + " 1 f", ""]
)
def test_perf_map_refusals(tmp_path: Path, line: str) -> None:
    text = MAP + "1 1 a\n2 1 b\n" + line + "\n"
    with pytest.raises(px.TraceError, match=r"code: line 9: expected 'START SIZE NAME'"):
        load(tmp_path, text)
    assert load(tmp_path, text, on_error="skip").metadata["dropped"] == {"syntax": 1}


@pytest.mark.parametrize("order", "<>")
@pytest.mark.parametrize("size", [40, 48])
def test_jitdump(tmp_path: Path, order: str, size: int) -> None:
    trace = load(tmp_path, a_dump(order, size=size))
    assert shape(trace) == [
        ("A", 0, 64),
        ("A", 1, 300),
        ("F", 1, 0),
        ("A", 2, 4),
        ("A", 3, 64),
    ]
    assert kinds(trace) == ["Builtin", "JS:^", "code", "code"]
    assert times(trace) == [10, 20, 40, 40, 50]
    assert trace.metadata["reader"] == "jitdump"
    assert (trace.metadata["pid"], trace.metadata["elf_machine"]) == (7, 62)
    assert trace.metadata["counts"] == {
        "unwinding_infos": 1,
        "embedded": 1,
        "debug_infos": 1,
        "moves": 1,
        "unknown_records": 1,
        "closes": 1,
    }
    assert inferred(trace) == {"overlap": 1}


def test_jitdump_with_the_times_of_a_counter(tmp_path: Path) -> None:
    assert load(tmp_path, a_dump(flags=1)).time_ns is None


@pytest.mark.parametrize("order", "<>")
def test_jitdump_cut_anywhere(tmp_path: Path, order: str) -> None:
    data = a_dump(order)
    ends = [40]
    while ends[-1] < len(data):
        ends.append(ends[-1] + struct.unpack_from(f"{order}I", data, ends[-1] + 4)[0])
    for cut in range(1, len(data)):
        if cut in ends:
            load(tmp_path, data[:cut])
            continue
        start = max((end for end in ends if end < cut), default=0)
        what = "a header of 40 bytes" if cut < 40 else "the file ends inside this record"
        if cut < 4:
            what = "expected a trace"
        with pytest.raises(px.TraceError, match=what) as caught:
            load(tmp_path, data[:cut])
        if cut > 40:
            assert f"offset {start}: " in str(caught.value)
            # A load is one only with all of its code.
            skipped = (
                load(tmp_path, data[:cut], on_error="skip", format="jitdump")
                if (cut > ends[2])
                else None
            )
            if skipped is not None:
                assert skipped.metadata["dropped"] == {"truncated": 1}
                assert len(skipped) == len(load(tmp_path, data[:start]))


@pytest.mark.parametrize(
    ("more", "kind", "message"),
    [
        (struct.pack("<IIQ", 2, 15, 1), "syntax", "a record of at least 16 bytes, not 15"),
        (struct.pack("<IIQ", 0, 56, 1), "syntax", "a LOAD of at least 57 bytes, not 56"),
        (struct.pack("<IIQ", 1, 63, 1), "syntax", "a MOVE of at least 64 bytes, not 63"),
        (
            record("<", 0, 1, struct.pack("<IIQQQQ", 7, 7, 1, 1, 9, 0) + b"f\0" + b"x" * 8),
            "syntax",
            "a name and 9 bytes of code in a LOAD of 66 bytes",
        ),
        (
            record("<", 0, 1, struct.pack("<IIQQQQ", 7, 7, 1, 1, 1 << 63, 0) + b"f\0"),
            "syntax",
            "a name and",
        ),
        (
            record("<", 0, 1, struct.pack("<IIQQQQ", 7, 7, 1, 1, 0, 0) + b"f" * 70000),
            "syntax",
            "a name and 0 bytes",
        ),
        (loaded("<", 1, (1 << 64) - 1, 2), "syntax", "ends below"),
        (moved("<", 1, 0x9999, 0x1, 4), "move_of_unknown", "move of 0x9999"),
        (moved("<", 1, 0x1000, 0x1, 4), "syntax", "a move of 64 bytes, not 4"),
        (moved("<", 1, 0x1000, (1 << 64) - 2, 64), "syntax", "ends below"),
    ],
)
def test_jitdump_refusals(tmp_path: Path, more: bytes, kind: str, message: str) -> None:
    data = a_dump()
    with pytest.raises(px.TraceError, match=f"code: offset {len(data)}: .*{message}"):
        load(tmp_path, data + more)
    trace = load(tmp_path, data + more, on_error="skip")
    assert trace.metadata["dropped"] == {kind: 1}
    assert shape(trace) == shape(load(tmp_path, data))


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (header(version=2), "offset 4: expected version 1, not 2"),
        (struct.pack("<III", 0x4A695444, 1, 39).ljust(40, b"\0"), "offset 8: expected a header"),
        (b"DTiJ" + b"\1\0", "offset 0: expected a header of 40 bytes"),
    ],
)
def test_jitdump_headers(tmp_path: Path, data: bytes, message: str) -> None:
    for on_error in ("raise", "skip"):
        with pytest.raises(px.TraceError, match=message):
            load(tmp_path, data, on_error=on_error)
    with pytest.raises(px.TraceError, match="expected the magic"):
        load(tmp_path, b"x" * 40, format="jitdump")


# ---- HotSpot ------------------------------------------------------------------------------------


def test_log_compilation(tmp_path: Path) -> None:
    trace = load(tmp_path, COMPILATION + "</hotspot_log>\n")
    assert shape(trace) == [
        ("A", 0, 760),
        ("A", 1, 96),
        ("F", 0, 0),
        ("A", 2, 100),
        ("A", 3, 10),
    ]
    assert kinds(trace) == ["c1 level 3", "native", "c2 level 4 osr", "c2"]
    assert times(trace) == [35_000_000, 36_000_000] + [1_500_000_000] * 3
    assert trace.metadata["reader"] == "hotspot_logcompilation"
    assert trace.metadata["counts"] == {
        "made_not_entrant": 1,
        "made_zombie": 1,
        "made_unloaded": 1,
        "times_raised": 1,
    }
    assert inferred(trace) == {"overlap": 1}


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("<nmethod compile_id='1' size='7", "one whole element <nmethod .../>"),
        ("<nmethod compile_id='1' address='0x1' stamp='0.1'/>", "an attribute size"),
        ("<nmethod compile_id='1' size='8' stamp='0.1'/>", "an attribute address"),
        ("<nmethod compile_id='1' size='8' address='0x1'/>", "an attribute stamp"),
        ("<nmethod size='8' address='0x1' stamp='0.1'/>", "an attribute compile_id"),
        ("<nmethod compile_id='x' size='8' address='0x1' stamp='0.1'/>", "numbers as compile_id"),
        ("<nmethod compile_id='1' size='-8' address='0x1' stamp='0.1'/>", "numbers as compile_id"),
        ("<nmethod compile_id='1' size='8' address='1' stamp='0.1'/>", "numbers as compile_id"),
        ("<nmethod compile_id='1' size='8' address='0x1' stamp='soon'/>", "a stamp in seconds"),
        ("<make_not_entrant compile_id='1'/>", "<make_not_entrant> with an attribute stamp"),
        ("<nmethod compile_id='1' " + "x" * 70000, "at most 65536 bytes"),
    ],
)
def test_log_compilation_refusals(tmp_path: Path, line: str, message: str) -> None:
    with pytest.raises(px.TraceError, match=f"code: line 12: .*{message}"):
        load(tmp_path, COMPILATION + line + "\n")
    trace = load(tmp_path, COMPILATION + line + "\n", on_error="skip")
    assert trace.metadata["dropped"] == {"syntax": 1}
    assert len(load(tmp_path, COMPILATION + "x" * 70000 + "\n")) == len(trace) == 5


def test_xlog(tmp_path: Path) -> None:
    text = "".join(
        [
            "[1ns][info][aot,codecache,init] AOT Code Cache is not used: AOTCache is missing.\n",
            install(10, "A.f") + used(11, 100),
            install(20, "B.f") + used(21, 103),
            "hello from the program\n",
            install(30, "A.g", 4) + install(31, "C.f", osr="osr ") + used(32, 104),
            used(33, 105),
            install(40, "A.h", 1) + used(41, 90),
            flush(50, "f"),
            install(60, "A.i") + used(61, 91),
            install(70, "A.j") + used(71, 92),
            flush(80, "f"),
            flush(81, "f", osr=1),
        ]
    )
    trace = load(tmp_path, text)
    assert shape(trace) == [
        ("A", 0, 0),  # the first of the log
        ("A", 1, 3072),
        ("A", 2, 1024),  # two creations share what they grew by together
        ("A", 3, 1024),
        ("A", 4, 0),  # used shrank
        ("F", 0, 0),
        ("A", 5, 0),  # after a flush
        ("A", 6, 1024),
        ("F", 1, 0),
        ("F", 3, 0),
    ]
    assert times(trace) == [10, 20, 30, 31, 40, 50, 60, 70, 80, 81]
    assert kinds(trace) == [f"level {n}" for n in ("3", "3", "4", "3 osr", "1", "3", "3")]
    assert trace.metadata["reader"] == "hotspot_xlog"
    assert trace.metadata["counts"] == {"sizes_unknown": 3}
    assert trace.metadata["obtained"] == {
        "allocs": {"seen": 7, "inferred": {}},
        "frees": {"seen": 3, "inferred": {}},
        "sizes": {"seen": 0, "inferred": {"growth_of_used_kib": 4}},
        "freed_objects": {"seen": 0, "inferred": {"oldest_of_name_and_level": 3}},
    }


def test_xlog_of_a_segmented_cache(tmp_path: Path) -> None:
    def all_used(time: int, one: int, two: int) -> str:
        return used(time, one, "CodeHeap 'profiled nmethods'") + used(
            time, two, "CodeHeap 'non-nmethods'"
        )

    text = install(1, "A.f") + all_used(2, 10, 20) + install(3, "A.g") + all_used(4, 12, 21)
    assert shape(load(tmp_path, text)) == [("A", 0, 0), ("A", 1, 3072)]


@pytest.mark.parametrize(
    ("stamp", "ns"), [("[0.125s]", 125_000_000), ("[12ms]", 12_000_000), ("[now]", None)]
)
def test_xlog_times(tmp_path: Path, stamp: str, ns: int | None) -> None:
    text = (install(1, "A.f") + used(1, 5) + install(1, "A.f") + used(1, 6)).replace("[1ns]", stamp)
    trace = load(tmp_path, text)
    assert trace.time_ns is None if ns is None else times(trace) == [ns, ns]


def test_xlog_without_sizes_is_refused(tmp_path: Path) -> None:
    text = install(10, "A.f") + install(20, "B.f")
    with pytest.raises(px.TraceError, match=r"line 2: expected 'CodeCache: .* alone .* sizes"):
        load(tmp_path, text)
    trace = load(tmp_path, text, on_error="skip")
    assert trace.metadata["counts"] == {"sizes_unknown": 2}


@pytest.mark.parametrize(
    ("line", "kind", "message"),
    [
        ("[30ns][info] Installing method (3) A", "syntax", "expected 'Installing method"),
        ("[30ns][info] Flushing nmethod 3/0x7f", "syntax", "expected 'Flushing nmethod"),
        ("[30ns][info] CodeCache: size=20480Kb used=1", "syntax", "expected 'CodeCache"),
        ("[info] Installing method (3) A.f()V", "syntax", "expected an uptime"),
        (flush(30, "g"), "free_of_unknown", "expected one that was installed"),
        (flush(30, "f", 4), "free_of_unknown", "expected one that was installed"),
        (flush(30, "f", osr=1), "free_of_unknown", "expected one that was installed"),
        ("[30ns] Installing method (3) " + "A" * 70000, "syntax", "at most 65536"),
    ],
)
def test_xlog_refusals(tmp_path: Path, line: str, kind: str, message: str) -> None:
    with pytest.raises(px.TraceError, match=f"code: line 5: .*{message}"):
        load(tmp_path, XLOG + line.rstrip("\n") + "\n")
    trace = load(tmp_path, XLOG + line.rstrip("\n") + "\n", on_error="skip")
    assert trace.metadata["dropped"] == {kind: 1}
    assert shape(trace) == [("A", 0, 0), ("A", 1, 3072)]


# ---- JVMTI and LuaJIT ---------------------------------------------------------------------------


def test_jvmti(tmp_path: Path) -> None:
    trace = load(tmp_path, JVMTI + "A,50,0x2800,4,stub\nA,60,0x2800,5,stub\n")
    assert shape(trace) == [
        ("A", 0, 29),
        ("A", 1, 932),
        ("F", 1, 0),
        ("A", 2, 8),
        ("F", 0, 0),
        ("A", 3, 8),
        # Nobody says when a stub dies: where another is, it must have.
        ("A", 4, 4),
        ("F", 4, 0),
        ("A", 5, 5),
    ]
    assert times(trace) == [10, 20, 30, 30, 40, 40, 50, 60, 60]
    assert kinds(trace) == ["stub", "nmethod", "nmethod", "nmethod", "stub", "stub"]
    assert trace.metadata["reader"] == "jvmti"
    assert trace.metadata["obtained"]["frees"] == {"seen": 1, "inferred": {"overlap": 2}}
    assert trace.metadata["obtained"]["frees_of_stubs"] == {"seen": 0, "inferred": {"overlap": 2}}


@pytest.mark.parametrize(
    ("line", "kind", "message"),
    [
        ("A,50,0x2007,8,stub", "alloc_of_live", "code over live code at 0x2000"),
        ("F,50,0x2001", "free_of_unknown", "free of an address that is not live"),
        ("F,50,0x1000", "free_of_unknown", "free of an address that is not live"),
        ("A,50,0x3000,8", "syntax", "expected 'A,ns"),
        ("A,50,0x3000,8,stub,more", "syntax", "expected 'A,ns"),
        ("F,50,3000", "syntax", "expected 'A,ns"),
        ("", "syntax", "expected 'A,ns"),
        ("A,50,0xffffffffffffffff,2,stub", "syntax", "ends below"),
    ],
)
def test_jvmti_refusals(tmp_path: Path, line: str, kind: str, message: str) -> None:
    with pytest.raises(px.TraceError, match=f"code: line 6: .*{message}"):
        load(tmp_path, JVMTI + line + "\n")
    trace = load(tmp_path, JVMTI + line + "\n", on_error="skip")
    assert trace.metadata["dropped"] == {kind: 1}
    assert shape(trace) == shape(load(tmp_path, JVMTI))


def test_luajit(tmp_path: Path) -> None:
    trace = load(tmp_path, LUAJIT)
    assert shape(trace) == [
        ("A", 0, 120),
        ("A", 1, 1132),
        ("F", 1, 0),
        ("A", 2, 16),
        ("F", 0, 0),
        ("F", 2, 0),
        ("A", 3, 9),
    ]
    assert times(trace)[:2] == [929_000, 1_000_000]
    assert times(trace)[4:] == [1_300_000, 1_300_000, 1_500_000]
    assert kinds(trace) == ["loop", "root", "root", "root"]
    assert trace.metadata["reader"] == "luajit"
    assert trace.metadata["counts"] == {"aborts": 2, "flushes": 2}
    assert trace.metadata["obtained"]["frees"] == {"seen": 2, "inferred": {"overlap": 1}}


@pytest.mark.parametrize("line", ["A,1,0x1,2,tr1,root", "A,0.1,0x1,2,tr1", "B", "Z,0.1", ""])
def test_luajit_refusals(tmp_path: Path, line: str) -> None:
    with pytest.raises(px.TraceError, match="code: line 9: expected 'A,SECONDS"):
        load(tmp_path, LUAJIT + line + "\n")
    assert load(tmp_path, LUAJIT + line + "\n", on_error="skip").metadata["dropped"] == {
        "syntax": 1
    }


# ---- all formats --------------------------------------------------------------------------------


def test_there_is_a_sample_of_every_format() -> None:
    assert set(SAMPLES) == set(codetraces.FORMATS)


@pytest.mark.parametrize("format", SAMPLES)
def test_wrappings_ends_of_lines_and_the_npz(tmp_path: Path, format: str) -> None:
    data = SAMPLES[format]
    plain = load(tmp_path, data)
    assert plain.metadata["reader"] == format
    assert load(tmp_path, data, format=format) == plain
    assert load(tmp_path, gzip.compress(data)) == plain
    with zipfile.ZipFile(tmp_path / "zip", "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("a", gzip.compress(data))
    assert px.load(tmp_path / "zip") == plain
    if format != "jitdump":
        assert load(tmp_path, data.replace(b"\n", b"\r\n")) == plain
        assert load(tmp_path, data.rstrip(b"\n")) == plain
    plain.save(tmp_path / "npz")
    again = px.load(tmp_path / "npz")
    assert again == plain
    assert dict(again.metadata) == dict(plain.metadata)


@pytest.mark.parametrize("format", SAMPLES)
def test_info_shows_what_was_seen_and_what_inferred(
    tmp_path: Path, format: str, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "code").write_bytes(SAMPLES[format])
    assert main(["info", str(tmp_path / "code")]) == 0
    out = capsys.readouterr().out
    obtained = out[out.index("\nobtained\n") : out.index("\nrecorded\n")]
    trace = px.load(tmp_path / "code")
    frees = trace.metadata["obtained"]["frees"]
    allocs = int((trace.op == A).sum())
    assert f"  allocs                 {allocs} seen\n" in obtained
    rules = "".join(f", {n} inferred by {rule}" for rule, n in frees["inferred"].items())
    assert f"  frees                  {frees['seen']} seen{rules}\n" in obtained
    assert frees["seen"] + sum(frees["inferred"].values()) == int((trace.op == F).sum())


def test_info_of_strange_obtained(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for obtained in (3, {"allocs": 3}, {"a\n": {"seen": "x\x1b", "inferred": 3}}):
        px.Trace([A], [0], [1], metadata={"obtained": obtained}).save(tmp_path / "t")
        assert main(["info", str(tmp_path / "t")]) == 0
        assert "\x1b" not in capsys.readouterr().out


def read(format: str, skip: bool, pieces: list[bytes]) -> object:
    reader = codetraces.FORMATS[format](skip)
    try:
        for piece in pieces:
            reader.feed(piece)
        reader.finish()
    except px.TraceError as error:
        return str(error)
    columns = {
        name: None if column is None else column.tolist()
        for name, column in reader.columns().items()
    }
    return columns, reader.counts(), reader.metadata()


@st.composite
def damaged(draw: st.DrawFn) -> tuple[str, bytes]:
    """Return a sample with some of its bytes overwritten, taken out or repeated."""
    format = draw(st.sampled_from(sorted(SAMPLES)))
    data = bytearray(SAMPLES[format])
    for _ in range(draw(st.integers(0, 4))):
        at = draw(st.integers(0, len(data)))
        length = draw(st.integers(0, 12))
        kind = draw(st.sampled_from(["bytes", "digits", "repeat", "cut"]))
        if kind == "bytes":
            data[at : at + length] = draw(st.binary(max_size=length))
        elif kind == "digits":
            data[at : at + 1] = draw(st.text("0123456789abcdefx,. -'\n", max_size=3)).encode()
        elif kind == "repeat":
            other = draw(st.integers(0, len(data)))
            data[at:at] = data[other : other + 80]
        else:
            del data[at : at + length]
    return format, bytes(data)


@given(made=damaged(), skip=st.booleans(), cuts=st.lists(st.integers(0, 1500), max_size=8))
def test_pieces_do_not_matter(made: tuple[str, bytes], skip: bool, cuts: list[int]) -> None:
    format, data = made
    edges = [0, *sorted(min(cut, len(data)) for cut in cuts), len(data)]
    pieces = [data[a:b] for a, b in itertools.pairwise(edges)]
    whole = read(format, skip, [data])
    assert read(format, skip, pieces) == whole
    assert read(format, skip, [data[i : i + 1] for i in range(len(data))]) == whole


@QUICK
@given(made=damaged(), on_error=st.sampled_from(["raise", "skip"]), named=st.booleans())
@example(("v8", b"v8-version,\n"), "raise", False)
@example(("perfmap", b"\n"), "skip", True)
def test_any_bytes_only_raise_trace_error(
    tmp_path: Path, made: tuple[str, bytes], on_error: str, named: bool
) -> None:
    format, data = made
    try:
        trace = load(tmp_path, data, on_error=on_error, format=format if named else None)
    except px.TraceError:
        return
    summary = trace.summary()
    if "obtained" in trace.metadata:
        obtained = trace.metadata["obtained"]
        assert obtained["allocs"]["seen"] == summary["allocs"]
        frees = obtained["frees"]
        assert frees["seen"] + sum(frees["inferred"].values()) == summary["frees"]
        assert trace.key is not None
        assert len(trace.metadata["key_names"]) == len(set(trace.key.tolist()))


def test_a_line_that_never_ends(tmp_path: Path) -> None:
    for format in sorted(set(SAMPLES) - {"jitdump"}):
        reader = codetraces.FORMATS[format](True)
        for _ in range(5):
            reader.feed(b"A" * (1 << 20))
        reader.feed(b"\n")
        reader.finish()
        assert sum(reader.counts()[0].values()) + sum(reader.counts()[1].values()) == 1


def test_text_that_is_no_code_trace(tmp_path: Path) -> None:
    for text in ("add a cab\nbad face cafe\nbeef\n", "a,b,c\n1,2,3\n", "A,b,c\n", "[x] y\n"):
        with pytest.raises(px.TraceError, match=r"this begins with .*expected a trace"):
            load(tmp_path, text)
