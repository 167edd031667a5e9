"""Binary jitdumps, as ``perf inject --jit`` reads them (``jit-PID.dump``), in either byte order.

A header of 40 bytes {magic ``JiTD``, version 1, header size, ELF machine, pad, pid, time, flags},
then records {id, size, time}: LOAD (0) creates code, MOVE (1) moves it, DEBUG_INFO (2),
CLOSE (3) and UNWINDING_INFO (4) are counted. The format knows no death: one is inferred when later
code is loaded, or moved, over it. All loads are kept, V8's builtins too (under the keys ``Builtin``
and ``BytecodeHandler``, counted as ``embedded``). Where the flags say that times are those of a
processor's counter there is no column of times.
"""

from __future__ import annotations

import struct
from typing import Any, Final

from pyallocx.codetraces._reader import (
    EMBEDDED_KINDS,
    CodeReader,
    Refused,
    kind_of_name,
    raise_at,
)

__all__ = ["JitdumpReader"]

MAGICS: Final = {b"DTiJ": "<", b"JiTD": ">"}
_HEADER_BYTES: Final = 40
_RECORD_BYTES: Final = 16
_LOAD_BYTES: Final = 56
_MOVE_BYTES: Final = 64
_NAME_BYTES: Final = 1 << 16
_ARCH_TIMES: Final = 1
_LOAD, _MOVE, _DEBUG, _CLOSE, _UNWINDING = range(5)
_NAMES: Final = ("LOAD", "MOVE", "DEBUG_INFO", "CLOSE", "UNWINDING_INFO")
_COUNTED: Final = {_DEBUG: "debug_infos", _CLOSE: "closes", _UNWINDING: "unwinding_infos"}


def recognise(head: bytes) -> int | None:
    """Return 0 where the file begins with the magic of a jitdump."""
    return 0 if head[:4] in MAGICS else None


class JitdumpReader(CodeReader):
    """Reads jitdumps (see the module)."""

    def __init__(self, skip: bool = False) -> None:
        super().__init__(skip)
        self._buffer = bytearray()
        self._offset = 0  # of the buffer in the file
        self._left = 0  # bytes of the record to pass over
        self._loading: tuple[int, int, int, str] | None = None
        # The record being read: where it is, its id and size, and its first bytes.
        self._record_at = 0
        self._record: tuple[int, int] | None = None
        self._record_head = b""
        self._order = ""
        self._about: dict[str, Any] = {}
        self._ended = False

    def metadata(self) -> dict[str, Any]:
        """Add what the header says."""
        return self._about | super().metadata()

    def feed(self, data: bytes, /) -> None:
        """Read a piece; the record that is cut at its end waits for the next."""
        self._buffer += data
        used = 0
        while not self._ended:
            step = self._step(used)
            if step is None:
                break
            used += step
        if self._ended:
            used = len(self._buffer)
        del self._buffer[:used]
        self._offset += used

    def finish(self) -> None:
        """Refuse a record that the file cuts off."""
        have = len(self._buffer)
        if not self._order and not self._ended:
            what = f"expected a header of {_HEADER_BYTES} bytes, the file has {have}"
            raise_at("offset 0", what, bytes(self._buffer))
        if self._ended or not (have or self._left):
            return
        what = "the file ends inside this record: "
        if self._left == 0 and have < _RECORD_BYTES:
            self._begin(self._offset, None, bytes(self._buffer))
            what += f"expected {_RECORD_BYTES} bytes of id, size and time, found {have}"
        elif self._record is None:
            what = f"expected a header of {self._offset + self._left} bytes, found {self._offset}"
        else:
            size = self._record[1]
            what += f"expected {size} bytes, found {size - self._left if self._left else have}"
        self._refuse("truncated", what)

    def _begin(self, at: int, record: tuple[int, int] | None, head: bytes) -> None:
        self._record_at, self._record, self._record_head = at, record, head

    def _refuse(self, kind: str, what: str) -> None:
        """Refuse the record being read, and say which it is."""
        if self._record is not None:
            id, size = self._record
            name = _NAMES[id] if id < len(_NAMES) else "unknown"
            what += f"; this record is {name} (id {id}) of {size} bytes"
        self.refuse(f"offset {self._record_at}", Refused(kind, what), self._record_head)

    def _step(self, at: int) -> int | None:
        """Read something at `at` of the buffer; return its bytes, or None if there are too few."""
        have = len(self._buffer) - at
        if not self._order:
            return self._header(have)
        if self._left:
            step = min(have, self._left)
            self._left -= step
            if self._left == 0:
                self._loaded()
            return step or None
        if have < _RECORD_BYTES:
            return None
        id, size, time = struct.unpack_from(f"{self._order}IIQ", self._buffer, at)
        head = bytes(self._buffer[at : at + _RECORD_BYTES])
        self._begin(self._offset + at, (id, size), head)
        if size < _RECORD_BYTES:
            self._bad_size(f"expected a record of at least {_RECORD_BYTES} bytes, not {size}")
            return None
        if id == _LOAD:
            return self._load(at, have, size, time)
        if id == _MOVE:
            return self._move(at, have, size, time)
        self.met[_COUNTED.get(id, "unknown_records")] += 1
        self._left = size - _RECORD_BYTES
        return _RECORD_BYTES

    def _bad_size(self, what: str) -> None:
        # Without its size nobody knows where the next record is: what follows is lost.
        self._refuse("syntax", what)
        self._ended = True

    def _header(self, have: int) -> int | None:
        if have < _HEADER_BYTES:
            return None
        head = bytes(self._buffer[:_HEADER_BYTES])
        order = MAGICS.get(head[:4])
        if order is None:
            raise_at("offset 0", "expected the magic 'JiTD' in either byte order", head[:8])
        _, version, size, machine, _, pid, _, flags = struct.unpack(f"{order}IIIIIIQQ", head)
        if version != 1:
            raise_at("offset 4", f"expected version 1, not {version}", head[:12])
        if size < _HEADER_BYTES:
            raise_at("offset 8", f"expected a header of 40 bytes or more, not {size}", head[:12])
        self._order = order
        self._left = size - _HEADER_BYTES
        if flags & _ARCH_TIMES:
            self.timed = False
        self._about = {"pid": pid, "elf_machine": machine}
        return _HEADER_BYTES

    def _load(self, at: int, have: int, size: int, time: int) -> int | None:
        if size < _LOAD_BYTES + 1:
            self._bad_size(f"expected a LOAD of at least {_LOAD_BYTES + 1} bytes, not {size}")
            return None
        if have < _LOAD_BYTES + 1:
            return None
        _, _, _, address, code, _ = struct.unpack_from(
            f"{self._order}IIQQQQ", self._buffer, at + 16
        )
        room = size - _LOAD_BYTES - code
        begin = at + _LOAD_BYTES
        longest = min(room, _NAME_BYTES)
        end = self._buffer.find(b"\0", begin, begin + max(longest, 0))
        if end < 0:
            if have - _LOAD_BYTES < longest:
                return None
            what = f"expected a name and {code} bytes of code in a LOAD of {size} bytes"
            self._refuse("syntax", what)
            self._left = size - _RECORD_BYTES
            return _RECORD_BYTES
        name = bytes(self._buffer[begin : min(end, begin + 64)]).decode("utf-8", "replace")
        self._loading = (time, address, code, kind_of_name(name))
        # The code itself is not read, but it must be there.
        self._left = size - (end + 1 - at)
        if self._left == 0:
            self._loaded()
        return end + 1 - at

    def _loaded(self) -> None:
        """Create what the LOAD that has now been passed over made."""
        if self._loading is None:
            return
        time, address, size, kind = self._loading
        self._loading = None
        try:
            self.check_range(address, size)
            self.at_time(time)
            self.create(address, size, kind)
        except Refused as refused:
            self._refuse(refused.kind, f"{refused}, not {size} bytes at {address:#x}")
            return
        if kind in EMBEDDED_KINDS:
            self.met["embedded"] += 1

    def _move(self, at: int, have: int, size: int, time: int) -> int | None:
        if size < _MOVE_BYTES:
            self._bad_size(f"expected a MOVE of at least {_MOVE_BYTES} bytes, not {size}")
            return None
        if have < _MOVE_BYTES:
            return None
        _, _, _, old, new, code, _ = struct.unpack_from(
            f"{self._order}IIQQQQQ", self._buffer, at + 16
        )
        self._left = size - _MOVE_BYTES
        moved = self.live.at(old)
        try:
            if moved is None:
                raise Refused(
                    "move_of_unknown",
                    f"move of {old:#x}, which is not live: expected code that was loaded",
                )
            if moved.end - moved.start != max(code, 1):
                raise Refused(
                    "syntax", f"expected a move of {moved.end - moved.start} bytes, not {code}"
                )
            self.check_range(new, code)
            self.at_time(time)
            self.move(old, new)
        except Refused as refused:
            self._refuse(refused.kind, f"{refused}, not from {old:#x} to {new:#x}")
        return _MOVE_BYTES
