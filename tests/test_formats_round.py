"""Random events, written as each format writes them, read back."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
from hypothesis import HealthCheck, given, settings
from trace_cases import events

import pyallocx as px

QUICK = settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
A, F, R = px.OP_ALLOC, px.OP_FREE, px.OP_REALLOC

Event = dict[str, int]
# An event, the address before it and the address after it: what the event's lines are.
Lines = Callable[[Event, int, int], list[str]]


def logalloc(event: Event, old: int, new: int) -> list[str]:
    size = event["size_bytes"]
    call = {A: f"malloc({size})={new:#x}", F: f"free({old:#x})"}
    call[R] = f"realloc({old:#x},{size})={new:#x}"
    if event["align_log2"]:
        call[A] = f"memalign({1 << event['align_log2']},{size})={new:#x}"
    return [f"7 {10 + event['thread']} {call[event['op']]}"]


def ltrace(event: Event, old: int, new: int) -> list[str]:
    size, pid = event["size_bytes"], f"[pid {10 + event['thread']}]"
    name = {A: "malloc", F: "free", R: "realloc"}[event["op"]]
    arguments = {A: f"{size}", F: f"{old:#x}", R: f"{old:#x}, {size}"}[event["op"]]
    if event["align_log2"]:
        name, arguments = "memalign", f"{1 << event['align_log2']}, {size}, 0x5, -1"
    result = "<void>" if event["op"] == F else f"{new:#x}"
    if event["key"] % 2:
        return [
            f"{pid} p->{name}({arguments} <unfinished ...>",
            f"{pid} <... {name} resumed> )     = {result}",
        ]
    return [f"{pid} p->{name}({arguments})         = {result}"]


def valgrind(event: Event, old: int, new: int) -> list[str]:
    size = event["size_bytes"]
    call = {A: f"malloc({size}) = 0x{new:X}", F: f"free(0x{old:X})"}
    call[R] = f"realloc(0x{old:X},{size}) = 0x{new:X}"
    if event["align_log2"]:
        call[A] = f"memalign(al {1 << event['align_log2']}, size {size}) = 0x{new:X}"
    return [f"--77-- {call[event['op']]}"]


def utrace(event: Event, old: int, new: int) -> list[str]:
    size = event["size_bytes"]
    call = {A: f"{new:#x} = malloc({size})", F: f"free({old:#x})"}
    call[R] = f"{new:#x} = realloc({old:#x}, {size})"
    return [f"<jemalloc>:utrace: 77 {call[event['op']]}"]


def wee_alloc(event: Event, old: int, new: int) -> list[str]:
    return [f"Alloc({event['size_bytes']})," if event["op"] == A else f"Free({event['object']}),"]


def rep(event: Event, old: int, new: int) -> list[str]:
    word = {A: "a", F: "f", R: "r"}[event["op"]]
    size = "" if event["op"] == F else f" {event['size_bytes']}"
    return [f"{word} {event['object']}{size}"]


def heaptrack(event: Event, old: int, new: int) -> list[str]:
    time = f"c {event['time_ns']:x}"
    if event["op"] == F:
        return [time, f"- {old:x}"]
    return [time, f"+ {event['size_bytes']:x} {event['key'] % 3:x} {new:x}"]


def interpreted(event: Event, old: int, new: int) -> list[str]:
    kind = event["object"]
    if event["op"] == F:
        return [f"- {kind:x}"]
    return [f"a {event['size_bytes']:x} {event['key'] % 3:x}", f"+ {kind:x}"]


def malloc_sql(event: Event, old: int, new: int) -> list[str]:
    size, slot = event["size_bytes"], event["object"]
    row = {A: f"{{MALLOC, {slot}, {size}, 0}},", F: f"{{FREE, {slot}, 0, 0}},"}
    row[R] = f"{{REALLOC, {slot}, {size}, {slot + 1}}},"
    if event["align_log2"]:
        row[A] = f"{{MEMALIGN, {slot}, {size}, {1 << event['align_log2']}}},"
    return [row[event["op"]]]


FORMATS: dict[str, tuple[Lines, str, str]] = {
    # What is carried beside operations, objects and sizes; and how the file begins.
    "logalloc": (logalloc, "threads alignment calls reallocs", ""),
    "ltrace": (ltrace, "threads alignment calls reallocs", ""),
    "valgrind": (valgrind, "alignment calls reallocs", "==77== Memcheck\n"),
    "utrace": (utrace, "calls reallocs", ""),
    "wee_alloc": (wee_alloc, "", ""),
    "rep": (rep, "reallocs", ""),
    "heaptrack": (heaptrack, "time", "v 1 3\nx 1 a\nt 5 0\nt 6 1\n"),
    "heaptrack_interpreted": (interpreted, "", "v 1 3\ns 1 a\nt 5 0\nt 6 1\n"),
    "malloc_sql": (malloc_sql, "alignment calls reallocs", "// none\n"),
}


def dense(numbers: list[int]) -> list[int]:
    order: dict[int, int] = {}
    return [order.setdefault(number, len(order)) for number in numbers]


def text_of(lines: Lines, made: list[Event]) -> list[str]:
    """Object k lives at 16 * (k + 1), in another 4 GiB after each realloc."""
    text: list[str] = []
    address: dict[int, int] = {}
    for event in made:
        old = address.get(event["object"], 16 * (event["object"] + 1))
        new = old + (1 << 32) if event["op"] == R else old
        address[event["object"]] = new
        text += lines(event, old, new)
    return text


@QUICK
@given(made=events().filter(len))
def test_round_trip(tmp_path: Path, made: list[Event]) -> None:
    for name in FORMATS:
        check_round_trip(tmp_path / name, name, made)


def check_round_trip(path: Path, name: str, made: list[Event]) -> None:
    lines, words, begin = FORMATS[name]
    carries = words.split()
    if "reallocs" not in carries:
        made = [event for event in made if event["op"] != R]
    if "alignment" not in carries:
        made = [event | {"align_log2": 0} for event in made]
    if not made:
        return
    text = text_of(lines, made)
    if name == "rep":
        objects = sum(event["op"] == A for event in made)
        begin = f"0\n{objects}\n{len(made)}\n1\n"
    path.write_text(begin + "\n".join(text) + "\n")
    trace = px.load(path)
    assert trace.metadata["reader"] == name
    assert trace.metadata["dropped"] == {}
    for column in ("op", "object", "size_bytes"):
        assert getattr(trace, column).tolist() == [event[column] for event in made]
    if "threads" in carries:
        assert trace.thread.tolist() == dense([event["thread"] for event in made])
    aligned = [event["align_log2"] for event in made]
    assert (trace.align_log2 is None) == (not any(aligned))
    if trace.align_log2 is not None:
        assert trace.align_log2.tolist() == aligned
    if "calls" in carries:
        names = {A: "malloc", F: "free", R: "realloc"}
        wanted = ["memalign" if e["align_log2"] else names[e["op"]] for e in made]
        assert trace.call is not None
        assert [px.CALLS[call] for call in trace.call.tolist()] == wanted
    if "time" in carries:
        assert trace.time_ns is not None
        assert trace.time_ns.tolist() == [event["time_ns"] * 1_000_000 for event in made]
    if name.startswith("heaptrack"):
        stacks = {event["object"]: event["key"] % 3 for event in made if event["op"] == A}
        assert trace.key is not None
        assert trace.key.tolist() == dense([stacks[event["object"]] for event in made])


@QUICK
@given(made=events(max_events=60).filter(len))
def test_interpreted_without_identity_keeps_live_bytes(tmp_path: Path, made: list[Event]) -> None:
    """With few kinds a free may end another object than it did, of the same size and stack."""
    made = [event for event in made if event["op"] != R]
    text = [f"a {size:x} 0" for size in range(3)]
    kind = {event["object"]: event["key"] % 3 for event in made}
    live, wanted = 0, []
    for event in made:
        sign = "+" if event["op"] == A else "-"
        text.append(f"{sign} {kind[event['object']]:x}")
        live += kind[event["object"]] * (1 if event["op"] == A else -1)
        wanted.append(live)
    path = tmp_path / "t"
    path.write_text("v 1 2\n" + "\n".join(text) + "\n")
    trace = px.load(path)
    size = np.zeros(len(made) + 1, dtype=np.int64)
    now, found = 0, []
    for op, name, bytes_ in zip(
        trace.op.tolist(), trace.object.tolist(), trace.size_bytes.tolist(), strict=True
    ):
        if op == A:
            size[name] = bytes_
        now += int(size[name]) * (1 if op == A else -1)
        found.append(now)
    assert found == wanted
