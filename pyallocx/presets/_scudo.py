"""Every configuration of LLVM's scudo: at the commit that brought tables (2020), LLVM 14 and 19.

A class of scudo holds the header of its chunk: a request of r bytes needs ``roundup(r, 16) + 16``
(8 and 8 on 32-bit systems). Two maps exist. The fixed one counts in steps of ``2**min_size_log`` up
to ``2**mid_size_log`` and then cuts every doubling into ``2**(num_bits - 1)`` steps; the table map
takes any list whose beginning has that first part. Both are shifted by ``delta_bytes``.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from itertools import chain
from types import MappingProxyType
from typing import Final

from pyallocx.presets._base import Knob, Rule, multiples, per_doubling, upto

__all__ = ["MISSING", "RULES"]

# Sizes of the Android map for 64-bit systems, in LLVM's size_class_map.h: published numbers.
_ANDROID64_2020: Final = (
    "20 30 40 50 60 70 90 a0 b0 e0 110 130 1a0 240 320 430 640 830 a10 c30 "
    "1010 1150 1ad0 2190 3610 4010 4510 4d10 5a10 7310 9610 10010"
)
_ANDROID64: Final = (
    "20 30 40 50 60 70 90 b0 c0 e0 120 160 1c0 250 320 450 670 830 a10 c30 "
    "1010 1210 1bd0 2210 2d90 3790 4010 4810 5a10 7310 8210 10010"
)

_SHAPE: Final = (
    "num_bits",
    "min_size_log",
    "mid_size_log",
    "max_size_log",
    "max_num_cached_hint",
    "max_bytes_cached_log",
    "delta_bytes",
)


def _fixed(
    num_bits: int,
    min_size_log: int,
    mid_size_log: int,
    max_size_log: int,
    delta_bytes: int,
    **_: int,
) -> Iterator[int]:
    if not min_size_log <= mid_size_log <= max_size_log:
        raise ValueError(
            f"min_size_log ({min_size_log}) <= mid_size_log ({mid_size_log}) <= "
            f"max_size_log ({max_size_log}) must hold"
        )
    if mid_size_log < num_bits - 1:
        raise ValueError(
            f"mid_size_log ({mid_size_log}) must be at least num_bits - 1 ({num_bits - 1})"
        )
    linear, steps = 1 << (mid_size_log - min_size_log), 1 << (num_bits - 1)
    number = linear + (max_size_log - mid_size_log) * steps
    if number > 255:
        raise ValueError(f"a fixed map has at most 255 classes, these logs give {number}")
    middle, end = 1 << mid_size_log, 1 << max_size_log
    sizes = chain(
        upto(multiples(1 << min_size_log), middle),
        per_doubling(middle, steps) if end > middle else (),
    )
    return (size + delta_bytes for size in upto(sizes, end))


def _table(sizes: str) -> tuple[int, ...]:
    return tuple(int(word, 16) for word in sizes.split())


def _config(
    version: str,
    what: str,
    *shape: int,
    header: int = 16,
    table: str | None = None,
) -> Rule:
    fixed = dict(zip(_SHAPE, shape, strict=True))
    if table is None:
        return Rule(
            partial(_fixed, **fixed),
            f"scudo, {version}: {what}, fixed map",
            header_bytes=header,
            align_bytes=header,
            kind="fixed",
            fixed=MappingProxyType(fixed),
        )
    classes = _table(table)
    return Rule(
        lambda: classes,
        f"scudo, {version}: {what}, table map, sizes from size_class_map.h",
        header_bytes=header,
        align_bytes=header,
        kind="table",
        fixed=MappingProxyType(fixed),
    )


_2020: Final = "commit 041547eb of February 2020"
_14: Final = "LLVM 14.0.6"
_19: Final = "LLVM 19.1.7"

_KNOBS: Final = (
    Knob("num_bits", 3, 1, 9, "significant bits of a class; 2**(num_bits - 1) steps per doubling"),
    Knob("min_size_log", 5, 3, 47, "log2 of the smallest step"),
    Knob("mid_size_log", 8, 3, 47, "log2 of where steps begin to grow"),
    Knob("max_size_log", 17, 3, 63, "log2 of the largest class"),
    Knob("delta_bytes", 0, 0, 1 << 16, "bytes added to every class"),
    Knob("header_bytes", 16, 0, 1 << 12, "bytes of the header of a chunk, in the class"),
    Knob("align_bytes", 16, 1, 1 << 12, "bytes; requests are rounded up to it", True),
    Knob("max_num_cached_hint", 14, 0, 65535, "objects of a class a thread caches at most"),
    Knob("max_bytes_cached_log", 10, 0, 47, "log2 of the bytes of a class a thread caches at most"),
)

# The numbers are _SHAPE, in its order.
RULES: Final[dict[str, Rule]] = {
    "scudo-default-2020": _config(_2020, "every system but Android", 3, 5, 8, 17, 8, 10, 16),
    "scudo-default-14": _config(_14, "every system without its own", 3, 5, 8, 17, 14, 10, 0),
    "scudo-default-19": _config(_19, "every system without its own", 3, 5, 8, 17, 14, 10, 0),
    "scudo-fuchsia-14": _config(_14, "Fuchsia", 3, 5, 8, 17, 10, 10, 16),
    "scudo-fuchsia-19": _config(_19, "Fuchsia", 3, 5, 8, 17, 12, 10, 16),
    "scudo-svelte64-2020": _config(_2020, "small Android devices, 64-bit", 4, 4, 8, 14, 4, 10, 16),
    "scudo-svelte64-14": _config(_14, "small Android devices, 64-bit", 4, 4, 8, 14, 13, 10, 16),
    "scudo-svelte32-2020": _config(
        _2020, "small Android devices, 32-bit", 4, 3, 7, 14, 5, 10, 8, header=8
    ),
    "scudo-svelte32-14": _config(
        _14, "small Android devices, 32-bit", 4, 3, 7, 14, 14, 10, 8, header=8
    ),
    "scudo-trusty-14": _config(_14, "Trusty, one class", 1, 7, 7, 7, 8, 10, 0),
    "scudo-trusty-19": _config(_19, "Trusty, powers of two", 1, 5, 5, 15, 12, 10, 0),
    "scudo-android64-2020": _config(
        _2020, "Android, 64-bit", 7, 4, 6, 16, 14, 14, 16, table=_ANDROID64_2020
    ),
    "scudo-android64-14": _config(
        _14, "Android, 64-bit", 7, 4, 6, 16, 13, 13, 16, table=_ANDROID64
    ),
    "scudo-android64-19": _config(
        _19, "Android, 64-bit", 7, 4, 6, 16, 13, 13, 16, table=_ANDROID64
    ),
    "scudo-fixed": Rule(
        _fixed,
        "scudo's fixed map with any parameters; as it is, LLVM 19's default",
        _KNOBS,
        kind="fixed",
    ),
}

_NO_SIZES: Final = "its parameters are known, its list of 64 sizes is not"

#: Configurations that exist and that the package does not have, and why.
MISSING: Final[dict[str, str]] = dict.fromkeys(
    ("scudo-android32-2020", "scudo-android32-14", "scudo-android32-19"), _NO_SIZES
)
