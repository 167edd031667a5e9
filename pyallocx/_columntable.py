"""Tables of a trace's own: immutable columns of numbers, equally long."""

from __future__ import annotations

from collections.abc import Mapping
from html import escape
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, ClassVar, NoReturn

import numpy as np
import numpy.typing as npt

from pyallocx._optional import data_frame
from pyallocx.units import column_unit, format_cell

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["ColumnTable", "dense", "signed"]

_ROWS_SHOWN = 8
_MOST_COUNTED = 1 << 20

Column = npt.NDArray[Any]


def signed(column: Column) -> Column:
    """Return whole numbers as int64 where they fit, since differences of unsigned ones wrap."""
    if column.dtype != np.uint64 or (len(column) and int(column.max()) >= 1 << 63):
        return column
    return column.astype(np.int64)


def dense(labels: Column) -> tuple[Column, npt.NDArray[np.int64]]:
    """Return the labels that occur in order, and for each element which of them it is.

    As ``numpy.unique`` with its inverse, which sorts; labels are mostly small.
    """
    if not len(labels) or int(labels.max()) >= _MOST_COUNTED:
        used, index = np.unique(labels, return_inverse=True)
        return used, index.astype(np.int64, copy=False)
    used = np.flatnonzero(np.bincount(labels.astype(np.int64)))
    places = np.zeros(int(used[-1]) + 1, dtype=np.int64)
    places[used] = np.arange(len(used))
    return used, places[labels]


class ColumnTable:
    """Columns of numbers by name; never changes once made.

    Attributes
    ----------
    metadata : mapping
        What the table is of.
    """

    __slots__ = ("__weakref__", "_columns", "metadata")

    _columns: Mapping[str, Column]
    metadata: Mapping[str, Any]

    __hash__: ClassVar[None]  # type: ignore[assignment]

    def __init__(self, columns: Mapping[str, Column], metadata: Mapping[str, Any]) -> None:
        lengths = {name: len(column) for name, column in columns.items()}
        if len(set(lengths.values())) > 1:
            raise ValueError(f"columns differ in length: {lengths}")
        own = {}
        for name, column in columns.items():
            column = np.ascontiguousarray(column)
            column.setflags(write=False)
            own[name] = np.asarray(column.data.toreadonly()) if len(column) else column
        object.__setattr__(self, "_columns", MappingProxyType(own))
        object.__setattr__(self, "metadata", MappingProxyType(dict(metadata)))

    def __setattr__(self, name: str, value: object) -> NoReturn:
        raise AttributeError(f"a {type(self).__name__} does not change")

    def __delattr__(self, name: str) -> NoReturn:
        raise AttributeError(f"a {type(self).__name__} does not change")

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (dict(self._columns), dict(self.metadata))

    @property
    def columns(self) -> tuple[str, ...]:
        """Names of all columns."""
        return tuple(self._columns)

    def __len__(self) -> int:
        return len(next(iter(self._columns.values()))) if self._columns else 0

    def __contains__(self, name: object) -> bool:
        return name in self._columns

    def __getitem__(self, name: str) -> Column:
        """Return a column: read-only, without a copy."""
        try:
            return self._columns[name]
        except KeyError:
            raise KeyError(f"no column {name!r}; there are {', '.join(self._columns)}") from None

    def __eq__(self, other: object) -> bool:
        if type(other) is not type(self) or not isinstance(other, ColumnTable):
            return NotImplemented
        return self.columns == other.columns and all(
            np.array_equal(column, other[name], equal_nan=column.dtype.kind == "f")
            for name, column in self._columns.items()
        )

    def to_dict(self) -> dict[str, list[Any]]:
        """Return the columns as lists of Python values that JSON can hold, NaN as None."""
        return {
            name: [None if value != value else value for value in column.tolist()]
            for name, column in self._columns.items()
        }

    def to_pandas(self) -> pd.DataFrame:
        """Return a DataFrame with the same columns.

        Raises
        ------
        ImportError
            If pandas is not installed.
        """
        return data_frame({name: column.copy() for name, column in self._columns.items()})

    def _title(self) -> str:
        return f"{type(self).__name__}: {len(self):,} rows"

    def __repr__(self) -> str:
        return f"{type(self).__name__}({len(self):,} rows: {', '.join(self._columns)})"

    def _repr_html_(self) -> str:
        head = "".join(
            f'<th style="text-align:right;vertical-align:bottom">'
            f"{escape(name).replace('_', '_<wbr>')}"
            + (f"<br><small>{unit}</small>" if (unit := column_unit(name)) else "")
            + "</th>"
            for name in self._columns
        )
        length = len(self)
        rows = list(range(length))
        if length > 2 * _ROWS_SHOWN:
            rows = [*rows[:_ROWS_SHOWN], -1, *rows[-_ROWS_SHOWN:]]
        body = []
        for row in rows:
            if row < 0:
                hidden = f"… {length - 2 * _ROWS_SHOWN:,} rows not shown …"
                cells = (
                    f'<td colspan="{len(self._columns)}" style="text-align:center">{hidden}</td>'
                )
            else:
                cells = "".join(
                    f'<td style="text-align:right">{format_cell(column[row].item(), "–")}</td>'
                    for column in self._columns.values()
                )
            body.append(f"<tr>{cells}</tr>")
        return (
            f'<div style="overflow-x:auto"><b>{escape(self._title())}</b>'
            f"<table><thead><tr>{head}</tr></thead><tbody>{''.join(body)}</tbody></table></div>"
        )
