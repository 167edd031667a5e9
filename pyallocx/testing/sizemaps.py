"""Size maps for tests: an oracle for any map, strategies, and maps that are wrong on purpose."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Protocol

from hypothesis import strategies as st

from pyallocx.reference.sizemap import FixedMap, ReferenceMap, TableMap, scaled_log

__all__ = [
    "WrongSizeMap",
    "check_size_map",
    "class_lists",
    "fixed_parameters",
    "table_parameters",
    "wrong_size_maps",
]


class _Map(Protocol):
    @property
    def largest(self) -> int: ...
    def __len__(self) -> int: ...
    def class_of(self, size: int, /) -> int: ...
    def size_of(self, id: int, /) -> int: ...


def check_size_map(map: _Map, sizes: Iterable[int] | None = None) -> None:
    """Ask the oracle about a size map, ours or yours.

    Parameters
    ----------
    map : size map
        With ``class_of(size)``, ``size_of(id)``, ``len()`` and ``largest``; ids from 1, 0 for a
        size above the largest.
    sizes : iterable of int, optional
        Sizes to look at beside those around the classes; by default every size up to the largest.

    Raises
    ------
    AssertionError
        For the first size that has no class, one that is too small, or one that is not the
        smallest that holds it.

    Examples
    --------
    >>> import pyallocx as px
    >>> check_size_map(px.SizeMap([16, 32, 64]))
    """
    count = len(map)
    class_sizes = [0] + [map.size_of(id) for id in range(1, count + 1)]
    for id in range(1, count + 1):
        size = class_sizes[id]
        assert size > class_sizes[id - 1], f"class {id} of {size} bytes is not above the one before"
        for near in (size - 1, size, size + 1):
            _check_one(map, near, class_sizes)
    assert class_sizes[-1] == map.largest, f"largest is {map.largest}, not {class_sizes[-1]}"
    for size in range(map.largest + 2) if sizes is None else sizes:
        _check_one(map, size, class_sizes)


def _check_one(map: _Map, size: int, class_sizes: list[int]) -> None:
    id = map.class_of(size)
    if size > class_sizes[-1]:
        assert id == 0, f"size {size} is above the largest class, but has class {id}"
        return
    assert 1 <= id < len(class_sizes), f"size {size} has class {id}"
    assert class_sizes[id] >= size, f"size {size} has class {id} of {class_sizes[id]} bytes"
    smaller = class_sizes[id - 1]
    assert smaller < size or id == 1, f"size {size} has class {id}, but {smaller} bytes hold it"


def class_lists(*, max_classes: int = 40, max_bytes: int = 1 << 14) -> st.SearchStrategy[list[int]]:
    """Draw strictly increasing class sizes, on grids from 1 to 64 bytes and shifted.

    Parameters
    ----------
    max_classes, max_bytes : int
        The most classes, and the largest.
    """

    def made(grid: int, shift: int, multiples: set[int]) -> list[int]:
        sizes = sorted({shift % grid + grid * multiple for multiple in multiples} - {0})
        return [size for size in sizes if size <= max_bytes] or [grid]

    return st.builds(
        made,
        st.sampled_from((1, 2, 8, 16, 64)),
        st.integers(0, 63),
        st.sets(
            st.one_of(st.integers(0, 40), st.integers(0, max_bytes)),
            min_size=1,
            max_size=max_classes,
        ),
    )


@st.composite
def fixed_parameters(
    draw: st.DrawFn, *, max_log: int = 14, max_classes: int = 254
) -> dict[str, int]:
    """Draw the parameters of a fixed map of at most 254 classes."""
    low = draw(st.integers(0, min(10, max_log)), label="min_size_log")
    middle = draw(st.integers(low, min(low + 6, max_log)), label="mid_size_log")
    high = draw(st.integers(middle, max_log), label="max_size_log")
    bits = draw(st.integers(1, min(6, middle + 1)), label="num_bits")
    while 2 ** (middle - low) + (high - middle) * 2 ** (bits - 1) > max_classes:
        bits -= 1
    delta = draw(st.sampled_from((0, 1, 8, 16, 40)), label="delta_bytes")
    return {
        "num_bits": bits,
        "min_size_log": low,
        "mid_size_log": middle,
        "max_size_log": high,
        "delta_bytes": delta,
    }


@st.composite
def table_parameters(draw: st.DrawFn, *, max_log: int = 14) -> dict[str, Any]:
    """Draw the classes and parameters of a valid table map: V1 to V5 hold."""
    params: dict[str, Any] = draw(fixed_parameters(max_log=max_log))
    prefix = 2 ** (params["mid_size_log"] - params["min_size_log"])
    every = FixedMap(*params.values()).classes
    behind = draw(st.sets(st.sampled_from(every[prefix:]), max_size=60)) if every[prefix:] else ()
    return {"classes": every[:prefix] + sorted(behind)} | params


class WrongSizeMap(TableMap):
    """A table map with one mistake."""


class _LowerEdge(WrongSizeMap):
    """An entry is the class of the lower edge of its cell."""

    def make_entries(self) -> list[int]:
        edges = [1 << self.middle, *self.edges()][:-1]
        return [ReferenceMap.class_of(self, edge + self.delta) or 255 for edge in edges]


class _ClassOwnSizeBelongsToNext(WrongSizeMap):
    """`<` where `<=` is meant: a size equal to a class goes to the next."""

    def make_entries(self) -> list[int]:
        return [
            next((i for i, c in enumerate(self.classes, 1) if c > edge + self.delta), 255)
            for edge in self.edges()
        ]


class _DeltaForgottenInTable(WrongSizeMap):
    """The table is made of the classes as they are, the sizes come without the delta."""

    def make_entries(self) -> list[int]:
        return [ReferenceMap.class_of(self, edge) or 255 for edge in self.edges()]


class _DeltaForgottenInLookup(WrongSizeMap):
    """The delta is not taken off the size before the logarithm."""

    def class_of(self, size: int) -> int:
        if self.classes[0] < size <= self.largest:
            size = min(size + self.delta, self.largest)
        return super().class_of(size)


class _PrefixOffByOne(WrongSizeMap):
    """The linear part rounds down: a size that is a step gets the class behind its own."""

    def class_of(self, size: int) -> int:
        id = super().class_of(size)
        above = size - self.delta
        if self.classes[0] < size and above <= 1 << self.middle:
            return min(above // (1 << self.low) + 1, len(self))
        return id


class _LogOfSizeItself(WrongSizeMap):
    """The cell of the size instead of that of the size less one."""

    def class_of(self, size: int) -> int:
        above = size - self.delta
        if size > self.largest or above <= 1 << self.middle:
            return super().class_of(size)
        cell = scaled_log(above, self.bits, self.middle)
        return self.entries[min(cell, len(self.entries) - 1)]


class _LargestHasNoClass(WrongSizeMap):
    """`<` where `<=` is meant at the end: the largest class is never used."""

    def class_of(self, size: int) -> int:
        return 0 if size == self.largest else super().class_of(size)


class _AboveLargestIsLargest(WrongSizeMap):
    """A size that no class holds gets the largest."""

    def class_of(self, size: int) -> int:
        return super().class_of(size) or len(self)


class _FirstCellSkipped(WrongSizeMap):
    """The table begins one cell too late."""

    def make_entries(self) -> list[int]:
        entries = super().make_entries()
        return [*entries[1:], entries[-1]]


#: One class for each mistake, by name; each takes the arguments of `pyallocx.reference.TableMap`.
wrong_size_maps: dict[str, type[WrongSizeMap]] = {
    variant.__name__.removeprefix("_"): variant
    for variant in (
        _LowerEdge,
        _ClassOwnSizeBelongsToNext,
        _DeltaForgottenInTable,
        _DeltaForgottenInLookup,
        _PrefixOffByOne,
        _LogOfSizeItself,
        _LargestHasNoClass,
        _AboveLargestIsLargest,
        _FirstCellSkipped,
    )
}
