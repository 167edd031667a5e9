"""jemalloc's statistics as JSON: what ``malloc_stats_print`` writes with the option ``J``.

``arenas.bin`` has the size of each small class, ``arenas.lextent`` that of each large one, and
``stats.arenas.I.bins`` and ``.lextents`` the counts in the same order. jemalloc counts after
rounding: the sizes are those of classes.

``"count"`` is ``nrequests``, how often the program asked (``nmalloc`` also has what was brought
into thread caches and may never have been asked for). Large classes have no such count each, so
their requests, known only in sum, are left out; ``metadata["large_requests_left_out"]`` says how
many.
``"end"`` and ``"peak"`` are what is live when the statistics are written, ``curregs`` and
``curlextents``; jemalloc counts what lies in thread caches as live.

Where the arenas are there in sum (``merged``), the sum is read, else each; arenas that were
destroyed (``destroyed``) are not in the sum and are added.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from pyallocx._core import TraceError
from pyallocx.profiles._json import JsonReader, entry
from pyallocx.profiles._reader import Refused

__all__ = ["JemallocReader"]


class JemallocReader(JsonReader):
    """A reader of jemalloc's statistics; see the module."""

    sizes = "size classes"
    weights = ("count", "peak", "end")
    whose = "jemalloc"
    # jemalloc itself writes some options twice, which does not matter here.
    once = frozenset(
        (
            *("jemalloc", "arenas", "bin", "lextent", "size", "stats.arenas", "merged"),
            *("destroyed", "bins", "lextents", "large", "curregs", "curlextents", "nrequests"),
        )
    )

    def read(self, document: Any) -> None:
        """Read the arenas."""
        root = entry(document, "", "jemalloc", dict)
        arenas = entry(root, "jemalloc", "arenas", dict)
        stats = entry(root, "jemalloc", "stats.arenas", dict)
        live = self.weight != "count"
        for path, arena in _chosen(stats):
            self._add(arena, path, "bins", "curregs" if live else "nrequests", arenas, "bin")
            if live:
                self._add(arena, path, "lextents", "curlextents", arenas, "lextent")
            else:
                large = entry(arena, path, "large", dict)
                key = "large_requests_left_out"
                left = entry(large, f"{path}.large", "nrequests", int)
                self.about[key] = self.about.get(key, 0) + left

    def _add(self, arena: Any, path: str, what: str, key: str, arenas: Any, classes: str) -> None:
        sizes = entry(arenas, "jemalloc.arenas", classes, list)
        counts = entry(arena, path, what, list)
        if len(counts) != len(sizes):
            raise TraceError(
                f"{path}.{what}: expected {len(sizes)} entries, as in arenas.{classes}, "
                f"found {len(counts)}"
            )
        for number, (one, count) in enumerate(zip(sizes, counts, strict=True)):
            size = entry(one, f"jemalloc.arenas.{classes}[{number}]", "size", int)
            count = entry(count, f"{path}.{what}[{number}]", key, int)
            if not count:
                continue
            try:
                self.add(size, count)
            except Refused as refused:
                raise TraceError(f"{path}.{what}[{number}]: {refused}") from None


def _chosen(stats: dict[str, Any]) -> Iterator[tuple[str, Any]]:
    """Yield the arenas to add up."""
    names = list(stats)
    for name in names:
        if name not in ("merged", "destroyed") and not (name.isascii() and name.isdigit()):
            raise TraceError(f"jemalloc.stats.arenas: expected numbers of arenas, found {name!r}")
    if "merged" in stats:
        names = [name for name in names if name in ("merged", "destroyed")]
    for name in names:
        yield f"jemalloc.stats.arenas.{name}", stats[name]
