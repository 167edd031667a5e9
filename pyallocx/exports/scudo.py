"""The configuration of scudo's table map: a struct in C++ that its TableSizeClassMap takes.

The conditions V1 to V6 are those of `px.table_violations`. With d = SizeDelta, lo = MinSizeLog and
mid = MidSizeLog, a size n of at most the first class has class 1, one of at most 2^mid behind d the
class ((n - d - 1) >> lo) + 1, and any other that of the upper edge of its cell.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

from pyallocx._constraints import significant_bits
from pyallocx._core import CorruptionError
from pyallocx.exports._base import (
    I64,
    Subject,
    comment,
    identifier,
    judge,
    named,
    number_of,
    numbers_of,
    rows,
)
from pyallocx.sizemap import table_violations

OPTIONS = (
    "num_bits",
    "delta_bytes",
    "min_align_bytes",
    "max_cached",
    "max_bytes_log",
    "compressed_lsb",
    "llvm",
)

# A member of a struct cannot have its name, and the types are scudo's.
_MEMBERS = (
    "NumBits",
    "MinSizeLog",
    "MidSizeLog",
    "MaxSizeLog",
    "MaxNumCachedHint",
    "MaxBytesCachedLog",
    "Classes",
    "SizeDelta",
    "uptr",
    "u16",
    "u32",
)
_MOST_CLASSES = 254
_MOST_TABLE = 1 << 16
# Width of MaxNumCachedHint and of the classes, by version of LLVM.
_TYPES = {14: ("u32", "u32", 1 << 32), 19: ("u16", "uptr", 1 << 48)}


class _Shape(NamedTuple):
    num_bits: int
    min_size_log: int
    mid_size_log: int
    max_size_log: int
    delta_bytes: int

    @property
    def table_bytes(self) -> int:
        return (self.max_size_log - self.mid_size_log) << (self.num_bits - 1)


def write(subject: Subject, name: str | None, **options: Any) -> str:
    """Return the struct."""
    named("scudo", options, OPTIONS)
    classes = subject.classes
    llvm = options.get("llvm", 19)
    if llvm not in _TYPES:
        raise ValueError(f"scudo: llvm is {llvm!r}, allowed are 14 and 19")
    hint_type, class_type, limit = _TYPES[llvm]
    max_cached = _number("max_cached", options.get("max_cached", 13), 0, 65535)
    bytes_log = _number("max_bytes_log", options.get("max_bytes_log", 13), 0, 31)
    align = options.get("min_align_bytes")
    if align is None:
        align = subject.map.align_bytes if subject.map.align_bytes > 1 else 16
    align = _number("min_align_bytes", align, 1, 1 << 32)
    if len(classes) > _MOST_CLASSES:
        raise ValueError(
            f"scudo: V1: {len(classes)} classes, at most {_MOST_CLASSES} are allowed; "
            f"px.fit(..., classes={_MOST_CLASSES}) makes no more"
        )
    if classes[-1] >= limit:
        raise ValueError(f"scudo: the largest class is {classes[-1]}, allowed is below {limit}")
    odd = [size for size in classes if size % align]
    if odd:
        raise ValueError(
            f"scudo: V6: classes are multiples of {align}, {odd[0]:#x} is none; "
            f"px.fit(..., align_bytes={align}) makes only such"
        )
    shape = _shape(subject, options)
    if shape.table_bytes > _MOST_TABLE:
        raise ValueError(
            f"scudo: V4: classes of {shape.num_bits} significant bits take a table of "
            f"{shape.table_bytes} bytes, allowed are {_MOST_TABLE}; px.fit(..., bits=7) makes one "
            "of less"
        )
    packed = _lsb(classes, options.get("compressed_lsb"))
    word = identifier(name, subject.map.name or "SizeClassConfig", _MEMBERS)
    lines = _lines(subject, word, shape, packed, (hint_type, max_cached), bytes_log, class_type)
    text = "\n".join(lines) + "\n"
    _check(text, subject, shape.delta_bytes, align)
    return text


def _number(name: str, value: Any, low: int, high: int) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= high:
        raise ValueError(f"scudo: {name} is {value!r}, allowed is {low} to {high}")
    return value


def _shape(subject: Subject, options: Any) -> _Shape:
    """Return the logarithm that fits: of the fewest bits, and then of the smallest table."""
    size_map = subject.map
    bits = options.get("num_bits")
    if bits is not None:
        bits = _number("num_bits", bits, 1, 32)
    deltas: Sequence[int]
    if options.get("delta_bytes") is not None:
        deltas = [_number("delta_bytes", options["delta_bytes"], 0, 1 << 32)]
    elif size_map.kind in ("table", "fixed") or size_map.delta_bytes:
        deltas = [size_map.delta_bytes]
    elif subject.fitted:
        deltas = [size_map.header_bytes]
    else:
        deltas = list(dict.fromkeys([size_map.header_bytes, 0]))
    found = [shape for delta in deltas if (shape := _fitting(subject.classes, delta, bits))]
    if found:
        return found[0]
    raise ValueError(_impossible(subject, deltas[0], bits))


def _fitting(classes: Sequence[int], delta: int, bits: int | None) -> _Shape | None:
    above = [size - delta for size in classes]
    if above[0] <= 0 or above[0] & (above[0] - 1):
        return None  # V2 wants the first class to be one step of a power of two
    low = above[0].bit_length() - 1
    prefix = 0
    while prefix < len(above) and above[prefix] == (prefix + 1) << low:
        prefix += 1
    shapes = []
    for middle in range(low, low + prefix.bit_length()):
        behind = above[1 << (middle - low) :]
        least = max((significant_bits(size) for size in behind), default=1)
        number = least if bits is None else bits
        if least <= number <= middle + 1:
            # A table of no entries is no array.
            high = max(middle + 1, (above[-1] - 1).bit_length())
            shapes.append(_Shape(number, low, middle, high, delta))
    return min(shapes, key=lambda shape: (shape.num_bits, shape.table_bytes), default=None)


def _impossible(subject: Subject, delta: int, given: int | None) -> str:
    """Say which condition keeps the classes from being a table map, and how to make one."""
    classes = subject.classes
    low = _lowest_log(subject, delta)
    widest = max((significant_bits(size - delta) for size in classes if size > delta), default=1)
    bits = given or subject.bits or widest
    how = f"px.fit(..., header_bytes={delta}, bits={min(bits, 7)}, prefix='table')"
    step = 1 << low
    middle = max(low, bits - 1)
    wide = [
        size
        for size in classes
        if size > delta + (1 << middle) and significant_bits(size - delta) > bits
    ]
    if wide and given is not None:
        return (
            f"scudo: V4: {wide[0]:#x} less SizeDelta ({delta}) has "
            f"{significant_bits(wide[0] - delta)} significant bits, num_bits allows {bits}; {how} "
            "makes classes that have no more"
        )
    wanted = [delta + (i + 1) * step for i in range(min(1 << (middle - low), 1 << 16))]
    there = set(classes)
    missing = [size for size in wanted if size not in there]
    between = [size for size in classes if size < wanted[-1] and size not in set(wanted)]
    text = (
        f"scudo: V2: with {bits} bits the first classes must be {_hex(wanted)} (SizeDelta {delta} "
        f"and steps of {step} up to 2^{middle})"
    )
    if missing:
        text += f": {_hex(missing)} {'is' if len(missing) == 1 else 'are'} missing"
    if between:
        text += f"{', and' if missing else ':'} {_hex(between)} must not be there"
    return f"{text}; {how} makes such"


def _lowest_log(subject: Subject, delta: int) -> int:
    if subject.map.min_size_log is not None:
        return subject.map.min_size_log
    if subject.map.align_bytes > 1:
        return subject.map.align_bytes.bit_length() - 1
    together = 0
    for size in subject.classes:
        together |= abs(size - delta)
    return max(0, (together & -together).bit_length() - 1)


def _hex(sizes: Sequence[int]) -> str:
    shown = ", ".join(f"{size:#x}" for size in sizes[:8])
    return shown if len(sizes) <= 8 else f"{shown}, ... ({len(sizes)})"


def _lsb(classes: Sequence[int], wanted: Any) -> bool:
    """Tell whether least set bits are packed in two bits for each class; refuse where they must."""
    lowest = [(size & -size).bit_length() - 1 for size in classes]
    least = min(lowest)
    packed = len(classes) <= 32 and max(lowest) - least <= 3
    if wanted and len(classes) > 32:
        raise ValueError(
            f"scudo: compressed LSB: {len(classes)} classes, at most 32 are allowed; "
            "px.fit(..., classes=32) makes no more"
        )
    if wanted and not packed:
        far = [size for size, bit in zip(classes, lowest, strict=True) if bit - least > 3]
        raise ValueError(
            "scudo: compressed LSB: the lowest set bits of all classes must lie within 3 of each "
            f"other, the least is bit {least}, but {_hex(far)} "
            f"{'has' if len(far) == 1 else 'have'} none below bit {least + 4}"
        )
    return packed


def _lines(
    subject: Subject,
    name: str,
    shape: _Shape,
    packed: bool,
    hint: tuple[str, int],
    bytes_log: int,
    class_type: str,
) -> Iterator[str]:
    yield from comment(subject.about)
    yield (
        f"// Table of {shape.table_bytes} bytes; least set bits "
        f"{'fit' if packed else 'do not fit'} in two bits a class."
    )
    yield f"struct {name} {{"
    for word, value in (
        ("NumBits", shape.num_bits),
        ("MinSizeLog", shape.min_size_log),
        ("MidSizeLog", shape.mid_size_log),
        ("MaxSizeLog", shape.max_size_log),
    ):
        yield f"  static const uptr {word} = {value};"
    yield f"  static const {hint[0]} MaxNumCachedHint = {hint[1]};"
    yield f"  static const uptr MaxBytesCachedLog = {bytes_log};"
    yield ""
    yield f"  static constexpr {class_type} Classes[] = {{"
    yield from rows([f"0x{size:05x}" for size in subject.classes], 8, "      ")
    yield "  };"
    yield f"  static const uptr SizeDelta = {shape.delta_bytes};"
    yield "};"


def _check(text: str, subject: Subject, delta: int, align: int) -> None:
    """Make the byte table of what was written as scudo does, and look every size up in it."""
    classes = numbers_of(text, "Classes")
    # Comments tell the same names.
    body = re.sub(r"(?m)^//.*$", "", text)
    bits, low, middle, high, written = (
        number_of(body, word)
        for word in ("NumBits", "MinSizeLog", "MidSizeLog", "MaxSizeLog", "SizeDelta")
    )
    if classes != subject.classes or written != delta:
        raise CorruptionError("scudo: the classes that were written are others")
    broken = table_violations(
        classes,
        delta_bytes=delta,
        num_bits=bits,
        min_size_log=low,
        mid_size_log=middle,
        max_size_log=high,
        align_bytes=align,
    )
    if broken:
        raise CorruptionError(f"scudo: {broken[0].text}")
    steps = bits - 1
    table, edges = [], []
    position, step = 1 << middle, 1 << (middle - steps)
    sizes = np.array(classes, dtype=np.int64)
    for _ in range((high - middle) << steps):
        position += step
        if position & (position - 1) == 0:
            step *= 2
        edges.append(position + delta)
        table.append(int(np.searchsorted(sizes, position + delta)))
    cells = np.array(table, dtype=np.int64)
    if len(cells) and cells.max() > len(sizes):
        raise CorruptionError("scudo: a cell has no class")

    padded = np.append(sizes, 0)

    def lookup(wanted: I64) -> I64:
        first = wanted <= sizes[0]
        above = np.maximum(wanted - delta, 1)
        linear = (above - 1) >> low
        top = np.maximum(above - 1, 1 << middle)
        # The exponent of a float64 is the highest set bit of a number below 2**53.
        log = np.frexp(top.astype(np.float64))[1].astype(np.int64) - 1
        index = ((log - middle) << steps) + (top >> (log - steps)) - (1 << steps)
        ids = np.where(above <= 1 << middle, linear, cells[np.minimum(index, len(cells) - 1)])
        return padded[np.where(first, 0, np.minimum(ids, len(sizes)))]

    judge("scudo", lookup, classes, edges, first=1)
