"""Allocators that cut spans of pages into objects: the lists of google/tcmalloc and of Go."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

from pyallocx._core import CorruptionError
from pyallocx.exports._base import (
    I64,
    Subject,
    comment,
    identifier,
    judge,
    named,
    no_header,
    number_of,
    numbers_of,
    rows,
)

TCMALLOC_OPTIONS = ("page_shift", "max_classes")
GO_OPTIONS = ("max_classes",)

_TAIL = 8  # a span leaves at most an eighth of its bytes over
_STEP = 8  # of the lookup up to 1024 bytes
_WIDE_STEP = 128  # and above
_SPLIT = 1024
_HOW = {
    "tcmalloc": "align_bytes=8, grid=[(1024, 8), (None, 128)]",
    "go": "align_bytes=8, grid=[(32, 8), (1024, 16), (None, 128)]",
}
_BITMAP = 64  # objects that a span of google/tcmalloc keeps in a bitmap
_MOST_PAGES = 63
_GO_PAGE = 8192
_GO_LARGEST = 32768


class _Row(NamedTuple):
    size: int
    pages: int
    batch: int


def span_pages(size: int, page: int, most: int, objects: int = 1 << 62) -> int:
    """Return the pages of a span: the fewest with a tail of at most an eighth, and few objects.

    Where no number will do, that with the smallest share of tail; a span of one page may hold any
    number of objects.
    """
    first = -(-size // page)
    allowed = [
        pages
        for pages in range(first, max(first, most) + 1)
        if pages == 1 or pages * page // size <= objects
    ] or [first]
    for pages in allowed:
        if pages * page % size * _TAIL <= pages * page:
            return pages
    return min(allowed, key=lambda pages: (pages * page % size) / (pages * page))


def batch(size: int) -> int:
    """Return how many objects are moved at a time: 64 KiB of them, 2 to 32."""
    return min(max(65536 // size, 2), 32)


def _grid(target: str, classes: Sequence[int]) -> None:
    """Refuse classes between the steps of the two lookups."""
    for i, size in enumerate(classes):
        step = _STEP if size <= _SPLIT else _WIDE_STEP
        if size % step:
            where = "up to 1024 bytes are" if size <= _SPLIT else "above 1024 bytes are"
            raise ValueError(
                f"{target}: alignment: classes {where} multiples of {step}, class {i + 1} is "
                f"{size}; px.fit(..., {_HOW[target]}) makes none between"
            )


def _ending(target: str, classes: Sequence[int], largest: int, word: str) -> None:
    if classes[-1] != largest:
        raise ValueError(
            f"{target}: the last class must be {largest} ({word}), it is {classes[-1]}; "
            f"px.fit(..., largest_bytes={largest}) ends there"
        )


def _count(target: str, classes: Sequence[int], most: int) -> None:
    if len(classes) > most:
        raise ValueError(
            f"{target}: {len(classes)} classes, at most {most} are allowed (and class 0); "
            f"px.fit(..., classes={most}) makes no more"
        )


def _most(target: str, options: dict[str, Any], default: int, ceiling: int) -> int:
    most = options.get("max_classes", default)
    if isinstance(most, bool) or not isinstance(most, int) or not 1 <= most <= ceiling:
        raise ValueError(f"{target}: max_classes is {most!r}, allowed is 1 to {ceiling}")
    return most


def _step_lookup(table: I64, wide: I64, split: int) -> Any:
    """Return the two lookups: in steps of 8, and above `split` in steps of 128."""

    def lookup(sizes: I64) -> I64:
        low = np.minimum((sizes + _STEP - 1) // _STEP, len(table) - 1)
        high = np.clip((sizes - _SPLIT + _WIDE_STEP - 1) // _WIDE_STEP, 0, len(wide) - 1)
        return np.where(sizes <= split, table[low], wide[high])

    return lookup


# --- google/tcmalloc


def write_tcmalloc(subject: Subject, name: str | None, **options: Any) -> str:
    """Return rows of size, pages of a span, batch."""
    named("tcmalloc", options, TCMALLOC_OPTIONS)
    no_header("tcmalloc", subject)
    shift = options.get("page_shift", 13)
    if shift not in (12, 13, 15, 18):
        raise ValueError(f"tcmalloc: page_shift is {shift!r}, allowed are 12, 13, 15, 18")
    most = _most("tcmalloc", options, 85, 254)
    classes, page = subject.classes, 1 << shift
    largest = 8192 if shift == 12 else 262144
    _ending("tcmalloc", classes, largest, "kMaxSize")
    _count("tcmalloc", classes, most)
    _grid("tcmalloc", classes)
    table = [
        _Row(size, span_pages(size, page, _MOST_PAGES, _BITMAP), batch(size)) for size in classes
    ]
    word = identifier(name, subject.map.name or "SizeClasses", ["SizeClassInfo"])
    text = "\n".join(_tcmalloc_lines(subject, word, table, page)) + "\n"
    _check_tcmalloc(text, word, subject, page, largest)
    return text


def _tcmalloc_lines(subject: Subject, name: str, table: list[_Row], page: int) -> Iterator[str]:
    yield from comment(subject.about)
    yield from comment(
        [
            f"spans of {page}-byte pages: the fewest with a tail of at most an eighth and at most "
            f"{_BITMAP} objects, or one page",
            "batch: 64 KiB of objects, 2 to 32",
        ]
    )
    yield f"static constexpr SizeClassInfo {name}[] = {{"
    yield "    // bytes, pages, batch"
    yield "    {0, 0, 0},"
    for i, row in enumerate(table):
        span = row.pages * page
        about = (
            f"class {i + 1}: {span // row.size} objects, tail {100 * (span % row.size) / span:.1f}%"
        )
        yield f"    {{{row.size}, {row.pages}, {row.batch}}},  // {about}"
    yield "};"


def _check_tcmalloc(text: str, name: str, subject: Subject, page: int, largest: int) -> None:
    """Apply the allocator's own checks to the rows that were written, and look every size up."""
    body = text[text.index(f"{name}[] = {{") :]
    found = [
        _Row(int(a), int(b), int(c))
        for a, b, c in re.findall(r"(?m)^\s*\{(\d+), (\d+), (\d+)\},", body)
    ]
    if found[0] != (0, 0, 0):
        raise CorruptionError("tcmalloc: class 0 is missing")
    last = 0
    for row in found[1:]:
        objects = row.pages * page // row.size
        if row.size <= last or row.size % (_STEP if row.size <= _SPLIT else _WIDE_STEP):
            raise CorruptionError(f"tcmalloc: class of {row.size} bytes after {last}")
        if not 1 <= row.pages <= _MOST_PAGES or objects < 1 or not 2 <= row.batch <= 128:
            raise CorruptionError(f"tcmalloc: row {row}")
        if row.pages > 1 and objects > _BITMAP:
            raise CorruptionError(f"tcmalloc: {objects} objects in a span of {row.pages} pages")
        last = row.size
    if last != largest:
        raise CorruptionError(f"tcmalloc: the last class is {last}")
    # One array of classes: index (s + 7) / 8 up to 1024, (s + 127 + 120 * 128) / 128 above.
    sizes = np.array([row.size for row in found], dtype=np.int64)
    length = (largest + 127 + 120 * 128) // 128 + 1
    array = np.zeros(length, dtype=np.int64)
    at = 0
    for i in range(1, len(found)):
        size = found[i].size
        end = (size + 7) // 8 if size <= _SPLIT else (size + 127 + 120 * 128) // 128
        array[at : end + 1] = i
        at = end + 1

    def lookup(wanted: I64) -> I64:
        index = np.where(wanted <= _SPLIT, (wanted + 7) // 8, (wanted + 127 + 120 * 128) // 128)
        return sizes[array[index]]

    judge("tcmalloc", lookup, subject.classes)


# --- Go


def write_go(subject: Subject, name: str | None, **options: Any) -> str:
    """Return the list, spans, divisors and both lookup tables of Go's runtime."""
    named("go", options, GO_OPTIONS)
    no_header("go", subject)
    most = _most("go", options, 67, 127)
    # Above its classes Go hands out whole pages, as the preset does.
    classes = [size for size in subject.classes if size <= _GO_LARGEST]
    above = subject.classes[len(classes) :]
    if above != [_GO_LARGEST + (i + 1) * _GO_PAGE for i in range(len(above))]:
        classes = subject.classes
    _ending("go", classes, _GO_LARGEST, "_MaxSmallSize")
    _count("go", classes, most)
    for i, size in enumerate(classes):
        if size >= 32 and size % 16:
            raise ValueError(
                f"go: alignment: classes from 32 bytes on are multiples of 16, class {i + 1} is "
                f"{size}; px.fit(..., {_HOW['go']}) makes such"
            )
    _grid("go", classes)
    package = identifier(name, "runtime")
    text = "\n".join(_go_lines(subject, package, classes)) + "\n"
    _check_go(text, classes)
    return text


def _go_lines(subject: Subject, package: str, classes: list[int]) -> Iterator[str]:
    pages = [span_pages(size, _GO_PAGE, _MOST_PAGES) for size in classes]
    table = np.array(classes)
    small = np.searchsorted(table, np.arange(0, _SPLIT, _STEP)) + 1
    small[0] = 0
    wide = np.searchsorted(table, np.arange(_SPLIT, _GO_LARGEST + 1, _WIDE_STEP)) + 1
    yield from comment(subject.about)
    left = len(subject.classes) - len(classes)
    if left:
        yield (
            f"// Of these the first {len(classes)}: above {_GO_LARGEST} bytes Go hands out whole "
            f"pages, so {left} {'class is' if left == 1 else 'classes are'} left out."
        )
    yield "// Spans: the fewest 8-KiB pages with a tail of at most an eighth."
    yield "//"
    yield "// class  bytes/obj  bytes/span  objects  tail waste"
    for i, (size, count) in enumerate(zip(classes, pages, strict=True)):
        span = count * _GO_PAGE
        yield f"// {i + 1:5} {size:10} {span:11} {span // size:8} {span % size:11}"
    yield ""
    yield f"package {package}"
    yield ""
    yield "const ("
    for word, value in (
        ("_MaxSmallSize", _GO_LARGEST),
        ("smallSizeDiv", _STEP),
        ("smallSizeMax", _SPLIT),
        ("largeSizeDiv", _WIDE_STEP),
        ("_NumSizeClasses", len(classes) + 1),
        ("_PageShift", 13),
    ):
        yield f"\t{word} = {value}"
    yield ")"
    yield ""
    number = "_NumSizeClasses"
    divisors = [0, *(((1 << 32) - 1) // size + 1 for size in classes)]
    for word, length, kind, values in (
        ("class_to_size", number, "uint16", [0, *classes]),
        ("class_to_allocnpages", number, "uint8", [0, *pages]),
        ("class_to_divmagic", number, "uint32", divisors),
        ("size_to_class8", "smallSizeMax/smallSizeDiv + 1", "uint8", _to_split(small, table)),
        (
            "size_to_class128",
            "(_MaxSmallSize-smallSizeMax)/largeSizeDiv + 1",
            "uint8",
            wide.tolist(),
        ),
    ):
        yield f"var {word} = [{length}]{kind}{{"
        yield from rows(values, 16, "\t")
        yield "}"


def _to_split(small: I64, table: I64) -> list[int]:
    return [*small.tolist(), int(np.searchsorted(table, _SPLIT)) + 1]


def _check_go(text: str, classes: list[int]) -> None:
    """Check lengths, widths and divisors of what was written, and look every size up."""
    sizes = np.array(numbers_of(text, "class_to_size"), dtype=np.int64)
    pages = numbers_of(text, "class_to_allocnpages")
    magic = numbers_of(text, "class_to_divmagic")
    small = np.array(numbers_of(text, "size_to_class8"), dtype=np.int64)
    wide = np.array(numbers_of(text, "size_to_class128"), dtype=np.int64)
    count = number_of(text, "_NumSizeClasses")
    lengths = [len(sizes), len(pages), len(magic)]
    if lengths != [count] * 3 or len(small) != 129 or len(wide) != 249:
        raise CorruptionError(f"go: arrays of {lengths}, {len(small)}, {len(wide)}")
    if max(*small, *wide) >= count or max(pages) > 255 or sizes.max() > 65535:
        raise CorruptionError("go: a number does not fit its type")
    for size, number, divisor in zip(sizes[1:].tolist(), pages[1:], magic[1:], strict=True):
        offsets = np.arange(number * _GO_PAGE + 1, dtype=np.uint64)
        if not np.array_equal(offsets * np.uint64(divisor) >> np.uint64(32), offsets // size):
            raise CorruptionError(f"go: the divisor of {size} is wrong in a span")
    ids = _step_lookup(small, wide, _SPLIT - 8)
    judge("go", lambda wanted: sizes[ids(wanted)], classes, first=1)
