"""Random valid traces, and their sums made the slow way."""

from __future__ import annotations

from typing import Any

import numpy as np
from hypothesis import strategies as st

import pyallocx as px

SIZES = st.one_of(st.integers(0, 64), st.integers(0, 2**40))


@st.composite
def events(draw: st.DrawFn, *, max_events: int = 40, arenas: bool = False) -> list[dict[str, int]]:
    """Draw the events of a valid trace, a dict each."""
    made: list[dict[str, int]] = []
    live: dict[int, int] = {}
    objects = 0
    time = 0
    for _ in range(draw(st.integers(0, max_events))):
        choices = [px.OP_ALLOC]
        if live:
            choices += [px.OP_FREE, px.OP_REALLOC]
        if arenas:
            choices.append(px.OP_DESTROY)
        op = draw(st.sampled_from(choices))
        event = {"op": op, "size_bytes": 0, "thread": draw(st.integers(0, 3)), "arena": 0}
        event["key"] = draw(st.integers(0, 2**32 - 1))
        event["call"] = draw(st.integers(0, len(px.CALLS) - 1))
        event["align_log2"] = draw(st.integers(0, 63)) if op == px.OP_ALLOC else 0
        if op == px.OP_ALLOC:
            event["object"] = objects
            event["arena"] = draw(st.integers(0, 2)) if arenas else 0
            live[objects] = event["arena"]
            objects += 1
        elif op == px.OP_DESTROY:
            event["object"] = 2**64 - 1
            event["arena"] = draw(st.integers(0, 2))
            live = {o: a for o, a in live.items() if a != event["arena"]}
        else:
            event["object"] = draw(st.sampled_from(sorted(live)))
            event["arena"] = live[event["object"]]
            if op == px.OP_FREE:
                del live[event["object"]]
        if op in (px.OP_ALLOC, px.OP_REALLOC):
            event["size_bytes"] = draw(SIZES)
        time += draw(st.integers(0, 1000))
        event["time_ns"] = time
        made.append(event)
    return made


def columns_of(made: list[dict[str, int]], *names: str) -> dict[str, np.ndarray[Any, Any]]:
    """Return columns by name; the object column has 8 bytes an item."""
    return {
        name: np.array([event[name] for event in made], dtype=np.uint64)
        for name in ("op", "object", "size_bytes", *names)
    }


@st.composite
def traces(draw: st.DrawFn, *, max_events: int = 40) -> px.Trace:
    """Draw a valid trace with any choice of optional columns."""
    arenas = draw(st.booleans())
    made = draw(events(max_events=max_events, arenas=arenas))
    names = [n for n in ("thread", "align_log2", "time_ns", "key", "call") if draw(st.booleans())]
    columns = columns_of(made, *names, *(["arena"] if arenas else []))
    if draw(st.booleans()):
        # All ones stay all ones.
        columns["object"] = columns["object"].astype(np.uint32)
    beside = draw(asides(made)) if draw(st.booleans()) else None
    return px.Trace(**columns, asides=beside)


@st.composite
def asides(draw: st.DrawFn, made: list[dict[str, int]]) -> dict[str, dict[str, list[int]]]:
    """Draw what happened beside events: about a realloc, about an object or none, about nothing."""
    n = len(made)
    objects = [e["object"] for e in made if e["op"] == px.OP_ALLOC]
    rows = st.lists(st.integers(0, n), max_size=8).map(sorted)
    reallocs = [i for i, e in enumerate(made) if e["op"] == px.OP_REALLOC and draw(st.booleans())]
    number = st.integers(0, 2**64 - 1)
    beside: dict[str, dict[str, list[int]]] = {
        "realloc_begin": {"event": reallocs, "time_ns": [made[i]["time_ns"] for i in reallocs]},
    }
    for name in ("usable_size", "maps"):
        at = draw(rows)
        beside[name] = {"event": at, "thread": [draw(st.integers(0, 3)) for _ in at]}
        if name == "usable_size":
            beside[name]["object"] = [draw(st.sampled_from([-1, *objects])) for _ in at]
        else:
            beside[name]["address"] = [draw(number) for _ in at]
            beside[name]["begin_ns"] = [draw(number) for _ in at]
    return beside


def asides_of(trace: px.Trace) -> dict[str, dict[str, list[int]]]:
    """Return the asides of a trace as lists, which can be compared."""
    return {n: {c: a.tolist() for c, a in t.items()} for n, t in trace.asides.items()}


def summarise(made: list[dict[str, int]]) -> dict[str, int]:
    """Sum up events the slow and obvious way."""
    live: dict[int, dict[str, int]] = {}
    s = dict.fromkeys(
        (
            *("allocs", "frees", "reallocs", "destroys", "allocated_bytes", "cross_thread_frees"),
            *("peak_live_bytes", "peak_live_objects", "most_live_objects", "largest_size_bytes"),
        ),
        0,
    )
    names = {0: "allocs", 1: "frees", 2: "reallocs", 3: "destroys"}
    sizes = set()
    for event in made:
        s[names[event["op"]]] += 1
        if event["op"] == px.OP_FREE:
            s["cross_thread_frees"] += live.pop(event["object"])["thread"] != event["thread"]
        elif event["op"] == px.OP_DESTROY:
            live = {o: e for o, e in live.items() if e["arena"] != event["arena"]}
        else:
            live[event["object"]] = event
            sizes.add(event["size_bytes"])
            s["allocated_bytes"] += event["size_bytes"]
            s["largest_size_bytes"] = max(s["largest_size_bytes"], event["size_bytes"])
        now = sum(e["size_bytes"] for e in live.values())
        if now > s["peak_live_bytes"] or (live and s["peak_live_objects"] == 0):
            s["peak_live_bytes"], s["peak_live_objects"] = now, len(live)
        s["most_live_objects"] = max(s["most_live_objects"], len(live))
    s["live_bytes_end"] = sum(e["size_bytes"] for e in live.values())
    s["live_objects_end"] = len(live)
    s["distinct_sizes"] = len(sizes)
    s["events"] = len(made)
    s["objects"] = s["allocs"]
    s["threads"] = len({e["thread"] for e in made})
    s["arenas"] = len({e["arena"] for e in made})
    return s
