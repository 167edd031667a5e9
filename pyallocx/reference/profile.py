"""Profiles of a trace in plain Python, event by event: the oracle of `Trace.profile`."""

from __future__ import annotations

from collections import Counter

from pyallocx.trace import OP_ALLOC, OP_DESTROY, OP_FREE, Trace

__all__ = ["profile_of_trace"]


def profile_of_trace(trace: Trace, weight: str) -> dict[int, int]:
    """Return the weight of each request size.

    Parameters
    ----------
    trace : Trace
        Any trace.
    weight : {"count", "peak", "end", "byte_time"}
        As in `Trace.profile`.

    Returns
    -------
    dict
        From sizes in bytes to whole numbers; empty where `Trace.profile` refuses.

    Examples
    --------
    >>> import pyallocx as px
    >>> trace = px.Trace(op=[0, 0, 1, 2], object=[0, 1, 0, 1], size_bytes=[48, 8, 0, 16])
    >>> [profile_of_trace(trace, w) for w in ("count", "peak", "end", "byte_time")]
    [{48: 1, 8: 1, 16: 1}, {48: 1, 8: 1}, {16: 1}, {48: 2, 8: 2, 16: 1}]
    """
    requests: Counter[int] = Counter()
    time_of: Counter[int] = Counter()
    at_peak: Counter[int] = Counter()
    live: dict[int, tuple[int, int, int]] = {}  # object: its size, since when, its arena
    most = -1

    def end(object: int) -> None:
        size, since, _ = live.pop(object)
        time_of[size] += now - since

    now = 0
    for event in range(len(trace)):
        op, object = int(trace.op[event]), int(trace.object[event])
        size = int(trace.size_bytes[event])
        arena = 0 if trace.arena is None else int(trace.arena[event])
        now = event if trace.time_ns is None else int(trace.time_ns[event])
        if op == OP_DESTROY:
            for one in [o for o, (_, _, owner) in live.items() if owner == arena]:
                end(one)
            continue
        if op != OP_ALLOC:
            end(object)
        if op != OP_FREE:
            live[object] = size, now, arena
            requests[size] += 1
        live_bytes = sum(size for size, _, _ in live.values())
        if live and live_bytes > most:
            most = live_bytes
            at_peak = Counter(size for size, _, _ in live.values())
    at_end = Counter(size for size, _, _ in live.values())
    if trace.time_ns is None:
        now = len(trace)
    for object in list(live):
        end(object)
    chosen = {"count": requests, "peak": at_peak, "end": at_end, "byte_time": time_of}[weight]
    return {size: total for size, total in chosen.items() if total}
