"""What valgrind's DHAT writes (and dhat for Rust): blocks and bytes of each program point, as JSON.

A program point is a stack of calls that allocates. Its sizes are known in sum only, so all its
blocks are put at their mean: where that is not whole, some at the size below and some at that
above, so that their number and bytes are exact (``metadata["points_at_mean"]`` counts those points,
``metadata["points"]`` all). Where it is whole, nobody can tell whether all blocks had that size;
most points ask for one size only.

``"count"`` is what was allocated in all (``tb``, ``tbk``), ``"peak"`` what was live when the heap
was largest (``gb``, ``gbk``), ``"end"`` what was live at the end (``eb``, ``ebk``).
"""

from __future__ import annotations

from typing import Any, Final

from pyallocx._core import TraceError
from pyallocx.profiles._json import JsonReader, entry
from pyallocx.profiles._reader import Refused

__all__ = ["DhatReader"]

_MODES: Final = ("heap", "rust-heap")
_KEYS: Final = {"count": ("tb", "tbk"), "peak": ("gb", "gbk"), "end": ("eb", "ebk")}


class DhatReader(JsonReader):
    """A reader of DHAT's output of version 2; see the module."""

    sizes = "means of call sites"
    weights = ("count", "peak", "end")
    whose = "DHAT"
    once = frozenset(
        ("dhatFileVersion", "mode", "pps", *(key for keys in _KEYS.values() for key in keys))
    )

    def read(self, document: Any) -> None:
        """Read the program points."""
        version = entry(document, "", "dhatFileVersion", int)
        if version != 2:
            raise TraceError(f"dhatFileVersion: expected 2, found {version}")
        mode = entry(document, "", "mode", str)
        if mode not in _MODES:
            raise TraceError(
                f"mode: expected {' or '.join(map(repr, _MODES))}, whose blocks are allocations, "
                f"found {mode[:40]!r}"
            )
        points = entry(document, "", "pps", list)
        size_key, count_key = _KEYS[self.weight]
        for number, point in enumerate(points):
            path = f"pps[{number}]"
            size = entry(point, path, size_key, int)
            count = entry(point, path, count_key, int)
            try:
                if self.add_mean(size, count):
                    self.about["points_at_mean"] = self.about.get("points_at_mean", 0) + 1
            except Refused as refused:
                raise TraceError(f"{path}: {refused}") from None
        self.about["points"] = len(points)
        if points and not self.counts:
            raise TraceError(f"no program point has a block of weight {self.weight!r}")
