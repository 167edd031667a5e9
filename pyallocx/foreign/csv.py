"""The CSV that `pyallocx.write` makes, read back whole and strictly.

A header with ``op``, ``object`` and ``size_bytes`` among names of columns in their order, then one
row an event: words for operations and calls, whole numbers for all else, nothing for the object of
a destroy. Lines may end in CR LF.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final, NoReturn

import numpy as np
import numpy.typing as npt

from pyallocx._columns import COLUMN_DTYPES, REQUIRED_COLUMNS, Array
from pyallocx._core import CALL_NAMES
from pyallocx.foreign._source import Source
from pyallocx.trace import Trace

__all__ = ["read", "recognise"]

_HEADER: Final = re.compile(rb"op(,[a-z_0-9]+)+\r?(\n|\Z)")
_MOST_LINE_BYTES: Final = 1 << 12
_OPS: Final = ("alloc", "free", "realloc", "destroy")
_MOST: Final = 2**64 - 1
_WORDS: Final = {"op": _OPS, "call": CALL_NAMES}


def recognise(head: bytes) -> bool:
    """Whether a file begins as ours do."""
    found = _HEADER.match(head)
    return found is not None and b",object" in found[0] and b",size_bytes" in found[0]


def read(source: Source) -> Trace:
    """Read all columns."""
    pieces = _whole_lines(source)
    try:
        names = _names(source, next(pieces))
    except StopIteration:
        source.fail("the file is empty")
    row = _row(names)
    lines = re.compile(b"(?:" + row.pattern + b")*+")
    parts: dict[str, list[Array]] = {name: [] for name in names}
    line = 2
    for text in pieces:
        if b"\r" in text:
            text = text.replace(b"\r\n", b"\n")
        if not lines.fullmatch(text):
            _raise_at(source, text, row, names, line)
        plain = _in_numbers(text)
        if "object" in names:
            plain = _no_objects(plain, names)
        flat = np.fromstring(plain.replace(b"\n", b",")[:-1].decode(), dtype=np.uint64, sep=",")
        table = flat.reshape(-1, len(names))
        _check_ranges(source, table, text, names, line)
        for place, name in enumerate(names):
            parts[name].append(table[:, place].astype(COLUMN_DTYPES[name][-1]))
        line += len(table)
    columns = {
        name: np.concatenate(part) if part else np.empty(0, COLUMN_DTYPES[name][-1])
        for name, part in parts.items()
    }
    columns["object"] = _objects(columns["object"])
    return source.trace(columns, {})


def _names(source: Source, line: bytes) -> list[str]:
    names = line.decode("ascii", "replace").strip().split(",")
    known = [name for name in COLUMN_DTYPES if name in names]
    missing = [name for name in REQUIRED_COLUMNS if name not in names]
    if names != known or missing:
        source.fail(
            f"line 1: expected names of columns in their order ({', '.join(COLUMN_DTYPES)}), "
            f"{', '.join(REQUIRED_COLUMNS)} among them, found {line[:80]!r}"
        )
    return names


def _whole_lines(source: Source) -> Iterator[bytes]:
    """Yield the first line, then pieces that end where a line does."""
    rest = b""
    first = True
    for piece in source.pieces():
        text, end, tail = (rest + piece).rpartition(b"\n")
        rest = tail
        if end:
            if first:
                head, _, text = text.partition(b"\n")
                first = False
                yield head
            if text:
                yield text + b"\n"
        if len(rest) > _MOST_LINE_BYTES:
            source.fail(f"expected lines of at most {_MOST_LINE_BYTES} bytes, found {rest[:40]!r}")
    if rest:
        yield rest if first else rest + b"\n"


def _row(names: list[str]) -> re.Pattern[bytes]:
    """Return what a line is."""
    number = rb"(?:0|[1-9][0-9]{0,19})"
    fields = [
        b"(?:" + b"|".join(word.encode() for word in _WORDS[name]) + b")"
        if name in _WORDS
        else number + b"?"
        if name == "object"
        else number
        for name in names
    ]
    return re.compile(b",".join(fields) + b"\n")


def _raise_at(
    source: Source, text: bytes, row: re.Pattern[bytes], names: list[str], line: int
) -> NoReturn:
    for wrong in text.split(b"\n")[:-1]:
        if not row.fullmatch(wrong + b"\n"):
            source.fail(
                f"line {line}: expected {','.join(names)}: {'|'.join(_OPS)} as op, whole numbers "
                f"below 2**64, found {wrong[:80]!r}"
            )
        line += 1
    source.fail(f"line {line}: expected a row")


def _in_numbers(text: bytes) -> bytes:
    """Write the words of lines that are right as numbers: an op begins a line, a call ends one."""
    text = b"\n" + text
    for place, word in enumerate(_OPS):
        text = text.replace(b"\n%s," % word.encode(), b"\n%d," % place)
    for place, word in enumerate(CALL_NAMES):
        text = text.replace(b",%s\n" % word.encode(), b",%d\n" % place)
    return text[1:]


def _no_objects(text: bytes, names: list[str]) -> bytes:
    """Write all ones for an object that is not there."""
    place = names.index("object")
    empty = re.compile(rb"^((?:[0-9]+,){%d}),|^((?:[0-9]+,){%d})(?=\n)" % (place, place), re.M)
    return empty.sub(lambda found: (found[1] or found[2]) + b"%d," % _MOST, text)


def _check_ranges(
    source: Source, table: npt.NDArray[np.uint64], text: bytes, names: list[str], line: int
) -> None:
    for place, name in enumerate(names):
        most = int(np.iinfo(COLUMN_DTYPES[name][-1]).max)
        column = table[:, place]
        # NumPy reads what is too large as the largest there is, so that this is looked at again.
        for row in np.flatnonzero(column >= min(most + 1, _MOST)):
            written = text.split(b"\n", int(row) + 1)[int(row)].split(b",")[place]
            if written and written.isdigit() and int(written) > most:
                source.fail(
                    f"line {line + int(row)}: {name} is {written.decode()}, allowed are 0 to {most}"
                )


def _objects(values: Array) -> Array:
    """Return the column with 4 bytes an item where those hold all, as nearly always."""
    named = values[values != _MOST]
    # All ones is none there, too.
    narrow = not len(named) or int(named.max()) < 2**32 - 1
    return values.astype(np.uint32) if narrow else values
