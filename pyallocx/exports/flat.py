"""A flat table in C11: one look into an array for a size."""

from __future__ import annotations

from collections.abc import Iterator
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
    number_of,
    numbers_of,
    rows,
)

OPTIONS = ("max_entries",)
_MOST_BYTES = 1 << 62


class _Part(NamedTuple):
    """A table of the sizes above `split`, up to the class `last`, over equal steps from `base`."""

    split: int
    base: int
    step_log: int
    last: int

    @property
    def entries(self) -> int:
        return (self.last - self.base >> self.step_log) + 1


def _step_log(distances: list[int]) -> int:
    together = 0
    for distance in distances:
        together |= distance
    return (together & -together).bit_length() - 1


def _parts(classes: list[int], most: int) -> list[_Part]:
    """Return one table, or the two that are shortest together where one would be too long."""
    one = _Part(0, 0, _step_log(classes), classes[-1])
    if one.entries <= most:
        return [one]
    best: list[_Part] | None = None
    for k in range(1, len(classes)):
        split, behind = classes[k - 1], classes[k:]
        low = _Part(0, 0, _step_log(classes[:k]), split)
        # Steps from the class below, or from the multiple of a step below it.
        near = _step_log([size - split for size in behind])
        whole = _step_log(behind)
        for base, step_log in ((split, near), (split >> whole << whole, whole)):
            high = _Part(split, base, step_log, classes[-1])
            if best is None or low.entries + high.entries < sum(part.entries for part in best):
                best = [low, high]
    least = min(one.entries, sum(part.entries for part in best) if best else one.entries)
    if least > most:
        raise ValueError(
            f"flat: the table would have {least} entries, max_entries allows {most}; "
            "px.fit(..., align_bytes=) with a larger alignment, or a smaller largest_bytes, makes "
            "it shorter"
        )
    assert best is not None
    return best


def write(subject: Subject, name: str | None, **options: Any) -> str:
    """Return the C11 source."""
    named("flat", options, OPTIONS)
    most = options.get("max_entries", 1 << 16)
    if isinstance(most, bool) or not isinstance(most, int) or most < 1:
        raise ValueError(f"flat: max_entries is {most!r}, allowed is 1 or more")
    classes = subject.classes
    if classes[-1] > _MOST_BYTES:
        raise ValueError(f"flat: the largest class is {classes[-1]}, allowed is up to 2**62")
    word = identifier(name, subject.map.name or "sizes")
    text = "\n".join(_lines(subject, word, _parts(classes, most))) + "\n"
    _check(text, word, subject)
    return text


def _lines(subject: Subject, name: str, parts: list[_Part]) -> Iterator[str]:
    classes, size_map = subject.classes, subject.map
    big = name.upper()
    narrow = "uint8_t" if len(classes) < 256 else "uint16_t"
    wide = "uint32_t" if classes[-1] < 1 << 32 else "uint64_t"
    yield from comment(subject.about)
    yield f"// {name}_class(size): the class of a size, from 1; 0 above {big}_LARGEST."
    if size_map.header_bytes or size_map.align_bytes > 1:
        yield f"// A size is what a block must hold, header included: {name}_need(request)."
    yield f"// {name}_sizes[class]: its bytes. The table was compared with them for every size."
    yield f"#ifndef {big}_H"
    yield f"#define {big}_H"
    yield ""
    yield "#include <stddef.h>"
    yield "#include <stdint.h>"
    yield ""
    yield f"#define {big}_CLASSES {len(classes)}"
    yield f"#define {big}_LARGEST UINT64_C({classes[-1]})"
    yield ""
    yield f"static const {wide} {name}_sizes[{len(classes) + 1}] = {{"
    yield from rows([0, *classes], 10)
    yield "};"
    if len(parts) == 2:
        yield ""
        yield f"#define {big}_SPLIT UINT64_C({parts[1].split})"
    table = np.array(classes, dtype=np.int64)
    for part, suffix in zip(parts, ("", "_high"), strict=False):
        ends = part.base + (np.arange(part.entries, dtype=np.int64) << part.step_log)
        ids = np.searchsorted(table, ends) + 1
        yield ""
        yield f"#define {big}_BASE{suffix.upper()} UINT64_C({part.base})"
        yield f"#define {big}_STEP_LOG{suffix.upper()} {part.step_log}"
        yield f"static const {narrow} {name}_table{suffix}[{part.entries}] = {{"
        yield from rows(ids.tolist(), 24)
        yield "};"
    yield ""
    yield f"static inline unsigned {name}_class(uint64_t size) {{"
    yield f"    if (size > {big}_LARGEST) {{"
    yield "        return 0;"
    yield "    }"
    if len(parts) == 2:
        yield f"    if (size > {big}_SPLIT) {{"
        yield f"        return {name}_table_high[" + _index(big, "_HIGH") + "];"
        yield "    }"
    yield f"    return {name}_table[" + _index(big, "") + "];"
    yield "}"
    if size_map.header_bytes or size_map.align_bytes > 1:
        yield ""
        yield f"// Defined for requests up to {big}_LARGEST."
        yield f"static inline uint64_t {name}_need(uint64_t request) {{"
        mask = size_map.align_bytes - 1
        yield (
            f"    return ((request + UINT64_C({mask})) & ~UINT64_C({mask})) + "
            f"UINT64_C({size_map.header_bytes});"
        )
        yield "}"
    yield ""
    yield f"#endif  // {big}_H"


def _index(big: str, suffix: str) -> str:
    step = f"{big}_STEP_LOG{suffix}"
    return f"(size - {big}_BASE{suffix} + (UINT64_C(1) << {step}) - 1) >> {step}"


def _check(text: str, name: str, subject: Subject) -> None:
    """Look every size up in what was written, as the function in it does."""
    big = name.upper()
    sizes = np.array(numbers_of(text, f"{name}_sizes"), dtype=np.int64)
    largest = number_of(text, f"{big}_LARGEST")
    tables = []
    for suffix in ("", "_high"):
        if f"{name}_table{suffix}[" in text:
            tables.append(
                (
                    number_of(text, f"{big}_SPLIT") if suffix else -1,
                    number_of(text, f"{big}_BASE{suffix.upper()}"),
                    number_of(text, f"{big}_STEP_LOG{suffix.upper()}"),
                    np.array(numbers_of(text, f"{name}_table{suffix}"), dtype=np.int64),
                )
            )
    if largest != subject.map.largest or sizes[1:].tolist() != subject.classes or sizes[0]:
        raise CorruptionError("flat: the classes that were written are others")
    if any(table.max() >= len(sizes) for *_, table in tables):
        raise CorruptionError("flat: an entry is no class")

    def lookup(wanted: I64) -> I64:
        ids = np.zeros_like(wanted)
        for split, base, step_log, table in tables:
            inside = (wanted > split) & (wanted <= largest)
            index = np.minimum(
                (wanted[inside] - base + (1 << step_log) - 1) >> step_log, len(table) - 1
            )
            ids[inside] = table[index]
        return sizes[ids]

    edges = (
        base + (i << step_log) for _, base, step_log, table in tables for i in range(len(table))
    )
    judge("flat", lookup, subject.classes, edges)
