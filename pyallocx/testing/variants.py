"""The plain-Python twin behind the interface of `pyallocx.Arena`, and its wrong sisters.

A test that cannot fail proves nothing. Each class in `wrong_arenas` has one mistake that somebody
made or could make; a machine that does not catch it is not worth running.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from pyallocx._core import InvalidFree
from pyallocx.reference.arena import Arenas, Chunks, FreeList

__all__ = ["ReferenceArena", "wrong_arenas"]


@dataclass(eq=False)
class ReferenceHandle:
    """What `ReferenceArena.alloc` returns."""

    arena: ReferenceArena
    key: int
    size_bytes: int
    address: int
    number: int
    free_list: FreeList
    live: bool = True


class ReferenceArena:
    """`pyallocx.Arena` in plain Python, with addresses of its own making."""

    twin: type[Arenas] = Arenas

    def __init__(self, *, share: ReferenceArena | None = None, **params: Any) -> None:
        self.arenas: Arenas = share.arenas if share else self.twin(**params)
        self.names: Iterator[int] = share.names if share else itertools.count()
        self.memory: dict[int, tuple[int, bytearray]] = share.memory if share else {}
        self.name = next(self.names)
        self.sizes: dict[int, int] = {}
        self.closed = False
        self.arenas.pools.setdefault(self.name, Chunks())

    def alloc(self, key: int, size_bytes: int) -> ReferenceHandle:
        """Allocate an object."""
        rounded = self.arenas.rounded(size_bytes)
        intrusive = self.arenas.policy == "intrusive"
        if not intrusive and self.sizes.setdefault(key, rounded) != rounded:
            raise ValueError(f"key {key} holds objects of {self.sizes[key]} bytes")
        number = self.arenas.alloc(self.name, key, size_bytes)
        if number not in self.memory:
            end = max((a + len(m) for a, m in self.memory.values()), default=4096)
            self.memory[number] = (end, bytearray(rounded))
        free_list = self.arenas.list_of(self.name, key, size_bytes)
        return ReferenceHandle(self, key, size_bytes, self.memory[number][0], number, free_list)

    def free(self, key: int, handle: ReferenceHandle) -> None:
        """Free an object."""
        if self.closed:
            raise ValueError("arena is closed")
        if handle.arena is not self or not handle.live or handle.key != key:
            raise InvalidFree(f"{handle!r}")
        self.arenas.free(handle.free_list, handle.number)
        handle.live = False

    def view(self, handle: ReferenceHandle) -> memoryview:
        """Return the object's bytes."""
        if not handle.live:
            raise InvalidFree(f"{handle!r}")
        return memoryview(self.memory[handle.number][1])[: handle.size_bytes]

    def stats(self) -> dict[str, Any]:
        """Return the counters under the names of `pyallocx.Arena.stats`."""
        return {name.removesuffix("_end"): value for name, value in self.arenas.row().items()}

    def check(self) -> None:
        """Nothing to check: every total is recomputed."""

    def close(self) -> None:
        """Give everything back."""
        self.arenas.close(self.name)
        self.closed = True


class _ThresholdOffByOne(Arenas):
    """`<` where `<=` is meant: a buffer of exactly retain_bytes goes."""

    def keeps(self, free_list: FreeList) -> bool:
        if self.policy == "byte_cut":
            return free_list.buffer_bytes < self.retain_bytes
        return super().keeps(free_list)


class _CapacityAfterRemoval(Arenas):
    """The ordinary removal has freed the buffer before its capacity is looked at."""

    def keeps(self, free_list: FreeList) -> bool:
        if self.policy in ("byte_cut", "capacity_cut"):
            self.resize(free_list, 0)
        return super().keeps(free_list)


class _HeaderForgotten(Arenas):
    """The cut is compared with the bytes of the entries."""

    def keeps(self, free_list: FreeList) -> bool:
        if self.policy == "byte_cut":
            return free_list.buffer_bytes - self.header <= self.retain_bytes
        return super().keeps(free_list)


class _Fifo(Arenas):
    """The oldest freed object is reused first."""

    def take(self, free_list: FreeList) -> int:
        free_list.entries.reverse()
        taken = super().take(free_list)
        free_list.entries.reverse()
        return taken


class _ShrinkLosesAnEntry(Arenas):
    """A buffer that moves to a smaller one loses its last entry on the way."""

    def resize(self, free_list: FreeList, new_bytes: int) -> None:
        if 0 < new_bytes < free_list.buffer_bytes and len(free_list.entries) > 1:
            free_list.entries.pop()
        super().resize(free_list, new_bytes)


class _RestartsHigh(Arenas):
    """A list that gave its buffer back starts again at the size it had."""

    def make_room(self, free_list: FreeList) -> None:
        if self.policy != "intrusive" and free_list.buffer_bytes == 0 and free_list.transitions:
            self.resize(free_list, 64)
        super().make_room(free_list)


class _WindowForgetsThisEpisode(Arenas):
    """The peak that has just passed is not among those remembered."""

    def keeps(self, free_list: FreeList) -> bool:
        if self.policy != "peak_window":
            return super().keeps(free_list)
        peak, free_list.peak = free_list.peak, max(free_list.last_peaks, default=0)
        kept = super().keeps(free_list)
        free_list.last_peaks[-1] = free_list.peak = peak
        return kept


class _BudgetLeaks(Arenas):
    """A refilled list goes on counting in the budget."""

    def make_room(self, free_list: FreeList) -> None:
        counted = free_list.in_budget
        super().make_room(free_list)
        free_list.in_budget = counted


class _AgeNeverResets(Arenas):
    """A list that was refilled is released all the same when its time has come."""

    def make_room(self, free_list: FreeList) -> None:
        since = free_list.empty_since
        super().make_room(free_list)
        free_list.empty_since = since

    def operation_done(self) -> None:
        for free_list in self.lists.values():
            if free_list.entries and free_list.empty_since == self.operations + 1:
                free_list.empty_since = None
        super().operation_done()


class _SlopForgotten(Arenas):
    """The tail of a replaced chunk is used for a later, smaller object."""

    def bump(self, arena: int, free_list: FreeList) -> int:
        pool = self.pools.get(arena)
        slop = pool.slop_bytes if pool else 0
        taken = super().bump(arena, free_list)
        self.pools[arena].slop_bytes = slop
        return taken


def _variant(twin: type[Arenas]) -> type[ReferenceArena]:
    name = twin.__name__.removeprefix("_")
    return type(name, (ReferenceArena,), {"twin": twin, "__doc__": twin.__doc__})


#: One class for each mistake, by name; each takes the parameters of `pyallocx.Arena`.
wrong_arenas: dict[str, type[ReferenceArena]] = {
    variant.__name__: variant
    for variant in map(
        _variant,
        (
            _ThresholdOffByOne,
            _CapacityAfterRemoval,
            _HeaderForgotten,
            _Fifo,
            _ShrinkLosesAnEntry,
            _RestartsHigh,
            _WindowForgetsThisEpisode,
            _BudgetLeaks,
            _AgeNeverResets,
            _SlopForgotten,
        ),
    )
}
