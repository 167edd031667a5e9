"""Memory for the log of a program that is recorded, made ready ahead of it.

Most of what recording costs a program is the memory of its log. Whoever waits for the program can
have the kernel make these pages on another processor, so that the program finds them there. It
makes them itself where we are not ahead, so nothing depends on this: it stops at any error, and
stands back where the machine has something else to do.

Nothing is written, since the program may take the pages at any moment, and nothing is read but the
log's header: the kernel is only asked for pages (MADV_POPULATE_WRITE), which can fail but not raise
a signal.
"""

from __future__ import annotations

import mmap
import os
import re
import time
from types import TracebackType
from typing import Final

__all__ = ["Prefill"]

# Linux 5.14; Python's mmap has no name for it.
_MADV_POPULATE_WRITE: Final = 23
# Where a log's header says how much of the log is taken (csrc/preload/rawlog.h).
_NEXT: Final = 80

LEAST_USED: Final = 1 << 20
"""A log of less gets nothing: small programs pay nothing."""
MOST_AHEAD: Final = 32 << 20
"""Beyond what is taken of a log, and never more than half of that."""
SPARE_DISK: Final = 4 * MOST_AHEAD
"""What the file system must have besides."""
SPARE_MEMORY: Final = 16 * MOST_AHEAD
"""And what the machine must have."""

_STEP: Final = 1 << 20
_PIECE: Final = 128 << 10  # while it is made nobody else in this process can run Python
_MARGIN: Final = 256 << 10  # the window that the program takes next: not to get in its way
_MOST_LOGS: Final = 16

_SHORT_PAUSE: Final = 0.001
_LONG_PAUSE: Final = 0.02
_STAND_BACK: Final = 0.02
_LOG_NAME: Final = re.compile(r"pyallocx-\d+-\d+\.axlog")


class _Log:
    """The log of one process image."""

    def __init__(self, path: str) -> None:
        self.descriptor = os.open(path, os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW)
        self.used = 0
        self.ready = 0
        self.grown = 0.0

    def look(self) -> bool:
        """Whether more of the log is taken than at the last look."""
        used = int.from_bytes(os.pread(self.descriptor, 8, _NEXT), "little")
        if used == self.used:
            return False
        self.used = used
        self.grown = time.monotonic()
        return True

    def wanted(self) -> tuple[int, int]:
        """Return from where to where pages are to be made now; no room between: none."""
        if self.used < LEAST_USED:
            return 0, 0
        start = max(self.ready, self.used + _MARGIN)
        start += -start % _PIECE
        stop = self.used + min(self.used // 2, MOST_AHEAD)
        stop = min(stop, start + _STEP, os.fstat(self.descriptor).st_size)
        return start, stop - stop % _PIECE

    def make(self, start: int, stop: int) -> None:
        """Make the pages of a part of the file."""
        with mmap.mmap(self.descriptor, stop - start, offset=start) as part:
            for at in range(0, stop - start, _PIECE):
                part.madvise(_MADV_POPULATE_WRITE, at, _PIECE)
        self.ready = stop

    def has_disk(self) -> bool:
        about = os.fstatvfs(self.descriptor)
        return about.f_bavail * about.f_frsize >= SPARE_DISK + _STEP

    def close(self) -> None:
        os.close(self.descriptor)


class Prefill:
    """Makes pages for the logs in a directory, as they come and grow.

    Parameters
    ----------
    directory : str
        Where the logs are.
    """

    def __init__(self, directory: str) -> None:
        self._directory = directory
        self._seen: set[str] = set()
        self._logs: list[_Log] = []
        self._look_again = 0.0
        self._pause = _SHORT_PAUSE
        self._off = len(os.sched_getaffinity(0)) < 2 or not hasattr(mmap.mmap, "madvise")

    def __enter__(self) -> Prefill:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        value: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        while self._logs:
            self._logs.pop().close()

    def step(self) -> float | None:
        """Do what is to be done now, a few milliseconds of work at most.

        Returns
        -------
        float or None
            After how many seconds to come again; None: not any more.
        """
        if not self._off:
            self._find_logs()
        if self._off:
            return None
        grown = more = False
        for log in list(self._logs):
            # The file may be gone, or too much for a limit of ours.
            try:
                grown |= log.look()
                start, stop = log.wanted()
                if start < stop:
                    if _is_busy() or not _has_memory() or not log.has_disk():
                        return _STAND_BACK
                    if _make(log, start, stop):
                        return _STAND_BACK
                    more = True
            except (OSError, ValueError, LookupError):
                self._logs.remove(log)
                log.close()
        if more:
            self._pause = _SHORT_PAUSE
            return 0
        self._pause = _SHORT_PAUSE if grown else min(2 * self._pause, _LONG_PAUSE)
        return self._pause

    def _find_logs(self) -> None:
        now = time.monotonic()
        if now < self._look_again:
            return
        try:
            names = set(os.listdir(self._directory)) - self._seen
        except OSError:
            self._off = True
            return
        # Some programs start thousands of others.
        self._look_again = now + _LONG_PAUSE + 20 * (time.monotonic() - now)
        self._seen |= names
        for name in sorted(names):
            if _LOG_NAME.fullmatch(name):
                try:
                    log = _Log(os.path.join(self._directory, name))
                except OSError:
                    continue
                log.grown = now
                self._logs.append(log)
        self._logs.sort(key=lambda log: log.grown)
        while len(self._logs) > _MOST_LOGS:
            self._logs.pop(0).close()


def _make(log: _Log, start: int, stop: int) -> bool:
    """Make pages; tell whether we had to wait: for a processor, a lock or a disk."""
    began, worked = time.monotonic(), time.thread_time()
    log.make(start, stop)
    return time.thread_time() - worked < (time.monotonic() - began) / 2


def _is_busy() -> bool:
    """Whether there is no processor to spare: we would take one from the program."""
    with open("/proc/loadavg", "rb") as file:
        running = int(file.read().split()[3].split(b"/")[0])
    return running > (os.cpu_count() or 1)


def _has_memory() -> bool:
    with open("/proc/meminfo", "rb") as file:
        for line in file:
            if line.startswith(b"MemAvailable:"):
                return int(line.split()[1]) * 1024 >= SPARE_MEMORY
    return False
