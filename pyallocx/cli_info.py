"""The verb `info`: a trace, or a profile, for a person.

What the summary says in numbers comes with small pictures: live bytes over the run, request sizes,
lifetimes, threads, and what allocated most.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import sys
import textwrap
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from pyallocx._cli_base import (
    SHIPPED,
    Once,
    OpenTrace,
    UsageError,
    add_switch,
    check_picture,
    check_targets,
)
from pyallocx._core import TraceError
from pyallocx._flagwords import PROFILE_FORMATS, naming_format
from pyallocx._infotables import (
    aside_counts,
    call_counts,
    key_rows,
    rates,
    size_bins,
    thread_rows,
)
from pyallocx._termplot import area, bar, has_blocks
from pyallocx._tracewords import (
    dropped_events,
    left_out_lines,
    metadata_text,
    middle_cut,
    obtained_lines,
    pair_lines,
)
from pyallocx.profile import Profile, load_profile
from pyallocx.timeline import lifetimes, plot_trace, sizes, timeline
from pyallocx.trace import Trace
from pyallocx.units import column_unit, counted, format_bytes, format_count, printable

__all__ = ["add_verb"]

_AREA_LINES = 8
_TIMELINE_POINTS = 200
_ROWS_SHOWN = 8
_LEAST_BAR = 6
# Pictures and tables are no wider than `_WIDE`; call sites and paths take what there is.
_NARROW, _WIDE, _WIDEST = 60, 110, 240
# What is made of every object at once: not of traces that may be larger than memory.
_MOST_EVENTS = 1 << 27

# The groups of the summary; a key that none of them names comes last.
_GROUPS = {
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


def add_verb(verbs: Any, add_trace: Callable[[argparse.ArgumentParser], None]) -> None:
    """Add ``pyallocx info``; `add_trace` adds the TRACE argument."""
    info = verbs.add_parser(
        "info",
        help="describe a trace or a profile",
        description="Describe a trace: its events, sizes, lifetimes, threads, and what is live "
        "over the run; or a profile: a histogram of request sizes.",
    )
    add_trace(info)
    info.add_argument(
        "--format",
        action=Once,
        metavar="NAME",
        choices=PROFILE_FORMATS,
        help="what profile the file is, instead of what its content says: "
        + ", ".join(PROFILE_FORMATS),
    )
    add_switch(info, "--json", "print JSON only")
    info.add_argument(
        "--plot",
        action=Once,
        metavar="FILE",
        help="write a picture: live bytes, sizes, lifetimes; png, svg, pdf, by the suffix",
    )
    info.set_defaults(run=_info)


def _open_profile(spec: str | None, format: str, on_error: str) -> tuple[str, Profile]:
    if spec is None or spec.startswith(SHIPPED):
        raise UsageError(f"--format {format}: what is shipped are traces; give a file")
    if on_error == "skip":
        raise UsageError(f"--on-error skip: {spec} is a profile, which is read strictly")
    return os.path.basename(spec), load_profile(spec, format=format)


def _info(options: argparse.Namespace, open_trace: OpenTrace) -> int:
    if options.plot is not None:
        inputs = [] if options.trace is None else [options.trace]
        printed = "what is printed" if not options.json else "what --json prints"
        check_targets({"--plot": options.plot}, inputs, printed=printed)
        check_picture(options.plot)
    if options.format is None:
        with naming_format():
            name, trace = open_trace(options.trace, options.on_error, None)
    else:
        name, trace = _open_profile(options.trace, options.format, options.on_error)
    if isinstance(trace, Profile):
        from pyallocx._profileinfo import profile_lines

        if options.plot is not None:
            try:
                trace.plot(path=options.plot)
            except ValueError as exc:
                raise TraceError(f"{printable(name)}: --plot: {exc}") from None
        for line in profile_lines(name, trace, as_json=options.json):
            print(line)
        return 0
    try:
        summary: dict[str, Any] = trace.summary()
    except OverflowError as exc:
        raise TraceError(f"{printable(name)}: {exc}") from None
    whole = isinstance(trace, Trace) and 0 < len(trace) <= _MOST_EVENTS
    if options.plot is not None:
        if not whole:
            raise TraceError(f"{printable(name)}: --plot: {_why_not(trace)}")
        plot_trace(trace, name=name, path=options.plot)
    if options.json:
        document = {"trace": name, "summary": summary, "metadata": dict(trace.metadata)}
        if isinstance(trace, Trace):
            document |= _document(trace, summary, whole=whole)
        print(json.dumps(document, indent=2))
        return 0
    for line in _lines(name, trace, summary, whole=whole):
        print(line)
    if options.plot is not None:
        print(f"\npicture: {options.plot}")
    return 0


def _why_not(trace: Any) -> str:
    if not len(trace):
        return "the trace has no events"
    return f"more than {_MOST_EVENTS:,} events"


def _document(trace: Trace, summary: Mapping[str, Any], *, whole: bool) -> dict[str, Any]:
    """Return what a person sees in pictures and tables, in numbers."""
    document: dict[str, Any] = {
        "rates": rates(summary),
        "calls": call_counts(trace),
        "asides": aside_counts(trace),
        "timeline": timeline(trace, _TIMELINE_POINTS, _by(trace)).to_dict(),
    }
    if whole:
        lives = lifetimes(trace)
        units = ("bytes", "events", "ns") if "lifetime_ns" in lives else ("bytes", "events")
        document |= {
            "size_bins": size_bins(trace),
            "sizes": sizes(trace).to_dict(),
            "lifetimes": [lives.summary(unit) for unit in units],  # type: ignore[arg-type]
            "threads": thread_rows(trace),
            "top_keys": key_rows(trace, 100),
        }
    return document


def _by(trace: Trace) -> str:
    times = trace.time_ns
    timed = times is not None and len(times) > 0 and int(times[-1]) > int(times[0])
    return "time" if timed else "event"


def _lines(name: str, trace: Any, summary: Mapping[str, Any], *, whole: bool) -> Iterator[str]:
    metadata = dict(trace.metadata)
    blocks = has_blocks(sys.stdout)
    wide = min(max(shutil.get_terminal_size((100, 24)).columns, _NARROW), _WIDEST)
    width = min(wide, _WIDE)
    yield f"trace: {printable(name)}"
    if isinstance(trace, Trace) and len(trace):
        yield from _picture(trace, summary, width, blocks)
    grouped = {key for keys in _GROUPS.values() for key in keys}
    groups = dict(_GROUPS) | {"more": tuple(k for k in summary if k not in grouped)}
    for title, keys in groups.items():
        present = [key for key in keys if key in summary]
        if present:
            yield f"\n{title}"
            yield from pair_lines(((key, _text(key, summary[key])) for key in present), wide)
            if title == "time" and (speed := rates(summary)):
                yield from pair_lines(_rate_pairs(speed), wide)
    if whole:
        yield from _size_lines(trace, width, blocks)
        yield from _lifetime_lines(trace, width)
        yield from _thread_lines(trace, width)
        yield from _key_lines(trace, wide)
    elif isinstance(trace, Trace) and len(trace):
        yield f"\nsizes, lifetimes, threads and keys are not shown of {_why_not(trace)}"
    if isinstance(trace, Trace):
        beside = [(f"by {call}", format_count(n)) for call, n in call_counts(trace).items()]
        beside += [(printable(k), _aside(k, n)) for k, n in aside_counts(trace).items()]
        if beside:
            yield "\ncalls and what was beside the events"
            yield from pair_lines(beside, wide)
    obtained = obtained_lines(metadata.get("obtained"))
    if obtained:
        yield "\nobtained"
        yield from pair_lines(obtained + left_out_lines(metadata), wide)
        del metadata["obtained"]
    yield "\nrecorded"
    dropped = dropped_events(trace)
    if not isinstance(dropped, str):
        dropped = ", ".join(f"{format_count(n)} {kind}" for kind, n in dropped.items())
    yield from pair_lines([("dropped events", dropped or "0")], wide)
    shown = {k: v for k, v in metadata.items() if k != "dropped"}
    yield from pair_lines(
        ((printable(key), _said(key, value)) for key, value in shown.items()), wide
    )


def _said(key: str, value: Any) -> str:
    """Write what a trace says of itself; of names that are in a table above, how many."""
    if key == "key_names" and isinstance(value, (list, tuple, dict)) and len(value) > _ROWS_SHOWN:
        return f"{format_count(len(value))} names (all of them: --json)"
    return metadata_text(value)


def _text(key: str, value: Any) -> str:
    if value is None:
        return "unknown"
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return str(value)
    exact = format_count(value)
    if column_unit(key) == "bytes":
        human = format_bytes(value)
        return human if value < 1024 else f"{exact} bytes ({human})"
    if column_unit(key) == "ns":
        return f"{exact} ns ({_duration(value)})" if value >= 1000 else f"{exact} ns"
    return exact


def _duration(ns: float) -> str:
    for scale, unit in ((1e9, "s"), (1e6, "ms"), (1e3, "µs")):
        if ns >= scale:
            # Digits of what is long: a run of 1,234 s is none of 1.23e+03 s.
            return f"{ns / scale:,.3g} {unit}" if ns < 1000 * scale else f"{ns / scale:,.0f} {unit}"
    return f"{ns:g} ns"


def _rate_pairs(speed: Mapping[str, float]) -> list[tuple[str, str]]:
    return [
        ("events per second", format_count(round(speed["events_per_second"]))),
        ("allocs per second", format_count(round(speed["allocs_per_second"]))),
        ("bytes per second", format_bytes(speed["allocated_bytes_per_second"])),
    ]


# --- pictures and tables ----------------------------------------------------------------------


def _picture(trace: Trace, summary: Mapping[str, Any], width: int, blocks: bool) -> Iterator[str]:
    """Draw the live bytes over the run, each column as high as its peak."""
    by = _by(trace)
    line = timeline(trace, 4 * width, by)
    end = counted(len(trace), "event")
    if by == "time":
        end = f"{_duration(summary['duration_ns'])}, {end}"
    rows = area(
        line["most_live_bytes"], width=width, height=_AREA_LINES, label=format_bytes, blocks=blocks
    )
    yield f"\nlive bytes over the run ({end})"
    yield from rows


def _size_lines(trace: Trace, width: int, blocks: bool) -> Iterator[str]:
    bins = size_bins(trace)
    if not bins:
        return
    requests = sum(row["requests"] for row in bins)
    most = max(row["requests"] for row in bins)
    asked = max(sum(row["allocated_bytes"] for row in bins), 1)
    cells = []
    for row in bins:
        low, high = row["least_bytes"], row["most_bytes"]
        cells.append(
            [
                format_bytes(low) if low == high else f"{format_bytes(low)} to {_below(high)}",
                f"{row['requests']:,}",
                f"{row['requests'] / requests:.1%}",
                f"{row['allocated_bytes'] / asked:.1%}",
            ]
        )
    head, *lines = _table(["request sizes", "requests", "share", "of bytes"], cells, width)
    yield f"\n{head}"
    room = width - len(head) - 1
    for row, line in zip(bins, lines, strict=True):
        drawn = bar(row["requests"] / most, room, blocks=blocks) if room >= _LEAST_BAR else ""
        yield f"{line} {drawn}".rstrip()
    table = sizes(trace)
    order = sorted(
        range(len(table)),
        key=lambda at: (-int(table["allocated_bytes"][at]), at),
    )[:_ROWS_SHOWN]
    cells = []
    for at in order:
        bytes_ = int(table["allocated_bytes"][at])
        cells.append(
            [
                f"{int(table['size_bytes'][at]):,}",
                f"{int(table['allocs'][at] + table['reallocs'][at]):,}",
                format_bytes(bytes_),
                f"{bytes_ / asked:.1%}",
                f"{int(table['peak_objects'][at]):,}",
            ]
        )
    head, *lines = _table(
        ["most bytes in size", "requests", "bytes", "share", "at peak"], cells, width
    )
    yield f"\n{head}"
    yield from lines


def _table(head: Sequence[str], rows: Sequence[Sequence[str]], width: int) -> list[str]:
    """Lay out a heading and rows: names on the left, the numbers of each column to the right.

    Columns have the widths that tables of usual numbers have, so that tables below one another
    look alike, but none that the terminal does not have.
    """
    texts = [head, *([f"  {row[0]}", *row[1:]] for row in rows)]
    needed = [max(map(len, column)) for column in zip(*texts, strict=True)]
    wanted = [max(n, least) for n, least in zip(needed, (24, 12, 10, *[8] * 4), strict=False)]
    widths = list(needed)
    for at, most in enumerate(wanted):
        widths[at] += max(min(most - needed[at], width - sum(widths) - len(widths) + 1), 0)
    return [
        " ".join(
            f"{text:{'>' if at else '<'}{w}}"
            for at, (text, w) in enumerate(zip(line, widths, strict=True))
        )
        for line in texts
    ]


def _below(high: int) -> str:
    """Write the last size of a group, as a person reads it."""
    return f"{high:,}" if high < 1024 else f"< {format_bytes(high + 1)}"


def _lifetime_lines(trace: Trace, width: int) -> Iterator[str]:
    lives = lifetimes(trace)
    if not len(lives):
        return
    about = lives.summary()
    yield f"\n{'lifetimes':<34} {'of objects':>12} {'of bytes':>12}"
    for share, words in (("0.5", "half die within"), ("0.9", "nine tenths die within")):
        cells = [_lifetime(about["quantiles"][w][share]) for w in ("objects", "bytes")]
        yield f"  {words:<32} {cells[0]:>12} {cells[1]:>12}"
    for mark in ("1024", "65536", "1048576"):
        words = f"die within {format_bytes(int(mark))} allocated"
        cells = [f"{about['died_within'][w][mark]:.1%}" for w in ("objects", "bytes")]
        yield f"  {words:<32} {cells[0]:>12} {cells[1]:>12}"
    shares = [f"{about[f'censored_{w}'] / max(about[w], 1):.1%}" for w in ("objects", "bytes")]
    yield f"  {'live at the end':<32} {shares[0]:>12} {shares[1]:>12}"
    note = "(in bytes allocated meanwhile; what lives on counts for as long as it was seen)"
    yield from textwrap.wrap(note, width, initial_indent="  ", subsequent_indent="   ")


def _lifetime(value: float | None) -> str:
    return "unknown" if value is None else format_bytes(value)


def _thread_lines(trace: Trace, width: int) -> Iterator[str]:
    rows = thread_rows(trace)
    if len(rows) < 2:
        return
    cells = [
        [
            str(row["thread"]),
            *(f"{row[name]:,}" for name in ("allocs", "reallocs", "frees", "foreign_frees")),
            format_bytes(row["allocated_bytes"]),
        ]
        for row in rows[:_ROWS_SHOWN]
    ]
    titles = ["thread", "allocs", "reallocs", "frees", "of others", "allocated"]
    head, *lines = _table(titles, cells, width)
    yield f"\n{head}"
    yield from lines
    if len(rows) > _ROWS_SHOWN:
        yield f"  and {len(rows) - _ROWS_SHOWN:,} more"


def _key_lines(trace: Trace, width: int) -> Iterator[str]:
    rows = key_rows(trace)
    if not rows:
        return
    asked = max(sum(row["allocated_bytes"] for row in rows), 1)
    shown = rows[:_ROWS_SHOWN]
    names = ["" if row["name"] is None else printable(row["name"]).strip() for row in shown]
    cells = [
        [
            str(row["key"]),
            f"{row['requests']:,}",
            format_bytes(row["allocated_bytes"]),
            f"{row['allocated_bytes'] / asked:.1%}",
        ]
        for row in shown
    ]
    head, *lines = _table(
        ["most bytes in key", "requests", "bytes", "share"], cells, min(width, _WIDE)
    )
    yield f"\n{head}"
    # Beside the numbers where all have room there, else each on a line of its own.
    beside = max(map(len, names)) <= width - len(head) - 2
    for line, name in zip(lines, names, strict=True):
        yield f"{line}  {name}".rstrip() if beside else line
        if name and not beside:
            yield f"      {middle_cut(name, width - 6)}"
    if len(rows) > _ROWS_SHOWN:
        yield f"  and {len(rows) - _ROWS_SHOWN:,} more"


_ASIDES = {
    "failed": "calls that failed",
    "usable_size": "questions for the usable size",
    "maps": "maps, unmaps and protects",
    "realloc_begin": "beginnings of reallocs",
    "asked_align": "alignments that are no power of two",
}


def _aside(name: str, rows: int) -> str:
    return f"{format_count(rows)} {_ASIDES.get(name, 'rows')}"
