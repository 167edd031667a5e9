"""The result of a sweep: an immutable table, its Pareto front and its knee."""

from __future__ import annotations

import copy
import csv
import io
import json
import math
import os
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NoReturn, overload

import numpy as np
import numpy.typing as npt

from pyallocx._files import write_atomically
from pyallocx._optional import data_frame, need_matplotlib

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes

__all__ = ["SweepResult"]

Row = dict[str, Any]


class SweepResult:
    """One row per cell of a sweep, in grid order; never changes once made.

    Parameters
    ----------
    columns : mapping of str to sequence
        Equally long columns: grid keys first, ``status`` last. A cell is a number, a text, a
        histogram (dict of number to count), or None for "not measured".
    grid_keys : sequence of str
        The columns that were given, not measured.
    system : str
        Name of what was swept.
    x, y : str
        The columns of wastage and churn that `pareto`, `knee` and `plot` take by default.
    metadata : mapping, optional
        ``trace`` (name, program, command, events), ``fixed`` (parameters at their defaults),
        ``seconds``, ``passes``, and of the system ``labels``, ``landmarks`` and ``context``.

    Raises
    ------
    ValueError
        If columns differ in length or a named column does not exist.

    Examples
    --------
    >>> res = SweepResult(
    ...     {"keep_bytes": [0, 256, 4096], "waste_bytes": [0, 900, 9000], "calls": [5000, 40, 30]},
    ...     grid_keys=["keep_bytes"], system="demo", x="waste_bytes", y="calls",
    ... )
    >>> res["calls"]
    array([5000,   40,   30])
    >>> res.knee()["keep_bytes"]
    256
    >>> len(res[res["calls"] < 1000])
    2
    """

    __slots__ = ("_columns", "_grid_keys", "_length", "_metadata", "_system", "_x", "_y")

    _columns: dict[str, tuple[Any, ...]]
    _grid_keys: tuple[str, ...]
    _length: int
    _metadata: dict[str, Any]
    _system: str
    _x: str
    _y: str

    def __init__(
        self,
        columns: Mapping[str, Sequence[Any] | npt.NDArray[Any]],
        *,
        grid_keys: Sequence[str],
        system: str,
        x: str,
        y: str,
        metadata: Mapping[str, Any] | None = None,
    ) -> None:
        lengths = {name: len(values) for name, values in columns.items()}
        if len(set(lengths.values())) > 1:
            raise ValueError(f"columns differ in length: {lengths}")
        for name in (*grid_keys, x, y):
            if name not in columns:
                raise ValueError(f"no column {name!r} among {', '.join(columns)}")
        put = object.__setattr__
        put(self, "_columns", {n: tuple(map(_own, values)) for n, values in columns.items()})
        put(self, "_length", next(iter(lengths.values()), 0))
        put(self, "_grid_keys", tuple(grid_keys))
        put(self, "_system", system)
        put(self, "_x", x)
        put(self, "_y", y)
        put(self, "_metadata", copy.deepcopy(dict(metadata or {})))

    def __setattr__(self, name: str, value: object) -> NoReturn:
        raise AttributeError("a SweepResult does not change")

    def __delattr__(self, name: str) -> NoReturn:
        raise AttributeError("a SweepResult does not change")

    def __reduce__(self) -> tuple[Any, ...]:
        state = (
            self._columns,
            self._grid_keys,
            self._system,
            self._x,
            self._y,
            self._metadata,
        )
        return (_rebuild, state)

    # Shape and access

    @property
    def columns(self) -> tuple[str, ...]:
        """Names of all columns."""
        return tuple(self._columns)

    @property
    def grid_keys(self) -> tuple[str, ...]:
        """Names of the columns that were given, not measured."""
        return self._grid_keys

    @property
    def system(self) -> str:
        """Name of what was swept."""
        return self._system

    @property
    def x(self) -> str:
        """Wastage column that `pareto`, `knee` and `plot` take by default."""
        return self._x

    @property
    def y(self) -> str:
        """Churn column that `pareto`, `knee` and `plot` take by default."""
        return self._y

    @property
    def metadata(self) -> dict[str, Any]:
        """A copy of what was replayed and how."""
        return copy.deepcopy(self._metadata)

    def __len__(self) -> int:
        return self._length

    def __iter__(self) -> Iterator[Row]:
        return (self._row(i) for i in range(self._length))

    def _row(self, index: int) -> Row:
        return {name: _own(values[index]) for name, values in self._columns.items()}

    def rows(self) -> list[Row]:
        """Return every row as a dict of Python values; the histograms are copies."""
        return list(self)

    @overload
    def __getitem__(self, key: str) -> npt.NDArray[Any]: ...
    @overload
    def __getitem__(self, key: int) -> Row: ...
    @overload
    def __getitem__(
        self, key: slice | npt.NDArray[Any] | Sequence[bool] | Sequence[int]
    ) -> SweepResult: ...
    def __getitem__(self, key: Any) -> npt.NDArray[Any] | Row | SweepResult:
        """Return a column by name, a row by number, or a smaller table by slice, mask or numbers.

        A column is a read-only array: int64 if every cell is whole, float64 with NaN for missing
        cells if every cell is a number, else of objects.
        """
        if isinstance(key, str):
            return self._array(key)
        if isinstance(key, (int, np.integer)) and not isinstance(key, bool):
            return self._row(range(self._length)[int(key)])
        if isinstance(key, slice):
            return self._take(range(self._length)[key])
        picked = np.asarray(key)
        if picked.size == 0 and picked.dtype != bool:
            picked = picked.astype(np.int64)
        if picked.ndim != 1 or picked.dtype.kind not in "biu":
            raise TypeError(f"a table takes a name, a number, a slice or a mask, not {key!r}")
        if picked.dtype == bool:
            if len(picked) != self._length:
                raise IndexError(f"a mask of {len(picked)} for a table of {self._length} rows")
            picked = np.flatnonzero(picked)
        return self._take([range(self._length)[int(i)] for i in picked])

    def _array(self, name: str) -> npt.NDArray[Any]:
        if name not in self._columns:
            raise KeyError(f"no column {name!r}; there are {', '.join(self._columns)}")
        values = self._columns[name]
        kinds = {type(value) for value in values}
        array: npt.NDArray[Any]
        if kinds == {bool}:
            array = np.array(values, dtype=bool)
        elif kinds == {int} and all(-(2**63) <= value < 2**63 for value in values):
            array = np.array(values, dtype=np.int64)
        elif kinds <= {int, float, type(None)}:
            array = np.array([math.nan if v is None else v for v in values], dtype=np.float64)
        else:
            array = np.empty(len(values), dtype=object)
            for i, value in enumerate(values):
                array[i] = _own(value)
        array.flags.writeable = False
        return array

    def _take(self, indices: Sequence[int]) -> SweepResult:
        return SweepResult(
            {name: [values[i] for i in indices] for name, values in self._columns.items()},
            grid_keys=self._grid_keys,
            system=self._system,
            x=self._x,
            y=self._y,
            metadata=self._metadata,
        )

    def select(self, *columns: str) -> SweepResult:
        """Return the table with these measured columns only, in this order.

        Parameters
        ----------
        *columns : str
            Names of columns. The grid keys, `x`, `y` and the status stay in any case.

        Raises
        ------
        KeyError
            If there is no such column.

        Examples
        --------
        >>> res = SweepResult(
        ...     {"keep_bytes": [0], "waste_bytes": [7], "calls": [5], "peak": [9], "spare": [1]},
        ...     grid_keys=["keep_bytes"], system="demo", x="waste_bytes", y="calls",
        ... )
        >>> res.select("peak", "calls").columns
        ('keep_bytes', 'peak', 'calls', 'waste_bytes')
        """
        for name in columns:
            if name not in self._columns:
                raise KeyError(f"no column {name!r}; there are {', '.join(self._columns)}")
        status = [name for name in ("status",) if name in self._columns]
        wanted = dict.fromkeys(
            n for n in (*self._grid_keys, *columns, self._y, self._x) if n not in status
        )
        return SweepResult(
            {name: self._columns[name] for name in (*wanted, *status)},
            grid_keys=self._grid_keys,
            system=self._system,
            x=self._x,
            y=self._y,
            metadata=self._metadata,
        )

    @property
    def ok(self) -> SweepResult:
        """The rows that were measured."""
        return self._take(self._ok_indices())

    def _ok_indices(self) -> list[int]:
        statuses = self._columns.get("status", ("ok",) * self._length)
        return [i for i, status in enumerate(statuses) if status == "ok"]

    # Choosing

    def pareto(self, x: str | None = None, y: str | None = None) -> SweepResult:
        """Return the rows that no other row beats in both columns, in order of `x`.

        Parameters
        ----------
        x, y : str, optional
            Columns of numbers, both to be small; by default wastage and churn of the system.

        Returns
        -------
        SweepResult
            Failed rows and rows without a number in `x` or `y` are left out. Rows that are equal in
            both columns do not beat each other: all of them are kept.
        """
        return self._take(self._front(x or self._x, y or self._y))

    def _front(self, x: str, y: str) -> list[int]:
        xs, ys = self._numbers(x), self._numbers(y)
        usable = [i for i in self._ok_indices() if not (math.isnan(xs[i]) or math.isnan(ys[i]))]
        front: list[int] = []
        for i in sorted(usable, key=lambda i: (xs[i], ys[i], i)):
            # In this order everything before i has a smaller or equal x, and the front falls in y.
            last = front[-1] if front else None
            if last is None or ys[i] < ys[last] or (xs[i], ys[i]) == (xs[last], ys[last]):
                front.append(i)
        return front

    def _numbers(self, name: str) -> npt.NDArray[np.float64]:
        array = self._array(name)
        if array.dtype.kind not in "bif":
            raise TypeError(f"column {name!r} does not hold numbers")
        return array.astype(np.float64)

    def knee(self, x: str | None = None, y: str | None = None, *, log: bool = False) -> Row:
        """Return the row after which less churn costs disproportionately more.

        The Pareto front is scaled to the unit square; its knee is the point furthest below the
        chord from its first to its last point [1]_. Scaled, that chord runs from (0, 1) to (1, 0),
        so the knee is the point whose scaled coordinates have the smallest sum, which is also the
        answer for a front of one or two points. Ties go to the smaller `x`.

        Parameters
        ----------
        x, y : str, optional
            As `pareto`.
        log : bool, default False
            Scale ``log(1 + value)`` instead of the values, so that equal ratios count the same. By
            default a call costs as much as any other call and a byte as any other byte; with
            logarithms a last cell without any call outweighs all the calls saved before it.

        Returns
        -------
        dict
            The row.

        Raises
        ------
        ValueError
            If no measured row has finite numbers in both columns, or one is negative and `log` is
            set.

        References
        ----------
        .. [1] V. Satopää, J. Albrecht, D. Irwin, B. Raghavan, "Finding a 'Kneedle' in a Haystack:
           Detecting Knee Points in System Behavior", ICDCS Workshops 2011.
        """
        return self._row(self._knee_index(x or self._x, y or self._y, log=log))

    def _knee_index(self, x: str, y: str, *, log: bool = False) -> int:
        xs, ys = self._numbers(x), self._numbers(y)
        front = [i for i in self._front(x, y) if math.isfinite(xs[i]) and math.isfinite(ys[i])]
        if not front:
            raise ValueError(f"no measured row has finite numbers in {x!r} and {y!r}")
        sums = _scaled(xs[front], log, x) + _scaled(ys[front], log, y)
        # Rounding must not decide between points that are equal on paper.
        return front[int(np.flatnonzero(sums <= sums.min() + 1e-12)[0])]

    # Leaving

    def to_dicts(self) -> list[Row]:
        """Return rows that JSON can hold: infinity as ``"inf"``, NaN as None, text as dict keys."""
        return [{name: _plain(value) for name, value in row.items()} for row in self]

    def to_json(self) -> str:
        """Return a JSON list with one row object per line, as `to_dicts`."""
        lines = [json.dumps(row, allow_nan=False) for row in self.to_dicts()]
        return "[\n" + ",\n".join(lines) + "\n]" if lines else "[]"

    def to_csv(self, path: str | os.PathLike[str]) -> None:
        """Write a CSV file; a histogram is JSON in its cell.

        Parameters
        ----------
        path : str or path-like
            Where to; written whole or not at all.

        Raises
        ------
        OSError
            The file could not be written; `path` is as it was.
        """
        text = io.StringIO(newline="")
        writer = csv.writer(text, lineterminator="\n")
        writer.writerow(self._columns)
        for row in self.to_dicts():
            writer.writerow(
                [json.dumps(v) if isinstance(v, (dict, list)) else v for v in row.values()]
            )
        write_atomically(path, lambda stream: stream.write(text.getvalue().encode("utf-8")))

    def to_pandas(self) -> pd.DataFrame:
        """Return a DataFrame with the same columns.

        Raises
        ------
        ImportError
            If pandas is not installed.
        """
        return data_frame({name: self._array(name).copy() for name in self._columns})

    def plot(
        self,
        x: str | None = None,
        y: str | None = None,
        *,
        ax: Axes | None = None,
        mark: Mapping[Any, str] | None = None,
        path: str | os.PathLike[str] | None = None,
        title: str | None = None,
    ) -> Axes:
        """Draw wastage against churn with the Pareto front, the knee and the known cells named.

        Parameters
        ----------
        x, y : str, optional
            Columns of numbers; by default wastage and churn of the system.
        ax : matplotlib.axes.Axes, optional
            Where to draw; by default a new figure.
        mark : mapping, optional
            Further values of the swept parameter to mark, and their names:
            ``{4096: "one page"}``.
        path : path, optional
            Write the picture there; its suffix decides the format.
        title : str, optional
            By default the trace and its number of events.

        Returns
        -------
        matplotlib.axes.Axes

        Raises
        ------
        ImportError
            If matplotlib is not installed.
        ValueError
            If no row was measured.
        """
        need_matplotlib("plot")
        from pyallocx.plot import plot_sweep

        return plot_sweep(
            self, x or self._x, y or self._y, ax=ax, mark=mark, path=path, title=title
        )

    def plot_against(
        self,
        key: str,
        *columns: str,
        ax: Axes | None = None,
        path: str | os.PathLike[str] | None = None,
        title: str | None = None,
    ) -> Axes:
        """Draw measured columns as curves over one swept parameter.

        Parameters
        ----------
        key : str
            A grid key of numbers: the horizontal axis.
        *columns : str
            Columns of numbers, of one unit; by default the churn of the system. Each has a curve
            for every combination of the other grid keys.
        ax : matplotlib.axes.Axes, optional
            Where to draw; by default a new figure.
        path : path, optional
            Write the picture there; its suffix decides the format.
        title : str, optional
            By default the trace and its number of events.

        Returns
        -------
        matplotlib.axes.Axes

        Raises
        ------
        ImportError
            If matplotlib is not installed.
        ValueError
            If `key` is no grid key, the columns have different units, or no row was measured.
        """
        need_matplotlib("plot")
        from pyallocx.plot import plot_curves

        return plot_curves(self, key, columns or (self._y,), ax=ax, path=path, title=title)

    def __repr__(self) -> str:
        from pyallocx.render import render_text

        return render_text(self)

    def _repr_html_(self) -> str:
        from pyallocx.render import render_html

        return render_html(self)


_FROZEN = frozenset({int, float, str, bool, type(None)})


def _own(value: Any) -> Any:
    """Return a Python value nobody else can change."""
    if type(value) in _FROZEN:
        return value  # nearly all are
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, Mapping):
        return {_own(key): _own(item) for key, item in value.items()}
    if isinstance(value, (list, tuple, np.ndarray)):
        return tuple(map(_own, value))
    return value


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {str(_plain(key)): _plain(item) for key, item in value.items()}
    if isinstance(value, tuple):
        return [_plain(item) for item in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None if math.isnan(value) else "inf" if value > 0 else "-inf"
    return value


def _scaled(values: npt.NDArray[np.float64], log: bool, name: str) -> npt.NDArray[np.float64]:
    if log:
        if values.min() < 0:
            raise ValueError(
                f"column {name!r} has {values.min()}, which has no logarithm; log=False"
            )
        values = np.log1p(values)
    span = values.max() - values.min()
    return (values - values.min()) / span if span > 0 else np.zeros_like(values)


def _rebuild(
    columns: dict[str, Any], grid_keys: tuple[str, ...], system: str, x: str, y: str, metadata: Row
) -> SweepResult:
    return SweepResult(columns, grid_keys=grid_keys, system=system, x=x, y=y, metadata=metadata)
