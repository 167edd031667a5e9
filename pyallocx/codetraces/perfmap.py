"""perf map files (``perf-PID.map``): ``START SIZE name``, both numbers hexadecimal.

Such a file lists creations in order, without times and without deaths: a death is inferred when a
later entry overlaps. V8 lists its bytecode too, with a ``~`` before the name: that is data and left
out. Its builtins lie in the program's own text; they are kept, under the keys ``Builtin`` and
``BytecodeHandler``, and counted as ``embedded``.
"""

from __future__ import annotations

import re

from pyallocx.codetraces._reader import (
    BYTECODE_MARK,
    EMBEDDED_KINDS,
    LineReader,
    Refused,
    kind_of_name,
    number,
)

__all__ = ["PerfMapReader"]

_LINE = re.compile(rb"([0-9a-fA-F]{1,16}) ([0-9a-fA-F]{1,16}) ([^\n]+)")
_SEVERAL = 8


def recognise(head: bytes) -> int | None:
    """Return 0 where each of the first lines is one of a perf map."""
    lines = head.split(b"\n", _SEVERAL)
    whole = lines[:-1] or lines
    return 0 if all(_LINE.fullmatch(line.removesuffix(b"\r")) for line in whole) else None


class PerfMapReader(LineReader):
    """Reads perf map files (see the module)."""

    def __init__(self, skip: bool = False) -> None:
        super().__init__(skip)
        self.timed = False

    def parse(self, line: bytes) -> None:
        """Read one entry."""
        found = _LINE.fullmatch(line)
        if found is None:
            raise Refused("syntax", "expected 'START SIZE NAME' with hexadecimal numbers")
        name = found[3][:64].decode("utf-8", "replace")
        kind = kind_of_name(name)
        if self.unended and kind == "code":
            # A name that is cut inside its kind would be of none.
            for known in self._keys:
                if known != kind and known.startswith(name):
                    self.cut_off(f"a whole kind of code, such as {known!r}")
        self.check_kind(kind)
        if kind.endswith(BYTECODE_MARK):
            self.met["bytecode"] += 1
            return
        self.create(number(found[1], 16), number(found[2], 16), kind)
        if kind in EMBEDDED_KINDS:
            self.met["embedded"] += 1
