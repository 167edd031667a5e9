"""The raw logs that a run of a program left: which are whose, and what they say."""

from __future__ import annotations

import contextlib
import os
import re
import resource
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final, NamedTuple

import numpy as np

from pyallocx._core import TraceError
from pyallocx._rawlog import ENDED, FORKED, program_of, read_header, read_rawlog
from pyallocx._running import RecordingError, storable
from pyallocx.trace import FORMAT_VERSION, Trace

__all__ = ["keep_logs", "read_run", "safe_name"]

_LOG_NAME: Final = re.compile(r"pyallocx-(\d+)-(\d+)\.axlog")
_UNSAFE: Final = re.compile(r"[^A-Za-z0-9._+]")
# Where a log's header is told that nobody wants the log any longer (csrc/preload/rawlog.h).
_STOP: Final = 392
# A log's header and a few windows.
_LEAST_FILE: Final = 1 << 20
# So few events of a program that has an allocator of its own are those of others.
_FEW_EVENTS: Final = 16


def safe_name(program: object) -> str:
    """Return the name of a program as a part of the name of a file."""
    return _UNSAFE.sub("_", str(program))[:64] or "program"


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
        return program_of(self.header)

    @property
    def still_runs(self) -> bool:
        """Whether its process went on when the first program had ended."""
        return ENDED[0] == _ended(self.header) and _is_running(self.pid)


def _ended(header: Mapping[str, Any]) -> str:
    number = int(header["ended"])
    return ENDED[number] if number < len(ENDED) else "unknown"


def _is_running(pid: int) -> bool:
    try:
        about = Path(f"/proc/{pid}/stat").read_bytes()
    except OSError:
        return False
    # After the name, which may hold anything, the state: a zombie runs no longer.
    return about.rpartition(b")")[2].split()[:1] not in ([b"Z"], [b"X"])


class _Logs:
    """All logs that a run left; those of the program itself apart."""

    def __init__(self, directory: str, pid: int) -> None:
        self.own: list[_Log] = []
        self.others: list[_Log] = []
        self.unreadable = 0
        self.no_room = False
        """Whether there was no room for the beginning of a log of the program itself."""
        for path in sorted(Path(directory).iterdir()):
            name = _LOG_NAME.fullmatch(path.name)
            if name is None:
                continue
            try:
                with path.open("rb") as file:
                    header = read_header(file)
            except (TraceError, OSError):
                # The process died before it had written its header, or had no room for it.
                self.unreadable += 1
                if int(name[1]) == pid:
                    with contextlib.suppress(OSError):
                        self.no_room |= path.stat().st_size == 0
                continue
            log = _Log(int(name[1]), int(name[2]), str(path), header)
            (self.own if log.pid == pid else self.others).append(log)
        self.own.sort(key=lambda log: log.number)
        self.others.sort(key=lambda log: (log.start, log.pid, log.number))
        self.by_name = {os.path.basename(log.path): log for log in (*self.own, *self.others)}
        self.start = min((log.start for log in self.own or self.others), default=0)
        self.running = {log.path for log in self.others if log.still_runs}

    def stop(self) -> None:
        """Tell who still writes that nobody reads it: the file would grow, without a name."""
        for log in (*self.own, *self.others):
            with contextlib.suppress(OSError):
                descriptor = os.open(log.path, os.O_WRONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
                try:
                    os.pwrite(descriptor, (1).to_bytes(4, "little"), _STOP)
                finally:
                    os.close(descriptor)


# ---- reading ------------------------------------------------------------------------------------


def read_run(
    directory: str,
    pid: int,
    words: list[str],
    returncode: int,
    follow_forks: bool,
    progress: bool | None,
) -> tuple[Trace, list[Trace]]:
    """Read the logs of a run.

    Parameters
    ----------
    directory : str
        Where they are.
    pid, words, returncode : int, list of str, int
        Of the program.
    follow_forks : bool
        Whether child processes were recorded.
    progress : bool, optional
        Whether to show a progress bar.

    Returns
    -------
    tuple
        The program's trace, which is empty where only children were recorded, and theirs.

    Raises
    ------
    RecordingError
        Nothing was recorded.
    """
    logs = _Logs(directory, pid)
    logs.stop()
    shown = [storable(word) for word in words]
    about: dict[str, Any] = {"command": shown, "returncode": returncode}
    if logs.unreadable:
        about["logs_unreadable"] = logs.unreadable
    if logs.running:
        about["children_still_running"] = len(logs.running)
    images = [log.program for log in logs.own]
    trace = None
    for place in reversed(range(len(images))):
        added = dict(about)
        if len(images) > 1:
            added |= {"images": images, "image": place}
        trace = _load(logs.own[place], progress, added)
        if len(trace):
            break
    children = []
    for log in logs.others if follow_forks else ():
        child = _load(log, progress, _origin(log, logs))
        if len(child):
            children.append(child)
    if trace is None or not len(trace) or _has_own_malloc(trace):
        why = _nothing(logs, trace, returncode, bool(children))
        if not children:
            raise RecordingError(f"{shown[0]}: {why}", returncode)
        if trace is None:
            program = {"program": os.path.basename(shown[0]), "pid": pid}
            trace = _empty({**about, **program, "children_not_recorded": 0})
        metadata = {**trace.metadata, "nothing_recorded": why}
        trace = Trace._adopt(trace.columns(), metadata, False, trace.asides)
    return trace, children


def _load(log: _Log, progress: bool | None, added: Mapping[str, Any]) -> Trace:
    with open(log.path, "rb") as file:
        # What a program that died has torn is left out, and counted.
        return read_rawlog(file, log.path, None, skip=True, progress=progress, added=added)


def _empty(metadata: Mapping[str, Any]) -> Trace:
    return Trace(
        op=np.empty(0, dtype=np.uint8),
        object=np.empty(0, dtype=np.uint64),
        size_bytes=np.empty(0, dtype=np.uint64),
        metadata={"format_version": FORMAT_VERSION, "reader": "rawlog", **metadata},
    )


def _origin(log: _Log, logs: _Logs) -> dict[str, Any]:
    """Say where a child process comes from."""
    header = log.header
    about: dict[str, Any] = {
        "parent_pid": header["ppid"],
        "started_ns": max(0, log.start - logs.start),
    }
    if log.path in logs.running:
        about["ended"] = "running"
    parent = logs.by_name.get(os.fsdecode(header["parent_file"]))
    if header["flags"] & FORKED and parent is not None:
        about["parent_program"] = parent.program
        # Both count by the same clock.
        ticks = header["fork_stamp"] - parent.header["stamp0"]
        about["fork_time_ns"] = max(0, int(ticks * parent.header["ns_per_tick"]))
    return about


def _has_own_malloc(trace: Trace) -> bool:
    return bool(trace.metadata.get("own_malloc")) and len(trace) < _FEW_EVENTS


def _nothing(logs: _Logs, trace: Trace | None, returncode: int, children: bool) -> str:
    """Say why there may be no trace."""
    nothing = "nothing was recorded of the program itself" if children else "nothing was recorded"
    if trace is not None:
        cut = trace.metadata.get("cut")
        if trace.metadata.get("own_malloc"):
            but = f" but {len(trace):,} events" if len(trace) else ""
            return (
                f"{nothing}{but}: the program brings its own malloc (its file defines the "
                "function), and its calls go there"
            )
        if cut is not None:
            return f"{nothing}: the recording was cut at its start ({cut['why']})"
        return (
            f"{nothing}: the program made no call of malloc or its kin that goes through the C "
            "library"
        )
    if logs.no_room:
        return (
            f"{nothing}: there was no room for its log, the disk that it goes to "
            "(that of the output, or of temporary files) was full"
        )
    limit = resource.getrlimit(resource.RLIMIT_FSIZE)[0]
    if limit != resource.RLIM_INFINITY and limit < _LEAST_FILE:
        return (
            f"{nothing}: its log may not be longer than {limit:,} bytes, the limit of the size of "
            f"files (ulimit -f); {_LEAST_FILE:,} are the least"
        )
    if logs.others and not children:
        programs = sorted({log.program for log in logs.others})
        return (
            "nothing was recorded of the program itself, only of processes that it started "
            f"({', '.join(programs[:5])})"
        )
    if returncode < 0:
        return f"{nothing}: signal {-returncode} ended the program before it had begun"
    return (
        f"{nothing}: the recorder was not loaded. A program that starts another one "
        "with an empty environment, as setuid or from another machine's files ends the recording "
        "there"
    )


# ---- keeping ------------------------------------------------------------------------------------


def keep_logs(directory: str, pid: int, base: str) -> list[str]:
    """Move the logs of a run to where they stay, under names that are free.

    Parameters
    ----------
    directory : str
        Where they are.
    pid : int
        The program's; its last log comes first.
    base : str
        What their names begin with.

    Returns
    -------
    list of str
        Their names.
    """
    logs = _Logs(directory, pid)
    logs.stop()
    kept = []
    for number, log in enumerate((*reversed(logs.own), *logs.others)):
        name = base if number == 0 else f"{base}.{number}-{safe_name(log.program)}"
        target, again = f"{name}.axlog", 1
        while os.path.lexists(target):
            again += 1
            target = f"{name}.{again}.axlog"
        os.rename(log.path, target)
        kept.append(target)
    return kept
