"""Allocators that cut every doubling into equal steps: most of today's."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain
from typing import Final

from pyallocx.presets._base import (
    MOST_BYTES,
    Knob,
    Rule,
    largest_knob,
    multiples,
    per_doubling,
    roundup,
    upto,
)

__all__ = ["RULES"]


def _stepped(step: int, linear: int, per: int) -> Iterator[int]:
    """Yield multiples of `step` up to `linear`, then `per` sizes per doubling."""
    return chain(upto(multiples(step), linear), per_doubling(linear, per))


def _jemalloc(
    lg_quantum: int,
    lg_ngroup: int,
    lg_tiny_min: int,
    lg_page: int,
    page_steps: bool,
    largest_bytes: int,
) -> Iterator[int]:
    if lg_tiny_min > lg_quantum:
        raise ValueError(f"lg_tiny_min ({lg_tiny_min}) must be at most lg_quantum ({lg_quantum})")
    if lg_page < lg_quantum:
        raise ValueError(f"lg_page ({lg_page}) must be at least lg_quantum ({lg_quantum})")
    quantum, group, slab_limit = 1 << lg_quantum, 1 << lg_ngroup, 1 << (lg_page + lg_ngroup)
    tiny = [1 << lg for lg in range(lg_tiny_min, lg_quantum)]

    def sizes() -> Iterator[int]:
        return chain(tiny, _stepped(quantum, quantum * group, group))

    # Classes below this limit live in slabs; a class of a slab must fit a byte of the lookup table.
    small = []
    for size in sizes():
        if size >= slab_limit:
            break
        small.append(size)
    if len(small) > 256:
        raise ValueError(f"at most 256 small classes, these knobs give {len(small)}")
    if page_steps:
        page = 1 << lg_page
        pages = multiples(page, (small[-1] if small else 0) // page + 1)
        return upto(chain(small, pages), largest_bytes)
    return upto(sizes(), largest_bytes)


def _mimalloc(
    step_bytes: int, medium_bytes: int, slice_bytes: int, largest_bytes: int
) -> Iterator[int]:
    # Up to eight words in steps of the alignment; one word comes first in any case.
    first = [8] if step_bytes > 8 else []
    small = upto(chain(first, _stepped(step_bytes, 64, 4)), medium_bytes)
    slices = multiples(slice_bytes, medium_bytes // slice_bytes + 1)
    return upto(chain(small, slices), largest_bytes)


def _rpmalloc(granularity_bytes: int, small_bytes: int, largest_bytes: int) -> Iterator[int]:
    return upto(_stepped(granularity_bytes, small_bytes, 4), largest_bytes)


def _snmalloc(
    intermediate_bits: int, min_step_bytes: int, slab_bytes: int, largest_bytes: int
) -> Iterator[int]:
    per = 1 << intermediate_bits
    stepped = upto(_stepped(min_step_bytes, min_step_bytes * per, per), slab_bytes)
    powers = (slab_bytes << i for i in range(1, 48))
    return upto(chain(stepped, powers), largest_bytes)


def _hardened(extended: bool, canary: bool, largest_bytes: int) -> Iterator[int]:
    slabs, canary_bytes = (131072 if extended else 16384), (8 if canary else 0)
    sizes = _stepped(16, 128, 4)  # slabs and what is mapped on its own follow one rule
    return upto((size - canary_bytes if size <= slabs else size for size in sizes), largest_bytes)


def _tbb() -> Iterator[int]:
    yield from chain([8], upto(_stepped(16, 64, 4), 1024))
    # The sizes, in cache lines of 64 bytes, of which this many just fit a slab of 16 KiB with its
    # header of two lines.
    for objects in (9, 6, 4, 3, 2):
        yield (16384 - 128) // objects // 64 * 64


def _partition(per: int, largest_bytes: int) -> Iterator[int]:
    return upto(_stepped(16, 256, per), largest_bytes)


def _partition_denser(largest_bytes: int) -> Iterator[int]:
    return _partition(8, largest_bytes)


def _partition_neutral(largest_bytes: int) -> Iterator[int]:
    return _partition(4, largest_bytes)


def _glibc(size_bytes: int, largest_bytes: int) -> Iterator[int]:
    # A chunk is two words or a multiple of them, at least four; its user has all but one word of
    # it, since the last word of his is the first of the next chunk.
    align = 2 * size_bytes
    smallest = roundup(4 * size_bytes, align)
    return upto(
        (chunk - size_bytes for chunk in multiples(align, smallest // align)), largest_bytes
    )


def _kmalloc(min_bytes: int, largest_bytes: int) -> Iterator[int]:
    # Powers of two, and the two odd caches where they are above the smallest.
    powers = (min_bytes << i for i in range(48))
    odd = {96, 192} if min_bytes <= 32 else ({192} if min_bytes <= 64 else set())
    return upto(_woven(powers, odd), largest_bytes)


def _woven(powers: Iterator[int], odd: set[int]) -> Iterator[int]:
    for power in powers:
        yield from sorted(size for size in odd if power // 2 < size < power)
        yield power


# musl's table, in units of 16 bytes: 1..10, 12, 15, then four per doubling chosen so that 7, 6, 5
# and 4 of them just fit a group. Rounding is not uniform, so that the numbers are their own rule.
_MUSL_UNITS: Final = """
1 2 3 4 5 6 7 8 9 10 12 15 18 20 25 31 36 42 50 63 72 84 102 127 146 170 204 255 292 340 409 511
584 682 818 1023 1169 1364 1637 2047 2340 2730 3276 4095 4680 5460 6552 8191
"""


def _musl() -> Iterator[int]:
    return (16 * int(units) - 4 for units in _MUSL_UNITS.split())


def _supermalloc(spacing_percent: int) -> Iterator[int]:
    line, last = 64, 16384
    small = (i << k for k in range(1, 7) for i in range(4, 8))
    yield from (size for size in small if size < 4 * line)
    lines = last // line
    odd = [n for n in range(5, 2 * lines) if n in (9, 15) or _is_prime(n)]
    chosen = {1 << k for k in range(2, lines.bit_length())}
    # From each odd count of cache lines to the largest one that is not further away than the
    # spacing, or else the next; powers of two are there in any case.
    at = 4
    while at < lines:
        chosen.add(at)
        near = [n for n in odd if at < n and n * spacing_percent <= at * 100]
        at = near[-1] if near else next(n for n in odd if n > at)
    yield from (number * line for number in sorted(chosen))
    yield from (last << k for k in range(1, 4))
    yield 63 * 4096


def _is_prime(number: int) -> bool:
    return number > 1 and all(number % i for i in range(2, int(number**0.5) + 1))


RULES: Final[dict[str, Rule]] = {
    "jemalloc": Rule(
        _jemalloc,
        "jemalloc 5.3: sc.c, by its rule of groups",
        (
            Knob("lg_quantum", 4, 3, 12, "log2 of the smallest step"),
            Knob("lg_ngroup", 2, 0, 6, "log2 of the classes per doubling"),
            Knob("lg_tiny_min", 3, 0, 12, "log2 of the smallest class"),
            Knob(
                "lg_page", 12, 12, 21, "log2 of the bytes of a page; slabs end at a group of them"
            ),
            Knob("page_steps", False, 0, 1, "whole pages above the slabs, as newer versions do"),
            largest_knob(262144),
        ),
    ),
    "mimalloc": Rule(
        _mimalloc,
        "mimalloc 2.0.9: bins of words, four per doubling, then whole slices",
        (
            Knob("step_bytes", 16, 8, 16, "bytes of a step up to 64 (the alignment)", True),
            Knob("medium_bytes", 131072, 1024, 1 << 24, "bytes; larger ones are slices", True),
            Knob("slice_bytes", 65536, 4096, 1 << 24, "bytes of a slice", True),
            largest_knob(262144),
        ),
    ),
    "rpmalloc": Rule(
        _rpmalloc,
        "rpmalloc 5dacae8: 16-byte steps to 1 KiB, then four per doubling",
        (
            Knob("granularity_bytes", 16, 16, 256, "bytes of a small step", True),
            Knob("small_bytes", 1024, 256, 65536, "bytes; steps grow above", True),
            largest_knob(2 << 20),
        ),
    ),
    "snmalloc": Rule(
        _snmalloc,
        "snmalloc f70eb82: exponent and mantissa, powers of two above 64 KiB",
        (
            Knob("intermediate_bits", 2, 0, 6, "bits of the mantissa (USE_INTERMEDIATE_BITS)"),
            Knob("min_step_bytes", 16, 8, 256, "bytes (MIN_ALLOC_STEP_SIZE)", True),
            Knob("slab_bytes", 65536, 16384, 1 << 20, "bytes; powers of two above", True),
            largest_knob(262144),
        ),
    ),
    "hardened-malloc": Rule(
        _hardened,
        "hardened_malloc 53326b3: 16-byte steps to 128, four per doubling, less the slab canary",
        (
            Knob(
                "extended", True, 0, 1, "slabs to 128 KiB (CONFIG_EXTENDED_SIZE_CLASSES), else 16"
            ),
            Knob("canary", True, 0, 1, "8 bytes of each slab object are a canary"),
            largest_knob(262144),
        ),
    ),
    "tbb": Rule(
        _tbb,
        "oneTBB 2021.8: four per doubling to 1 KiB, then fits of a slab; larger objects are exact",
    ),
    "partitionalloc-denser": Rule(
        _partition_denser,
        "PartitionAlloc (Chromium), 64-bit, BucketDistribution kDenser: eight per doubling",
        (largest_knob(983040),),
    ),
    "partitionalloc-neutral": Rule(
        _partition_neutral,
        "PartitionAlloc (Chromium), 64-bit, BucketDistribution kNeutral: four per doubling",
        (largest_knob(917504),),
    ),
    "glibc": Rule(
        _glibc,
        "glibc 2.36: chunks of 32, 48, ... bytes, less a word; no classes above",
        (
            Knob(
                "size_bytes",
                8,
                4,
                8,
                "bytes of a word (SIZE_SZ); chunks are multiples of two",
                True,
            ),
            largest_knob(262144),
        ),
    ),
    "musl-mallocng": Rule(
        _musl,
        "musl 1.2.3 mallocng: 48 classes of 16-byte units less 4 bytes in band, a published list",
    ),
    "supermalloc": Rule(
        _supermalloc,
        "SuperMalloc 709663f: four per doubling to 256, then spaced counts of cache lines",
        (
            Knob(
                "spacing_percent",
                70,
                50,
                99,
                "percent; the least that a class is of the next odd count of lines",
            ),
        ),
    ),
    "linux-kmalloc": Rule(
        _kmalloc,
        "Linux 6.18 kmalloc: powers of two, 96 and 192",
        (
            Knob("min_bytes", 8, 8, 128, "bytes of the smallest cache", True),
            largest_knob(8192)._replace(highest=MOST_BYTES),
        ),
    ),
}
