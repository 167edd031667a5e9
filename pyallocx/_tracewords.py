"""What a trace says of itself, in words; it came out of a file and may be anything."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from pyallocx.units import counted, format_count, printable

__all__ = [
    "dropped_events",
    "dropped_note",
    "left_out_lines",
    "metadata_text",
    "middle_cut",
    "obtained_lines",
    "pair_lines",
]

_LIST_SHOWN = 12
_KEY_COLUMNS = 22
_MOST_LINES = 6


def middle_cut(text: str, width: int) -> str:
    """Return a text of at most `width` characters; what is too much is cut out of its middle.

    Of a call site both ends matter: the file where it is, and the function or the address there.
    """
    if len(text) <= width:
        return text
    mark = "..." if width >= 8 else ""
    left = max(width - len(mark), 0)
    head = (left + 1) // 2
    return text[:head] + mark + text[len(text) - (left - head) :]


def pair_lines(pairs: Iterable[tuple[str, str]], width: int) -> Iterator[str]:
    """Write names and what belongs to them in two columns, the second wrapped.

    A very long text is cut, and its last line says so.
    """
    indent = " " * (_KEY_COLUMNS + 3)
    for key, text in pairs:
        head = f"  {key:<{_KEY_COLUMNS}} "
        lines = textwrap.wrap(
            text,
            max(width, len(indent) + 20),
            # A name that is too long takes of the first line only.
            initial_indent=" " * min(len(head), width // 2),
            subsequent_indent=indent,
            break_on_hyphens=False,
            max_lines=_MOST_LINES,
            placeholder=" ...",
        )
        if not lines:
            yield head.rstrip()
            continue
        yield head + lines[0].lstrip()
        yield from lines[1:]


def metadata_text(value: Any) -> str:
    """Write anything JSON can hold on one line; a long list by its beginning and length."""
    if isinstance(value, Mapping):
        return ", ".join(f"{printable(str(k))} {metadata_text(v)}" for k, v in value.items())
    if isinstance(value, (list, tuple)):
        words = " ".join(map(metadata_text, value[:_LIST_SHOWN]))
        more = len(value) - _LIST_SHOWN
        return f"{words} ... ({more:,} more)" if more > 0 else words
    return printable(str(value))


def dropped_events(trace: Any) -> dict[str, int] | str:
    """Return how many events of each kind were dropped when the trace was made.

    What a file says of itself may be anything; where that is no count it is text.
    """
    dropped = trace.metadata.get("dropped") or {}
    counts = dropped if isinstance(dropped, Mapping) else {"events": dropped}
    for count in counts.values():
        if isinstance(count, bool) or not isinstance(count, int) or count < 0:
            return metadata_text(dropped)
    return {printable(str(kind)): count for kind, count in counts.items() if count}


def obtained_lines(obtained: Any) -> list[tuple[str, str]]:
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


def left_out_lines(metadata: Mapping[str, Any]) -> list[tuple[str, str]]:
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


def dropped_note(trace: Any) -> str:
    """Say how many events of the file were dropped, in brackets, or nothing."""
    dropped = dropped_events(trace)
    if isinstance(dropped, str):
        return f" (events dropped: {textwrap.shorten(dropped, 60)})"
    total = sum(dropped.values())
    events = "1 event" if total == 1 else f"{format_count(total)} events"
    return f" ({events} of the file dropped)" if total else ""
