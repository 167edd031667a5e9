"""Arenas with keyed free lists: live on real memory, or replayed over a trace.

The live `Arena` and every replay run the same C code (``csrc/core/arena.c``). A sweep over byte
cuts is answered by a model of it that computes all thresholds in one pass (``csrc/core/curve.h``
tells how); the tests hold the two equal, counter by counter.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from pyallocx import _core
from pyallocx._systems import FAIL_AT, drive, one_of, validated, whole
from pyallocx.answer import baseline, cell_name, explain, parameters_of
from pyallocx.sweep import Cell, Control, Parameter
from pyallocx.table import SweepResult
from pyallocx.trace import Trace
from pyallocx.units import format_bytes, parse_bytes, parse_count

__all__ = ["POLICIES", "Arena", "ArenaReplay", "replay_arena"]

#: Names of the retention policies, in the order of the core's table.
POLICIES: tuple[str, ...] = _core.ARENA_POLICIES

_U64_MAX = 2**64 - 1
_U32_MAX = 2**32 - 1
_ARENA_BY = ("one", "thread", "arena")


PARAMETERS: tuple[Parameter, ...] = (
    Parameter(
        "policy", "byte_cut", str, "what becomes of a free list's buffer when it empties", POLICIES
    ),
    Parameter(
        "retain_bytes",
        2048,
        parse_bytes,
        "byte_cut: largest buffer kept by an empty list, header included; 0 none, inf all",
        check=whole(0, _U64_MAX - 1, infinite=True),
    ),
    Parameter(
        "retain_capacity",
        500,
        parse_count,
        "capacity_cut: largest buffer kept, in entries",
        check=whole(0, _U32_MAX),
    ),
    Parameter(
        "window_episodes",
        4,
        parse_count,
        "peak_window: episodes whose peaks are remembered",
        check=whole(1, 64),
    ),
    Parameter(
        "padding_entries",
        0,
        parse_count,
        "peak_window: entries kept beyond the highest remembered peak",
        check=whole(0, _U32_MAX),
    ),
    Parameter(
        "tick_operations",
        1000,
        parse_count,
        "low_water: operations between two looks at unused capacity",
        check=whole(1, _U64_MAX),
    ),
    Parameter(
        "idle_operations",
        1000,
        parse_count,
        "age: operations after which an empty list gives its buffer back",
        check=whole(0, _U64_MAX),
    ),
    Parameter(
        "budget_bytes",
        65536,
        parse_bytes,
        "budget: all buffers of empty lists together",
        check=whole(0, _U64_MAX - 1, infinite=True),
    ),
    Parameter(
        "recycle_below_bytes",
        400,
        parse_bytes,
        "intrusive: objects of this size and more are never reused",
        check=whole(0, _U64_MAX - 1, infinite=True),
    ),
    Parameter(
        "chunk_bytes",
        8192,
        parse_bytes,
        "size of a chunk, header included",
        check=whole(16, 1 << 40),
    ),
    Parameter(
        "chunk_header_bytes",
        24,
        parse_bytes,
        "header at the start of each chunk (Firefox: 24, later 32)",
        check=whole(0, 4096),
    ),
    Parameter(
        "alignment_bytes",
        8,
        parse_bytes,
        "object sizes are rounded up to this: 4, 8 or 16",
        check=one_of(4, 8, 16),
    ),
    Parameter(
        "list_header_bytes",
        8,
        parse_bytes,
        "header of a free list's buffer",
        check=whole(0, 64),
    ),
    Parameter(
        "pointer_bytes",
        8,
        parse_bytes,
        "width of a list entry: 4 or 8",
        check=one_of(4, 8),
    ),
    Parameter(
        "large_capacity",
        500,
        parse_count,
        "pops from a buffer of more entries are counted in pops_large",
        check=whole(0, _U32_MAX),
    ),
    Parameter(
        "max_object_bytes",
        "auto",
        lambda text: text if text == "auto" else parse_bytes(text),
        "larger requests bypass the arena; auto: the payload of a chunk",
        check=lambda value: "auto" if value in (None, "auto") else whole(1, 1 << 40)(value),
    ),
    Parameter(
        "arena_by",
        "auto",
        str,
        "which requests share an arena: one, thread, arena (the trace's column), auto",
        ("auto", *_ARENA_BY),
    ),
)

# Parameters that mean nothing to live memory.
_REPLAY_ONLY = ("max_object_bytes", "arena_by")
# What each policy looks at; a cell's other policy parameters cannot change its result.
_READ_BY: dict[str, tuple[str, ...]] = {
    "release": (),
    "byte_cut": ("retain_bytes",),
    "capacity_cut": ("retain_capacity",),
    "keep_all": (),
    "intrusive": ("recycle_below_bytes",),
    "peak_window": ("window_episodes", "padding_entries"),
    "low_water": ("tick_operations",),
    "age": ("idle_operations",),
    "budget": ("budget_bytes",),
}
_POLICY_PARAMETERS = {name for names in _READ_BY.values() for name in names}
_INTRUSIVE_SHOWN = 4
_CUTS = ("release", "byte_cut", "capacity_cut", "keep_all")


def _core_params(values: Mapping[str, Any]) -> dict[str, int]:
    """Return parameters as the core takes them: numbers only, infinity as the largest."""
    numbers = {}
    for name, value in values.items():
        if name in _REPLAY_ONLY:
            continue
        if name == "policy":
            value = POLICIES.index(value)
        numbers[name] = _U64_MAX if value == math.inf else int(value)
    return numbers


def _validated(given: Mapping[str, object], *, live: bool) -> dict[str, Any]:
    known = [p for p in PARAMETERS if not (live and p.name in _REPLAY_ONLY)]
    return validated("arena", known, given)


@dataclass(frozen=True)
class ArenaReplay:
    """One replay of a trace through arenas under one policy.

    Attributes
    ----------
    row : dict
        The counters, named as the columns of a sweep.
    free_lists : list of dict
        One row per free list: ``arena``, ``key``, ``entry_bytes``, ``length``, ``capacity``,
        ``buffer_bytes``, ``peak`` (of the running episode), ``pops``, ``pops_large``, ``bumps``,
        ``transitions``, ``peaks_sum`` (over finished episodes), ``freelist_bytes``.
    """

    row: dict[str, Any]
    free_lists: list[dict[str, int]]

    def __repr__(self) -> str:
        """Say what it is about; the numbers are in `row` and `free_lists`."""
        return (
            f"<ArenaReplay {self.row['pops']} pops, {self.row['list_calls']} list calls, "
            f"{len(self.free_lists)} free lists>"
        )


def _start(
    trace: Trace,
    values: Mapping[str, Any],
    thresholds: Sequence[int] | None,
    *,
    modelled: bool = True,
    fail_at: int = 0,
) -> _core.ArenaReplay:
    by = values["arena_by"]
    if by == "auto":
        by = "one" if trace.arena is None else "arena"
    ids = 1
    if by != "one":
        column = trace.arena if by == "arena" else trace.thread
        if column is None:
            raise ValueError(f"arena_by='arena' needs a trace with an arena column; {trace!r}")
        ids = int(column.max()) + 1 if len(column) else 1
    return _core.ArenaReplay(
        _core_params(values),
        trace.op,
        trace.object,
        trace.size_bytes,
        trace.thread,
        trace.key,
        trace.arena,
        trace.time_ns,
        trace.n_objects,
        ids,
        _ARENA_BY.index(by),
        0 if values["max_object_bytes"] == "auto" else values["max_object_bytes"],
        retain_bytes=thresholds,
        modelled=modelled,
        fail_at=fail_at,
    )


def _finish(row: dict[str, Any], retain_bytes: object) -> dict[str, Any]:
    row["retain_bytes"] = retain_bytes
    row["list_calls"] = row["list_mallocs"] + row["list_reallocs"] + row["list_frees"]
    return row


def replay_arena(
    trace: Trace, *, modelled: bool = True, fail_at: int = 0, **params: object
) -> ArenaReplay:
    """Replay a trace through arenas under one policy, event by event.

    Parameters
    ----------
    trace : Trace
        The events.
    modelled : bool
        Count without memory. False allocates every object for real, which changes no counter.
    fail_at : int
        Make this call to the backing fail, counted from 1 (0: none), at most 2**64 - 1.
    **params
        Parameters of an arena, and ``max_object_bytes`` and ``arena_by``, as in a sweep.

    Returns
    -------
    ArenaReplay
        Counters, and one row per free list.

    Raises
    ------
    TypeError
        If `trace` is no Trace, or a parameter is unknown or of a wrong type.
    ValueError
        If a parameter or `fail_at` is out of range.
    MemoryError
        If the backing refused.
    TraceError
        If an event breaks the rules of a trace.

    Examples
    --------
    >>> import pyallocx as px
    >>> trace = px.synthesize(2000, seed=1)
    >>> replay_arena(trace, policy="keep_all").row["list_frees"]
    0
    """
    if not isinstance(trace, Trace):
        raise TypeError(f"a Trace is replayed, not a {type(trace).__name__}")
    values = {p.name: p.default for p in PARAMETERS} | _validated(params, live=False)
    call = FAIL_AT.validate(fail_at)
    assert isinstance(call, int)
    replay = _start(trace, values, None, modelled=modelled, fail_at=call)
    drive(replay, len(trace), None)
    replay.check()
    (row,) = replay.rows()
    return ArenaReplay(_finish(row, _retained(values)), replay.free_lists())


def _ladder(cell: Mapping[str, Any]) -> list[tuple[int, int]]:
    return _core.ladder(cell["list_header_bytes"], cell["pointer_bytes"])


def _retained(cell: Mapping[str, Any]) -> int | float | None:
    """Return the byte cut that a policy amounts to, None where it is not a byte cut."""
    policy = cell["policy"]
    if policy == "byte_cut":
        retain: int | float = cell["retain_bytes"]
        return retain
    if policy == "capacity_cut":
        kept = [size for size, entries in _ladder(cell) if entries <= cell["retain_capacity"]]
        return max(kept, default=0)
    return {"release": 0, "keep_all": math.inf}.get(policy)


def _explain_intrusive(result: SweepResult) -> list[str]:
    """Return what intrusive rows hold; they have no buffers, hence no unused capacity of them."""
    needed = {"held_bytes_end", "leaked_bytes_end"}
    if result.x == "held_bytes_end" or not needed <= set(result.columns):
        return []
    measured = result._ok_indices()
    mine = [i for i in measured if parameters_of(result, i).get("policy") == "intrusive"]
    if not mine:
        return []

    def held(index: int) -> str:
        row = result[index]
        lost = row["leaked_bytes_end"]
        parts = (
            f", {format_bytes(lost)} of it in freed objects that it never reuses" if lost else ""
        )
        return f"{format_bytes(row['held_bytes_end'])}{parts}"

    lines = []
    for index in mine[:_INTRUSIVE_SHOWN]:
        line = f"{cell_name(result, index)} at the end holds {held(index)}"
        base = baseline(result, result.x, result.y, index)
        if base is not None and base not in mine:
            line += f"; {cell_name(result, base)} holds {held(base)}"
        lines.append(line + ".")
    if len(mine) > _INTRUSIVE_SHOWN:
        lines.append(f"{len(mine) - _INTRUSIVE_SHOWN} more rows are intrusive.")
    lines.append(
        "Without buffers (policy intrusive) there is no unused list capacity, which does not make "
        "it free: compare what is held with --x held_bytes_end."
    )
    return lines


def _explain_bypassed(result: SweepResult) -> list[str]:
    """Return a warning where cells serve different numbers of requests."""
    if "bypassed" not in result.columns:
        return []
    counts = [int(row["bypassed"]) for row in result.ok]
    if not counts or min(counts) == max(counts):
        return []
    return [
        f"The cells do not serve the same requests: {min(counts):,} to {max(counts):,} are too "
        "large for the arena and bypass it (column bypassed). Compare cells in which as many do."
    ]


class ArenaSystem:
    """How `Arena` is swept."""

    name = "arena"
    parameters = PARAMETERS
    columns = (
        "retain_bytes",
        "pops",
        "pops_large",
        "transitions",
        "bumps",
        "list_mallocs",
        "list_reallocs",
        "list_frees",
        "list_bytes_moved",
        "list_calls",
        "overhead_bytes_end",
        "overhead_bytes_peak",
        "overhead_bytes_mean",
        "overhead_bytes_mean_ns",
        "held_bytes_end",
        "chunk_bytes_end",
        "freelist_bytes_end",
        "slop_bytes_end",
        "live_bytes_end",
        "leaked_bytes_end",
        "chunk_mallocs",
        "arenas_end",
        "lists_end",
        "list_frees_at_close",
        "bypassed",
        "histogram_peak",
        "histogram_buffer",
    )
    default_grid: ClassVar[Mapping[str, Sequence[object]]] = {
        "retain_bytes": [0, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096, 8192, math.inf]
    }
    x = "overhead_bytes_mean"
    y = "list_calls"
    labels: ClassVar[Mapping[str, str]] = {
        "overhead_bytes_mean": "unused list capacity, mean",
        "overhead_bytes_peak": "unused list capacity, peak",
        "overhead_bytes_end": "unused list capacity, end",
        "held_bytes_end": "bytes held, end",
        "list_calls": "malloc + realloc + free calls of the free lists",
    }
    landmarks = (
        (
            {
                "policy": "byte_cut",
                "retain_bytes": 2048,
                "chunk_bytes": 8192,
                "pointer_bytes": 8,
                "alignment_bytes": 8,
                "list_header_bytes": 8,
                "max_object_bytes": "auto",
                "arena_by": "auto",
                "large_capacity": 500,
            },
            "Firefox",
        ),
    )
    # A policy is chosen; chunks, layout and who shares an arena are where it has to work.
    context = tuple(
        p.name for p in PARAMETERS if p.name != "policy" and p.name not in _POLICY_PARAMETERS
    )
    trace_type = Trace

    def group(self, cells: Sequence[Cell]) -> list[list[int]]:
        """All byte cuts over one layout are one pass; equal cells of any policy are one as well."""
        groups: dict[tuple[object, ...], list[int]] = {}
        for index, cell in enumerate(cells):
            policy = cell["policy"]
            read = () if policy in _CUTS else ("policy", *_READ_BY[policy])
            layout = [n for n in cell if n not in _POLICY_PARAMETERS and n != "policy"]
            key = (policy in _CUTS, *(cell[name] for name in (*read, *layout)))
            groups.setdefault(key, []).append(index)
        return list(groups.values())

    def check(self, cell: Cell) -> None:
        """Raise for parameters that the core refuses together, whatever the trace."""
        _start(Trace([], [], []), {**cell, "arena_by": "one"}, None)

    def explain(self, result: SweepResult) -> list[str]:
        """Say what the knee and Firefox save, and what an arena without buffers costs instead."""
        return [*explain(result), *_explain_intrusive(result), *_explain_bypassed(result)]

    def run(self, trace: Trace, cells: Sequence[Cell], control: Control) -> list[object]:
        """Replay one group."""
        first = cells[0]
        if first["policy"] not in _CUTS:
            replay = _start(trace, first, None)
            drive(replay, len(trace), control)
            row = replay.rows()[0]
            return [_finish(dict(row), _retained(cell)) for cell in cells]
        cuts = [_retained(cell) for cell in cells]
        # Buffers have the sizes of the ladder only, so cuts between two of them are one.
        sizes = [0, *(size for size, _ in _ladder(first))]
        exact = [
            _U64_MAX if cut is None or cut >= sizes[-1] else sizes[bisect_right(sizes, cut) - 1]
            for cut in cuts
        ]
        thresholds = sorted({0, *exact})
        replay = _start(trace, first, thresholds)
        drive(replay, len(trace), control)
        rows = dict(zip(thresholds, replay.rows(), strict=True))
        return [_finish(dict(rows[e]), cut) for e, cut in zip(exact, cuts, strict=True)]


class Arena(_core.Arena):
    """An arena on real memory: chunks, keyed free lists, and a retention policy.

    ``alloc`` takes the newest freed object of the key, or the next bytes of the current chunk;
    ``free`` puts an object on its key's free list. When a list empties, the policy decides whether
    its buffer is kept. Chunks go back to the system when the arena is closed.

    Parameters
    ----------
    policy : str
        What becomes of the buffer of a list that has just emptied.

        ``"release"``
            Free it, each time: Firefox's ``nsPresArena`` before bug 1375331.
        ``"byte_cut"``
            Keep it if it has at most ``retain_bytes``, header included: Firefox since then (2048).
            Go's pools drop buffers above 64 KiB in the same way.
        ``"capacity_cut"``
            Keep it if it holds at most ``retain_capacity`` entries: the letter of the Firefox fix
            (500). The same as 2048 bytes with 8-byte pointers, not with 4-byte pointers.
        ``"keep_all"``
            Keep it always: libstdc++'s pool resources, Boost.Pool.
        ``"intrusive"``
            No buffers: a freed object holds the link to the next, so lists belong to sizes and
            objects of ``recycle_below_bytes`` and more are never reused. Firefox's arena before
            bug 497495, WebKit's RenderArena.
        ``"peak_window"``
            Shrink to the highest peak of the last ``window_episodes`` episodes plus
            ``padding_entries``: asked for in dvui issue 322 (track the peak of the last frame).
        ``"low_water"``
            Every ``tick_operations`` give half of the capacity that was not used since the last
            tick back, to the nearest size on the ladder: the low-water mark of gperftools'
            thread caches.
        ``"age"``
            Give a buffer back that was empty for ``idle_operations``: the ages of mimalloc, libpas
            and illumos kmem, counted in operations of all arenas that share the policy.
        ``"budget"``
            Keep it while all buffers of empty lists together fit ``budget_bytes``: APR's
            ``max_free``, ponyc issue 5768, CUDA's release threshold.
    retain_bytes, budget_bytes, recycle_below_bytes : int or float
        Bytes, ``math.inf`` for no limit.
    retain_capacity, window_episodes, padding_entries, tick_operations, idle_operations : int
        See the policies.
    chunk_bytes : int
        Size of a chunk, header included. Larger objects get a chunk of their own.
    chunk_header_bytes : int
        Header of a chunk, at least 24 on real memory.
    alignment_bytes : int
        8 or 16: object sizes are rounded up to it.
    list_header_bytes : int
        Header of a list's buffer, a multiple of 8 on real memory.
    large_capacity : int
        Pops from a buffer of more entries are counted in ``pops_large``.
    poison : bool
        Overwrite an object when it is freed (`free` costs its size).
    check_poison : bool
        Look at the pattern before the object is handed out again; implies the overwriting.
    share : Arena, optional
        Another arena whose policy, budget and operation clock this one shares; then no other
        parameter may be given, and the counters of `stats` are over both.

    Examples
    --------
    >>> import pyallocx as px
    >>> with px.Arena(retain_bytes=2048) as a:
    ...     p = a.alloc(key=1, size_bytes=40)
    ...     with a.view(p) as memory:
    ...         memory[:5] = b"hello"
    ...     a.free(1, p)
    ...     a.stats()["freelist_bytes"]
    40
    """

    __slots__ = ()
    __sweep__: ClassVar[ArenaSystem] = ArenaSystem()

    def __new__(cls, *, share: Arena | None = None, **params: object) -> Arena:
        """Check the parameters and open the arena."""
        flags = {n: bool(params.pop(n)) for n in ("poison", "check_poison") if n in params}
        values = _core_params(_validated(params, live=True) | flags)
        return super().__new__(cls, values, share=share)

    def __repr__(self) -> str:
        """Say what it holds."""
        if self.closed:
            return "<Arena closed>"
        stats = self.stats()
        return (
            f"<Arena {stats['live_objects']} live objects of {stats['live_bytes']} bytes, "
            f"{stats['freelist_objects']} free, {stats['chunks']} chunks>"
        )
