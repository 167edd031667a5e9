"""The verbs that run a program and record it: `record` and `record-jit`."""

from __future__ import annotations

import argparse
import json
import shlex
import signal
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from pyallocx._cli_base import (
    NO_DASH,
    Once,
    UsageError,
    add_switch,
    check_targets,
)
from pyallocx._tracewords import dropped_note, left_out_lines, obtained_lines
from pyallocx.units import counted, format_bytes, parse_bytes, printable

if TYPE_CHECKING:
    from pyallocx.recorder import ProgramRecording
    from pyallocx.trace import Trace

__all__ = ["add_verbs"]

_NAMED_CHILDREN = 3
_NAMED_FILES = 10


def add_verbs(verbs: Any) -> None:
    """Add the verbs to the parsers of the command."""
    recorder = verbs.add_parser(
        "record",
        help="run a program, and record what it allocates",
        usage="pyallocx record [-h] [-o FILE] [--sites] [--follow-forks] [--max-bytes N] [--maps] "
        "[--no-usable-size] [--jit] [--json] -- PROGRAM [ARGUMENT ...]",
        description="Run a program and record each call of malloc and its kin. The program keeps "
        "our standard input, output and error, and its exit code is ours; the summary goes to "
        "standard error.",
    )
    recorder.add_argument(
        "-o",
        "--output",
        action=Once,
        metavar="FILE",
        help="write the trace (npz); that of the code goes to FILE.code.npz, those of child "
        f"processes to FILE.1-NAME.npz and so on (without its npz); - is refused: {NO_DASH}",
    )
    add_switch(recorder, "--sites", "record the call sites, as the trace's key")
    add_switch(recorder, "--follow-forks", "record child processes, too, each as a trace")
    recorder.add_argument(
        "--max-bytes",
        action=Once,
        metavar="N",
        help="the most that the raw log of a process may take up (1MiB and more); the trace ends "
        "there, the program runs on",
    )
    add_switch(recorder, "--maps", "record mmap, munmap, mprotect and mremap, too")
    add_switch(recorder, "--no-usable-size", "leave out the questions for malloc_usable_size")
    add_switch(recorder, "--jit", "of node and java: record the code that they compile, too")
    _add_common(recorder)
    recorder.set_defaults(run=_record)

    jit = verbs.add_parser(
        "record-jit",
        help="run node or java, and record the code that it compiles",
        usage="pyallocx record-jit [-h] [-o FILE] [--isolate N] [--json] -- PROGRAM [ARGUMENT ...]",
        description="Run node or java with its code log on, and import the log as a trace. The "
        "program keeps our standard input and output, and its exit code is ours; the summary goes "
        "to standard error. `record --jit` records what it allocates in the same run.",
    )
    jit.add_argument(
        "-o",
        "--output",
        action=Once,
        metavar="FILE",
        help=f"write the trace (npz); - is refused: {NO_DASH}",
    )
    jit.add_argument(
        "--isolate",
        action=Once,
        metavar="N",
        default="0",
        help="of node: 0 the main thread (the default), 1 and so on the worker threads, that with "
        "the largest log first; child processes are not recorded",
    )
    _add_common(jit)
    jit.set_defaults(run=_record_jit)


def _add_common(parser: argparse.ArgumentParser) -> None:
    add_switch(
        parser, "--json", "print the summary as JSON, on standard output after the program's"
    )
    parser.add_argument("command", nargs=argparse.REMAINDER, help="-- PROGRAM [ARGUMENT ...]")


def _command(options: argparse.Namespace) -> list[str]:
    """Return the program and its arguments, having looked at where the output goes."""
    words: list[str] = options.command
    check_targets(
        {"--output": options.output},
        [],
        printed="what --json prints" if options.json else None,
    )
    if options.output is not None:
        from pyallocx.recorder import check_output

        try:
            check_output(options.output)
        except ValueError as exc:
            raise UsageError(str(exc).replace("output is", "--output is", 1)) from None
    return words[1:] if words[:1] == ["--"] else words


def _complain(message: object) -> None:
    print(f"pyallocx: error: {printable(str(message))}", file=sys.stderr)


def _saved(traces: Mapping[str, Trace]) -> str | None:
    """Write traces to their files; return what went wrong: the program has run, all is told."""
    for path, trace in traces.items():
        try:
            trace.save(path)
        except OSError as exc:
            return f"{path}: {exc.strerror or exc}"
    return None


def _print_json(document: Mapping[str, Any]) -> None:
    # The program wrote to the descriptor, and may not have ended its last line.
    sys.stdout.flush()
    print(json.dumps(document, indent=2))


# ---- record -------------------------------------------------------------------------------------


def _record(options: argparse.Namespace, open_trace: object) -> int:
    from pyallocx._running import Ended, die_as
    from pyallocx.recorder import RecordingError, UnknownProgram, files_of, run_program

    command = _command(options)
    max_bytes = _parse_max_bytes(options.max_bytes)
    files: dict[str, Trace] = {}
    problems: list[str] = []

    def save(recording: ProgramRecording) -> None:
        if options.output is not None:
            files.update(files_of(options.output, recording))
            problem = _saved(files)
            problems.extend([] if problem is None else [problem])

    try:
        recording = run_program(
            command,
            follow_forks=options.follow_forks,
            jit=options.jit,
            sites=options.sites,
            maps=options.maps,
            usable_size=not options.no_usable_size,
            max_bytes=max_bytes,
            output=options.output,
            finish=save,
        )
    except UnknownProgram as exc:
        raise UsageError(f"record: {exc}") from None
    except RecordingError as exc:
        _print_notes(exc)
        return _end(exc.returncode, [str(exc)])
    except KeyboardInterrupt as exc:
        _print_notes(exc)
        return die_as(-signal.SIGINT)
    except Ended as exc:
        _print_notes(exc)
        return die_as(-exc.number)
    except Exception as exc:
        _print_notes(exc)
        raise
    if options.json:
        _print_json(_document(recording, {} if problems else files))
    else:
        lines = _summary(command, recording, options.follow_forks)
        if not problems:
            lines += _trace_lines(files) or ["trace: not kept; -o FILE writes it"]
        print("\n".join(lines), file=sys.stderr)
    return _end(recording.returncode, problems)


def _end(returncode: int, problems: Sequence[str]) -> int:
    """End as the program did, having said what went wrong after it."""
    from pyallocx._running import die_as

    for problem in problems:
        _complain(problem)
    return die_as(returncode) or (1 if problems else 0)


def _print_notes(exc: BaseException) -> None:
    for note in getattr(exc, "__notes__", ()):
        print(f"pyallocx: {printable(note)}", file=sys.stderr)


def _trace_lines(files: Iterable[str]) -> list[str]:
    """Name the files that were written, of very many the first."""
    paths = [printable(path) for path in files]
    shown = paths if len(paths) <= _NAMED_FILES else paths[:_NAMED_FILES]
    lines = [f"trace: {path}" for path in shown]
    if len(shown) < len(paths):
        lines.append(f"trace: and {len(paths) - len(shown):,} more, the last is {paths[-1]}")
    return lines


def _parse_max_bytes(text: str | None) -> int | None:
    from pyallocx.recorder import LEAST_MAX_BYTES

    if text is None:
        return None
    try:
        value = parse_bytes(text)
    except ValueError as exc:
        raise UsageError(f"--max-bytes: {exc}") from None
    if value == float("inf"):
        return None
    if value < LEAST_MAX_BYTES:
        raise UsageError(f"--max-bytes: {text} is less than {format_bytes(LEAST_MAX_BYTES)}")
    return int(value)


def _document(recording: ProgramRecording, files: Mapping[str, Trace]) -> dict[str, Any]:
    names = {id(trace): path for path, trace in files.items()}

    def one(trace: Trace) -> dict[str, Any]:
        metadata = dict(trace.metadata)
        # One name for each of thousands of sites is nothing for a summary.
        sites = metadata.pop("key_names", None)
        if sites is not None:
            metadata["sites"] = len(sites)
        return {"trace": names.get(id(trace)), "summary": trace.summary(), "metadata": metadata}

    document = one(recording.trace)
    document["children"] = [one(child) for child in recording.children]
    document["code"] = None if recording.code is None else one(recording.code)
    return document


def _summary(command: list[str], recording: ProgramRecording, followed: bool) -> list[str]:
    trace = recording.trace
    lines = [f"recorded: {printable(shlex.join(command))}, {_events(trace)}"]
    images = trace.metadata.get("images")
    nothing = trace.metadata.get("nothing_recorded")
    if nothing:
        lines.append(f"note: {printable(nothing)}; its children's traces are kept")
    if images:
        chain = ", then ".join(map(printable, images))
        lines.append(f"programs: {chain}; the trace is of {printable(trace.metadata['program'])}")
    lines += [f"note: {text}" for text in _lost_notes(trace.metadata)]
    lines += [f"{what}: {text}" for what, text in _allocations(trace)]
    if recording.code is not None:
        code = recording.code.summary()
        lines.append(
            f"code: {counted(code['allocs'] or 0, 'alloc')} of "
            f"{format_bytes(code['allocated_bytes'] or 0)} in all"
        )
    lines += [f"{what}: {text}" for what, text in notes_of(trace.metadata)]
    left_out = trace.metadata["children_not_recorded"]
    if followed:
        shown = recording.children[:_NAMED_CHILDREN]
        parts = [f"{printable(c.metadata['program'])} {_events(c)}" for c in shown]
        more = len(recording.children) - len(shown)
        parts += [f"{more:,} more"] if more else []
        count = len(recording.children)
        were = "process was" if count == 1 else "processes were"
        lines.append(
            f"children: {count:,} {were} recorded{': ' if parts else ''}{'; '.join(parts)}"
        )
        running = trace.metadata.get("children_still_running", 0)
        if running:
            processes = "child process" if running == 1 else "child processes"
            lines.append(
                f"children: {running:,} {processes} still ran when "
                f"{printable(trace.metadata['program'])} ended; recorded up to then"
            )
    elif left_out:
        were = "process was" if left_out == 1 else "processes were"
        lines.append(
            f"children: {left_out:,} child {were} not recorded (--follow-forks records them)"
        )
    return lines


def _lost_notes(metadata: Mapping[str, Any]) -> Iterator[str]:
    """Say where a program became another one that took no recorder with it."""
    images = metadata.get("images", [None])
    if metadata.get("ended") == "exec" and metadata.get("image", 0) == len(images) - 1:
        program = printable(metadata["program"])
        yield (
            f"the trace is of {program}; what it became was not recorded (env -i or a set "
            "LD_PRELOAD take the recorder away, static and privileged programs have none; write "
            "LD_PRELOAD=... pyallocx record -- PROGRAM)"
        )


def _events(trace: Trace) -> str:
    dropped = sum(trace.metadata["dropped"].values()) if "dropped" in trace.metadata else 0
    damaged = f" ({counted(dropped, 'window')} of the log damaged)" if dropped else ""
    return counted(len(trace), "event") + damaged


def _allocations(trace: Trace) -> Iterator[tuple[str, str]]:
    try:
        total = trace.summary()
    except OverflowError as exc:
        yield "memory", str(exc)
        return
    kinds = ", ".join(
        counted(total[name] or 0, name.removesuffix("s"))
        for name in ("allocs", "frees", "reallocs")
    )
    yield (
        "memory",
        f"{kinds}; {format_bytes(total['allocated_bytes'] or 0)} in all, at most "
        f"{format_bytes(total['peak_live_bytes'] or 0)} in "
        f"{counted(total['peak_live_objects'] or 0, 'object')} at a time",
    )
    threads = total["threads"] or 0
    if threads > 1:
        crossing = counted(total["cross_thread_frees"] or 0, "free")
        yield "threads", f"{threads:,}, {crossing} across threads"
    if trace.key is not None:
        yield "sites", f"{total['keys'] or 0:,} called"


_NOTES = {
    "frees_of_unknown": "free of what was allocated before the recording",
    "deletes_of_unknown": "delete of what was allocated before the recording",
    "reallocs_of_unknown": "realloc of what was allocated before the recording (now an alloc)",
    "frees_inferred": "free inferred from a new alloc at its address",
    "lost": "event that the recorder could not write",
}


def notes_of(metadata: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Say what a recording does not hold, and why."""
    lines = []
    cut = metadata.get("cut")
    if isinstance(cut, Mapping):
        why = {
            "max_bytes": "the log had reached --max-bytes",
            "disk_full": "the disk was full",
            "file_size_limit": "the log had reached the limit of the size of files (ulimit -f)",
            "seccomp": "the program forbade itself system calls",
        }.get(str(cut.get("why")), printable(str(cut.get("why"))))
        seconds = cut.get("time_ns", 0) / 1e9
        lines.append(("cut", f"the recording ended after {seconds:.3g} s: {why}"))
    if metadata.get("own_malloc"):
        lines.append(
            (
                "left out",
                "the program brings its own malloc: what goes there was not seen, only what goes "
                "to the C library's",
            )
        )
    counts = metadata.get("counts")
    for kind, text in _NOTES.items():
        count = counts.get(kind, 0) if isinstance(counts, Mapping) else 0
        if count:
            noun, rest = text.split(" ", 1)
            lines.append(
                ("left out" if "unknown" in kind else "note", f"{counted(count, noun)} {rest}")
            )
    return lines


# ---- record-jit ---------------------------------------------------------------------------------


def _record_jit(options: argparse.Namespace, open_trace: object) -> int:
    from pyallocx.codetraces.record import RecordingError, UnknownProgram, record_jit

    command = _command(options)
    try:
        code, trace = record_jit(command, isolate=_parse_isolate(options.isolate))
    except UnknownProgram as exc:
        raise UsageError(f"record-jit: {exc}") from None
    except RecordingError as exc:
        return _end(exc.returncode, [str(exc)])
    problem = None if options.output is None else _saved({options.output: trace})
    summary = trace.summary()
    if options.json:
        _print_json(
            {
                "trace": None if problem else options.output,
                "summary": summary,
                "metadata": dict(trace.metadata),
            }
        )
    else:
        peak = format_bytes(summary["peak_live_bytes"] or 0)
        lines = [
            f"recorded: {printable(shlex.join(command))}, {counted(len(trace), 'event')}"
            + dropped_note(trace),
            f"code: {counted(summary['allocs'] or 0, 'alloc')} of "
            f"{format_bytes(summary['allocated_bytes'] or 0)} in all, at most {peak} at a time",
            *(f"{what}: {text}" for what, text in obtained_lines(trace.metadata["obtained"])),
            *(f"{what}: {text}" for what, text in left_out_lines(trace.metadata)),
            *([] if problem else [f"trace: {options.output or 'not kept; -o FILE writes it'}"]),
        ]
        print("\n".join(lines), file=sys.stderr)
    return _end(code, [] if problem is None else [problem])


def _parse_isolate(text: str) -> int:
    if not text.isascii() or not text.isdigit():
        raise UsageError(f"--isolate: {text!r} is not a number, 0 (the main thread) or more")
    return int(text)
