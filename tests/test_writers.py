"""Writers: what a trace becomes in a format, and that it comes back from there."""

from __future__ import annotations

import gzip
import os
import re
import shutil
import signal
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from trace_cases import traces

import pyallocx as px
from pyallocx import _core, cli
from pyallocx.writers._base import no_destroys

A, F, R, D = px.OP_ALLOC, px.OP_FREE, px.OP_REALLOC, px.OP_DESTROY
CALL = {name: number for number, name in enumerate(px.CALLS)}

# Hypothesis runs a test many times in one tmp_path; each run writes its file anew.
QUICK = settings(suppress_health_check=[HealthCheck.function_scoped_fixture])


def rows_of(trace: px.Trace) -> list[dict[str, int]]:
    """Return the events, a dict each, with None where a column is not there."""
    columns = {n: None if c is None else c.tolist() for n, c in trace.columns().items()}
    return [{n: None if c is None else c[i] for n, c in columns.items()} for i in range(len(trace))]


def without_destroys(trace: px.Trace) -> list[dict[str, int]]:
    """Put frees in place of destroys the slow way."""
    made = []
    live: dict[int, int] = {}
    for row in rows_of(trace):
        if row["op"] == D:
            for dead in sorted(o for o, arena in live.items() if arena == row["arena"]):
                made.append({**row, "op": F, "object": dead, "size_bytes": 0, "call": None})
                del live[dead]
            continue
        if row["op"] == A:
            live[row["object"]] = row["arena"]
        elif row["op"] == F:
            del live[row["object"]]
        made.append(row)
    return made


def lines_of(path: Path) -> list[list[str]]:
    return [line.split() for line in path.read_text().splitlines()]


# ---- aosp ---------------------------------------------------------------------------------------


def aosp_again(trace: px.Trace) -> px.Trace:
    """Return what is left of a trace after aosp, the slow way: see the document for each rule."""
    rows = without_destroys(trace)
    threads: dict[int, int] = {}
    for row in rows:
        row["thread"] = threads.setdefault(row["thread"], len(threads))
        call, log2 = row["call"] or 0, row["align_log2"] or 0
        row["align_log2"] = 0
        if row["op"] == A:
            if not log2 and call in (CALL["valloc"], CALL["pvalloc"]):
                log2 = 12
            row["align_log2"] = log2
            kinds = {CALL["calloc"]: "calloc"}
            kinds |= dict.fromkeys((CALL["realloc"], CALL["reallocarray"]), "realloc")
            row["call"] = CALL["memalign" if log2 else kinds.get(call, "malloc")]
        else:
            row["call"] = CALL["free" if row["op"] == F else "realloc"]
            if row["op"] == F:
                row["size_bytes"] = 0
    kept = ["op", "object", "size_bytes", "thread", "call"]
    kept += ["align_log2"] if any(row["align_log2"] for row in rows) else []
    kept += ["time_ns"] if trace.time_ns is not None and rows else []
    return px.Trace(**{n: np.array([r[n] for r in rows], np.uint64) for n in kept})


@QUICK
@given(traces())
def test_aosp_comes_back(tmp_path: Path, trace: px.Trace) -> None:
    path = tmp_path / "trace.txt"
    told = px.write(trace, path)
    if not len(trace):
        assert path.read_bytes() == b""
        return
    expected = aosp_again(trace)
    if not len(expected):  # destroys of empty arenas
        assert path.read_bytes() == b""
        return
    back = px.load(path)
    assert back == expected
    assert back.metadata["dropped"] == {}
    assert set(back.metadata["counts"]) <= {"lines", "threads_done", "reallocs_of_null"}
    assert back.metadata["counts"]["threads_done"] == len(np.unique(expected.thread))
    destroys = int(np.count_nonzero(trace.op == D))
    more = told["notes"].get("frees_by_destroys", 0)
    assert len(back) == len(trace) - destroys + more


@QUICK
@given(traces())
def test_addresses_tell_live_objects_apart(tmp_path: Path, trace: px.Trace) -> None:
    path = tmp_path / "trace.txt"
    px.write(trace, path)
    live: set[int] = set()
    done: set[str] = set()
    for tid, op, *arguments in lines_of(path):
        assert tid not in done, "nothing follows the end of a thread"
        numbers = [int(a, 0) for a in arguments]
        if op == "thread_done":
            done.add(tid)
            assert numbers[0] == 0
            continue
        address = numbers[0]
        assert 0 < address < 2**64
        assert address % 16 == 0
        if op == "free":
            live.remove(address)
        elif op == "realloc" and numbers[1]:
            live.remove(numbers[1])
            live.add(address)
        else:
            assert address not in live
            live.add(address)
        # With few objects live, even the largest alignment but the last few leaves room.
        if op == "memalign" and numbers[1] <= 2**57:
            assert address % numbers[1] == 0
    summary = px.Trace(**no_destroys(trace)[0]).summary()
    assert len(live) == summary["live_objects_end"]
    assert len(done) == (summary["threads"] if len(trace) else 0)


def test_an_alignment_too_large_for_the_address_is_kept_as_asked(tmp_path: Path) -> None:
    trace = px.Trace([A] * 3, [0, 1, 2], [1, 2, 3], align_log2=[63, 63, 62])
    path = tmp_path / "trace.txt"
    px.write(trace, path)
    addresses = [int(words[2], 0) for words in lines_of(path)[:3]]
    assert addresses[0] == 2**63
    assert len(set(addresses)) == 3
    assert px.load(path).align_log2.tolist() == [63, 63, 62]


def test_each_call_has_its_line(tmp_path: Path) -> None:
    calls = ["unknown", *px.CALLS[1:11]]
    n = len(calls)
    trace = px.Trace(
        [A] * n,
        range(n),
        [100] * n,
        call=[CALL[c] for c in calls],
        align_log2=[6 if "align" in c else 0 for c in calls],
        metadata={"tids": [4321]},
    )
    path = tmp_path / "trace.txt"
    px.write(trace, path)
    words = lines_of(path)
    assert {w[0] for w in words} == {"4321:"}
    assert words[-1][1:] == ["thread_done", "0x0"]
    found = {c: (w[1], *w[3:]) for c, w in zip(calls, words, strict=False)}
    assert found == {
        **dict.fromkeys(("unknown", "malloc", "new"), ("malloc", "100")),
        "calloc": ("calloc", "1", "100"),
        **dict.fromkeys(("realloc", "reallocarray"), ("realloc", "0x0", "100")),
        **dict.fromkeys(("posix_memalign", "aligned_alloc", "memalign"), ("memalign", "64", "100")),
        **dict.fromkeys(("valloc", "pvalloc"), ("memalign", "4096", "100")),
    }


@pytest.mark.parametrize(
    "tids", [[7], [7, 7], [7, 0], [7, 2**31], [7, "8"], [7, True], "78", None, [7, -1]]
)
def test_thread_numbers_that_are_none_are_made_up(tmp_path: Path, tids: Any) -> None:
    trace = px.Trace([A, A], [0, 1], [1, 1], thread=[0, 1], metadata={"tids": tids})
    path = tmp_path / "trace.txt"
    px.write(trace, path)
    assert px.load(path).metadata["tids"] == [1, 2]


def test_threads_that_have_no_number_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "trace.txt"
    path.write_text("old")
    most = px.Trace([A], [0], [1], thread=[2**31 - 2])
    px.write(most, path)
    assert path.read_text() == "2147483647: malloc 0x10 1\n2147483647: thread_done 0x0\n"
    with pytest.raises(ValueError, match=r"thread 2147483647 .* allowed are 1 to 2147483647"):
        px.write(px.Trace([A], [0], [1], thread=[2**31 - 1]), path)
    assert path.read_text().startswith("2147483647: malloc"), "the old file stays"


def test_what_aosp_has_no_place_for_is_told(tmp_path: Path) -> None:
    trace = px.Trace(
        [A, R, A, D],
        [0, 0, 1, -1],
        [8, 0, 8, 0],
        align_log2=[4, 5, 0, 0],
        key=[1, 2, 3, 0],
        arena=[0, 0, 0, 0],
        time_ns=[5, 6, 7, 9],
        asides={"maps": {"event": [0, 1]}},
    )
    told = px.write(trace, tmp_path / "a.txt")
    assert told == {
        "format": "aosp",
        "events": 4,
        "left_out": {"key": "column", "arena": "column", "maps": 2, "alignments_of_reallocs": 1},
        "notes": {"frees_by_destroys": 2, "reallocs_to_size_0": 1},
    }
    assert (tmp_path / "a.txt").read_text().splitlines()[-3:] == [
        "1: free 0x10 9 9",
        "1: free 0x30 9 9",
        "1: thread_done 0x0 9",
    ]


@QUICK
@given(traces(), st.integers(1, 7))
def test_pieces_make_the_same_text(trace: px.Trace, events: int) -> None:
    columns, _ = no_destroys(trace)
    for format in ("aosp", "csv"):
        whole = make_writer(format, columns).step(len(trace) + 100)
        writer = make_writer(format, columns)
        pieces = []
        while piece := writer.step(events):
            assert piece.endswith(b"\n")
            pieces.append(piece)
        assert b"".join(pieces) == whole
        assert writer.done() == len(columns["op"])


def make_writer(format: str, columns: dict[str, Any], **extra: Any) -> Any:
    order = ("op", "object", "size_bytes", "thread", "key", "arena", "time_ns")
    more = {name: columns[name] for name in ("align_log2", "call")}
    return _core.TraceWriter(format, *(columns[name] for name in order), **more, **extra)


def test_the_core_refuses_what_no_trace_has() -> None:
    size = np.zeros(1, np.uint64)

    def step(op: int, thing: int, format: str = "aosp", **extra: Any) -> bytes:
        one = np.array([thing], np.uint32)
        return _core.TraceWriter(format, np.array([op], np.uint8), one, size, **extra).step(10)

    for op, thing in ((F, 0), (R, 7), (A, 1), (D, 2**32 - 1), (9, 0)):
        with pytest.raises(px.TraceError, match="event 0"):
            step(op, thing)
        if op != D:
            with pytest.raises(px.TraceError, match="event 0"):
                step(op, thing, "c", fields="zso")
    with pytest.raises(px.TraceError, match="event 0"):
        step(9, 0, "csv")
    with pytest.raises(px.TraceError, match="event 0"):
        step(A, 0, "csv", call=np.array([13], np.uint8))
    # A second free of one object, as of a file that changed: no slot is given twice.
    writer = _core.TraceWriter(
        "aosp", np.array([A, F, F], np.uint8), np.zeros(3, np.uint32), np.zeros(3, np.uint64)
    )
    with pytest.raises(px.TraceError, match="event 2"):
        writer.step(3)
    for format, fields in (("d", None), ("c", None), ("c", "zx"), ("c", "")):
        with pytest.raises(ValueError):
            step(A, 0, format, fields=fields)
    assert _core.CALL_NAMES == px.CALLS


# ---- csv and parquet ----------------------------------------------------------------------------


@QUICK
@given(traces())
def test_csv_comes_back_whole(tmp_path: Path, trace: px.Trace) -> None:
    path = tmp_path / "trace.csv"
    px.write(trace, path)
    back = px.load(path)
    assert back == trace
    names = [name for name, column in trace.columns().items() if column is not None]
    assert path.read_text().splitlines()[0] == ",".join(names)
    path.write_bytes(path.read_bytes().replace(b"\n", b"\r\n"))
    assert px.load(path) == trace
    path.write_bytes(path.read_bytes()[:-2])
    assert px.load(path) == trace, "the last line may lack its end"


def test_csv_is_words_and_numbers(tmp_path: Path) -> None:
    trace = px.Trace(
        [A, R, F, D],
        [0, 0, 0, -1],
        [8, 2**64 - 1, 0, 0],
        arena=[3, 3, 3, 3],
        call=[CALL[n] for n in ("calloc", "realloc", "free", "unknown")],
    )
    px.write(trace, tmp_path / "a.csv")
    assert (tmp_path / "a.csv").read_text() == (
        "op,thread,object,size_bytes,arena,call\n"
        "alloc,0,0,8,3,calloc\n"
        "realloc,0,0,18446744073709551615,3,realloc\n"
        "free,0,0,0,3,free\n"
        "destroy,0,,0,3,unknown\n"
    )
    assert px.load(tmp_path / "a.csv") == trace


CSV = "op,thread,object,size_bytes,key\nalloc,0,0,8,1\nfree,0,0,0,1\n"


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("alloc", "Alloc", "line 2: expected op,thread"),
        ("alloc", "malloc", "line 2"),
        (",8,", ",8.0,", "line 2"),
        (",8,", ",-8,", "line 2"),
        (",8,", ",,", "line 2"),
        (",8,", ", 8,", "line 2"),
        (",8,", ",08,", "line 2"),
        (",8,", ",18446744073709551616,", "line 2: size_bytes is 18446744073709551616"),
        (",8,", ",99999999999999999999,", "line 2: size_bytes"),
        (",8,", ",100000000000000000000,", "line 2"),
        ("0,1\n", "0,4294967296\n", "line 3: key is 4294967296, allowed are 0 to 4294967295"),
        ("free,0,0", "free,0,0,0", "line 3"),
        ("free,0,0", "free,0,1", "event 1"),
        ("free,", "\nfree,", "line 3"),
        ("free,0", "\0free,0", "line 3"),
        ("size_bytes,key", "key,size_bytes", "line 1: expected names"),
        ("key", "foo", "line 1"),
        ("thread,", "thread,thread,", "line 1"),
        ("free", "x" * 100_000, "expected lines of at most 4096"),
    ],
)
def test_csv_is_strict(tmp_path: Path, old: str, new: str, message: str) -> None:
    path = tmp_path / "a.csv"
    assert old in CSV
    path.write_text(CSV.replace(old, new))
    with pytest.raises(px.TraceError, match=re.escape(message)) as caught:
        px.load(path, format="csv")
    assert str(path) in str(caught.value)
    path.write_text(CSV)
    assert px.load(path).metadata["reader"] == "csv"


@QUICK
@given(traces())
def test_parquet_comes_back_whole(tmp_path: Path, trace: px.Trace) -> None:
    pytest.importorskip("pyarrow")
    path = tmp_path / "trace.parquet"
    px.write(trace, path)
    back = px.load(path)
    assert back == trace
    assert back.object.dtype == trace.object.dtype
    assert back.metadata["reader"] == "parquet"


def test_parquet_keeps_types_and_metadata(tmp_path: Path) -> None:
    pytest.importorskip("pyarrow")
    from pyarrow import parquet

    trace = px.Trace([A], [0], [8], key=[5], metadata={"program": "é", "reader": "aosp"})
    path = tmp_path / "a.parquet"
    px.write(trace, path)
    table = parquet.read_table(path)
    assert {f.name: str(f.type) for f in table.schema} == {
        "op": "uint8", "thread": "uint32", "object": "uint64", "size_bytes": "uint64",
        "key": "uint32",
    }  # fmt: skip
    back = px.load(path)
    assert dict(back.metadata) == {
        "format_version": 1, "reader": "aosp", "file": "a.parquet", "program": "é",
    }  # fmt: skip
    # In gzip, where it does not belong, it is read all the same: through a file on disk.
    packed = tmp_path / "b"
    packed.write_bytes(gzip.compress(path.read_bytes()))
    assert px.load(packed) == trace


def test_a_parquet_of_something_else_is_refused(tmp_path: Path) -> None:
    pyarrow = pytest.importorskip("pyarrow")
    from pyarrow import parquet

    path = tmp_path / "a.parquet"

    def refused(columns: dict[str, Any], message: str) -> None:
        parquet.write_table(pyarrow.table(columns), path)
        with pytest.raises(px.TraceError, match=message):
            px.load(path)

    op, thing, size = (
        pyarrow.array([0], pyarrow.uint8()),
        *(pyarrow.array([0], pyarrow.uint64()),) * 2,
    )
    refused({"x": op}, "expected the columns of a trace")
    refused({"op": op, "object": thing}, "size_bytes among them")
    refused({"op": size, "object": thing, "size_bytes": size}, "'op' must hold uint8, found uint64")
    none = pyarrow.array([None], pyarrow.uint64())
    refused({"op": op, "object": thing, "size_bytes": none}, "no value in 1 of the rows")
    refused(
        {"op": op, "object": pyarrow.array([1], pyarrow.uint64()), "size_bytes": size}, "event 0"
    )
    whole = path.read_bytes()
    for cut in (4, 20, len(whole) - 1):
        path.write_bytes(whole[:cut])
        with pytest.raises(px.TraceError):
            px.load(path)


def load_or_message(path: Path) -> px.Trace | str:
    try:
        return px.load(path)
    except px.TraceError as error:
        return str(error)


@st.composite
def damaged(draw: st.DrawFn, data: bytes) -> bytes:
    """Change bytes here and there, repeat lines, cut."""
    for _ in range(draw(st.integers(1, 4))):
        at = draw(st.integers(0, len(data)))
        to = draw(st.one_of(st.just(at), st.integers(at, min(len(data), at + 12))))
        evil = st.sampled_from(
            [b",", b"\n", b"\r\n", b"free,", b"\n\n", b"99999999999999999999", b"-1"]
        )
        data = data[:at] + draw(st.one_of(evil, st.binary(max_size=3))) + data[to:]
    return data[: draw(st.integers(0, len(data)))] if draw(st.booleans()) else data


@QUICK
@given(st.data(), traces(max_events=8))
def test_a_damaged_csv_is_a_trace_or_an_error(
    tmp_path: Path, data: st.DataObject, trace: px.Trace
) -> None:
    path = tmp_path / "trace.csv"
    px.write(trace, path)
    path.write_bytes(data.draw(damaged(path.read_bytes())))
    found = load_or_message(path)
    if isinstance(found, str):
        assert found.startswith(str(path))
    elif found.metadata["reader"] == "csv":
        # What is read is what is there: written again it is the same but for line ends.
        text = path.read_bytes().replace(b"\r\n", b"\n").removeprefix(b"\xef\xbb\xbf")
        px.write(found, path)
        assert path.read_bytes().rstrip(b"\n") == text.rstrip(b"\n")


@QUICK
@given(st.data())
def test_a_damaged_parquet_is_a_trace_or_an_error(tmp_path: Path, data: st.DataObject) -> None:
    pytest.importorskip("pyarrow")
    path = tmp_path / "trace.parquet"
    px.write(px.Trace([A, R, F], [0, 0, 0], [8, 9, 0], key=[1, 2, 3]), path)
    path.write_bytes(data.draw(damaged(path.read_bytes())))
    found = load_or_message(path)
    if isinstance(found, str):
        assert found.startswith(str(path))


# ---- c ------------------------------------------------------------------------------------------

HARNESS = """\
{include}
#include <stdio.h>

{functions}
int main(void)
{{
    int wrong = 0;
{calls}
    return wrong;
}}
"""

# Counts what lives without the allocator, by the rows alone; then replays.
CHECK = """\
static int check_{n}(void)
{{
    static unsigned long long sizes[T{n}_SLOTS + 1];
    static unsigned char full[T{n}_SLOTS + 1];
    unsigned long long live = 0, peak = 0, left = 0;
    const volatile size_t events = T{n}_EVENTS, slots = T{n}_SLOTS; /* may be 0 */
    for (size_t i = 0; i < events; i++) {{
        const struct t{n}_event *const e = &t{n}_events[i];
        if (e->slot >= slots || full[e->slot] != (e->op != T{n}_ALLOC)) {{
            return 1;
        }}
        full[e->slot] = e->op != T{n}_FREE;
        live -= sizes[e->slot];
        sizes[e->slot] = e->op == T{n}_FREE ? 0 : e->size;
        live += sizes[e->slot];
        peak = live > peak ? live : peak;
    }}
    for (size_t i = 0; i < slots; i++) {{
        left += full[i];
    }}
    return peak != {peak}u || live != {live}u || left != {left}u || T{n}_EVENTS != {events} ||
           t{n}_replay() != T{n}_EVENTS;
}}
"""


def tame(trace: px.Trace) -> px.Trace:
    """Return the trace with sizes and alignments that a test may really ask for."""
    columns = {n: None if c is None else np.array(c) for n, c in trace.columns().items()}
    columns["size_bytes"] %= 5000
    if columns["align_log2"] is not None:
        columns["align_log2"] %= 13
    return px.Trace(**columns)


def compile_and_run(folder: Path, cases: list[px.Trace], compiler: str) -> None:
    functions, calls, includes = [], [], []
    for n, trace in enumerate(cases):
        px.write(trace, folder / f"t{n}.h", replay=True)
        summary = trace.summary()
        functions.append(
            CHECK.format(
                n=n,
                peak=summary["peak_live_bytes"],
                live=summary["live_bytes_end"],
                left=summary["live_objects_end"],
                events=len(no_destroys(trace)[0]["op"]),
            )
        )
        includes.append(f'#include "t{n}.h"')
        calls.append(f'    if (check_{n}()) {{ fprintf(stderr, "trace {n}\\n"); wrong = 1; }}')
    parts = {"include": includes, "functions": functions, "calls": calls}
    text = HARNESS.format(**{name: "\n".join(lines) for name, lines in parts.items()})
    is_c = compiler == "cc"
    source = folder / ("harness.c" if is_c else "harness.cc")
    source.write_text(text)
    program = folder / "harness"
    warnings = ["-Wall", "-Wextra", "-Wconversion", "-Wshadow", "-Wpedantic", "-Werror"]
    standard = "-std=c11" if is_c else "-std=c++17"
    # What our own tests are sanitized by is not for the compiler, nor for a program of its own.
    environment = {k: v for k, v in os.environ.items() if k not in ("LD_PRELOAD", "ASAN_OPTIONS")}
    environment["ASAN_OPTIONS"] = "detect_leaks=1"
    subprocess.run(
        [compiler, standard, *warnings, "-g", "-fsanitize=address,undefined",
         "-fno-sanitize-recover=undefined", "-o", program, source],
        check=True, env=environment,
    )  # fmt: skip
    subprocess.run([program], check=True, env=environment)


@pytest.mark.parametrize("compiler", ["cc", "c++"])
def test_a_header_replays_to_the_end(tmp_path: Path, compiler: str) -> None:
    if shutil.which(compiler) is None:
        pytest.skip(f"no {compiler}")

    # One compilation of many traces: a compiler takes longer to start than to read them.
    @settings(QUICK, max_examples=1, database=None, phases=[Phase.generate])
    @given(st.lists(traces(), min_size=12, max_size=12))
    def run(cases: list[px.Trace]) -> None:
        threads = px.synthesize(2000, seed=7, threads=300, arenas=3)
        none = px.Trace([], [], [])
        compile_and_run(tmp_path, [threads, none, *map(tame, cases)], compiler)

    run()


@QUICK
@given(traces())
def test_a_header_says_what_the_trace_says(tmp_path: Path, trace: px.Trace) -> None:
    path = tmp_path / "t.h"
    px.write(trace, path)
    text = path.read_text()
    struct = re.search(r"struct t_event \{\n(.*?)\n\};", text, re.DOTALL)
    assert struct
    fields = re.findall(r"uint(\d+)_t (\w+);", struct[1])
    assert [int(bits) for bits, _ in fields] == sorted((int(b) for b, _ in fields), reverse=True)
    rows = [
        dict(zip([f for _, f in fields], map(int, row.replace("u", "").split(",")), strict=True))
        for row in re.findall(r"^\{(.*)\},$", text, re.MULTILINE)
    ]
    expected = without_destroys(trace)
    if not expected:
        assert len(rows) == 1
        return
    objects: dict[int, int] = {}
    for row, event in zip(rows, expected, strict=True):
        assert row["op"] == event["op"]
        assert row["size"] == (0 if event["op"] == F else event["size_bytes"])
        assert row.get("thread", 0) == (event["thread"] if "thread" in row else 0)
        log2 = (event["align_log2"] or 0) if event["op"] == A else 0
        assert row.get("align_log2", 0) == log2
        if event["op"] == A:
            assert row["slot"] not in objects
            objects[row["slot"]] = event["object"]
        assert objects[row["slot"]] == event["object"]
        if event["op"] == F:
            del objects[row["slot"]]
    slots = max(row["slot"] for row in rows) + 1
    assert f"#define T_SLOTS ((size_t){slots})" in text
    widths = {name: int(bits) for bits, name in fields}
    for name, bits in widths.items():
        most = max(row[name] for row in rows)
        assert most < 1 << bits
        assert bits == 8 or most >= 1 << bits // 2, "the smallest type"


def test_names_in_a_header(tmp_path: Path) -> None:
    trace = px.Trace([A], [0], [8], metadata={"command": ["a*/", "??/", "\n\\"]})
    for name, made in (("9-a.b.h", "trace_9_a"), ("é.h", "trace"), ("Git Log.h", "git_log")):
        px.write(trace, tmp_path / name)
        text = (tmp_path / name).read_text()
        assert f"struct {made}_event {{" in text
        first = text.splitlines()[0]
        assert first == "/* Allocation events of a* / __/ __"
    px.write(trace, tmp_path / "a.h", name="_X1")
    assert "_x1_events" not in (tmp_path / "a.h").read_text()
    assert "_X1_events[]" in (tmp_path / "a.h").read_text()
    for name in ("1x", "a-b", "", "x" * 65, "é", 3):
        with pytest.raises(ValueError, match="expected a name of C"):
            px.write(trace, tmp_path / "b.h", name=name)  # type: ignore[arg-type]
    assert not (tmp_path / "b.h").exists()


# ---- files --------------------------------------------------------------------------------------


def test_the_same_trace_makes_the_same_bytes(tmp_path: Path) -> None:
    trace = px.synthesize(3000, seed=1)
    plain: dict[str, bytes] = {}
    for name in ("a.txt", "a.csv", "a.h"):
        px.write(trace, tmp_path / name)
        plain[name] = (tmp_path / name).read_bytes()
        packed = tmp_path / f"{name}.gz"
        px.write(trace, packed)
        once = packed.read_bytes()
        assert once[4:8] == bytes(4), "no time"
        assert gzip.decompress(once) == plain[name]
        (tmp_path / "sub").mkdir(exist_ok=True)
        px.write(trace, tmp_path / "sub" / f"{name}.gz")
        assert (tmp_path / "sub" / f"{name}.gz").read_bytes() == once
    px.write(trace, tmp_path / "a.zip")
    with zipfile.ZipFile(tmp_path / "a.zip") as archive:
        (info,) = archive.infolist()
        assert info.filename == "a.txt"
        assert info.date_time == (1980, 1, 1, 0, 0, 0)
        assert archive.read(info) == plain["a.txt"]
    assert px.load(tmp_path / "a.zip") == px.load(tmp_path / "a.txt")
    px.write(trace, tmp_path / "a.npz")
    assert px.load(tmp_path / "a.npz") == trace


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        ("a", {}, "no suffix that says a format"),
        ("a.gz", {}, "no suffix that says a format"),
        ("a.txt", {"format": "elf"}, "format is 'elf', allowed are 'npz', 'aosp'"),
        ("a.npz.gz", {}, "'npz' is not written inside .gz"),
        ("a.parquet.gz", {}, "'parquet' is not written inside .gz"),
        ("a.csv.zip", {}, "'csv' is not written inside .zip, only 'aosp'"),
        ("a.txt", {"name": "x"}, "name is for format 'c', not for 'aosp'"),
        ("a.csv", {"replay": True}, "replay is for format 'c'"),
    ],
)
def test_what_cannot_be_written_is_refused(
    tmp_path: Path, name: str, options: dict[str, Any], message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        px.write(px.synthesize(10), tmp_path / name, **options)
    assert not list(tmp_path.iterdir())


def test_only_traces_are_written(tmp_path: Path) -> None:
    with pytest.raises(TypeError, match="trace must be a Trace, not list"):
        px.write([], tmp_path / "a.csv")  # type: ignore[arg-type]
    for wrong in (None, 5):
        with pytest.raises(TypeError, match="path must be a str or path-like, not"):
            px.write(px.synthesize(10), wrong)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "trace", [px.Trace([], [], []), px.Trace([3], [-1], [0], arena=[0])], ids=["empty", "ends"]
)
def test_a_trace_of_no_events_comes_back_or_that_is_told(
    tmp_path: Path, trace: px.Trace, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in ("a.npz", "a.csv", "a.csv.gz", "a.txt", "a.txt.gz", "a.zip"):
        told = px.write(trace, tmp_path / name)
        if told["notes"].get("empty_file"):
            assert told["format"] == "aosp"
            with pytest.raises(px.TraceError, match="the file is empty"):
                px.load(tmp_path / name)
        else:
            assert told["format"] != "aosp"
            assert len(px.load(tmp_path / name)) == len(trace)
    assert "empty_file" not in px.write(px.synthesize(10), tmp_path / "b.txt")["notes"]
    trace.save(tmp_path / "a.npz")
    assert cli.main(["convert", str(tmp_path / "a.npz"), str(tmp_path / "c.txt")]) == 0
    out = capsys.readouterr().out
    assert "no events make an empty file, which pyallocx does not read again" in out


def test_a_missing_package_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(ImportError, match=r"pip install 'pyallocx\[parquet\]'"):
        px.write(px.synthesize(10), tmp_path / "a.parquet")
    assert not list(tmp_path.iterdir())
    (tmp_path / "b").write_bytes(b"PAR1")
    with pytest.raises(ImportError, match=r"pip install 'pyallocx\[parquet\]'"):
        px.load(tmp_path / "b")


WRITE = """
import sys
import numpy as np
import pyallocx as px
n = 1 << 22
op = np.tile(np.array([px.OP_ALLOC, px.OP_FREE], "u1"), n)
trace = px.Trace(op, np.repeat(np.arange(n, dtype="u4"), 2), np.full(2 * n, 8, "u8"))
print("go", flush=True)
while True:
    px.write(trace, sys.argv[1])
"""


@pytest.mark.slow
@pytest.mark.parametrize("name", ["a.txt.gz", "a.csv", "a.h"])
def test_ctrl_c_leaves_the_old_file(tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    process = subprocess.Popen(
        [sys.executable, "-c", WRITE.replace("while True:", "if True:") if "gz" in name else WRITE,
         str(path)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )  # fmt: skip
    assert process.stdout is not None
    assert process.stdout.readline() == b"go\n"
    while not list(tmp_path.iterdir()):
        assert process.poll() is None
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=60)
    assert b"KeyboardInterrupt" in errors
    assert {p.name for p in tmp_path.iterdir()} <= {name}, "no part of a file is left"
    if path.exists() and "gz" not in name:
        assert path.read_bytes().endswith((b"#endif\n", b",0\n"))


def test_progress_counts_the_events(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    trace = px.synthesize(5000, seed=2)
    for name in ("a.txt", "a.csv", "a.h"):
        px.write(trace, tmp_path / name, progress=True)
        assert f"writing {name}" in capsys.readouterr().err
        px.write(trace, tmp_path / name)
        assert capsys.readouterr().err == ""
