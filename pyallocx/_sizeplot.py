"""The pictures of size classes: wastage over their number, and presets side by side."""

from __future__ import annotations

import math
import os
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from pyallocx.plot import (
    _COLOURS,
    _GREY,
    _MARKERS,
    _Labels,
    _new_axes,
    _save,
    _set_scale,
    _tick_text,
    _Wanted,
)
from pyallocx.units import counted, format_bytes, format_percent, printable

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from pyallocx.fit import Fit
    from pyallocx.league import League, Rival
    from pyallocx.table import SweepResult

__all__ = ["plot_fit", "plot_league"]

_RED = "#B00020"
# The curve begins at this part of the table's classes.
_FEWER = 4
# Presets with more are no size classes, and far to the right.
_MOST_CLASSES = 512


def _shown(rivals: Sequence[Rival]) -> list[Rival]:
    """Leave out lists that are no classes, and of scudo what has a newer version here."""
    names = {one.name for one in rivals}

    def old(name: str) -> bool:
        stem, _, version = name.rpartition("-")
        return version in ("2020", "14") and f"{stem}-19" in names

    return [one for one in rivals if one.classes <= _MOST_CLASSES and not old(one.name)]


def _joined(names: Iterable[str]) -> str:
    """Name tables that are one: the versions of an allocator by its name once."""
    names = list(names)
    stems: dict[str, list[str]] = {}
    for name in names:
        stem, _, version = name.rpartition("-")
        stems.setdefault(stem if version.isdigit() else name, []).append(version)
    words = [
        stem if stem in names else f"{stem}-{', '.join(versions)}"
        for stem, versions in stems.items()
    ]
    return ", ".join(words[:3]) + (f" and {len(words) - 3} more" if len(words) > 3 else "")


def plot_fit(
    fitted: Fit,
    curve: SweepResult,
    rivals: Sequence[Rival],
    *,
    ax: Axes | None = None,
    path: str | os.PathLike[str] | None = None,
    title: str | None = None,
) -> Axes:
    """Draw the least wastage for each number of classes, the table, and presets beside it.

    Parameters
    ----------
    fitted : Fit
        The table that is marked.
    curve : SweepResult
        As of `Fit.curve`.
    rivals : sequence of Rival
        Points; see `pyallocx.league.rivals`.
    ax, path, title
        As of `Profile.plot`.
    """
    if ax is None:
        ax = _new_axes(path is None)
    ks, wasted = curve._numbers("classes"), curve._numbers("wastage_bytes")
    k, cost = float(len(fitted.classes)), float(fitted.wastage_bytes)
    floor = float(fitted.floor_bytes)
    points: dict[tuple[float, float], list[str]] = {}
    for one in _shown(rivals):
        points.setdefault((float(one.classes), float(one.wastage_bytes)), []).append(one.name)
    # What has far fewer classes than the table would push all that matters together.
    near = ks >= k / _FEWER
    ks, wasted = ks[near], wasted[near]
    xs = np.array([*ks, k, *(x for x, _ in points)])
    ys = np.array([*wasted, cost, *(y for _, y in points), *([floor] if floor else [])])
    _set_scale(ax, "x", xs, binary=True)
    _set_scale(ax, "y", ys, binary=True)
    ax.xaxis.set_major_formatter(lambda v, _: f"{v:,.0f}")
    ax.yaxis.set_major_formatter(lambda v, _: _tick_text("wastage_bytes", v))
    ax.set_xlim(xs.min() / 1.15, xs.max() * 1.3)
    low = ys[ys > 0].min() if (ys > 0).any() else 1.0
    ax.set_ylim(0 if ys.min() <= 0 else low / 1.5, max(ys.max(), 1.0) * 1.6)
    below = None
    if floor:
        ax.axhline(floor, color="#999999", linewidth=1, linestyle="--", zorder=1)
        # On the left, where there are the fewest allocators.
        below = ax.annotate(
            f"under these constraints at least {format_bytes(floor)}, with any number of classes",
            (0, floor),
            xycoords=("axes fraction", "data"),
            xytext=(4, -3),
            textcoords="offset points",
            ha="left",
            va="top",
            fontsize=8,
            color=_GREY,
        )
    ax.plot(
        ks,
        wasted,
        color=_COLOURS[0],
        linewidth=2,
        marker="o" if len(ks) == 1 else "",
        zorder=3,
        label="least possible under these constraints",
    )
    if points:
        ax.plot(
            *zip(*points, strict=True),
            color=_COLOURS[1],
            marker="s",
            markersize=5,
            linestyle="none",
            zorder=4,
            label=f"allocators (of up to {_MOST_CLASSES} classes)",
        )
    ax.plot(
        [k],
        [cost],
        color=_RED,
        marker="o",
        markersize=11,
        markerfacecolor="none",
        markeredgewidth=2,
        linestyle="none",
        zorder=5,
        label="this table",
    )
    ax.set_xlabel("size classes", fontsize=10)
    ax.set_ylabel("wastage [bytes]", fontsize=10)
    ax.grid(True, which="major", color="#E3E3E3", linewidth=0.8)
    ax.set_axisbelow(True)
    ax.spines[["top", "right"]].set_visible(False)
    table = fitted.table
    requests = (
        f"{counted(round(table.requests), 'request')} of {format_bytes(table.requested_bytes)}"
    )
    # Where no bytes are asked for, there is nothing to have a percentage of.
    wasted_share = (
        format_bytes(cost)
        if math.isnan(table.percent)
        else f"{format_percent(table.percent)} of what is asked for"
    )
    verb = "wastes" if len(fitted.classes) == 1 else "waste"
    lines = [
        title or f"{counted(len(fitted.classes), 'size class')} {verb} {wasted_share}",
        f"{requests}"
        + (
            f"; {counted(round(fitted.excluded_count), 'larger one')} left out"
            if fitted.excluded_count
            else ""
        ),
    ]
    ax.set_title("\n".join(lines), fontsize=10, loc="left", color="#333333", parse_math=False)
    ax.legend(fontsize=8.5, frameon=False, loc="upper right")
    wanted = [_Wanted(k, cost, f"{len(fitted.classes)}: {format_bytes(cost)}", _RED, True)]
    wanted += [
        _Wanted(x, y, _joined(names), _COLOURS[1], False)
        for (x, y), names in sorted(points.items(), key=lambda item: item[0][1])
    ]
    places = np.array([(k, cost), *points])
    labels = _Labels(ax, places, [np.column_stack([ks, wasted])])
    if below is not None:
        labels.keep_clear(below)
    labels.place(wanted)
    if path is not None:
        _save(ax, path)
    return ax


def plot_league(
    league: League,
    *,
    ax: Axes | None = None,
    path: str | os.PathLike[str] | None = None,
    title: str | None = None,
) -> Axes:
    """Draw `league`; see `League.plot`, which calls this."""
    from matplotlib.ticker import FixedLocator

    # Tables that waste the same are one line.
    same: dict[tuple[Any, ...], list[str]] = {}
    for row in league.rows:
        same.setdefault((row.classes, row.percents, row.complete), []).append(row.name)
    own = ax is None
    if ax is None:
        ax = _new_axes(path is None)
    figure = ax.get_figure(root=True)
    if own and figure is not None:
        figure.set_size_inches(8.4, 1.9 + 0.27 * max(len(same), 6), forward=True)
    values = np.array([percents for _, percents, _ in same])
    _set_scale(ax, "x", values.reshape(-1), binary=False)
    low, high = float(values.min()), float(values.max())
    if ax.get_xscale() == "symlog":
        ax.set_xlim(0 if low <= 0 else low / 1.3, high * 1.3)
    else:
        ax.set_xlim(0, high * 1.08 or 1)
    ax.xaxis.set_major_formatter(lambda v, _: f"{v:g}%")
    for y, (_, percents, complete) in enumerate(same):
        ax.plot(
            [min(percents), max(percents)],
            [y, y],
            color="#CCCCCC",
            linewidth=2.5,
            zorder=1,
            linestyle="-" if complete else ":",
        )
    for i, program in enumerate(league.programs):
        ax.plot(
            values[:, i],
            np.arange(len(same)),
            color=_COLOURS[i % len(_COLOURS)],
            marker=_MARKERS[i % len(_MARKERS)],
            markersize=6.5,
            markerfacecolor="white" if i // len(_COLOURS) % 2 else _COLOURS[i % len(_COLOURS)],
            linestyle="none",
            zorder=3,
            label=printable(program).replace("$", r"\$"),
        )
    best = [
        int(np.argmin(np.where([c for _, _, c in same], values[:, i], np.inf)))
        for i in range(len(league.programs))
    ]
    ax.plot(
        [values[row, i] for i, row in enumerate(best)],
        best,
        color=_RED,
        marker="o",
        markersize=12,
        markerfacecolor="none",
        linestyle="none",
        zorder=2,
        label="best of a program",
    )
    ax.yaxis.set_major_locator(FixedLocator(range(len(same))))
    ax.set_yticklabels(
        [
            f"{_joined(names)}{'' if complete else ' (not all requests)'}  {k}"
            for (k, _, complete), names in same.items()
        ],
        fontsize=8.5,
        parse_math=False,
    )
    ax.set_ylim(len(same) - 0.4, -0.6)
    ax.set_xlabel("wastage [% of the requested bytes]", fontsize=10)
    ax.grid(True, axis="x", which="major", color="#E3E3E3", linewidth=0.8)
    ax.set_axisbelow(True)
    ax.spines[["top", "right", "left"]].set_visible(False)
    ax.tick_params(axis="y", length=0)
    lines = [
        title or "What the size classes of allocators waste",
        f"requests up to {format_bytes(league.limit_bytes)}; after each name the number of its "
        "classes up to there",
    ]
    ax.set_title("\n".join(lines), fontsize=10, loc="left", color="#333333", parse_math=False)
    ax.legend(
        fontsize=8.5,
        frameon=False,
        loc="upper left",
        bbox_to_anchor=(0, -0.55 / (0.27 * max(len(same), 6))),
        ncols=3,
    )
    if path is not None:
        _save(ax, path)
    return ax
