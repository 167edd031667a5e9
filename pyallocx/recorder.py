"""Record the allocations of a program: run it with a library of ours between it and malloc.

`record` runs a program and returns its trace, `record_run` also those of the processes that it
started and, of node and java, that of the code they compile. ``docs/recording.md`` says what is
recorded, what each count means, and what cannot be recorded.
"""

from __future__ import annotations

import errno
import os
import re
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO, Any, Final, NamedTuple

from pyallocx._core import TraceError
from pyallocx._prefill import Prefill
from pyallocx._rawlog import FLAGS, FORKED, read_header, read_rawlog
from pyallocx._running import (
    RecordingError,
    UnknownProgram,
    check_preloadable,
    find_program,
    until_it_ends,
    wait_for,
)
from pyallocx.codetraces.record import CodeLog
from pyallocx.preload import library_path
from pyallocx.trace import Trace

__all__ = ["ProgramRecording", "RecordingError", "UnknownProgram", "record", "record_run"]

LEAST_MAX_BYTES: Final = 1 << 20
"""The smallest limit of a raw log: its header and a few windows."""

_LOG_NAME: Final = re.compile(r"pyallocx-(\d+)-(\d+)\.axlog")
# LD_PRELOAD is a list; the loader gives these characters meanings of their own, and has no quotes.
_SPECIAL: Final = re.compile(r"[\s:;$]")
_UNSAFE: Final = re.compile(r"[^A-Za-z0-9._+]")
# So few events of a program that has an allocator of its own are those of others.
_FEW_EVENTS: Final = 16

Stream = int | IO[Any] | None


class ProgramRecording(NamedTuple):
    """What `record_run` brings back."""

    returncode: int
    """As of `subprocess.Popen`: negative where a signal ended the program."""
    trace: Trace
    """Of the program."""
    children: list[Trace]
    """Of the processes that it started, in the order of their start, where they were recorded."""
    code: Trace | None
    """Of the code that node or java compiled, where it was asked for."""


def record(
    command: Sequence[str],
    *,
    sites: bool = False,
    maps: bool = False,
    usable_size: bool = True,
    max_bytes: int | None = None,
    output: str | os.PathLike[str] | None = None,
    cwd: str | os.PathLike[str] | None = None,
    env: Mapping[str, str] | None = None,
    stdin: Stream = None,
    stdout: Stream = None,
    stderr: Stream = None,
    progress: bool | None = None,
) -> Trace:
    """Run a program and record what it allocates.

    The program runs as it would by itself: it has our standard input, output and error, our
    directory and environment (but for a few variables), and its signals; Ctrl-C of a terminal is
    the program's. A library that is loaded into it writes down each call of malloc and its kin,
    to a file in a temporary directory, which is removed.

    Parameters
    ----------
    command : sequence of str
        The program and its arguments.
    sites : bool, default False
        Whether to record from where the program called: the trace's column `key` numbers the
        call sites (of a free or a realloc: that of the object's alloc), and
        ``metadata["key_names"]`` names them.
    maps : bool, default False
        Whether to record mmap, munmap, mprotect and mremap, too, as the aside ``maps``;
        `mappings_trace` makes a trace of them.
    usable_size : bool, default True
        Whether to record the questions for `malloc_usable_size`, as the aside ``usable_size``.
    max_bytes : int, optional
        The most that the raw log may take up, of each process. The trace ends there, and
        ``metadata["cut"]`` says so; the program runs on.
    output : path-like, optional
        Where to save the trace (npz) as well; the raw log is then written beside it.
    cwd, env : optional
        The program's directory and environment, by default ours.
    stdin, stdout, stderr : optional
        As for `subprocess.Popen`, by default ours.
    progress : bool, optional
        Whether to show a progress bar while the raw log is read. By default for long ones, where
        standard error is a terminal.

    Returns
    -------
    Trace
        With the columns `thread`, `time_ns`, `call`, and `align_log2` and `key` where there are
        any; times count from the start of the recording. In its metadata ``program``,
        ``command``, ``returncode`` (negative: the signal), ``pid``, ``tids``, ``clock``,
        ``counts`` and more, see ``docs/recording.md``.

        Of a command that becomes another program (``env``, ``sh -c "exec ..."``) it is the trace
        of the last program that allocated; ``images`` lists the programs, ``image`` is its place.

    Raises
    ------
    UnknownProgram
        Before anything runs: there is no such program, or it cannot be recorded (static, setuid,
        of another kind). A ValueError.
    RecordingError
        The program ran, but nothing was recorded; the message says why that may be, and
        ``returncode`` is the program's. A `TraceError`.
    ValueError
        `max_bytes` is too small, or `command` empty.
    OSError
        The program could not be run, or `output` not be written.

    See Also
    --------
    record_run : also child processes, and the code of node and java.

    Examples
    --------
    >>> import pyallocx as px
    >>> trace = px.record(["sort", "words.txt"])  # doctest: +SKIP
    >>> trace.summary()["peak_live_bytes"]  # doctest: +SKIP
    """
    return record_run(
        command,
        sites=sites,
        maps=maps,
        usable_size=usable_size,
        max_bytes=max_bytes,
        output=output,
        cwd=cwd,
        env=env,
        stdin=stdin,
        stdout=stdout,
        stderr=stderr,
        progress=progress,
    ).trace


def record_run(
    command: Sequence[str],
    *,
    follow_forks: bool = False,
    jit: bool = False,
    isolate: int = 0,
    sites: bool = False,
    maps: bool = False,
    usable_size: bool = True,
    max_bytes: int | None = None,
    output: str | os.PathLike[str] | None = None,
    cwd: str | os.PathLike[str] | None = None,
    env: Mapping[str, str] | None = None,
    stdin: Stream = None,
    stdout: Stream = None,
    stderr: Stream = None,
    progress: bool | None = None,
) -> ProgramRecording:
    """Run a program and record it with all that it starts.

    Parameters
    ----------
    follow_forks : bool, default False
        Whether to record child processes, and theirs, too. One that goes on when the program has
        ended is recorded up to then.
    jit : bool, default False
        Whether to have node or java log the code it compiles, in the same run; see
        `pyallocx.codetraces.record.record_jit`.
    isolate : int, default 0
        Of node with `jit`: whose code, see there.
    command, sites, maps, usable_size, max_bytes, output, cwd, env, stdin, stdout, stderr, progress
        As for `record`.

    Returns
    -------
    ProgramRecording
        ``returncode``, ``trace``, ``children`` and ``code``. A child's metadata has ``parent_pid``
        and ``started_ns`` (since the start of the first program); where it comes from a fork,
        not from an exec, also ``fork_time_ns`` (in the time of the parent's trace). Its frees of
        what it inherited are in ``counts`` as ``frees_of_unknown``.

    Raises
    ------
    UnknownProgram, RecordingError, ValueError, OSError
        As `record` does; with `jit` also as `record_jit` does.
    """
    if output is not None:
        # Before anything runs: what was recorded would be lost.
        parent = os.path.dirname(os.path.realpath(output))
        if not os.path.isdir(parent):
            raise FileNotFoundError(errno.ENOENT, "no such directory", parent)
    recording = run_program(
        command,
        follow_forks=follow_forks,
        jit=jit,
        isolate=isolate,
        sites=sites,
        maps=maps,
        usable_size=usable_size,
        max_bytes=max_bytes,
        beside=None if output is None else os.path.dirname(os.path.realpath(output)),
        cwd=cwd,
        env=env,
        stdin=stdin,
        stdout=stdout,
        stderr=stderr,
        progress=progress,
    )
    if output is not None:
        for path, trace in files_of(os.fsdecode(output), recording).items():
            trace.save(path)
    return recording


def files_of(output: str, recording: ProgramRecording) -> dict[str, Trace]:
    """Name the files of a recording, one for each trace; the program's is `output`."""
    base = output.removesuffix(".npz")
    files = {output: recording.trace}
    if recording.code is not None:
        files[f"{base}.code.npz"] = recording.code
    for number, child in enumerate(recording.children, 1):
        name = _UNSAFE.sub("_", str(child.metadata["program"]))[:64]
        files[f"{base}.{number}-{name or 'program'}.npz"] = child
    return files


def run_program(
    command: Sequence[str],
    *,
    follow_forks: bool = False,
    jit: bool = False,
    isolate: int = 0,
    sites: bool = False,
    maps: bool = False,
    usable_size: bool = True,
    max_bytes: int | None = None,
    beside: str | None = None,
    cwd: str | os.PathLike[str] | None = None,
    env: Mapping[str, str] | None = None,
    stdin: Stream = None,
    stdout: Stream = None,
    stderr: Stream = None,
    progress: bool | None = None,
) -> ProgramRecording:
    """Do as `record_run`, without saving; `beside` is the directory for the raw logs."""
    words = _checked_words(command)
    if max_bytes is not None and max_bytes < LEAST_MAX_BYTES:
        raise ValueError(
            f"max_bytes is {max_bytes}, allowed is {LEAST_MAX_BYTES:,} and more, or None"
        )
    place = None if cwd is None else os.fsdecode(cwd)
    variables = dict(os.environ if env is None else env)
    program = find_program(words[0], cwd=place, path=variables.get("PATH"))
    library = _library()
    check_preloadable(program, library)
    flags = [("sites", sites), ("maps", maps), ("usable_size", usable_size)]
    with tempfile.TemporaryDirectory(
        prefix=".pyallocx-record-" if beside else "pyallocx-record-", dir=beside
    ) as directory:
        code_log = None
        if jit:
            jit_directory = os.path.join(directory, "code")
            os.mkdir(jit_directory)
            code_log = CodeLog(words, program, jit_directory, isolate)
        logs = os.path.join(directory, "logs")
        os.mkdir(logs)
        variables["LD_PRELOAD"] = _preloads(library, directory, variables.get("LD_PRELOAD"))
        pid, returncode = run_logging(
            words if code_log is None else code_log.command(),
            program,
            logs,
            variables,
            flags=sum(FLAGS[name] for name, wanted in flags if wanted),
            follow_forks=follow_forks,
            max_bytes=max_bytes,
            cwd=place,
            stdin=stdin,
            stdout=stdout,
            stderr=stderr,
        )
        recording = _read(_Logs(logs, pid), words, returncode, follow_forks, progress)
        if code_log is not None:
            recording = recording._replace(code=code_log.read(pid, returncode))
    return recording


def run_logging(
    words: list[str],
    program: str,
    logs: str,
    env: Mapping[str, str],
    *,
    flags: int,
    follow_forks: bool = False,
    max_bytes: int | None = None,
    cwd: str | None = None,
    stdin: Stream = None,
    stdout: Stream = None,
    stderr: Stream = None,
) -> tuple[int, int]:
    """Run a program with an `env` that preloads the recorder, its logs going to a directory.

    Returns
    -------
    tuple of int
        The program's process id, and its exit status as of `subprocess.Popen`.
    """
    process = subprocess.Popen(
        words,
        executable=program,
        cwd=cwd,
        env={
            **env,
            "PYALLOCX_RECORD_DIR": logs,
            "PYALLOCX_RECORD_FLAGS": str(flags),
            "PYALLOCX_RECORD_PARENT": "0" if follow_forks else str(os.getpid()),
            "PYALLOCX_RECORD_MAX_BYTES": str(max_bytes or 0),
        },
        stdin=stdin,
        stdout=stdout,
        stderr=stderr,
    )
    with until_it_ends(process), Prefill(logs) as prefill:
        returncode = wait_for(process, prefill.step)
    return process.pid, returncode


def _checked_words(command: Sequence[str]) -> list[str]:
    if isinstance(command, (str, bytes)):
        raise TypeError(
            f"command is {command!r}, expected a list of words: the program and its arguments"
        )
    words = [os.fspath(word) for word in command]
    if not words or not words[0]:
        raise UnknownProgram("no program was named")
    return words


def _library() -> str:
    """Return the file of the library that is loaded into programs."""
    try:
        return str(library_path())
    except FileNotFoundError as exc:
        raise UnknownProgram(str(exc)) from None


def _preloads(library: str, directory: str, before: str | None) -> str:
    """Return the list of what the loader is to load, ours first."""
    if _SPECIAL.search(library):
        link = os.path.join(directory, os.path.basename(library))
        if _SPECIAL.search(link):
            raise UnknownProgram(
                f"the recorder cannot be loaded from {library!r}, nor from {directory!r}: the "
                "loader takes no name with a blank, a colon or a dollar sign"
            )
        os.symlink(library, link)
        library = link
    return f"{library}:{before}" if before else library


# ---- the logs of a run --------------------------------------------------------------------------


class _Log(NamedTuple):
    """The log of one process image."""

    pid: int
    number: int
    path: str
    header: dict[str, Any]

    @property
    def start(self) -> int:
        return int(self.header["mono0_ns"])

    @property
    def program(self) -> str:
        return os.path.basename(bytes(self.header["exe"])).decode(errors="replace")


class _Logs:
    """All logs that a run left; those of the program itself apart."""

    def __init__(self, directory: str, pid: int) -> None:
        self.own: list[_Log] = []
        self.others: list[_Log] = []
        self.unreadable = 0
        for path in sorted(Path(directory).iterdir()):
            name = _LOG_NAME.fullmatch(path.name)
            if name is None:
                continue
            try:
                with path.open("rb") as file:
                    header = read_header(file)
            except (TraceError, OSError):
                # The process died before it had written its header.
                self.unreadable += 1
                continue
            log = _Log(int(name[1]), int(name[2]), str(path), header)
            (self.own if log.pid == pid else self.others).append(log)
        self.own.sort(key=lambda log: log.number)
        self.others.sort(key=lambda log: (log.start, log.pid, log.number))
        self.by_name = {os.path.basename(log.path): log for log in (*self.own, *self.others)}


def _read(
    logs: _Logs, words: list[str], returncode: int, follow_forks: bool, progress: bool | None
) -> ProgramRecording:
    images = [log.program for log in logs.own]
    trace = None
    for place in reversed(range(len(logs.own))):
        added: dict[str, Any] = {"command": words, "returncode": returncode}
        if len(images) > 1:
            added |= {"images": images, "image": place}
        if logs.unreadable:
            added["logs_unreadable"] = logs.unreadable
        trace = _load(logs.own[place], progress, added)
        if len(trace):
            break
    if trace is None or not len(trace) or _has_own_malloc(trace):
        raise RecordingError(f"{words[0]}: {_nothing(logs, trace, returncode)}", returncode)
    children = []
    for log in logs.others if follow_forks else ():
        child = _load(log, progress, _origin(log, logs))
        if len(child):
            children.append(child)
    return ProgramRecording(returncode, trace, children, None)


def _load(log: _Log, progress: bool | None, added: Mapping[str, Any]) -> Trace:
    with open(log.path, "rb") as file:
        # What a program that died has torn is left out, and counted.
        return read_rawlog(file, log.path, None, skip=True, progress=progress, added=added)


def _origin(log: _Log, logs: _Logs) -> dict[str, Any]:
    """Say where a child process comes from."""
    header = log.header
    about: dict[str, Any] = {
        "parent_pid": header["ppid"],
        "started_ns": max(0, log.start - logs.own[0].start),
    }
    parent = logs.by_name.get(os.fsdecode(header["parent_file"]))
    if header["flags"] & FORKED and parent is not None:
        about["parent_program"] = parent.program
        # Both count by the same clock.
        ticks = header["fork_stamp"] - parent.header["stamp0"]
        about["fork_time_ns"] = max(0, int(ticks * parent.header["ns_per_tick"]))
    return about


def _has_own_malloc(trace: Trace) -> bool:
    return bool(trace.metadata.get("own_malloc")) and len(trace) < _FEW_EVENTS


def _nothing(logs: _Logs, trace: Trace | None, returncode: int) -> str:
    """Say why there may be no trace."""
    if trace is not None:
        cut = trace.metadata.get("cut")
        if trace.metadata.get("own_malloc"):
            return (
                f"nothing was recorded but {len(trace):,} events: the program brings its own "
                "malloc (its file defines the function), and its calls go there"
            )
        if cut is not None:
            return f"nothing was recorded: the recording was cut at its start ({cut['why']})"
        return (
            "nothing was recorded: the program made no call of malloc or its kin that goes "
            "through the C library"
        )
    if logs.others:
        programs = sorted({log.program for log in logs.others})
        return (
            "nothing was recorded of the program itself, only of processes that it started "
            f"({', '.join(programs[:5])})"
        )
    if returncode < 0:
        return f"nothing was recorded: signal {-returncode} ended the program before it had begun"
    return (
        "nothing was recorded: the recorder was not loaded. A program that starts another one "
        "with an empty environment, as setuid or from another machine's files ends the recording "
        "there"
    )
