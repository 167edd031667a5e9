"""Names for code addresses of a program: from its memory maps and the symbol tables of its files.

A return address lies in a mapping of a file (``/proc/self/maps`` of the program), which gives its
offset in the file; the file's program headers make a virtual address of that, and the symbol table
a name. The full table (``.symtab``) is used where a file has one, else that of the debug file with
the same build id, else the exported names (``.dynsym``). Only ELF of this machine's word size and
byte order is read. A file that is not there any longer, was replaced or is damaged costs names,
nothing else.
"""

from __future__ import annotations

import os
import re
import shutil
import struct
import subprocess
from bisect import bisect_right
from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

__all__ = ["Mapping", "SymbolError", "Symbols", "demangled", "name_sites", "parse_maps"]

DEBUG_DIRECTORY: Final = "/usr/lib/debug/.build-id"

_MOST_FILE_BYTES: Final = 1 << 34
_MOST_TABLE_BYTES: Final = 1 << 30
_UNSIZED_BYTES: Final = 1024
_SHT_SYMTAB: Final = 2
_SHT_DYNSYM: Final = 11
_PT_LOAD: Final = 1
_PT_NOTE: Final = 4
_NT_GNU_BUILD_ID: Final = 3
_FUNCTIONS: Final = (2, 10)  # STT_FUNC, STT_GNU_IFUNC
_CODE: Final = (0, 2, 10)  # also what has no type, as in assembler
_SYMBOL = np.dtype(
    [
        ("name", "<u4"),
        ("info", "u1"),
        ("other", "u1"),
        ("section", "<u2"),
        ("value", "<u8"),
        ("size", "<u8"),
    ]
)
_MAP_LINE = re.compile(
    rb"([0-9a-f]+)-([0-9a-f]+) (....) ([0-9a-f]+) [0-9a-f]+:[0-9a-f]+ \d+ *([^\n]*)"
)
_DELETED = " (deleted)"


class SymbolError(ValueError):
    """A file that is no ELF file, of another kind, or damaged."""


class Mapping(NamedTuple):
    """A line of ``/proc/PID/maps``: where which part of which file is."""

    start: int
    end: int
    executable: bool
    offset: int
    path: str
    """Of a file; else a name in brackets, or empty."""


def parse_maps(text: bytes) -> list[Mapping]:
    """Read the text of ``/proc/PID/maps``; lines that are none are left out."""
    found = []
    for line in _MAP_LINE.finditer(text):
        start, end, mode, offset, path = line.groups()
        name = os.fsdecode(path)
        found.append(
            Mapping(int(start, 16), int(end, 16), mode[2:3] == b"x", int(offset, 16), name)
        )
    return found


class Symbols:
    """The functions of an ELF file, and where its parts go."""

    def __init__(self, path: str, *, debug_directory: str = DEBUG_DIRECTORY) -> None:
        with open(path, "rb") as file:
            size = os.fstat(file.fileno()).st_size
            elf = _Elf(file.fileno(), size)
            self._loads = elf.loads()
            table = elf.functions(_SHT_SYMTAB)
            if table is None:
                table = _debug_functions(elf.build_id(), debug_directory)
            if table is None:
                table = elf.functions(_SHT_DYNSYM)
        if table is None:
            self._values: npt.NDArray[np.uint64] = np.empty(0, dtype=np.uint64)
            self._sizes, self._names, self._strings = self._values, self._values, b""
        else:
            self._values, self._sizes, self._names, self._strings = table

    def __len__(self) -> int:
        return len(self._values)

    def find(self, offset: int) -> tuple[str, int] | None:
        """Return the function that a byte of the file is in, and how far in; None where unknown."""
        for start, length, virtual in self._loads:
            if start <= offset < start + length:
                address = offset - start + virtual
                break
        else:
            return None
        at = int(np.searchsorted(self._values, np.uint64(address), side="right")) - 1
        if at < 0:
            return None
        distance = address - int(self._values[at])
        # Assembler may not say how long a function is.
        if distance >= (int(self._sizes[at]) or _UNSIZED_BYTES):
            return None
        return self._name(int(self._names[at])), distance

    def _name(self, offset: int) -> str:
        end = self._strings.find(b"\0", offset)
        return self._strings[offset : end if end >= 0 else None].decode(errors="replace")


_Table = tuple[npt.NDArray[np.uint64], npt.NDArray[np.uint64], npt.NDArray[np.uint64], bytes]


class _Elf:
    """The headers of an open ELF file; every read is bounded by the file."""

    def __init__(self, descriptor: int, size: int) -> None:
        self._descriptor = descriptor
        self._size = size
        head = self._read(0, 64, "its header")
        if not head.startswith(b"\x7fELF"):
            raise SymbolError("no ELF file")
        if head[4:6] != b"\x02\x01":
            raise SymbolError("expected an ELF file of 64 bits, little endian")
        (self._phoff, self._shoff) = struct.unpack_from("<QQ", head, 32)
        self._phentsize, self._phnum, self._shentsize, self._shnum = struct.unpack_from(
            "<HHHH", head, 54
        )

    def _read(self, offset: int, length: int, what: str) -> bytes:
        if offset + length > self._size or length > _MOST_TABLE_BYTES:
            raise SymbolError(f"the file ends before {what}")
        data = os.pread(self._descriptor, length, offset)
        if len(data) != length:
            raise SymbolError(f"the file ends before {what}")
        return data

    def _entries(self, offset: int, size: int, count: int, least: int) -> Iterable[bytes]:
        if count and size < least:
            raise SymbolError(f"a header's entry has {size} bytes, expected {least}")
        data = self._read(offset, size * count, "its headers")
        return (data[i * size : (i + 1) * size] for i in range(count))

    def _segments(self) -> Iterable[tuple[int, int, int, int]]:
        for entry in self._entries(self._phoff, self._phentsize, self._phnum, 56):
            kind, _flags, offset, virtual, _physical, length = struct.unpack_from("<IIQQQQ", entry)
            yield kind, offset, virtual, length

    def loads(self) -> list[tuple[int, int, int]]:
        """Return of each part that is loaded its offset, length and virtual address."""
        # The loader maps whole pages, so an address may be a little before the part.
        return [
            (offset, length, virtual)
            for kind, offset, virtual, length in self._segments()
            if kind == _PT_LOAD
        ]

    def build_id(self) -> str | None:
        for kind, offset, _virtual, length in self._segments():
            if kind != _PT_NOTE or length > 1 << 16:
                continue
            notes = self._read(offset, length, "a note")
            at = 0
            while at + 12 <= len(notes):
                name_bytes, data_bytes, note = struct.unpack_from("<III", notes, at)
                data_at = at + 12 + (name_bytes + 3 & ~3)
                if note == _NT_GNU_BUILD_ID and notes[at + 12 : at + 16] == b"GNU\0":
                    return notes[data_at : data_at + data_bytes].hex()
                at = data_at + (data_bytes + 3 & ~3)
        return None

    def functions(self, wanted: int) -> _Table | None:
        """Return the functions of a symbol table by address; None where the file has no such."""
        sections = [
            struct.unpack_from("<IIQQQQIIQQ", entry)
            for entry in self._entries(self._shoff, self._shentsize, self._shnum, 64)
        ]
        for section in sections:
            if section[1] != wanted:
                continue
            offset, length, link, entry = section[4], section[5], section[6], section[9]
            if entry != _SYMBOL.itemsize or link >= len(sections):
                raise SymbolError("a symbol table of another shape")
            count = length // entry
            data = self._read(offset, count * entry, "its symbols")
            strings = self._read(sections[link][4], sections[link][5], "its names")
            return _by_address(np.frombuffer(data, dtype=_SYMBOL), strings)
        return None


def _by_address(symbols: npt.NDArray[np.void], strings: bytes) -> _Table | None:
    kinds = symbols["info"] & 15
    there = np.isin(kinds, _CODE) & (symbols["section"] != 0) & (symbols["name"] != 0)
    there &= symbols["section"] < 0xFF00
    there &= symbols["name"] < len(strings)
    # What has no type marks all kinds of places; only with a size it is a function of assembler.
    there &= np.isin(kinds, _FUNCTIONS) | (symbols["size"] > 0)
    found = symbols[there]
    if not len(found):
        return None
    # Of several names for one address the strong ones come first, then the order of the table; the
    # search takes the last.
    weak = (found["info"] >> 4) != 1
    order = np.lexsort((np.arange(len(found))[::-1], ~weak, found["value"]))
    found = found[order]
    return (
        found["value"].astype(np.uint64),
        found["size"].astype(np.uint64),
        found["name"].astype(np.uint64),
        strings,
    )


def _debug_functions(build_id: str | None, directory: str) -> _Table | None:
    if not build_id:
        return None
    path = os.path.join(directory, build_id[:2], f"{build_id[2:]}.debug")
    try:
        with open(path, "rb") as file:
            return _Elf(file.fileno(), os.fstat(file.fileno()).st_size).functions(_SHT_SYMTAB)
    except (OSError, SymbolError):
        return None


def demangled(names: Sequence[str]) -> list[str]:
    """Return C++ names as people write them, where c++filt is installed; others as they are."""
    tool = shutil.which("c++filt")
    if tool is None or not any(name.startswith("_Z") for name in names):
        return list(names)
    text = "\n".join(name.replace("\n", " ") for name in names)
    try:
        done = subprocess.run(
            # Without its parameters a name is read at a glance.
            [tool, "--no-params"],
            input=text.encode(errors="surrogateescape"),
            capture_output=True,
            timeout=60,
            check=True,
        )
    except (OSError, subprocess.SubprocessError):
        return list(names)
    lines = done.stdout.decode(errors="replace").split("\n")[: len(names)]
    return lines if len(lines) == len(names) else list(names)


def name_sites(
    addresses: Sequence[int], maps: Sequence[Sequence[Mapping]], *, cxx: bool = True
) -> list[str]:
    """Name return addresses: ``main+0x1c (app)``, ``libfoo.so+0x4f10`` or ``0x7f0012345678``.

    Parameters
    ----------
    addresses : sequence of int
        Return addresses; 0 is an unknown caller.
    maps : sequence of sequence of Mapping
        The program's memory maps, later ones are newer. An address is looked up in the newest
        that has it in executable memory: a library may have been unloaded by then.
    cxx : bool, default True
        Whether to demangle C++ names.

    Returns
    -------
    list of str
        Of each address the name of the function, the distance from its start to the return
        address, and the file.
    """
    tables: dict[str, Symbols | None] = {}
    snapshots = []
    for snapshot in maps:
        code = sorted(mapping for mapping in snapshot if mapping.executable)
        snapshots.append(([mapping.start for mapping in code], code))
    functions: list[str] = []
    parts: list[tuple[str, str]] = []
    for address in addresses:
        # The call is before the return address, which may be that of the next function.
        mapping = _mapping_of(address - 1, snapshots) if address else None
        if mapping is None:
            parts.append(("", "unknown" if not address else f"0x{address:x}"))
            continue
        path = mapping.path.removesuffix(_DELETED)
        offset = address - mapping.start + mapping.offset
        file = os.path.basename(path) or "anonymous"
        # Names are saved, and the system's may be no text.
        file = os.fsencode(file).decode(errors="replace")
        found = None
        if path.startswith("/"):
            if path not in tables:
                tables[path] = _symbols_of(path)
            table = tables[path]
            found = table.find(offset - 1) if table is not None else None
        if found is None:
            base = offset if path.startswith("/") else address - mapping.start
            parts.append(("", f"{file}+0x{base:x}"))
        else:
            functions.append(found[0])
            parts.append((found[0], f"+0x{found[1] + 1:x} ({file})"))
    distinct = list(dict.fromkeys(functions))
    shown = dict(zip(distinct, demangled(distinct) if cxx else distinct, strict=True))
    return [shown[function] + rest if function else rest for function, rest in parts]


def _mapping_of(
    address: int, snapshots: Sequence[tuple[list[int], list[Mapping]]]
) -> Mapping | None:
    for starts, code in reversed(snapshots):
        at = bisect_right(starts, address) - 1
        if at >= 0 and address < code[at].end:
            return code[at]
    return None


def _symbols_of(path: str) -> Symbols | None:
    try:
        # A device or a pipe could keep us waiting.
        if not os.path.isfile(path) or os.path.getsize(path) > _MOST_FILE_BYTES:
            return None
        return Symbols(path)
    except (OSError, SymbolError):
        return None
