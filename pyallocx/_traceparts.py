"""The methods of a trace that make traces of parts of it."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, cast

from pyallocx._traceops import between, divided, headed, selected, sliced

if TYPE_CHECKING:
    from pyallocx.trace import Trace


class TraceParts:
    """What `pyallocx.Trace` can be cut into."""

    __slots__ = ()

    def head(self, events: int) -> Trace:
        """Return the first events as a trace of its own: what a program had done by then.

        Parameters
        ----------
        events : int
            How many, from 0; of a shorter trace all.

        Returns
        -------
        Trace
            Its columns are parts of this one's; the metadata is a copy. Of the asides, the rows
            that stand before one of these events.

        Examples
        --------
        >>> import pyallocx as px
        >>> px.synthesize_code(1000).head(100)
        Trace(100 events, 100 objects, with key)
        """
        return headed(cast("Trace", self), events)

    def slice(
        self, start: int | None = None, stop: int | None = None, *, inherit: bool = True
    ) -> Trace:
        """Return the events from one to before another as a trace of its own.

        Parameters
        ----------
        start, stop : int, optional
            As in a slice of a list: from the beginning, to the end, and counted from the end where
            they are below 0.
        inherit : bool, default True
            An object that lives at the start becomes an alloc at the beginning of the slice: with
            the size that it has then, in the thread that gave it that size, and with the alignment,
            key, arena and call of its alloc. False leaves such objects and their events out.

        Returns
        -------
        Trace
            Objects are numbered anew, first those that were inherited, in the order in which they
            were allocated; their time is that of the first event. The metadata is a copy, in which
            ``cuts`` has a further entry: ``start``, ``stop``, ``of_events``, ``inherited_objects``,
            ``inherited_bytes`` and ``dropped_events``. The whole is returned as it is.

        See Also
        --------
        between : the same by time.
        concatenate : puts slices together again.

        Examples
        --------
        >>> import pyallocx as px
        >>> trace = px.Trace(op=[0, 2, 0, 1], object=[0, 0, 1, 0], size_bytes=[8, 40, 1, 0])
        >>> late = trace.slice(2)
        >>> late.op, late.size_bytes
        (array([0, 0, 1], dtype=uint8), array([40,  1,  0], dtype=uint64))
        >>> trace.slice(2, inherit=False)
        Trace(1 events, 1 objects)
        """
        return sliced(cast("Trace", self), start, stop, inherit)

    def between(
        self, start_ns: int | None = None, stop_ns: int | None = None, *, inherit: bool = True
    ) -> Trace:
        """Return the events from one time to before another as a trace of its own.

        Parameters
        ----------
        start_ns, stop_ns : int, optional
            An event of the time `start_ns` is in the result, one of `stop_ns` is not. By default
            from the first event, and to the last.
        inherit : bool, default True
            What becomes of objects that live at the start, see `slice`.

        Returns
        -------
        Trace
            See `slice`. Times stay as they are.

        Raises
        ------
        ValueError
            The trace has no times, or `stop_ns` is below `start_ns`.

        Examples
        --------
        >>> import pyallocx as px
        >>> trace = px.Trace([0, 0, 1], [0, 1, 0], [8, 16, 0], time_ns=[10, 20, 30])
        >>> trace.between(20, 30).size_bytes
        array([ 8, 16], dtype=uint64)
        """
        return between(cast("Trace", self), start_ns, stop_ns, inherit)

    def select(
        self,
        *,
        thread: int | Iterable[int] | None = None,
        key: int | str | Iterable[int | str] | None = None,
        size_bytes: int | tuple[int | None, int | None] | None = None,
        arena: int | Iterable[int] | None = None,
        call: int | str | Iterable[int | str] | None = None,
    ) -> Trace:
        """Return the objects whose alloc matches, with all that happens to them later.

        Parameters
        ----------
        thread, arena : int or iterable of int, optional
            Of the alloc: this one, or one of these.
        key : int, str or iterable of them, optional
            The same; also by name, where ``metadata["key_names"]`` has names.
        size_bytes : int or (low, high), optional
            The size of the alloc, or its bounds; both are allowed sizes, None is no bound.
        call : int, str or iterable of them, optional
            The function that made the object: a name of `CALLS`, or its place there.

        Returns
        -------
        Trace
            Objects are numbered anew, threads, keys and arenas are not. A destroy stays where it
            ends an arena in which a matching object was made. In asides, a row stays with the
            object or the event that it is about; another one stays unless its thread (of a failed
            call: its thread, size or call) is not among those asked for. The metadata is a copy in
            which ``cuts`` has a further entry. Without a criterion the trace itself.

        Raises
        ------
        TypeError
            A criterion is of none of these types.
        ValueError
            The trace does not have the column, a number is out of range, or a name is not known.

        Examples
        --------
        >>> import pyallocx as px
        >>> trace = px.Trace([0, 0, 1, 1], [0, 1, 0, 1], [8, 900, 0, 0], thread=[0, 0, 1, 1])
        >>> large = trace.select(size_bytes=(512, None))
        >>> large.size_bytes, large.thread
        (array([900,   0], dtype=uint64), array([0, 1], dtype=uint32))
        """
        return selected(cast("Trace", self), thread, key, size_bytes, arena, call)

    def by_arena(self) -> list[Trace]:
        """Return the events of each arena as a trace of its own, in the order of their numbers.

        Objects are numbered anew; threads, keys, times and the arena's number stay. A number that
        a destroy made free may stand for several arenas, one after the other. Rows of asides go
        with the object or the event that they are about; those about neither are in no part.

        Returns
        -------
        list of Trace
            One per number from 0 to the highest, the events together those of this trace. A trace
            without an arena column, or without events, is the only element.

        Examples
        --------
        >>> import pyallocx as px
        >>> trace = px.synthesize(1000, seed=1, arenas=3)
        >>> parts = trace.by_arena()
        >>> len(parts), sum(map(len, parts))
        (3, 1000)
        """
        return divided(cast("Trace", self))
