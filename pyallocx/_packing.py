"""Packed columns: the same events in a file a tenth as large, undone by a few lines of NumPy.

What a column says that another one says already is left out, numbers become differences that are
small, and of all numbers of a column the lowest bytes are stored together, then the second lowest,
and so on: *planes*. docs/traces.md is the description for those who read such files without us.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt

from pyallocx._columns import OP_ALLOC, OP_DESTROY, OP_FREE, OP_REALLOC, Array
from pyallocx._core import TraceError

if TYPE_CHECKING:
    from pyallocx.trace import Trace

_STEP: Final = 1 << 18

Numbers = Callable[[], Iterator[Array]]

_OF_COLUMNS: Final[Mapping[str, tuple[str, ...]]] = MappingProxyType(
    {
        "thread": ("planes",),
        "object": ("planes", "ago"),
        "size_bytes": ("planes", "asked"),
        "time_ns": ("planes", "steps"),
        "key": ("planes", "own"),
        "arena": ("planes", "own"),
    }
)
_OF_ASIDES: Final[Mapping[str, tuple[str, ...]]] = MappingProxyType(
    {
        "event": ("planes", "steps"),
        "object": ("planes", "ago"),
        "time_ns": ("planes", "beside"),
        "begin_ns": ("planes", "beside"),
    }
)
"""What the numbers of a packed column are.

``planes``
    The column itself.
``steps``
    Each value minus the one before it, the first minus 0.
``ago``
    Of each free and realloc, or of each row of an aside: how many allocs lie between that of its
    object and here.
``asked``
    Of allocs and reallocs only; 0 for all others.
``own``
    Of allocs and destroys only; a free or realloc has what the alloc of its object has.
``beside``
    In an aside: the time of the event that the row stands before (of the last, after it) minus
    that of the row, zigzag: 2d for d >= 0, else -2d - 1.

All differences are taken modulo 2 to the bits of the column.
"""


def encodings_of(column: str, beside: bool) -> tuple[str, ...]:
    """Return the encodings that a column may have, in an aside or in the trace itself."""
    return _OF_ASIDES.get(column, ("planes",)) if beside else _OF_COLUMNS.get(column, ())


class Packed(NamedTuple):
    """A column on its way into a file: each call of `numbers` goes through it from the start."""

    name: str
    length: int
    numbers: Numbers
    bytes_of_column: int


def _parts(events: int) -> Iterator[slice]:
    for start in range(0, events, _STEP):
        yield slice(start, min(start + _STEP, events))


def _plain(column: Array) -> Numbers:
    return lambda: (column[part] for part in _parts(len(column)))


def _steps(column: Array) -> Numbers:
    def numbers() -> Iterator[Array]:
        before = np.zeros(1, dtype=column.dtype)
        for part in _parts(len(column)):
            values = column[part]
            yield np.diff(values, prepend=before)
            before = values[-1:]

    return numbers


def _chosen(op: npt.NDArray[np.uint8], column: Array, ops: tuple[int, int]) -> Numbers:
    return lambda: (column[part][_is_any(op[part], ops)] for part in _parts(len(op)))


def _is_any(op: npt.NDArray[np.uint8], ops: tuple[int, int]) -> npt.NDArray[np.bool_]:
    one, other = ops
    there: npt.NDArray[np.bool_] = (op == one) | (op == other)
    return there


_NAMED: Final = (OP_FREE, OP_REALLOC)
_ASKED: Final = (OP_ALLOC, OP_REALLOC)
_OWN: Final = (OP_ALLOC, OP_DESTROY)


def _count(op: npt.NDArray[np.uint8], ops: tuple[int, int]) -> int:
    return sum(int(np.count_nonzero(_is_any(op[part], ops))) for part in _parts(len(op)))


def _object_ago(op: npt.NDArray[np.uint8], column: Array) -> Numbers:
    def numbers() -> Iterator[Array]:
        allocs = 0
        for part in _parts(len(op)):
            ops = op[part]
            count = np.cumsum(ops == OP_ALLOC) + allocs
            allocs = int(count[-1])
            named = _is_any(ops, _NAMED)
            yield count[named].astype(column.dtype) - column.dtype.type(1) - column[part][named]

    return numbers


def _row_ago(count: npt.NDArray[np.intp], event: Array, column: Array) -> Numbers:
    return lambda: (
        count[event[part]].astype(column.dtype) - column.dtype.type(1) - column[part]
        for part in _parts(len(column))
    )


def _beside(time_ns: Array, event: Array, column: Array) -> Numbers:
    last = np.uint64(len(time_ns) - 1)

    def numbers() -> Iterator[Array]:
        for part in _parts(len(column)):
            away = (time_ns[np.minimum(event[part], last)] - column[part]).view(np.int64)
            yield ((away << 1) ^ (away >> 63)).view(np.uint64)

    return numbers


def _repeats_its_alloc(trace: Trace, column: Array) -> bool:
    """Whether each free and realloc has in `column` what the alloc of its object has."""
    made = np.concatenate(
        [column[:0], *(column[p][trace.op[p] == OP_ALLOC] for p in _parts(len(trace)))]
    )
    for part in _parts(len(trace)):
        named = _is_any(trace.op[part], _NAMED)
        # A mapped file may have changed since it was checked.
        if not np.array_equal(
            made.take(trace.object[part][named], mode="clip") if len(made) else made,
            column[part][named],
        ):
            return False
    return True


def _nothing_else_has_a_size(trace: Trace) -> bool:
    return not any(
        trace.size_bytes[part][~_is_any(trace.op[part], _ASKED)].any()
        for part in _parts(len(trace))
    )


def packed_columns(trace: Trace) -> Iterator[Packed | tuple[str, Array]]:
    """Yield what a packed file holds: packed columns, and by name those that stay as they are."""
    op = trace.op
    for name, column in trace.columns().items():
        if column is None:
            continue
        width = f"u{column.dtype.itemsize}"
        if width == "u1":
            yield name, column
        elif name == "object":
            yield Packed(
                f"object.{width}.ago", _count(op, _NAMED), _object_ago(op, column), column.nbytes
            )
        elif name == "time_ns":
            yield Packed("time_ns.u8.steps", len(column), _steps(column), column.nbytes)
        elif name == "size_bytes" and _nothing_else_has_a_size(trace):
            yield Packed(
                "size_bytes.u8.asked",
                _count(op, _ASKED),
                _chosen(op, column, _ASKED),
                column.nbytes,
            )
        elif name in ("key", "arena") and _repeats_its_alloc(trace, column):
            yield Packed(
                f"{name}.{width}.own", _count(op, _OWN), _chosen(op, column, _OWN), column.nbytes
            )
        else:
            yield Packed(f"{name}.{width}.planes", len(column), _plain(column), column.nbytes)
    yield from _packed_asides(trace)


def _packed_asides(trace: Trace) -> Iterator[Packed | tuple[str, Array]]:
    count: npt.NDArray[np.intp] | None = None
    for aside, columns in trace.asides.items():
        event = columns["event"]
        for name, column in columns.items():
            full = f"aside.{aside}.{name}"
            width = f"u{column.dtype.itemsize}"
            if name == "event":
                yield Packed(f"{full}.u8.steps", len(column), _steps(column), column.nbytes)
            elif width == "u1":
                yield full, column
            elif name == "object":
                count = allocs_before(trace.op) if count is None else count
                yield Packed(
                    f"{full}.{width}.ago",
                    len(column),
                    _row_ago(count, event, column),
                    column.nbytes,
                )
            elif (
                "beside" in encodings_of(name, True)
                and width == "u8"
                and trace.time_ns is not None
                and len(trace)
            ):
                yield Packed(
                    f"{full}.u8.beside",
                    len(column),
                    _beside(trace.time_ns, event, column),
                    column.nbytes,
                )
            else:
                yield Packed(f"{full}.{width}.planes", len(column), _plain(column), column.nbytes)


def allocs_before(op: npt.NDArray[np.uint8]) -> npt.NDArray[np.intp]:
    """Return how many allocs come before each event, and before the end."""
    count = np.zeros(len(op) + 1, dtype=np.intp)
    np.cumsum(op == OP_ALLOC, out=count[1:])
    return count


def planes_of(packed: Packed) -> tuple[int, Iterator[bytes]]:
    """Return how many planes there are, and their bytes, plane after plane, in pieces."""
    highest = 0
    for part in packed.numbers():
        highest = max(highest, int(part.max(initial=0)))
    width = max(1, (highest.bit_length() + 7) // 8)

    def pieces() -> Iterator[bytes]:
        for place in range(width):
            for part in packed.numbers():
                little = part.astype(part.dtype.newbyteorder("<"), copy=False)
                size = little.dtype.itemsize
                yield np.ascontiguousarray(little).view(np.uint8)[place::size].tobytes()

    return width, pieces()


# ---- undoing it ---------------------------------------------------------------------------------


class Unpacker:
    """Makes columns of the numbers in a file, once `op` is known; believes nothing."""

    def __init__(self, op: npt.NDArray[np.uint8]) -> None:
        self.op = op
        self.count: npt.NDArray[np.intp] | None = None
        self._events: dict[tuple[int, int], npt.NDArray[np.intp]] = {}

    def events(self, ops: tuple[int, int]) -> npt.NDArray[np.intp]:
        """Return which events are of one of two operations."""
        if ops not in self._events:
            # Places rather than a mask: where operations come in no order, it is three times as
            # fast to use.
            self._events[ops] = np.flatnonzero(_is_any(self.op, ops))
        return self._events[ops]

    def column(
        self, encoding: str, numbers: Array, label: str, columns: Mapping[str, Array | None]
    ) -> Array:
        """Return a column of the trace; `columns` are those unpacked before it."""
        ops = {"ago": _NAMED, "asked": _ASKED, "own": _OWN}.get(encoding)
        expected = len(self.op) if ops is None else len(self.events(ops))
        if len(numbers) != expected:
            raise TraceError(
                f"{label}: expected {expected:,} numbers, as 'op' says, found {len(numbers):,}"
            )
        if ops is None:
            return np.cumsum(numbers, out=numbers) if encoding == "steps" else numbers
        made = np.zeros(len(self.op), dtype=numbers.dtype)
        allocs = self.events((OP_ALLOC, OP_ALLOC))
        if encoding == "ago":
            made.fill(np.iinfo(numbers.dtype).max)
            made[allocs] = np.arange(len(allocs), dtype=numbers.dtype)
            named = self.events(_NAMED)
            before = np.cumsum(self.op == OP_ALLOC, dtype=numbers.dtype)
            made[named] = before[named] - numbers.dtype.type(1) - numbers
            return made
        made[self.events(ops)] = numbers
        if encoding == "own":
            first = made[allocs]
            thing = columns["object"]
            assert thing is not None
            named = self.events(_NAMED)
            things = thing[named]
            # The check of the trace would say so, but it comes later.
            if len(things) and int(things.max()) >= len(first):
                raise TraceError(
                    f"{label}: an event names object {int(things.max())}, of {len(first)}"
                )
            made[named] = first[things]
        return made

    def row(
        self,
        encoding: str,
        numbers: Array,
        event: Array | None,
        label: str,
        columns: Mapping[str, Array | None],
    ) -> Array:
        """Return a column of an aside; `event` is the one that says where its rows are."""
        if encoding == "planes":
            return numbers
        if encoding == "steps":
            return np.cumsum(numbers, out=numbers)
        if event is None or len(event) != len(numbers):
            raise TraceError(
                f"{label}: expected as many rows as in column 'event', found {len(numbers):,}"
            )
        if len(event) and int(event.max()) > len(self.op):
            raise TraceError(f"{label}: a row stands before event {int(event.max()):,}")
        if encoding == "ago":
            if self.count is None:
                self.count = allocs_before(self.op)
            before = self.count[event].astype(numbers.dtype)
            return before - numbers.dtype.type(1) - numbers
        time_ns = columns.get("time_ns")
        if time_ns is None or not len(time_ns):
            raise TraceError(f"{label}: the trace has no times that these can be beside")
        away = (numbers >> np.uint64(1)) ^ (np.uint64(0) - (numbers & np.uint64(1)))
        return time_ns[np.minimum(event, np.uint64(len(time_ns) - 1))] - away


def empty_numbers(count: int, dtype: np.dtype[Any]) -> npt.NDArray[np.uint8]:
    """Return zeros to be filled plane by plane: a row of bytes, the lowest first, per number."""
    return np.zeros((count, dtype.itemsize), dtype=np.uint8)


def joined(numbers: npt.NDArray[np.uint8], dtype: np.dtype[Any]) -> Array:
    """Return the numbers that rows of bytes are."""
    little: npt.NDArray[Any] = numbers.view(dtype.newbyteorder("<")).reshape(len(numbers))
    return little.astype(dtype.newbyteorder("="), copy=False)
