"""Programs that are run under a recorder: what runs them, and what cannot be recorded."""

from __future__ import annotations

import contextlib
import os
import re
import select
import shutil
import signal
import stat
import struct
import subprocess
import threading
from collections.abc import Callable, Iterator
from types import FrameType
from typing import Final

from pyallocx._core import TraceError

__all__ = [
    "RecordingError",
    "UnknownProgram",
    "check_preloadable",
    "find_program",
    "until_it_ends",
    "wait_for",
]

_LONGEST_SLEEP: Final = 0.05
_MOST_INTERPRETERS: Final = 4
_ELF_64: Final = 2
_PT_INTERP: Final = 3
_LOADER: Final = re.compile(r"ld(-\w[-.\w]*)?\.so(\.\d+)*")


class UnknownProgram(ValueError):
    """The program is not there, may not be executed, or cannot be recorded."""


class RecordingError(TraceError):
    """The program ran, but its recording cannot be had; `returncode` is its exit status."""

    def __init__(self, message: str, returncode: int) -> None:
        super().__init__(message)
        self.returncode = returncode


# ---- running ------------------------------------------------------------------------------------


def wait_for(
    process: subprocess.Popen[bytes], meanwhile: Callable[[], float | None] | None = None
) -> int:
    """Wait for the end of a program.

    Parameters
    ----------
    process : subprocess.Popen
        The program.
    meanwhile : callable, optional
        What to do while it runs: returns the seconds after which to do it again, or None where it
        need not be done again.
    """
    with contextlib.ExitStack() as stack:
        poll = None
        # Not with a kernel before 5.3, in some sandboxes, and in a Python built for older ones.
        with contextlib.suppress(OSError, AttributeError):
            end = os.pidfd_open(process.pid)
            stack.callback(os.close, end)
            poll = select.poll()
            poll.register(end, select.POLLIN)
        while True:
            again = None if meanwhile is None else meanwhile()
            if again is None:
                meanwhile = None
            # In short sleeps: a signal just before an endless wait would be handled after it.
            seconds = _LONGEST_SLEEP if again is None else min(again, _LONGEST_SLEEP)
            if poll is None or poll.poll(1000 * seconds):
                # Without a descriptor for its end, this looks for it less and less often.
                with contextlib.suppress(subprocess.TimeoutExpired):
                    return process.wait(timeout=None if poll else 3600 if again is None else again)


@contextlib.contextmanager
def until_it_ends(process: subprocess.Popen[bytes]) -> Iterator[None]:
    """Leave Ctrl-C to the program, and pass on what asks us to end."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def pass_on(number: int, frame: FrameType | None) -> None:
        with contextlib.suppress(ProcessLookupError):
            process.send_signal(number)

    # A terminal sends Ctrl-C to both of us.
    before = {
        signal.SIGINT: signal.signal(signal.SIGINT, lambda number, frame: None),
        signal.SIGTERM: signal.signal(signal.SIGTERM, pass_on),
        signal.SIGHUP: signal.signal(signal.SIGHUP, pass_on),
    }
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


# ---- finding ------------------------------------------------------------------------------------


def find_program(word: str, *, cwd: str | None = None, path: str | None = None) -> str:
    """Return the file that a command's first word names.

    Raises
    ------
    UnknownProgram
        There is none, or it may not be executed.
    """
    named = word
    if cwd is not None and os.sep in word and not os.path.isabs(word):
        named = os.path.join(cwd, word)
    program = shutil.which(named, path=path)
    if program is None:
        there = os.path.isfile(named)
        if os.path.isdir(named):
            raise UnknownProgram(f"{word}: is a directory, not a program")
        raise UnknownProgram(f"{word}: {'it may not be executed' if there else 'no such program'}")
    return program


# ---- what can be preloaded ----------------------------------------------------------------------


def check_preloadable(program: str, library: str) -> None:
    """Refuse a program into which the loader would not load a library.

    Raises
    ------
    UnknownProgram
        It is static, privileged, of another kind of machine or of another C library.
    OSError
        It cannot be read.
    """
    seen = program
    for _ in range(_MOST_INTERPRETERS):
        _check_privileges(program, seen)
        with open(seen, "rb") as file:
            head = file.read(4096)
            if not head.startswith(b"#!"):
                _check_elf(program, seen, file.fileno(), head, library)
                return
        words = head[2:].split(b"\n", 1)[0].split()
        if not words:
            return
        seen = os.fsdecode(words[0])
        if not os.path.exists(seen):
            raise UnknownProgram(f"{program}: its interpreter {seen} does not exist")


def _named(program: str, seen: str) -> str:
    return program if seen == program else f"{program}: its interpreter {seen}"


def _check_privileges(program: str, seen: str) -> None:
    about = os.stat(seen)
    gains = []
    if about.st_mode & stat.S_ISUID and about.st_uid != os.getuid():
        gains.append("is setuid")
    both = stat.S_ISGID | stat.S_IXGRP
    if about.st_mode & both == both and about.st_gid != os.getgid():
        gains.append("is setgid")
    # For root they add nothing.
    if os.getuid() != 0:
        with contextlib.suppress(OSError):
            if os.getxattr(seen, "security.capability"):
                gains.append("has file capabilities")
    with contextlib.suppress(OSError):
        if gains and os.statvfs(seen).f_flag & os.ST_NOSUID:
            gains = []
    if gains:
        raise UnknownProgram(
            f"{_named(program, seen)} {' and '.join(gains)}: the loader ignores LD_PRELOAD for "
            "programs that gain privileges, so its calls cannot be recorded (a copy of the file "
            "has none: cp makes one)"
        )


def _check_elf(program: str, seen: str, descriptor: int, head: bytes, library: str) -> None:
    name = _named(program, seen)
    if not head.startswith(b"\x7fELF") or len(head) < 64:
        return  # the system will say what it thinks of it
    with open(library, "rb") as file:
        ours = file.read(64)
    if head[4] != ours[4]:
        bits = 64 if head[4] == _ELF_64 else 32
        raise UnknownProgram(
            f"{name} is a program of {bits} bits, the recorder is one of "
            f"{64 if ours[4] == _ELF_64 else 32}"
        )
    if head[5] != ours[5] or head[18:20] != ours[18:20]:
        raise UnknownProgram(
            f"{name} is for another machine (ELF machine {int.from_bytes(head[18:20], 'little')}, "
            f"the recorder's is {int.from_bytes(ours[18:20], 'little')})"
        )
    interpreter = _interpreter_of(descriptor, head)
    if interpreter is None:
        if _LOADER.fullmatch(os.path.basename(os.path.realpath(seen))):
            return
        raise UnknownProgram(
            f"{name} is statically linked: there is no loader that would put the recorder between "
            "it and malloc"
        )
    if "musl" in os.path.basename(interpreter) and not _for_musl(library):
        raise UnknownProgram(
            f"{name} is linked with musl (its loader is {interpreter}), the recorder with glibc: "
            "an installation of pyallocx for musl can record it"
        )


def _interpreter_of(descriptor: int, head: bytes) -> str | None:
    (offset,) = struct.unpack_from("<Q", head, 32)
    size, count = struct.unpack_from("<HH", head, 54)
    for i in range(count if size >= 56 else 0):
        entry = os.pread(descriptor, 56, offset + i * size)
        if len(entry) < 56:
            break
        kind, _flags, at, _virtual, _physical, length = struct.unpack_from("<IIQQQQ", entry)
        if kind == _PT_INTERP:
            text = os.pread(descriptor, min(length, 4096), at)
            return os.fsdecode(text.split(b"\0", 1)[0])
    return None


def _for_musl(library: str) -> bool:
    """Whether a library needs musl's C library: the file names what it needs."""
    with open(library, "rb") as file:
        return b"libc.musl" in file.read(1 << 22)
