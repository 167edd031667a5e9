"""What a notebook shows of a trace."""

from __future__ import annotations

import html
from typing import TYPE_CHECKING, Final

import numpy as np

from pyallocx._columns import CALLS, OP_ALLOC, OP_REALLOC

if TYPE_CHECKING:
    from pyallocx.trace import Trace

_STEP_EVENTS: Final = 1 << 20


def _shown_bytes(count: int) -> str:
    amount = float(count)
    for unit in ("B", "kB", "MB", "GB", "TB"):
        if amount < 1000 or unit == "TB":
            break
        amount /= 1000
    exact = f"{count:,} B"
    return exact if unit == "B" else f"{amount:.3g} {unit} ({exact})"


def _counted_calls(trace: Trace) -> str:
    """Return how many events each function made, the most first."""
    counts = np.zeros(len(CALLS), dtype=np.int64)
    assert trace.call is not None
    for start in range(0, len(trace), _STEP_EVENTS):
        part = trace.call[start : start + _STEP_EVENTS]
        # A mapped file may have changed.
        counts += np.bincount(part, minlength=len(CALLS))[: len(CALLS)]
    order = [int(i) for i in np.argsort(-counts, kind="stable") if counts[i]]
    return ", ".join(f"{int(counts[i]):,} {CALLS[i]}" for i in order)


def _size_bars(trace: Trace) -> str:
    """Return a bar for each power of two of request sizes, as HTML."""
    counts = np.zeros(65, dtype=np.int64)
    for start in range(0, len(trace), _STEP_EVENTS):
        part = slice(start, start + _STEP_EVENTS)
        asked = (trace.op[part] == OP_ALLOC) | (trace.op[part] == OP_REALLOC)
        sizes = trace.size_bytes[part][asked]
        # frexp of a double is one too many just below large powers of two: 2**53 - 1 is exact.
        exponents = np.frexp(sizes.astype(np.float64))[1]
        counts += np.bincount(exponents, minlength=65)[:65]
    if not counts.any():
        return ""
    rows = []
    occupied = np.flatnonzero(counts)
    for exponent in range(int(occupied[0]), int(occupied[-1]) + 1):
        count = int(counts[exponent])
        low = 0 if exponent == 0 else 1 << (exponent - 1)
        label = "0" if exponent == 0 else f"{low:,} to {(1 << exponent) - 1:,}"
        width = 100 * count / int(counts.max())
        rows.append(
            f'<tr><td style="text-align:right">{label}</td>'
            f'<td style="text-align:right">{count:,}</td>'
            f'<td style="text-align:left;width:16em"><div style="background:#4c78a8;'
            f'height:0.8em;width:{width:.1f}%"></div></td></tr>'
        )
    return (
        "<table><thead><tr><th>request size in bytes</th><th>requests</th><th></th></tr>"
        f"</thead><tbody>{''.join(rows)}</tbody></table>"
    )


def trace_html(trace: Trace) -> str:
    """Return what `Trace.summary` says, and a bar for each power of two of request sizes."""
    try:
        s = trace.summary()
    except OverflowError:
        return f"<code>{html.escape(repr(trace))}</code>"
    n = {name: value or 0 for name, value in s.items()}
    events = ", ".join(
        f"{n[name]:,} {name}"
        for name in ("allocs", "frees", "reallocs", "destroys")
        if n[name] or name != "destroys"
    )
    rows = [
        ("events", f"{n['events']:,}: {events}"),
        (
            "peak live",
            f"{_shown_bytes(n['peak_live_bytes'])} in {n['peak_live_objects']:,} objects",
        ),
        (
            "live at end",
            f"{_shown_bytes(n['live_bytes_end'])} in {n['live_objects_end']:,} objects",
        ),
        ("allocated in all", _shown_bytes(n["allocated_bytes"])),
        (
            "request sizes",
            f"{n['distinct_sizes']:,} different, largest {_shown_bytes(n['largest_size_bytes'])}",
        ),
        ("threads", f"{n['threads']:,}, {n['cross_thread_frees']:,} frees across threads"),
    ]
    if trace.arena is not None:
        rows.append(("arenas", f"{n['arenas']:,}"))
    if trace.key is not None:
        rows.append(("keys", f"{n['keys']:,}"))
    if s["duration_ns"] is not None:
        rows.append(("duration", f"{s['duration_ns'] / 1e9:,.6g} s"))
    if trace.call is not None:
        rows.append(("calls", _counted_calls(trace)))
    if trace.asides:
        rows.append(
            ("beside", ", ".join(f"{len(a['event']):,} {name}" for name, a in trace.asides.items()))
        )
    dropped = trace.metadata.get("dropped")
    if isinstance(dropped, dict) and dropped:
        rows.append(("dropped", ", ".join(f"{v} {k}" for k, v in dropped.items())))
    body = "".join(
        f'<tr><th style="text-align:left">{label}</th>'
        f'<td style="text-align:left">{html.escape(text)}</td></tr>'
        for label, text in rows
    )
    origin = trace.metadata.get("file")
    title = f"Trace of {origin}" if isinstance(origin, str) else "Trace"
    return (
        f"<div><strong>{html.escape(title)}</strong><table><tbody>{body}</tbody></table>"
        f"{_size_bars(trace)}</div>"
    )
