"""What `pyallocx info` says about a profile."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from typing import Any

from pyallocx.profile import Profile
from pyallocx.units import format_bytes, format_count, printable

__all__ = ["profile_lines"]


def profile_lines(name: str, profile: Profile, *, as_json: bool = False) -> Iterator[str]:
    """Yield the lines that describe a profile.

    Parameters
    ----------
    name : str
        Of the file.
    profile : Profile
        What to describe.
    as_json : bool, default False
        Give one JSON document instead: ``profile`` (the name), ``summary`` as of `Profile.summary`
        and ``metadata``.
    """
    summary, metadata = profile.summary(), dict(profile.metadata)
    if as_json:
        yield json.dumps({"profile": name, "summary": summary, "metadata": metadata}, indent=2)
        return
    yield f"profile: {printable(name)}"
    yield ""
    yield "in all"
    yield from _pairs(
        [
            ("total_count", format_count(summary["total_count"])),
            ("total_bytes", _bytes(summary["total_bytes"])),
            ("distinct_sizes", format_count(summary["distinct_sizes"])),
            *(
                (key, _bytes(summary[key]))
                for key in ("mean_size_bytes", "smallest_size_bytes", "largest_size_bytes")
            ),
        ]
    )
    percentiles = summary["size_percentiles"]
    yield ""
    yield f"{'sizes up to':<22} {'by count':>14} {'by bytes':>14}"
    for percent in percentiles["count"]:
        sizes = [percentiles[by][percent] for by in ("count", "bytes")]
        yield f"  {percent + '%':<20} {sizes[0]:>14,} {sizes[1]:>14,}"
    yield ""
    yield f"{'most bytes in size':<22} {'count':>14} {'bytes':>14} {'share':>7}"
    for one in summary["most_bytes"]:
        yield (
            f"  {one['size_bytes']:<20,} {format_count(one['count']):>14} "
            f"{format_bytes(one['bytes']):>14} {one['share']:>7.1%}"
        )
    yield ""
    yield "recorded"
    yield from _pairs((printable(str(key)), _text(value)) for key, value in metadata.items())


def _pairs(pairs: Iterable[tuple[str, str]]) -> Iterator[str]:
    for key, text in pairs:
        yield f"  {key:<20} {text}"


def _bytes(value: float) -> str:
    human = format_bytes(value)
    return human if value < 1024 else f"{format_count(value)} bytes ({human})"


def _text(value: Any) -> str:
    return printable(value if isinstance(value, str) else json.dumps(value))
