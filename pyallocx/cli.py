"""The command line: one verb per step of the loop.

Exit codes: 0; 1 something was found wrong (a bad trace, a failed cell); 2 the command was used
wrongly; 130 Ctrl-C; 141 the reader of the output went away.
"""

from __future__ import annotations

import argparse
import contextlib
import errno
import importlib
import json
import os
import shutil
import sys
import textwrap
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from pyallocx import cli_record
from pyallocx._cli_base import (
    NO_DASH,
    Once,
    Parser,
    UsageError,
    add_switch,
    check_picture,
    check_targets,
)
from pyallocx._core import TraceError
from pyallocx._flagwords import PROFILE_FORMATS, naming_format
from pyallocx.answer import explain, format_value
from pyallocx.cli_convert import add_verb as add_convert
from pyallocx.cli_formats import add_verb as add_formats
from pyallocx.cli_sizes import add_verbs
from pyallocx.profile import Profile, load_profile
from pyallocx.render import render_text
from pyallocx.sweep import Parameter, SweepSystem, refuse_impossible, resolve_system, sweep
from pyallocx.table import SweepResult
from pyallocx.units import column_unit, counted, format_bytes, format_count, printable

__all__ = ["SYSTEMS", "main"]

SYSTEMS: Mapping[str, object] = {
    "arena": "pyallocx.arena:Arena",
    "code": "pyallocx.code:CodeHeap",
}
"""What can be swept: the name of a system, and where its class is (imported when asked for)."""

_SHIPPED = "shipped:"
_LIST_SHOWN = 12

OpenTrace = Callable[[str | None, str, bool | None], tuple[str, Any]]


def main(
    argv: Sequence[str] | None = None,
    *,
    registry: Mapping[str, object] = SYSTEMS,
    open_trace: OpenTrace | None = None,
) -> int:
    """Run the command line and return its exit code.

    Parameters
    ----------
    argv : sequence of str, optional
        Arguments without the program's name; by default those of the process.
    registry : mapping, optional
        Systems that can be swept: name to a class, a SweepSystem, or a text ``"module:name"``.
    open_trace : callable, optional
        From a TRACE argument (None for the default), ``"raise"`` or ``"skip"``, and whether to show
        progress, to a name and a trace.
    """
    arguments = list(sys.argv[1:] if argv is None else argv)
    with _standard_streams():
        return _guarded(arguments, registry, open_trace or _open_trace)


@contextlib.contextmanager
def _standard_streams() -> Iterator[None]:
    """Make sure that there is something to write to, and that it takes any character."""
    with contextlib.ExitStack() as stack:
        # A stream that the caller closed is None. Nobody reads it, so the exit code is the answer.
        for name, redirect in (
            ("stdout", contextlib.redirect_stdout),
            ("stderr", contextlib.redirect_stderr),
        ):
            if getattr(sys, name) is None:
                nowhere = stack.enter_context(open(os.devnull, "w", encoding="utf-8"))
                stack.enter_context(redirect(nowhere))
        for stream in (sys.stdout, sys.stderr):
            # Names in traces can be anything; a terminal that cannot show them must not end the
            # run.
            if hasattr(stream, "reconfigure"):
                stream.reconfigure(errors="backslashreplace")
        yield


def _guarded(argv: list[str], registry: Mapping[str, object], open_trace: OpenTrace) -> int:
    """Run, and turn what stopped it into a message and an exit code."""
    try:
        code = _run(argv, registry, open_trace)
        sys.stdout.flush()
    except UsageError as exc:
        return _complain(exc, 2)
    except BrokenPipeError:
        _abandon_output()
        return 141
    except TraceError as exc:
        return _complain(exc, 1)
    except OSError as exc:
        try:
            sys.stdout.flush()
        except OSError:  # a full disk, say
            _abandon_output()
        return _complain(_os_error_text(exc), 2)
    except KeyboardInterrupt:
        return 130
    except SystemExit as exc:  # argparse, after --help and --version
        return int(exc.code or 0)
    return code


def _abandon_output() -> None:
    # Python would flush again at exit, and complain.
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _complain(message: object, code: int) -> int:
    print(f"pyallocx: error: {message}", file=sys.stderr)
    return code


def _os_error_text(exc: OSError) -> str:
    return f"{exc.filename}: {exc.strerror}" if exc.filename and exc.strerror else str(exc)


def _run(argv: list[str], registry: Mapping[str, object], open_trace: OpenTrace) -> int:
    options = _build_parser(argv, registry).parse_args(argv)
    run: Callable[[argparse.Namespace, OpenTrace], int] = options.run
    return run(options, open_trace)


def _build_parser(argv: Sequence[str], registry: Mapping[str, object]) -> Parser:
    parser = Parser(
        prog="pyallocx",
        description="Replay allocation traces under allocator policies, and choose.",
    )
    parser.add_argument("--version", action="version", version=f"pyallocx {_version()}")
    verbs = parser.add_subparsers(metavar="VERB", required=True)

    sweeper = verbs.add_parser(
        "sweep",
        help="replay a trace under every cell of a parameter grid",
        description="Replay a trace under every cell of a parameter grid. "
        "The parameters of a system: pyallocx sweep SYSTEM --help.",
    )
    systems = sweeper.add_subparsers(metavar="SYSTEM", required=True)
    # Only the system that is asked for is imported.
    asked = argv[1] if len(argv) > 1 and argv[0] == "sweep" else None
    for name, where in registry.items():
        description = "Each parameter takes one value, or a comma list that is swept."
        one = systems.add_parser(name, description=description)
        if name == asked:
            _add_sweep_flags(one, _import_system(where))

    info = verbs.add_parser(
        "info",
        help="describe a trace or a profile",
        description="Describe a trace, or a profile: a histogram of request sizes.",
    )
    _add_trace(info)
    info.add_argument(
        "--format",
        action=Once,
        metavar="NAME",
        choices=PROFILE_FORMATS,
        help="what profile the file is, instead of what its content says: "
        + ", ".join(PROFILE_FORMATS),
    )
    add_switch(info, "--json", "print JSON only")
    info.set_defaults(run=_info)

    cli_record.add_verbs(verbs)
    add_convert(verbs, _add_trace)
    add_formats(verbs)
    add_verbs(verbs)
    return parser


def _left_out(metadata: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Say what of a program's code a trace does not hold."""
    lines = []
    counts = metadata.get("counts")
    deaths = counts.get("deaths_at_exit") if isinstance(counts, Mapping) else None
    if isinstance(deaths, int) and deaths:
        lines.append(
            (
                "left out",
                f"{counted(deaths, 'death')} of code by the end of the program: the trace ends "
                "before it, with that code alive",
            )
        )
    isolates, creations = metadata.get("isolates"), metadata.get("creations_not_read")
    if isinstance(isolates, int) and isinstance(creations, int) and isolates > 1:
        lines.append(
            (
                "not read",
                f"{counted(isolates - 1, 'more isolate')} (threads), with "
                f"{counted(creations, 'creation')} of code: record-jit --isolate N reads another",
            )
        )
    return lines


def _obtained(obtained: Any) -> list[tuple[str, str]]:
    """Say of each kind of event how many were seen, and how many inferred by which rule."""
    if not isinstance(obtained, Mapping):
        return []
    lines = []
    for what, how in obtained.items():
        if not isinstance(how, Mapping):
            continue
        inferred = how.get("inferred")
        rules = inferred.items() if isinstance(inferred, Mapping) else ()
        parts = [f"{_count(how.get('seen', 0))} seen"]
        parts += [f"{_count(count)} inferred by {printable(str(rule))}" for rule, count in rules]
        lines.append((printable(str(what)), ", ".join(parts)))
    return lines


def _count(value: Any) -> str:
    return format_count(value) if isinstance(value, int) else printable(str(value))


def _version() -> str:
    from pyallocx import __version__

    return __version__


def _import_system(where: object) -> object:
    if not isinstance(where, str):
        return where
    module, _, name = where.partition(":")
    return getattr(importlib.import_module(module), name)


def _add_trace(
    parser: argparse.ArgumentParser,
    default: str = "the first shipped trace",
    *,
    needed: bool = False,
) -> None:
    parser.add_argument(
        "trace",
        nargs=None if needed else "?",
        metavar="TRACE",
        help=f"a trace file, or {_SHIPPED}NAME" + ("" if needed else f"; by default {default}"),
    )
    parser.add_argument(
        "--on-error",
        action=Once,
        choices=("raise", "skip"),
        default="raise",
        help="what to do with impossible events: stop (the default), or drop and count them",
    )


def _add_sweep_flags(parser: argparse.ArgumentParser, system: object) -> None:
    resolved = resolve_system(system)
    if hasattr(resolved, "default_trace"):
        _add_trace(parser, "a synthetic one")
    else:
        _add_trace(parser)
    grid = parser.add_argument_group("parameters")
    for parameter in resolved.parameters:
        grid.add_argument(
            parameter.flag,
            action=Once,
            dest=f"grid_{parameter.name}",
            metavar="A,B,...",
            help=_parameter_help(parameter, resolved.default_grid.get(parameter.name)),
        )
    output = parser.add_argument_group("output")
    add_switch(output, "--json", "print only a JSON list of rows")
    for flag, value, text in (
        ("--csv", "FILE", f"write the table; - is refused (so is it by --plot): {NO_DASH}"),
        ("--plot", "FILE", "write the picture: png, svg, pdf, by the suffix; png without one"),
        ("--x", "COL", f"wastage column (default {resolved.x})"),
        ("--y", "COL", f"churn column (default {resolved.y})"),
        ("--jobs", "N", "threads (default: one per core)"),
    ):
        output.add_argument(flag, action=Once, metavar=value, help=text)
    add_switch(output, "--no-progress", "no bar on the terminal")
    parser.set_defaults(run=_sweep, system=system)


def _parameter_help(parameter: Parameter, swept: Sequence[object] | None) -> str:
    text = parameter.help
    if parameter.choices:
        text += f"; one of {', '.join(parameter.choices)}"
    notes = [] if parameter.default is None else [f"default {parameter.default}"]
    if swept:
        notes.append(f"without any parameter {','.join(map(str, swept))}")
    if notes:
        text += f" ({'; '.join(notes)})"
    # argparse formats help with %.
    return text.replace("%", "%%")


def _parse_grid(options: argparse.Namespace, system: SweepSystem) -> dict[str, Any]:
    """Return the grid of the flags in the order of the command line's help; checked, so exit 2."""
    grid: dict[str, Any] = {}
    for parameter in system.parameters:
        text: str | None = getattr(options, f"grid_{parameter.name}")
        if text is None:
            continue
        values = []
        for item in text.split(","):
            try:
                if not item.strip():
                    raise ValueError(f"an empty value in {text!r}")
                values.append(parameter.validate(parameter.parse(item.strip())))
            except (TypeError, ValueError) as exc:
                raise UsageError(f"{parameter.flag}: {exc}") from exc
        grid[parameter.name] = values
    try:
        refuse_impossible(system, grid)
    except ValueError as exc:
        raise UsageError(str(exc)) from exc
    return grid


def _sweep(options: argparse.Namespace, open_trace: OpenTrace) -> int:
    system = resolve_system(options.system)
    grid = _parse_grid(options, system)
    known = list(dict.fromkeys([*(grid or system.default_grid), *system.columns]))
    for flag in ("x", "y"):
        column = getattr(options, flag)
        if column is not None and column not in known:
            raise UsageError(f"--{flag}: no column {column!r}; there are {', '.join(known)}")
    jobs = _parse_jobs(options.jobs)
    # A long run must not end in a file that cannot be written.
    targets = {"--csv": options.csv, "--plot": options.plot}
    inputs = [] if options.trace is None else [options.trace]
    check_targets(targets, inputs, printed="what --json prints" if options.json else None)
    if options.plot is not None:
        check_picture(options.plot)

    progress = False if options.no_progress else None
    default_trace = getattr(system, "default_trace", None)
    if options.trace is None and default_trace is not None:
        name, trace = default_trace()
    else:
        name, trace = open_trace(options.trace, options.on_error, progress)
    if isinstance(trace, Profile):
        raise TraceError(
            f"{printable(name)}: this is a profile, which has no order of events; a sweep "
            "replays a trace"
        )
    with ThreadPoolExecutor(jobs, "pyallocx-sweep") as executor:
        result = sweep(
            options.system,
            trace,
            executor=executor,
            progress=progress,
            **grid,
        )
    result = _with_axes(result, options.x or system.x, options.y or system.y, name)
    written, problems = [], []
    for flag, path, noun, write in (
        ("--csv", options.csv, "table", result.to_csv),
        ("--plot", options.plot, "picture", lambda path: result.plot(path=path)),
    ):
        if path is None or (flag == "--plot" and not len(result.ok)):
            continue
        try:
            write(path)
            written.append(f"{noun}: {path}")
        # What was measured is printed all the same.
        except OSError as exc:
            problems.append(f"{flag}: {_os_error_text(exc)}")
        except ValueError as exc:
            problems.append(f"{flag}: {exc}")
    if options.json:
        print(result.to_json())
    else:
        explainer = getattr(system, "explain", explain)
        _print_sweep(result, name, trace, grid, explainer(result), written)
    code = _report_failures(result)
    for problem in problems:
        code = _complain(problem, 1)
    return code


def _parse_jobs(text: str | None) -> int | None:
    if text is None:
        return os.cpu_count()
    if not text.isascii() or not text.isdigit() or int(text) < 1:
        raise UsageError(f"--jobs: {text!r} is not a number of threads, 1 or more")
    return int(text)


def _with_axes(result: SweepResult, x: str, y: str, name: str) -> SweepResult:
    """Return the table with the axes and the name of the trace of this command line."""
    metadata = result.metadata
    metadata["trace"]["name"] = name
    rows = result.rows()
    columns = {column: [row[column] for row in rows] for column in result.columns}
    try:
        renamed = SweepResult(
            columns,
            grid_keys=result.grid_keys,
            system=result.system,
            x=x,
            y=y,
            metadata=metadata,
        )
        renamed.pareto()
        return renamed
    except (TypeError, ValueError) as exc:
        raise UsageError(str(exc)) from exc


def _print_sweep(
    result: SweepResult,
    name: str,
    trace: Any,
    grid: Mapping[str, object],
    answer: Iterable[str],
    written: Iterable[str],
) -> None:
    print(f"replayed: {_describe(name, trace)}")
    if not grid:
        print("no parameter was given: this is the default grid")
    print(f"wastage: {_axis(result, result.x)}; churn: {_axis(result, result.y)}")
    print()
    print(render_text(result))
    print()
    for line in (*answer, *written):
        print(line)
    fixed = result.metadata.get("fixed", {})
    if fixed:
        defaults = ", ".join(
            f"{k} {'auto' if v is None else format_value(k, v)}" for k, v in fixed.items()
        )
        width = max(40, shutil.get_terminal_size((100, 24)).columns)
        print()
        print(textwrap.fill(f"defaults: {defaults}", width, subsequent_indent="  "))


def _axis(result: SweepResult, column: str) -> str:
    label = result.metadata.get("labels", {}).get(column)
    return f"{column} ({label})" if label else column


def _describe(name: str, trace: Any) -> str:
    metadata = trace.metadata
    parts = [printable(name)]
    for key in ("command", "program"):
        if metadata.get(key):
            parts.append(f"{key} {_metadata_text(metadata[key])}")
            break
    parts.append(counted(len(trace), "event"))
    return ", ".join(parts) + _dropped_note(trace)


def _dropped(trace: Any) -> dict[str, int] | str:
    """Return how many events of each kind were dropped when the trace was made.

    What a file says of itself may be anything; where that is no count it is text.
    """
    dropped = trace.metadata.get("dropped") or {}
    counts = dropped if isinstance(dropped, Mapping) else {"events": dropped}
    for count in counts.values():
        if isinstance(count, bool) or not isinstance(count, int) or count < 0:
            return _metadata_text(dropped)
    return {printable(str(kind)): count for kind, count in counts.items() if count}


def _dropped_note(trace: Any) -> str:
    dropped = _dropped(trace)
    if isinstance(dropped, str):
        return f" (events dropped: {textwrap.shorten(dropped, 60)})"
    total = sum(dropped.values())
    events = "1 event" if total == 1 else f"{format_count(total)} events"
    return f" ({events} of the file dropped)" if total else ""


def _report_failures(result: SweepResult) -> int:
    failed = [row["status"] for row in result if row["status"] != "ok"]
    if not failed:
        return 0
    reasons = "; ".join(dict.fromkeys(status.removeprefix("error: ") for status in failed))
    return _complain(f"{len(failed)} of {len(result)} cells failed: {reasons}", 1)


def _open_trace(spec: str | None, on_error: str, progress: bool | None) -> tuple[str, Any]:
    if spec is None or spec.startswith(_SHIPPED):
        from pyallocx.data import load_shipped, shipped

        names = shipped()
        name = names[0] if spec is None else spec.removeprefix(_SHIPPED)
        if name not in names:
            raise UsageError(f"no shipped trace {name!r}; there are {', '.join(names)}")
        return name, load_shipped(name)
    from pyallocx.profiles import load_file

    if not spec:
        raise UsageError("TRACE: the name of the file is empty")
    if not os.path.exists(spec):
        raise FileNotFoundError(errno.ENOENT, "no such file", spec)
    found = load_file(spec, traces=True, on_error=on_error, progress=progress)
    if isinstance(found, Profile) and on_error == "skip":
        raise UsageError(f"--on-error skip: {spec} is a profile, which is read strictly")
    return os.path.basename(spec), found


def _open_profile(spec: str | None, format: str, on_error: str) -> tuple[str, Profile]:
    if spec is None or spec.startswith(_SHIPPED):
        raise UsageError(f"--format {format}: what is shipped are traces; give a file")
    if on_error == "skip":
        raise UsageError(f"--on-error skip: {spec} is a profile, which is read strictly")
    return os.path.basename(spec), load_profile(spec, format=format)


# The groups of `pyallocx info`; a key of the summary that none of them names comes last.
_INFO_GROUPS = {
    "events": ("events", "allocs", "frees", "reallocs", "destroys", "cross_thread_frees"),
    "who": ("objects", "threads", "arenas", "keys"),
    "sizes": ("distinct_sizes", "largest_size_bytes", "allocated_bytes"),
    "live": (
        "peak_live_bytes",
        "peak_live_objects",
        "peak_event",
        "most_live_objects",
        "live_bytes_end",
        "live_objects_end",
    ),
    "time": ("duration_ns", "first_time_ns", "last_time_ns"),
}


def _info(options: argparse.Namespace, open_trace: OpenTrace) -> int:
    if options.format is None:
        with naming_format():
            name, trace = open_trace(options.trace, options.on_error, None)
    else:
        name, trace = _open_profile(options.trace, options.format, options.on_error)
    if isinstance(trace, Profile):
        from pyallocx._profileinfo import profile_lines

        for line in profile_lines(name, trace, as_json=options.json):
            print(line)
        return 0
    try:
        summary: dict[str, Any] = trace.summary()
    except OverflowError as exc:
        return _complain(f"{printable(name)}: {exc}", 1)
    metadata = dict(trace.metadata)
    if options.json:
        print(json.dumps({"trace": name, "summary": summary, "metadata": metadata}, indent=2))
        return 0
    print(f"trace: {printable(name)}")
    grouped = {key for keys in _INFO_GROUPS.values() for key in keys}
    groups = dict(_INFO_GROUPS) | {"more": tuple(k for k in summary if k not in grouped)}
    for title, keys in groups.items():
        present = [key for key in keys if key in summary]
        if present:
            print(f"\n{title}")
            _print_pairs((key, _info_text(key, summary[key])) for key in present)
    obtained = _obtained(metadata.get("obtained"))
    if obtained:
        obtained += _left_out(metadata)
        print("\nobtained")
        _print_pairs(obtained)
        del metadata["obtained"]
    print("\nrecorded")
    dropped = _dropped(trace)
    if not isinstance(dropped, str):
        dropped = ", ".join(f"{format_count(n)} {kind}" for kind, n in dropped.items())
    shown = {k: v for k, v in metadata.items() if k != "dropped"}
    _print_pairs(
        [("dropped events", dropped or "0")]
        + [(printable(key), _metadata_text(value)) for key, value in shown.items()]
    )
    return 0


def _metadata_text(value: Any) -> str:
    """Write anything JSON can hold on one line; a long list by its beginning and length."""
    if isinstance(value, Mapping):
        return ", ".join(f"{printable(str(k))} {_metadata_text(v)}" for k, v in value.items())
    if isinstance(value, (list, tuple)):
        words = " ".join(map(_metadata_text, value[:_LIST_SHOWN]))
        more = len(value) - _LIST_SHOWN
        return f"{words} ... ({more:,} more)" if more > 0 else words
    return printable(str(value))


def _print_pairs(pairs: Iterable[tuple[str, str]]) -> None:
    for key, text in pairs:
        print(f"  {key:<20} {text}")


def _info_text(key: str, value: Any) -> str:
    if value is None:
        return "unknown"
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return str(value)
    exact = format_count(value)
    if column_unit(key) == "bytes":
        human = format_bytes(value)
        return human if value < 1024 else f"{exact} bytes ({human})"
    if column_unit(key) == "ns":
        return f"{exact} ns ({value / 1e9:.3g} s)"
    return exact


if __name__ == "__main__":
    sys.exit(main())
