"""What `pyallocx info` counts in a trace beside its summary: threads, keys, sizes, calls."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from pyallocx._columntable import dense
from pyallocx._traceprofile import _histogram
from pyallocx.trace import CALLS, OP_ALLOC, OP_FREE, OP_REALLOC, Trace

__all__ = ["aside_counts", "call_counts", "key_rows", "rates", "size_bins", "thread_rows"]

Rows = list[dict[str, Any]]


def _sums(labels: npt.NDArray[Any], weights: npt.NDArray[Any], rows: int) -> list[int]:
    """Return the exact sum of the weights of each label."""
    # bincount sums floats: halves of 32 bits are exact for 2**21 and more of them.
    index = labels.astype(np.int64)
    low = np.bincount(index, weights=weights & np.uint64(0xFFFFFFFF), minlength=rows)
    high = np.bincount(index, weights=weights >> np.uint64(32), minlength=rows)
    return [int(a) + (int(b) << 32) for a, b in zip(low.tolist(), high.tolist(), strict=True)]


def thread_rows(trace: Trace) -> Rows:
    """Return what each thread did, the one that allocated most bytes first.

    ``foreign_frees`` are frees of what another thread allocated or reallocated last.
    """
    used, thread = dense(trace.thread)
    asking = (trace.op == OP_ALLOC) | (trace.op == OP_REALLOC)
    counts = {
        name: np.bincount(thread[trace.op == op], minlength=len(used)).tolist()
        for name, op in (("allocs", OP_ALLOC), ("reallocs", OP_REALLOC), ("frees", OP_FREE))
    }
    asked = _sums(thread[asking], trace.size_bytes[asking], len(used))
    owner = np.zeros(trace.n_objects, dtype=np.int64)
    # Of several values for one place NumPy keeps the last.
    owner[trace.object[asking].astype(np.int64)] = thread[asking]
    freed = trace.op == OP_FREE
    freer = thread[freed]
    foreign = owner[trace.object[freed].astype(np.int64)] != freer
    counts["foreign_frees"] = np.bincount(freer[foreign], minlength=len(used)).tolist()
    rows = [
        {
            "thread": int(number),
            **{name: column[at] for name, column in counts.items()},
            "allocated_bytes": asked[at],
        }
        for at, number in enumerate(used.tolist())
    ]
    return sorted(rows, key=lambda row: (-row["allocated_bytes"], row["thread"]))


def key_rows(trace: Trace, most: int | None = None) -> Rows:
    """Return the keys that allocated most bytes: their objects, their bytes, how many live on."""
    if trace.key is None:
        return []
    asking = (trace.op == OP_ALLOC) | (trace.op == OP_REALLOC)
    used, key = dense(trace.key[asking])
    if not len(used):
        return []
    asked = _sums(key, trace.size_bytes[asking], len(used))
    requests = np.bincount(key, minlength=len(used)).tolist()
    order = sorted(range(len(used)), key=lambda at: (-asked[at], at))[:most]
    names = trace.metadata.get("key_names")
    return [
        {
            "key": int(used[at]),
            "name": _name(names, int(used[at])),
            "requests": requests[at],
            "allocated_bytes": asked[at],
        }
        for at in order
    ]


def _name(names: Any, key: int) -> str | None:
    """Look a key up in what a file says its names are, which may be anything."""
    if isinstance(names, Mapping):
        found = names.get(str(key))
    elif isinstance(names, (list, tuple)) and key < len(names):
        found = names[key]
    else:
        return None
    return found if isinstance(found, str) else None


def size_bins(trace: Trace) -> Rows:
    """Return requests and bytes by powers of two of the request size, empty ones between too."""
    asking = (trace.op == OP_ALLOC) | (trace.op == OP_REALLOC)
    sizes, counts = _histogram(trace.size_bytes[asking])
    if not len(sizes):
        return []
    bins: dict[int, list[int]] = {}
    for size, count in zip(sizes.tolist(), counts.tolist(), strict=True):
        one = bins.setdefault(size.bit_length(), [0, 0])
        one[0] += int(count)
        one[1] += int(count) * size
    rows = []
    for group in range(min(bins), max(bins) + 1):
        requests, asked = bins.get(group, (0, 0))
        rows.append(
            {
                "least_bytes": 1 << (group - 1) if group else 0,
                "most_bytes": (1 << group) - 1,
                "requests": requests,
                "allocated_bytes": asked,
            }
        )
    return rows


def call_counts(trace: Trace) -> dict[str, int]:
    """Return how many events each function made, where the trace says which."""
    if trace.call is None:
        return {}
    counts = np.bincount(trace.call, minlength=len(CALLS)).tolist()
    return {name: count for name, count in zip(CALLS, counts, strict=True) if count}


def aside_counts(trace: Trace) -> dict[str, int]:
    """Return how much each aside holds."""
    return {
        name: len(next(iter(columns.values()))) if columns else 0
        for name, columns in trace.asides.items()
    }


def rates(summary: Mapping[str, Any]) -> dict[str, float] | None:
    """Return how fast the program allocated; None where the trace took no time."""
    duration = summary.get("duration_ns")
    if not duration:
        return None
    seconds = duration / 1e9
    return {
        "events_per_second": summary["events"] / seconds,
        "allocs_per_second": summary["allocs"] / seconds,
        "allocated_bytes_per_second": summary["allocated_bytes"] / seconds,
    }
