"""What tools on BPF print: maps of bpftrace, and bcc's memleak."""

from __future__ import annotations

import re
from typing import Final

from pyallocx.profiles._reader import LineReader, Refused, whole

__all__ = ["BpftraceReader", "MemleakReader"]

_NAME: Final = rb"(@[A-Za-z_0-9]*)"
_HEADER: Final = re.compile(_NAME + rb"(?:\[(.*)\])?:[ \t]*")
_VALUE: Final = re.compile(_NAME + rb"\[([^\]]*)\]:[ \t]*([0-9]+)[ \t]*")
_NUMBER: Final = rb"(-?[0-9]+[KMGTPE]?|\.\.\.)"
_RANGE: Final = re.compile(
    rb"(?:\[(-?[0-9]+[KMGTPE]?)\]|[\[(]" + _NUMBER + rb",[ ]?" + _NUMBER + rb"\))"
    rb"[ \t]+([0-9]+)[ \t]*\|[@ ]*\|[ \t]*"
)
_ATTACHED: Final = re.compile(rb"Attach(?:ing|ed)( to)? [0-9]+ probes?(\.\.\.)?[ \t]*|\^C")
_UNITS: Final = b"KMGTPE"

_REPORT: Final = re.compile(
    rb"\[[0-9]{1,2}:[0-9]{1,2}:[0-9]{1,2}\] Top ([0-9]+) stacks with outstanding allocations:"
)
_STACK: Final = re.compile(rb"[ \t]*([0-9]+) bytes in ([0-9]+) allocations from stack[ \t]*")
_ADDRESS: Final = re.compile(rb"[ \t]*addr = (?:0x)?[0-9a-f]+ size = ([0-9]+)[ \t]*")
_MEMLEAK_START: Final = re.compile(
    rb"Attaching to (?:pid [0-9]+|malloc and free in pid [0-9]+|kernel allocators), "
    rb"Ctrl\+C to quit\.|(?:tracing|using) [^\n]*|Executing '[^\n]*' and tracing[^\n]*"
)


class BpftraceReader(LineReader):
    """A map that bpftrace printed: of ``hist(size)``, ``lhist(size, ...)``, or counts by size.

    A line ``[16, 32)  12 |@@  |`` says that 12 requests had a size from 16 to 31, and nothing more:
    they are put at the largest, 31, so that no request is taken for smaller than it was
    (``metadata["ranges_at_upper_end"]`` counts such lines). ``[0]`` and ``@[48]: 123`` are exact.
    K, M and so on are powers of 1024. The histograms of a map with a key are added up.

    A range without an upper end (``[10000, ...)``) is refused, as are sizes below 0, two maps in
    one file and a map that is there twice: such prints are of one map at several times.
    """

    sizes = "upper ends of ranges"

    def __init__(self, weight: str | None = None) -> None:
        super().__init__(weight)
        self._map: bytes | None = None
        self._keys: set[bytes | None] = set()
        self._in_histogram = False
        self._ranges = False

    def parse(self, line: bytes) -> None:
        """Read one line."""
        if not line.strip(b" \t"):
            self._in_histogram = False
            return
        value = _VALUE.fullmatch(line)
        if value:
            self._begin(value[1], value[2])
            if self._ranges:
                raise Refused("expected a histogram, as before")
            self.about["sizes"] = "as written"
            self.add(whole(value[2].strip(), "one size as the key"), whole(value[3], "a count", 1))
            self._in_histogram = False
            return
        header = _HEADER.fullmatch(line)
        if header:
            self._begin(header[1], header[2])
            self._in_histogram = True
            return
        found = _RANGE.fullmatch(line)
        if found and self._in_histogram:
            self._range(*found.groups())
        elif self._map is not None or not _ATTACHED.fullmatch(line):
            raise Refused("expected '[LOW, HIGH) COUNT |@@@ |' or '@NAME[SIZE]: COUNT'")

    def _begin(self, name: bytes, key: bytes | None) -> None:
        if self._map is not None and name != self._map:
            raise Refused(f"expected one map in the file, {self._map.decode()}")
        if key in self._keys:
            raise Refused("expected each map and key once, as one print has them")
        self._map = name
        self._keys.add(key)

    def _range(self, single: bytes | None, low: bytes, high: bytes, written: bytes) -> None:
        self._ranges = True
        count = whole(written, "a count")
        if not count:
            return
        if single is not None:
            self.add(_size(single), count)
            return
        if high == b"...":
            raise Refused("expected an upper end: how large these are nobody knows")
        first, end = _size(low), _size(high)
        if end <= first:
            raise Refused("expected a range that ends above its beginning")
        if end - first > 1:
            key = "ranges_at_upper_end"
            self.about[key] = self.about.get(key, 0) + 1
        self.add(end - 1, count)


def _size(text: bytes) -> int:
    if text == b"..." or text.startswith(b"-"):
        raise Refused("expected sizes of at least 0")
    unit = _UNITS.find(text[-1:])
    if unit < 0:
        return whole(text, "a size")
    return whole(text[:-1], "a size") << (10 * (unit + 1))


class MemleakReader(LineReader):
    """bcc's memleak: what is live by stack, ``80 bytes in 5 allocations from stack``.

    A stack's sizes are known in sum only, so they are put at their mean, some rounded down and some
    up (``metadata["stacks_at_mean"]``). Where memleak ran with ``-a``, it lists each block
    (``addr = 948cd0 size = 16``): then these are read, and the stacks are not. Of several reports
    the last is read; ``metadata["reports"]`` says how many there are. memleak shows the largest
    stacks only: ``metadata["top"]`` is how many it had.
    """

    sizes = "means of call sites"
    weights = ("end",)

    def __init__(self, weight: str | None = None) -> None:
        super().__init__(None)  # there is but one, whatever is asked for
        self._reports = 0
        self._top = 0
        self._blocks: list[int] = []
        self._stacks: list[tuple[int, int]] = []

    def parse(self, line: bytes) -> None:
        """Read one line."""
        report = _REPORT.fullmatch(line.rstrip(b" \t"))
        if report:
            self._reports += 1
            self._top = whole(report[1], "a number of stacks")
            self._blocks.clear()
            self._stacks.clear()
            return
        if not self._reports:
            if line.strip(b" \t") and not _MEMLEAK_START.fullmatch(line):
                raise Refused("expected '[HH:MM:SS] Top N stacks with outstanding allocations:'")
            return
        stack, block = _STACK.fullmatch(line), _ADDRESS.fullmatch(line)
        if stack:
            size, count = whole(stack[1], "bytes"), whole(stack[2], "a count", 1)
            self._stacks.append((size, count))
        elif block:
            self._blocks.append(whole(block[1], "a size"))
        elif line[:1] not in (b" ", b"\t", b"") and line != b"^C":
            raise Refused("expected 'N bytes in M allocations from stack', or a line of a stack")

    def end(self) -> None:
        """Add up the last report."""
        if not self._reports:
            raise Refused("expected a report")
        self.about |= {"reports": self._reports, "top": self._top}
        if self._blocks:
            self.about["sizes"] = "requests"
            for size in self._blocks:
                self.add(size, 1)
            return
        for size, count in self._stacks:
            if self.add_mean(size, count):
                self.about["stacks_at_mean"] = self.about.get("stacks_at_mean", 0) + 1
