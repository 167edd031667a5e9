"""Which code lives where: intervals of addresses, and what another interval ends."""

from __future__ import annotations

from bisect import bisect_left
from typing import NamedTuple

__all__ = ["Interval", "LiveCode"]


class Interval(NamedTuple):
    """A live object at its address; `end` is the first byte after it."""

    start: int
    end: int
    object: int


class LiveCode:
    """Disjoint live intervals, ordered by address.

    One sorted list of starts: adding and taking away move memory, which is quick up to some
    100,000 live objects. An object of no bytes takes up one, so that its address is its own.
    """

    def __init__(self) -> None:
        self._starts: list[int] = []
        self._at: dict[int, Interval] = {}

    def __len__(self) -> int:
        return len(self._starts)

    def add(self, start: int, size: int, object: int) -> None:
        """Put an object where nothing lives; see `take_overlapping`."""
        self._starts.insert(bisect_left(self._starts, start), start)
        self._at[start] = Interval(start, start + max(size, 1), object)

    def at(self, start: int) -> Interval | None:
        """Return what begins at `start`, or None."""
        return self._at.get(start)

    def overlapping(self, start: int, size: int) -> list[Interval]:
        """Return what has a byte in `size` bytes from `start`, by address."""
        low, high = self._span(start, start + max(size, 1))
        return [self._at[begin] for begin in self._starts[low:high]]

    def take(self, start: int) -> Interval | None:
        """Remove and return what begins at `start`, or None."""
        found = self._at.pop(start, None)
        if found is not None:
            del self._starts[bisect_left(self._starts, start)]
        return found

    def take_overlapping(self, start: int, size: int) -> list[Interval]:
        """Remove and return what has a byte in `size` bytes from `start`, by address."""
        low, high = self._span(start, start + max(size, 1))
        if low == high:
            return []
        taken = [self._at.pop(begin) for begin in self._starts[low:high]]
        del self._starts[low:high]
        return taken

    def take_all(self) -> list[Interval]:
        """Remove and return everything, oldest object first."""
        taken = sorted(self._at.values(), key=lambda interval: interval.object)
        self._starts.clear()
        self._at.clear()
        return taken

    def _span(self, start: int, end: int) -> tuple[int, int]:
        low = bisect_left(self._starts, start)
        if low and self._at[self._starts[low - 1]].end > start:
            low -= 1
        return low, bisect_left(self._starts, end, low)
