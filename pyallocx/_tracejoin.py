"""Traces put together: one after the other, or side by side."""

from __future__ import annotations

import copy
from collections.abc import Iterable, Sequence
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt

from pyallocx._asides import TIMES, renumbered
from pyallocx._columns import OP_ALLOC, OP_DESTROY, OP_FREE, Array
from pyallocx._traceops import Live, live_at
from pyallocx.trace import Trace

__all__ = ["concatenate", "interleave"]

_MOST: Final = 2**32
_NO_KEY: Final = "no key"
# What stands for "unknown" in a trace without the column; other columns have no such value.
_UNKNOWN: Final = ("align_log2", "call")


def concatenate(
    traces: Iterable[Trace],
    *,
    continued: bool = False,
    free_between: bool = False,
    share_threads: bool = False,
    share_keys: bool | None = None,
    progress: bool | None = None,
) -> Trace:
    """Put traces one after the other.

    Parameters
    ----------
    traces : iterable of Trace
        At least one.
    continued : bool, default False
        Whether each trace goes on where the one before it ended, as consecutive `Trace.slice` of
        one trace do: the objects that a slice inherited are those that live at the end of what is
        before it, and are not allocated again. Threads, keys, arenas and times then are one set of
        numbers. The slices of a trace become the trace.
    free_between : bool, default False
        Free what lives at the end of a trace before the next begins, as the end of a process does.
        Else it lives on.
    share_threads : bool, default False
        Whether equal thread numbers of several traces are one thread. By default they are not: the
        threads of the second trace are numbered after those of the first.
    share_keys : bool, optional
        The same for keys. By default a name is a key where all traces with keys have names for
        them (``metadata["key_names"]``), else the keys of several traces are kept apart.
    progress : bool, optional
        As in `Trace`.

    Returns
    -------
    Trace
        Arenas are kept apart. It has `key` and `arena` where one of the traces does (of the others
        all events have one key, or arena, of their own), `align_log2` and `call` too (0 for the
        others), and `time_ns` where all have it: a trace that begins before the one before it ended
        is moved on so that it begins then. Asides of one name become one, in which a column that a
        part does not have is 0. ``metadata["parts"]`` says of each trace how many events it has
        (``events``), which number its first thread, key and arena got (``threads_from``,
        ``keys_from`` where keys are apart, ``arenas_from``), by how much its times were moved
        (``moved_ns``), and its ``metadata``.

    Raises
    ------
    TypeError
        Something is no trace.
    ValueError
        There is no trace; `continued` and what a trace inherits is not what lives, or goes with
        `free_between`; or there are more threads, keys or arenas than 2**32.

    Examples
    --------
    >>> import pyallocx as px
    >>> trace = px.synthesize(1000, seed=1)
    >>> parts = [trace.slice(0, 400), trace.slice(400)]
    >>> px.concatenate(parts, continued=True) == trace
    True
    >>> px.concatenate([trace, trace])
    Trace(2,000 events, 1,428 objects)
    """
    parts = _checked(traces)
    if continued and free_between:
        raise ValueError("free_between is True, but the objects of continued traces live on")
    if len(parts) == 1:
        return parts[0]
    shared = _Shared(
        parts, share_threads or continued, True if continued else share_keys, continued
    )
    pieces = []
    links = _links(parts) if continued else None
    now = 0
    for number, trace in enumerate(parts):
        piece = shared.piece(number)
        columns = piece.columns
        if shared.timed and not continued:
            piece = piece._replace(moved_ns=_moved(trace, now))
            _move_times(piece)
        if links is None:
            columns["object"] = trace.object.astype(np.int64)
            columns["object"][trace.op != OP_DESTROY] += shared.objects_before(number)
            about = np.arange(trace.n_objects) + shared.objects_before(number)
            skipped = 0
        else:
            about, skipped = links[number]
            columns["object"] = np.full(len(trace), -1, dtype=np.int64)
            named = trace.op != OP_DESTROY
            columns["object"][named] = about[trace.object[named]]
        events = np.arange(len(trace) + 1) - skipped
        events[events < 0] = 0
        _renumber_asides(piece, events, about)
        for name, column in columns.items():
            columns[name] = column[skipped:]
        if free_between and number + 1 < len(parts):
            _free_rest(trace, columns)
        if shared.timed and len(columns["time_ns"]):
            now = int(columns["time_ns"][-1])
        pieces.append(piece)
    return shared.joined(pieces, None, "concatenate", progress)


def interleave(
    traces: Iterable[Trace],
    *,
    share_threads: bool = False,
    share_keys: bool | None = None,
    start_together: bool = False,
    progress: bool | None = None,
) -> Trace:
    """Run traces side by side: one trace in which the events of each keep their order.

    Where all traces have times, their events are ordered by time, else by how much of its trace
    has been; events of one moment in the order of the traces.

    Parameters
    ----------
    traces : iterable of Trace
        At least one.
    share_threads : bool, default False
        Whether equal thread numbers of several traces are one thread, see `concatenate`.
    share_keys : bool, optional
        The same for keys, see `concatenate`.
    start_together : bool, default False
        Whether all traces begin at the time 0, whenever they were recorded.
    progress : bool, optional
        As in `Trace`.

    Returns
    -------
    Trace
        Columns, arenas, asides and metadata as of `concatenate`. A row of an aside stays before
        the event that it stood before.

    Raises
    ------
    TypeError
        Something is no trace.
    ValueError
        There is no trace, or more threads, keys or arenas than 2**32.

    Examples
    --------
    >>> import pyallocx as px
    >>> one = px.Trace(op=[0, 1], object=[0, 0], size_bytes=[8, 0])
    >>> other = px.Trace(op=[0, 0], object=[0, 1], size_bytes=[100, 200])
    >>> both = px.interleave([one, other])
    >>> both.op, both.size_bytes, both.thread
    (array([0, 0, 1, 0], dtype=uint8), array([  8, 100,   0, 200], dtype=uint64), \
array([0, 1, 0, 1], dtype=uint32))
    """
    parts = _checked(traces)
    if len(parts) == 1 and not start_together:
        return parts[0]
    shared = _Shared(parts, share_threads, share_keys, False)
    pieces = []
    for number, trace in enumerate(parts):
        piece = shared.piece(number)
        if shared.timed and start_together and len(trace):
            piece = piece._replace(moved_ns=-int(piece.columns["time_ns"][0]))
            _move_times(piece)
        piece.columns["object"] = trace.object.astype(np.int64)
        piece.columns["object"][trace.op != OP_DESTROY] += shared.objects_before(number)
        pieces.append(piece)
    if shared.timed:
        order = np.argsort(
            np.concatenate([piece.columns["time_ns"] for piece in pieces]), kind="stable"
        )
    else:
        # Of two events in the middle of their traces neither is ahead.
        order = np.argsort(
            np.concatenate([(np.arange(len(t)) + 0.5) / max(1, len(t)) for t in parts]),
            kind="stable",
        )
    place = np.empty(len(order), dtype=np.intp)
    place[order] = np.arange(len(order))
    first = 0
    for number, (trace, piece) in enumerate(zip(parts, pieces, strict=True)):
        mine = place[first : first + len(trace)]
        after = mine[-1:] + 1 if len(trace) else np.zeros(1, dtype=np.intp)
        about = np.arange(trace.n_objects) + shared.objects_before(number)
        _renumber_asides(piece, np.concatenate([mine, after]), about)
        first += len(trace)
    return shared.joined(pieces, order, "interleave", progress)


# ---- what belongs to whom -----------------------------------------------------------------------


class _Piece(NamedTuple):
    """One trace on its way into a longer one: columns of its own, under the new numbers."""

    columns: dict[str, npt.NDArray[Any]]
    asides: dict[str, dict[str, npt.NDArray[Any]]]
    about: dict[str, Any]
    moved_ns: int


class _Keys(NamedTuple):
    """What the keys of one trace become."""

    first: int  # is added to each key,
    none: int  # of an event in a trace without keys
    table: npt.NDArray[np.uint32] | None  # unless the new ones are in here


class _Shared:
    """What several traces have in common, and where the numbers of each begin."""

    def __init__(
        self, parts: Sequence[Trace], threads: bool, keys: bool | None, arenas: bool
    ) -> None:
        self.parts = parts
        self.timed = all(trace.time_ns is not None for trace in parts)
        self.columns = [
            name
            for name in parts[0].columns()
            if (
                self.timed
                if name == "time_ns"
                else any(getattr(t, name) is not None for t in parts)
            )
        ]
        self.threads_from = _starts("threads", [_numbers(t.thread) for t in parts], threads)
        self.arenas_from = _starts(
            "arenas", [1 if t.arena is None else _numbers(t.arena) for t in parts], arenas
        )
        self.key_names: list[str] | None = None
        self.keys = self._keys(keys) if "key" in self.columns else None
        self._objects = np.cumsum([0, *(t.n_objects for t in parts)])
        self.continued = arenas

    def objects_before(self, number: int) -> int:
        return int(self._objects[number])

    def width_of_objects(self, aside: str, dtype: np.dtype[Any]) -> np.dtype[Any]:
        """Return the dtype that names objects in an aside, where they need `dtype` in a trace."""
        widths = [
            trace.asides[aside]["object"].dtype
            for trace in self.parts
            if "object" in trace.asides.get(aside, {})
        ]
        return max([dtype, *widths], key=lambda width: width.itemsize)

    def _keys(self, share: bool | None) -> list[_Keys]:
        """Return how each trace's keys become those of the whole."""
        counts = [0 if t.key is None else _numbers(t.key) for t in self.parts]
        names = [_names_of(t, count) for t, count in zip(self.parts, counts, strict=True)]
        named = all(n is not None or t.key is None for t, n in zip(self.parts, names, strict=True))
        if share is None and named:
            known: dict[str, int] = {}
            made = []
            for mine in names:
                new = [known.setdefault(name, len(known)) for name in mine or [_NO_KEY]]
                made.append(_Keys(0, new[-1], np.array(new, dtype=np.uint32)))
            self.key_names = list(known)
            return made
        if share:
            # Keys are any 32 bits (a hash of a call site, say), so that there may be no room.
            without = any(trace.key is None for trace in self.parts)
            _starts("keys", [max(counts), int(without)], False)
            given = [n for n, t in zip(names, self.parts, strict=True) if t.key is not None]
            if given[0] is not None and all(n == given[0] for n in given):
                self.key_names = given[0] + ([_NO_KEY] if without else [])
                counts = [len(given[0])]
            return [_Keys(0, max(counts), None)] * len(self.parts)
        sizes = [
            1 if trace.key is None else max(count, len(n or []))
            for trace, count, n in zip(self.parts, counts, names, strict=True)
        ]
        if named:
            self.key_names = [one for n in names for one in (n if n is not None else [_NO_KEY])]
        return [_Keys(start, start, None) for start in _starts("keys", sizes, False)]

    def piece(self, number: int) -> _Piece:
        """Return the columns of a trace, all but `object` under the new numbers."""
        trace = self.parts[number]
        columns: dict[str, npt.NDArray[Any]] = {}
        about: dict[str, Any] = {"events": len(trace), "threads_from": self.threads_from[number]}
        for name in self.columns:
            column = getattr(trace, name)
            if name == "thread":
                columns[name] = column + np.uint32(self.threads_from[number])
            elif name == "key":
                assert self.keys is not None
                new = self.keys[number]
                if column is None:
                    columns[name] = np.full(len(trace), new.none, dtype=np.uint32)
                elif new.table is not None:
                    columns[name] = new.table[column]
                else:
                    columns[name] = column + np.uint32(new.first)
                if new.table is None:
                    about["keys_from"] = new.first
            elif name == "arena":
                start = np.uint32(self.arenas_from[number])
                columns[name] = np.zeros(len(trace), np.uint32) if column is None else column
                columns[name] = columns[name] + start
                about["arenas_from"] = self.arenas_from[number]
            elif name in _UNKNOWN and column is None:
                columns[name] = np.zeros(len(trace), dtype=np.uint8)
            else:
                columns[name] = column
        asides = {aside: dict(table) for aside, table in trace.asides.items()}
        for table in asides.values():
            if "thread" in table:
                table["thread"] = table["thread"].astype(np.uint32)
                table["thread"] += np.uint32(self.threads_from[number])
        about["metadata"] = copy.deepcopy(dict(trace.metadata))
        return _Piece(columns, asides, about, 0)

    def joined(
        self,
        pieces: Sequence[_Piece],
        order: npt.NDArray[np.intp] | None,
        how: str,
        progress: bool | None,
    ) -> Trace:
        """Make the trace. `order` is that of the events, where they do not come as they are."""
        whole = {
            name: np.concatenate([piece.columns[name] for piece in pieces]) for name in self.columns
        }
        if order is not None:
            whole = {name: column[order] for name, column in whole.items()}
        made = int(np.count_nonzero(whole["op"] == OP_ALLOC))
        narrow = all(t.object.dtype == np.uint32 for t in self.parts) and made < _MOST - 1
        dtype = np.dtype(np.uint32 if narrow else np.uint64)
        local: npt.NDArray[np.int64] | None = None
        if order is not None:
            # The k-th alloc makes object k.
            local = np.empty(made, dtype=np.int64)
            local[whole["object"][whole["op"] == OP_ALLOC]] = np.arange(made)
            named = whole["op"] != OP_DESTROY
            whole["object"][named] = local[whole["object"][named]]
        whole["object"][whole["op"] == OP_DESTROY] = -1
        whole["object"] = whole["object"].astype(dtype)
        first = 0
        tables: dict[str, list[dict[str, npt.NDArray[Any]]]] = {}
        for piece in pieces:
            for aside, table in piece.asides.items():
                if order is None:
                    table["event"] = table["event"] + np.uint64(first)
                elif "object" in table and local is not None:
                    table["object"] = renumbered(table["object"], local)
                tables.setdefault(aside, []).append(table)
            first += len(piece.columns["op"])
        asides = {
            aside: _one_table(rows, self.width_of_objects(aside, dtype))
            for aside, rows in tables.items()
        }
        metadata: dict[str, Any] = {"source": f"pyallocx.{how}"}
        if self.continued and self.parts:
            # A whole again: what was known of it.
            metadata = copy.deepcopy(dict(self.parts[0].metadata)) | metadata
            metadata.pop("cuts", None)
        if self.key_names is not None:
            metadata["key_names"] = self.key_names
        metadata["parts"] = [
            piece.about | ({"moved_ns": piece.moved_ns} if piece.moved_ns else {})
            for piece in pieces
        ]
        return Trace._adopt(whole, metadata, progress, asides)


def _checked(traces: Iterable[Trace]) -> list[Trace]:
    if isinstance(traces, Trace):
        raise TypeError("traces is a Trace, expected several of them in a list")
    if not isinstance(traces, Iterable):
        raise TypeError(f"traces is {type(traces).__name__}, expected several traces in a list")
    parts = list(traces)
    for number, trace in enumerate(parts):
        if not isinstance(trace, Trace):
            raise TypeError(f"traces[{number}] is {type(trace).__name__}, expected a Trace")
    if not parts:
        raise ValueError("traces is empty, expected at least one")
    return parts


def _numbers(column: npt.NDArray[np.unsignedinteger[Any]]) -> int:
    return int(column.max()) + 1 if len(column) else 0


def _names_of(trace: Trace, keys: int) -> list[str] | None:
    """Return the names of the keys of a trace, where each has one."""
    names = trace.metadata.get("key_names")
    if trace.key is None or not isinstance(names, list) or len(names) < keys:
        return None
    return names if all(isinstance(name, str) for name in names) else None


def _starts(what: str, counts: Sequence[int], shared: bool) -> list[int]:
    """Return the first number of each trace."""
    if shared:
        return [0] * len(counts)
    starts = [0]
    for count in counts:
        starts.append(starts[-1] + count)
    if starts[-1] > _MOST:
        raise ValueError(
            f"there are {starts[-1]:,} {what} in all, allowed are {_MOST:,} (share_threads and "
            "share_keys decide whether they are kept apart)"
        )
    return starts[:-1]


# ---- objects, times, asides ---------------------------------------------------------------------


def _links(parts: Sequence[Trace]) -> list[tuple[npt.NDArray[np.int64], int]]:
    """Return what each object of each part is in the whole, and how many it inherited."""
    links: list[tuple[npt.NDArray[np.int64], int]] = []
    objects = 0
    alive = np.zeros(0, dtype=np.int64)
    before: Live | None = None
    for number, trace in enumerate(parts):
        inherited = 0
        if before is not None:
            inherited = len(before.objects)
            _check_inherited(number, trace, before)
        whole = np.concatenate(
            [alive, np.arange(objects, objects + trace.n_objects - inherited)]
        ).astype(np.int64)
        links.append((whole, inherited))
        objects += trace.n_objects - inherited
        before = live_at(trace, len(trace))
        alive = whole[before.objects]
    return links


def _check_inherited(number: int, trace: Trace, before: Live) -> None:
    cuts = trace.metadata.get("cuts")
    cut = cuts[-1] if isinstance(cuts, list) and cuts else None
    claimed = cut.get("inherited_objects") if isinstance(cut, dict) else None
    expected = len(before.objects)
    if claimed != expected:
        raise ValueError(
            f"traces[{number}] says that it inherited {claimed!r} objects, expected the {expected} "
            f"that live at the end of traces[{number - 1}]"
        )
    if (trace.op[:expected] != OP_ALLOC).any() or not np.array_equal(
        trace.size_bytes[:expected], before.size_bytes
    ):
        raise ValueError(
            f"traces[{number}] does not begin with the {expected} objects that live at the end of "
            f"traces[{number - 1}], in their sizes"
        )


def _moved(trace: Trace, now: int) -> int:
    """Return how much later a trace must be so that it does not begin before `now`."""
    assert trace.time_ns is not None
    if not len(trace):
        return 0
    moved = max(0, now - int(trace.time_ns[0]))
    if int(trace.time_ns[-1]) + moved > 2**64 - 1:
        raise ValueError("the times of the traces, one after the other, do not fit 64 bits")
    return moved


def _move_times(piece: _Piece) -> None:
    # Modulo 2**64, where a number below 0 moves back.
    moved = np.uint64(piece.moved_ns % 2**64)
    piece.columns["time_ns"] = piece.columns["time_ns"] + moved
    for table in piece.asides.values():
        for name in TIMES:
            if name in table and table[name].dtype == np.uint64:
                # What was before the first event of a trace stays at 0.
                back = np.uint64(max(0, -piece.moved_ns))
                table[name] = np.maximum(table[name], back) + moved


def _renumber_asides(
    piece: _Piece, events: npt.NDArray[np.intp], objects: npt.NDArray[np.int64]
) -> None:
    """Put rows before the events that they stand before in the whole, and name its objects."""
    for table in piece.asides.values():
        table["event"] = events[table["event"]].astype(np.uint64)
        if "object" in table:
            wide = table["object"].astype(np.uint64)
            wide[table["object"] == np.iinfo(table["object"].dtype).max] = 2**64 - 1
            table["object"] = renumbered(wide, objects)


def _one_table(
    rows: Sequence[dict[str, npt.NDArray[Any]]], dtype: np.dtype[Any]
) -> dict[str, Array]:
    """Put the rows of several parts into one table, in the order of their events."""
    names = list(dict.fromkeys(name for table in rows for name in table))
    made: dict[str, Array] = {}
    for name in names:
        made[name] = np.concatenate(
            [
                table[name]
                if name in table
                else np.full(
                    len(table["event"]), 2**64 - 1 if name == "object" else 0, np.uint64
                ).astype(np.uint64 if name == "object" else _dtype_of(rows, name))
                for table in rows
            ]
        )
        if name == "object":
            # All bits one stay all bits one.
            made[name] = made[name].astype(dtype)
    order = np.argsort(made["event"], kind="stable")
    return {name: column[order] for name, column in made.items()}


def _dtype_of(rows: Sequence[dict[str, npt.NDArray[Any]]], name: str) -> np.dtype[Any]:
    return next(table[name].dtype for table in rows if name in table)


def _free_rest(trace: Trace, columns: dict[str, npt.NDArray[Any]]) -> None:
    """Add frees of all that lives at the end of a trace."""
    left = live_at(trace, len(trace))
    if not len(left.objects):
        return
    rest = {name: column[left.alloc_events] for name, column in columns.items()}
    rest["op"] = np.full(len(left.objects), OP_FREE, dtype=np.uint8)
    rest["size_bytes"] = np.zeros(len(left.objects), dtype=np.uint64)
    rest["thread"] = columns["thread"][left.last_events]
    if "align_log2" in rest:
        rest["align_log2"] = np.zeros(len(left.objects), dtype=np.uint8)
    if "call" in rest:
        rest["call"] = np.zeros(len(left.objects), dtype=np.uint8)
    if "time_ns" in rest:
        rest["time_ns"] = np.full(len(left.objects), columns["time_ns"][-1], dtype=np.uint64)
    for name, column in rest.items():
        columns[name] = np.concatenate([columns[name], column])
