"""The XML of ``malloc_info``: scudo's, which lists requests, and glibc's, which lists free chunks.

Both begin with ``<malloc version=...>`` and end with ``</malloc>``; each has one element a line.
"""

from __future__ import annotations

import re
from abc import abstractmethod
from typing import Final

from pyallocx.profiles._reader import LineReader, Refused, whole

__all__ = ["GlibcFreeReader", "ScudoReader"]

_ALLOC: Final = re.compile(rb'<alloc[ \t]+size="([^"]*)"[ \t]+count="([^"]*)"[ \t]*/>')
_RANGE: Final = re.compile(
    rb'<(?:size|unsorted)[ \t]+from="([^"]*)"[ \t]+to="([^"]*)"[ \t]+total="([^"]*)"[ \t]+'
    rb'count="([^"]*)"[ \t]*/>'
)
_SUM: Final = re.compile(
    rb'<(total|system|aspace)[ \t]+type="[a-z]+"(?:[ \t]+count="[0-9]+")?[ \t]+size="[0-9]+"'
    rb"[ \t]*/>"
)
_HEAP: Final = re.compile(rb'<heap[ \t]+nr="[0-9]+"[ \t]*>')
_FLAGS: Final = 7


class _MallocInfoReader(LineReader):
    """What both have in common: the first line, and the last."""

    first: bytes

    def __init__(self, weight: str | None = None) -> None:
        super().__init__(None)  # there is but one, whatever is asked for
        self._ended = False

    def parse(self, line: bytes) -> None:
        """Read one line."""
        if self.line == 1:
            if line != self.first:
                raise Refused(f"expected {self.first.decode()!r} as the first line")
            return
        line = line.strip(b" \t")
        if self._ended and line:
            raise Refused("expected nothing after '</malloc>'")
        if line == b"</malloc>":
            self._ended = True
            self.close()
        elif line:
            self.element(line)

    @abstractmethod
    def element(self, line: bytes) -> None:
        """Read a line between the first and the last."""

    def close(self) -> None:
        """Check that all is there, at the last line."""

    def end(self) -> None:
        """Demand the last line."""
        if not self._ended:
            raise Refused("expected '</malloc>'")


class ScudoReader(_MallocInfoReader):
    """scudo: lines ``<alloc size="N" count="M"/>``, requested sizes.

    scudo writes what is live at that moment and smaller than its largest class; tools that count
    otherwise use the form, too, so that the weight is as written.
    """

    first = b'<malloc version="scudo-1">'
    sizes = "requests"

    def element(self, line: bytes) -> None:
        """Read an alloc."""
        found = _ALLOC.fullmatch(line)
        if not found:
            raise Refused("""expected '<alloc size="N" count="M"/>' or '</malloc>'""")
        self.add(whole(found[1], "a size"), whole(found[2], "a count", 1))


class GlibcFreeReader(_MallocInfoReader):
    """glibc: the free chunks of each arena, by ranges of sizes.

    A line gives the smallest and the largest chunk of a bin, how many there are and how many bytes
    they have in all. What lies between is not known: such chunks are put at their mean size,
    rounded down for some and up for the others, so that number and bytes are exact
    (``metadata["ranges_at_mean"]`` counts the lines). The lowest three bits of a size are flags
    that the chunks of a bin share; they are taken off. Lines of fast bins have none, and there the
    upper bound is the size of all.
    """

    first = b'<malloc version="1">'
    sizes = "free chunks with their headers"
    weights = ("end",)

    def __init__(self, weight: str | None = None) -> None:
        super().__init__(weight)
        self._open = b""

    def element(self, line: bytes) -> None:
        """Read a line of an arena, or of the sums that follow them."""
        if _HEAP.fullmatch(line) and not self._open:
            self._open = b"</heap>"
        elif line == b"<sizes>" and self._open == b"</heap>":
            self._open = b"</sizes>"
        elif line == self._open:
            self._open = b"</heap>" if line == b"</sizes>" else b""
        elif self._open == b"</sizes>":
            self._range(line)
        elif not _SUM.fullmatch(line):
            closing = f" or {self._open.decode()!r}" if self._open else ""
            raise Refused(f"expected a line of glibc's malloc_info{closing}")

    def _range(self, line: bytes) -> None:
        found = _RANGE.fullmatch(line)
        if not found:
            raise Refused(
                """expected '<size from="A" to="B" total="T" count="N"/>' or '</sizes>'"""
            )
        low, high = whole(found[1], "a size"), whole(found[2], "a size")
        total, count = whole(found[3], "a total"), whole(found[4], "a count", 0)
        if not count and not total and line.startswith(b"<unsorted"):
            return
        if not (count and low <= high and count * low <= total <= count * high):
            raise Refused("expected count chunks from A to B bytes that add up to the total")
        flags = high & _FLAGS
        if not flags:
            # A fast bin, whose range is that of the requests.
            if total != count * high:
                raise Refused("expected count chunks of B bytes that add up to the total")
            self.add(high, count)
            return
        mean, larger = divmod(total - count * flags, count)
        if larger or low != high:
            self.about["ranges_at_mean"] = self.about.get("ranges_at_mean", 0) + 1
        if larger:
            self.add(mean + 1, larger)
        self.add(mean, count - larger)

    def close(self) -> None:
        """Demand that no arena is open."""
        if self._open:
            raise Refused(f"expected {self._open.decode()!r}")
