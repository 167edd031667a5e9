"""Strategies that draw traces."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from hypothesis import strategies as st

from pyallocx.trace import OP_ALLOC, OP_DESTROY, OP_FREE, OP_REALLOC, Trace

__all__ = ["traces"]

_NO_OBJECT = 2**32 - 1
_SIZES = (0, 1, 8, 9, 16, 24, 40, 100, 400, 1000, 8000, 8168, 8169, 20000)


@st.composite
def traces(
    draw: st.DrawFn,
    *,
    min_events: int = 0,
    max_events: int = 200,
    sizes: Sequence[int] = _SIZES,
    arenas: int = 3,
    threads: int = 3,
    keys: int = 3,
) -> Trace:
    """Draw a valid trace.

    Parameters
    ----------
    min_events, max_events : int
        Least and most events of a trace. Most traces have about twice the least, or a few.
    sizes : sequence of int
        Request sizes to choose from. Few of them make long free lists.
    arenas, threads, keys : int
        Most of each. Whether a trace has an arena, a key and a time column is drawn too.

    Returns
    -------
    Trace
        Allocations, frees, reallocs and (with an arena column) destroys. A trace shrinks towards
        fewer events, allocations and the first sizes.
    """
    with_arena = arenas > 1 and draw(st.booleans())
    with_key = keys > 1 and draw(st.booleans())
    with_time = draw(st.booleans())
    # One number per event says everything about it; a list of numbers shrinks well.
    steps = draw(st.lists(st.integers(0, 2**32 - 1), min_size=min_events, max_size=max_events))
    columns: dict[str, list[int]] = {
        name: [] for name in ("op", "object", "size_bytes", "thread", "key", "arena", "time_ns")
    }
    live: list[tuple[int, int]] = []
    objects = now = 0
    for step in steps:
        kind, step = step % 64, step // 64
        size, step = sizes[step % len(sizes)], step // len(sizes)
        thread, step = step % threads, step // threads
        key, step = step % keys, step // keys
        arena = step % arenas if with_arena else 0
        now += step % 7
        if with_arena and kind == 63:
            event = (OP_DESTROY, _NO_OBJECT, 0)
            live = [(thing, owner) for thing, owner in live if owner != arena]
        elif live and kind >= 36:
            thing, arena = live.pop(step % len(live))
            event = (OP_FREE, thing, 0)
        elif live and kind >= 32:
            thing, arena = live[step % len(live)]
            event = (OP_REALLOC, thing, size)
        else:
            event = (OP_ALLOC, objects, size)
            live.append((objects, arena))
            objects += 1
        for name, value in zip(columns, (*event, thread, key, arena, now), strict=True):
            columns[name].append(value)
    arrays: dict[str, Any] = {
        "op": np.array(columns["op"], np.uint8),
        "object": np.array(columns["object"], np.uint32),
        "size_bytes": np.array(columns["size_bytes"], np.uint64),
        "thread": np.array(columns["thread"], np.uint32),
    }
    if with_key:
        arrays["key"] = np.array(columns["key"], np.uint32)
    if with_arena:
        arrays["arena"] = np.array(columns["arena"], np.uint32)
    if with_time:
        arrays["time_ns"] = np.array(columns["time_ns"], np.uint64)
    return Trace(**arrays)
