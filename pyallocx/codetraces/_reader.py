"""What the readers of code traces share: events, deaths nobody logged, lines, errors."""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from array import array
from collections import Counter
from typing import Any, ClassVar, Final, NoReturn

import numpy as np
import numpy.typing as npt

from pyallocx._core import TraceError
from pyallocx.codetraces._intervals import LiveCode
from pyallocx.trace import OP_ALLOC, OP_FREE

__all__ = ["CodeReader", "LineReader", "Refused", "kind_of_name"]

ADDRESS_SPACE: Final = 1 << 64
SEEN: Final = "seen"
TRUNCATED: Final = "truncated"
OVERLAP: Final = "overlap"

_SHOWN_BYTES: Final = 96
_LINE_BYTES: Final = 1 << 16
# A number of more digits fits no field, and int() of thousands of them is slow.
_DIGITS: Final = 20

# The kinds that V8 puts before a name in what it writes for perf, and the mark of its tiers.
_V8_NAME: Final = re.compile(
    r"(Builtin|BytecodeHandler|Callback|Eval|Function|Handler|JS|LazyCompile|NativeEval"
    r"|NativeFunction|NativeLazyCompile|NativeScript|RegExp|Script|Stub|Wasm)\b:?([~^+*]?)"
)
BYTECODE_MARK: Final = "~"
EMBEDDED_KINDS: Final = ("Builtin", "BytecodeHandler")


def kind_of_name(name: str) -> str:
    """Return the key of a name in a perf map or jitdump: V8's kind and tier, or its producer."""
    if ":" in name:
        found = _V8_NAME.match(name)
        if found and ":" in found[0]:
            return f"{found[1]}:{found[2]}" if found[2] else found[1]
        if name.startswith("py::"):
            return "py"
    return "code"


class Refused(Exception):
    """Something that the format does not allow: its kind for the counts, and what was expected."""

    def __init__(self, kind: str, expected: str) -> None:
        super().__init__(expected)
        self.kind = kind


def number(text: bytes, base: int = 10, below: int = ADDRESS_SPACE) -> int:
    """Return what digits say, refusing what does not fit."""
    value = int(text, base) if len(text) <= _DIGITS else below
    if value >= below:
        raise Refused("syntax", f"expected a number below {below}")
    return value


def decimal_ns(whole: bytes, fraction: bytes, digits: int) -> int:
    """Return ``whole.fraction`` in units of 10**-9 of a unit of ``10**(9 - digits)``, exactly."""
    return number(whole + fraction[:digits].ljust(digits, b"0"))


class CodeReader(ABC):
    """A reader of one format: fed with pieces, then asked for columns and counts.

    Parameters
    ----------
    skip : bool
        Drop and count what the format does not allow, instead of raising `TraceError`.
    """

    def __init__(self, skip: bool = False) -> None:
        self._skip = skip
        self.timed = True  # whether the format has times
        self._op = array("B")
        self._object = array("I")
        self._size = array("Q")
        self._time = array("Q")
        self._key = array("I")
        self._key_of: list[int] = []
        self._keys: dict[str, int] = {}
        self._now = 0
        self._frees: Counter[str] = Counter()
        self._dropped: Counter[str] = Counter()
        self.live = LiveCode()
        self.met: Counter[str] = Counter()

    # ---- what a caller uses ------------------------------------------------------------------

    @abstractmethod
    def feed(self, data: bytes, /) -> None:
        """Read a piece; what is cut at its end waits for the next."""

    @abstractmethod
    def finish(self) -> None:
        """Read what is left after the last piece."""

    def counts(self) -> tuple[dict[str, int], dict[str, int]]:
        """Return what was met beside events, and what was dropped."""
        return dict(self.met), dict(self._dropped)

    def columns(self) -> dict[str, npt.NDArray[Any] | None]:
        """Return the columns by name."""
        return {
            "op": np.array(self._op, dtype=np.uint8),
            "object": np.array(self._object, dtype=np.uint32),
            "size_bytes": np.array(self._size, dtype=np.uint64),
            "time_ns": np.array(self._time, dtype=np.uint64) if self.timed else None,
            "key": np.array(self._key, dtype=np.uint32),
        }

    def metadata(self) -> dict[str, Any]:
        """Return the names of the keys, and how the events were obtained."""
        seen = self._frees[SEEN]
        inferred = {rule: n for rule, n in self._frees.items() if rule != SEEN and n}
        return {
            "key_names": list(self._keys),
            "obtained": {
                "allocs": {"seen": len(self._key_of), "inferred": {}},
                "frees": {"seen": seen, "inferred": inferred},
            },
        }

    # ---- what a format uses ------------------------------------------------------------------

    def key(self, name: str) -> int:
        """Return the dense number of a kind of code."""
        return self._keys.setdefault(name, len(self._keys))

    def at_time(self, time_ns: int) -> None:
        """Move the clock to `time_ns`, or count that it would run backwards."""
        if time_ns < self._now:
            self.met["times_raised"] += 1
        else:
            self._now = time_ns

    def alloc(self, size: int, key: int) -> int:
        """Append an alloc and return its object."""
        object = len(self._key_of)
        self._key_of.append(key)
        self._append(OP_ALLOC, object, size)
        return object

    def free(self, object: int, how: str) -> None:
        """Append a free: `SEEN` in the file, or by which rule it was inferred."""
        self._frees[how] += 1
        self._append(OP_FREE, object, 0)

    def drop_last(self, deaths: int, how: str) -> None:
        """Take back the last events, which are deaths inferred by one rule."""
        self._frees[how] -= deaths
        for column in (self._op, self._object, self._size, self._time, self._key):
            del column[-deaths:]

    def create(self, address: int, size: int, kind: str) -> int:
        """Append an alloc at an address; what it overlaps has died before."""
        self.check_range(address, size)
        for dead in self.live.take_overlapping(address, size):
            self.free(dead.object, OVERLAP)
        object = self.alloc(size, self.key(kind))
        self.live.add(address, size, object)
        return object

    def move(self, old: int, new: int) -> None:
        """Move what begins at `old`; what it overlaps at `new` has died before."""
        moved = self.live.at(old)
        assert moved is not None
        size = moved.end - moved.start
        self.check_range(new, size)
        self.live.take(old)
        for dead in self.live.take_overlapping(new, size):
            self.free(dead.object, OVERLAP)
        self.live.add(new, size, moved.object)
        self.met["moves"] += 1

    def check_range(self, address: int, size: int) -> None:
        """Refuse what reaches past the end of the address space."""
        if address + max(size, 1) > ADDRESS_SPACE:
            raise Refused("syntax", "expected code that ends below 2**64")

    def refuse(self, where: str, refused: Refused, shown: bytes) -> None:
        """Count something that the format does not allow, or raise."""
        if not self._skip:
            raise_at(where, str(refused), shown)
        self._dropped[refused.kind] += 1

    def _append(self, op: int, object: int, size: int) -> None:
        self._op.append(op)
        self._object.append(object)
        self._size.append(size)
        self._time.append(self._now)
        self._key.append(self._key_of[object])

    def _resize(self, event: int, size: int) -> None:
        """Give an alloc its size, which only later lines tell."""
        self._size[event] = size


def raise_at(where: str, what: str, shown: bytes) -> NoReturn:
    """Raise `TraceError` with the place and the beginning of what is there."""
    excerpt = shown[:_SHOWN_BYTES].decode("ascii", "backslashreplace")
    excerpt = "".join(c if c.isprintable() else f"\\x{ord(c):02x}" for c in excerpt)
    raise TraceError(f"{where}: {what}, in '{excerpt}{'...' if len(shown) > _SHOWN_BYTES else ''}'")


class LineReader(CodeReader):
    """A reader of a format made of lines.

    The last line may lack its end. It is then read like any other if it is whole as far as its
    format can tell, and counted as ``unended_lines``; otherwise the log was cut off there.
    """

    most_line_bytes: ClassVar[int] = _LINE_BYTES

    def __init__(self, skip: bool = False) -> None:
        super().__init__(skip)
        self._rest = bytearray()
        self._in_long_line = False
        self._long = b""  # the beginning of a long line that is passed over
        self.unended = False  # whether the line that is read lacks its end
        self.line = 0

    @abstractmethod
    def parse(self, line: bytes) -> None:
        """Read one line, without its end; `Refused` where it is not allowed."""

    def passed_over(self, beginning: bytes) -> bool:
        """Whether a line that begins like this may have any length."""
        return False

    def feed(self, data: bytes, /) -> None:
        """Read a piece; the line that is cut at its end waits for the next."""
        *lines, last = bytes(data).split(b"\n")
        for line in lines:
            if self._in_long_line:
                self._in_long_line = False
                continue
            if self._rest:
                self._rest += line
                line, self._rest = bytes(self._rest), bytearray()
            self._read(line)
        if self._in_long_line:
            return
        self._rest += last
        # One more than a line: the return that may end it.
        if len(self._rest) > self.most_line_bytes + 1:
            line, self._rest = bytes(self._rest), bytearray()
            self._in_long_line = True
            self._read(line)

    def finish(self) -> None:
        """Read the last line, which may lack its end."""
        if self._rest:
            line, self._rest = bytes(self._rest), bytearray()
            self.unended = True
            self._read(line)
        elif self._in_long_line and self._long:
            try:
                self.unended_long(self._long)
                self.met["unended_lines"] += 1
            except Refused as refused:
                self.refuse(f"line {self.line}", refused, self._long)

    def unended_long(self, beginning: bytes) -> None:
        """Refuse a long last line that is passed over and lacks its end, if it must have one."""
        self.cut_off("the end of the line")

    def cut_off(self, expected: str) -> NoReturn:
        """Refuse the last line, which is not whole and lacks its end."""
        raise Refused(TRUNCATED, f"the file ends inside this line: expected {expected}")

    def check_kind(self, kind: str, *usual: str) -> None:
        """Refuse a kind at the end of the file that is the beginning of one that is known."""
        if self.unended and kind not in self._keys and kind not in usual:
            for known in (*self._keys, *usual):
                if known.startswith(kind):
                    self.cut_off(f"a whole kind of code, such as {known!r}")

    def _read(self, line: bytes) -> None:
        self.line += 1
        if line.endswith(b"\r"):
            line = line[:-1]
        try:
            self._long = b""
            if len(line) <= self.most_line_bytes:
                self.parse(line)
            elif not self.passed_over(line):
                raise Refused("syntax", f"expected a line of at most {self.most_line_bytes} bytes")
            else:
                self.met["long_lines"] += 1
                self._long = line[:_SHOWN_BYTES]
                if self.unended:
                    self.unended_long(self._long)
            if self.unended:
                self.met["unended_lines"] += 1
        except Refused as refused:
            self.refuse(f"line {self.line}", refused, line)
