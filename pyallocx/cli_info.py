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
from collections.abc import Callable, Iterator, Mapping
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
from pyallocx.units import column_unit, format_bytes, format_count, printable

__all__ = ["add_verb"]

_AREA_LINES = 8
_TIMELINE_POINTS = 200
_ROWS_SHOWN = 8
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
        yield from _lifetime_lines(trace)
        yield from _thread_lines(trace)
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
        return f"{exact} ns ({value / 1e9:.3g} s)"
    return exact


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
    end = f"{len(trace):,} events"
    if by == "time":
        end = f"{summary['duration_ns'] / 1e9:.3g} s, {end}"
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
    room = max(width - 62, 8)
    yield f"\n{'request sizes':<24} {'requests':>12} {'share':>7} {'of bytes':>9}"
    for row in bins:
        low, high = row["least_bytes"], row["most_bytes"]
        label = format_bytes(low) if low == high else f"{format_bytes(low)} to {_below(high)}"
        drawn = bar(row["requests"] / most, room, blocks=blocks)
        yield (
            f"  {label:<22} {row['requests']:>12,} {row['requests'] / requests:>7.1%} "
            f"{row['allocated_bytes'] / asked:>9.1%} {drawn}"
        ).rstrip()
    table = sizes(trace)
    order = sorted(
        range(len(table)),
        key=lambda at: (-int(table["allocated_bytes"][at]), at),
    )[:_ROWS_SHOWN]
    head = f"{'requests':>12} {'bytes':>10} {'share':>7}"
    yield f"\n{'most bytes in size':<24} {head} {'at peak':>10}"
    for at in order:
        size, bytes_ = int(table["size_bytes"][at]), int(table["allocated_bytes"][at])
        requested = int(table["allocs"][at] + table["reallocs"][at])
        yield (
            f"  {size:<22,} {requested:>12,} {format_bytes(bytes_):>10} {bytes_ / asked:>7.1%} "
            f"{int(table['peak_objects'][at]):>10,}"
        )


def _below(high: int) -> str:
    """Write the last size of a group, as a person reads it."""
    return f"{high:,}" if high < 1024 else f"< {format_bytes(high + 1)}"


def _lifetime_lines(trace: Trace) -> Iterator[str]:
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
    yield "  (in bytes allocated meanwhile; what lives on counts for as long as it was seen)"


def _lifetime(value: float | None) -> str:
    return "unknown" if value is None else format_bytes(value)


def _thread_lines(trace: Trace) -> Iterator[str]:
    rows = thread_rows(trace)
    if len(rows) < 2:
        return
    yield (
        f"\n{'thread':<10} {'allocs':>12} {'reallocs':>10} {'frees':>12} {'of others':>11} "
        f"{'allocated':>11}"
    )
    for row in rows[:_ROWS_SHOWN]:
        yield (
            f"  {row['thread']:<8} {row['allocs']:>12,} {row['reallocs']:>10,} {row['frees']:>12,} "
            f"{row['foreign_frees']:>11,} {format_bytes(row['allocated_bytes']):>11}"
        )
    if len(rows) > _ROWS_SHOWN:
        yield f"  and {len(rows) - _ROWS_SHOWN:,} more"


def _key_lines(trace: Trace, width: int) -> Iterator[str]:
    rows = key_rows(trace)
    if not rows:
        return
    asked = max(sum(row["allocated_bytes"] for row in rows), 1)
    yield f"\n{'most bytes in key':<24} {'requests':>12} {'bytes':>10} {'share':>7}"
    shown = rows[:_ROWS_SHOWN]
    names = ["" if row["name"] is None else printable(row["name"]).strip() for row in shown]
    # Beside the numbers where all have room there, else each on a line of its own.
    beside = max(map(len, names)) <= width - _KEY_NUMBERS
    for row, name in zip(shown, names, strict=True):
        numbers = (
            f"  {row['key']:<22} {row['requests']:>12,} {format_bytes(row['allocated_bytes']):>10} "
            f"{row['allocated_bytes'] / asked:>7.1%}"
        )
        yield f"{numbers}  {name}".rstrip() if beside else numbers
        if name and not beside:
            yield f"      {middle_cut(name, width - 6)}"
    if len(rows) > _ROWS_SHOWN:
        yield f"  and {len(rows) - _ROWS_SHOWN:,} more"


_KEY_NUMBERS = 58
_ASIDES = {
    "failed": "calls that failed",
    "usable_size": "questions for the usable size",
    "maps": "maps, unmaps and protects",
    "realloc_begin": "beginnings of reallocs",
}


def _aside(name: str, rows: int) -> str:
    return f"{format_count(rows)} {_ASIDES.get(name, 'rows')}"
