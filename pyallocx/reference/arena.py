"""The arena in plain Python: slow, short, and meant to be read.

It is the oracle of the property tests and says the same thing as ``csrc/core/arena.c`` without any
of its speed: every total is recomputed from the lists whenever it is asked for.

Objects are numbered in the order in which the chunks handed them out, so "the same memory again" is
"the same number again".
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

__all__ = ["Arenas", "FreeList", "grow", "ladder", "replay", "rung_for"]

MIB = 1 << 20


def grow(buffer_bytes: int, entries: int, header: int = 8, width: int = 8) -> int:
    """Return the size of the buffer that replaces one of `buffer_bytes` to hold `entries`.

    Examples
    --------
    >>> [grow(b, n) for b, n in [(0, 1), (16, 2), (4 * MIB, 524_288), (8 * MIB, 1_048_576)]]
    [16, 32, 8388608, 9437184]
    """
    request = header + entries * width
    if buffer_bytes == 0:
        return request
    if request < 8 * MIB:
        return 1 << (request - 1).bit_length()
    larger = max(request, buffer_bytes + buffer_bytes // 8)
    return -(-larger // MIB) * MIB


def ladder(header: int = 8, width: int = 8) -> Iterator[tuple[int, int]]:
    """Yield (bytes, entries) of each buffer that a list gets as it grows entry by entry.

    Examples
    --------
    >>> from itertools import islice
    >>> list(islice(ladder(8, 4), 5))
    [(12, 1), (16, 2), (32, 6), (64, 14), (128, 30)]
    """
    size = 0
    entries = 0
    while 2 * (header + (entries + 1) * width) < 2**32:
        size = grow(size, entries + 1, header, width)
        entries = (size - header) // width
        yield size, entries


def rung_for(entries: int, header: int = 8, width: int = 8) -> int:
    """Return the smallest buffer on the ladder with room for `entries`; 0 for none."""
    if entries == 0:
        return 0
    return next((size for size, room in ladder(header, width) if room >= entries), 1 << 62)


@dataclass
class FreeList:
    """The freed objects of one key, and the buffer that holds them."""

    arena: int
    key: int
    entry_bytes: int
    entries: list[int] = field(default_factory=list)
    buffer_bytes: int = 0
    peak: int = 0
    high: int = 0
    bumps: int = 0
    pops: int = 0
    pops_large: int = 0
    transitions: int = 0
    peaks_sum: int = 0
    leaked: int = 0
    last_peaks: deque[int] = field(default_factory=deque)
    empty_since: int | None = None
    in_budget: bool = False


@dataclass
class Chunks:
    """The chunks of one arena; `room` is what the current one has left."""

    room: int = 0
    chunks: int = 0
    chunk_bytes: int = 0
    slop_bytes: int = 0


class Arenas:
    """Arenas under one policy. Parameters are those of `pyallocx.Arena`, with its defaults."""

    def __init__(
        self,
        *,
        policy: str = "byte_cut",
        retain_bytes: float = 2048,
        retain_capacity: int = 500,
        window_episodes: int = 4,
        padding_entries: int = 0,
        tick_operations: int = 1000,
        idle_operations: int = 1000,
        budget_bytes: float = 65536,
        recycle_below_bytes: float = 400,
        chunk_bytes: int = 8192,
        chunk_header_bytes: int = 24,
        alignment_bytes: int = 8,
        list_header_bytes: int = 8,
        pointer_bytes: int = 8,
        large_capacity: int = 500,
    ) -> None:
        self.policy = policy
        self.retain_bytes = retain_bytes
        self.retain_capacity = retain_capacity
        self.window_episodes = window_episodes
        self.padding_entries = padding_entries
        self.tick_operations = tick_operations
        self.idle_operations = idle_operations
        self.budget_bytes = budget_bytes
        self.recycle_below_bytes = recycle_below_bytes
        self.chunk_bytes = chunk_bytes
        self.alignment_bytes = alignment_bytes
        self.chunk_first = self.rounded(chunk_header_bytes)
        self.header = list_header_bytes
        self.width = pointer_bytes
        self.large_capacity = large_capacity
        self.lists: dict[tuple[int, int, int], FreeList] = {}
        self.closed: list[FreeList] = []
        self.pools: dict[int, Chunks] = {}
        self.objects = 0
        self.operations = 0
        self.overhead_peak = 0
        self.counts = dict.fromkeys(
            (
                "list_mallocs",
                "list_reallocs",
                "list_frees",
                "list_frees_at_close",
                "list_bytes_moved",
                "chunk_mallocs",
            ),
            0,
        )
        self.histogram_peak: dict[int, int] = {}
        self.histogram_buffer: dict[int, int] = {}

    # --- the two calls -----------------------------------------------------------------------

    def alloc(self, arena: int, key: int, size_bytes: int) -> int:
        """Return the newest freed object of the key, or a new one from the chunks."""
        free_list = self.list_of(arena, key, size_bytes)
        if free_list.entries:
            taken = self.take(free_list)
            self.note_overhead()
        else:
            taken = self.bump(arena, free_list)
        self.operation_done()
        return taken

    def free(self, free_list: FreeList, taken: int) -> None:
        """Put an object on its list."""
        if self.policy == "intrusive" and free_list.entry_bytes >= self.recycle_below_bytes:
            free_list.leaked += 1
        else:
            self.make_room(free_list)
            free_list.entries.append(taken)
            free_list.peak = max(free_list.peak, len(free_list.entries))
            free_list.high = max(free_list.high, len(free_list.entries))
            self.note_overhead()
        self.operation_done()

    def close(self, arena: int) -> None:
        """End an arena: its chunks and the buffers of its lists go back."""
        for name in [name for name in self.lists if name[0] == arena]:
            free_list = self.lists.pop(name)
            self.counts["list_frees_at_close"] += free_list.buffer_bytes > 0
            self.closed.append(free_list)
        self.pools.pop(arena, None)

    # --- chunks ------------------------------------------------------------------------------

    def rounded(self, size_bytes: int) -> int:
        """Round up to the alignment."""
        return -(-size_bytes // self.alignment_bytes) * self.alignment_bytes

    @property
    def payload(self) -> int:
        """Bytes of objects in a standard chunk."""
        left = self.chunk_bytes - self.chunk_first
        return left - left % self.alignment_bytes

    def bump(self, arena: int, free_list: FreeList) -> int:
        """Take the next bytes of the current chunk, or of a new one."""
        pool = self.pools.setdefault(arena, Chunks())
        need = free_list.entry_bytes
        if need <= pool.room:
            pool.room -= need
        else:
            pool.chunks += 1
            self.counts["chunk_mallocs"] += 1
            if need <= self.payload:
                pool.slop_bytes += pool.room
                pool.chunk_bytes += self.chunk_bytes
                pool.room = self.chunk_bytes - self.chunk_first - need
            else:
                pool.chunk_bytes += self.chunk_first + need
        free_list.bumps += 1
        self.objects += 1
        return self.objects - 1

    # --- lists -------------------------------------------------------------------------------

    def list_of(self, arena: int, key: int, size_bytes: int) -> FreeList:
        """Return the list for a key and a rounded size; intrusive lists belong to sizes only."""
        entry_bytes = self.rounded(max(size_bytes, 1))
        name = (arena, 0 if self.policy == "intrusive" else key, entry_bytes)
        if name not in self.lists:
            self.lists[name] = FreeList(arena, name[1], entry_bytes)
        self.pools.setdefault(arena, Chunks())
        return self.lists[name]

    def capacity(self, free_list: FreeList) -> int:
        """Return how many entries the buffer has room for."""
        return max(0, free_list.buffer_bytes - self.header) // self.width

    def take(self, free_list: FreeList) -> int:
        """Pop the newest entry."""
        free_list.pops += 1
        free_list.pops_large += self.capacity(free_list) > self.large_capacity
        taken = free_list.entries.pop()
        if not free_list.entries:
            self.emptied(free_list)
        return taken

    def make_room(self, free_list: FreeList) -> None:
        """Give the buffer room for one entry more; an empty list leaves the policy's books."""
        free_list.empty_since = None
        free_list.in_budget = False
        if self.policy == "intrusive" or len(free_list.entries) < self.capacity(free_list):
            return
        self.resize(
            free_list,
            grow(free_list.buffer_bytes, len(free_list.entries) + 1, self.header, self.width),
        )

    def resize(self, free_list: FreeList, new_bytes: int) -> None:
        """Change the buffer and count the call that does it."""
        if new_bytes == free_list.buffer_bytes:
            return
        if free_list.buffer_bytes == 0:
            self.counts["list_mallocs"] += 1
        elif new_bytes == 0:
            self.counts["list_frees"] += 1
        else:
            self.counts["list_reallocs"] += 1
            self.counts["list_bytes_moved"] += self.header + len(free_list.entries) * self.width
        free_list.buffer_bytes = new_bytes

    # --- policies ----------------------------------------------------------------------------

    def emptied(self, free_list: FreeList) -> None:
        """Count the transition, then let the policy decide about the buffer."""
        free_list.transitions += 1
        free_list.peaks_sum += free_list.peak
        needed = rung_for(free_list.peak, self.header, self.width)
        self.histogram_peak[needed] = self.histogram_peak.get(needed, 0) + 1
        if self.policy != "intrusive":
            held = free_list.buffer_bytes
            self.histogram_buffer[held] = self.histogram_buffer.get(held, 0) + 1
        if not self.keeps(free_list):
            self.resize(free_list, 0)
        free_list.peak = 0

    def keeps(self, free_list: FreeList) -> bool:
        """Decide whether an emptied list keeps a buffer."""
        match self.policy:
            case "release":
                return False
            case "byte_cut":
                return free_list.buffer_bytes <= self.retain_bytes
            case "capacity_cut":
                return self.capacity(free_list) <= self.retain_capacity
            case "peak_window":
                free_list.last_peaks.append(free_list.peak)
                if len(free_list.last_peaks) > self.window_episodes:
                    free_list.last_peaks.popleft()
                wanted = max(free_list.last_peaks) + self.padding_entries
                self.resize(
                    free_list,
                    min(free_list.buffer_bytes, rung_for(wanted, self.header, self.width)),
                )
            case "age":
                free_list.empty_since = self.operations + 1
            case "budget":
                held = sum(x.buffer_bytes for x in self.lists.values() if x.in_budget)
                free_list.in_budget = held + free_list.buffer_bytes <= self.budget_bytes
                return free_list.in_budget
        return True

    def operation_done(self) -> None:
        """Move the clock, and wake the policies that watch it."""
        self.operations += 1
        if self.policy == "low_water" and self.operations % self.tick_operations == 0:
            for free_list in self.lists.values():
                unused = self.capacity(free_list) - free_list.high
                wanted = self.capacity(free_list) - math.ceil(unused / 2)
                self.resize(free_list, self.nearest(wanted, free_list))
                free_list.high = len(free_list.entries)
        if self.policy == "age":
            for free_list in self.lists.values():
                since = free_list.empty_since
                if since is not None and self.operations - since >= self.idle_operations:
                    free_list.empty_since = None
                    self.resize(free_list, 0)

    def nearest(self, wanted: int, free_list: FreeList) -> int:
        """Return the buffer nearest to `wanted` entries, large enough and no larger than now."""
        sizes = [(0, 0), *ladder(self.header, self.width)]
        fitting = [
            (abs(room - wanted), -size, size)
            for size, room in sizes
            if room >= free_list.high and size <= free_list.buffer_bytes
        ]
        return min(fitting)[2]

    # --- what is measured --------------------------------------------------------------------

    @property
    def overhead_bytes(self) -> int:
        """Unused list capacity in bytes, headers excluded."""
        if self.policy == "intrusive":
            return 0
        return self.width * sum(
            self.capacity(free_list) - len(free_list.entries) for free_list in self.lists.values()
        )

    def note_overhead(self) -> None:
        """Remember the highest overhead after a list operation."""
        self.overhead_peak = max(self.overhead_peak, self.overhead_bytes)

    def row(self) -> dict[str, Any]:
        """Return the counters, named as in a sweep."""
        every = [*self.lists.values(), *self.closed]
        alive = list(self.lists.values())
        pools = list(self.pools.values())
        freelist_bytes = sum(len(x.entries) * x.entry_bytes for x in alive)
        leaked_bytes = sum(x.leaked * x.entry_bytes for x in alive)
        chunk_bytes = sum(p.chunk_bytes for p in pools)
        return self.counts | {
            "pops": sum(x.pops for x in every),
            "pops_large": sum(x.pops_large for x in every),
            "transitions": sum(x.transitions for x in every),
            "bumps": sum(x.bumps for x in every),
            "overhead_bytes_end": self.overhead_bytes,
            "overhead_bytes_peak": self.overhead_peak,
            "chunk_bytes_end": chunk_bytes,
            "held_bytes_end": chunk_bytes + sum(x.buffer_bytes for x in alive),
            "freelist_bytes_end": freelist_bytes,
            "slop_bytes_end": sum(p.slop_bytes for p in pools),
            "live_bytes_end": sum(x.bumps * x.entry_bytes for x in alive)
            - freelist_bytes
            - leaked_bytes,
            "leaked_bytes_end": leaked_bytes,
            "arenas_end": len(pools),
            "lists_end": len(alive),
            "histogram_peak": dict(sorted(self.histogram_peak.items())),
            "histogram_buffer": dict(sorted(self.histogram_buffer.items())),
        }


def replay(
    trace: Any, *, max_object_bytes: int | None = None, arena_by: str = "auto", **params: Any
) -> dict[str, Any]:
    """Replay a `pyallocx.Trace`; return the row that `pyallocx.replay_arena` returns.

    Examples
    --------
    >>> import pyallocx as px
    >>> trace = px.synthesize(500, seed=1)
    >>> replay(trace)["pops"] == px.replay_arena(trace).row["pops"]
    True
    """
    arenas = Arenas(**params)
    limit = max_object_bytes or arenas.payload
    if arena_by == "auto":
        arena_by = "one" if trace.arena is None else "arena"
    if arena_by == "one":
        arenas.pools[0] = Chunks()
    # Each object's list and number in the arenas; a list of None is an object that bypassed them.
    where: dict[int, tuple[FreeList | None, int]] = {}
    bypassed = 0
    mean = mean_ns = 0
    events = len(trace)

    def place(i: int, arena: int | None) -> tuple[FreeList | None, int]:
        nonlocal bypassed
        size = int(trace.size_bytes[i])
        if size > limit:
            bypassed += 1
            return None, 0
        if arena is None:
            column = {"one": None, "thread": trace.thread, "arena": trace.arena}[arena_by]
            arena = 0 if column is None else int(column[i])
        key = 0 if trace.key is None else int(trace.key[i])
        free_list = arenas.list_of(arena, key, size)
        return free_list, arenas.alloc(arena, key, size)

    for i in range(events):
        op, thing = int(trace.op[i]), int(trace.object[i])
        if op == 0:
            where[thing] = place(i, None)
        elif op == 1:
            free_list, taken = where.pop(thing)
            if free_list is not None:
                arenas.free(free_list, taken)
        elif op == 2:
            free_list, taken = where[thing]
            size = int(trace.size_bytes[i])
            key = 0 if trace.key is None or arenas.policy == "intrusive" else int(trace.key[i])
            same = (
                size > limit
                if free_list is None
                else size <= limit
                and (key, arenas.rounded(max(size, 1))) == (free_list.key, free_list.entry_bytes)
            )
            if same:
                bypassed += free_list is None
            else:
                where[thing] = place(i, None if free_list is None else free_list.arena)
                if free_list is not None:
                    arenas.free(free_list, taken)
        else:
            arenas.close(int(trace.arena[i]))
        mean += arenas.overhead_bytes
        if trace.time_ns is not None and i + 1 < events:
            mean_ns += arenas.overhead_bytes * (int(trace.time_ns[i + 1]) - int(trace.time_ns[i]))
    row = arenas.row()
    row["bypassed"] = bypassed
    row["overhead_bytes_mean"] = mean / max(events, 1)
    span = 0 if trace.time_ns is None or not events else int(trace.time_ns[-1] - trace.time_ns[0])
    row["overhead_bytes_mean_ns"] = mean_ns / span if span else math.nan
    row["list_calls"] = row["list_mallocs"] + row["list_reallocs"] + row["list_frees"]
    return row
