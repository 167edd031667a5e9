"""Small pictures for a terminal, out of characters: an area over the run, and bars.

Where the encoding of the output has no block characters, ASCII ones take their place.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final, TextIO

import numpy as np
import numpy.typing as npt

__all__ = ["area", "bar", "has_blocks"]

F64 = npt.NDArray[np.float64]

_UP: Final = " ▁▂▃▄▅▆▇█"
_UP_ASCII: Final = " .:|"
_RIGHT: Final = " ▏▎▍▌▋▊▉█"
_NARROWEST: Final = 16


def has_blocks(stream: TextIO | None) -> bool:
    """Whether block characters can be written to a stream as they are."""
    try:
        (_UP + _RIGHT).encode(getattr(stream, "encoding", None) or "ascii")
    except (UnicodeEncodeError, LookupError):
        return False
    return True


def area(
    values: Sequence[float] | F64,
    *,
    width: int,
    height: int,
    label: Callable[[float], str],
    blocks: bool,
) -> list[str]:
    """Return the lines of an area chart whose columns are as high as the largest value in each.

    Parameters
    ----------
    values : sequence of float
        Not negative, equally far apart.
    width : int
        Columns of the whole, the labels on the left included.
    height : int
        Lines.
    label : callable
        Writes a value.
    blocks : bool
        Whether block characters can be used.
    """
    data = np.asarray(values, dtype=np.float64)
    top = float(data.max(initial=0.0))
    marks = {0: label(top), height - 1: label(0.0)}
    if height >= 5:
        marks[height // 2] = label(top * (1 - (height // 2) / height))
    gutter = max(map(len, marks.values()))
    columns = max(width - gutter - 3, _NARROWEST)
    characters = _UP if blocks else _UP_ASCII
    levels = len(characters) - 1
    heights = _levels(_reduced(data, columns), top, height * levels)
    edge = "┤" if blocks else "|"
    lines = []
    for row in range(height):
        base = (height - 1 - row) * levels
        cells = "".join(characters[int(n)] for n in np.clip(heights - base, 0, levels))
        lines.append(f"{marks.get(row, ''):>{gutter}} {edge}{cells}".rstrip())
    return lines


def _levels(data: F64, top: float, levels: int) -> npt.NDArray[np.int64]:
    """Return how high each column is; what is not nothing is seen."""
    if top <= 0:
        return np.zeros(len(data), dtype=np.int64)
    found = np.round(data / top * levels).astype(np.int64)
    return np.where(data > 0, np.maximum(found, 1), 0)


def _reduced(data: F64, columns: int) -> F64:
    """Return the largest value of each column; fewer values than columns are repeated."""
    if not len(data):
        return np.zeros(columns)
    begins = np.arange(columns) * len(data) // columns
    ends = np.maximum((np.arange(columns) + 1) * len(data) // columns, begins + 1)
    return np.array([data[b:e].max() for b, e in zip(begins, ends, strict=True)])


def bar(share: float, width: int, *, blocks: bool) -> str:
    """Return a bar of at most `width` characters; what is not nothing is seen."""
    if not share > 0:
        return ""
    if not blocks:
        return "#" * max(round(share * width), 1)
    eighths = max(round(share * width * 8), 1)
    whole, rest = divmod(eighths, 8)
    return _RIGHT[8] * whole + (_RIGHT[rest] if rest else "")
