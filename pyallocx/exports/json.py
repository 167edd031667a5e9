"""JSON that `SizeMap.load` reads back."""

from __future__ import annotations

import json
from typing import Any

import numpy as np

from pyallocx._core import CorruptionError
from pyallocx.exports._base import I64, Subject, judge, named
from pyallocx.sizemap import _FORMAT, SizeMap, _made, _parse

OPTIONS = ("kind",)


def write(subject: Subject, name: str | None, **options: Any) -> str:
    """Return the document; a fit becomes a flat map, or where that is too long a search."""
    named("json", options, OPTIONS)
    made = _of_kind(subject, options.get("kind"))
    document = {"format": _FORMAT, "version": 1} | made._document()
    if name is not None:
        document["name"] = name
    text = json.dumps(document) + "\n"
    again = _made(_parse(text.encode()))
    if again != made or again.classes.tolist() != subject.classes:
        raise CorruptionError("json: what was written reads back as another map")
    for violation in again.violations() if again.kind == "table" else ():
        if violation.condition == "V4":
            # Safe, but not every size has the smallest class: that is what the map is.
            raise ValueError(f"json: {violation.text}; the kinds 'flat' and 'search' can")
    again.check()

    def lookup(sizes: I64) -> I64:
        return again.round(sizes).astype(np.int64)

    judge("json", lookup, subject.classes)
    return text


def _of_kind(subject: Subject, kind: str | None) -> SizeMap:
    if kind is not None:
        return subject.map.as_kind(kind)
    if not subject.fitted:
        return subject.map
    try:
        return subject.map.as_kind("flat")
    except ValueError:
        return subject.map
