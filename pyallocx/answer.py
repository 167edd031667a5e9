"""What a sweep says, in words: which cells matter, and what each saves and costs."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from pyallocx.table import SweepResult
from pyallocx.units import column_unit, format_bytes, format_count

__all__ = ["Tradeoff", "cell_name", "column_label", "explain", "format_value", "tradeoffs"]


@dataclass(frozen=True)
class Tradeoff:
    """One noteworthy cell against the cell with the most churn in the same surroundings.

    Attributes
    ----------
    index : int
        Row of the result.
    base : int
        Row that it is compared with.
    name : str
        Why it is noteworthy: ``"knee"``, the name of a landmark, or ``"least churn"``.
    saved : float
        Calls saved, as a fraction of the calls of the baseline.
    paid : float
        Wastage added, in the unit of `x`.
    """

    index: int
    base: int
    name: str
    saved: float
    paid: float


def format_value(column: str, value: object, infinity: str = "inf") -> str:
    """Write a value with the unit its column's name states."""
    if value is None or (isinstance(value, float) and math.isnan(value)):
        return "-"
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return str(value)
    if column_unit(column) == "bytes":
        return format_bytes(value, infinity)
    text = format_count(value, infinity)
    return f"{text} ns" if column_unit(column) == "ns" else text


def column_label(result: SweepResult, column: str) -> str:
    """Return the words for a column: the system's own, else its name without the unit."""
    words: str = result.metadata.get("labels", {}).get(column) or " ".join(
        word for word in column.split("_") if word not in ("bytes", "ns")
    )
    return words


def churn_noun(result: SweepResult, column: str) -> str:
    """Return what there are fewer of: "calls" where the column counts all of them."""
    return "calls" if column.split("_")[-1] == "calls" else column_label(result, column)


def cell_name(result: SweepResult, index: int, infinity: str = "inf") -> str:
    """Return what tells a row from the others: ``retain_bytes 2 KiB, policy age``."""
    row = result[index]
    return ", ".join(
        f"{key} {format_value(key, row[key], infinity)}" for key in telling_keys(result, index)
    )


def short_name(result: SweepResult, index: int, infinity: str = "inf") -> str:
    """Return `cell_name`, without the name of the key where only one could be meant."""
    keys = telling_keys(result, index)
    if len(keys) > 1 or len(varied_keys(result)) > 1:
        return cell_name(result, index, infinity)
    return " ".join(format_value(key, result[index][key], infinity) for key in keys)


def varied_keys(result: SweepResult) -> list[str]:
    """Return the keys of the grid that have more than one value in the table."""
    return [k for k in result.grid_keys if len(set(map(str, result._columns[k]))) > 1]


def telling_keys(result: SweepResult, index: int) -> list[str]:
    """Return the varied keys of a row that its grid names; if there is none, all of them."""
    row = result[index]
    named = [k for k in result.grid_keys if row[k] is not None] or list(result.grid_keys)
    varied = varied_keys(result)
    return [k for k in named if k in varied] or named


def find_cell(result: SweepResult, where: Mapping[str, Any]) -> int | None:
    """Return the first measured row whose parameters have these values; defaults count."""
    for index, row in enumerate(result):
        known = parameters_of(result, index)
        if row.get("status", "ok") == "ok" and all(known.get(k) == v for k, v in where.items()):
            return index
    return None


def parameters_of(result: SweepResult, index: int) -> dict[str, Any]:
    """Return the parameters of a row; those that its grid does not name have their defaults."""
    row = {key: result._columns[key][index] for key in result.grid_keys}
    named = {key: value for key, value in row.items() if value is not None}
    fixed: dict[str, Any] = result._metadata.get("fixed", {})
    return fixed | named


def _surroundings(result: SweepResult, index: int) -> list[Any]:
    known = parameters_of(result, index)
    return [known.get(key) for key in result._metadata.get("context", ())]


def noteworthy(result: SweepResult, x: str, y: str) -> list[tuple[int, str]]:
    """Return rows worth a mark, and why: the knee, then the landmarks in the grid.

    A front of two points bends nowhere, so it has no knee to mark; one of a single point, where
    others were measured that are worse, is the best cell.
    """
    marks: dict[int, str] = {}
    xs, ys = result._numbers(x).tolist(), result._numbers(y).tolist()
    points = {(xs[i], ys[i]) for i in result._front(x, y) if math.isfinite(xs[i] + ys[i])}
    measured = {(xs[i], ys[i]) for i in result._ok_indices() if math.isfinite(xs[i] + ys[i])}
    if points and len(points) != 2 and len(measured) > 1:
        marks[result._knee_index(x, y)] = "knee" if len(points) > 2 else "best"
    for where, name in result.metadata.get("landmarks", []):
        index = find_cell(result, where)
        if index is not None:
            marks[index] = f"{marks[index]}, {name}" if index in marks else name
    return list(marks.items())


def baseline(result: SweepResult, x: str, y: str, like: int) -> int | None:
    """Return the row that a row is compared with: of the same surroundings, with the most churn.

    Of several, the one with the least wastage. Cells with other chunks or other pointers, say, are
    another question: see `SweepSystem` on ``context``.
    """
    xs, ys = result[x], result[y]
    around = _surroundings(result, like)
    usable = [
        i
        for i in result._ok_indices()
        if math.isfinite(xs[i]) and math.isfinite(ys[i]) and _surroundings(result, i) == around
    ]
    return min(usable, key=lambda i: (-ys[i], xs[i], i), default=None)


def tradeoffs(result: SweepResult, x: str | None = None, y: str | None = None) -> list[Tradeoff]:
    """Compare the knee and the landmarks with the cell of the most churn in their surroundings.

    Parameters
    ----------
    result : SweepResult
        A sweep.
    x, y : str, optional
        Wastage and churn; by default the system's.

    Returns
    -------
    list of Tradeoff
        The baseline itself is left out. Without any other noteworthy cell, the one with the least
        churn. Empty if nothing was measured or no cell saves anything.
    """
    x, y = x or result.x, y or result.y

    def compare(index: int, name: str) -> list[Tradeoff]:
        start = baseline(result, x, y, index)
        if start is None:
            return []
        row, base = result[index], result[start]
        if base[y] <= 0 or not row[y] < base[y] or not math.isfinite(row[x]):
            return []
        return [Tradeoff(index, start, name, (base[y] - row[y]) / base[y], row[x] - base[x])]

    found = [trade for mark in noteworthy(result, x, y) for trade in compare(*mark)]
    return found or [
        trade for index in result._front(x, y)[-1:] for trade in compare(index, "least churn")
    ]


def explain(result: SweepResult, x: str | None = None, y: str | None = None) -> list[str]:
    """Return one plain sentence per trade-off.

    Examples
    --------
    >>> res = SweepResult(
    ...     {"keep_bytes": [0, 256, 4096], "waste_bytes": [0, 900, 9000], "calls": [5000, 40, 30]},
    ...     grid_keys=["keep_bytes"], system="demo", x="waste_bytes", y="calls",
    ... )
    >>> print(explain(res)[0])
    keep_bytes 256 B (knee): 99.2 % fewer calls than keep_bytes 0 B (5,000 -> 40), +900 B of waste.
    """
    x, y = x or result.x, y or result.y
    if not len(result.ok):
        return []
    for column in (x, y):
        if np.isnan(result._numbers(column)[result._ok_indices()]).all():
            why = (
                "the trace has no times" if column_unit(column) == "ns" else "no axis to compare by"
            )
            return [f"No cell has a number in {column}: {why}."]
    found = tradeoffs(result, x, y)
    if not found:
        return _nothing_saved(result, x, y)
    sentences = []
    for trade in found:
        row, base = result[trade.index], result[trade.base]
        before, after = (format_value(y, r[y]) for r in (base, row))
        sentences.append(
            f"{cell_name(result, trade.index)} ({trade.name}): {percent(trade.saved)} fewer "
            f"{churn_noun(result, y)} than {cell_name(result, trade.base)} "
            f"({before} -> {after}), {_price(result, x, trade.paid)}."
        )
    return sentences


def marked(result: SweepResult, x: str, y: str) -> list[tuple[int, str]]:
    """Return `noteworthy`, and what `explain` compares where nothing is."""
    marks = dict(noteworthy(result, x, y))
    for trade in tradeoffs(result, x, y):
        marks.setdefault(trade.index, trade.name)
    return list(marks.items())


def _nothing_saved(result: SweepResult, x: str, y: str) -> list[str]:
    rows = [result[i] for i in result._ok_indices()]
    best = [i for i, name in noteworthy(result, x, y) if name.startswith("best")]
    if best:
        wastage = format_value(x, result[best[0]][x])
        return [
            f"{cell_name(result, best[0])} (best): no cell has fewer {churn_noun(result, y)} "
            f"({format_value(y, result[best[0]][y])}), and of those with as few it has the least "
            f"{column_label(result, x)} ({wastage})."
        ]
    if len(rows) > 1 and len({(str(row[x]), str(row[y])) for row in rows}) == 1:
        return [
            f"All {len(rows):,} measured cells are the same: {format_value(y, rows[0][y])} "
            f"{churn_noun(result, y)}, {format_value(x, rows[0][x])} of {column_label(result, x)}."
        ]
    return ["No measured cell saves anything over another."]


def _price(result: SweepResult, x: str, paid: float) -> str:
    if paid < 0:
        return f"and {format_value(x, -paid)} less of {column_label(result, x)}"
    return f"{signed(x, paid)} of {column_label(result, x)}"


def percent(fraction: float) -> str:
    """Write a fraction as a percentage that is 100 only if it is all."""
    value = 100 * fraction
    if value in (0, 100) or 1 <= value <= 99:
        return f"{value:.0f} %"
    for digits in (1, 2):
        text = f"{value:.{digits}f}"
        if float(text) not in (0, 100):
            return f"{text} %"
    return "under 0.01 %" if value < 1 else "over 99.99 %"


def signed(column: str, value: float) -> str:
    """Write a difference with its sign and unit."""
    text = format_value(column, value)
    return text if text.startswith("-") else "+" + text
