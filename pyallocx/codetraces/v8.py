r"""V8's ``--log-code`` log (V8 6.0 and later, whose lines have times).

``code-creation,TYPE,KIND,us,0xADDRESS,BYTES,NAME[,0xSFI,TIER]``
    What is allocated in code space becomes an alloc; the key is ``TYPE:TIER`` (``JS:^`` baseline,
    ``JS:+`` mid-tier, ``JS:*`` optimised) or ``TYPE`` alone (``RegExp``). Left out and counted:

    - ``bytecode``: data, not machine code. The tier ``~``; without a tier (a function that may not
      be optimised) a function of the KIND that ``~`` came with. KIND numbers differ between
      versions of V8, so that none is built in (10 in V8 11, 11 in V8 7).
    - ``embedded``: ``Builtin`` and ``BytecodeHandler`` (KIND 2 and 0 in V8 11). They are machine
      code, but in the text of the program: nothing allocates them.

    A ``~`` of a builtin's KIND is the copy of the interpreter's entry that
    ``--interpreted-frames-native-stack`` makes for each function: machine code.
``code-move,0xFROM,0xTO``
    The object goes on living at another address.
``new,NAME,0xADDRESS,BYTES`` and ``delete,NAME,0xADDRESS``
    A page of the heap came or went. What lives on a deleted page has died: inferred.

All other lines are passed over; those of a kind that no known V8 writes are counted as
``unknown_lines``. V8 ends every line: a last line without its end that is not a whole event tells
that the log was cut off, and is refused (``truncated``).

V8 logs no death of code: one is inferred when later code is created, or moved, over it. A lifetime
is therefore an upper bound. Moves and pages have no time of their own; theirs is that of the
creation before.

A program that ends in good order deletes all its pages. If the log ends with everything dead, the
deaths behind the last creation and move are taken for that end, and left out: the trace ends with
the heap as the program had it. ``deaths_at_exit`` in the counts tells how many.
"""

from __future__ import annotations

import re
from typing import Any

from pyallocx.codetraces._reader import (
    BYTECODE_MARK,
    EMBEDDED_KINDS,
    LineReader,
    Refused,
    number,
)

__all__ = ["V8Reader"]

DELETED_CHUNK = "deleted_chunk"
DEATHS_AT_EXIT = "deaths_at_exit"

_CREATION = re.compile(
    rb"code-creation,(\w+),(\d+),(\d+),0x([0-9a-fA-F]+),(\d+)(?:,(.*))?", re.ASCII | re.DOTALL
)
# At the end, since old versions quote names instead of escaping their commas.
_TIER = re.compile(rb",0x[0-9a-fA-F]+,([~^+*]?)$")
_MOVE = re.compile(rb"code-move,0x([0-9a-fA-F]+),0x([0-9a-fA-F]+)")
_NEW = re.compile(rb"new,\w+,0x([0-9a-fA-F]+),(\d+)", re.ASCII)
_DELETE = re.compile(rb"delete,\w+,0x([0-9a-fA-F]+)", re.ASCII)
_FIRST = re.compile(
    rb"^(v8-version,\d|code-creation,\w+,\d+,\d+,0x|(new|delete),\w+,0x)", re.MULTILINE
)

_EVENTS = (b"code-creation,", b"code-move,", b"new,", b"delete,")
_PASSED_OVER = frozenset(
    b"active-runtime-timer api builtin-hash code-deopt code-disable-optimization code-moving-gc "
    b"code-source-info compilation-cache current-time feedback-vector first-execution function "
    b"function-activity heap-available heap-capacity heap-sample-begin heap-sample-end "
    b"heap-sample-item interpreted-function map map-create map-details ontime parse-function "
    b"preparse-no-resolution preparse-resolution profiler script script-details script-source "
    b"sfi-move shared-library shared-library-end snapshot-code-name snapshot-position suspect-read "
    b"tick timer-event timer-event-end timer-event-start v8-platform v8-version "
    b"CloneObjectIC DefineKeyedOwnIC DefineNamedOwnIC GetIteratorIC KeyedHasIC KeyedLoadIC "
    b"KeyedStoreIC LoadGlobalIC LoadIC StoreGlobalIC StoreIC StoreInArrayLiteralIC".split()
)


def recognise(head: bytes) -> int | None:
    """Return where the first line of the format begins."""
    found = _FIRST.search(head)
    return found.start() if found else None


class V8Reader(LineReader):
    """Reads V8's code log (see the module)."""

    most_line_bytes = 1 << 20

    def __init__(self, skip: bool = False) -> None:
        super().__init__(skip)
        self._version: str | None = None
        self._builtin_kinds: set[int] = set()
        self._bytecode_kinds: set[int] = set()
        # Where what is no machine code of ours lies: a move of it is none of our business.
        self._others: set[int] = set()
        self._chunks: dict[int, int] = {}
        self._last_life = 0  # events up to the last creation or move
        # The types whose lines go on behind the name.
        self._with_function: set[bytes] = set()

    def finish(self) -> None:
        """Read the last line, and leave out the deaths that are the end of the program."""
        super().finish()
        deaths = len(self._op) - self._last_life
        if deaths and not len(self.live):
            self.drop_last(deaths, DELETED_CHUNK)
            self.met[DEATHS_AT_EXIT] = deaths

    def metadata(self) -> dict[str, Any]:
        """Add the version of V8, where the log names it."""
        made = super().metadata()
        return made if self._version is None else {"v8_version": self._version} | made

    def passed_over(self, beginning: bytes) -> bool:
        """Return whether this is no event: the source of a script is one line of any length."""
        return not beginning.startswith(_EVENTS)

    def parse(self, line: bytes) -> None:
        """Read one line."""
        if line.startswith(b"code-creation,"):
            self._creation(line)
        elif line.startswith(b"code-move,"):
            self._move(line)
        elif line.startswith(b"new,"):
            self._new(line)
        elif line.startswith(b"delete,"):
            self._delete(line)
        elif self.unended:
            self.cut_off("a whole line, and its end")
        else:
            kind, _, rest = line.partition(b",")
            if kind == b"v8-version" and self._version is None:
                parts = rest[:64].decode("ascii", "replace").split(",")
                self._version = ".".join(parts[:4])
            elif kind not in _PASSED_OVER:
                self.met["unknown_lines"] += 1

    def _creation(self, line: bytes) -> None:
        found = _CREATION.fullmatch(line)
        what = "'code-creation,TYPE,KIND,MICROSECONDS,0xADDRESS,BYTES,NAME...'"
        if self.unended and (found is None or found[6] is None):
            self.cut_off(what)
        if found is None:
            raise Refused("syntax", f"expected {what}")
        type = found[1].decode()
        kind, time = number(found[2]), number(found[3], below=1 << 54) * 1000
        address, size = number(found[4], 16), number(found[5])
        marked = _TIER.search(found[6] or b"")
        if marked:
            self._with_function.add(found[1])
        elif self.unended and found[1] in self._with_function:
            self.cut_off("',0xFUNCTION,TIER' behind the name, as in the lines before")
        tier = marked[1].decode() if marked else None
        self.check_range(address, size)
        self.at_time(time)
        if type in EMBEDDED_KINDS:
            self._builtin_kinds.add(kind)
            self._others.add(address)
            self.met["embedded"] += 1
        elif self._is_bytecode(kind, tier):
            self._others.add(address)
            self.met["bytecode"] += 1
        else:
            self._others.discard(address)
            self.create(address, size, f"{type}:{tier}" if tier else type)
            self._last_life = len(self._op)

    def _is_bytecode(self, kind: int, tier: str | None) -> bool:
        if tier == BYTECODE_MARK:
            if kind in self._builtin_kinds:
                return False
            self._bytecode_kinds.add(kind)
            return True
        return tier == "" and kind in self._bytecode_kinds

    def _move(self, line: bytes) -> None:
        found = _MOVE.fullmatch(line)
        # Code moves within one space, where addresses have the same number of digits.
        if self.unended and (found is None or len(found[2]) < len(found[1])):
            self.cut_off("'code-move,0xFROM,0xTO'")
        if found is None:
            raise Refused("syntax", "expected 'code-move,0xFROM,0xTO'")
        old, new = number(found[1], 16), number(found[2], 16)
        if self.live.at(old) is not None:
            self.move(old, new)
            self._last_life = len(self._op)
        elif old in self._others:
            self._others.discard(old)
            self._others.add(new)
            self.met["moves_of_others"] += 1
        else:
            # Code from before the log began, or from a snapshot.
            self.met["moves_of_unknown"] += 1

    def _new(self, line: bytes) -> None:
        found = _NEW.fullmatch(line)
        if found is None:
            if self.unended:
                self.cut_off("'new,NAME,0xADDRESS,BYTES'")
            raise Refused("syntax", "expected 'new,NAME,0xADDRESS,BYTES'")
        address, size = number(found[1], 16), number(found[2])
        self.check_range(address, size)
        self._chunks[address] = size

    def _delete(self, line: bytes) -> None:
        found = _DELETE.fullmatch(line)
        if found is None:
            if self.unended:
                self.cut_off("'delete,NAME,0xADDRESS'")
            raise Refused("syntax", "expected 'delete,NAME,0xADDRESS'")
        address = number(found[1], 16)
        if self.unended and address not in self._chunks:
            for chunk in self._chunks:
                if f"{chunk:x}".encode().startswith(found[1].lower()):
                    self.cut_off(f"a whole address, such as {chunk:#x}")
        size = self._chunks.pop(address, None)
        if size is None:
            self.met["deletes_of_unknown"] += 1
            return
        for dead in self.live.take_overlapping(address, size) if size else ():
            self.free(dead.object, DELETED_CHUNK)
