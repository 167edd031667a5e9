"""The verb that lists the formats."""

from __future__ import annotations

import argparse
import json
import shutil
import textwrap
from typing import Any

from pyallocx._cli_base import add_switch

__all__ = ["add_verb"]

_NARROW = 60
# Blanks and marks beside the name of a format and its columns.
_BEFORE = 8
_MARKS = {"yes": "x", "some": "o", "no": "."}
_KINDS = {
    "trace": "traces: ordered events",
    "code": "code traces: what a JIT made",
    "profile": "profiles: sizes without order",
}


def add_verb(verbs: Any) -> None:
    """Add the verb to the parsers of the command."""
    lister = verbs.add_parser(
        "formats",
        help="list the formats of traces and profiles, with what each carries",
        description="List all formats that can be read or written, with what each carries.",
    )
    add_switch(lister, "--json", "print JSON only")
    lister.set_defaults(run=_formats)


def _formats(options: argparse.Namespace, open_trace: object) -> int:
    from pyallocx.formats import CARRIES, formats, rows

    if options.json:
        print(json.dumps(rows(), indent=2))
        return 0
    width = max(shutil.get_terminal_size((100, 24)).columns, _NARROW)
    print(_wrapped("x: yes, o: where a file has it, .: no; r: read, w: written", width, 0))
    table = formats()
    names = max(len(one.name) for one in table)
    by = max(len(one.written_by) for one in table)
    titles: tuple[str, ...] = CARRIES
    gap = "  "
    narrow = width < names + _BEFORE + sum(len(gap + title) for title in titles) + by
    if narrow:
        # Three letters a column, and who writes a format goes below, to the notes.
        titles, gap = tuple(name[:3] for name in CARRIES), " "
        print(_wrapped("columns: " + ", ".join(CARRIES), width, 0))
    for kind, title in _KINDS.items():
        chosen = [one for one in table if one.kind == kind]
        last = "" if narrow else "  written by"
        print(f"\n{title}\n  {'':{names}}{gap}    {gap.join(titles)}{last}")
        for one in chosen:
            marks = gap.join(
                f"{_MARKS[getattr(one, name)]:^{len(short)}}"
                for name, short in zip(CARRIES, titles, strict=True)
            )
            use = ("r" if one.read else "-") + ("w" if one.write else "-")
            line = f"  {one.name:{names}}{gap}{use}  {marks}  {'' if narrow else one.written_by}"
            print(line.rstrip())
        for one in chosen:
            told = [f"by {one.written_by}"] if narrow else []
            if told or one.note:
                told += [one.note] if one.note else []
                print(_wrapped(f"{one.name}: {'; '.join(told)}", width, 4))
    print()
    print(_wrapped("Recognised by content; also inside gzip, zip, zstd, xz, bzip2.", width, 0))
    return 0


def _wrapped(text: str, width: int, indent: int) -> str:
    return textwrap.fill(
        text,
        width,
        initial_indent=" " * indent,
        subsequent_indent=" " * (indent + 2),
        break_on_hyphens=False,
    )
