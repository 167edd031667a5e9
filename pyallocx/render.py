"""A `SweepResult` for the eye: text for a terminal, HTML for a notebook."""

from __future__ import annotations

import math
import shutil
import textwrap
from collections import Counter
from collections.abc import Sequence
from html import escape
from typing import Any

from pyallocx.answer import cell_name, explain, marked
from pyallocx.table import SweepResult
from pyallocx.units import column_unit, format_cell, format_count, printable

__all__ = ["render_html", "render_text"]

_MAX_ROWS = 40
_EDGE_ROWS = 12
_CELL_WIDTH = 60
# A long status must not take the place of columns: what it says stands below the table.
_STATUS_WIDTH = 28
_FAILURES_SHOWN = 5
_LONGEST_FAILURE = 1000
_GAP = "  "
_BARS = "▁▂▃▄▅▆▇█"
_KNEE_STYLE = "background:rgba(255,193,7,.28);font-weight:600"


def render_text(result: SweepResult, width: int | None = None) -> str:
    """Return an aligned ASCII table that fits the terminal, and says what it does not show.

    Parameters
    ----------
    result : SweepResult
        The table.
    width : int, optional
        Columns of the terminal; by default asked from it.
    """
    width = width or shutil.get_terminal_size((100, 24)).columns
    marks = dict(marked(result, result.x, result.y))
    rows = _chosen_rows(len(result), marks)
    shown: list[str] = []
    blocks: list[list[str]] = []
    room = width - max((len(f"<- {name}") + len(_GAP) for name in marks.values()), default=0)
    for column in _by_importance(result):
        block = _text_column(result, column, rows)
        needed = len(block[0]) + (len(_GAP) if blocks else 0)
        if needed <= room or not blocks:
            room -= needed
            shown.append(column)
            blocks.append(block)
    # Importance decided what fits; the reader gets the table's own order.
    order = sorted(range(len(shown)), key=lambda i: result.columns.index(shown[i]))
    shown = [shown[i] for i in order]
    blocks = _level([blocks[i] for i in order], len(rows))
    lines = [_GAP.join(cells) for cells in zip(*blocks, strict=True)]
    body = len(lines) - len(rows)
    for at, index in enumerate(rows):
        if index in marks:
            lines[body + at] += f"{_GAP}<- {marks[index]}"
        elif index is None:
            lines[body + at] = f"... {_hidden(result, rows):,} rows not shown ..."
    lines.insert(0, _headline(result))
    if any(name.startswith("knee") for name in marks.values()):
        listing = f"knee: of {result.y} over {result.x}, both on linear scales"
        lines += textwrap.wrap(listing, max(width, 40), subsequent_indent="  ")
    left_out = [column for column in result.columns if column not in shown and column != "status"]
    if left_out:
        noun = "column" if len(left_out) == 1 else "columns"
        listing = f"{len(left_out)} {noun} not shown: {', '.join(left_out)}"
        lines += textwrap.wrap(listing, max(width, 40), subsequent_indent="  ")
    for line in [*_failures(result), *_notes(result)]:
        lines += textwrap.wrap(line, max(width, 40), subsequent_indent="  ")
    return "\n".join(line.rstrip() for line in lines)


def _headline(result: SweepResult) -> str:
    metadata = result.metadata
    parts = [f"{result.system} sweep: {len(result):,} {'row' if len(result) == 1 else 'rows'}"]
    trace = metadata.get("trace")
    if trace:
        parts.append(f"{printable(trace['name'])}, {format_count(trace['events'])} events")
    failed = len(result) - len(result._ok_indices())
    if failed:
        parts.append(f"{failed:,} failed")
    return "; ".join(parts)


def _failures(result: SweepResult) -> list[str]:
    """Return what became of the failed rows, for whom the column of statuses is too narrow."""
    if "status" not in result.columns:
        return []
    statuses = result._columns["status"]
    counts = Counter(text for text in statuses if text != "ok")
    lines = [
        f"{count:,} {'row' if count == 1 else 'rows'} failed, {cell_name(result, at)}"
        f"{'' if count == 1 else ' the first'}: {_shorten(str(text), _LONGEST_FAILURE)}"
        for text, count in list(counts.items())[:_FAILURES_SHOWN]
        for at in [statuses.index(text)]
        if len(_shorten(str(text), _LONGEST_FAILURE)) > _STATUS_WIDTH
    ]
    more = len(counts) - _FAILURES_SHOWN
    return [*lines, f"{more:,} other failures"] if more > 0 else lines


def _notes(result: SweepResult) -> list[str]:
    """Return what the system has to say about its numbers."""
    return [f"note: {line}" for line in result.metadata.get("notes", [])]


def _hidden(result: SweepResult, rows: Sequence[int | None]) -> int:
    return len(result) - sum(row is not None for row in rows)


def _chosen_rows(length: int, marks: dict[int, str]) -> list[int | None]:
    """Return the rows to show, None where some are left out; marked rows are always shown."""
    if length <= _MAX_ROWS:
        return list(range(length))
    keep = sorted({*range(_EDGE_ROWS), *range(length - _EDGE_ROWS, length), *marks})
    # One notice is enough: it stands in the gap before the tail.
    tail = keep.index(length - _EDGE_ROWS)
    return [*keep[:tail], None, *keep[tail:]]


def _is_histogram(result: SweepResult, column: str) -> bool:
    return any(isinstance(value, dict) for value in result[column])


def _by_importance(result: SweepResult) -> list[str]:
    """Return columns for a terminal: grid, failures, the two axes, then the rest in order."""
    failed = len(result._ok_indices()) < len(result)
    first = [*result.grid_keys, *(["status"] if failed else []), result.x, result.y]
    rest = [c for c in result.columns if c != "status" and not _is_histogram(result, c)]
    return list(dict.fromkeys(first + rest))


def _text_column(result: SweepResult, column: str, rows: Sequence[int | None]) -> list[str]:
    cells = result[column].tolist()
    values = [cells[row] if row is not None else "" for row in rows]
    limit = _STATUS_WIDTH if column == "status" else _CELL_WIDTH
    texts = [_shorten(format_cell(value), limit) for value in values]
    widest = max(map(len, texts), default=0)
    header = _wrap_name(column, max(widest, 9))
    width = max(widest, *map(len, header))
    right = all(value is None or value == "" or _is_number(value) for value in values)
    return [text.rjust(width) if right else text.ljust(width) for text in header + texts]


def _is_number(value: object) -> bool:
    return isinstance(value, (int, float))


def _shorten(text: str, limit: int) -> str:
    ascii_text = printable(text).encode("ascii", "backslashreplace").decode()
    return ascii_text if len(ascii_text) <= limit else ascii_text[: limit - 3] + "..."


def _wrap_name(name: str, width: int) -> list[str]:
    """Break a column's name after underscores, so that its numbers decide its width."""
    lines = [""]
    for word in name.replace("_", "_\0").split("\0"):
        if lines[-1] and len(lines[-1]) + len(word) > width:
            lines.append("")
        lines[-1] += word
    return lines


def _level(blocks: list[list[str]], rows: int) -> list[list[str]]:
    """Give all headers the same height, names standing on their numbers."""
    height = max((len(block) for block in blocks), default=rows)
    return [[" " * len(block[0])] * (height - len(block)) + block for block in blocks]


def render_html(result: SweepResult) -> str:
    """Return an HTML table: units in the header, the knee's row marked, histograms as bars."""
    marks = dict(marked(result, result.x, result.y))
    rows = _chosen_rows(len(result), marks)
    failed = len(result._ok_indices()) < len(result)
    columns = [c for c in result.columns if c != "status" or failed]
    head = "".join(_html_header(result, column) for column in columns)
    values = {column: result[column].tolist() for column in columns}
    body = []
    for index in rows:
        if index is None:
            body.append(
                f'<tr><td colspan="{len(columns) + 1}" style="text-align:center">'
                f"… {_hidden(result, rows):,} rows not shown …</td></tr>"
            )
            continue
        chosen = marks.get(index, "").startswith(("knee", "best"))
        cells = "".join(_html_cell(values[column][index]) for column in columns)
        note = f"◀ {escape(marks[index])}" if index in marks else ""
        style = f' style="{_KNEE_STYLE}"' if chosen else ""
        body.append(
            f'<tr{style}>{cells}<td style="text-align:left;white-space:nowrap">{note}</td></tr>'
        )
    lines = [*explain(result), *_notes(result)]
    answer = "".join(f"<li>{escape(line)}</li>" for line in lines)
    return (
        '<div style="overflow-x:auto">'
        f'<div style="margin:.3em 0"><b>{escape(_headline(result))}</b></div>'
        f"<table><thead><tr>{head}<th></th></tr></thead><tbody>{''.join(body)}</tbody></table>"
        f"<ul>{answer}</ul></div>"
    )


def _html_header(result: SweepResult, column: str) -> str:
    given = column in result.grid_keys
    unit = column_unit(column) if not _is_histogram(result, column) else "count per value"
    # Zero-width breaks after underscores let a narrow column keep a long name.
    name = escape(column).replace("_", "_<wbr>")
    note = f'<br><small style="font-weight:normal">{unit}</small>' if unit else ""
    weight = "font-weight:700" if given else "font-weight:600"
    return f'<th style="text-align:right;vertical-align:bottom;{weight}">{name}{note}</th>'


def _html_cell(value: Any) -> str:
    if isinstance(value, dict):
        return f'<td style="text-align:left;white-space:nowrap">{_html_bars(value)}</td>'
    if _is_number(value) or value is None:
        return f'<td style="text-align:right">{_html_number(value)}</td>'
    return f'<td style="text-align:left">{escape(str(value))}</td>'


def _html_number(value: Any) -> str:
    if isinstance(value, float) and math.isinf(value):
        return "∞" if value > 0 else "−∞"
    return format_cell(value, missing="–")


def _html_bars(histogram: dict[Any, Any]) -> str:
    """Return a bar per bin, by the square root of its count so that rare bins are seen.

    Characters rather than drawings: they survive the viewers that strip styles.
    """
    if not histogram:
        return "–"
    bins = sorted(histogram.items())
    top = max(count for _, count in bins)
    detail = escape(", ".join(f"{_html_number(k)}: {_html_number(n)}" for k, n in bins))
    bars = "".join(
        _BARS[round((len(_BARS) - 1) * math.sqrt(count / top))] if count else " "
        for _, count in bins
    )
    return f'<span title="{detail}">{bars}</span>'
