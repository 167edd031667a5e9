"""Size maps: from the size that a block must have to the size class that holds it.

A size map is a rising list of class sizes and a way of looking a size up in it. Class ids start at
1; id 0 means that no class is large enough. What a lookup takes is what the block must hold,
headers included: `SizeMap.need` makes it from what a program asks for.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Self, overload

import numpy as np
import numpy.typing as npt

from pyallocx import _core
from pyallocx._tablemap import (
    LOGS,
    MAX_BYTES,
    Ints,
    Sizes,
    Violation,
    class_sizes,
    logarithm,
    table_violations,
    whole,
)

__all__ = ["MAP_KINDS", "SizeMap", "Violation", "table_violations"]

MAP_KINDS: tuple[str, ...] = _core.MAP_KINDS
"""The ways of looking up, by name: fixed, table, flat, search, search_branchless."""

Int = int | np.integer[Any]

_CLASS_OF, _SIZE_OF, _ROUND, _LEAST_SET_BIT = range(4)
_SLICE_ITEMS = 1 << 20  # at a time, so that Ctrl-C is heard
_CHECK_SIZES = 1 << 22
_MOST = 2**64 - 1
_FORMAT = "pyallocx size map"


class SizeMap:
    """A map from sizes to size classes. Immutable.

    Parameters
    ----------
    classes : sequence of int
        The sizes of the classes, bytes: strictly increasing, from 1. At most 254 for kind
        ``"table"``, else at most 65534.
    kind : {"flat", "table", "search", "search_branchless"}, default "flat"
        How a size is looked up. ``"flat"``: in a table over equal steps, or two such tables where
        one were longer than 65536 entries. ``"table"``: as scudo's table-driven map does, in a byte
        table over a logarithm. ``"search"`` and ``"search_branchless"``: by bisection. For
        ``"fixed"`` see `SizeMap.fixed`.
    delta_bytes : int, default 0
        By how much all classes are shifted (scudo's SizeDelta); below the first class.
    num_bits, min_size_log, mid_size_log, max_size_log : int, optional
        The logarithm of a table map: significant bits of a cell (1 to 32), steps of the linear
        part, where it ends, where the table ends, as powers of two. What is left out follows from
        the classes. Other kinds only keep them.
    header_bytes : int, default 0
        What a class spends on a header; below the largest class.
    align_bytes : int, default 1
        To which requests are rounded up before the header is added; a power of two.
    name : str, default ""
        What the map is called.

    Raises
    ------
    ValueError
        For classes that do not rise, a parameter out of range, a flat map whose two tables would
        need more than 1048576 entries, and a table map that would not be safe: the message names
        the condition (see `table_violations`).

    Examples
    --------
    >>> import pyallocx as px
    >>> sizes = px.SizeMap([16, 32, 48, 64, 96, 128])
    >>> sizes.class_of(65), sizes.round(65), sizes.class_of(129)
    (5, 96, 0)
    >>> sizes.class_of(np.array([0, 16, 17, 200]))
    array([1, 1, 2, 0], dtype=uint8)
    """

    def __init__(
        self,
        classes: Sequence[int] | Ints,
        *,
        kind: str = "flat",
        delta_bytes: int = 0,
        num_bits: int | None = None,
        min_size_log: int | None = None,
        mid_size_log: int | None = None,
        max_size_log: int | None = None,
        header_bytes: int = 0,
        align_bytes: int = 1,
        name: str = "",
    ) -> None:
        if kind == "fixed":
            raise ValueError("a fixed map makes its own classes: SizeMap.fixed(...)")
        given = (num_bits, min_size_log, mid_size_log, max_size_log)
        self._set(kind, class_sizes(classes), delta_bytes, given, header_bytes, align_bytes, name)

    def _set(
        self,
        kind: str,
        classes: Sizes | None,
        delta_bytes: int,
        given: Sequence[int | None],
        header_bytes: int,
        align_bytes: int,
        name: str,
    ) -> None:
        if kind not in MAP_KINDS:
            raise ValueError(f"kind must be one of {', '.join(MAP_KINDS)}, got {kind!r}")
        if not isinstance(name, str):
            raise TypeError(f"name must be a text, got {name!r}")
        self.kind = kind
        self.name = name
        self.delta_bytes = whole("delta_bytes", delta_bytes, 0, MAX_BYTES)
        self.header_bytes = whole("header_bytes", header_bytes, 0, MAX_BYTES)
        self.align_bytes = whole("align_bytes", align_bytes, 1, MAX_BYTES)
        if self.align_bytes & (self.align_bytes - 1):
            raise ValueError(f"align_bytes must be a power of two, got {align_bytes}")
        logs: Mapping[str, int | None] = {
            log: None if value is None else whole(log, value, log == "num_bits", 63)
            for log, value in zip(LOGS, given, strict=True)
        }
        if kind == "table" and classes is not None:
            logs = logarithm(classes, self.delta_bytes, logs)
            for violation in table_violations(classes, delta_bytes=self.delta_bytes, **logs):
                if violation.refused:
                    raise ValueError(f"no table map: {violation.text}")
        self._logs = logs
        params = {log: value for log, value in logs.items() if value is not None}
        params |= {
            "kind": MAP_KINDS.index(kind),
            "delta_bytes": self.delta_bytes,
            "align_bytes": self.align_bytes,
        }
        self._core = _core.SizeMap(params, classes)
        self.classes: Sizes = np.frombuffer(self._core.classes(), dtype=np.uint64)
        self.largest = int(self.classes[-1])
        if self.header_bytes >= self.largest:
            raise ValueError(
                f"header_bytes is {header_bytes}, but the largest class is {self.largest}"
            )
        self._ids = np.dtype(np.uint8 if len(self) < 256 else np.uint16)

    @classmethod
    def fixed(
        cls,
        num_bits: int,
        min_size_log: int,
        mid_size_log: int,
        max_size_log: int,
        *,
        delta_bytes: int = 0,
        header_bytes: int = 0,
        align_bytes: int = 1,
        name: str = "",
    ) -> Self:
        """Make a map by rule, as scudo's fixed maps: linear, then logarithmic.

        Steps of ``2**min_size_log`` up to ``2**mid_size_log``, then ``2**(num_bits - 1)`` equal
        steps in each doubling up to ``2**max_size_log``; `delta_bytes` is added to all. At most
        255 classes.

        Parameters
        ----------
        num_bits, min_size_log, mid_size_log, max_size_log : int
            `num_bits` from 1 to ``mid_size_log + 1``, the logs rising, up to 63.
        delta_bytes, header_bytes, align_bytes, name
            As those of the class.

        Returns
        -------
        SizeMap
            Of kind ``"fixed"``.

        Examples
        --------
        >>> len(SizeMap.fixed(3, 5, 8, 17))
        44
        >>> SizeMap.fixed(1, 5, 5, 10).classes.tolist()
        [32, 64, 128, 256, 512, 1024]
        """
        made = cls.__new__(cls)
        given = (num_bits, min_size_log, mid_size_log, max_size_log)
        made._set("fixed", None, delta_bytes, given, header_bytes, align_bytes, name)
        return made

    @classmethod
    def preset(cls, name: str, **knobs: Any) -> SizeMap:
        """Return the map of a known allocator: `pyallocx.preset`."""
        from pyallocx.presets import preset  # which makes maps of this class

        made: SizeMap = preset(name, **knobs)
        return made

    def as_kind(self, kind: str) -> SizeMap:
        """Return a map of the same classes that is looked up in another way.

        Parameters
        ----------
        kind : str
            One of `MAP_KINDS`.

        Raises
        ------
        ValueError
            Where the classes cannot be looked up in that way.
        """
        if kind != "fixed":
            return _made(self._document() | {"kind": kind})
        made = _made(self._document() | {"kind": kind, "classes": None})
        if not np.array_equal(made.classes, self.classes):
            raise ValueError(f"the classes of {self!r} are not those of a fixed map")
        return made

    # --- what it is

    def __setattr__(self, name: str, value: object) -> None:
        if "_ids" in self.__dict__:  # the last that is set
            raise AttributeError(f"a SizeMap does not change: {name}")
        super().__setattr__(name, value)

    def __len__(self) -> int:
        return len(self.classes)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, SizeMap):
            return NotImplemented
        return self._key() == other._key()

    def __hash__(self) -> int:
        return hash(self._key())

    def _key(self) -> tuple[object, ...]:
        """Everything but the name."""
        document = self._document() | {"classes": self.classes.tobytes()}
        return tuple(value for key, value in document.items() if key != "name")

    def __repr__(self) -> str:
        name = f"{self.name!r}: " if self.name else ""
        header = f", header {self.header_bytes}" if self.header_bytes else ""
        classes = "class" if len(self) == 1 else "classes"
        return f"<SizeMap {name}{self.kind}, {len(self)} {classes} up to {self.largest}{header}>"

    def __reduce__(self) -> tuple[Any, ...]:
        return _made, (self._document(),)

    @property
    def usable(self) -> npt.NDArray[np.uint64]:
        """What is left of each class behind the header, bytes; 0 where a class is all header."""
        header = np.uint64(self.header_bytes)
        return np.maximum(self.classes, header) - header

    @property
    def num_bits(self) -> int | None:
        """Significant bits of a cell of the logarithm; None where there is none."""
        return self._logs["num_bits"]

    @property
    def min_size_log(self) -> int | None:
        """The step of the linear part, as a power of two; None where there is none."""
        return self._logs["min_size_log"]

    @property
    def mid_size_log(self) -> int | None:
        """Where the linear part ends, as a power of two; None where there is none."""
        return self._logs["mid_size_log"]

    @property
    def max_size_log(self) -> int | None:
        """Where the logarithm ends, as a power of two; None where there is none."""
        return self._logs["max_size_log"]

    @property
    def table(self) -> npt.NDArray[np.unsignedinteger[Any]]:
        """The table as it is looked into, read-only; empty where a kind has none.

        Of kind ``"table"``: uint8, 255 for no class. Of kind ``"flat"``: uint8, or uint16 for 256
        classes or more, 0 for no class.
        """
        wide = self._core.layout()["entry_bytes"] == 2
        return np.frombuffer(self._core.entries(), dtype=np.uint16 if wide else np.uint8)

    @property
    def memory_bytes(self) -> int:
        """Bytes that lookups read: the table, or the classes that are searched; 0 for fixed."""
        return self.classes.nbytes if self.kind.startswith("search") else self.table.nbytes

    # --- lookups

    @overload
    def class_of(self, sizes: Int, out: None = None) -> int: ...
    @overload
    def class_of(self, sizes: Ints | Sequence[int], out: Ints | None = None) -> Ints: ...
    def class_of(self, sizes: Int | Ints | Sequence[int], out: Ints | None = None) -> int | Ints:
        """Return the class that holds each size: the smallest.

        Parameters
        ----------
        sizes : int or array of int, any shape
            What the blocks must hold, headers included, bytes (see `need`), from 0. Any integer
            dtype, any strides.
        out : array of int, the same shape, optional
            Where to write; it may be `sizes` itself. Of any integer dtype that holds the number of
            classes.

        Returns
        -------
        int or array
            Ids from 1; 0 above the largest class. Without `out` uint8, or uint16 for 256 classes or
            more.

        Raises
        ------
        ValueError
            For a negative size, by index and value. `out` may have been written to, unless it is
            `sizes`.
        TypeError
            For anything that is not integers.
        """
        answer: int | Ints = self._look_up(_CLASS_OF, sizes, out, self._ids)
        return answer

    @overload
    def size_of(self, ids: Int, out: None = None) -> int: ...
    @overload
    def size_of(self, ids: Ints | Sequence[int], out: Ints | None = None) -> Ints: ...
    def size_of(self, ids: Int | Ints | Sequence[int], out: Ints | None = None) -> int | Ints:
        """Return the size of each class; 0 for id 0.

        Parameters
        ----------
        ids : int or array of int, any shape
            From 0 to the number of classes.
        out : array of int, the same shape, optional
            As that of `class_of`; it must hold the largest class.

        Returns
        -------
        int or array of uint64
            Bytes.

        Raises
        ------
        ValueError
            For an id that is none, by index and value.
        """
        answer: int | Ints = self._look_up(_SIZE_OF, ids, out, np.dtype(np.uint64))
        return answer

    @overload
    def round(self, sizes: Int, out: None = None) -> int: ...
    @overload
    def round(self, sizes: Ints | Sequence[int], out: Ints | None = None) -> Ints: ...
    def round(self, sizes: Int | Ints | Sequence[int], out: Ints | None = None) -> int | Ints:
        """Return the size of the class that holds each size; 0 above the largest.

        Parameters
        ----------
        sizes, out
            As those of `class_of`; `out` must hold the largest class.

        Returns
        -------
        int or array of uint64
            Bytes.
        """
        answer: int | Ints = self._look_up(_ROUND, sizes, out, np.dtype(np.uint64))
        return answer

    @overload
    def least_set_bit(self, ids: Int, out: None = None) -> int: ...
    @overload
    def least_set_bit(self, ids: Ints | Sequence[int], out: Ints | None = None) -> Ints: ...
    def least_set_bit(self, ids: Int | Ints | Sequence[int], out: Ints | None = None) -> int | Ints:
        """Return the index of the lowest set bit of each class's size: how it is aligned.

        Parameters
        ----------
        ids : int or array of int, any shape
            From 1 to the number of classes.
        out : array of int, the same shape, optional
            As that of `class_of`.

        Returns
        -------
        int or array of uint8
            ``size % 2**bit == 0``.
        """
        answer: int | Ints = self._look_up(_LEAST_SET_BIT, ids, out, np.dtype(np.uint8))
        return answer

    def _look_up(self, what: int, values: Any, out: Any, dtype: np.dtype[Any]) -> Any:
        if not isinstance(values, np.ndarray):
            if isinstance(values, (int, np.integer)) and not isinstance(values, bool):
                if out is not None:
                    raise TypeError("out goes with an array, not with one number")
                return self._look_up_one(what, int(values))
            values = _listed(values, "sizes" if what in (_CLASS_OF, _ROUND) else "ids")
        if values.dtype.kind not in "iu":
            raise TypeError(f"expected integers, got an array of {values.dtype}")
        if out is None:
            out = np.empty_like(values, dtype=dtype, subok=False)
        elif not isinstance(out, np.ndarray) or out.dtype.kind not in "iu":
            raise TypeError(f"out must be an array of integers, got {_kind_of(out)}")
        elif out.shape != values.shape:
            raise ValueError(f"out has shape {out.shape}, expected {values.shape}")
        elif not out.flags.writeable:
            raise ValueError("out is read-only")
        source, target = values, out
        if source.ndim > 1 and not (source.flags.c_contiguous and target.flags.c_contiguous):
            source, target = source.T, target.T  # then they are, if they were Fortran's
        source = source.reshape(-1)
        if not source.dtype.isnative:
            source = source.astype(source.dtype.newbyteorder("="))
        native = target.dtype.isnative and (target.ndim == 1 or target.flags.c_contiguous)
        written = target.reshape(-1) if native else np.empty(target.size, out.dtype.type)
        if np.may_share_memory(source, written):
            if source.__array_interface__["data"] == written.__array_interface__["data"] and (
                source.strides == written.strides and source.itemsize == written.itemsize
            ):
                if source.dtype.kind == "i" or what not in (_CLASS_OF, _ROUND):
                    self._run(what, source, None)  # before anything is lost
            else:
                source = source.copy()
        self._run(what, source, written)
        if not native:
            target[...] = written.reshape(target.shape)
        return out

    def _run(self, what: int, source: Ints, out: Ints | None) -> None:
        for start in range(0, max(1, source.size), _SLICE_ITEMS):
            stop = min(start + _SLICE_ITEMS, source.size)
            self._core.look_up(what, source, out, start, stop)

    def _look_up_one(self, what: int, value: int) -> int:
        if what in (_SIZE_OF, _LEAST_SET_BIT):
            size = self._core.size_of(whole("id", value, what == _LEAST_SET_BIT, len(self)))
            return size if what == _SIZE_OF else (size & -size).bit_length() - 1
        if value < 0:
            raise ValueError(f"size is {value}, allowed is at least 0")
        id = self._core.class_of(min(value, _MOST))
        return id if what == _CLASS_OF else self._core.size_of(id)

    @overload
    def need(self, requests: Int) -> int: ...
    @overload
    def need(self, requests: Ints | Sequence[int]) -> npt.NDArray[np.uint64]: ...
    def need(self, requests: Int | Ints | Sequence[int]) -> int | npt.NDArray[np.uint64]:
        """Return what a block must hold for each request: rounded up, and the header.

        Parameters
        ----------
        requests : int or array of int, any shape
            Bytes that a program asks for, from 0.

        Returns
        -------
        int or array of uint64
            Bytes, at most 2**64 - 1.

        Examples
        --------
        >>> scudo = SizeMap([32, 48, 64], header_bytes=16, align_bytes=16)
        >>> scudo.class_of(scudo.need([1, 16, 17, 48, 49])).tolist()
        [1, 1, 2, 3, 0]
        """
        mask = self.align_bytes - 1
        if isinstance(requests, (int, np.integer)) and not isinstance(requests, bool):
            request = int(requests)
            if request < 0:
                raise ValueError(f"request is {request}, allowed is at least 0")
            return min((request + mask & ~mask) + self.header_bytes, _MOST)
        array = _listed(requests, "requests")
        if array.dtype.kind not in "iu":
            raise TypeError(f"expected integers, got an array of {array.dtype}")
        if array.size and array.min() < 0:
            index = int(np.argmax(array.reshape(-1) < 0))
            raise ValueError(
                f"requests[{index}] is {array.reshape(-1)[index]}, allowed is at least 0"
            )
        need = array.astype(np.uint64)
        too_large = need > np.uint64(_MOST - mask - self.header_bytes)
        need += np.uint64(mask)
        need &= np.uint64(_MOST - mask)
        need += np.uint64(self.header_bytes)
        need[too_large] = _MOST
        return need

    # --- judgements

    def check(self) -> None:
        """Ask the oracle about every size.

        Each class's own size, the one before and the one after must have the right class; every
        size up to the largest must have a class, one that holds it, of which the class before does
        not. Where the largest class is above 64 MiB, sizes above 1 MiB are looked at only around
        the classes and at three places in each of the 4096 parts of a doubling.

        Raises
        ------
        CorruptionError
            For the first size that is wrong. A table map with a class off its grid is: the sizes
            before that class have the next one.
        """
        size = 0
        while size <= self.largest:
            size = self._core.check(size, _CHECK_SIZES)

    def violations(self, align_bytes: int | None = None) -> tuple[Violation, ...]:
        """Return what keeps the classes from being a right table map: `table_violations`.

        Parameters
        ----------
        align_bytes : int, optional
            For V6; by default that of the map.
        """
        return table_violations(
            self.classes,
            delta_bytes=self.delta_bytes,
            align_bytes=self.align_bytes if align_bytes is None else align_bytes,
            **self._logs,
        )

    def hints(self, max_cached: int, max_bytes_log: int) -> npt.NDArray[np.uint32]:
        """Return how many blocks of each class a thread's cache should hold.

        As many as ``2**max_bytes_log`` bytes hold, at most `max_cached`, at least one (scudo's
        MaxNumCachedHint and MaxBytesCachedLog).

        Parameters
        ----------
        max_cached : int
            From 0 to 2**32 - 1.
        max_bytes_log : int
            From 0 to 63.

        Returns
        -------
        array of uint32, shape (len(self),)
            For class 1 first.

        Examples
        --------
        >>> SizeMap([32, 512, 1024, 2048]).hints(14, 13)
        array([14, 14,  8,  4], dtype=uint32)
        """
        most = whole("max_cached", max_cached, 0, 2**32 - 1)
        bytes_log = whole("max_bytes_log", max_bytes_log, 0, 63)
        return np.array(self._core.hints(most, bytes_log), dtype=np.uint32)

    # --- files

    def _document(self) -> dict[str, Any]:
        return {
            "kind": self.kind,
            "name": self.name,
            "classes": self.classes.tolist(),
            "delta_bytes": self.delta_bytes,
            **self._logs,
            "header_bytes": self.header_bytes,
            "align_bytes": self.align_bytes,
        }

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the map as JSON that `load` reads back.

        Parameters
        ----------
        path : path
            The file; it is replaced.
        """
        document = {"format": _FORMAT, "version": 1} | self._document()
        Path(path).write_text(json.dumps(document) + "\n", encoding="utf-8")

    def export(self, format: str, *, name: str | None = None, **options: Any) -> str:
        """Write the classes in the form that an allocator takes: `pyallocx.export`.

        Parameters
        ----------
        format : {"scudo", "flat", "tcmalloc", "go", "memcached", "json"}
            For whom.
        name : str, optional
            What the struct, table or list is called.
        **options
            Of the format, as `pyallocx.export` has them.

        Returns
        -------
        str
            Ends with a line feed.

        Raises
        ------
        ValueError, TypeError, CorruptionError
            Where `pyallocx.export` raises them.
        """
        from pyallocx.exports import export

        return export(self, format, name=name, **options)

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> SizeMap:
        """Read a map that `save` wrote.

        Raises
        ------
        ValueError
            For a file that is no such map, with the file and what is wrong in it.
        """
        data = Path(path).read_bytes()
        try:
            return _made(_parse(data))
        except (ValueError, TypeError, RecursionError) as exc:
            raise ValueError(f"{os.fspath(path)}: {exc}") from exc


def _kind_of(thing: object) -> str:
    return f"an array of {thing.dtype}" if isinstance(thing, np.ndarray) else type(thing).__name__


def _made(document: Mapping[str, Any]) -> SizeMap:
    """Make a map of its document. A function of the module, so that maps can be pickled."""
    values = dict(document)
    kind, classes = values.pop("kind"), values.pop("classes")
    if kind != "fixed":
        return SizeMap(classes, kind=kind, **values)
    missing = [log for log in LOGS if values[log] is None]
    if missing:
        raise ValueError(f"a fixed map needs {missing[0]}")
    made = SizeMap.fixed(**values)
    if classes is not None and made.classes.tolist() != list(classes):
        raise ValueError("the classes are not those of the fixed map")
    return made


def _parse(data: bytes) -> dict[str, Any]:
    """Return the document of a file; the values are checked by whoever makes a map of it."""

    def once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        keys = [key for key, _ in pairs]
        twice = [key for key in keys if keys.count(key) > 1]
        if twice:
            raise ValueError(f"{twice[0]!r} is there twice")
        return dict(pairs)

    try:
        document = json.loads(data.decode("utf-8"), object_pairs_hook=once)
    except UnicodeDecodeError:
        raise ValueError("not a size map: it is no text") from None
    except json.JSONDecodeError as exc:
        raise ValueError(f"not JSON: {exc}") from None
    if not isinstance(document, dict) or document.pop("format", None) != _FORMAT:
        raise ValueError(f"not a size map: its format is not {_FORMAT!r}")
    version = document.pop("version", None)
    if version != 1 or isinstance(version, bool):
        raise ValueError(f"version {version!r} of the format is not known, only 1 is")
    expected = ("kind", "name", "classes", "delta_bytes", *LOGS, "header_bytes", "align_bytes")
    for key in document:
        if key not in expected:
            raise ValueError(f"unknown key {key!r}")
    for key in expected:
        if key not in document:
            raise ValueError(f"{key!r} is missing")
    if not isinstance(document["classes"], list):
        raise TypeError(f"'classes' must be a list, got {document['classes']!r}")
    return document


def _listed(values: Any, what: str) -> npt.NDArray[Any]:
    """Return an array of what is no number; of a list of integers, integers.

    NumPy makes floats of an empty list, and floats or objects of numbers that are in no one type of
    its own.
    """
    array = np.asarray(values)
    if isinstance(values, np.ndarray) or array.dtype.kind in "iu":
        return array
    items = np.asarray(values, dtype=object)
    if not all(isinstance(i, (int, np.integer)) and not isinstance(i, bool) for i in items.flat):
        return array
    for index, item in enumerate(items.flat):
        if item < 0:
            raise ValueError(f"{what}[{index}] is {item}, allowed is at least 0")
    # No class is larger, so that a number that does not fit has none either.
    return np.minimum(items, _MOST).astype(np.uint64) if items.size else items.astype(np.uint64)
