"""Raw logs of the recorder, made by hand: for tests of what reads them."""

from __future__ import annotations

import struct
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

GRANULE = 16384
HEADER_BYTES = 65536
WINDOW_BYTES = 64

THREAD = 1
MALLOC, CALLOC, REALLOC, REALLOCARRAY, POSIX_MEMALIGN, ALIGNED_ALLOC = range(2, 8)
MEMALIGN, VALLOC, PVALLOC, NEW = range(8, 12)
FREE, DELETE = 16, 17
REALLOC_BEGIN, REALLOC_END, REALLOCARRAY_BEGIN = 20, 21, 22
USABLE_SIZE = 24
MMAP, MUNMAP, MPROTECT, MREMAP = range(32, 36)
FORK = 40

SITES, MAPS, USABLE, FORKED = 1, 2, 4, 8
TSC, MONOTONIC, CNTVCT = 0, 1, 2

_SITED = {*range(2, 16), REALLOC_END}
_EXTRA = {MMAP: 1, MPROTECT: 1, MREMAP: 2}


@dataclass
class Record:
    """One record; what a kind does not have is 0."""

    kind: int
    stamp: int
    address: int = 0
    size: int = 0
    align: int = 0
    failed: bool = False
    site: int = 0
    extra: tuple[int, ...] = ()
    wide: bool = False


def record_bytes(record: Record, before: int, flags: int) -> bytes:
    """Write a record whose predecessor in the window has the stamp `before`."""
    tail = [record.site] if flags & SITES and record.kind in _SITED else []
    tail += record.extra
    assert len(record.extra) == _EXTRA.get(record.kind, 0)
    low = record.kind | record.failed << 7
    power = record.align == 0 or record.align & (record.align - 1) == 0
    wide = (
        record.wide
        or not 0 <= record.stamp - before < 1 << 32
        or record.size >= 1 << 32
        or record.address >= 1 << 48
        or not power
    )
    if wide:
        words = [low | 64, record.align, record.stamp, record.size, record.address]
    else:
        log2 = record.align.bit_length() - 1 if record.align else 0
        words = [
            low | log2 << 8 | record.address << 16,
            record.stamp - before | record.size << 32,
        ]
    return struct.pack(f"<{len(words) + len(tail)}Q", *words, *tail)


@dataclass
class Window:
    """A window with its records, or with the text of memory maps."""

    records: Sequence[Record] = ()
    thread: int = 0
    base: int | None = None
    mono: int = 0
    frees_of_null: int = 0
    lost: int = 0
    text: bytes | None = None
    size: int | None = None
    torn: int = 0  # bytes to leave out at the end of the records

    def to_bytes(self, flags: int) -> bytes:
        base = self.base
        if base is None:
            base = self.records[0].stamp if self.records else 0
        body = b""
        before = base
        for record in self.records:
            body += record_bytes(record, before, flags)
            before = record.stamp
        if self.text is not None:
            body = self.text
        body = body[: len(body) - self.torn]
        length = self.size or -(-(WINDOW_BYTES + len(body)) // GRANULE) * GRANULE
        magic = b"AXMAPSTX" if self.text is not None else b"AXWINDOW"
        head = magic + struct.pack(
            "<IIQQQQ16x",
            length,
            self.thread,
            base,
            self.mono,
            self.frees_of_null,
            self.lost,
        )
        return (head + body).ljust(length, b"\0")


@dataclass
class Log:
    """A raw log; the fields of its header that tests look at."""

    windows: Sequence[Window | bytes] = ()
    flags: int = 0
    clock: int = MONOTONIC
    pid: int = 100
    ppid: int = 99
    ended: int = 1
    start_realtime_ns: int = 10**18
    pairs: tuple[int, int, int, int] = (0, 0, 0, 0)
    threads: int = 1
    cut: int = 0
    cut_stamp: int = 0
    lost: int = 0
    forks: int = 0
    children_not_recorded: int = 0
    fork_stamp: int = 0
    parent_file: bytes = b""
    own_malloc: int = 0
    exe: bytes = b"/usr/bin/app"
    command: Sequence[bytes] = field(default_factory=lambda: [b"app", b"-x"])

    def to_bytes(self) -> bytes:
        body = b"".join(
            window if isinstance(window, bytes) else window.to_bytes(self.flags)
            for window in self.windows
        )
        command = b"".join(word + b"\0" for word in self.command)
        head = b"AXRAWLOG" + struct.pack(
            "<IIQIIIIQQQQQQIIQQIIQ256sIIII4096s32768s",
            1,
            HEADER_BYTES,
            self.flags,
            self.clock,
            self.pid,
            self.ppid,
            self.ended,
            self.start_realtime_ns,
            *self.pairs,
            HEADER_BYTES + len(body),
            self.threads,
            self.cut,
            self.cut_stamp,
            self.lost,
            self.forks,
            self.children_not_recorded,
            self.fork_stamp,
            self.parent_file,
            self.own_malloc,
            0,
            0,
            len(command),
            self.exe,
            command,
        )
        assert len(head) == 37264
        return head.ljust(HEADER_BYTES, b"\0") + body


def windows_of(
    records: Iterable[Record], thread: int, tid: int, *, per_window: int, mono: bool = True
) -> list[Window]:
    """Spread the records of one thread over windows, the first of which names the thread."""
    all_records = list(records)
    windows = []
    for start in range(0, max(1, len(all_records)), per_window):
        part = all_records[start : start + per_window]
        if start == 0:
            first = part[0].stamp if part else 0
            part = [Record(THREAD, first, thread, tid), *part]
        windows.append(Window(part, thread, mono=part[0].stamp if mono else 0))
    return windows
