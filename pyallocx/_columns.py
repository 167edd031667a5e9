"""The columns of a trace: which there are, and how a caller's arrays become ours."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, Final

import numpy as np
import numpy.typing as npt

OP_ALLOC: Final = 0
"""Makes an object: the k-th alloc makes object k."""
OP_FREE: Final = 1
"""Ends an object."""
OP_REALLOC: Final = 2
"""Gives an object another size; it stays the same object."""
OP_DESTROY: Final = 3
"""Ends an arena and every object that still lives in it; names no object (all bits one)."""

CALLS: Final = (
    "unknown",
    "malloc",
    "calloc",
    "realloc",
    "reallocarray",
    "posix_memalign",
    "aligned_alloc",
    "memalign",
    "valloc",
    "pvalloc",
    "new",
    "free",
    "delete",
)
"""The functions that make events: a number in the column `call` is a place in this tuple.

A realloc of NULL is an alloc, and a realloc that frees is a free; both are of ``realloc``."""

COLUMN_DTYPES: Final[Mapping[str, tuple[str, ...]]] = MappingProxyType(
    {
        "op": ("u1",),
        "thread": ("u4",),
        "object": ("u4", "u8"),
        "size_bytes": ("u8",),
        "align_log2": ("u1",),
        "time_ns": ("u8",),
        "key": ("u4",),
        "arena": ("u4",),
        "call": ("u1",),
    }
)
"""The columns of a trace in the order of the file, each with the dtypes it may have."""

REQUIRED_COLUMNS: Final = ("op", "object", "size_bytes")

Array = npt.NDArray[np.unsignedinteger[Any]]


def _exact(label: str, array: npt.NDArray[Any], value: object) -> npt.NDArray[Any]:
    """Read a list again that NumPy made floats of because its integers are far apart."""
    items = np.asarray(value, dtype=object)
    if not all(isinstance(item, int) and not isinstance(item, bool) for item in items.flat):
        return array
    try:
        return items.astype(np.uint64)
    except OverflowError:
        raise ValueError(f"{label} holds a number that does not fit uint64") from None


def exact_integers(label: str, value: object, allowed: str) -> npt.NDArray[Any]:
    """Turn what a caller gave into a one-dimensional integer array."""
    if value is None:
        raise TypeError(f"{label} is None, expected {allowed}")
    array = np.asarray(value)
    if not isinstance(value, np.ndarray):
        if array.size == 0:
            array = array.astype(np.uint8)
        elif array.dtype.kind in "fO":
            array = _exact(label, array, value)
    if array.dtype.kind not in "ui":
        raise TypeError(f"{label} has dtype {array.dtype}, expected integers that fit {allowed}")
    if array.ndim != 1:
        raise ValueError(f"{label} has {array.ndim} dimensions, expected 1")
    return array


def owned_column(name: str, value: object, events: int | None) -> Array:
    """Copy a caller's column into the dtype of the trace, refusing values that do not fit."""
    dtypes = COLUMN_DTYPES[name]
    allowed = " or ".join(f"uint{8 * int(d[1])}" for d in dtypes)
    array = exact_integers(f"column '{name}'", value, allowed)
    if events is not None and len(array) != events:
        raise ValueError(f"column '{name}' has {len(array)} events, expected {events} as in 'op'")
    dtype = np.dtype(dtypes[-1])
    if array.dtype.kind == "u" and f"u{array.dtype.itemsize}" in dtypes:
        dtype = array.dtype.newbyteorder("=")
    # In signed ids of objects, -1 is the natural way to write "none": all bits one.
    lowest = -1 if name == "object" else 0
    highest = int(np.iinfo(dtype).max)
    if array.size and (int(array.min()) < lowest or int(array.max()) > highest):
        wrong = (array < lowest) | (array > highest) if lowest == 0 else array < lowest
        at = int(np.argmax(wrong))
        raise ValueError(f"column '{name}' is {array[at]} at event {at}, allowed is 0 to {highest}")
    owned: Array = array.astype(dtype, copy=True)
    return owned


def sealed(column: Array) -> Array:
    """Return the same memory as an array that cannot be made writeable again."""
    column.setflags(write=False)
    # A flag is not enough: NumPy lets an array be made writeable if the owner of its memory is.
    return np.asarray(column.data.toreadonly())
