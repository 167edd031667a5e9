"""The verb that writes a trace in another format."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Mapping
from typing import Any

from pyallocx._cli_base import NO_DASH, Once, UsageError, add_switch, check_targets
from pyallocx._files import is_standard_output
from pyallocx.profile import Profile
from pyallocx.units import counted, format_count, printable

__all__ = ["add_verb"]

_LEFT_OUT = {
    "metadata": "metadata",
    "alignments_of_reallocs": "alignments of reallocs",
}
_NOTES = {
    "frees_by_destroys": "frees written for objects that died with their arena",
    "reallocs_to_size_0": "reallocs to size 0, which Android's own realloc takes for frees",
}


def add_verb(verbs: Any, add_trace: Callable[..., None]) -> None:
    """Add the verb to the parsers of the command; `add_trace` adds what is read."""
    convert = verbs.add_parser(
        "convert",
        help="write a trace in another format",
        usage="pyallocx convert [-h] [--to FORMAT] [--slice A:B] [--name NAME] [--replay] "
        "[--on-error {raise,skip}] [--json] TRACE OUT",
        description="Write a trace in another format: npz, aosp (Android's memory_replay), csv, "
        "parquet, c (a header for benchmarks). What it reads: pyallocx formats. aosp, csv and c "
        "are packed where OUT ends in .gz, aosp also where it ends in .zip.",
    )
    add_trace(convert, needed=True)
    convert.add_argument("out", metavar="OUT", help=f"the file to write; - is refused: {NO_DASH}")
    convert.add_argument(
        "--to", action=Once, metavar="FORMAT", help="the format, instead of what OUT's suffix says"
    )
    convert.add_argument(
        "--slice",
        action=Once,
        metavar="A:B",
        help="only the events from A on and before B, counted from 0; what lives at A is "
        "allocated at the beginning",
    )
    convert.add_argument(
        "--name", action=Once, metavar="NAME", help="of c: what the names in the header begin with"
    )
    add_switch(convert, "--replay", "of c: add a function that replays the events")
    add_switch(convert, "--json", "print JSON only")
    convert.set_defaults(run=_convert)


def _convert(
    options: argparse.Namespace, open_trace: Callable[[str | None, str, bool | None], Any]
) -> int:
    from pyallocx.writers import format_of, write

    bounds = None if options.slice is None else _bounds(options.slice)
    check_targets(
        {"OUT": options.out},
        [options.trace],
        printed="what --json prints" if options.json else None,
    )
    try:
        chosen = format_of(options.out, options.to)
    except ValueError as exc:
        raise UsageError(f"OUT: {exc}".replace("format= is", "--to takes")) from None
    for flag, value in (("--name", options.name), ("--replay", options.replay)):
        if value and chosen != "c":
            raise UsageError(f"{flag}: is for format c, not for {chosen}")
    name, trace = open_trace(options.trace, options.on_error, None)
    if isinstance(trace, Profile):
        raise UsageError(f"TRACE: {options.trace} is a profile, which has no events")
    if bounds is not None:
        trace = trace.slice(*bounds)
    try:
        told = write(trace, options.out, chosen, name=options.name, replay=options.replay)
    except ImportError as exc:
        raise UsageError(str(exc)) from None
    except ValueError as exc:
        raise UsageError(f"{options.out}: {exc}") from None
    told["trace"], told["written"] = name, options.out
    if options.json:
        print(json.dumps(told, indent=2))
        return 0
    lines = [
        f"{printable(name)}: {counted(told['events'], 'event')} written to "
        f"{printable(options.out)} as {chosen}",
        *_left_out(told["left_out"]),
        *_noted(told["notes"]),
    ]
    # Where the trace went to standard output, nothing else may.
    print("\n".join(lines), file=sys.stderr if is_standard_output(options.out) else None)
    return 0


def _bounds(text: str) -> tuple[int | None, int | None]:
    start, colon, stop = text.partition(":")
    parts = [start.strip(), stop.strip()]
    if not colon or not all(not part or (part.isascii() and part.isdigit()) for part in parts):
        raise UsageError(
            f"--slice: {text!r} is not A:B, two numbers of events; each may be left out, none "
            "is negative"
        )
    first, last = (int(part) if part else None for part in parts)
    if first is not None and last is not None and last < first:
        raise UsageError(f"--slice: {text!r} ends before it begins")
    return first, last


def _left_out(left_out: Mapping[str, Any]) -> list[str]:
    """Say what the format has no place for."""
    columns = [name for name, what in left_out.items() if what == "column"]
    others = [
        _LEFT_OUT[name]
        if name == "metadata"
        else f"{format_count(what)} {_LEFT_OUT.get(name, name)}"
        for name, what in left_out.items()
        if what != "column" and what
    ]
    parts = [f"column {name}" for name in columns] + others
    return [f"left out: {printable(', '.join(parts))}"] if parts else []


def _noted(notes: Mapping[str, int]) -> list[str]:
    lines = []
    for name, count in notes.items():
        if name == "empty_file":
            lines.append("no events make an empty file, which pyallocx does not read again")
        else:
            lines.append(f"{format_count(count)} {_NOTES.get(name, name)}")
    return lines
