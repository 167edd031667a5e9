"""When a class list is right for a table map, and the logarithm that fits it."""

from __future__ import annotations

import operator
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from pyallocx import _core

Ints = npt.NDArray[np.integer[Any]]
Sizes = npt.NDArray[np.uint64]

MAX_CLASSES = 65534
MAX_CLASS = 2**64 - 2
MAX_BYTES = 1 << 48  # of a header, an alignment and a delta
LOGS = ("num_bits", "min_size_log", "mid_size_log", "max_size_log")


class Violation(NamedTuple):
    """A condition that keeps a class list from being a right table map.

    Attributes
    ----------
    condition : str
        ``"V1"`` to ``"V6"``.
    refused : bool
        Whether a table map of these classes cannot be made. What is not refused wastes memory, and
        no more.
    class_index : int
        Of the class that breaks it, from 0; the number of classes where one is missing.
    text : str
        The condition in words, with the numbers.
    """

    condition: str
    refused: bool
    class_index: int
    text: str


def table_violations(
    classes: Sequence[int] | Ints,
    *,
    delta_bytes: int = 0,
    num_bits: int | None = None,
    min_size_log: int | None = None,
    mid_size_log: int | None = None,
    max_size_log: int | None = None,
    align_bytes: int = 1,
) -> tuple[Violation, ...]:
    """Return which conditions a class list breaks that a table map needs, by name.

    Parameters
    ----------
    classes : sequence of int
        Bytes; need not rise.
    delta_bytes, num_bits, min_size_log, mid_size_log, max_size_log
        As those of `SizeMap`.
    align_bytes : int, default 1
        What V6 wants all classes to be multiples of.

    Returns
    -------
    tuple of Violation
        In order, each condition at most once, by the first class that breaks it.

    Notes
    -----
    With d = `delta_bytes`:

    - V1: the classes rise strictly, and are at most 254.
    - V2: the linear prefix is complete: class i is ``d + (i + 1) * 2**min_size_log`` for all
      ``i < 2**(mid_size_log - min_size_log)``. Else sizes get classes smaller than they are.
    - V3: ``mid_size_log >= num_bits - 1``.
    - V4: behind the prefix, ``class - d`` has at most `num_bits` significant bits: it is an edge of
      a cell. Else the sizes of its cell get the class behind it. Where that is the largest class
      they would get none, so it is refused.
    - V5: the largest class is at most ``2**max_size_log + d``. Else sizes are looked up behind the
      end of the table.
    - V6: all classes are multiples of `align_bytes`.

    Examples
    --------
    >>> for violation in table_violations([32, 48, 80, 100], delta_bytes=16, num_bits=3,
    ...                                   min_size_log=4, mid_size_log=5, max_size_log=7):
    ...     print(violation.text)
    V4: the largest class, 100, less delta_bytes has 5 significant bits (1010100), num_bits allows 3
    """
    sizes = class_sizes(classes, rising=False)
    delta = whole("delta_bytes", delta_bytes, 0, MAX_BYTES)
    given = dict(zip(LOGS, (num_bits, min_size_log, mid_size_log, max_size_log), strict=True))
    logs = logarithm(sizes, delta, given)
    align = whole("align_bytes", align_bytes, 1, MAX_BYTES)
    params = logs | {"delta_bytes": delta, "align_bytes": align}
    return tuple(
        Violation(
            f"V{number}", refused, index, _words(number, index, value, expected, sizes, params)
        )
        for number, refused, index, value, expected in _core.size_map_violations(params, sizes)
    )


def _words(
    number: int, index: int, value: int, expected: int, sizes: Sizes, params: Mapping[str, int]
) -> str:
    if number == 1 and index == len(sizes):
        return f"V1: {value} classes, at most {expected} are allowed"
    if number == 1:
        return f"V1: class {index + 1} is {value}, not above the one before it, {sizes[index - 1]}"
    if number == 2:
        found = "there is none" if index == len(sizes) else f"it is {value}"
        end = (1 << params["mid_size_log"]) + params["delta_bytes"]
        return (
            f"V2: the linear prefix (steps of {1 << params['min_size_log']} up to {end}) wants "
            f"{expected} as class {index + 1}, {found}"
        )
    if number == 3:
        return f"V3: num_bits is {value}, mid_size_log allows {expected}"
    if number == 4:
        above = value - params["delta_bytes"]
        digits = f"{above:b}".rstrip("0")
        which = "the largest class" if index == len(sizes) - 1 else f"class {index + 1}"
        return (
            f"V4: {which}, {value}, less delta_bytes has {len(digits)} significant bits "
            f"({above:b}), num_bits allows {expected}"
        )
    if number == 5:
        return f"V5: the largest class is {value}, max_size_log and delta_bytes allow {expected}"
    return f"V6: class {index + 1} is {value}, no multiple of {expected}"


def logarithm(classes: Sizes, delta_bytes: int, given: Mapping[str, int | None]) -> dict[str, int]:
    """Fill in what is left out of the logarithm: what fits the classes best."""
    above = [max(1, int(size) - delta_bytes) for size in classes]
    low = given["min_size_log"]
    if low is None:
        low = min(63, above[0].bit_length() - 1)
    middle = given["mid_size_log"]
    if middle is None:
        prefix = 0
        while prefix < len(above) and above[prefix] == (prefix + 1) << low:
            prefix += 1
        middle = min(63, low + max(1, prefix).bit_length() - 1)
    bits = given["num_bits"]
    if bits is None:
        behind = above[1 << max(0, middle - low) :] if middle - low < 32 else []
        widest = max((len(f"{size:b}".rstrip("0")) for size in behind), default=1)
        bits = max(1, min(widest, middle + 1, 15))
    high = given["max_size_log"]
    if high is None:
        high = min(63, max(middle, (max(above) - 1).bit_length()))
    return dict(zip(LOGS, (bits, low, middle, high), strict=True))


def class_sizes(classes: Any, *, rising: bool = True) -> Sizes:
    """Return classes as uint64, or an error that names the first that is wrong."""
    if isinstance(classes, np.ndarray) and classes.dtype.kind not in "iu":
        raise TypeError(f"classes must be integers, got an array of {classes.dtype}")
    try:
        values = classes.tolist() if isinstance(classes, np.ndarray) else list(classes)
    except TypeError:
        raise TypeError(f"classes must be a sequence of integers, got {classes!r}") from None
    if not values:
        raise ValueError("there must be at least one class")
    if len(values) > MAX_CLASSES:
        raise ValueError(f"there are {len(values)} classes, at most {MAX_CLASSES} are allowed")
    sizes = [whole(f"class {i + 1}", value, 1, MAX_CLASS) for i, value in enumerate(values)]
    for i in range(1, len(sizes) if rising else 0):
        if sizes[i] <= sizes[i - 1]:
            raise ValueError(
                f"classes must rise strictly (V1), but class {i + 1} is {sizes[i]} after "
                f"{sizes[i - 1]}"
            )
    return np.array(sizes, dtype=np.uint64)


def whole(name: str, value: Any, low: int, high: int) -> int:
    try:
        if isinstance(value, (bool, np.bool_)):
            raise TypeError
        number = operator.index(value)
    except TypeError:
        raise TypeError(f"{name} must be an integer, got {value!r}") from None
    if not low <= number <= high:
        raise ValueError(f"{name} is {number}, allowed is {low:d} to {high}")
    return number
