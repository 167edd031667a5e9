"""The verb `minimize`: a command says of a trace whether it still shows what is looked for."""

from __future__ import annotations

import argparse
import contextlib
import json
import math
import os
import shlex
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from pyallocx._cli_base import Once, OpenTrace, UsageError, add_switch, check_targets
from pyallocx._core import TraceError
from pyallocx.minimize import MinimizeInterrupted, minimize
from pyallocx.profile import Profile
from pyallocx.trace import OP_ALLOC, OP_DESTROY, OP_FREE, OP_REALLOC, Trace
from pyallocx.units import counted, printable
from pyallocx.writers import format_of, write

__all__ = ["add_verb"]

_PLACE = "{}"
_EVENTS_SHOWN = 20
_NAMES = {OP_ALLOC: "alloc", OP_FREE: "free", OP_REALLOC: "realloc", OP_DESTROY: "destroy"}

_SUFFIXES = {"npz": "npz", "aosp": "txt", "csv": "csv", "parquet": "parquet", "c": "h"}

# As a shell has it: found but not to be executed, not found.
_CANNOT_RUN = (126, 127)


def add_verb(verbs: Any, add_trace: Callable[[argparse.ArgumentParser], None]) -> None:
    """Add ``pyallocx minimize``; `add_trace` adds the TRACE argument."""
    parser = verbs.add_parser(
        "minimize",
        help="cut a trace down to the smallest on which a command still succeeds",
        usage="pyallocx minimize [-h] -o FILE [--to FORMAT] [--nonzero] [--timeout SECONDS] "
        "[--max-calls N] [--json] [--on-error {raise,skip}] [TRACE] -- COMMAND [ARGUMENT ...]",
        description="Cut a trace down to the smallest on which a command still ends with 0. In its "
        "arguments {} becomes the name of a file with the trace to judge. The command runs once "
        "for each trace, with no input and its output thrown away.",
        epilog="A command that ends with 126 or 127 (it cannot be run) ends the search with exit "
        "code 2; one that a signal ends is as one that ends with another code than 0. It runs "
        "twice on the whole trace and on the smallest, to see whether it ends the same. After "
        "Ctrl-C, SIGTERM or SIGHUP the smallest trace by then is written, too; the exit code is "
        "130, 143 or 129.",
    )
    add_trace(parser)
    parser.add_argument(
        "-o", "--output", action=Once, metavar="FILE", help="write it there, as the suffix says"
    )
    parser.add_argument(
        "--to",
        action=Once,
        metavar="FORMAT",
        choices=tuple(_SUFFIXES),
        default="npz",
        help=f"what the command reads: {', '.join(_SUFFIXES)} (default npz)",
    )
    add_switch(
        parser, "--nonzero", "look for a command that ends with another code than 0, or by a signal"
    )
    parser.add_argument(
        "--timeout",
        action=Once,
        metavar="SECONDS",
        help="a run that takes longer is ended, and does not show what is looked for",
    )
    parser.add_argument(
        "--max-calls", action=Once, metavar="N", help="run the command no more often than so"
    )
    add_switch(parser, "--json", "print JSON only")
    parser.set_defaults(run=_minimize, command=[])


def split_command(argv: Sequence[str]) -> tuple[list[str], list[str]]:
    """Return what comes before the first ``--``, and what comes after it."""
    arguments = list(argv)
    if "--" not in arguments:
        return arguments, []
    at = arguments.index("--")
    return arguments[:at], arguments[at + 1 :]


def _minimize(options: argparse.Namespace, open_trace: OpenTrace) -> int:
    command: list[str] = options.command
    if not command:
        raise UsageError("minimize: no command; write it after --: -- COMMAND {}")
    if not any(_PLACE in argument for argument in command):
        raise UsageError(f"minimize: {shlex.join(command)!r} has no {{}}, so it sees no trace")
    if options.output is None:
        raise UsageError("minimize: -o FILE is needed; that is where the trace goes")
    inputs = [] if options.trace is None else [options.trace]
    printed = "what --json prints" if options.json else None
    check_targets({"--output": options.output}, inputs, printed=printed)
    try:
        format_of(options.output)
    except ValueError as exc:
        raise UsageError(f"--output: {exc}".replace("; format= is one of", ", of")) from None
    timeout, calls = _seconds(options.timeout), _number(options.max_calls)
    name, trace = open_trace(options.trace, options.on_error, None)
    if isinstance(trace, Profile):
        raise TraceError(f"{printable(name)}: this is a profile, which has no order of events")
    code = 0
    with (
        _ended_like_ctrl_c() as signals,
        tempfile.TemporaryDirectory(prefix="pyallocx-minimize-") as folder,
    ):
        path = os.path.join(folder, f"trace.{_SUFFIXES[options.to]}")
        judge = _Judge(command, path, options.to, timeout, nonzero=options.nonzero)
        try:
            small = minimize(trace, judge, max_calls=calls)
        except ValueError as exc:
            if judge.runs != 1:
                raise
            ended = "0" if options.nonzero else "another code than 0"
            raise TraceError(
                f"{printable(name)}: on the whole trace the command ended with {ended} "
                f"({judge.ended}), so there is nothing to minimize"
            ) from exc
        except MinimizeInterrupted as exc:
            small, code = exc.best, 128 + (signals[0] if signals else signal.SIGINT)
        except KeyboardInterrupt:
            # Between two steps of the search, where there is nothing to write.
            if signals:
                raise SystemExit(128 + signals[0]) from None
            raise
    write(small, options.output, progress=False)
    _report(name, trace, small, options, interrupted=code != 0)
    return code


@contextlib.contextmanager
def _ended_like_ctrl_c() -> Iterator[list[int]]:
    """Take SIGTERM and SIGHUP for Ctrl-C, and list them; those that are ignored stay so."""
    came: list[int] = []

    def end(number: int, frame: object) -> None:
        came.append(number)
        # One is enough: what is found is to be written in peace.
        for one in before:
            signal.signal(one, signal.SIG_IGN)
        raise KeyboardInterrupt

    before: dict[int, Any] = {}
    if threading.current_thread() is threading.main_thread():
        for one in (signal.SIGTERM, signal.SIGHUP):
            if signal.getsignal(one) == signal.SIG_DFL:
                before[one] = signal.signal(one, end)
    try:
        yield came
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


class _Judge:
    """Runs the command on a trace."""

    def __init__(
        self,
        command: Sequence[str],
        path: str,
        format: str,
        timeout: float | None,
        *,
        nonzero: bool,
    ) -> None:
        self.command = [argument.replace(_PLACE, path) for argument in command]
        self.path = path
        self.format = format
        self.timeout = timeout
        self.nonzero = nonzero
        self.runs = 0
        self.ended = ""

    def __call__(self, trace: Trace) -> bool:
        self.write(trace)
        self.runs += 1
        try:
            # A group of its own: what it started can be ended with it, and Ctrl-C is ours.
            process = subprocess.Popen(
                self.command,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                start_new_session=True,
            )
        except OSError as exc:
            raise UsageError(f"minimize: {self.command[0]}: {exc.strerror or exc}") from exc
        try:
            code = process.wait(self.timeout)
        except subprocess.TimeoutExpired:
            self.ended = f"after {self.timeout:g} s"
            return False
        finally:
            if process.returncode is None:
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGKILL)
                process.wait()
        if code in _CANNOT_RUN:
            raise UsageError(
                f"minimize: {shlex.join(self.command)} ended with {code}: it cannot be run"
            )
        self.ended = f"exit code {code}" if code >= 0 else f"signal {-code}"
        return (code != 0) if self.nonzero else code == 0

    def write(self, trace: Trace) -> None:
        if self.format == "npz":
            # Quicker, and any NumPy reads it.
            trace.save(self.path, compress=False)
            return
        try:
            write(trace, self.path, self.format, progress=False)
        except (ImportError, ValueError) as exc:
            raise UsageError(f"--to {self.format}: {exc}") from exc


def _seconds(text: str | None) -> float | None:
    if text is None:
        return None
    try:
        seconds = float(text)
    except ValueError:
        seconds = math.nan
    if not 0 < seconds < math.inf:
        raise UsageError(f"--timeout: {text!r} is not a number of seconds above 0")
    return seconds


def _number(text: str | None) -> int | None:
    if text is None:
        return None
    if not text.isascii() or not text.isdigit() or int(text) < 1:
        raise UsageError(f"--max-calls: {text!r} is not a number, 1 or more")
    return int(text)


def _report(
    name: str, trace: Trace, small: Trace, options: argparse.Namespace, *, interrupted: bool
) -> None:
    made = small.metadata["minimized"]
    if options.json and not interrupted:
        events = [_event(small, at) for at in range(min(len(small), 1000))]
        document = {
            "trace": name,
            "output": options.output,
            "events": len(small),
            "objects": small.n_objects,
            "minimized": made,
            "first_events": events,
        }
        print(json.dumps(document, indent=2))
        return
    # After Ctrl-C nobody waits for standard output any more.
    out = sys.stderr if interrupted else sys.stdout
    stopped = not made["minimal"] and not made["answers_differ"]
    end = "; not the smallest: stopped before" if stopped else ""
    print(
        f"{printable(name)}: {counted(len(trace), 'event')} became {len(small):,}, "
        f"{counted(trace.n_objects, 'object')} {small.n_objects:,}, in "
        f"{counted(made['calls'], 'run')}{end}",
        file=out,
    )
    if made["answers_differ"]:
        print(
            "the judge does not always answer the same: on the whole trace or on this one the "
            "command ended otherwise the second time",
            file=out,
        )
    if len(small) <= _EVENTS_SHOWN:
        for at in range(len(small)):
            print("  " + " ".join(_words(_event(small, at))), file=out)
    print(f"trace: {options.output}", file=out)


def _event(trace: Trace, at: int) -> dict[str, Any]:
    """Return what there is to say about one event."""
    op = int(trace.op[at])
    event: dict[str, Any] = {"op": _NAMES[op]}
    if op != OP_DESTROY:
        event["object"] = int(trace.object[at])
    if op in (OP_ALLOC, OP_REALLOC):
        event["size_bytes"] = int(trace.size_bytes[at])
    if trace.thread.any():
        event["thread"] = int(trace.thread[at])
    for name in ("key", "arena", "time_ns"):
        column = getattr(trace, name)
        if column is not None:
            event[name] = int(column[at])
    if op == OP_ALLOC and trace.align_log2 is not None and trace.align_log2[at]:
        event["align_bytes"] = 1 << int(trace.align_log2[at])
    return event


def _words(event: dict[str, Any]) -> list[str]:
    words = [f"{event['op']:<7}"]
    words += [f"{key} {value}" for key, value in event.items() if key != "op"]
    return words
