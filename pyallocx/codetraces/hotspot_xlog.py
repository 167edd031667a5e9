"""HotSpot's unified log with the tags codecache and nmethod (seen with JDK 25).

``[140772080ns][info][nmethod,install] Installing method (3) java.lang.Object.<init>()V``
    Creates code. The line has **no size and no address**.
``[140842498ns][debug][compilation,codecache] CodeCache: size=20480Kb used=1228Kb ...``
    Follows each creation, and is where sizes come from: a size is by how much ``used`` (with a
    segmented cache: of all its heaps) has grown, so to the KiB, while sums are exact to the KiB. A
    size that it does not tell (the first of the log; ``used`` shrank; a flush came between) is 0
    and counted as ``sizes_unknown``.
``[3488561027ns][debug][codecache] Flushing nmethod 354/0x00007f7b84fe6d08, level=3, osr=0, ...``
    Frees code: a true free at a true time. It names the method without its class, so that which of
    the methods of this name, level and kind is flushed is taken to be the oldest.

In ``metadata["obtained"]`` sizes have a part of their own. The key is ``level 3``, with ``osr``
where the method is entered in a loop. A log from which not one size can be told is refused. All
other lines are passed over, since programs write among them. HotSpot ends every line: a last line
of the log without its end that is not a whole event tells that the log was cut off, and is refused
(``truncated``); a program may end its output as it likes.
"""

from __future__ import annotations

import re
from collections import deque
from typing import Any

from pyallocx.codetraces._reader import SEEN, LineReader, Refused, decimal_ns, number, raise_at

__all__ = ["XlogReader"]

_PREFIX = re.compile(rb"((?:\[[^\]\n]*\])+) (.*)", re.DOTALL)
_TIME = re.compile(rb"\[(\d+)(?:(ns|ms|us)|[.,](\d{1,9})s)\]", re.ASCII)
_INSTALL = re.compile(rb"Installing (osr )?method \((\d+)\) (\S+?)\(\S*(?: @ -?\d+)?\s*", re.ASCII)
_USED = re.compile(
    rb"(CodeCache|CodeHeap '[^']*'): size=\d+Kb used=(\d+)Kb max_used=\d+Kb.*", re.ASCII | re.DOTALL
)
_FLUSH = re.compile(
    rb"Flushing nmethod +(\d+)/0x([0-9a-fA-F]+), level=(-?\d+), osr=([01]),.* method (.+) "
    rb"\(\w+\)\s*",
    re.ASCII | re.DOTALL,
)
# How the lines of events end, which tells whether one without its end is whole.
_INSTALL_END = re.compile(rb"\)\[*([BCDFIJSVZ]|L[^;]+;)(?P<at> @ -?\d+)?\s*$", re.ASCII)
_USED_END = re.compile(rb" free=\d+Kb\s*$", re.ASCII)
# How a line of the log begins, with an uptime or a level, and not just any program's.
_LOGGED = re.compile(
    rb"\[($|\d+([.,]\d*)?((ns|ms|us|s)\]|[nmu]?s?$)|(trace|debug|info|warning|error) *\])", re.ASCII
)
_FIRST = re.compile(
    rb"^\[[^\]\n]*\][^\n]*\] (Installing (osr )?method \(\d|Flushing nmethod +\d"
    rb"|Code(Cache|Heap '[^'\n]*'): size=\d)",
    re.MULTILINE,
)
_KINDS = (b"Installing method ", b"Installing osr method ", b"Flushing nmethod ")
_UNIT_NS = {b"ns": 1, b"us": 1_000, b"ms": 1_000_000}


def recognise(head: bytes) -> int | None:
    """Return where the first line of the format begins."""
    found = _FIRST.search(head)
    return found.start() if found else None


class XlogReader(LineReader):
    """Reads HotSpot's unified log (see the module)."""

    def __init__(self, skip: bool = False) -> None:
        super().__init__(skip)
        self._times: bool | None = None
        # Live methods by what a flush names: name, level, whether entered in a loop; oldest first.
        self._methods: dict[tuple[bytes, int, bool], deque[int]] = {}
        self._used: dict[bytes, int] = {}
        # The allocs without a size since `used` was last told, and by how much it has grown since.
        self._waiting: list[int] = []
        self._grown = 0
        self._told = False
        self._known = False
        self._sizes = 0

    def metadata(self) -> dict[str, Any]:
        """Add how sizes and the identity of what is freed were obtained."""
        made = super().metadata()
        for what, rule, count in (
            ("sizes", "growth_of_used_kib", self._sizes),
            ("freed_objects", "oldest_of_name_and_level", self._frees[SEEN]),
        ):
            made["obtained"][what] = {"seen": 0, "inferred": {rule: count} if count else {}}
        return made

    def passed_over(self, beginning: bytes) -> bool:
        """Only the lines of the log itself have a limit."""
        found = _PREFIX.match(beginning)
        return found is None or not found[2].startswith(_KINDS)

    def parse(self, line: bytes) -> None:
        """Read one line."""
        found = _PREFIX.fullmatch(line)
        if self.unended and not self._is_whole(line, found and found[2]):
            self.cut_off("the rest of a line of the log, and its end")
        if found is None:
            return
        prefix, text = found[1], found[2]
        if text.startswith((b"Installing method ", b"Installing osr method ")):
            self._install(prefix, text)
        elif text.startswith(b"Flushing nmethod "):
            self._flush(prefix, text)
        elif text.startswith((b"CodeCache: size=", b"CodeHeap '")):
            self._tell(text)

    def _is_whole(self, line: bytes, text: bytes | None) -> bool:
        """Whether a line without its end is an event and whole, or no line of the log at all."""
        if _LOGGED.match(line) is None:
            return True
        if text is None:
            return False
        installed = _INSTALL.fullmatch(text)
        if installed:
            end = _INSTALL_END.search(text)
            return end is not None and (end["at"] is None) == (installed[1] is None)
        return _FLUSH.fullmatch(text) is not None or (
            _USED.fullmatch(text) is not None and _USED_END.search(text) is not None
        )

    def unended_long(self, beginning: bytes) -> None:
        """Refuse a line of the log; what a program wrote may be long and lack its end."""
        if _LOGGED.match(beginning):
            super().unended_long(beginning)

    def finish(self) -> None:
        """Give the last creations their sizes."""
        super().finish()
        self._settle()
        if not self._sizes and self.met["sizes_unknown"] and not self._skip:
            raise_at(
                f"line {self.line}",
                "expected 'CodeCache: size=..Kb used=..Kb' lines, from which alone this log tells "
                "sizes: log with -Xlog:codecache*=debug,nmethod*=info",
                b"end of the log",
            )

    def _clock(self, prefix: bytes) -> None:
        found = _TIME.match(prefix)
        if self._times is None:
            self._times = found is not None
            if found is None:
                self.timed = False
        if not self._times:
            return
        if found is None:
            raise Refused("syntax", "expected an uptime first, as in the lines before")
        if found[2]:
            self.at_time(number(found[1], below=1 << 50) * _UNIT_NS[found[2]])
        else:
            self.at_time(decimal_ns(found[1], found[3], 9))

    def _install(self, prefix: bytes, text: bytes) -> None:
        found = _INSTALL.fullmatch(text)
        if found is None:
            raise Refused("syntax", "expected 'Installing method (LEVEL) CLASS.NAME(SIGNATURE'")
        if self._told:
            self._settle()
        self._clock(prefix)
        level, osr = number(found[2]), found[1] is not None
        name = found[3].rpartition(b".")[2]
        event = len(self._op)
        object = self.alloc(0, self.key(f"level {level}{' osr' if osr else ''}"))
        self._methods.setdefault((name, level, osr), deque()).append(object)
        self._waiting.append(event)

    def _flush(self, prefix: bytes, text: bytes) -> None:
        found = _FLUSH.fullmatch(text)
        if found is None:
            raise Refused(
                "syntax",
                "expected 'Flushing nmethod ID/0xADDRESS, level=N, osr=N, ... method NAME'",
            )
        name = found[5].rpartition(b".")[2]
        level, osr = int(found[3]) if len(found[3]) < 20 else -1, found[4] == b"1"
        live = self._methods.get((name, level, osr))
        if not live:
            raise Refused(
                "free_of_unknown",
                "flush of a method that is not live: expected one that was installed",
            )
        if self._told:
            self._settle()
        self._clock(prefix)
        self.free(live.popleft(), SEEN)
        # Until it is told again, nobody knows how much of `used` this was.
        self._known = False

    def _tell(self, text: bytes) -> None:
        found = _USED.fullmatch(text)
        if found is None:
            raise Refused("syntax", "expected 'CodeCache: size=..Kb used=..Kb max_used=..Kb'")
        used = number(found[2], below=1 << 50)
        if not self._told:
            self._grown = 0
        before = self._used.get(found[1])
        if before is None:
            self._known = False
        else:
            self._grown += used - before
        self._used[found[1]] = used
        self._told = True

    def _settle(self) -> None:
        """Share out what `used` grew by among the creations before it was told."""
        if self._waiting:
            if self._told and self._known and self._grown >= 0:
                each, more = divmod(self._grown * 1024, len(self._waiting))
                for number_, event in enumerate(self._waiting):
                    self._resize(event, each + (number_ < more))
                self._sizes += len(self._waiting)
            else:
                self.met["sizes_unknown"] += len(self._waiting)
        if self._told:
            self._known = True
        self._told = False
        self._grown = 0
        self._waiting.clear()
