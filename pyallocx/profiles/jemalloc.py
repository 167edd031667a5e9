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

import json
from collections.abc import Iterator
from typing import Any, Final, NoReturn

from pyallocx._core import TraceError
from pyallocx.profiles._reader import ProfileReader, Refused

__all__ = ["JemallocReader"]

_MOST_BYTES: Final = 64 << 20
_READ: Final = frozenset(
    (
        *("jemalloc", "arenas", "bin", "lextent", "size", "stats.arenas", "merged", "destroyed"),
        *("bins", "lextents", "large", "curregs", "curlextents", "nrequests"),
    )
)


class JemallocReader(ProfileReader):
    """A reader of jemalloc's statistics; see the module."""

    sizes = "size classes"
    weights = ("count", "peak", "end")

    def __init__(self, weight: str | None = None) -> None:
        super().__init__(weight)
        self._text = bytearray()

    def feed(self, data: bytes, /) -> None:
        """Keep a piece: JSON is read as a whole."""
        self._text += data
        if len(self._text) > _MOST_BYTES:
            raise TraceError(f"expected at most {_MOST_BYTES >> 20} MiB of JSON")

    def finish(self) -> None:
        """Read it."""
        try:
            document = json.loads(
                self._text.decode(), parse_constant=_refuse_constant, object_pairs_hook=_once
            )
        except json.JSONDecodeError as error:
            raise TraceError(
                f"line {error.lineno}, column {error.colno}: expected JSON: {error.msg}"
            ) from None
        except UnicodeDecodeError as error:
            line = self._text.count(b"\n", 0, error.start) + 1
            raise TraceError(f"line {line}: expected UTF-8") from None
        except RecursionError:
            raise TraceError("expected JSON that is less deeply nested") from None
        except ValueError as error:
            raise TraceError(f"expected the JSON of jemalloc: {error}") from None
        finally:
            self._text.clear()
        self._read(document)

    def _read(self, document: Any) -> None:
        root = _get(document, "", "jemalloc", dict)
        arenas = _get(root, "jemalloc", "arenas", dict)
        stats = _get(root, "jemalloc", "stats.arenas", dict)
        live = self.weight != "count"
        for path, arena in _chosen(stats):
            self._add(arena, path, "bins", "curregs" if live else "nrequests", arenas, "bin")
            if live:
                self._add(arena, path, "lextents", "curlextents", arenas, "lextent")
            else:
                large = _get(arena, path, "large", dict)
                key = "large_requests_left_out"
                left = _get(large, f"{path}.large", "nrequests", int)
                self.about[key] = self.about.get(key, 0) + left

    def _add(self, arena: Any, path: str, what: str, key: str, arenas: Any, classes: str) -> None:
        sizes = _get(arenas, "jemalloc.arenas", classes, list)
        counts = _get(arena, path, what, list)
        if len(counts) != len(sizes):
            raise TraceError(
                f"{path}.{what}: expected {len(sizes)} entries, as in arenas.{classes}, "
                f"found {len(counts)}"
            )
        for number, (one, count) in enumerate(zip(sizes, counts, strict=True)):
            size = _get(one, f"jemalloc.arenas.{classes}[{number}]", "size", int)
            count = _get(count, f"{path}.{what}[{number}]", key, int)
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


def _get(where: Any, path: str, key: str, kind: type) -> Any:
    """Return an entry of the type that jemalloc gives it."""
    value: Any = where.get(key) if isinstance(where, dict) else None
    # A flag is no number, though Python says so.
    if type(value) is not kind or (isinstance(value, int) and value < 0):
        wanted = {dict: "an object", list: "a list", int: "a whole number, 0 or more"}[kind]
        found = "nothing" if value is None else json.dumps(value)[:40]
        raise TraceError(f"{path + '.' if path else ''}{key}: expected {wanted}, found {found}")
    return value


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    made = dict(pairs)
    if len(made) != len(pairs):
        names = [name for name, _ in pairs]
        for name in made:
            # jemalloc itself writes some options twice, which does not matter here.
            if names.count(name) > 1 and (name in _READ or name.isdigit()):
                raise ValueError(f"{name!r} is there twice")
    return made


def _refuse_constant(text: str) -> NoReturn:
    raise ValueError(f"found {text}")
