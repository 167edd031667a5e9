"""The log of a JVMTI agent: ``A,ns,0xADDRESS,BYTES,KIND`` and ``F,ns,0xADDRESS``.

An agent of some thirty lines that writes one line for each CompiledMethodLoad (kind ``nmethod``),
DynamicCodeGenerated (``stub``) and CompiledMethodUnload. These are true allocations and frees; the
bytes are those of the instructions. Code over live code, and a free of what is not live, are
refused, but for stubs: JVMTI has no event for the death of what DynamicCodeGenerated reported, and
HotSpot uses its memory again. A stub therefore dies, inferred, when later code overlaps it (also
when another begins at its very address), or never. ``metadata["obtained"]["frees_of_stubs"]``
counts these deaths apart.
"""

from __future__ import annotations

import re
from typing import Any

from pyallocx.codetraces._reader import SEEN, LineReader, Refused, number

__all__ = ["JvmtiReader"]

_ALLOC = re.compile(rb"A,(\d+),0x([0-9a-fA-F]+),(\d+),(\w+)", re.ASCII)
_FREE = re.compile(rb"F,(\d+),0x([0-9a-fA-F]+)", re.ASCII)
_FIRST = re.compile(rb"^(A,\d+,0x[0-9a-fA-F]+,\d+,\w+|F,\d+,0x[0-9a-fA-F]+)\r?$", re.MULTILINE)


def recognise(head: bytes) -> int | None:
    """Return where the first line of the format begins."""
    found = _FIRST.search(head)
    return found.start() if found else None


class JvmtiReader(LineReader):
    """Reads the log of the JVMTI agent (see the module)."""

    def __init__(self, skip: bool = False) -> None:
        super().__init__(skip)
        self._stubs: set[int] = set()
        self._stubs_freed = 0

    def metadata(self) -> dict[str, Any]:
        """Say of stubs that no free of one is ever seen."""
        made = super().metadata()
        inferred = dict(made["obtained"]["frees"]["inferred"])
        made["obtained"]["frees_of_stubs"] = {"seen": self._stubs_freed, "inferred": inferred}
        return made

    def parse(self, line: bytes) -> None:
        """Read one event."""
        found = _ALLOC.fullmatch(line)
        if found:
            time, address, size = number(found[1]), number(found[2], 16), number(found[3])
            kind = found[4].decode()
            self.check_kind(kind, "nmethod", "stub")
            for live in self.live.overlapping(address, size):
                if live.object not in self._stubs:
                    raise Refused(
                        "alloc_of_live",
                        f"code over live code at {live.start:#x}: expected an address that is free",
                    )
            self.check_range(address, size)
            self.at_time(time)
            object = self.create(address, size, kind)
            if kind == "stub":
                self._stubs.add(object)
            return
        found = _FREE.fullmatch(line)
        if found is None:
            raise Refused("syntax", "expected 'A,ns,0xADDRESS,BYTES,KIND' or 'F,ns,0xADDRESS'")
        time, address = number(found[1]), number(found[2], 16)
        dead = self.live.take(address)
        if dead is None:
            raise Refused(
                "free_of_unknown",
                "free of an address that is not live: expected one that was allocated",
            )
        self._stubs_freed += dead.object in self._stubs
        self.at_time(time)
        self.free(dead.object, SEEN)
