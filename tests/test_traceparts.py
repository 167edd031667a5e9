"""Parts of traces, and traces put together, against the same done event by event."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from trace_cases import asides_of, traces

import pyallocx as px

A, F, R, D = px.OP_ALLOC, px.OP_FREE, px.OP_REALLOC, px.OP_DESTROY
MAX32, MAX64 = 2**32 - 1, 2**64 - 1

Event = dict[str, Any]


def events_of(trace: px.Trace) -> list[Event]:
    """Return each event as a dict of the columns that there are."""
    columns = {n: c.tolist() for n, c in trace.columns().items() if c is not None}
    return [
        dict(zip(columns, values, strict=True)) for values in zip(*columns.values(), strict=True)
    ]


def trace_of(events: list[Event], like: px.Trace) -> px.Trace:
    """Make a trace of events whose objects have any names: the k-th alloc makes object k."""
    names: dict[Any, int] = {}
    columns: dict[str, list[int]] = {n: [] for n, c in like.columns().items() if c is not None}
    for event in events:
        if event["op"] == A:
            names[event["object"]] = len(names)
        for name, column in columns.items():
            column.append(event[name])
        columns["object"][-1] = -1 if event["op"] == D else names[event["object"]]
    return px.Trace(**columns)


def live_after(events: list[Event]) -> dict[int, tuple[Event, Event]]:
    """Return the alloc, and the last alloc or realloc, of each object that lives."""
    live: dict[int, tuple[Event, Event]] = {}
    for event in events:
        if event["op"] == A:
            live[event["object"]] = (event, event)
        elif event["op"] == R:
            live[event["object"]] = (live[event["object"]][0], event)
        elif event["op"] == F:
            del live[event["object"]]
        else:
            live = {o: e for o, e in live.items() if e[0]["arena"] != event["arena"]}
    return live


def slow_slice(events: list[Event], start: int, stop: int, inherit: bool) -> list[Event]:
    made = []
    known = set()
    for name, (alloc, last) in live_after(events[:start]).items() if inherit else ():
        ahead = {**alloc, "size_bytes": last["size_bytes"], "thread": last["thread"]}
        if "time_ns" in ahead:
            ahead["time_ns"] = events[min(start, len(events) - 1)]["time_ns"]
        made.append(ahead)
        known.add(name)
    for event in events[start:stop]:
        if event["op"] == A:
            known.add(event["object"])
        if event["op"] == D or event["object"] in known:
            made.append(event)
    return made


def none_of(trace: px.Trace, aside: str) -> int:
    return int(np.iinfo(trace.asides[aside]["object"].dtype).max)


def slow_asides(
    trace: px.Trace,
    kept: list[bool],
    names: dict[int, int],
    ahead: int,
    keep: Callable[[str, int, dict[str, int]], bool],
) -> dict[str, dict[str, list[int]]]:
    """Move each row before the event before which it stood; `names` are the objects left."""
    made = {}
    for aside, columns in asides_of(trace).items():
        table: dict[str, list[int]] = {name: [] for name in columns}
        for values in zip(*columns.values(), strict=True):
            row = dict(zip(columns, values, strict=True))
            if not keep(aside, row["event"], row):
                continue
            if aside == "realloc_begin" and not kept[row["event"]]:
                continue
            if "object" in row and row["object"] != none_of(trace, aside):
                if row["object"] not in names:
                    continue
                row["object"] = names[row["object"]]
            row["event"] = ahead + sum(kept[: row["event"]])
            for name, value in row.items():
                table[name].append(value)
        made[aside] = table
    return made


# ---- slices -------------------------------------------------------------------------------------


@given(traces(), st.integers(-45, 45), st.integers(-45, 45), st.booleans())
def test_slice_is_what_a_walk_makes_of_it(
    trace: px.Trace, start: int, stop: int, inherit: bool
) -> None:
    part = trace.slice(start, stop, inherit=inherit)
    first, end, _ = slice(start, stop).indices(len(trace))
    end = max(first, end)
    if first == 0 and end == len(trace):
        assert part is trace
        return
    events = events_of(trace)
    expected = slow_slice(events, first, end, inherit)
    assert part == trace_of(expected, trace)
    assert part.object.dtype == trace.object.dtype
    inherited = live_after(events[:first]) if inherit else {}
    cut = part.metadata["cuts"][-1]
    assert cut == {
        "by": "slice",
        "start": first,
        "stop": end,
        "of_events": len(trace),
        "inherited_objects": len(inherited),
        "inherited_bytes": sum(last["size_bytes"] for _, last in inherited.values()),
        "dropped_events": end - first + len(inherited) - len(part),
    }
    names = {e["object"]: k for k, e in enumerate(e for e in expected if e["op"] == A)}
    ids = {id(e) for e in expected}
    kept = [id(e) in ids for e in events]

    def inside(_: str, event: int, row: dict[str, int]) -> bool:
        return first <= event < end or (event == end == len(trace) and first < end)

    assert asides_of(part) == slow_asides(trace, kept, names, len(inherited), inside)


def about_what_lives(trace: px.Trace) -> px.Trace:
    """Leave out rows about objects that do not live when the row happened: they are in no slice."""
    events = events_of(trace)
    asides = {}
    for aside, columns in trace.asides.items():
        rows = [
            "object" not in columns
            or columns["object"][i] == none_of(trace, aside)
            or int(columns["object"][i]) in live_after(events[: int(columns["event"][i])])
            for i in range(len(columns["event"]))
        ]
        asides[aside] = {name: column[np.array(rows, bool)] for name, column in columns.items()}
    return px.Trace(**trace.columns(), asides=asides)


@given(traces().map(about_what_lives), st.lists(st.integers(0, 45), max_size=4))
def test_slices_put_together_are_the_trace(trace: px.Trace, cuts: list[int]) -> None:
    ends = sorted({min(cut, len(trace)) for cut in cuts} | {0, len(trace)})
    # The end of the trace is in the slice that ends there; an empty one after it has nothing.
    parts = [trace.slice(a, b) for a, b in itertools.pairwise(ends)]
    parts.append(trace.slice(len(trace)) if len(trace) else trace)
    whole = px.concatenate(parts, continued=True)
    assert whole == trace
    assert asides_of(whole) == asides_of(trace) or not len(trace)
    assert whole.object.dtype == trace.object.dtype
    totals = ("live_bytes_end", "live_objects_end", "peak_live_bytes", "peak_live_objects")
    for part, end in zip(parts, ends[1:], strict=False):
        try:
            mine, theirs = part.summary(), trace.head(end).summary()
        except OverflowError:
            continue
        assert [mine[t] for t in totals[:2]] == [theirs[t] for t in totals[:2]]


def test_whole_and_empty_slices() -> None:
    trace = px.Trace([A, R, A, F], [0, 0, 1, 0], [8, 40, 1, 0], thread=[0, 1, 0, 0])
    assert trace.slice() is trace
    assert trace.slice(0, 4) is trace
    assert trace.slice(-99, 99) is trace
    late = trace.slice(3, 3)
    assert late == px.Trace([A, A], [0, 1], [40, 1], thread=[1, 0])
    assert len(trace.slice(3, 3, inherit=False)) == 0
    assert trace.slice(3, 1) == late
    again = trace.slice(1).slice(-1)
    assert [cut["start"] for cut in again.metadata["cuts"]] == [1, 3]
    with pytest.raises(TypeError):
        trace.slice(0.5)  # type: ignore[arg-type]


# ---- by time ------------------------------------------------------------------------------------


@given(traces(), st.none() | st.integers(-5, 50_000), st.none() | st.integers(-5, 50_000))
def test_between_is_the_slice_of_those_times(
    trace: px.Trace, start: int | None, stop: int | None
) -> None:
    if trace.time_ns is None:
        with pytest.raises(ValueError, match="the trace has no times"):
            trace.between(start, stop)
        return
    if start is not None and stop is not None and stop < start:
        with pytest.raises(ValueError, match=f"stop_ns is {stop}, allowed is start_ns"):
            trace.between(start, stop)
        return
    times = trace.time_ns.tolist()
    first = sum(t < start for t in times) if start is not None else 0
    end = sum(t < stop for t in times) if stop is not None else len(times)
    for inherit in (True, False):
        part = trace.between(start, stop, inherit=inherit)
        assert part == trace.slice(first, end, inherit=inherit)


def test_times_that_no_event_can_have() -> None:
    trace = px.Trace([A, A], [0, 1], [8, 8], time_ns=[0, MAX64])
    assert trace.between(-5, 2**70) is trace
    assert len(trace.between(2**64)) == 2
    assert len(trace.between(2**64, inherit=False)) == 0
    with pytest.raises(TypeError, match="start_ns is float, expected an integer"):
        trace.between(0.5)  # type: ignore[arg-type]


# ---- selections ---------------------------------------------------------------------------------


@given(traces(), st.data())
def test_select_is_what_a_walk_makes_of_it(trace: px.Trace, data: st.DataObject) -> None:
    events = events_of(trace)
    wanted: dict[str, Any] = {}
    for name in ("thread", "key", "arena", "call"):
        if getattr(trace, name) is not None and data.draw(st.booleans(), name):
            there = sorted({e[name] for e in events}) or [0]
            wanted[name] = data.draw(st.lists(st.sampled_from(there), max_size=2), name)
    if data.draw(st.booleans(), "sizes"):
        wanted["size_bytes"] = tuple(sorted(data.draw(st.tuples(*[st.integers(0, 100)] * 2))))

    def matches(event: Event) -> bool:
        low, high = wanted.get("size_bytes", (0, MAX64))
        return low <= event["size_bytes"] <= high and all(
            event[name] in values for name, values in wanted.items() if name != "size_bytes"
        )

    chosen = {e["object"] for e in events if e["op"] == A and matches(e)}
    used: set[int] = set()
    kept = []
    for event in events:
        if event["op"] == D:
            kept.append(not wanted or event["arena"] in used)
            used.discard(event["arena"])
        else:
            kept.append(event["object"] in chosen)
            if event["op"] == A and kept[-1] and "arena" in event:
                used.add(event["arena"])
    part = trace.select(**wanted)
    assert part == trace_of([e for e, keep in zip(events, kept, strict=True) if keep], trace)
    names = {o: k for k, o in enumerate(sorted(chosen))}

    def stays(aside: str, event: int, row: dict[str, int]) -> bool:
        if aside == "realloc_begin" or ("object" in row and row["object"] != none_of(trace, aside)):
            return True
        return "thread" not in wanted or row["thread"] in wanted["thread"]

    assert asides_of(part) == slow_asides(trace, kept, names, 0, stays)
    assert (part is trace) == (not wanted)


def test_select_by_name_and_in_other_ways() -> None:
    trace = px.Trace(
        [A, A, A, F, F],
        [0, 1, 2, 1, 0],
        [8, 16, 24, 0, 0],
        key=[0, 1, 0, 1, 0],
        call=[1, 2, 1, 11, 11],
        metadata={"key_names": ["tree", "text"]},
        asides={
            "failed": {"event": [0, 1, 5], "call": [1, 2, 3], "object": [-1, -1, 0]},
            "maps": {"event": [2], "call": [2]},
        },
    )
    assert trace.select(key="text") == trace.select(key=1) == trace.select(key=[np.uint8(1)])
    assert trace.select(key=["text", 0]) == trace
    callocs = trace.select(call="calloc")
    assert callocs.size_bytes.tolist() == [16, 0]
    # What a call was is the same in a failed one, not in a map.
    assert asides_of(callocs)["failed"] == {"event": [0], "call": [2], "object": [MAX64]}
    assert asides_of(callocs)["maps"] == {"event": [1], "call": [2]}
    assert asides_of(trace.select(call="malloc"))["failed"]["object"] == [MAX64, 0]
    assert trace.select(size_bytes=16) == callocs
    assert trace.select(size_bytes=(None, 8)).n_objects == 1
    assert trace.select(size_bytes=(9, None)).n_objects == 2
    assert len(trace.select(key=[])) == 0
    assert trace.select(call="malloc").metadata["cuts"] == [
        {"by": "select", "of_events": 5, "call": [1]}
    ]
    assert trace.select(call=range(100)).metadata["cuts"][0]["call"] == "100 numbers"


@pytest.mark.parametrize(
    ("criteria", "error", "message"),
    [
        ({"arena": 0}, ValueError, "arena is 0, but the trace has no column 'arena'"),
        ({"thread": -1}, ValueError, "thread is -1, allowed is 0 to 4294967295"),
        ({"thread": 2**32}, ValueError, "thread is 4294967296"),
        ({"thread": 0.5}, TypeError, "thread is float, expected an integer or several"),
        ({"thread": [0.5]}, TypeError, "thread is float, expected an integer"),
        ({"thread": True}, TypeError, "thread is bool"),
        ({"thread": "main"}, ValueError, "the trace has no names of its threads"),
        ({"call": "alloca"}, ValueError, "call is 'alloca', allowed are unknown, malloc, calloc"),
        ({"call": 256}, ValueError, "call is 256, allowed is 0 to 255"),
        ({"size_bytes": (2, 1)}, ValueError, r"size_bytes is \(2, 1\), allowed is"),
        ({"size_bytes": (-1, 1)}, ValueError, "allowed is 0 <= low"),
        ({"size_bytes": (1, 2, 3)}, TypeError, "expected a size or a pair"),
        ({"size_bytes": "8"}, TypeError, "expected a size or a pair"),
        ({"size_bytes": (0, 1.5)}, TypeError, r"size_bytes\[1\] is float"),
    ],
)
def test_wrong_criteria(criteria: Any, error: type[Exception], message: str) -> None:
    trace = px.Trace([A], [0], [8], call=[1])
    with pytest.raises(error, match=message):
        trace.select(**criteria)


def test_places_that_are_no_numbers() -> None:
    trace: Any = px.Trace([A], [0], [8])
    for wrong in ("a", 1.5):
        for name, cut in (("start", (wrong, None)), ("stop", (None, wrong))):
            with pytest.raises(TypeError, match=f"{name} is (str|float), expected an integer"):
                trace.slice(*cut)
        with pytest.raises(TypeError, match=r"events is (str|float), expected an integer"):
            trace.head(wrong)
    assert trace.slice(np.int64(0), np.uint8(1)) == trace


# ---- one after the other, side by side -----------------------------------------------------------


def apart(parts: list[px.Trace], order: list[tuple[int, int]], moved: list[int]) -> px.Trace:
    """Put events of traces together in an order, with threads, keys and arenas kept apart."""
    columns = [
        name
        for name in ("align_log2", "key", "arena", "call")
        if any(getattr(t, name) is not None for t in parts)
    ]
    timed = all(t.time_ns is not None for t in parts)
    events = [events_of(t) for t in parts]

    def counts(name: str) -> list[int]:
        return [
            (1 if name != "thread" else 0)
            if getattr(t, name) is None
            else max([e[name] + 1 for e in es], default=0)
            for t, es in zip(parts, events, strict=True)
        ]

    starts = {n: np.cumsum([0, *counts(n)]).tolist() for n in ("thread", "key", "arena")}
    made = []
    for number, at in order:
        event = {"align_log2": 0, "key": 0, "arena": 0, "call": 0, **events[number][at]}
        for name, start in starts.items():
            event[name] += start[number]
        event["object"] = (number, event["object"])
        if timed:
            event["time_ns"] += moved[number]
        made.append(event)
    names = ["op", "object", "size_bytes", "thread", *columns, *(["time_ns"] if timed else [])]
    like = px.Trace(**{name: [] for name in names})
    return trace_of(made, like)


def rows_stand_where_they_stood(
    parts: list[px.Trace], whole: px.Trace, order: list[tuple[int, int]]
) -> None:
    """Each row of each part is in the whole, before its event, about its object."""
    place = {where: i for i, where in enumerate(order)}
    objects = {}
    for number, at in order:
        if parts[number].op[at] == A:
            objects[number, int(parts[number].object[at])] = len(objects)
    threads = np.cumsum([0, *(int(t.thread.max()) + 1 if len(t) else 0 for t in parts)])
    expected: dict[str, list[dict[str, int]]] = {}
    for number, part in enumerate(parts):
        for aside, columns in asides_of(part).items():
            for values in zip(*columns.values(), strict=True):
                row = dict(zip(columns, values, strict=True))
                if row["event"] < len(part):
                    row["event"] = place[number, row["event"]]
                else:
                    last = place.get((number, len(part) - 1))
                    row["event"] = END if last is None else last + 1
                if "object" in row:
                    none = row["object"] == none_of(part, aside)
                    row["object"] = -1 if none else objects[number, row["object"]]
                if "thread" in row:
                    row["thread"] += int(threads[number])
                expected.setdefault(aside, []).append(row)
    for aside, rows in expected.items():
        found = asides_of(whole)[aside]
        if "object" in found:
            none = none_of(whole, aside)
            found["object"] = [-1 if o == none else o for o in found["object"]]
        listed = [dict(zip(found, v, strict=True)) for v in zip(*found.values(), strict=True)]
        assert found["event"] == sorted(found["event"])
        # Rows beside no event stand anywhere.
        free = [r for r in rows if r["event"] == END]
        fixed = [r for r in rows if r["event"] != END]
        for row in fixed:
            listed.remove(row)
        # Of equal rows the first was taken out, so that what is left is in no order.
        left = [{**r, "event": END} for r in listed]
        assert sorted(left, key=lambda r: sorted(r.items())) == sorted(
            free, key=lambda r: sorted(r.items())
        )


END = -7


def small_keys(trace: px.Trace) -> px.Trace:
    """Change the keys of a trace to some that can be kept apart from those of others."""
    if trace.key is None:
        return trace
    return px.Trace(**trace.columns() | {"key": trace.key % 50}, asides=trace.asides)


SEVERAL = st.lists(traces(max_events=12).map(small_keys), min_size=1, max_size=4)


@given(SEVERAL)
def test_concatenate_is_one_after_the_other(parts: list[px.Trace]) -> None:
    whole = px.concatenate(parts)
    if len(parts) == 1:
        assert whole is parts[0]
        return
    moved, now = [], 0
    for part in parts:
        times = part.time_ns.tolist() if part.time_ns is not None else []
        moved.append(max(0, now - times[0]) if times else 0)
        now = times[-1] + moved[-1] if times else now
    order = [(n, i) for n, part in enumerate(parts) for i in range(len(part))]
    assert whole == apart(parts, order, moved)
    assert [p["events"] for p in whole.metadata["parts"]] == list(map(len, parts))
    if not any(moved):
        rows_stand_where_they_stood(parts, whole, order)
    assert len(whole) == sum(map(len, parts))


@given(SEVERAL.filter(lambda parts: len(parts) > 1))
def test_free_between_ends_all_that_lives(parts: list[px.Trace]) -> None:
    whole = px.concatenate(parts, free_between=True)
    live = [len(live_after(events_of(part))) for part in parts]
    assert len(whole) == sum(map(len, parts)) + sum(live[:-1])
    assert len(live_after(events_of(whole))) == live[-1]
    at = 0
    for part, left in zip(parts, live, strict=True):
        assert whole.op[at : at + len(part)].tolist() == part.op.tolist()
        at += len(part)
        if part is not parts[-1]:
            assert (whole.op[at : at + left] == F).all()
            assert not live_after(events_of(whole.head(at + left)))
            at += left


@given(SEVERAL.filter(lambda parts: len(parts) > 1), st.booleans())
def test_interleave_keeps_the_order_of_each(parts: list[px.Trace], together: bool) -> None:
    timed = all(part.time_ns is not None for part in parts)
    moved = [
        -int(part.time_ns[0]) if together and timed and len(part) else 0  # type: ignore[index]
        for part in parts
    ]
    keyed = [
        (int(part.time_ns[i]) + moved[n] if timed else (i + 0.5) / len(part), n, i)  # type: ignore[index]
        for n, part in enumerate(parts)
        for i in range(len(part))
    ]
    order = [(n, i) for _, n, i in sorted(keyed)]
    whole = px.interleave(parts, start_together=together)
    assert whole == apart(parts, order, moved)
    if not any(moved):
        rows_stand_where_they_stood(parts, whole, order)


def test_threads_and_keys_are_shared_where_that_is_asked_for() -> None:
    one = px.Trace([A], [0], [8], thread=[1], key=[1], metadata={"key_names": ["a", "b"]})
    two = px.Trace([A], [0], [9], thread=[0], key=[0], metadata={"key_names": ["b", "c"]})
    no = px.Trace([A], [0], [10])
    for join in (px.concatenate, px.interleave):
        whole = join([one, two, no])
        assert whole.thread.tolist() == [1, 2, 3]
        assert whole.key is not None
        assert [whole.metadata["key_names"][k] for k in whole.key] == ["b", "b", "no key"]
        assert join([one, two], share_threads=True).thread.tolist() == [1, 0]
        kept = join([one, two, no], share_keys=False)
        assert kept.key is not None
        assert kept.key.tolist() == [1, 2, 4]
        assert kept.metadata["key_names"] == ["a", "b", "b", "c", "no key"]
        same = join([one, two, no], share_keys=True)
        assert same.key is not None
        assert same.key.tolist() == [1, 0, 2]
        assert "key_names" not in same.metadata
    parts = px.concatenate([one, two]).metadata["parts"]
    assert [part["threads_from"] for part in parts] == [0, 2]
    assert parts[0]["metadata"] == {"key_names": ["a", "b"]}


def test_times_go_on() -> None:
    one = px.Trace(
        [A, R],
        [0, 0],
        [8, 9],
        time_ns=[100, 200],
        asides={
            "realloc_begin": {"event": [1], "time_ns": [150]},
            "failed": {"event": [1], "time_ns": [140], "begin_ns": [90]},
        },
    )
    later = px.concatenate([one, one, px.Trace([A], [0], [1], time_ns=[1000])])
    assert later.time_ns is not None
    assert later.time_ns.tolist() == [100, 200, 200, 300, 1000]
    assert asides_of(later) == {
        "realloc_begin": {"event": [1, 3], "time_ns": [150, 250]},
        "failed": {"event": [1, 3], "time_ns": [140, 240], "begin_ns": [90, 190]},
    }
    assert [p.get("moved_ns", 0) for p in later.metadata["parts"]] == [0, 100, 0]
    together = px.interleave([one, px.Trace([A], [0], [1], time_ns=[70])], start_together=True)
    assert together.time_ns is not None
    assert together.time_ns.tolist() == [0, 0, 100]
    assert asides_of(together)["realloc_begin"] == {"event": [2], "time_ns": [50]}
    assert asides_of(together)["failed"] == {"event": [2], "time_ns": [40], "begin_ns": [0]}
    end = px.Trace([A, A], [0, 1], [1, 1], time_ns=[0, MAX64])
    with pytest.raises(ValueError, match="do not fit 64 bits"):
        px.concatenate([one, end])


def test_asides_of_several_shapes_become_one() -> None:
    one = px.Trace([A], [0], [8], asides={"x": {"event": [1], "n": np.array([5], np.uint8)}})
    two = px.Trace([A], [0], [8], asides={"x": {"event": [0], "object": [0]}, "y": {"event": []}})
    assert asides_of(px.concatenate([one, two])) == {
        "x": {"event": [1, 1], "n": [5, 0], "object": [MAX64, 1]},
        "y": {"event": []},
    }


def test_what_cannot_be_put_together() -> None:
    trace = px.Trace([A, A], [0, 1], [8, 16], thread=[0, MAX32])
    for join in (px.concatenate, px.interleave):
        with pytest.raises(ValueError, match="traces is empty"):
            join([])
        with pytest.raises(TypeError, match="traces is a Trace"):
            join(trace)  # type: ignore[arg-type]
        for wrong in (None, 5):
            with pytest.raises(TypeError, match=r"traces is (NoneType|int), expected several"):
                join(wrong)  # type: ignore[arg-type]
        with pytest.raises(TypeError, match=r"traces\[1\] is int"):
            join([trace, 5])  # type: ignore[list-item]
        with pytest.raises(ValueError, match="8,589,934,592 threads in all"):
            join([trace, trace])
        assert len(join([trace, trace], share_threads=True)) == 4
        hashed = px.Trace([A], [0], [8], key=[MAX32])
        with pytest.raises(ValueError, match=r"8,589,934,592 keys in all.*share_keys"):
            join([hashed, hashed])
        both = join([hashed, hashed], share_keys=True)
        assert both.key is not None
        assert both.key.tolist() == [MAX32, MAX32]
        with pytest.raises(ValueError, match="4,294,967,297 keys"):
            join([hashed, px.Trace([A], [0], [8])], share_keys=True)
    with pytest.raises(ValueError, match="free_between is True"):
        px.concatenate([trace, trace], continued=True, free_between=True)
    with pytest.raises(ValueError, match=r"traces\[1\] says that it inherited None objects"):
        px.concatenate([trace, trace], continued=True)
    with pytest.raises(ValueError, match="says that it inherited 2 objects, expected the 1"):
        px.concatenate([trace.slice(0, 1), trace.slice(2)], continued=True)
    other = px.Trace([A, A], [0, 1], [9, 16])
    with pytest.raises(ValueError, match="does not begin with the 1 objects"):
        px.concatenate([trace.slice(0, 1), other.slice(1)], continued=True)


@pytest.mark.parametrize("wide", [False, True])
def test_real_sizes_of_things(wide: bool) -> None:
    """What the property tests do in small, once with a trace of many objects and arenas."""
    made = px.synthesize(30_000, seed=9, arenas=5, keys=20, threads=3)
    objects = made.object.astype(np.uint64 if wide else np.uint32)
    objects[made.op == D] = np.iinfo(objects.dtype).max
    trace = px.Trace(**made.columns() | {"object": objects})
    cuts = [0, 1, 9_999, 10_000, 29_999, 30_000]
    parts = [trace.slice(a, b) for a, b in itertools.pairwise(cuts)]
    assert px.concatenate(parts, continued=True) == trace
    threads = [trace.select(thread=thread) for thread in range(3)]
    assert sum(part.n_objects for part in threads) == trace.n_objects
    both = px.interleave([trace, trace.select(thread=1)])
    assert both.n_objects == trace.n_objects + threads[1].n_objects
    assert both.select(thread=range(3)).size_bytes.tolist() == trace.size_bytes.tolist()
