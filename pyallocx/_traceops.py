"""Parts of traces: slices of events, selections of objects; `_tracejoin` puts traces together."""

from __future__ import annotations

import copy
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt

from pyallocx._asides import OF_EVENTS, by_arena, head_of, taken
from pyallocx._columns import (
    CALLS,
    COLUMN_DTYPES,
    OP_ALLOC,
    OP_DESTROY,
    OP_FREE,
    OP_REALLOC,
    Array,
)

if TYPE_CHECKING:
    from pyallocx.trace import Trace

Numbers = npt.NDArray[np.intp]
Mask = npt.NDArray[np.bool_]

_LISTED: Final = 20


class Live(NamedTuple):
    """The objects that live at a moment, in the order in which they were allocated."""

    objects: Numbers
    alloc_events: Numbers
    size_bytes: Array  # as the last alloc or realloc left it
    last_events: Numbers  # that alloc or realloc


def live_at(trace: Trace, stop: int) -> Live:
    """Return what lives after the first `stop` events."""
    op = trace.op[:stop]
    things = trace.object[:stop]
    alloc_events = np.flatnonzero(op == OP_ALLOC)
    lives = np.ones(len(alloc_events), dtype=np.bool_)
    lives[things[op == OP_FREE]] = False
    if trace.arena is not None:
        lives &= alloc_events > _last_destroys(op, trace.arena[:stop], trace.arena[alloc_events])
    last_events = alloc_events.copy()
    again = np.flatnonzero(op == OP_REALLOC)
    # Of several values for one place the last is kept.
    last_events[things[again]] = again
    objects = np.flatnonzero(lives)
    last_events = last_events[objects]
    return Live(objects, alloc_events[objects], trace.size_bytes[last_events], last_events)


def _last_destroys(op: npt.NDArray[np.uint8], arena: Array, asked: Array) -> Numbers:
    """Return the last event that destroyed each arena asked about, -1 where none did."""
    destroys = np.flatnonzero(op == OP_DESTROY)
    if not len(destroys):
        return np.full(len(asked), -1, dtype=np.intp)
    ended, first_from_end = np.unique(arena[destroys][::-1], return_index=True)
    last = destroys[::-1][first_from_end]
    at = np.minimum(np.searchsorted(ended, asked), len(ended) - 1)
    return np.where(ended[at] == asked, last[at], -1)


# ---- by event and by time -----------------------------------------------------------------------


def headed(trace: Trace, events: int) -> Trace:
    """Return the first events; see `Trace.head`."""
    events = _whole("events", events)
    if events < 0:
        raise ValueError(f"events is {events}, allowed is 0 and more")
    if events >= len(trace):
        return trace
    columns = {n: None if c is None else c[:events] for n, c in trace.columns().items()}
    made = int(np.count_nonzero(columns["op"] == OP_ALLOC))
    metadata = copy.deepcopy(dict(trace.metadata))
    return type(trace)._adopt(columns, metadata, False, head_of(trace.asides, events, made))


def sliced(trace: Trace, start: int | None, stop: int | None, inherit: bool) -> Trace:
    """Return the events from `start` to before `stop`; see `Trace.slice`."""
    for name, value in (("start", start), ("stop", stop)):
        if value is not None:
            _whole(name, value)
    first, end, _ = slice(start, stop).indices(len(trace))
    end = max(first, end)
    if first == 0 and end == len(trace):
        return trace
    inherited = live_at(trace, first)
    old = int(np.count_nonzero(trace.op[:first] == OP_ALLOC))
    made = int(np.count_nonzero(trace.op[first:end] == OP_ALLOC))
    ahead = len(inherited.objects) if inherit else 0
    local = np.full(trace.n_objects, -1, dtype=np.int64)
    if inherit:
        local[inherited.objects] = np.arange(ahead)
    local[old : old + made] = np.arange(ahead, ahead + made)
    inside = np.zeros(len(trace), dtype=np.bool_)
    inside[first:end] = True
    kept = inside
    if not inherit:
        kept = inside & _is_about(trace, local)
    dropped = end - first - int(np.count_nonzero(kept))
    before = np.empty(len(trace) + 1, dtype=np.int64)
    before[0] = ahead
    np.cumsum(kept, out=before[1:])
    before[1:] += ahead
    rows = {
        name: (columns["event"] >= first)
        # The end of the trace is in the slice that ends there, unless nothing else is.
        & (columns["event"] < (end + 1 if end == len(trace) and end > first else end))
        for name, columns in trace.asides.items()
    }
    asides = taken(trace.asides, before, kept, local, rows)
    cut = {
        "by": "slice",
        "start": first,
        "stop": end,
        "of_events": len(trace),
        "inherited_objects": ahead,
        "inherited_bytes": int(inherited.size_bytes.sum(dtype=object)) if ahead else 0,
        "dropped_events": dropped,
    }
    columns = _part(trace, kept if not inherit else slice(first, end), local)
    if ahead:
        columns = _after_inherited(trace, inherited, first, columns)
    return _made(trace, columns, cut, asides)


def _after_inherited(
    trace: Trace, inherited: Live, first: int, columns: dict[str, Array | None]
) -> dict[str, Array | None]:
    """Put the allocs of what lives at the start of a slice before its events."""
    objects = len(inherited.objects)
    ahead: dict[str, Array | None] = {
        name: None if column is None else column[inherited.alloc_events]
        for name, column in trace.columns().items()
    }
    ahead["object"] = np.arange(objects, dtype=trace.object.dtype)
    ahead["size_bytes"] = inherited.size_bytes
    # Whoever asked last: it is its free that is one across threads, or is not.
    ahead["thread"] = trace.thread[inherited.last_events]
    if trace.time_ns is not None:
        now = trace.time_ns[min(first, len(trace) - 1)]
        ahead["time_ns"] = np.full(objects, now, dtype=np.uint64)
    return {
        name: None if column is None else np.concatenate([column_ahead(ahead, name), column])
        for name, column in columns.items()
    }


def column_ahead(columns: dict[str, Array | None], name: str) -> Array:
    """Return a column that is there."""
    column = columns[name]
    assert column is not None
    return column


def between(trace: Trace, start_ns: int | None, stop_ns: int | None, inherit: bool) -> Trace:
    """Return the events from one time to before another; see `Trace.between`."""
    if trace.time_ns is None:
        raise ValueError("the trace has no times; slice() cuts by event")
    ends = []
    for name, value, default in (("start_ns", start_ns, 0), ("stop_ns", stop_ns, len(trace))):
        if value is None:
            ends.append(default)
            continue
        number = _whole(name, value)
        # What no uint64 can be is before or after all times.
        ends.append(
            0
            if number < 0
            else len(trace)
            if number > 2**64 - 1
            else int(np.searchsorted(trace.time_ns, np.uint64(number)))
        )
    if start_ns is not None and stop_ns is not None and stop_ns < start_ns:
        raise ValueError(f"stop_ns is {stop_ns}, allowed is start_ns ({start_ns}) or more")
    return sliced(trace, ends[0], ends[1], inherit)


def _whole(name: str, value: object) -> int:
    if isinstance(value, bool) or not isinstance(value, (int, np.integer)):
        raise TypeError(f"{name} is {type(value).__name__}, expected an integer")
    return int(value)


# ---- by arena ---------------------------------------------------------------------------------


def divided(trace: Trace) -> list[Trace]:
    """Return the events of each arena; see `Trace.by_arena`."""
    if trace.arena is None or not len(trace):
        return [trace]
    made = trace.op == OP_ALLOC
    owners = trace.arena[made]
    grouped = np.argsort(owners, kind="stable")
    counts = np.bincount(owners)
    # Within its group each object's number is its distance from the start of the group.
    local = np.empty(len(owners), dtype=trace.object.dtype)
    starts = np.repeat(np.cumsum(counts) - counts, counts)
    local[grouped] = np.arange(len(owners)) - starts
    renamed = np.full(len(trace), np.iinfo(trace.object.dtype).max, dtype=trace.object.dtype)
    named = trace.op != OP_DESTROY
    renamed[named] = local[trace.object[named]]
    order = np.argsort(trace.arena, kind="stable")
    events = np.split(order, np.cumsum(np.bincount(trace.arena))[:-1])
    parts = []
    for mine, beside in zip(
        events, by_arena(trace.asides, trace.arena, events, owners, local), strict=True
    ):
        columns = {n: None if c is None else c[mine] for n, c in trace.columns().items()}
        columns["object"] = renamed[mine]
        parts.append(
            type(trace)._adopt(columns, copy.deepcopy(dict(trace.metadata)), False, beside)
        )
    return parts


# ---- by object ----------------------------------------------------------------------------------


def selected(
    trace: Trace,
    thread: Any,
    key: Any,
    size_bytes: Any,
    arena: Any,
    call: Any,
) -> Trace:
    """Return the events of the objects that match; see `Trace.select`."""
    names = trace.metadata.get("key_names")
    wanted: dict[str, Any] = {}
    cut: dict[str, Any] = {"by": "select", "of_events": len(trace)}
    for name, value, known in (
        ("thread", thread, None),
        ("key", key, names if isinstance(names, list) else None),
        ("arena", arena, None),
        ("call", call, list(CALLS)),
    ):
        if value is None:
            continue
        if getattr(trace, name) is None:
            raise ValueError(f"{name} is {value!r}, but the trace has no column '{name}'")
        numbers = _numbers(name, value, known)
        wanted[name] = np.asarray(numbers, dtype=COLUMN_DTYPES[name][-1])
        cut[name] = numbers if len(numbers) <= _LISTED else f"{len(numbers)} numbers"
    if size_bytes is not None:
        wanted["size_bytes"] = cut["size_bytes"] = _bounds(size_bytes)
    if not wanted:
        return trace
    alloc_events = np.flatnonzero(trace.op == OP_ALLOC)
    chosen = np.ones(len(alloc_events), dtype=np.bool_)
    for name, criterion in wanted.items():
        chosen &= _matches(getattr(trace, name)[alloc_events], name, criterion)
    local = np.cumsum(chosen) - 1
    local[~chosen] = -1
    kept = _is_about(trace, local)
    if trace.arena is not None:
        kept &= ~_ends_nothing(trace, alloc_events[chosen])
    before = np.zeros(len(trace) + 1, dtype=np.int64)
    np.cumsum(kept, out=before[1:])
    rows = {name: _rows_of(name, columns, wanted) for name, columns in trace.asides.items()}
    asides = taken(trace.asides, before, kept, local, rows)
    return _made(trace, _part(trace, kept, local), cut, asides)


def _numbers(name: str, value: Any, known: list[Any] | None) -> list[int]:
    """Turn one or several numbers, or names of some, into numbers."""
    several = [value] if isinstance(value, (str, int, np.integer)) else value
    if not isinstance(several, Iterable):
        raise TypeError(f"{name} is {type(value).__name__}, expected an integer or several")
    highest = int(np.iinfo(COLUMN_DTYPES[name][-1]).max)
    numbers = set()
    for one in several:
        if isinstance(one, str):
            if known is None:
                raise ValueError(f"{name} is {one!r}, but the trace has no names of its {name}s")
            places = [number for number, other in enumerate(known) if other == one]
            if not places:
                listed = ", ".join(map(str, known[:_LISTED]))
                more = ", ..." if len(known) > _LISTED else ""
                raise ValueError(f"{name} is {one!r}, allowed are {listed}{more}")
            numbers.update(places)
            continue
        number = _whole(name, one)
        if not 0 <= number <= highest:
            raise ValueError(f"{name} is {number}, allowed is 0 to {highest}")
        numbers.add(number)
    return sorted(numbers)


def _bounds(size_bytes: Any) -> list[int]:
    """Return the smallest and the largest size wanted."""
    pair = (size_bytes, size_bytes) if isinstance(size_bytes, (int, np.integer)) else size_bytes
    if not isinstance(pair, (tuple, list)) or len(pair) != 2:
        raise TypeError(f"size_bytes is {size_bytes!r}, expected a size or a pair (low, high)")
    low = 0 if pair[0] is None else _whole("size_bytes[0]", pair[0])
    high = 2**64 - 1 if pair[1] is None else _whole("size_bytes[1]", pair[1])
    if not 0 <= low <= high <= 2**64 - 1:
        raise ValueError(f"size_bytes is {size_bytes!r}, allowed is 0 <= low <= high < 2**64")
    return [low, high]


def _matches(column: Array, name: str, criterion: Any) -> Mask:
    if name == "size_bytes":
        low, high = (
            column.dtype.type(min(bound, np.iinfo(column.dtype).max)) for bound in criterion
        )
        there: Mask = (column >= low) & (column <= high)
        return there
    return np.isin(column, criterion)


def _rows_of(aside: str, columns: Any, wanted: dict[str, Any]) -> Mask:
    """Return the rows that may stay: what names an object or an event goes with that."""
    rows = np.ones(len(columns["event"]), dtype=np.bool_)
    if aside in OF_EVENTS:
        return rows
    # Only of a failed call do size and call mean what they do in an event.
    names = ("thread", "size_bytes", "call") if aside == "failed" else ("thread",)
    for name in names:
        if name in wanted and name in columns:
            rows &= _matches(columns[name], name, wanted[name])
    if "object" in columns:
        about = columns["object"]
        rows |= about != np.iinfo(about.dtype).max
    return rows


def _ends_nothing(trace: Trace, chosen: Numbers) -> Mask:
    """Whether an event is a destroy of an arena in which, this time, nothing chosen was made."""
    destroys = np.flatnonzero(trace.op == OP_DESTROY)
    assert trace.arena is not None
    events = np.concatenate([chosen, destroys])
    order = np.lexsort((events, trace.arena[events]))
    events = events[order]
    arenas = trace.arena[events]
    ends = trace.op[events] == OP_DESTROY
    fresh = np.ones(len(events), dtype=np.bool_)
    fresh[1:] = (arenas[1:] != arenas[:-1]) | ends[:-1]
    nothing = np.zeros(len(trace), dtype=np.bool_)
    nothing[events[ends & fresh]] = True
    return nothing


# ---- both ---------------------------------------------------------------------------------------


def _is_about(trace: Trace, local: npt.NDArray[np.int64]) -> Mask:
    """Whether each event is of an object that has a local number, or of none."""
    kept = np.ones(len(trace), dtype=np.bool_)
    named = trace.op != OP_DESTROY
    kept[named] = local[trace.object[named]] >= 0
    return kept


def _part(
    trace: Trace, kept: Mask | slice, local: npt.NDArray[np.int64]
) -> dict[str, Array | None]:
    """Return the columns of some events, with objects under their local numbers."""
    columns = {n: None if c is None else c[kept] for n, c in trace.columns().items()}
    renamed = np.full(len(trace.op[kept]), np.iinfo(trace.object.dtype).max, trace.object.dtype)
    named = columns["op"] != OP_DESTROY
    renamed[named] = local[trace.object[kept][named]]
    columns["object"] = renamed
    return columns


def _made(
    trace: Trace,
    columns: dict[str, Array | None],
    cut: dict[str, Any],
    asides: dict[str, dict[str, Array]],
) -> Trace:
    metadata = copy.deepcopy(dict(trace.metadata))
    earlier = metadata.get("cuts")
    metadata["cuts"] = [*(earlier if isinstance(earlier, list) else []), cut]
    return type(trace)._adopt(columns, metadata, None, asides)
