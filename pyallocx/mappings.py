"""What a program mapped, as a trace: chunks of memory instead of what is carved out of them."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np

from pyallocx.trace import OP_ALLOC, OP_FREE, OP_REALLOC, Trace

__all__ = ["mappings_trace"]

_PAGE: Final = 4096
_MMAP, _MUNMAP, _MPROTECT, _MREMAP = range(4)
_EXEC: Final = 4
_ANONYMOUS: Final = 0x20
_KEYS: Final = ("anonymous", "file", "executable anonymous", "executable file")
# The process's address space ends far below; what is above is no address.
_MOST_ADDRESS: Final = 1 << 57


def mappings_trace(trace: Trace, executable: bool | None = None) -> Trace:
    """Return the mappings of a recorded program as a trace: an mmap is an alloc, a munmap a free.

    So what an allocator or a just-in-time compiler takes from the system can be looked at like what
    a program takes from an allocator: the churn of code chunks, say, with ``executable=True``.

    Parameters
    ----------
    trace : Trace
        Recorded with ``maps=True``: it has the aside ``maps``.
    executable : bool, optional
        True: only memory that can be executed, or could once, from that moment on until it is
        unmapped; that its protection goes back and forth is no event. False: only other memory, as
        long as it is that. By default all; then mprotect means nothing.

    Returns
    -------
    Trace
        Sizes are whole pages of 4096 bytes. What is unmapped of a mapping's beginning or end is a
        realloc to the rest, of its middle a realloc to the low part and an alloc of the high one.
        mremap is a realloc. `key` says what was mapped, ``metadata["key_names"]`` in words. In
        ``metadata["counts"]``: ``unmaps_of_unknown``, of what was mapped before the recording or
        by the loader, and ``maps_replaced``, mappings that others took the place of (MAP_FIXED).

    Raises
    ------
    ValueError
        `trace` was not recorded with maps.

    Examples
    --------
    >>> import pyallocx as px
    >>> maps = {
    ...     "event": [0, 0], "thread": [0, 0], "time_ns": [5, 9], "call": [0, 1],
    ...     "address": [65536, 65536], "size_bytes": [8192, 4096], "prot": [3, 0],
    ...     "flags": [34, 0], "old_address": [0, 0], "old_bytes": [0, 0],
    ... }
    >>> made = px.mappings_trace(px.Trace([], [], [], asides={"maps": maps}))
    >>> made.op.tolist(), made.size_bytes.tolist()
    ([0, 2], [8192, 4096])
    """
    aside = trace.asides.get("maps")
    if aside is None:
        raise ValueError("the trace has no aside 'maps': record with maps=True (--maps)")
    space = _Space(executable)
    names = ("thread", "time_ns", "call", "address", "size_bytes", "prot", "flags")
    columns = [aside[name].tolist() for name in (*names, "old_address", "old_bytes")]
    for thread, time, call, address, size, prot, flags, old, old_size in zip(*columns, strict=True):
        space.thread, space.time = thread, time
        start, end = _pages(address, size)
        if call == _MMAP:
            space.map(start, end, bool(prot & _EXEC), bool(flags & _ANONYMOUS))
        elif call == _MUNMAP:
            space.unmap(start, end)
        elif call == _MPROTECT and prot & _EXEC:
            space.make_executable(start, end)
        elif call == _MREMAP:
            space.move(*_pages(old, old_size), start, end)
    about = ("program", "command", "returncode", "clock")
    metadata: dict[str, Any] = {
        "reader": "mappings",
        **{name: trace.metadata[name] for name in about if name in trace.metadata},
        "executable": executable,
        "key_names": list(_KEYS),
        "counts": {name: count for name, count in space.counts.items() if count},
    }
    return Trace(**space.columns(), metadata=metadata, progress=False)


def _pages(address: int, size: int) -> tuple[int, int]:
    start = min(address, _MOST_ADDRESS)
    return start, min(start + -(-size // _PAGE) * _PAGE, _MOST_ADDRESS + _PAGE)


@dataclass(frozen=True)
class _Piece:
    """A mapping, or what is left of one; `object` is None where the trace does not show it."""

    start: int
    end: int
    executable: bool
    anonymous: bool
    object: int | None


@dataclass
class _Space:
    """The address space: disjoint pieces by their starts; and the events so far."""

    wanted: bool | None
    thread: int = 0
    time: int = 0
    starts: list[int] = field(default_factory=list)
    pieces: dict[int, _Piece] = field(default_factory=dict)
    events: list[tuple[int, int, int, int, int, int]] = field(default_factory=list)
    objects: int = 0
    counts: dict[str, int] = field(
        default_factory=lambda: {"unmaps_of_unknown": 0, "maps_replaced": 0}
    )

    def columns(self) -> dict[str, Any]:
        table = np.array(self.events, dtype=np.uint64).reshape(-1, 6)
        names = ("op", "object", "size_bytes", "thread", "time_ns", "key")
        return {name: table[:, i] for i, name in enumerate(names)}

    def _event(self, op: int, object: int, size: int, piece: _Piece) -> None:
        key = 2 * piece.executable + (not piece.anonymous)
        self.events.append((op, object, size, self.thread, self.time, key))

    def _shown(self, executable: bool) -> bool:
        return self.wanted is None or self.wanted == executable

    def _put(self, piece: _Piece) -> None:
        self.starts.insert(bisect_left(self.starts, piece.start), piece.start)
        self.pieces[piece.start] = piece

    def _add(self, start: int, end: int, executable: bool, anonymous: bool) -> None:
        """Put a new mapping where nothing is."""
        if start >= end:
            return
        object = self.objects if self._shown(executable) else None
        piece = _Piece(start, end, executable, anonymous, object)
        if object is not None:
            self.objects += 1
            self._event(OP_ALLOC, object, end - start, piece)
        self._put(piece)

    def _take(self, start: int, end: int) -> list[_Piece]:
        """Remove what has a byte in a range, whole; no event."""
        if start >= end:
            return []
        low = bisect_right(self.starts, start)
        if low and self.pieces[self.starts[low - 1]].end > start:
            low -= 1
        high = bisect_left(self.starts, end, low)
        taken = [self.pieces.pop(begin) for begin in self.starts[low:high]]
        del self.starts[low:high]
        return taken

    def _cut(self, piece: _Piece, start: int, end: int) -> None:
        """Put back of a piece that was taken what is outside of a range, with the events."""
        parts = [(piece.start, min(piece.end, start)), (max(piece.start, end), piece.end)]
        kept = [(low, high) for low, high in parts if low < high]
        object = piece.object
        if object is not None and not kept:
            self._event(OP_FREE, object, 0, piece)
        for low, high in kept[:1]:
            self._put(_Piece(low, high, piece.executable, piece.anonymous, object))
            if object is not None:
                self._event(OP_REALLOC, object, high - low, piece)
        for low, high in kept[1:]:
            self._add(low, high, piece.executable, piece.anonymous)

    def map(self, start: int, end: int, executable: bool, anonymous: bool) -> None:
        self.counts["maps_replaced"] += self.unmap(start, end, known=False)
        self._add(start, end, executable, anonymous)

    def unmap(self, start: int, end: int, known: bool = True) -> int:
        taken = self._take(start, end)
        for piece in taken:
            self._cut(piece, start, end)
        self.counts["unmaps_of_unknown"] += known and not taken
        return len(taken)

    def make_executable(self, start: int, end: int) -> None:
        if self.wanted is None:
            return
        for piece in self._take(start, end):
            if piece.executable:
                self._put(piece)
            else:
                low, high = max(piece.start, start), min(piece.end, end)
                self._cut(piece, start, end)
                self._add(low, high, True, piece.anonymous)

    def move(self, old_start: int, old_end: int, start: int, end: int) -> None:
        """Resize a mapping, in place or not; a part of one becomes one by itself."""
        taken = self._take(old_start, old_end)
        whole = len(taken) == 1 and (taken[0].start, taken[0].end) == (old_start, old_end)
        first = taken[0] if taken else _Piece(0, 0, False, True, None)
        if not whole:
            for piece in taken:
                self._cut(piece, old_start, old_end)
        self.unmap(start, end, known=False)
        if whole and start >= end:
            self._cut(first, first.start, first.end)
        elif not whole:
            self._add(start, end, first.executable, first.anonymous)
        else:
            self._put(_Piece(start, end, first.executable, first.anonymous, first.object))
            if first.object is not None:
                self._event(OP_REALLOC, first.object, end - start, first)
