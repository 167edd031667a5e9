"""Profiles that are plain lines: ours, heaptrack's, memcached's, and those of fleets."""

from __future__ import annotations

import json
import re
from typing import Final

from pyallocx.profile import SAVED
from pyallocx.profiles._reader import LineReader, Refused, decimal, whole

__all__ = ["FleetReader", "HeaptrackReader", "MemcachedReader", "TextReader"]

_SAVED: Final = SAVED.encode()
_STAT: Final = re.compile(rb"STAT[ ]+([^ ]+)[ ]+([^ ]+)[ ]*")


class TextReader(LineReader):
    """Lines ``size count``, blanks or tabs between; ``#`` begins a comment.

    A count may have a fraction. Where the first line is that of `Profile.save`, name and metadata
    are those of the saved profile.
    """

    sizes = "as written"

    def __init__(self, weight: str | None = None) -> None:
        super().__init__(weight)
        self.name: str | None = None

    def parse(self, line: bytes) -> None:
        """Read one line."""
        if self.line == 1 and line.startswith(_SAVED):
            self._parse_saved(line[len(_SAVED) :])
            return
        words = line.partition(b"#")[0].split()
        if not words:
            return
        if len(words) != 2:
            raise Refused("expected 'size count'")
        self.add(whole(words[0], "a size"), decimal(words[1], "a count"))

    def _parse_saved(self, text: bytes) -> None:
        try:
            saved = json.loads(text.decode("ascii"), parse_constant=_no_constant)
            json.dumps(saved, allow_nan=False)  # 1e999 is infinity, too
        except (ValueError, RecursionError):
            saved = None
        if not (
            isinstance(saved, dict)
            and isinstance(saved.get("name"), str)
            and isinstance(saved.get("metadata"), dict)
        ):
            raise Refused("expected JSON with the name and the metadata of a saved profile")
        self.name = saved["name"]
        self.about = saved["metadata"]


def _no_constant(text: str) -> None:
    raise ValueError(text)


class HeaptrackReader(LineReader):
    """The histogram of ``heaptrack_print -H FILE``: ``size TAB count``, sizes rising.

    The size is what the program asked for, the count how many allocations of the whole run did;
    a realloc is an allocation of its new size.
    """

    sizes = "requests"
    weights = ("count",)

    def __init__(self, weight: str | None = None) -> None:
        super().__init__(None)  # there is but one, whatever is asked for
        self._last = -1

    def parse(self, line: bytes) -> None:
        """Read one line."""
        words = line.split(b"\t")
        if len(words) != 2:
            raise Refused("expected 'size<tab>count'")
        size = whole(words[0], "a size")
        if size <= self._last:
            raise Refused("expected a size larger than that of the line before")
        self._last = size
        self.add(size, whole(words[1], "a count", 1))


class MemcachedReader(LineReader):
    """The answer of memcached to ``stats sizes``: lines ``STAT size count``, then ``END``.

    The sizes are those of whole items (key, value and memcached's header), rounded up to a multiple
    of 32; the count is how many are stored now.
    """

    sizes = "items with their headers, rounded up to 32 bytes"
    weights = ("end",)

    def __init__(self, weight: str | None = None) -> None:
        super().__init__(None)  # there is but one, whatever is asked for
        self._ended = False

    def parse(self, line: bytes) -> None:
        """Read one line."""
        if self._ended:
            if line.strip():
                raise Refused("expected nothing after 'END'")
            return
        if line.rstrip() == b"END":
            self._ended = True
            return
        found = _STAT.fullmatch(line)
        if not found:
            raise Refused("expected 'STAT size count' or 'END'")
        if found[1] == b"sizes_status":
            raise Refused(
                "expected sizes, but memcached does not keep them: start it with "
                "'-o track_sizes', or send 'stats sizes_enable' where the version knows it"
                if found[2] == b"disabled"
                else "expected 'STAT size count', found the status of the histogram"
            )
        self.add(whole(found[1], "a size"), whole(found[2], "a count", 1))

    def end(self) -> None:
        """Demand the end."""
        if not self._ended:
            raise Refused("expected 'END' as the last line")


class FleetReader(LineReader):
    """Lines ``size, rate, live``: the allocations of a size per unit of time, and those alive.

    By Little's law the number alive is the rate times the mean lifetime, that is, for how long
    objects of a size live, all of them together, per unit of time: so ``live`` is the weight
    ``byte_time``, too. A size whose rate (or live number) is 0 has no weight; it is left out and
    counted in
    ``metadata["sizes_without_weight"]``.
    """

    sizes = "requests"
    weights = ("count", "peak", "end", "byte_time")

    def parse(self, line: bytes) -> None:
        """Read one line."""
        if not line.strip():
            return
        words = [word.strip() for word in line.split(b",")]
        if len(words) != 3:
            raise Refused("expected 'size, rate, live'")
        size = whole(words[0], "a size")
        rate = decimal(words[1], "a rate", zero=True)
        live = decimal(words[2], "a number alive", zero=True)
        count = rate if self.weight == "count" else live
        if count:
            self.add(size, count)
        else:
            key = "sizes_without_weight"
            self.about[key] = self.about.get(key, 0) + 1
