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
from collections.abc import Callable, Mapping, Sequence
from typing import IO, Any, Final, NamedTuple, SupportsIndex

from pyallocx._prefill import Prefill
from pyallocx._rawlog import FLAGS
from pyallocx._runlogs import keep_logs, read_run, safe_name
from pyallocx._running import (
    RecordingError,
    UnknownProgram,
    Word,
    check_preloadable,
    checked_words,
    ending_tidily,
    find_program,
    signals_for_the_program,
    wait_for,
)
from pyallocx.codetraces.record import CodeLog
from pyallocx.preload import library_path
from pyallocx.trace import Trace

__all__ = ["ProgramRecording", "RecordingError", "UnknownProgram", "record", "record_run"]

LEAST_MAX_BYTES: Final = 1 << 20
"""The smallest limit of a raw log: its header and a few windows."""

OTHER_FORMATS: Final = frozenset(
    ".txt .csv .tsv .zip .h .c .parquet .gz .zst .xz .bz2 .json .jsonl .html .axlog".split()  # noqa: SIM905
)
"""The suffixes of files that are no npz; a recording is not saved under such a name."""

# LD_PRELOAD is a list; the loader gives these characters meanings of their own, and has no quotes.
_SPECIAL: Final = re.compile(r"[\s:;$]")

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
    command: Sequence[Word],
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
    command : sequence of str, bytes or path-like
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
    command: Sequence[Word],
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
    target = None if output is None else os.fsdecode(output)

    def save(recording: ProgramRecording) -> None:
        if target is not None:
            for path, trace in files_of(target, recording).items():
                trace.save(path)

    return run_program(
        command,
        follow_forks=follow_forks,
        jit=jit,
        isolate=isolate,
        sites=sites,
        maps=maps,
        usable_size=usable_size,
        max_bytes=max_bytes,
        output=target,
        finish=save,
        cwd=cwd,
        env=env,
        stdin=stdin,
        stdout=stdout,
        stderr=stderr,
        progress=progress,
    )


def files_of(output: str, recording: ProgramRecording) -> dict[str, Trace]:
    """Name the files of a recording, one for each trace; the program's is `output`."""
    base = output.removesuffix(".npz")
    files = {output: recording.trace}
    if recording.code is not None:
        files[f"{base}.code.npz"] = recording.code
    for number, child in enumerate(recording.children, 1):
        files[f"{base}.{number}-{safe_name(child.metadata['program'])}.npz"] = child
    return files


def run_program(
    command: Sequence[Word],
    *,
    follow_forks: bool = False,
    jit: bool = False,
    isolate: int = 0,
    sites: bool = False,
    maps: bool = False,
    usable_size: bool = True,
    max_bytes: int | None = None,
    output: str | None = None,
    finish: Callable[[ProgramRecording], None] | None = None,
    cwd: str | os.PathLike[str] | None = None,
    env: Mapping[str, str] | None = None,
    stdin: Stream = None,
    stdout: Stream = None,
    stderr: Stream = None,
    progress: bool | None = None,
) -> ProgramRecording:
    """Do as `record_run`, but leave it to `finish` to save the traces.

    Where anything goes wrong between the program's end and that of `finish`, the raw logs are kept
    beside `output`, and a note of the exception names them.
    """
    words = checked_words(command)
    _check_max_bytes(max_bytes)
    beside = None if output is None else check_output(output)
    place = None if cwd is None else os.fsdecode(cwd)
    variables = dict(os.environ if env is None else env)
    program = find_program(words[0], cwd=place, path=variables.get("PATH"))
    library = _library()
    check_preloadable(program, library)
    flags = [("sites", sites), ("maps", maps), ("usable_size", usable_size)]
    with (
        ending_tidily(),
        tempfile.TemporaryDirectory(
            prefix=".pyallocx-record-" if beside else "pyallocx-record-", dir=beside
        ) as directory,
    ):
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
        recorded = False
        try:
            read = read_run(logs, pid, words, returncode, follow_forks, progress)
            recorded = True
            code = None if code_log is None else code_log.read(pid, returncode)
            recording = ProgramRecording(returncode, *read, code)
            if finish is not None:
                finish(recording)
        except BaseException as exc:
            if recorded or not isinstance(exc, RecordingError):
                exc.add_note(_kept(exc, logs, pid, output if beside else None))
            raise
    return recording


def _kept(exc: BaseException, logs: str, pid: int, output: str | None) -> str:
    """Keep the raw logs of a run that could not be read to its end; say where they are."""
    # An error has a message of its own.
    what = "" if isinstance(exc, Exception) else "interrupted while reading; "
    if output is None:
        return f"{what}nothing is kept (with an output, the raw log would be)"
    try:
        kept = keep_logs(logs, pid, output.removesuffix(".npz"))
    except OSError as problem:
        return f"{what}the raw log could not be kept: {problem}"
    if not kept:
        return f"{what}nothing had been recorded"
    more = f", with {len(kept) - 1:,} of other processes" if len(kept) > 1 else ""
    return (
        f"{what}the raw log is kept: {kept[0]}{more} (pyallocx convert {kept[0]} {output} reads it)"
    )


def check_output(output: str) -> str | None:
    """Make sure that a trace can be saved there.

    Returns
    -------
    str or None
        The directory for what is written beside it; None where it is no file but, say, a pipe.

    Raises
    ------
    ValueError
        The name is that of a directory, or of a file in another format.
    OSError
        There is no such directory.
    """
    if not output or output.endswith(os.sep):
        raise ValueError(f"output is {output!r}, expected the name of a file")
    if os.path.isdir(output):
        raise IsADirectoryError(errno.EISDIR, "is a directory", output)
    if os.path.exists(output) and not os.path.isfile(output):
        return None
    suffix = os.path.splitext(output)[1].lower()
    if suffix in OTHER_FORMATS:
        raise ValueError(
            f"output is {output!r}, but a recording is saved as npz; save it under a name that "
            "ends in .npz; pyallocx convert makes files of other formats of that"
        )
    target = os.path.realpath(output)
    parent = os.path.dirname(target)
    if not os.path.isdir(parent):
        # Before anything runs: what was recorded would be lost.
        link = f" (where {output} leads)" if os.path.islink(output) else ""
        raise FileNotFoundError(errno.ENOENT, f"no such directory{link}", parent)
    return parent


def _check_max_bytes(max_bytes: object) -> None:
    if max_bytes is None:
        return
    if isinstance(max_bytes, bool) or not isinstance(max_bytes, SupportsIndex):
        raise TypeError(f"max_bytes is {max_bytes!r}, expected a number of bytes, or None")
    if max_bytes.__index__() < LEAST_MAX_BYTES:
        raise ValueError(
            f"max_bytes is {max_bytes}, allowed is {LEAST_MAX_BYTES:,} and more, or None"
        )


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
    with signals_for_the_program() as signals:
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
        with Prefill(logs) as prefill:
            returncode = wait_for(process, prefill.step, signals)
    return process.pid, returncode


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
