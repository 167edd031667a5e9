"""Allocators that cut spans of pages into equal objects: gperftools, google/tcmalloc, Go."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import chain
from typing import Final, NamedTuple

from pyallocx.presets._base import MOST_CLASSES, Knob, Rule, largest_knob, multiples, upto

__all__ = ["RULES"]


class _Span(NamedTuple):
    size: int
    bytes: int

    @property
    def objects(self) -> int:
        return self.bytes // self.size


def _merged(spans: Iterable[_Span]) -> Iterator[_Span]:
    """Drop a class where the next larger one gets as many objects out of the same pages."""
    last: _Span | None = None
    for span in spans:
        if last is not None and (span.bytes, span.objects) != (last.bytes, last.objects):
            yield last
        last = span
    if last is not None:
        yield last


def _least_span(size: int, page: int, tail: int, objects: int = 1) -> _Span:
    """Return the fewest pages with at most 1/tail of them left over, and enough objects."""
    span = page
    while (span % size) * tail > span or span // size < objects:
        span += page
    return _Span(size, span)


def _gperftools(
    page_shift: int, transfer_num_obj: int, tail_divisor: int, largest_bytes: int
) -> Iterator[int]:
    page = 1 << page_shift

    def spans() -> Iterator[_Span]:
        size = 0
        while size < largest_bytes:
            if size < 16:
                step = 8
            elif size < 128:
                step = 16
            else:
                step = min(1 << (size.bit_length() - 1 - 3), page)
            size += step
            moved = min(max(65536 // size, 2), transfer_num_obj)
            yield _least_span(size, page, tail_divisor, max(moved // 4, 1))

    return (span.size for span in _merged(spans()))


def _go(
    page_bytes: int, tail_divisor: int, largest_small_bytes: int, largest_bytes: int
) -> Iterator[int]:
    def spans() -> Iterator[_Span]:
        size = 0
        while size < largest_small_bytes:
            if size >= 2048:
                step = 256
            elif size >= 128:
                step = 1 << (size.bit_length() - 1 - 3)
            else:
                step = 16 if size >= 32 else 8
            size += step
            yield _least_span(size, page_bytes, tail_divisor)

    # What a span has room for: the same number of objects, as large as the second lookup table,
    # which goes in steps of 128, can say. With other pages than Go's a class may grow to the next.
    small = sorted({max(s.size, s.bytes // s.objects // 128 * 128) for s in _merged(spans())})
    pages = multiples(page_bytes, largest_small_bytes // page_bytes + 1)
    return upto(chain(small, pages), largest_bytes)


# What google/tcmalloc ships for pages of 8 KiB and objects aligned to 8. The program that makes
# these lists is not public, so that the numbers are their own rule.
_GOOGLE: Final = """
8 16 32 64 80 96 112 128 160 184 208 256 312 368 448 512 576 704 896 1024 1152 1408 1792 2048 2304
2688 3456 4096 4736 6144 8192 9472 12288 16384 20480 28672 32768 40960 49152 65536 73728 81920 98304
131072 155648 204800 262144
"""
_GOOGLE_LEGACY: Final = """
8 16 24 32 40 48 56 64 72 80 88 96 104 112 120 128 136 144 160 168 176 184 192 208 224 240 256 272
296 312 320 352 368 384 408 424 448 480 512 576 640 704 768 896 1024 1152 1280 1408 1536 1792 2048
2304 2688 3200 3584 4096 4736 5376 6144 7168 8192 9472 10240 12288 14336 16384 20480 24576 28672
32768 40960 49152 57344 65536 73728 81920 98304 114688 131072 139264 155648 172032 204800 221184
262144
"""

_TAIL: Final = "a span may leave 1/tail_divisor of its bytes over"

RULES: Final[dict[str, Rule]] = {
    "gperftools": Rule(
        _gperftools,
        "gperftools 2.10 (tcmalloc): SizeMap::Init, by its rule of spans",
        (
            Knob("page_shift", 13, 12, 18, "log2 of the bytes of a page, chosen at build"),
            Knob(
                "transfer_num_obj",
                32,
                2,
                128,
                "objects moved at a time at most (TCMALLOC_TRANSFER_NUM_OBJ); "
                "a span holds a quarter of them",
            ),
            Knob("tail_divisor", 8, 1, 64, _TAIL),
            largest_knob(262144)._replace(highest=1 << 22),
        ),
    ),
    "google-tcmalloc": Rule(
        lambda: (int(word) for word in _GOOGLE.split()),
        "google/tcmalloc fce3f55 of 2026: its 47 classes for 8-KiB pages, a published list",
    ),
    "google-tcmalloc-legacy": Rule(
        lambda: (int(word) for word in _GOOGLE_LEGACY.split()),
        "google/tcmalloc fce3f55 of 2026: the 85 classes of before, want_legacy_size_classes, "
        "8-KiB pages, a published list",
    ),
    "go": Rule(
        _go,
        "Go 1.19: mksizeclasses.go, by its rule of spans; pages above 32 KiB",
        (
            Knob("page_bytes", 8192, 4096, 65536, "bytes of a page", True),
            Knob("tail_divisor", 8, 1, 64, _TAIL),
            Knob(
                "largest_small_bytes",
                32768,
                4096,
                65536,
                "bytes; larger objects get whole pages",
                True,
            ),
            largest_knob(262144)._replace(highest=4096 * MOST_CLASSES),
        ),
    ),
}
