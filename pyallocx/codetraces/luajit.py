"""The log of LuaJIT's trace events.

``A,SECONDS,0xADDRESS,BYTES,NAME,LINK``
    A trace was compiled; the key is how it is linked (``root``, ``loop``, ...).
``X,SECONDS,flush``
    All traces were flushed, which frees all machine code at once: LuaJIT frees no single trace.
``B,SECONDS,REASON``
    The compilation of a trace was aborted. Nothing is freed; counted as ``aborts``.

That ``X`` and not ``B`` is the flush shows in the log itself: after a ``B`` the machine code goes
on right below what was there, after an ``X`` it starts elsewhere, and what lives between two ``X``
reaches the limit of all machine code (``maxmcode``). (A number of a trace is used again before a
flush, too: the trace may have been collected, but its machine code stays.)
"""

from __future__ import annotations

import re

from pyallocx.codetraces._reader import SEEN, LineReader, Refused, decimal_ns, number

__all__ = ["LuajitReader"]

_ALLOC = re.compile(rb"A,(\d+)\.(\d{1,18}),0x([0-9a-fA-F]+),(\d+),([^,]*),([^,]+)", re.ASCII)
_OTHER = re.compile(rb"([BX]),(\d+)\.(\d{1,18})(?:,.*)?", re.ASCII | re.DOTALL)
_FIRST = re.compile(
    rb"^(A,\d+\.\d+,0x[0-9a-fA-F]+,\d+,[^,\n]*,[^,\n]+|[BX],\d+\.\d+(,[^\n]*)?)$", re.MULTILINE
)


def recognise(head: bytes) -> int | None:
    """Return where the first line of the format begins."""
    found = _FIRST.search(head)
    return found.start() if found else None


class LuajitReader(LineReader):
    """Reads the log of LuaJIT's trace events (see the module)."""

    def parse(self, line: bytes) -> None:
        """Read one event."""
        found = _ALLOC.fullmatch(line)
        if found:
            time = decimal_ns(found[1], found[2], 9)
            address, size = number(found[3], 16), number(found[4])
            kind = found[6].decode("utf-8", "replace")
            self.check_kind(kind, "root", "loop")
            self.check_range(address, size)
            self.at_time(time)
            self.create(address, size, kind)
            return
        found = _OTHER.fullmatch(line)
        if found is None:
            raise Refused(
                "syntax",
                "expected 'A,SECONDS,0xADDRESS,BYTES,NAME,LINK', 'X,SECONDS,...' or "
                "'B,SECONDS,...'",
            )
        time = decimal_ns(found[2], found[3], 9)
        if found[1] == b"B":
            self.met["aborts"] += 1
            return
        self.at_time(time)
        self.met["flushes"] += 1
        for dead in self.live.take_all():
            self.free(dead.object, SEEN)
