"""Programs that are run under a recorder: what runs them, and what cannot be recorded."""

from __future__ import annotations

import contextlib
import os
import re
import resource
import select
import shutil
import signal
import stat
import struct
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from types import FrameType
from typing import Final

from pyallocx._core import TraceError, catch_signals, uncatch_signals

__all__ = [
    "Ended",
    "RecordingError",
    "Signals",
    "UnknownProgram",
    "check_preloadable",
    "checked_words",
    "die_as",
    "ending_tidily",
    "find_program",
    "signals_for_the_program",
    "storable",
    "wait_for",
]

_ASK_TO_END: Final = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT)
_PASSED_ON: Final = (*_ASK_TO_END, signal.SIGUSR1, signal.SIGUSR2)
_OF_TERMINALS: Final = (signal.SIGINT, signal.SIGQUIT)
_SI_KERNEL: Final = 128
_NO_TEXT: Final = re.compile("[\ud800-\udfff]")
_TOLD: Final = struct.Struct("3i")

Word = str | bytes | os.PathLike[str] | os.PathLike[bytes]

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
    process: subprocess.Popen[bytes],
    meanwhile: Callable[[], float | None] | None = None,
    signals: Signals | None = None,
) -> int:
    """Wait for the end of a program.

    Parameters
    ----------
    process : subprocess.Popen
        The program.
    meanwhile : callable, optional
        What to do while it runs: returns the seconds after which to do it again, or None where it
        need not be done again.
    signals : Signals, optional
        What is passed on to it.
    """
    with contextlib.ExitStack() as stack:
        poll = None
        # Not with a kernel before 5.3, in some sandboxes, and in a Python built for older ones.
        with contextlib.suppress(OSError, AttributeError):
            end = os.pidfd_open(process.pid)
            stack.callback(os.close, end)
            poll = select.poll()
            poll.register(end, select.POLLIN)
            if signals is not None:
                poll.register(signals.reading, select.POLLIN)
        while True:
            if signals is not None:
                signals.pass_on(process)
            again = None if meanwhile is None else meanwhile()
            if again is None:
                meanwhile = None
            # In short sleeps: a signal just before an endless wait would be handled after it.
            seconds = _LONGEST_SLEEP if again is None else min(again, _LONGEST_SLEEP)
            if poll is None:
                with contextlib.suppress(subprocess.TimeoutExpired):
                    return process.wait(timeout=seconds)
            elif any(ready == end for ready, _ in poll.poll(1000 * seconds)):
                return process.wait()


class Signals:
    """Signals that come to us while a program runs, for it.

    A terminal sends Ctrl-C and the like to the program, too: those are dropped. What somebody sent
    to us alone is passed on, unless it comes from the program itself. Signals that we ignore, or
    have been told how to handle, are left alone but for those that ask us to end.
    """

    def __init__(self) -> None:
        self.reading, self._writing = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
        try:
            catch_signals(
                self._writing, tuple(number for number in _PASSED_ON if _is_passed_on(number))
            )
        except BaseException:
            self._close()
            raise

    def pass_on(self, process: subprocess.Popen[bytes]) -> None:
        """Send the program what came for it since the last time."""
        while True:
            try:
                told = os.read(self.reading, 64 * _TOLD.size)
            except BlockingIOError:
                return
            for number, code, sender in _TOLD.iter_unpack(told):
                of_terminal = number in _OF_TERMINALS and code == _SI_KERNEL
                if not of_terminal and sender != process.pid:
                    # It may have ended.
                    with contextlib.suppress(ProcessLookupError, PermissionError):
                        process.send_signal(number)

    def close(self) -> None:
        """Handle signals as before."""
        uncatch_signals()
        self._close()

    def _close(self) -> None:
        os.close(self.reading)
        os.close(self._writing)


def _is_passed_on(number: int) -> bool:
    handler = signal.getsignal(number)
    if number in _ASK_TO_END:
        # What we ignore, the program does, too: under nohup, say, or behind a shell's &.
        return handler is not signal.SIG_IGN
    return handler is signal.SIG_DFL


@contextlib.contextmanager
def signals_for_the_program() -> Iterator[Signals | None]:
    """Catch signals for a program that is to be run; None in any thread but the main one."""
    if threading.current_thread() is not threading.main_thread():
        yield None
        return
    signals = Signals()
    try:
        yield signals
    finally:
        signals.close()


class Ended(SystemExit):
    """A signal asked us to end; what has to be tidied up is tidied up on the way."""

    def __init__(self, number: int) -> None:
        super().__init__(128 + number)
        self.number = number


@contextlib.contextmanager
def ending_tidily() -> Iterator[None]:
    """Make an exception of what would end us at once, so that no files are left behind.

    Raises
    ------
    Ended
        A signal came that ends us, and that nobody else handles.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def end(number: int, frame: FrameType | None) -> None:
        raise Ended(number)

    ours = [n for n in _ASK_TO_END if signal.getsignal(n) is signal.SIG_DFL]
    for number in ours:
        signal.signal(number, end)
    try:
        yield
    finally:
        for number in ours:
            signal.signal(number, signal.SIG_DFL)


def die_as(returncode: int) -> int:
    """End by the signal that ended the program, so that a shell sees what it would have seen.

    Returns
    -------
    int
        The exit code for a program that no signal has ended, or one that does not end us.
    """
    if returncode >= 0:
        return returncode
    number = -returncode
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError, ValueError):
            stream.flush()
    # The program has dumped its core, if it was to.
    resource.setrlimit(resource.RLIMIT_CORE, (0, resource.getrlimit(resource.RLIMIT_CORE)[1]))
    with contextlib.suppress(OSError, ValueError):
        if number not in (signal.SIGKILL, signal.SIGSTOP):
            signal.signal(number, signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {number})
        os.kill(os.getpid(), number)
    return 128 + number


# ---- finding ------------------------------------------------------------------------------------


def checked_words(command: Sequence[Word]) -> list[str]:
    """Return a command's words as texts.

    Raises
    ------
    TypeError
        It is no sequence of words.
    UnknownProgram
        It names no program.
    ValueError
        A word cannot be handed to a program.
    """
    # A str is a sequence of words, too.
    if isinstance(command, (str, bytes)) or not isinstance(command, Sequence):
        raise TypeError(
            f"command is {command!r}, expected a list of words: the program and its arguments"
        )
    words = []
    for number, word in enumerate(command):
        if not isinstance(word, (str, bytes, os.PathLike)):
            raise TypeError(f"command[{number}] is {word!r}, expected a text, bytes or a path")
        text = os.fsdecode(word)
        try:
            os.fsencode(text)
        except UnicodeEncodeError:
            raise ValueError(
                f"command[{number}] is {text!r}, which is no text in the system's encoding"
            ) from None
        if "\0" in text:
            raise ValueError(f"command[{number}] is {text!r}; a word holds no NUL")
        words.append(text)
    if not words or not words[0]:
        raise UnknownProgram("no program was named")
    return words


def storable(text: str) -> str:
    """Return a text of the system's as one that can be saved: bytes that are no UTF-8 are lost."""
    return _NO_TEXT.sub("\ufffd", text)


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
