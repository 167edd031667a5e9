"""How much each request size weighs in a trace; see `Trace.profile`, which calls this.

Everything here is sums of whole numbers, kept whole until the last step: a weight is the float next
to the exact sum.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import numpy.typing as npt

from pyallocx.profile import Profile
from pyallocx.trace import OP_ALLOC, OP_DESTROY, OP_FREE, OP_REALLOC

if TYPE_CHECKING:
    from pyallocx.trace import Trace

__all__ = ["WEIGHTS", "profile_of"]

WEIGHTS: Final = ("count", "peak", "end", "byte_time")

_Ints = npt.NDArray[np.int64]
_Sizes = npt.NDArray[np.uint64]

_MOST_DENSE: Final = 1 << 20
_PIECE: Final = 26


def profile_of(trace: Trace, weight: str) -> Profile:
    """Return the profile of `trace`; see `Trace.profile`."""
    if weight not in WEIGHTS:
        raise ValueError(f"weight is {weight!r}, allowed are {', '.join(map(repr, WEIGHTS))}")
    about: dict[str, Any] = {"format": "trace", "weight": weight, "sizes": "requests"}
    for key in ("reader", "file", "command", "program"):
        if key in trace.metadata:
            about[key] = trace.metadata[key]
    if trace.align_log2 is not None:
        # A size says nothing of them, and malloc's own alignment is 16.
        asking = _asking(trace.op)
        about["aligned_requests"] = int(np.count_nonzero(trace.align_log2[asking] > 4))
    origin = trace.metadata.get("file")
    name = os.path.splitext(origin)[0] if isinstance(origin, str) else ""
    if weight == "byte_time":
        sizes, counts, timeless = _byte_time(trace)
        about["time"] = "events" if trace.time_ns is None else "ns"
        if timeless:
            about["sizes_without_time"] = timeless
    elif weight == "count":
        sizes, counts = _histogram(trace.size_bytes[_asking(trace.op)])
        if not len(sizes):
            raise ValueError("the trace has no alloc or realloc, so there is no profile")
    else:
        events = len(trace)
        if weight == "peak":
            peak = trace.summary()["peak_event"]
            events = 0 if peak is None else peak + 1
            about["peak_event"] = peak
        sizes, counts = _histogram(_live_sizes(trace, events))
        if not len(sizes):
            when = "at the end of the trace" if weight == "end" else "at any time in the trace"
            raise ValueError(f"nothing is live {when}, so there is no profile of weight {weight!r}")
    return Profile(sizes, counts, name=name, metadata=about)


def _asking(op: npt.NDArray[np.uint8]) -> npt.NDArray[np.bool_]:
    asking: npt.NDArray[np.bool_] = (op == OP_ALLOC) | (op == OP_REALLOC)
    return asking


def _histogram(sizes: _Sizes) -> tuple[_Sizes, npt.NDArray[np.float64]]:
    """Return the distinct sizes in order, and how often each occurs."""
    if len(sizes) and int(sizes.max()) < _MOST_DENSE:
        dense = np.bincount(sizes.astype(np.int64))
        found = np.flatnonzero(dense)
        return found.astype(np.uint64), dense[found].astype(np.float64)
    distinct, counts = np.unique(sizes, return_counts=True)
    return distinct, counts.astype(np.float64)


def _deaths(trace: Trace, events: int, births: _Ints) -> _Ints:
    """Return which of the first events ended each object; `events` for what lives on."""
    op = trace.op[:events]
    deaths = np.full(len(births), events, dtype=np.int64)
    freed = np.flatnonzero(op == OP_FREE)
    deaths[trace.object[:events][freed]] = freed
    ends = np.flatnonzero(op == OP_DESTROY)
    if len(ends) and trace.arena is not None:
        # Each object dies at the first destroy of its arena after its birth, where it lives so
        # long. Arenas and events in one number: arenas are dense, so that it fits.
        arena = trace.arena[:events].astype(np.int64)
        place = arena * (events + 1)
        destroys = np.sort(place[ends] + ends)
        own = place[births]
        found = np.searchsorted(destroys, own + births)
        last = len(destroys) - 1
        with_arena = np.where(found <= last, destroys[np.minimum(found, last)] - own, events)
        # What was found for another arena lies past every event of this one.
        np.minimum(deaths, with_arena, out=deaths)
    return deaths


def _live_sizes(trace: Trace, events: int) -> _Sizes:
    """Return the sizes of the objects that are live after the first events."""
    op, object, size = trace.op[:events], trace.object[:events], trace.size_bytes[:events]
    births = np.flatnonzero(op == OP_ALLOC)
    alive = np.flatnonzero(_deaths(trace, events, births) == events)
    sizes = size[births]
    resized = np.flatnonzero(op == OP_REALLOC)
    # Of several values for one place NumPy keeps the last, which is the current size.
    sizes[object[resized]] = size[resized]
    return sizes[alive]


def _byte_time(trace: Trace) -> tuple[_Sizes, npt.NDArray[np.float64], int]:
    """Return the sizes in order, for how long objects had each, and how many had it for no time."""
    events = len(trace)
    births = np.flatnonzero(trace.op == OP_ALLOC)
    if not events or not len(births):
        raise ValueError("the trace has no alloc, so there is no profile")
    deaths = _deaths(trace, events, births)
    starts, ends = births, deaths
    resized = np.flatnonzero(trace.op == OP_REALLOC)
    if len(resized):
        # An object has one size from its birth or a realloc to the next realloc or its death.
        # Events are in order already, so a stable sort by object puts them after one another.
        owners = trace.object[resized].astype(np.int64)
        resized = resized[np.argsort(owners, kind="stable")]
        owners = np.sort(owners, kind="stable")
        same = owners[1:] == owners[:-1]
        until = deaths[owners]
        until[:-1][same] = resized[1:][same]
        first = np.concatenate(([True], ~same))
        ends = deaths.copy()
        ends[owners[first]] = resized[first]
        starts, ends = np.concatenate((births, resized)), np.concatenate((ends, until))
    sizes = trace.size_bytes[starts]
    if trace.time_ns is None:
        spans = (ends - starts).astype(np.uint64)
    else:
        # What is live after the last event lived until then, for all that is known.
        spans = trace.time_ns[np.minimum(ends, events - 1)] - trace.time_ns[starts]
    distinct, totals = _sums(sizes, spans)
    some = totals > 0
    if not some.any():
        raise ValueError("no object lived for any time, so there is no profile by byte-time")
    return distinct[some], totals[some], int(len(some) - some.sum())


def _sums(sizes: _Sizes, spans: _Sizes) -> tuple[_Sizes, npt.NDArray[np.float64]]:
    """Return the distinct sizes in order, and the sum of the spans of each, rounded once."""
    longest, most = int(spans.max()), int(sizes.max())
    if most < _MOST_DENSE and len(sizes) < 1 << _PIECE:
        # bincount sums floats: pieces of few enough bits make every sum of them exact.
        index = sizes.astype(np.int64)
        distinct = np.flatnonzero(np.bincount(index))
        parts = []
        for shift in range(0, max(1, longest.bit_length()), _PIECE):
            piece = spans >> np.uint64(shift) & np.uint64((1 << _PIECE) - 1)
            parts.append(np.bincount(index, weights=piece)[distinct].astype(np.uint64))
        return distinct.astype(np.uint64), _joined(parts, _PIECE, longest * len(sizes))
    order = np.argsort(sizes, kind="stable")
    ordered = sizes[order]
    begins = np.flatnonzero(np.concatenate(([True], ordered[1:] != ordered[:-1])))
    spans = spans[order]
    parts = [
        np.add.reduceat(spans & np.uint64(0xFFFFFFFF), begins),
        np.add.reduceat(spans >> np.uint64(32), begins),
    ]
    return ordered[begins], _joined(parts, 32, longest * len(sizes))


def _joined(parts: list[_Sizes], bits: int, bound: int) -> npt.NDArray[np.float64]:
    """Return the sum of the parts, each of a weight of 2**bits of the one before."""
    if bound < 1 << 64:
        total = parts[0]
        for number, part in enumerate(parts[1:], 1):
            total = total + (part << np.uint64(bits * number))
        return total.astype(np.float64)
    whole = [
        sum(int(value) << (bits * number) for number, value in enumerate(values))
        for values in zip(*parts, strict=True)
    ]
    return np.array([float(value) for value in whole], dtype=np.float64)
