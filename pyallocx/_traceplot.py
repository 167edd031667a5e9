"""Pictures of a trace: live bytes over the run, request sizes, lifetimes.

matplotlib is imported inside the functions, so that the library works without it.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

import numpy as np

from pyallocx.plot import _COLOURS, _new_axes, _save, _set_headline, _set_scale, _tick_text
from pyallocx.units import counted, format_bytes, printable

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from pyallocx.timeline import Lifetimes, Sizes, Timeline, Unit
    from pyallocx.trace import Trace

__all__ = ["plot_lifetimes", "plot_timeline", "plot_whole"]

_LIVE, _RATE, _OBJECTS, _BYTES = _COLOURS[0], _COLOURS[2], _COLOURS[0], _COLOURS[1]
_UNITS = {"bytes": "bytes allocated meanwhile", "events": "events", "ns": "time"}


def plot_timeline(
    line: Timeline,
    *,
    ax: Axes | None = None,
    path: str | os.PathLike[str] | None = None,
    title: str | None = None,
) -> Axes:
    """Draw `line`; see `Timeline.plot`, which calls this."""
    if not len(line):
        raise ValueError("the trace has no events, so there is nothing to draw")
    if ax is None:
        ax = _new_axes(path is None)
    xs, label = _along(line)
    # A row is what was since the row before; the first since the beginning.
    edges = np.concatenate(([0.0], xs))
    low = line["least_live_bytes"].astype(np.float64)
    high = line["most_live_bytes"].astype(np.float64)
    band = [_from_start(values) for values in (low, high, line["live_bytes"])]
    ax.fill_between(edges, band[0], band[1], color=_LIVE, alpha=0.35, linewidth=0.8, step="pre")
    ax.plot(edges, band[2], color=_LIVE, linewidth=1.1, drawstyle="steps-pre")
    at = int(high.argmax())
    ax.plot(xs[at], high[at], marker="o", color=_BYTES, markersize=5, zorder=4, clip_on=False)
    ax.set_ylim(0, max(float(high.max()), 1.0) * 1.08)
    _set_ticks(ax)
    ax.set_xlim(0, max(float(xs[-1]), 1e-9))
    ax.set_xlabel(label, fontsize=10)
    ax.set_ylabel("live [bytes requested]", fontsize=10)
    _plain(ax)
    if title is None:
        peak = format_bytes(line.metadata["peak_live_bytes"])
        title = f"live bytes: at most {peak}, after event {line.metadata['peak_event']:,}"
    ax.set_title(title, fontsize=10, loc="left", color="#333333", parse_math=False)
    if path is not None:
        _save(ax, path)
    return ax


def _along(line: Timeline) -> tuple[Any, str]:
    """Return the horizontal values and what they are."""
    if line.metadata["by"] == "event":
        return line["event"].astype(np.float64), "events"
    times = line["time_ns"]
    # The first interval begins one step before its end.
    step = (int(times[-1]) - int(times[0])) / max(len(times) - 1, 1)
    since = (times - times[0]).astype(np.float64) + step
    scale, unit = _time_unit(float(since[-1]))
    return since / scale, f"time [{unit}]"


def _from_start(values: Any) -> Any:
    return np.concatenate((values[:1], values))


def _set_ticks(ax: Axes) -> None:
    """Put ticks at round numbers of a unit of bytes."""
    from matplotlib.ticker import MaxNLocator

    top = ax.get_ylim()[1]
    unit = 1.0
    while top / unit >= 1024:
        unit *= 1024
    ticks = MaxNLocator(5).tick_values(0, top / unit)
    ax.set_yticks([t * unit for t in ticks if 0 <= t * unit <= top])
    ax.yaxis.set_major_formatter(lambda v, _: "0" if v == 0 else format_bytes(v))


def _plain(ax: Axes) -> None:
    from matplotlib.ticker import MaxNLocator

    ax.grid(True, which="major", color="#E3E3E3", linewidth=0.8)
    ax.set_axisbelow(True)
    ax.spines[["top", "right"]].set_visible(False)
    ax.tick_params(labelsize=8.5)
    if ax.get_xlabel() == "events":
        ax.xaxis.set_major_locator(MaxNLocator("auto", integer=True))
        ax.xaxis.set_major_formatter(lambda v, _: _short(v))


def _short(value: float) -> str:
    """Write a count as short as an axis needs."""
    for scale, letter in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if abs(value) >= scale:
            return f"{value / scale:g}{letter}"
    return f"{value:g}"


def plot_lifetimes(
    lives: Lifetimes,
    unit: Unit = "bytes",
    *,
    ax: Axes | None = None,
    path: str | os.PathLike[str] | None = None,
    title: str | None = None,
) -> Axes:
    """Draw `lives`; see `Lifetimes.plot`, which calls this."""
    curves = [
        ("objects", lives.survival(unit, "objects")),
        ("bytes", lives.survival(unit, "bytes")),
    ]
    curves = [(name, (at, left)) for name, (at, left) in curves if len(at)]
    if not curves:
        raise ValueError("nothing died in the trace, so there is no distribution of lifetimes")
    if ax is None:
        ax = _new_axes(path is None)
    lines = []
    for name, (at, left) in curves:
        xs = np.maximum(at.astype(np.float64), 1.0) if unit != "bytes" else at.astype(np.float64)
        lines += ax.plot(
            np.concatenate((xs[:1], xs)),
            np.concatenate(([0.0], 100 * (1 - left))),
            drawstyle="steps-post",
            color=_OBJECTS if name == "objects" else _BYTES,
            linestyle="-" if name == "objects" else "--",
            linewidth=1.5,
            label=f"of {name}",
        )
    every = np.concatenate([at.astype(np.float64) for _, (at, _) in curves])
    _set_scale(ax, "x", every, binary=unit == "bytes")
    ticks = ax.get_xticks()
    if ax.get_xscale() == "symlog" and len(ticks) > 2 and ticks[0] == 0:
        # Nothing and the smallest lifetime are close: their names would run into one another.
        ax.set_xticks(np.delete(ticks, 1))
    if unit == "bytes":
        ax.xaxis.set_major_formatter(lambda v, _: _tick_text("size_bytes", v))
    elif unit == "ns":
        ax.xaxis.set_major_formatter(lambda v, _: _time_text(v))
    else:
        ax.xaxis.set_major_formatter(lambda v, _: _short(v))
    # From end to end: nobody died before the first did, and nobody is known to after the last.
    ends = ax.get_xlim()
    for drawn in lines:
        xs, ys = np.asarray(drawn.get_xdata()), np.asarray(drawn.get_ydata())
        drawn.set_data(
            np.concatenate((ends[:1], xs, ends[1:])), np.concatenate(([0.0], ys, ys[-1:]))
        )
    ax.set_xlim(ends)
    ax.set_ylim(0, 103)
    ax.yaxis.set_major_formatter(lambda v, _: f"{v:g}%")
    ax.set_xlabel(f"lifetime [{_UNITS[unit]}]", fontsize=10)
    ax.set_ylabel("share that died by then", fontsize=10)
    _plain(ax)
    if title is None:
        living = int(np.count_nonzero(lives["censored"]))
        title = f"lifetimes; {living:,} of {counted(len(lives), 'object')} live at the end"
    ax.set_title(title, fontsize=10, loc="left", color="#333333", parse_math=False)
    ax.legend(fontsize=8.5, frameon=False, loc="lower right")
    if path is not None:
        _save(ax, path)
    return ax


def _time_unit(ns: float) -> tuple[float, str]:
    """Return the largest unit of time that is no longer than this."""
    for scale, unit in ((1e9, "s"), (1e6, "ms"), (1e3, "µs")):
        if ns >= scale:
            return scale, unit
    return 1.0, "ns"


def _time_text(ns: float) -> str:
    scale, unit = _time_unit(ns)
    return f"{ns / scale:g} {unit}"


def _plot_sizes(table: Sizes, ax: Axes) -> None:
    """Draw the requests and their bytes by powers of two."""
    sizes = table["size_bytes"]
    groups = np.array([int(size).bit_length() for size in sizes.tolist()], dtype=np.int64)
    requests = (table["allocs"] + table["reallocs"]).astype(np.float64)
    weight = table["allocated_bytes"].astype(np.float64)
    low, high = int(groups.min()), int(groups.max())
    at = np.arange(low, high + 1)
    for offset, name, values, colour in (
        (-0.2, "of requests", requests, _OBJECTS),
        (0.2, "of bytes", weight, _BYTES),
    ):
        sums = np.bincount(groups - low, weights=values, minlength=len(at))
        ax.bar(at + offset, 100 * sums / max(values.sum(), 1.0), 0.4, color=colour, label=name)
    # A name for every so many groups, as there is room.
    every = -(-len(at) // 6)
    ax.set_xticks(at[::every], [_upper(int(g)) for g in at[::every]])
    ax.yaxis.set_major_formatter(lambda v, _: f"{v:g}%")
    ax.set_xlabel("request size below", fontsize=10)
    ax.set_ylabel("share", fontsize=10)
    _plain(ax)
    # Beside the title, where no bar can be; few bars are not to fill the room.
    ax.legend(
        fontsize=8.5, frameon=False, loc="lower right", bbox_to_anchor=(1, 1), ncols=2,
        borderaxespad=0, handlelength=1.2, columnspacing=1.2,
    )  # fmt: skip
    spare = max(5 - len(at), 0) / 2
    ax.set_xlim(low - 0.6 - spare, high + 0.6 + spare)
    ax.set_title(
        f"request sizes: {len(table):,} different"
        if len(table) > 1
        else f"request sizes: all {format_bytes(int(sizes[0]))}",
        fontsize=10, loc="left", color="#333333", parse_math=False,
    )  # fmt: skip


def _upper(group: int) -> str:
    return format_bytes(1 << group)


def _plot_rate(line: Timeline, ax: Axes) -> None:
    """Draw how fast the program allocated."""
    from matplotlib.ticker import MaxNLocator

    xs, label = _along(line)
    if "allocs_per_second" in line and not np.isnan(line["allocs_per_second"]).all():
        rate, what = line["allocs_per_second"], "allocs / s"
    else:
        counts = np.diff(np.concatenate(([0], line["event"]))).astype(np.float64)
        rate, what = 100 * line["allocs"] / np.maximum(counts, 1.0), "allocs [%]"
    edges = np.concatenate(([0.0], xs))
    ax.plot(edges, _from_start(rate), color=_RATE, linewidth=0.9, drawstyle="steps-pre")
    ax.set_ylim(bottom=0)
    ax.set_ylabel(what, fontsize=9)
    ax.set_xlabel(label, fontsize=10)
    _plain(ax)
    ax.yaxis.set_major_formatter(lambda v, _: _short(v))
    ax.yaxis.set_major_locator(MaxNLocator(3))


def _say(ax: Axes, title: str, words: str) -> None:
    """Say why there is nothing to draw."""
    ax.set_axis_off()
    ax.set_title(title, fontsize=10, loc="left", color="#333333", parse_math=False)
    ax.text(0.5, 0.5, words, ha="center", va="center", color="#555555", transform=ax.transAxes)


def plot_whole(
    trace: Trace, *, name: str = "", path: str | os.PathLike[str] | None = None
) -> Figure:
    """Draw `trace`; see `pyallocx.timeline.plot_trace`, which calls this."""
    from pyallocx.timeline import lifetimes, sizes, timeline

    if not len(trace):
        raise ValueError("the trace has no events, so there is nothing to draw")
    size = (10.0, 8.0)
    if path is None:
        # Only pyplot figures show themselves in notebooks and by plt.show().
        import matplotlib.pyplot as plt

        figure = plt.figure(figsize=size, layout="constrained")
    else:
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure

        figure = Figure(figsize=size, layout="constrained")
        FigureCanvasAgg(figure)
    grid = figure.add_gridspec(3, 2, height_ratios=(3, 1, 3))
    timed = trace.time_ns is not None and int(trace.time_ns[-1]) > int(trace.time_ns[0])
    line = timeline(trace, 600, "time" if timed else "event", progress=False)
    above = figure.add_subplot(grid[0, :])
    plot_timeline(line, ax=above)
    below = figure.add_subplot(grid[1, :], sharex=above)
    _plot_rate(line, below)
    above.set_xlabel("")
    above.tick_params(labelbottom=False)
    table, lives = sizes(trace), lifetimes(trace)
    left, right = (figure.add_subplot(grid[2, column]) for column in (0, 1))
    if len(table):
        _plot_sizes(table, left)
    else:
        _say(left, "request sizes", "nothing was allocated")
    if not lives["censored"].all():
        plot_lifetimes(lives, ax=right)
    else:
        number = counted(len(lives), "object")
        verb = "lives" if len(lives) == 1 else "live"
        words = f"nothing died: {number} {verb} at the end" if len(lives) else "nothing lived"
        _say(right, "lifetimes", words)
    shown = printable(name) or "trace"
    _set_headline(
        figure,
        f"{shown}: {counted(len(trace), 'event')}, {counted(trace.n_objects, 'object')}",
    )
    if path is not None:
        _save(above, path)
    return figure
