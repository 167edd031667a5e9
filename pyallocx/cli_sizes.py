"""The verbs about size classes."""

from __future__ import annotations

import argparse
import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from pyallocx import cli_fit
from pyallocx._cli_base import Once, UsageError, add_switch
from pyallocx.units import counted, format_bytes, format_count, printable

if TYPE_CHECKING:
    from pyallocx.sizemap import SizeMap

__all__ = ["add_verbs"]


def add_verbs(verbs: Any) -> None:
    """Add the verbs to the parsers of the command."""
    cli_fit.add_verbs(verbs)
    bench = verbs.add_parser(
        "lookup-bench",
        help="what looking up a size class costs, by kind of map",
        description="Measure what it costs in C to look up the class of a size, for every kind of "
        "map: sizes in random order, the same sorted, and each lookup after the last.",
    )
    which = bench.add_argument_group("classes (default: scudo's 32 for Android)")
    which.add_argument("--classes", action=Once, metavar="A,B,...", help="sizes in bytes, rising")
    which.add_argument("--preset", action=Once, metavar="NAME", help="those of an allocator")
    bench.add_argument(
        "--up-to", action=Once, metavar="BYTES", help="largest size to look up (the largest class)"
    )
    add_switch(bench, "--json", "print JSON only")
    bench.set_defaults(run=_lookup_bench)


def _lookup_bench(options: argparse.Namespace, open_trace: object) -> int:
    from pyallocx._lookupbench import measure

    sizes = _size_map(options)
    try:
        up_to = None if options.up_to is None else int(options.up_to, 0)
        result = measure(sizes, up_to=up_to, progress=None)
    except ValueError as exc:
        raise UsageError(f"--up-to: {exc}") from None
    if options.json:
        print(json.dumps(result, indent=2))
    else:
        _print_bench(result)
    return 0


def _size_map(options: argparse.Namespace) -> SizeMap:
    from pyallocx._lookupbench import android64
    from pyallocx.sizemap import SizeMap

    if options.classes is not None and options.preset is not None:
        raise UsageError("--classes and --preset: only one of them")
    if options.classes is not None:
        try:
            classes = [int(text, 0) for text in options.classes.split(",")]
            return SizeMap(classes, kind="search")
        except ValueError as exc:
            raise UsageError(f"--classes: {exc}") from None
    if options.preset is not None:
        try:
            return SizeMap.preset(options.preset)
        except ValueError as exc:
            raise UsageError(f"--preset: {exc}") from None
    return android64()


def _print_bench(result: Mapping[str, Any]) -> None:
    name = f"{printable(result['name'])}: " if result["name"] else ""
    print(
        f"{name}{counted(result['classes'], 'class')} up to "
        f"{format_count(result['largest_bytes'])} bytes, "
        f"{format_count(result['sizes'])} sizes up to {format_count(result['up_to_bytes'])}, "
        f"median of {result['repetitions']} repetitions"
    )
    print("nanoseconds for each lookup, and as a multiple of the table map's\n")
    orders = ("random", "sorted", "chain")
    print(f"{'kind':18}{'table':>10}" + "".join(f"{order:>18}" for order in orders))
    for row in result["kinds"]:
        line = f"{row['kind']:18}{format_bytes(row['memory_bytes']):>10}"
        for order in orders:
            ratio = row[f"{order}_ratio"]
            line += f"{row[f'{order}_ns']:10.2f} " + (
                " " * 7 if ratio is None else f"{ratio:6.2f}x"
            )
        print(f"{line}  {row['note']}".rstrip())
    for kind, why in result["missing"].items():
        print(f"{kind:18}not possible: {why}")
