"""A slow reader of the recorder's raw log, written from ``csrc/preload/rawlog.h``: an oracle.

``read(path)`` gives the header, the records of each section as they stand, and ``merged`` puts all
into one order. ``judge`` says what is impossible in that order.
"""

from __future__ import annotations

import dataclasses
import itertools
import struct
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

HEADER_BYTES = 65536
GRANULE = 16384
SITES, MAPS, USABLE, FORKED = 1, 2, 4, 8

THREAD = 1
MALLOC, CALLOC, REALLOC, REALLOCARRAY, POSIX_MEMALIGN, ALIGNED_ALLOC = 2, 3, 4, 5, 6, 7
MEMALIGN, VALLOC, PVALLOC, NEW = 8, 9, 10, 11
FREE, DELETE = 16, 17
REALLOC_BEGIN, REALLOC_END, REALLOCARRAY_BEGIN = 20, 21, 22
USABLE_SIZE = 24
MMAP, MUNMAP, MPROTECT, MREMAP = 32, 33, 34, 35
FORK = 40
KINDS = {
    1: "thread", 2: "malloc", 3: "calloc", 4: "realloc", 5: "reallocarray", 6: "posix_memalign",
    7: "aligned_alloc", 8: "memalign", 9: "valloc", 10: "pvalloc", 11: "new", 16: "free",
    17: "delete", 20: "realloc_begin", 21: "realloc_end", 22: "reallocarray_begin",
    24: "usable_size", 32: "mmap", 33: "munmap", 34: "mprotect", 35: "mremap", 40: "fork",
}  # fmt: skip
ALLOCS = range(MALLOC, NEW + 1)
BEGINS = (REALLOC_BEGIN, REALLOCARRAY_BEGIN)
EXTRAS = {MMAP: 1, MPROTECT: 1, MREMAP: 2}

_HEADER = struct.Struct("<8sIIQIIIIQQQQQQIIQQIIQ256sIIII4096s32768s")
_WINDOW = struct.Struct("<8sIIQQQQ16x")


@dataclass(frozen=True)
class Record:
    """One record, with what its form leaves out."""

    kind: int
    failed: bool
    thread: int
    stamp: int
    address: int
    size: int
    align: int
    extra: tuple[int, ...]
    site: int | None
    wide: bool

    @property
    def name(self) -> str:
        return KINDS[self.kind]


@dataclass
class Header:
    """The fields of the header."""

    magic: bytes
    version: int
    header_bytes: int
    flags: int
    clock: int
    pid: int
    ppid: int
    ended: int
    start_realtime_ns: int
    stamp0: int
    mono0_ns: int
    stamp1: int
    mono1_ns: int
    next: int
    threads: int
    cut: int
    cut_stamp: int
    lost: int
    forks: int
    children_not_recorded: int
    fork_stamp: int
    parent_file: bytes
    own_malloc: int
    exit_status_known: int
    stop: int
    command_bytes: int
    exe: bytes
    command: bytes


@dataclass
class Log:
    """A whole log: sections in the order of the file."""

    path: Path
    header: Header
    sections: list[list[Record]]
    maps: list[str]
    frees_of_null: int
    lost: int
    skipped_granules: int
    windows: list[tuple[int, int, int]] = field(default_factory=list)  # offset, bytes, thread

    def threads(self) -> dict[int, list[Record]]:
        """The records of each thread, in its order."""
        found: dict[int, list[list[Record]]] = {}
        for section in self.sections:
            if section:
                found.setdefault(section[0].thread, []).append(section)
        return {
            thread: [record for part in sorted(parts, key=lambda p: p[0].stamp) for record in part]
            for thread, parts in found.items()
        }

    def merged(self) -> list[Record]:
        """All records by stamp, up to where the log was cut; without the threads' beginnings."""
        every = [record for records in self.threads().values() for record in records]
        every = [record for record in every if record.kind != THREAD]
        if self.header.cut:
            every = [record for record in every if record.stamp < self.header.cut_stamp]
        return sorted(every, key=lambda record: record.stamp)

    def count(self, *kinds: int) -> int:
        """How many records there are of these kinds."""
        return sum(record.kind in kinds for section in self.sections for record in section)


def read(path: Path) -> Log:
    """Read a log; an AssertionError says what is wrong with it."""
    with path.open("rb") as file:
        fixed = file.read(_HEADER.size)
        header = Header(*_HEADER.unpack(fixed))
        assert header.magic == b"AXRAWLOG", header.magic
        assert header.version == 1
        assert header.header_bytes == HEADER_BYTES
        file.seek(HEADER_BYTES)
        data = file.read(header.next - HEADER_BYTES)
    header.parent_file = header.parent_file.rstrip(b"\0")
    header.exe = header.exe.rstrip(b"\0")
    header.command = header.command[: header.command_bytes]
    log = Log(path, header, [], [], 0, header.lost, 0)
    at = 0
    while at < len(data):
        magic, size, thread, base, _, nulls, lost = _WINDOW.unpack_from(data, at)
        if magic not in (b"AXWINDOW", b"AXMAPSTX"):
            log.skipped_granules += 1
            at += GRANULE
            continue
        assert size > 0
        assert size % GRANULE == 0
        assert at + size <= len(data), (at, size, len(data))
        if magic == b"AXMAPSTX":
            log.maps.append(data[at + _WINDOW.size : at + size].rstrip(b"\0").decode())
        else:
            log.frees_of_null += nulls
            log.lost += lost
            log.windows.append((at + HEADER_BYTES, size, thread))
            log.sections += _sections(data[at + _WINDOW.size : at + size], header, thread, base)
        at += size
    return log


def _sections(data: bytes, header: Header, thread: int, base: int) -> Iterator[list[Record]]:
    words = struct.unpack(f"<{len(data) // 8}Q", data)
    section: list[Record] = []
    last, at = base, 0
    while at < len(words) and words[at]:
        first = words[at]
        kind, wide, failed = first & 63, bool(first & 64), bool(first & 128)
        assert kind in KINDS, (kind, at)
        if wide:
            assert first >> 8 == 0
            align, stamp, size, address = words[at + 1 : at + 5]
            at += 5
        else:
            assert first >> 14 & 3 == 0
            align = 1 << (first >> 8 & 63)
            stamp, size = last + (words[at + 1] & 0xFFFFFFFF), words[at + 1] >> 32
            address = first >> 16
            at += 2
        assert stamp >= last, "stamps never decrease in a window"
        extra = words[at : at + EXTRAS.get(kind, 0)]
        at += len(extra)
        site = None
        if header.flags & SITES and (2 <= kind <= 15 or kind == REALLOC_END):
            site = words[at]
            at += 1
        if kind == THREAD:
            thread = address
            if section:
                yield section
            section = []
        last = stamp
        section.append(Record(kind, failed, thread, stamp, address, size, align, extra, site, wide))
    if section:
        yield section


@dataclass
class Judgement:
    """What the events of a log add up to, and what of it is impossible."""

    live: dict[int, Record] = field(default_factory=dict)
    allocs_of_live: list[Record] = field(default_factory=list)
    unknown_frees: list[Record] = field(default_factory=list)
    failed: int = 0

    @property
    def live_bytes(self) -> int:
        return sum(record.size for record in self.live.values())


def judge(records: list[Record]) -> Judgement:
    """Replay records in their order: which addresses live, and which events cannot be.

    The clock may stand still for a moment: among records of several threads with one stamp, what is
    possible comes first.
    """
    found = Judgement()
    moving: dict[int, tuple[Record, Record | None]] = {}  # of each thread: the begin, the object
    for _, group in itertools.groupby(records, key=lambda record: record.stamp):
        queues: dict[int, list[Record]] = {}
        for record in group:
            queues.setdefault(record.thread, []).append(record)
        while queues:
            fitting = (t for t, queue in queues.items() if _possible(queue[0], found))
            thread = next(fitting, next(iter(queues)))
            _replay(queues[thread].pop(0), found, moving)
            if not queues[thread]:
                del queues[thread]
    for begin, old in moving.values():  # died inside
        if old is not None:
            found.live[begin.address] = old
    return found


def _possible(record: Record, found: Judgement) -> bool:
    if record.kind in (FREE, DELETE, *BEGINS):
        return record.address in found.live
    if record.kind in ALLOCS or record.kind == REALLOC_END:
        return record.failed or record.address not in found.live
    return True


def _replay(
    record: Record, found: Judgement, moving: dict[int, tuple[Record, Record | None]]
) -> None:
    def allocate(record: Record) -> None:
        if record.address in found.live:
            found.allocs_of_live.append(record)
        found.live[record.address] = record

    if record.kind in ALLOCS:
        if record.failed:
            found.failed += 1
        else:
            allocate(record)
    elif record.kind in (FREE, DELETE):
        if found.live.pop(record.address, None) is None:
            found.unknown_frees.append(record)
    elif record.kind in BEGINS:
        old = found.live.pop(record.address, None)
        if old is None:
            found.unknown_frees.append(record)
        moving[record.thread] = (record, old)
    elif record.kind == REALLOC_END:
        begin, old = moving.pop(record.thread)
        if record.failed:
            found.failed += 1
            if old is not None:
                found.live[begin.address] = old
        elif record.address:
            allocate(dataclasses.replace(record, size=begin.size))
