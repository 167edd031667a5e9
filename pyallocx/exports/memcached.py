"""The `slab_sizes` of memcached.

The rules below were observed on memcached 1.6.18, by what it accepts and what it says of itself.
"""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np

from pyallocx._core import CorruptionError
from pyallocx.exports._base import I64, Subject, judge, named

OPTIONS = ("chunk_max_bytes", "chunk_min_bytes")

_STEP = 8
#: Those that may be given; memcached adds the largest chunk as one more.
_MOST = 62


def write(subject: Subject, name: str | None, **options: Any) -> str:
    """Return the option; the largest chunk is not named in it, since memcached adds it."""
    named("memcached", options, OPTIONS)
    if name is not None:
        raise TypeError("export to memcached takes no name: the option has none")
    limits = []
    for word, default in (("chunk_max_bytes", 524288), ("chunk_min_bytes", 48)):
        value = options.get(word, default)
        if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= 1 << 30:
            raise ValueError(f"memcached: {word} is {value!r}, allowed is 1 to 2**30")
        limits.append(value)
    most_bytes, least_bytes = limits
    classes = subject.classes
    if classes[0] < least_bytes:
        raise ValueError(
            f"memcached: the first class is {classes[0]}, the smallest chunk is {least_bytes} "
            "(chunk_min_bytes; memcached -n): chunks hold the header of an item, too; "
            f"px.fit(..., header_bytes={least_bytes}) adds it where a profile has none in its sizes"
        )
    if classes[-1] > most_bytes:
        raise ValueError(
            f"memcached: the largest class is {classes[-1]}, the largest chunk is {most_bytes} "
            f"(chunk_max_bytes; half of memcached -I); px.fit(..., largest_bytes={most_bytes})"
        )
    for before, size in zip([0, *classes], classes, strict=False):
        if size % _STEP:
            raise ValueError(
                f"memcached: alignment: chunks are multiples of {_STEP}, a class is {size}; "
                "px.fit(..., align_bytes=16) makes none between"
            )
        if size - before <= _STEP:
            raise ValueError(
                f"memcached: increments: {size} must be more than {_STEP} bytes above {before}; "
                "px.fit(..., align_bytes=16) keeps classes apart"
            )
    given = classes[:-1] if classes[-1] == most_bytes else classes
    if len(given) > _MOST:
        raise ValueError(
            f"memcached: {len(given)} classes below the largest chunk, at most {_MOST} are allowed "
            f"(63 with it); px.fit(..., classes={_MOST + 1}, largest_bytes={most_bytes})"
        )
    if not given:
        raise ValueError("memcached: there must be a class below the largest chunk")
    text = f"-o slab_sizes={'-'.join(map(str, given))}\n"
    _check(text, subject, most_bytes)
    return text


def _check(text: str, subject: Subject, most_bytes: int) -> None:
    words = text.strip().removeprefix("-o slab_sizes=").split("-")
    chunks = [-(-int(word) // _STEP) * _STEP for word in words]
    if any(b - a <= _STEP for a, b in itertools.pairwise(chunks)) or len(chunks) > _MOST:
        raise CorruptionError(f"memcached: {text!r} would be refused")
    sizes = np.array([*chunks, most_bytes], dtype=np.int64)

    def lookup(wanted: I64) -> I64:
        # The first slab whose chunk is not smaller, one after another.
        found = np.zeros_like(wanted)
        for size in sizes[::-1]:
            found[wanted <= size] = size
        return found

    judge("memcached", lookup, subject.classes)
