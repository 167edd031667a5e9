"""The picture of a sweep: what is wasted against what is called, one point per cell.

matplotlib is imported inside the functions, so that the library works without it.
"""

from __future__ import annotations

import itertools
import math
import os
import re
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from pyallocx.answer import (
    churn_noun,
    column_label,
    format_value,
    marked,
    percent,
    short_name,
    signed,
    telling_keys,
    tradeoffs,
    varied_keys,
)
from pyallocx.table import SweepResult
from pyallocx.units import column_unit, format_bytes, printable

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.transforms import Bbox

__all__ = ["picture_format", "plot_curves", "plot_sweep"]

# Colours that differ for colour-blind readers (Okabe and Ito 2008), and a marker each for print.
_COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#56B4E9", "#E69F00", "#000000", "#8C6D1F")
_MARKERS = ("o", "s", "^", "D", "v", "P", "X", "*")
_GREY = "#666666"
_MARK_COLOUR = {"knee": "#B00020", "best": "#B00020"}
_LANDMARK_COLOUR = "#7A3E9D"
_CALL_WORDS = {"calls", "mallocs", "reallocs", "frees", "maps", "unmaps", "protects"}
# An axis is logarithmic when its largest value is at least this many times its smallest positive.
_LOG_SPAN = 8
# Characters of a line of the subtitle.
_TITLE_WIDTH = 118
# Of cells on one point, no more than this are named.
_NAMES_SHOWN = 4
# With more cells than this, a label that finds no room next to its point is left out.
_CROWD = 24


@dataclass
class _Series:
    """Cells that differ only in the key whose value labels them."""

    name: str
    key: str | None
    joined: bool
    rows: list[int] = field(default_factory=list)


def plot_sweep(
    result: SweepResult,
    x: str,
    y: str,
    *,
    ax: Axes | None = None,
    mark: Mapping[Any, str] | None = None,
    path: str | os.PathLike[str] | None = None,
    title: str | None = None,
) -> Axes:
    """Draw `result`; see `SweepResult.plot`, which calls this."""
    xs, ys = result._numbers(x), result._numbers(y)
    drawn = [i for i in result._ok_indices() if math.isfinite(xs[i]) and math.isfinite(ys[i])]
    if not drawn:
        raise ValueError(f"no measured row has finite numbers in {x!r} and {y!r}")
    own_figure = ax is None
    if ax is None:
        ax = _new_axes(path is None)
    series = _split(result, drawn)

    _set_scale(ax, "x", xs[drawn], binary=column_unit(x) == "bytes")
    _set_scale(ax, "y", ys[drawn], binary=column_unit(y) == "bytes")
    ax.xaxis.set_major_formatter(lambda v, _: _tick_text(x, v))
    ax.yaxis.set_major_formatter(lambda v, _: _tick_text(y, v))
    ax.set_xlabel(_axis_label(result, x), fontsize=10)
    ax.set_ylabel(_axis_label(result, y), fontsize=10)
    ax.grid(True, which="major", color="#E3E3E3", linewidth=0.8)
    ax.set_axisbelow(True)
    ax.spines[["top", "right"]].set_visible(False)

    front = result._front(x, y)
    if len(front) > 1:
        ax.plot(
            xs[front],
            ys[front],
            color="#BBBBBB",
            linewidth=5,
            alpha=0.5,
            zorder=1,
            solid_joinstyle="round",
            label="Pareto front",
        )
    for number, one in enumerate(series):
        ax.plot(
            xs[one.rows],
            ys[one.rows],
            **_style(number, joined=one.joined),
            linewidth=1.1,
            zorder=3,
            label=_legend_name(one, xs, ys) if len(series) > 1 else one.name,
        )
    marks = marked(result, x, y)
    if mark:
        keys = {i: one.key for one in series for i in one.rows}
        values = {i: result._columns[key][i] for i, key in keys.items() if key}
        marks += [
            (i, name) for i in drawn for value, name in mark.items() if values.get(i) == value
        ]
    names: dict[int, str] = {}
    for index, name in marks:
        names[index] = f"{names[index]}, {name}" if index in names else name
    for index, name in names.items():
        ax.plot(
            xs[index],
            ys[index],
            marker="o",
            markersize=14,
            markerfacecolor="none",
            markeredgewidth=2,
            markeredgecolor=_mark_colour(name),
            linestyle="none",
            zorder=4,
        )
    _set_titles(ax, result, title, _answers(result, x, y))
    if len(series) > 1 or (own_figure and len(front) > 1):
        ax.legend(fontsize=8.5, frameon=False, loc="best")
    if own_figure:
        ax.margins(0.09, 0.1)
    lines = [np.column_stack([xs[one.rows], ys[one.rows]]) for one in series if one.joined]
    _Labels(ax, np.column_stack([xs[drawn], ys[drawn]]), lines).place(
        _wanted_labels(result, series, xs, ys, names)
    )
    if path is not None:
        _save(ax, path)
    return ax


def plot_curves(
    result: SweepResult,
    key: str,
    columns: Sequence[str],
    *,
    ax: Axes | None = None,
    path: str | os.PathLike[str] | None = None,
    title: str | None = None,
) -> Axes:
    """Draw `columns` over one grid key; see `SweepResult.plot_against`, which calls this."""
    from matplotlib.ticker import FixedLocator, NullLocator

    if key not in result.grid_keys:
        raise ValueError(f"{key!r} was not swept; swept were {', '.join(result.grid_keys)}")
    columns = tuple(dict.fromkeys(columns))
    units = {column_unit(column) for column in columns}
    if len(units) > 1:
        raise ValueError(f"one axis holds one unit; {', '.join(columns)} have several")
    xs = result._numbers(key)
    ys = {column: result._numbers(column) for column in columns}
    drawn = [
        i
        for i in result._ok_indices()
        if math.isfinite(xs[i]) and all(math.isfinite(values[i]) for values in ys.values())
    ]
    if not drawn:
        raise ValueError(f"no measured row has finite numbers in {key!r} and {', '.join(columns)}")
    if ax is None:
        ax = _new_axes(path is None)
    every = np.concatenate([values[drawn] for values in ys.values()])
    _set_scale(ax, "x", xs[drawn], binary=column_unit(key) == "bytes")
    _set_scale(ax, "y", every, binary=units == {"bytes"})
    values = sorted(set(xs[drawn].tolist()))
    if len(values) <= 12:
        # Few enough to name them, or every so many of them where the axis is short.
        step = math.ceil(len(values) * 70 / (ax.get_window_extent().width * 100 / ax.figure.dpi))
        ax.xaxis.set_major_locator(FixedLocator(values[::step]))
        ax.xaxis.set_minor_locator(NullLocator())
    ax.xaxis.set_major_formatter(lambda v, _: _tick_text(key, v))
    ax.yaxis.set_major_formatter(lambda v, _: _tick_text(columns[0], v))
    ax.set_xlabel(_axis_label(result, key), fontsize=10)
    names = [_axis_label(result, column) for column in columns]
    ax.set_ylabel(names[0] if len(columns) == 1 else "", fontsize=10)
    ax.grid(True, which="major", color="#E3E3E3", linewidth=0.8)
    ax.set_axisbelow(True)
    ax.spines[["top", "right"]].set_visible(False)
    parts = _combinations(result, drawn, key)
    number = 0
    for part, rows in parts.items():
        rows.sort(key=xs.__getitem__)
        for name, heights in zip(names, ys.values(), strict=True):
            label = ", ".join([*([name] if len(columns) > 1 else []), *([part] if part else [])])
            ax.plot(
                xs[rows],
                heights[rows],
                **_style(number),
                linewidth=1.3,
                label=label or names[0],
            )
            number += 1
    _set_titles(ax, result, title, [])
    if number > 1:
        ax.legend(fontsize=8.5, frameon=False, loc="best")
    if path is not None:
        _save(ax, path)
    return ax


def _style(number: int, *, joined: bool = True) -> dict[str, Any]:
    """Colour, marker and line of a series; those past the last colour are hollow and dashed."""
    again = number // len(_COLOURS) % 2 == 1
    return {
        "color": _COLOURS[number % len(_COLOURS)],
        "marker": _MARKERS[number % len(_MARKERS)],
        "markersize": 6,
        "markerfacecolor": "white" if again else _COLOURS[number % len(_COLOURS)],
        "linestyle": "none" if not joined else "--" if again else "-",
    }


def _combinations(result: SweepResult, drawn: Sequence[int], key: str) -> dict[str, list[int]]:
    """Group rows by what their other varied grid keys say, in words."""
    columns = {k: result._columns[k] for k in result.grid_keys if k != key}
    varied = [k for k, values in columns.items() if len({str(values[i]) for i in drawn}) > 1]
    parts: dict[str, list[int]] = {}
    for i in drawn:
        words = [
            value if isinstance(value, str) else f"{k} {format_value(k, value, '∞')}"
            for k in varied
            if (value := columns[k][i]) is not None
        ]
        parts.setdefault(", ".join(words), []).append(i)
    return parts


def _new_axes(interactive: bool) -> Axes:
    size = (8.4, 5.4)
    if interactive:
        # Only pyplot figures show themselves in notebooks and by plt.show().
        import matplotlib.pyplot as plt

        return plt.figure(figsize=size, layout="constrained").add_subplot()
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=size, layout="constrained")
    FigureCanvasAgg(figure)
    return figure.add_subplot()


def picture_format(path: str | os.PathLike[str]) -> str:
    """Return the picture format that the suffix of `path` names; png without one.

    Raises
    ------
    ImportError
        If matplotlib is not installed.
    ValueError
        If matplotlib cannot write it.
    """
    from matplotlib.backends.backend_agg import FigureCanvasAgg

    suffix = os.path.splitext(path)[1].lstrip(".").lower() or "png"
    supported = FigureCanvasAgg.get_supported_filetypes()
    if suffix not in supported:
        raise ValueError(f"no picture format {suffix!r}; there are {', '.join(sorted(supported))}")
    return suffix


def _save(ax: Axes, path: str | os.PathLike[str]) -> None:
    from pyallocx._files import write_atomically

    suffix = picture_format(path)
    figure = ax.get_figure(root=True)
    assert figure is not None
    write_atomically(path, lambda stream: figure.savefig(stream, format=suffix, dpi=150))


def _split(result: SweepResult, drawn: Sequence[int]) -> list[_Series]:
    """Choose the key whose values label the points; each combination of the others is a series.

    Cells of grids with different parameters are kept apart, so that each policy's points are
    labelled by what its own grid varies.
    """
    columns = {key: result._columns[key] for key in result.grid_keys}
    numeric = [key for key in columns if result[key].dtype.kind in "if"]
    grids: dict[tuple[str, ...], list[int]] = {}
    for i in drawn:
        # A key of numbers that is None here belongs to another grid.
        named = tuple(k for k in columns if k not in numeric or columns[k][i] is not None)
        grids.setdefault(named, []).append(i)
    if len(grids) == 1:
        grids = {tuple(columns): list(drawn)}
    varied = {k for k in columns if len({str(columns[k][i]) for i in drawn}) > 1}
    series: list[_Series] = []
    for named, rows in grids.items():
        distinct = {key: len({str(columns[key][i]) for i in rows}) for key in named}
        # A single cell is labelled by its first key; otherwise the longest numeric list wins.
        candidates = [key for key in named if key in numeric and distinct[key] > 1]
        candidates = candidates or [key for key in named if key in varied] or list(named)
        label_key = max(candidates, key=lambda key: distinct[key], default=None)
        labels: Sequence[Any] = columns[label_key] if label_key is not None else ()
        joined = label_key in numeric and len({str(labels[i]) for i in rows}) > 1
        # Beside other grids, a point without a line needs its whole name in the legend.
        whole = len(grids) > 1 and not joined
        others = [key for key in named if key in varied and (whole or key != label_key)]
        parts: dict[str, _Series] = {}
        for i in rows:
            name = ", ".join(
                str(columns[key][i])
                if isinstance(columns[key][i], str)
                else f"{key} {format_value(key, columns[key][i], '∞')}"
                for key in others
            )
            name = name or label_key or result.system
            parts.setdefault(name, _Series(name, label_key, joined)).rows.append(i)
        if joined:
            for one in parts.values():
                one.rows.sort(key=labels.__getitem__)
        series += parts.values()
    return series


def _legend_name(one: _Series, xs: Any, ys: Any) -> str:
    """Return the name of a series, and what the numbers at its points are."""
    differs = one.joined and len(list(_coincident(one.rows, xs, ys))) > 1
    return f"{one.name}, by {one.key}" if differs else one.name


def _tick_text(column: str, value: float) -> str:
    # Ticks are computed: 3 may come as 2.9999999999999996.
    whole = round(value) if math.isclose(value, round(value), rel_tol=1e-12) else value
    power = math.log10(value) if value >= 10**6 else 0.5
    unit = column_unit(column)
    if unit != "bytes":
        if 0 < abs(value) < 1 and whole == value:
            return f"{value:.3g} {unit}".rstrip()
        return f"$10^{{{int(power)}}}$" if power == int(power) else format_value(column, whole)
    if not _is_short(whole):
        # Whole bytes are exact, since others may be near; a mean is not worth its digits.
        if isinstance(whole, int):
            return f"{whole:,} B"
        return format_bytes(value) if abs(value) >= 1024 else f"{value:.4g} B"
    value = float(whole)
    scale, unit = _byte_unit(value)
    return f"{value / scale:,g} {unit}"


def _byte_unit(value: float) -> tuple[float, str]:
    """Return the largest unit that `value` is at least one of."""
    for power, unit in ((4, "TiB"), (3, "GiB"), (2, "MiB"), (1, "KiB")):
        if abs(value) >= 1024.0**power:
            return 1024.0**power, unit
    return 1.0, "B"


def _is_short(value: float) -> bool:
    """Whether quarters of a unit are enough to write a number of bytes exactly."""
    return (4 * value / _byte_unit(value)[0]).is_integer()


def _set_scale(ax: Axes, which: Literal["x", "y"], values: Any, *, binary: bool) -> None:
    """Choose linear or symmetric-log, with ticks at round numbers of the unit.

    Zero has a place on the symmetric-log axis: one step below the smallest positive value, however
    small that is, so that no empty decades lie between them.
    """
    from matplotlib.ticker import FixedLocator, MaxNLocator, NullLocator

    axis = ax.xaxis if which == "x" else ax.yaxis
    low, high = float(values.min()), float(values.max())
    positive = values[values > 0]
    if low == high:
        axis.set_major_locator(FixedLocator(sorted({0.0, low})))
        ends = sorted((-0.15 * low, 2 * low)) if low else (-0.15, 1)
        (ax.set_xlim if which == "x" else ax.set_ylim)(*ends)
        return
    if low < 0 or not len(positive) or high / float(positive.min()) < _LOG_SPAN:
        steps = [1, 2, 4, 8, 10] if binary else [1, 2, 2.5, 5, 10]
        ticks = _binary_ticks(low, high) if binary and low >= 0 else []
        # In a narrow range, round numbers of KiB are too few: then round numbers of bytes.
        if not all(map(_is_short, ticks)):
            ticks, steps = [], [1, 2, 2.5, 5, 10]
        axis.set_major_locator(
            FixedLocator(ticks) if ticks else MaxNLocator(6, steps=steps, integer=True)
        )
        return
    base = 2 if binary else 10
    first = math.floor(math.log(float(positive.min()), base) + 1e-9)
    last = math.ceil(math.log(high, base) - 1e-9)
    set_scale = ax.set_xscale if which == "x" else ax.set_yscale
    set_scale("symlog", base=base, linthresh=float(base) ** first, linscale=0.6)
    step = max(1, math.ceil((last - first) / 8))
    # Three decades have too few powers to read values from.
    digits = (1, 2, 5) if base == 10 and last - first <= 3 else (1,)
    ticks = [
        digit * float(base) ** power for power in range(first, last + 1, step) for digit in digits
    ]
    axis.set_major_locator(FixedLocator(([0.0] if low == 0 else []) + ticks))
    axis.set_minor_locator(NullLocator())


def _binary_ticks(low: float, high: float) -> list[float]:
    step = 2.0 ** math.ceil(math.log2((high - low) / 6))
    first = math.floor(low / step)
    return [k * step for k in range(first, math.ceil(high / step) + 1)]


def _axis_label(result: SweepResult, column: str) -> str:
    unit = column_unit(column) or ("calls" if _CALL_WORDS & set(column.split("_")) else "count")
    words = column_label(result, column)
    return words if unit in words.split() else f"{words} [{unit}]"


def _set_titles(ax: Axes, result: SweepResult, title: str | None, answers: list[str]) -> None:
    if title is None:
        trace = result.metadata.get("trace")
        title = result.system
        if trace:
            title += f": {printable(trace['name'])}, {trace['events']:,} events"
    figure = ax.get_figure()
    alone = figure is not None and len(figure.axes) == 1
    # A dollar in the name of a trace is no formula.
    lines = answers if alone else [title, *answers]
    ax.set_title("\n".join(lines), fontsize=9, loc="left", color="#333333", parse_math=False)
    if figure is not None and alone:
        _set_headline(figure, title)


def _set_headline(figure: Any, title: str) -> None:
    """Write the title over the picture, in as many lines as its width needs."""
    style = {"fontsize": 12, "fontweight": "bold", "x": 0.02, "ha": "left", "parse_math": False}
    for width in range(max(len(title), 20), 19, -1):
        # A line without a space, such as the name of a file, is broken where it ends.
        text = figure.suptitle("\n".join(textwrap.wrap(title, width)), **style)
        if text.get_window_extent(_renderer(figure)).x1 < 0.99 * figure.bbox.x1:
            return


def _renderer(figure: Any) -> Any:
    from matplotlib.backends.backend_agg import FigureCanvasAgg

    canvas = figure.canvas
    if not hasattr(canvas, "get_renderer"):
        canvas = FigureCanvasAgg(figure)
    return canvas.get_renderer()


def _answers(result: SweepResult, x: str, y: str) -> list[str]:
    return [
        line
        for trade in tradeoffs(result, x, y)
        for line in _wrapped(
            # The axes may be logarithmic; the knee is not that of the drawn curve.
            f"{trade.name.replace('knee', 'knee (of linear scales)', 1)}, "
            f"{short_name(result, trade.index, '∞')}: {percent(trade.saved)} fewer "
            f"{churn_noun(result, y)} than at {short_name(result, trade.base, '∞')}, "
            + (
                f"for {signed(x, trade.paid)}"
                if trade.paid >= 0
                else f"and {format_value(x, -trade.paid)} less"
            )
        )
    ]


def _wrapped(text: str) -> list[str]:
    """Break a line of the subtitle, but not between a number and its unit."""
    tied = re.sub(r"(\d) (?=[BKMGT%n])", "\\1\N{NO-BREAK SPACE}", text)
    lines = textwrap.wrap(tied, _TITLE_WIDTH, subsequent_indent="    ", break_long_words=False)
    return [line.replace("\N{NO-BREAK SPACE}", " ") for line in lines]


def _mark_colour(name: str) -> str:
    return _MARK_COLOUR.get(name.split(",")[0], _LANDMARK_COLOUR)


@dataclass
class _Wanted:
    x: float
    y: float
    text: str
    colour: str
    strong: bool


def _wanted_labels(
    result: SweepResult,
    series: Sequence[_Series],
    xs: Any,
    ys: Any,
    names: Mapping[int, str],
) -> list[_Wanted]:
    """Return one label per distinct point; cells on one point share theirs."""
    wanted = []
    for number, one in enumerate(series):
        colour = _COLOURS[number % len(_COLOURS)]
        for rows in _coincident(one.rows, xs, ys):
            found = [names[i] for i in rows if i in names]
            text = _values_text(result, one, rows) if one.key else ""
            if len(rows) == len(one.rows) > 1:
                # The key makes no difference here.
                text = one.name if len(series) > 1 else f"any {one.key}"
            elif found and one.key:
                # A landmark is one cell: what else lies on its point must not read as its value.
                marked = [index for index in rows if index in names]
                own = max(marked, key=lambda index: _mark_colour(names[index]) == _LANDMARK_COLOUR)
                value = format_value(one.key, result._columns[one.key][own], "∞")
                same = f" (same: {text})" if text != value else ""
                text = _marked_text(result, one.key, own, value) + same
            if found:
                text = f"{', '.join(found)}: {text}" if text else ", ".join(found)
                wanted.append(_Wanted(xs[rows[0]], ys[rows[0]], text, _mark_colour(found[0]), True))
            elif text:
                wanted.append(_Wanted(xs[rows[0]], ys[rows[0]], text, colour, False))
    # The marked ones choose their places first.
    return sorted(wanted, key=lambda label: not label.strong)


def _coincident(rows: Sequence[int], xs: Any, ys: Any) -> Iterator[list[int]]:
    places: dict[tuple[float, float], list[int]] = {}
    for i in rows:
        places.setdefault((float(xs[i]), float(ys[i])), []).append(i)
    yield from places.values()


def _values_text(result: SweepResult, one: _Series, rows: Sequence[int]) -> str:
    """Return the values of cells on one point: a range of numbers, or each of them."""
    assert one.key is not None
    values = result._columns[one.key]
    texts = list(dict.fromkeys(format_value(one.key, values[i], "∞") for i in rows))
    first = one.rows.index(rows[0])
    # The rows of a joined series are in the order of their numbers; a range may leave none out.
    if one.joined and len(texts) > 1 and list(rows) == one.rows[first : first + len(rows)]:
        return f"{texts[0]} … {texts[-1]}"
    if len(texts) > _NAMES_SHOWN:
        texts = [*texts[: _NAMES_SHOWN - 1], f"{len(texts) - _NAMES_SHOWN + 1} more"]
    return (", " if one.joined else " = ").join(texts)


def _marked_text(result: SweepResult, key: str, index: int, values: str) -> str:
    """Return the label of a marked point: with the names of the keys where several vary."""
    keys = telling_keys(result, index)
    if len(varied_keys(result)) < 2 and len(keys) < 2:
        return values
    row = result[index]
    # Words tell what they are; numbers do not.
    return ", ".join(
        row[k]
        if isinstance(row[k], str) and k != key
        else f"{k} {values if k == key else format_value(k, row[k], '∞')}"
        for k in dict.fromkeys([*keys, key])
    )


class _Labels:
    """Puts labels beside points where they cover no point, no other label and no edge."""

    _TURNS = (45, 0, 90, 315, 135, 180, 225, 270, 22, 67, 338, 112, 292)
    _REACH = (9, 14, 22, 34, 50, 70)

    def __init__(self, ax: Axes, points: Any, lines: Sequence[Any]) -> None:
        self._ax = ax
        figure = ax.get_figure(root=True)
        assert figure is not None
        # The layout must be final before anything is measured.
        self._renderer = _renderer(figure)
        figure.draw_without_rendering()
        self._scale = figure.dpi / 72
        self._points = ax.transData.transform(points)
        self._dots = np.vstack(
            [self._points[:0], *(_dotted(ax.transData.transform(line)) for line in lines)]
        )
        self._crowded = len(points) > _CROWD
        self._taken: list[Bbox] = []
        legend = ax.get_legend()
        if legend is not None:
            self._taken.append(legend.get_window_extent(self._renderer))

    def keep_clear(self, text: Any) -> None:
        """Put no label over a text that is there already."""
        self._taken.append(text.get_window_extent(self._renderer))

    def place(self, wanted: Sequence[_Wanted]) -> None:
        from matplotlib.patheffects import withStroke

        for label in wanted:
            text = self._ax.annotate(
                label.text,
                (label.x, label.y),
                xytext=(0, 0),
                textcoords="offset points",
                fontsize=9.5 if label.strong else 8,
                color=label.colour,
                zorder=5,
                fontweight="bold" if label.strong else "normal",
                ha="center",
                va="center",
                parse_math=False,
                path_effects=[withStroke(linewidth=2.5, foreground="white")],
            )
            box = text.get_window_extent(self._renderer)
            place = self._find(label, box.width, box.height)
            if place is None:
                # No room: an unmarked label is left out rather than drawn over another.
                text.remove()
                continue
            (dx, dy), taken, far = place
            text.set_position((dx / self._scale, dy / self._scale))
            if far:
                self._lead(label, dx, dy)
            self._taken.append(taken)

    def _find(
        self, label: _Wanted, width: float, height: float
    ) -> tuple[tuple[float, float], Bbox, bool] | None:
        from matplotlib.transforms import Bbox

        px, py = self._ax.transData.transform((label.x, label.y))
        frame = self._ax.get_window_extent(self._renderer)
        fallback = None
        reaches = self._REACH if label.strong else self._REACH[: 2 if self._crowded else 4]
        # Crossing a line is worse than being further away, but better than no label.
        for reach, clear in [(r, True) for r in reaches] + [(r, False) for r in reaches]:
            # A ring around a marked point needs more air.
            away = (reach + (4 if label.strong else 0)) * self._scale
            for turn in self._TURNS:
                cos, sin = math.cos(math.radians(turn)), math.sin(math.radians(turn))
                dx = cos * away + np.sign(round(cos, 6)) * width / 2
                dy = sin * away + np.sign(round(sin, 6)) * height / 2
                box = Bbox.from_bounds(px + dx - width / 2, py + dy - height / 2, width, height)
                if (
                    box.x0 < frame.x0
                    or box.x1 > frame.x1
                    or not (frame.y0 <= box.y0 and box.y1 <= frame.y1)
                ):
                    continue
                spot = ((dx, dy), box, reach > self._REACH[0])
                fallback = fallback or spot
                if self._free(box) and not (clear and _covers(box, self._dots, 0)):
                    return spot
        return fallback if label.strong else None

    def _free(self, box: Any) -> bool:
        if _covers(box, self._points, 4 * self._scale):
            return False
        return not any(box.overlaps(other) for other in self._taken)

    def _lead(self, label: _Wanted, dx: float, dy: float) -> None:
        self._ax.annotate(
            "",
            (label.x, label.y),
            xytext=(dx / self._scale * 0.75, dy / self._scale * 0.75),
            textcoords="offset points",
            zorder=2,
            arrowprops={"arrowstyle": "-", "color": label.colour, "linewidth": 0.9},
        )


def _covers(box: Any, points: Any, pad: float) -> bool:
    x, y = points[:, 0], points[:, 1]
    inside = (box.x0 - pad < x) & (x < box.x1 + pad) & (box.y0 - pad < y) & (y < box.y1 + pad)
    return bool(inside.any())


def _dotted(corners: Any, step: float = 4) -> Any:
    """Return points every few pixels along a line, by which a label sees that it crosses it."""
    pieces = [corners[:1]]
    for start, end in itertools.pairwise(corners):
        count = max(2, int(np.hypot(*(end - start)) / step))
        pieces.append(np.linspace(start, end, count))
    return np.vstack(pieces)
