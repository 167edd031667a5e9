"""The plain-Python twin of size maps: slow, short, and obviously right.

`ReferenceMap` finds the class of a size by looking at every class. `FixedMap` and `TableMap` say in
words of Python what the two maps of scudo do; where their class list is valid they are equal to it.
"""

from __future__ import annotations

from collections.abc import Sequence

__all__ = ["FixedMap", "ReferenceMap", "TableMap", "fixed_classes", "scaled_log"]


def fixed_classes(
    num_bits: int, min_size_log: int, mid_size_log: int, max_size_log: int, delta_bytes: int = 0
) -> list[int]:
    """Return the classes of a fixed map: equal steps, then equal steps within each doubling."""
    first, middle = 1 << min_size_log, 1 << mid_size_log
    steps = 1 << num_bits - 1
    classes = list(range(first, middle + 1, first))
    for octave in range(mid_size_log, max_size_log):
        classes += [(1 << octave) + (1 << octave) * (k + 1) // steps for k in range(steps)]
    return [size + delta_bytes for size in classes]


def scaled_log(x: int, num_bits: int, mid_size_log: int) -> int:
    """Return the number of the cell of x, from ``2**mid_size_log``: its `num_bits` top bits."""
    s = num_bits - 1
    top = x.bit_length() - 1
    return ((top - mid_size_log) << s) + (x >> (top - s)) - (1 << s)


class ReferenceMap:
    """The smallest class that holds a size, by looking at every class."""

    def __init__(self, classes: Sequence[int]) -> None:
        self.classes = [int(size) for size in classes]
        self.largest = self.classes[-1]

    def __len__(self) -> int:
        return len(self.classes)

    def class_of(self, size: int) -> int:
        """Return the class of a size, from 1; 0 above the largest."""
        for id, class_size in enumerate(self.classes, start=1):
            if class_size >= size:
                return id
        return 0

    def size_of(self, id: int) -> int:
        """Return the size of a class; 0 for id 0."""
        return self.classes[id - 1] if id else 0


class FixedMap(ReferenceMap):
    """scudo's map by rule."""

    def __init__(
        self,
        num_bits: int,
        min_size_log: int,
        mid_size_log: int,
        max_size_log: int,
        delta_bytes: int = 0,
    ) -> None:
        self.bits, self.low, self.middle = num_bits, min_size_log, mid_size_log
        self.delta = delta_bytes
        super().__init__(
            fixed_classes(num_bits, min_size_log, mid_size_log, max_size_log, delta_bytes)
        )

    def class_of(self, size: int) -> int:
        """Return the class of a size, by arithmetic."""
        if size > self.largest:
            return 0
        if size <= self.delta + (1 << self.low):
            return 1
        size -= self.delta
        if size <= 1 << self.middle:
            return -(-size // (1 << self.low))
        return (1 << self.middle - self.low) + 1 + scaled_log(size - 1, self.bits, self.middle)


class TableMap(ReferenceMap):
    """scudo's map by table; the classes must be those of a valid one."""

    def __init__(
        self,
        classes: Sequence[int],
        num_bits: int,
        min_size_log: int,
        mid_size_log: int,
        max_size_log: int,
        delta_bytes: int = 0,
    ) -> None:
        super().__init__(classes)
        self.bits, self.low, self.middle = num_bits, min_size_log, mid_size_log
        self.high, self.delta = max_size_log, delta_bytes
        self.entries = self.make_entries()

    def edges(self) -> list[int]:
        """Return the upper edge of each cell."""
        steps = 1 << self.bits - 1
        return [
            (1 << octave) + (1 << octave) * (k + 1) // steps
            for octave in range(self.middle, self.high)
            for k in range(steps)
        ]

    def make_entries(self) -> list[int]:
        """Return the class of the upper edge of each cell; 255 where there is none."""
        return [super(TableMap, self).class_of(e + self.delta) or 255 for e in self.edges()]

    def class_of(self, size: int) -> int:
        """Return the class of a size, from the table."""
        if size > self.largest:
            return 0
        if size <= self.classes[0]:
            return 1
        size -= self.delta
        if size <= 1 << self.middle:
            return (size - 1) // (1 << self.low) + 1
        return self.entries[scaled_log(size - 1, self.bits, self.middle)]
