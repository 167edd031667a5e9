"""Asides: tables of what happened beside the events of a trace, and where between them."""

from __future__ import annotations

import re
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from pyallocx._columns import Array, exact_integers, sealed
from pyallocx._core import TraceError

Asides = Mapping[str, Mapping[str, Array]]

OF_EVENTS: Final = frozenset({"realloc_begin", "asked_align"})
"""The asides whose rows are about the event they name and go where it goes."""

TIMES: Final = ("time_ns", "begin_ns")
"""The columns that are times, as those of the trace."""

_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,63}")
_STEP: Final = 1 << 20


def is_name(name: object) -> bool:
    """Whether an aside or a column of one may be called so."""
    return isinstance(name, str) and _NAME.fullmatch(name) is not None


def owned_asides(asides: Mapping[str, Mapping[str, npt.ArrayLike]]) -> dict[str, dict[str, Array]]:
    """Copy a caller's asides; see `Trace` for what they may hold."""
    if not isinstance(asides, Mapping):
        raise TypeError(f"asides is {type(asides).__name__}, expected a mapping of mappings")
    made: dict[str, dict[str, Array]] = {}
    for name, columns in asides.items():
        if not is_name(name):
            raise ValueError(
                f"an aside is called {name!r}, expected up to 64 letters, digits and underscores"
            )
        if not isinstance(columns, Mapping):
            raise TypeError(
                f"aside '{name}' is {type(columns).__name__}, expected a mapping of columns"
            )
        made[name] = {column: _owned(name, column, value) for column, value in columns.items()}
    return made


def _owned(name: str, column: object, value: npt.ArrayLike) -> Array:
    if not is_name(column):
        raise ValueError(
            f"a column of aside '{name}' is called {column!r}, expected up to 64 letters, digits "
            "and underscores"
        )
    label = f"column '{column}' of aside '{name}'"
    array = exact_integers(label, value, "uint8, uint16, uint32 or uint64")
    if array.dtype.kind == "i":
        # As in a trace, -1 is the natural way to write "no object".
        lowest = -1 if column == "object" else 0
        if array.size and int(array.min()) < lowest:
            at = int(np.argmax(array < lowest))
            raise ValueError(f"{label} is {array[at]} in row {at}, allowed is 0 to {2**64 - 1}")
        array = array.astype(np.uint64)
    if column == "event":
        array = array.astype(np.uint64)
    elif column == "object" and array.dtype.itemsize < 4:
        array = array.astype(np.uint32)
    owned: Array = array.astype(array.dtype.newbyteorder("="), copy=True)
    return owned


def checked_asides(
    asides: Mapping[str, Mapping[str, Array]], events: int, n_objects: int
) -> Asides:
    """Return asides that nobody can change, after looking at all that a trace relies on."""
    made = {}
    for name, columns in asides.items():
        if "event" not in columns:
            raise TraceError(f"aside '{name}' has no column 'event', found {sorted(columns)}")
        lengths = {column: len(array) for column, array in columns.items()}
        if len(set(lengths.values())) > 1:
            raise TraceError(f"aside '{name}': expected columns of equal length, found {lengths}")
        _check_events(name, columns["event"], events)
        if "object" in columns:
            _check_objects(name, columns["object"], n_objects)
        made[name] = MappingProxyType({c: sealed(array) for c, array in columns.items()})
    return MappingProxyType(made)


def _check_events(name: str, column: Array, events: int) -> None:
    before = 0
    for start in range(0, len(column), _STEP):
        part = column[start : start + _STEP]
        falls = part[1:] < part[:-1]
        if int(part[0]) < before or falls.any():
            at = start + (0 if int(part[0]) < before else int(np.argmax(falls)) + 1)
            raise TraceError(
                f"aside '{name}', row {at}: event runs backwards (found {int(column[at])}, "
                f"expected {int(column[at - 1])} or more)"
            )
        before = int(part[-1])
    if before > events:
        at = int(np.searchsorted(column, events, side="right"))
        raise TraceError(
            f"aside '{name}', row {at}: event is {int(column[at])}, allowed are 0 to {events}"
        )
    if name in OF_EVENTS and len(column) and before == events:
        raise TraceError(
            f"aside '{name}', row {len(column) - 1}: event is {events}, but its rows are about "
            f"events, of which there are {events}"
        )


def _check_objects(name: str, column: Array, n_objects: int) -> None:
    none = np.iinfo(column.dtype).max
    for start in range(0, len(column), _STEP):
        part = column[start : start + _STEP]
        wrong = (part >= n_objects) & (part != none)
        if wrong.any():
            at = start + int(np.argmax(wrong))
            raise TraceError(
                f"aside '{name}', row {at}: object is {int(column[at])}, allowed are those of the "
                f"trace, of which there are {n_objects}, and all bits one for none"
            )


def head_of(asides: Asides, events: int, n_objects: int) -> dict[str, dict[str, Array]]:
    """Return the rows that stand before one of the first events of a longer trace."""
    made = {}
    for name, columns in asides.items():
        rows = int(np.searchsorted(columns["event"], events))
        part = {column: array[:rows] for column, array in columns.items()}
        if "object" in part:
            there = (part["object"] < n_objects) | (part["object"] == _none(part["object"]))
            part = {column: array[there] for column, array in part.items()}
        made[name] = part
    return made


def by_arena(
    asides: Asides,
    arena: npt.NDArray[np.uint32],
    events: list[npt.NDArray[np.intp]],
    owners: npt.NDArray[np.uint32],
    local: npt.NDArray[Any],
) -> list[dict[str, dict[str, Array]]]:
    """Return the rows that are about what is in each arena.

    `arena` is that of each event, `events` are the events of each arena, `owners` and `local` the
    arena of each object and its number there.
    """
    made: list[dict[str, dict[str, Array]]] = [{} for _ in events]
    for name, columns in asides.items():
        event, about = columns["event"], columns.get("object")
        part = dict(columns)
        if name in OF_EVENTS:
            rows = np.arange(len(event))
            home = arena[event]
        elif about is None:
            rows, home = np.arange(0), arena[:0]
        else:
            rows = np.flatnonzero(about != _none(about))
            home = owners[about[rows]]
        if about is not None:
            part["object"] = renumbered(about, local)
        order = np.argsort(home, kind="stable")
        ends = np.cumsum(np.bincount(home, minlength=len(events)))[:-1]
        for number, mine in enumerate(np.split(rows[order], ends)):
            table = {column: array[mine] for column, array in part.items()}
            table["event"] = np.searchsorted(events[number], table["event"]).astype(np.uint64)
            made[number][name] = table
    return made


def _none(column: Array) -> int:
    return int(np.iinfo(column.dtype).max)


def taken(
    asides: Asides,
    before: npt.NDArray[Any],
    kept: npt.NDArray[np.bool_],
    local: npt.NDArray[Any] | None,
    rows: Mapping[str, npt.NDArray[np.bool_]] | None = None,
) -> dict[str, dict[str, Array]]:
    """Return the asides of a part of a trace.

    Parameters
    ----------
    asides : mapping
        Of the whole.
    before : ndarray of int, shape (events + 1,)
        How many events of the part come before each event of the whole.
    kept : ndarray of bool, shape (events,)
        Whether an event is in the part: what is about an event goes with it.
    local : ndarray of int, shape (n_objects,), optional
        The number in the part of each object, -1 where it has none: what is about an object that
        is not there is left out. None where all are and keep their numbers.
    rows : mapping, optional
        For each aside, which of its rows may be in the part at all.
    """
    made = {}
    for name, columns in asides.items():
        event = columns["event"]
        chosen = np.ones(len(event), dtype=np.bool_) if rows is None else rows[name].copy()
        if name in OF_EVENTS:
            chosen &= kept[event]
        renamed = None
        if "object" in columns and local is not None:
            renamed = renumbered(columns["object"], local)
            none = np.iinfo(renamed.dtype).max
            chosen &= (renamed != none) | (columns["object"] == none)
        made[name] = {
            column: (renamed if column == "object" and renamed is not None else array)[chosen]
            for column, array in columns.items()
            if column != "event"
        }
        made[name] = {"event": before[event[chosen]].astype(np.uint64), **made[name]}
    return made


def renumbered(column: Array, local: npt.NDArray[Any]) -> Array:
    """Return objects under new numbers; all bits one where there is none, or there was none."""
    none = np.iinfo(column.dtype).max
    named = column != none
    made = np.full(len(column), none, dtype=column.dtype)
    numbers = local[column[named]]
    # -1 becomes all bits one.
    made[named] = numbers.astype(np.int64).astype(column.dtype)
    return made
