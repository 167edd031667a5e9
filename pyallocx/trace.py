"""Traces: the ordered allocation events of one run, as columns.

>>> import pyallocx as px
>>> trace = px.Trace(
...     op=[px.OP_ALLOC, px.OP_ALLOC, px.OP_FREE, px.OP_REALLOC],
...     object=[0, 1, 0, 1],
...     size_bytes=[48, 8, 0, 16],
... )
>>> trace
Trace(4 events, 2 objects)
>>> trace.summary()["peak_live_bytes"]
56
"""

from __future__ import annotations

import copy
import json
import os
import re
from collections.abc import Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, ClassVar, Final, NoReturn

import numpy as np
import numpy.typing as npt

from pyallocx._asides import Asides, checked_asides, owned_asides
from pyallocx._columns import (
    CALLS,
    COLUMN_DTYPES,
    OP_ALLOC,
    OP_DESTROY,
    OP_FREE,
    OP_REALLOC,
    Array,
    owned_column,
    sealed,
)
from pyallocx._core import TraceCheck, TraceError, TraceSummary
from pyallocx._progress import progress_bar
from pyallocx._traceparts import TraceParts

if TYPE_CHECKING:
    from pyallocx._core import TraceTimeline
    from pyallocx.profile import Profile
    from pyallocx.timeline import Lifetimes, Sizes, Timeline

__all__ = [
    "CALLS",
    "FORMAT_VERSION",
    "OP_ALLOC",
    "OP_DESTROY",
    "OP_FREE",
    "OP_REALLOC",
    "Trace",
    "load",
]

FORMAT_VERSION: Final = 1

# What bytes of a name that are no UTF-8 become (os.fsdecode); in JSON only strings have them.
_SURROGATE: Final = re.compile(r"[\ud800-\udfff]")

# A step of about 10 ms, so that Ctrl-C is answered at once.
_STEP_EVENTS: Final = 1 << 20
_LONG_EVENTS: Final = 50_000_000


class Trace(TraceParts):
    r"""The ordered allocation events of one run: immutable columns of equal length.

    Parameters
    ----------
    op : array_like of int, shape (n,)
        `OP_ALLOC`, `OP_FREE`, `OP_REALLOC` or `OP_DESTROY`.
    object : array_like of int, shape (n,)
        The object of each event. The k-th alloc makes object k; a realloc keeps its object; a
        destroy has all bits one (in a signed column: -1). uint32 stays uint32, all else becomes
        uint64.
    size_bytes : array_like of int, shape (n,)
        Request sizes of allocs and reallocs in bytes; 0 for other events, where nobody looks.
    thread : array_like of int, shape (n,), optional
        Dense thread numbers; all 0 where not given.
    align_log2 : array_like of int, shape (n,), optional
        Binary logarithms of the alignments asked for, 0 to 63; 0 where none was.
    time_ns : array_like of int, shape (n,), optional
        Times in nanoseconds, never decreasing.
    key : array_like of int, shape (n,), optional
        A type, a frame or a call site.
    arena : array_like of int, shape (n,), optional
        Dense arena numbers; in a free or realloc, of the arena that owns the object. A destroy
        needs this column.
    call : array_like of int, shape (n,), optional
        The function that made each event, as a place in `CALLS`; 0 where it is not known.
    asides : mapping of str to mapping of str to array_like of int, optional
        What happened beside the events: tables by name, each of columns of one length. Every one
        has a column ``event``, never decreasing: a row stands before that event, or after the last
        where it is n. A column ``object`` names objects of the trace; all bits one (or -1) is
        none. Unsigned columns keep their dtype (``event`` becomes uint64, ``object`` at least
        uint32), all others become uint64. Names are of letters, digits and underscores.
    metadata : mapping, optional
        Where the trace comes from: whatever JSON can hold. Bytes of file names that are no UTF-8
        (surrogates, as `os.fsdecode` makes them) are written out, ``\xff``.
    progress : bool, optional
        Whether to show a progress bar while checking. By default for long traces, where standard
        error is a terminal.

    Attributes
    ----------
    op : ndarray of uint8, shape (n,)
    thread : ndarray of uint32, shape (n,)
    object : ndarray of uint32 or uint64, shape (n,)
    size_bytes : ndarray of uint64, shape (n,)
    align_log2 : ndarray of uint8, shape (n,), or None
    time_ns : ndarray of uint64, shape (n,), or None
    key : ndarray of uint32, shape (n,), or None
    arena : ndarray of uint32, shape (n,), or None
    call : ndarray of uint8, shape (n,), or None
    asides : mapping of str to mapping of str to ndarray
    metadata : mapping

    Raises
    ------
    TypeError
        A column is None where it may not be, or does not hold integers.
    ValueError
        A column has another length than `op`, is not one-dimensional, or holds a value outside
        the range of its dtype.
    TraceError
        The events break a rule of traces: an unknown operation, an object out of order, never
        allocated or already dead, an arena that does not own the object, a time that runs
        backwards, an unknown call. The message names the event. Or an aside has no ``event``,
        columns of several lengths, or a row before what is there.

    Notes
    -----
    The columns are copied and cannot be made writeable, so that nobody changes them. Two traces are
    equal where their columns are; metadata and asides do not count.

    What recorders and readers put into asides: ``realloc_begin`` (``event``, ``time_ns``: when the
    call of realloc that made the event began; the event's own time is when it returned. The event
    is a realloc, a free where realloc freed, an alloc where the old object was not known),
    ``failed`` (``event``, ``thread``, ``time_ns``, ``begin_ns``, ``call``, ``size_bytes``,
    ``align_bytes``, ``object``: calls that failed; of what is no realloc both times are one; the
    object of a realloc lives on), ``asked_align`` (``event``, ``align_bytes``: what the alloc that
    is the event asked for, where that is no power of two), ``usable_size`` (``event``, ``thread``,
    ``time_ns``, ``object``, ``size_bytes``: malloc_usable_size and its answer), ``maps``
    (``event``, ``thread``, ``time_ns``, ``call`` (0 mmap, 1 munmap, 2 mprotect, 3 mremap),
    ``address``, ``size_bytes``, ``prot``, ``flags``, ``old_address``, ``old_bytes``).
    """

    __slots__ = (
        "__weakref__",
        "_n_objects",
        "_summary",
        "align_log2",
        "arena",
        "asides",
        "call",
        "key",
        "metadata",
        "object",
        "op",
        "size_bytes",
        "thread",
        "time_ns",
    )

    op: npt.NDArray[np.uint8]
    thread: npt.NDArray[np.uint32]
    object: npt.NDArray[np.uint32] | npt.NDArray[np.uint64]
    size_bytes: npt.NDArray[np.uint64]
    align_log2: npt.NDArray[np.uint8] | None
    time_ns: npt.NDArray[np.uint64] | None
    key: npt.NDArray[np.uint32] | None
    arena: npt.NDArray[np.uint32] | None
    call: npt.NDArray[np.uint8] | None
    asides: Asides
    metadata: Mapping[str, Any]
    _n_objects: int
    _summary: dict[str, int | None] | None

    __hash__: ClassVar[None]  # type: ignore[assignment]

    def __init__(
        self,
        op: npt.ArrayLike,
        object: npt.ArrayLike,
        size_bytes: npt.ArrayLike,
        *,
        thread: npt.ArrayLike | None = None,
        align_log2: npt.ArrayLike | None = None,
        time_ns: npt.ArrayLike | None = None,
        key: npt.ArrayLike | None = None,
        arena: npt.ArrayLike | None = None,
        call: npt.ArrayLike | None = None,
        asides: Mapping[str, Mapping[str, npt.ArrayLike]] | None = None,
        metadata: Mapping[str, Any] | None = None,
        progress: bool | None = None,
    ) -> None:
        columns: dict[str, Array | None] = {"op": owned_column("op", op, None)}
        events = len(columns["op"]) if columns["op"] is not None else 0
        columns["object"] = owned_column("object", object, events)
        columns["size_bytes"] = owned_column("size_bytes", size_bytes, events)
        optional = {
            "thread": thread,
            "align_log2": align_log2,
            "time_ns": time_ns,
            "key": key,
            "arena": arena,
            "call": call,
        }
        for name, value in optional.items():
            columns[name] = None if value is None else owned_column(name, value, events)
        beside = {} if asides is None else owned_asides(asides)
        self._fill(columns, {} if metadata is None else metadata)
        self._check(progress, beside)

    @classmethod
    def _adopt(
        cls,
        columns: Mapping[str, Array | None],
        metadata: Mapping[str, Any],
        progress: bool | None,
        asides: Mapping[str, Mapping[str, Array]] | None = None,
    ) -> Trace:
        """Make a trace of columns that nobody else writes to, without copying; checked as ever."""
        self = cls.__new__(cls)
        self._fill(columns, metadata)
        self._check(progress, {} if asides is None else asides)
        return self

    @classmethod
    def _restore(
        cls,
        columns: Mapping[str, Array | None],
        metadata: Mapping[str, Any],
        n_objects: int,
        asides: Mapping[str, Mapping[str, Array]] | None = None,
    ) -> Trace:
        """Undo `__reduce__`. The events were checked when the pickled trace was made."""
        self = cls.__new__(cls)
        self._fill(columns, metadata)
        beside = {} if asides is None else asides
        _set(self, "asides", checked_asides(beside, len(self), n_objects))
        _set(self, "_n_objects", n_objects)
        return self

    def _fill(self, columns: Mapping[str, Array | None], metadata: Mapping[str, Any]) -> None:
        for name in COLUMN_DTYPES:
            column = columns.get(name)
            if column is None and name == "thread":
                # Not broadcast: the column must be contiguous. Untouched zeros cost no memory.
                column = np.zeros(len(self.op), dtype=np.uint32)
            _set(self, name, None if column is None else sealed(column))
        # Through JSON: a deep copy, and a proof that the trace can be saved and shown.
        text = json.dumps(dict(metadata), allow_nan=False, ensure_ascii=False)
        copied = json.loads(_SURROGATE.sub(_escaped, text))
        _set(self, "metadata", MappingProxyType(copied))
        _set(self, "asides", MappingProxyType({}))
        _set(self, "_n_objects", 0)
        _set(self, "_summary", None)

    def _walk_columns(self) -> tuple[Array | None, ...]:
        return (
            self.op,
            self.object,
            self.size_bytes,
            self.thread,
            self.key,
            self.arena,
            self.time_ns,
        )

    def _check(self, progress: bool | None, asides: Mapping[str, Mapping[str, Array]]) -> None:
        check = TraceCheck(*self._walk_columns())
        self._walk(check, "checking", progress)
        if self.align_log2 is not None and len(self) and int(self.align_log2.max()) > 63:
            at = int(np.argmax(self.align_log2 > 63))
            raise TraceError(
                f"event {at}: align_log2 is {self.align_log2[at]}, allowed are 0 to 63"
            )
        if self.call is not None and len(self) and int(self.call.max()) >= len(CALLS):
            at = int(np.argmax(self.call >= len(CALLS)))
            raise TraceError(
                f"event {at}: call is {self.call[at]}, allowed are 0 to {len(CALLS) - 1}"
            )
        _set(self, "_n_objects", check.objects())
        _set(self, "asides", checked_asides(asides, len(self), self._n_objects))

    def _walk(
        self, walker: TraceCheck | TraceSummary | TraceTimeline, doing: str, progress: bool | None
    ) -> None:
        events = len(self)
        bar = progress_bar(events, doing, " events", wanted=progress, long=events >= _LONG_EVENTS)
        try:
            done = 0
            while done < events:
                now = walker.step(_STEP_EVENTS)
                bar.update(now - done)
                done = now
        finally:
            bar.close()

    def __setattr__(self, name: str, value: Any) -> NoReturn:
        raise AttributeError(f"a Trace is immutable: cannot set '{name}'")

    def __delattr__(self, name: str) -> NoReturn:
        raise AttributeError(f"a Trace is immutable: cannot delete '{name}'")

    def __copy__(self) -> Trace:
        return self

    def __deepcopy__(self, memo: dict[int, Any]) -> Trace:
        return self

    def __reduce__(self) -> tuple[Any, ...]:
        columns = {
            # A memory-mapped column travels as what it holds: the file may not be there.
            name: None if column is None else np.asarray(column)
            for name, column in self.columns().items()
        }
        metadata = copy.deepcopy(dict(self.metadata))
        asides = {
            name: {column: np.asarray(array) for column, array in aside.items()}
            for name, aside in self.asides.items()
        }
        return type(self)._restore, (columns, metadata, self._n_objects, asides)

    def columns(self) -> dict[str, Array | None]:
        """Return all columns by name, None where unknown.

        Returns
        -------
        dict
            The columns themselves, read-only, in the order of the file.
        """
        return {name: getattr(self, name) for name in COLUMN_DTYPES}

    @property
    def n_objects(self) -> int:
        """The number of objects, which is the number of allocs."""
        return self._n_objects

    def __len__(self) -> int:
        return len(self.op)

    def __eq__(self, other: Any) -> bool:
        if not isinstance(other, Trace):
            return NotImplemented
        if len(self) != len(other) or self._n_objects != other._n_objects:
            return False
        for name, mine in self.columns().items():
            theirs = getattr(other, name)
            if mine is None or theirs is None:
                if mine is not theirs:
                    return False
            elif mine.dtype == theirs.dtype:
                if not np.array_equal(mine, theirs):
                    return False
            elif not _same_objects(self, other):
                return False
        return True

    def summary(self) -> dict[str, int | None]:
        """Return what there is to know about the trace in numbers.

        Returns
        -------
        dict
            Flat and fit for JSON; the trace is walked once, then remembered.

            ``events``, ``allocs``, ``frees``, ``reallocs``, ``destroys``
                Events, in all and by operation.
            ``objects``
                Objects, as many as allocs.
            ``threads``, ``arenas``, ``keys``
                How many different ones occur; ``keys`` is None without a column of keys, and a
                trace without arenas counts as one arena.
            ``distinct_sizes``, ``largest_size_bytes``
                Of the request sizes of allocs and reallocs.
            ``allocated_bytes``
                The sum of the request sizes of all allocs and reallocs.
            ``peak_live_bytes``, ``peak_live_objects``, ``peak_event``
                The largest sum of the request sizes of live objects; the live objects at that
                moment; the event after which it was first reached (None without events).
            ``most_live_objects``
                The largest number of live objects, whenever that was.
            ``live_bytes_end``, ``live_objects_end``
                What is still live after the last event.
            ``cross_thread_frees``
                Frees by another thread than the one that allocated the object or, where it was
                reallocated, did so last.
            ``first_time_ns``, ``last_time_ns``, ``duration_ns``
                None without times or without events.

        Raises
        ------
        OverflowError
            A sum of sizes does not fit 64 bits.
        """
        if self._summary is None:
            walker = TraceSummary(*self._walk_columns())
            self._walk(walker, "summing up", None)
            totals: dict[str, int | None] = {"events": len(self), **walker.totals()}
            first, last = totals.pop("first_time_ns"), totals.pop("last_time_ns")
            timed = self.time_ns is not None and len(self) > 0
            if self.key is None:
                totals["keys"] = None
            if not len(self):
                totals["peak_event"] = None
            totals["first_time_ns"] = first if timed else None
            totals["last_time_ns"] = last if timed else None
            totals["duration_ns"] = (last or 0) - (first or 0) if timed else None
            _set(self, "_summary", totals)
        assert self._summary is not None
        return dict(self._summary)

    def save(
        self,
        path: str | os.PathLike[str],
        compress: bool = True,
        *,
        progress: bool | None = None,
    ) -> None:
        """Write the trace to an ``.npz`` file.

        The file holds one ``.npy`` member per column and ``metadata.json``; ``numpy.load`` reads
        it. Compressed, most columns are packed: docs/traces.md has the lines of NumPy that undo
        it. The file is written beside `path` and then renamed, so that `path` is either the old
        file or the whole new one.

        Parameters
        ----------
        path : str or path-like
            Where to; the name is taken as it is.
        compress : bool, default True
            False makes a file of plain columns that `load` maps into memory instead of reading it.
        progress : bool, optional
            Whether to show a progress bar. By default for large traces, where standard error is a
            terminal.

        Raises
        ------
        OSError
            The file could not be written; `path` is as it was.
        """
        from pyallocx._npz import save

        save(self, os.fsdecode(path), compress=compress, progress=progress)

    def profile(self, weight: str = "count") -> Profile:
        """Return how much each request size weighs in the trace, without order.

        Parameters
        ----------
        weight : {"count", "peak", "end", "byte_time"}, default "count"
            ``"count"``: the requests of a size; each alloc and each realloc is one, of its new
            size. ``"peak"``: the objects that are live when the live bytes are the most for the
            first time (after the event ``peak_event`` of `summary`), by current size. ``"end"``:
            the same after the last event. ``"byte_time"``: how long objects had a size, all of
            them together, so that the size times its weight is its byte-time. In nanoseconds where
            the trace has times, else in events. An object has the size it was allocated with until
            its next realloc, then that of the realloc, and so on until it dies by a free or with
            its arena; what is still live at the end lived until the time of the last event, or
            counted in events until after it.

        Returns
        -------
        Profile
            Its counts are exact sums, rounded once to float. Sizes of weight 0, which byte-time can
            have, are left out and counted in ``metadata["sizes_without_time"]``. Of a trace with
            `align_log2`, ``metadata["aligned_requests"]`` counts the allocs and reallocs of an
            alignment above 16; their sizes are taken as they are.

        Raises
        ------
        ValueError
            `weight` is none of these; nothing has the weight asked for (no object is live at the
            end, say); or a size is above 2**48.
        OverflowError
            With ``"peak"``, where `summary` raises it.

        Examples
        --------
        >>> import pyallocx as px
        >>> trace = px.Trace(op=[0, 0, 1, 2], object=[0, 1, 0, 1], size_bytes=[48, 8, 0, 16])
        >>> trace.profile("peak")
        Profile(2 sizes, count 2, 56 B)
        >>> trace.profile("byte_time").counts  # of 8, 16 and 48 bytes, in events
        array([2., 1., 2.])
        """
        from pyallocx._traceprofile import profile_of

        return profile_of(self, weight)

    def __repr__(self) -> str:
        parts = [f"{len(self):,} events", f"{self._n_objects:,} objects"]
        known = [
            n
            for n in ("align_log2", "time_ns", "key", "arena", "call")
            if getattr(self, n) is not None
        ]
        if known:
            parts.append(f"with {' '.join(known)}")
        if self.asides:
            parts.append(f"beside {' '.join(self.asides)}")
        origin = self.metadata.get("file")
        if isinstance(origin, str):
            parts.append(f"from {origin!r}")
        return f"Trace({', '.join(parts)})"

    def _repr_html_(self) -> str:
        from pyallocx._tracehtml import trace_html

        return trace_html(self)

    def timeline(
        self, points: int = 1000, by: str = "event", *, progress: bool | None = None
    ) -> Timeline:
        """Return what happened, and what was live, over the run: `pyallocx.timeline` of this.

        Parameters
        ----------
        points : int, default 1000
            Intervals, from 1 to 2**24; no more than there are events (or nanoseconds).
        by : {"event", "time"}, default "event"
            Whether the intervals have equally many events or are equally long.
        progress : bool, optional
            Whether to show a progress bar. By default for long traces, where standard error is a
            terminal.

        Returns
        -------
        Timeline

        Raises
        ------
        ValueError
            `by` is none of these, or ``"time"`` without times; `points` is out of range.
        OverflowError
            A sum of sizes does not fit 64 bits.
        """
        from pyallocx.timeline import timeline

        return timeline(self, points, by, progress=progress)

    def lifetimes(self) -> Lifetimes:
        """Return how long each object lived: `pyallocx.lifetimes` of this."""
        from pyallocx.timeline import lifetimes

        return lifetimes(self)

    def sizes(self) -> Sizes:
        """Return what each request size was to the trace: `pyallocx.sizes` of this."""
        from pyallocx.timeline import sizes

        return sizes(self)


def _escaped(found: re.Match[str]) -> str:
    """Write a surrogate, which no file of text can hold, as people write the byte it stands for."""
    code = ord(found[0])
    return rf"\\x{code - 0xDC00:02x}" if 0xDC80 <= code <= 0xDCFF else rf"\\u{code:04x}"


# The one door past __setattr__, for Trace alone.
_set = object.__setattr__


def _same_objects(one: Trace, other: Trace) -> bool:
    """Whether two object columns of different widths name the same objects."""
    narrow, wide = one.object, other.object
    if narrow.dtype.itemsize > wide.dtype.itemsize:
        narrow, wide = wide, narrow
    none = one.op == OP_DESTROY
    return bool(np.array_equal(narrow[~none], wide[~none]))


def load(
    path: str | os.PathLike[str],
    *,
    on_error: str = "raise",
    format: str | None = None,
    member: str | None = None,
    progress: bool | None = None,
) -> Trace:
    """Read a trace from a file, whatever known format it is in.

    The format is recognised by content, never by name: the ``.npz`` files of `Trace.save`, and the
    traces and code traces that `formats` lists (Android's memory_replay, glibc's mtrace, logalloc,
    ltrace, valgrind, heaptrack, memray and others), and any of these inside gzip, zstd, xz, bzip2
    or a zip with one member (stored or deflated), nested or not. Foreign formats are read in
    pieces; nothing is unpacked as a whole into memory. Columns that an ``.npz`` holds uncompressed
    are mapped into memory, so that a trace may be larger than memory; such a file must not be
    changed while the trace lives.

    Parameters
    ----------
    path : str or path-like
        The file.
    on_error : {"raise", "skip"}, default "raise"
        What to do about a line that the format does not allow and about an event that cannot be
        (a free of what is not live, an allocation at a live address): raise `TraceError`, or drop
        it and count it in ``metadata["dropped"]`` by kind. Has no bearing on ``.npz``.
    format : str, optional
        Insist on a format instead of recognising it: ``"npz"``, ``"aosp"``, and what else
        `formats` lists for reading among traces and code traces.
    member : str, optional
        The member to read of a zip that has several.
    progress : bool, optional
        Whether to show a progress bar. By default for large files, where standard error is a
        terminal.

    Returns
    -------
    Trace
        Its metadata says where it comes from. After text: ``format_version``, ``reader``, ``file``
        (base name), ``member`` where in a zip, ``counts`` (what was met beside events, such as
        ``frees_of_null``, ``failed_allocs``, ``times_raised``), ``dropped``, and where the format
        has them ``tids`` and ``pids``, the thread and process number in the file of each dense
        thread, and ``key_names``. Kinds that did not occur are left out. After a code trace also
        ``key_names``, and ``obtained``: for ``allocs`` and ``frees`` how many were ``seen`` in the
        file, and how many ``inferred`` by which rule.

    Raises
    ------
    OSError
        The file does not exist, is a directory or cannot be read.
    TraceError
        The file is empty, of no known format, truncated or damaged, or breaks a rule. The message
        names the file, and the line where there are lines (in a jitdump: the offset).
    ValueError
        `on_error` or `format` is none of the above, or `member` is given and the file is no zip.

    Notes
    -----
    ``aosp``: an event keeps its place in the file; its time is its start, raised to the latest
    start before it, since starts of different threads need not be in order. An alignment that is
    not a power of two is raised to the next. ``mtrace``: programs free what they allocated before
    tracing began, so that real files often need ``on_error="skip"``.
    """
    from pyallocx._tracefile import load as load_file

    return load_file(
        os.fsdecode(path), on_error=on_error, format=format, member=member, progress=progress
    )
