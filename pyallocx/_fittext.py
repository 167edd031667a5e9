"""What is read out of a fit: in words, as HTML, as a DataFrame, and how many classes are enough."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from pyallocx._optional import data_frame
from pyallocx._sizes import real
from pyallocx.table import SweepResult
from pyallocx.units import counted, format_bytes, format_count, format_percent

if TYPE_CHECKING:
    from pyallocx.fit import Fit, Wastage

__all__ = ["enough_classes", "frame", "headline", "html", "parts_lines", "proof_text"]


def enough_classes(curve: SweepResult, percent: float = 0.1) -> int:
    """Return from how many classes on one more saves less than a share of the requested bytes.

    Parameters
    ----------
    curve : SweepResult
        As of `Fit.curve`.
    percent : float, default 0.1
        Of the requested bytes, above 0.

    Returns
    -------
    int
        Every class beyond that of the curve saves less.

    Raises
    ------
    ValueError
        If the last class of the curve saves as much and more classes could be had: it is too short.

    Examples
    --------
    >>> from pyallocx import fit
    >>> curve = fit({16: 1000, 32: 500, 48: 10, 64: 1}, 1).curve()
    >>> curve["wastage_percent"].round(2).tolist()
    [197.15, 49.66, 0.49, 0.0]
    >>> enough_classes(curve, 1), enough_classes(curve)
    (3, 4)
    """
    share = real("percent", percent, 0, 1e18)
    if share == 0:
        raise ValueError("percent must be above 0, since every class saves as much as 0")
    if not len(curve) or not {"classes", "wastage_percent"} <= set(curve.columns):
        raise ValueError("not a curve as Fit.curve makes it")
    ks = [row["classes"] for row in curve]
    wasted = [row["wastage_percent"] for row in curve]
    if None in wasted:
        return int(ks[0])  # no bytes are requested, so none are wasted either
    worth = [i for i, (a, b) in enumerate(pairwise(wasted), 1) if a - b >= share]
    last = worth[-1] if worth else 0
    if last == len(ks) - 1 and ks[-1] < curve.metadata.get("most_classes", math.inf):
        raise ValueError(
            f"the curve ends at {ks[-1]} classes, the last of which still saves {share}% or more: "
            "make it longer"
        )
    return int(ks[last])


def headline(cost: Wastage) -> str:
    k = len(cost.rows)
    table = f"{counted(k, 'class')} to {format_bytes(cost.rows[-1].class_bytes)}"
    text = (
        f"{table}: {format_bytes(cost.wastage_bytes)} wasted, {format_percent(cost.percent)} of "
        "requested"
    )
    if cost.excluded_count:
        are = "is larger and has" if cost.excluded_count == 1 else "are larger and have"
        text += (
            f"; {counted(cost.excluded_count, 'request')} of {format_bytes(cost.excluded_bytes)} "
            f"{are} no class"
        )
    return text


def proof_text(result: Fit, took: str = "") -> str:
    """Return in words what is proved of a table, how, and if given what it `took`."""
    if result.proved:
        text = "no table of so many classes wastes less: the lower bound is the same"
        text += "" if result.exact else " up to rounding"
    else:
        text = (
            f"none; the best table wastes at least {format_bytes(result.lower_bound_bytes)}, "
            f"{format_bytes(result.gap)} less"
        )
    how = [
        result.method,
        "" if result.monge else "since the tail rule breaks the quadrangle condition",
        took,
    ]
    text += f" ({', '.join(word for word in how if word)})"
    if result.spare > 0:
        text += (
            f"; {result.spare} more {'class' if result.spare == 1 else 'classes'} would save "
            "nothing"
        )
    return text


def parts_lines(cost: Wastage) -> list[str]:
    parts = ", ".join(
        f"{name.removesuffix('_bytes')} {format_bytes(value)}"
        for name, value in cost.parts.items()
        if value
    )
    lines = [f"  wastage: {parts or 'none'}", "  classes:"]
    for row in cost.rows:
        if len(lines[-1]) + len(str(row.class_bytes)) >= 96:
            lines.append("   ")
        lines[-1] += f" {row.class_bytes}"
    return lines


_COLUMNS = ("class_bytes", "requests", "requested_bytes", "wastage_bytes", "loss_bytes")


def html(title: str, cost: Wastage) -> str:
    head = "".join(f'<th style="text-align:right">{name}</th>' for name in _COLUMNS)
    body = ""
    for row in cost.rows:
        cells = (format_count(getattr(row, name), infinity="∞") for name in _COLUMNS)
        body += "<tr>" + "".join(f'<td style="text-align:right">{c}</td>' for c in cells) + "</tr>"
    parts = ", ".join(f"{name} {format_count(value)}" for name, value in cost.parts.items())
    return (
        f'<div style="overflow-x:auto"><b>{title}</b><br>{parts}'
        f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>"
    )


def frame(rows: Sequence[Any]) -> Any:
    """Return named tuples as a DataFrame."""
    return data_frame([row._asdict() for row in rows])
