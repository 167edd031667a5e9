"""Run a program whose just-in-time compiler can log its code, and import the log."""

from __future__ import annotations

import contextlib
import glob
import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from pyallocx._core import TraceError
from pyallocx._running import (
    RecordingError,
    UnknownProgram,
    Word,
    checked_words,
    ending_tidily,
    find_program,
    signals_for_the_program,
    storable,
    wait_for,
)
from pyallocx.trace import Trace, load

__all__ = ["CodeLog", "Recording", "RecordingError", "UnknownProgram", "record_jit"]

_NODE = re.compile(r"node(js)?([-\d.]*)")
_JAVA = re.compile(r"java([-\d.]*)")
_OVERRIDES = re.compile(r"--(no-?log[-_]code|(no-?)?logfile(=|$))|-XX:(LogFile=|-LogCompilation)")
# What node runs first in a worker, and never in the main thread.
_WORKER = b"node:internal/main/worker_thread"


class Recording(NamedTuple):
    """What `record_jit` brings back: the program's exit status, and the trace."""

    returncode: int
    """As of `subprocess.Popen`: negative where a signal ended the program."""
    trace: Trace


def record_jit(command: Sequence[Word], *, isolate: int = 0) -> Recording:
    """Run node or java with its code log on, and import the log.

    The program has our standard input, output and error, our directory and environment, and all
    its arguments; the flags that turn the log on come before them. The log is written to a
    temporary directory, which is removed.

    Parameters
    ----------
    command
        The program and its arguments. Node is run with ``--log-code`` (format ``v8``), java with
        ``-XX:+LogCompilation`` (format ``hotspot_logcompilation``), which of what HotSpot 17 can
        write is the only log with sizes and addresses.
    isolate
        Of node: 0 is the main thread, 1 and so on its worker threads, the one with the largest log
        first. Each isolate has a heap and a clock of its own, so that they make several traces, not
        one.

    Returns
    -------
    Recording
        ``returncode``, and ``trace`` with ``program``, ``command`` and ``returncode`` in its
        metadata. Of node it is the trace of one isolate; where worker threads had logs too,
        ``isolates`` counts them all, ``isolate`` says which this is, and ``creations_not_read``
        how often the others created code. Child processes are not recorded. What a signal has
        ended may leave half a line: it is dropped, and counted in ``dropped``.

    Raises
    ------
    UnknownProgram
        There is no such program, or it is neither node nor java, under another name neither.
    RecordingError
        The program wrote no log (which its own arguments can cause), one that is not as expected,
        or has no such isolate. A `TraceError`.
    ValueError
        `isolate` is negative.
    OSError
        The program could not be run.
    """
    words = checked_words(command)
    program = shutil.which(words[0])
    with ending_tidily(), tempfile.TemporaryDirectory(prefix="pyallocx-jit-") as directory:
        log = CodeLog(words, program, directory, isolate)
        program = find_program(words[0])
        with signals_for_the_program() as signals:
            process = subprocess.Popen(log.command(), executable=program)
            returncode = wait_for(process, signals=signals)
        return Recording(returncode, log.read(process.pid, returncode))


class CodeLog:
    """The code log of one run of node or java: the flags that turn it on, and what it says.

    Parameters
    ----------
    words : sequence of str
        The program and its arguments.
    program : str or None
        The file that it is, where there is one.
    directory : str
        Where the log goes.
    isolate : int, default 0
        See `record_jit`.

    Raises
    ------
    UnknownProgram
        The program is neither node nor java.
    ValueError
        `isolate` is negative.
    """

    def __init__(
        self, words: Sequence[str], program: str | None, directory: str, isolate: int = 0
    ) -> None:
        if isolate < 0:
            raise ValueError(f"isolate is {isolate}, allowed is 0 (the main thread) and more")
        self._words = list(words)
        self._name = _known_name(words[0], program)
        self._directory = directory
        self._isolate = isolate
        self._flags = _flags(self._name)

    def command(self) -> list[str]:
        """Return the command with the flags that turn the log on."""
        log = os.path.join(self._directory, "code.log")
        added = [flag.format(log=log) for flag in self._flags]
        return [self._words[0], *added, *self._words[1:]]

    def read(self, pid: int, returncode: int) -> Trace:
        """Import the log that a process left.

        Raises
        ------
        RecordingError
            It left none, one that is not as expected, or none of the isolate asked for.
        """
        name, words, isolate = self._name, self._words, self._isolate
        _remove_thread_logs(pid)
        logs = [
            path
            for path in Path(self._directory).iterdir()
            # A child process of the program may have logged here too.
            if path.name == "code.log" or f"-{pid}-" in path.name
        ]
        if not logs:
            raise RecordingError(f"{name} wrote no log of its code{_overridden(words)}", returncode)
        logs = _in_order(logs)
        if isolate >= len(logs):
            raise RecordingError(
                f"{name} has no isolate {isolate}; there are 0 to {len(logs) - 1}", returncode
            )
        wanted = logs.pop(isolate)
        try:
            # What a signal ends may have been in the middle of a line.
            on_error = "skip" if returncode < 0 else "raise"
            trace = load(wanted, on_error=on_error, format=_format(name), progress=False)
        except TraceError as error:
            raise RecordingError(f"the log of {name}: {error}", returncode) from None
        others = [load(log, on_error="skip", format="v8", progress=False) for log in logs]
        metadata = {key: value for key, value in trace.metadata.items() if key != "file"}
        metadata |= {"program": storable(name), "command": [storable(word) for word in words]}
        metadata["returncode"] = returncode
        if others:
            metadata["isolates"] = 1 + len(others)
            metadata["isolate"] = isolate
            metadata["creations_not_read"] = sum(other.n_objects for other in others)
        return Trace._adopt(trace.columns(), metadata, False, trace.asides)


def _known_name(word: str, program: str | None) -> str:
    """Return the name by which a program is known: its own, or that of what it is a link to."""
    name = os.path.basename(word)
    if program is not None and not (_NODE.fullmatch(name) or _JAVA.fullmatch(name)):
        target = os.path.basename(os.path.realpath(program))
        if _NODE.fullmatch(target) or _JAVA.fullmatch(target):
            return target
    return name


def _overridden(words: Sequence[str]) -> str:
    """Say which of the program's own flags, which come after ours, sent the log elsewhere."""
    flag = next((word for word in words[1:] if _OVERRIDES.match(word)), None)
    return "" if flag is None else f": its own flag {flag} overrode ours; leave it out"


def _format(name: str) -> str:
    return "v8" if _NODE.fullmatch(name) else "hotspot_logcompilation"


def _flags(name: str) -> tuple[str, ...]:
    if _NODE.fullmatch(name):
        # V8 puts what tells isolates apart before the file's name.
        return ("--log-code", "--logfile={log}")
    if _JAVA.fullmatch(name):
        return ("-XX:+UnlockDiagnosticVMOptions", "-XX:+LogCompilation", "-XX:LogFile={log}")
    raise UnknownProgram(f"{name}: expected node or java, the programs that log their code")


def _remove_thread_logs(pid: int) -> None:
    """Remove what a HotSpot that was killed leaves of its compiler threads' own logs."""
    # HotSpot looks at no variable: on Linux this is where they are.
    for path in glob.glob(f"/tmp/hs_c*_pid{pid}.log"):
        with contextlib.suppress(OSError):
            os.unlink(path)


def _in_order(logs: Sequence[Path]) -> list[Path]:
    """Return the logs of the isolates of one process: the main thread's, then the largest first."""
    largest = sorted(logs, key=lambda path: path.stat().st_size, reverse=True)
    if len(logs) == 1:
        return largest
    main = next((path for path in largest if not _holds(path, _WORKER)), largest[0])
    return [main, *(path for path in largest if path != main)]


def _holds(path: Path, text: bytes) -> bool:
    with path.open("rb") as file:
        return any(text in line for line in file)
