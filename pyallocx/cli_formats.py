"""The verb that lists the formats."""

from __future__ import annotations

import argparse
import json
from typing import Any

from pyallocx._cli_base import add_switch

__all__ = ["add_verb"]

_MARKS = {"yes": "x", "some": "o", "no": "."}


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
    print("x: yes   o: where the file has it   .: no   r: read   w: written")
    kinds = {
        "trace": "traces: ordered events",
        "code": "code traces: what a JIT made",
        "profile": "profiles: sizes without order",
    }
    table = formats()
    width = max(len(one.name) for one in table)
    for kind, title in kinds.items():
        chosen = [one for one in table if one.kind == kind]
        print(f"\n{title}\n  {'':{width}}      {'  '.join(CARRIES)}  written by")
        for one in chosen:
            marks = "  ".join(f"{_MARKS[getattr(one, name)]:^{len(name)}}" for name in CARRIES)
            use = ("r" if one.read else "-") + ("w" if one.write else "-")
            print(f"  {one.name:{width}}  {use}  {marks}  {one.written_by}")
        for one in chosen:
            if one.note:
                print(f"    {one.name}: {one.note}")
    print("\nRecognised by content; also inside gzip, zip, zstd, xz and bzip2.")
    return 0
