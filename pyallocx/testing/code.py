"""Code heaps under test: parameters, a state machine, and the hunt for wrong split arithmetic."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import hypothesis
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from pyallocx import _core
from pyallocx._codenotes import LEAST_LIMITS
from pyallocx._core import CorruptionError
from pyallocx.code import CODE_POLICIES, HISTORICAL, MIN_HOLES, WX_MODES
from pyallocx.reference.codeheap import CodeHeap, min_hole_bytes

__all__ = [
    "CodeBlocks",
    "CodeHeapMachine",
    "SplitFailure",
    "code_parameters",
    "find_split_failure",
    "least_limit",
]

_U64_MAX = 2**64 - 1


def least_limit(policy: str, header: int, least: int) -> int:
    """Return the smallest byte limit that is right for a policy; 0: it knows no limit.

    Examples
    --------
    >>> [least_limit(p, 20, 32) for p in ("byte_limit", "halving", "halving_payload", "scan")]
    [83, 84, 121, 0]
    """
    return LEAST_LIMITS[policy](header, least) if policy in LEAST_LIMITS else 0


@st.composite
def code_parameters(
    draw: st.DrawFn, policies: tuple[str, ...] = CODE_POLICIES, *, sound: bool = True
) -> dict[str, Any]:
    """Draw parameters of a code heap, small enough that short runs reach every edge.

    Parameters
    ----------
    policies : tuple of str
        Policies to choose from.
    sound : bool
        Only byte limits and smallest holes with which the policy is right.
    """
    policy = draw(st.sampled_from(policies))
    header = draw(st.sampled_from((20, 40, 16, 0, 7) if policy in HISTORICAL else (0, 16, 20)))
    least = draw(st.sampled_from((9, 32, 12, 38, 64)))
    page = draw(st.sampled_from((64, 1, 256, 4096)))
    limit = 0
    if policy in HISTORICAL:
        lowest = least_limit(policy, header, least) if sound else 1
        if lowest:
            offset = draw(st.sampled_from((None, 0, 1, 7, 64, 300)))
            limit = 0 if offset is None else lowest + offset
    # A fresh block around the limit, around where the tiny block starts, or whatever.
    whole = 2 * header + max(least, limit)
    chunk = whole + draw(
        st.sampled_from((0, 1, header + least, 2 * header + least, 150, 400, 1500, 5000))
    )
    params: dict[str, Any] = {
        "policy": policy,
        "header_bytes": header,
        "min_payload_bytes": least,
        "page_bytes": page,
        "chunk_bytes": -(-chunk // page) * page,
        "pointer_bytes": draw(st.sampled_from((4, 8))),
        "wx": draw(st.sampled_from(WX_MODES)),
        "reach_bytes": draw(st.sampled_from((0, 1000, 20000))),
        "keep_bytes": draw(st.sampled_from((math.inf, 0, 600, 9000))),
        "keep_operations": draw(st.sampled_from((0, 1, 5))),
        "keep_chunks": draw(st.sampled_from((math.inf, 0, 1, 2))),
    }
    if policy not in HISTORICAL and draw(st.booleans()):
        # Nothing but cutting and joining, for which the core has ways of its own.
        params |= {"header_bytes": 0, "reach_bytes": 0, "keep_operations": 0}
        params |= {"keep_bytes": math.inf, "keep_chunks": math.inf}
    if draw(st.booleans()):
        del params["keep_chunks"]  # the design's own
    if policy in HISTORICAL:
        params["min_hole"] = draw(st.sampled_from(MIN_HOLES[2:] if sound else MIN_HOLES))
        params["byte_limit"] = limit
    else:
        params["granule_bytes"] = draw(st.sampled_from((1, 8, 16, 64)))
        params["min_rest_bytes"] = draw(st.sampled_from((0, 1, 64, 100)))
    if policy == "partition":
        params["partitions"] = draw(st.sampled_from((1, 2, 3)))
    if policy == "bump":
        params["max_code_bytes"] = draw(st.sampled_from((1, 3000, 20000)))
    return params


class CodeBlocks:
    """The core's code heap on modelled pages, with the parameters of a sweep.

    A block is ``(number, address of its payload, bytes of its payload)``.
    """

    def __init__(self, **params: Any) -> None:
        names = {"policy": CODE_POLICIES, "min_hole": MIN_HOLES, "wx": WX_MODES}
        self.core = _core.CodeBlocks(
            {
                name: names[name].index(value)
                if name in names
                else _U64_MAX
                if value == math.inf
                else int(value)
                for name, value in params.items()
            }
        )

    def __getattr__(self, name: str) -> Any:
        return getattr(self.core, name)


class CodeHeapMachine(RuleBasedStateMachine):
    """Drives a code heap and the twin through the same calls and compares all that can be seen.

    Attributes
    ----------
    make : callable
        Makes the heap under test: an object with the methods of `CodeBlocks`.
    parameters : strategy
        Draws its parameters.
    """

    make: Callable[..., Any] = staticmethod(CodeBlocks)
    parameters: st.SearchStrategy[dict[str, Any]] = code_parameters()

    @initialize(data=st.data())
    def start(self, data: st.DataObject) -> None:
        """Make both heaps."""
        self.params = data.draw(type(self).parameters, label="parameters")
        self.heap = self.make(**self.params)
        self.twin = CodeHeap(**self.params)
        # Number of the block under test, and the twin's block.
        self.live: list[tuple[int, Any]] = []
        self.allocs = 0

    def size(self, share: int) -> int:
        """Return a size up to more than a chunk of small parameters."""
        return (0, 1, self.twin.least, self.twin.granule, 3 * self.twin.granule, 100, 700, 2000)[
            share % 8
        ]

    def same_place(self, found: tuple[int, int, int], block: Any) -> None:
        """Demand that a block stands where the twin's stands."""
        number, address, payload = found
        assert address == block.start + self.twin.header, "another place"
        assert payload == self.twin.payload(block), "another size"
        self.live.append((number, block))

    def alloc(self, size: int) -> tuple[int, int, int]:
        """Take a block, and count it."""
        found: tuple[int, int, int] = self.heap.alloc(size)
        self.allocs += 1
        return found

    @rule(share=st.integers(0, 7), times=st.integers(1, 4))
    def allocate(self, share: int, times: int) -> None:
        """Take blocks; each is as large as its policy promises, out of a listed one if any."""
        twin = self.twin
        for _ in range(times):
            listed = any(row["listed"] for row in self.heap.blocks())
            maps, flushes = twin.counters["chunk_maps"], twin.counters["flushes"]
            size = 0 if twin.historical else self.size(share)
            found = self.alloc(size)
            block = twin.alloc(size)
            if twin.counters["flushes"] != flushes:
                self.live.clear()
            self.same_place(found, block)
            if twin.historical:
                assert found[2] >= twin.least, "a block is too small"
                if twin.limit and twin.policy in LEAST_LIMITS:
                    assert found[2] <= twin.limit, "a block is larger than the limit"
                grown = twin.counters["chunk_maps"] - maps
                assert grown == 0 or not listed or twin.policy == "scan", "a chunk too many"
                assert grown <= (2 if twin.wx == "dual" else 1)
            else:
                assert found[2] >= size, "a block is smaller than its request"

    @precondition(lambda self: self.live)
    @rule(choice=st.integers(0, 99), times=st.integers(1, 4))
    def release(self, choice: int, times: int) -> None:
        """Free some blocks."""
        for _ in range(min(times, len(self.live))):
            number, block = self.live.pop(choice % len(self.live))
            self.heap.free(number)
            self.twin.free(block)

    @precondition(lambda self: self.twin.historical)
    @rule(
        choice=st.integers(0, 99),
        low=st.integers(0, 300),
        hole=st.integers(0, 400),
        kind=st.integers(0, 2),
        times=st.integers(1, 4),
    )
    def give_holes_back(self, choice: int, low: int, hole: int, kind: int, times: int) -> None:
        """Give the middle, the low end, the high end or all of some blocks back.

        Holes from the smallest that is cut on, inside of one pointer, or of any size.
        """
        for n in range(times):
            if not self.live:
                self.allocate(0, 1)
            at, bytes_of_it = low + 5 * n, hole + 7 * n
            if (kind + n) % 3 == 0:
                bytes_of_it = self.twin.hole_least + bytes_of_it % 32
            elif (kind + n) % 3 == 1:
                at, bytes_of_it = at // 8 * 8 + 1 + at % 2, 1 + bytes_of_it % 4
            self.give_a_hole_back(choice + n, at, bytes_of_it)

    def give_a_hole_back(self, choice: int, low: int, hole: int) -> None:
        """Give a hole of a block back: no byte is lost, and what is free is of use."""
        number, block = self.live.pop(choice % len(self.live))
        if block.code_bytes:  # a hole is where no code is, and `shrink` has said where it is
            self.live.append((number, block))
            return
        start = block.start + self.twin.header
        room = block.end - start
        low = min(low, room) if low % 4 else 0
        high = low + min(hole, room - low) if hole % 8 else room
        rows = self.heap.blocks()
        before = sum(row["payload_bytes"] for row in rows)
        dead = sum(row["dead"] for row in rows)
        blocks = len(rows)
        pieces = self.heap.add_remainder(number, start + low, start + high)
        code_list: list[Any] = []
        self.twin.add_remainder(code_list, block, start + low, start + high)
        assert len(pieces) == len(code_list)
        for piece, kept in zip(pieces, code_list, strict=True):
            self.same_place(piece, kept)
        rows = self.heap.blocks()
        more = (len(rows) - blocks) * self.twin.header
        assert sum(row["payload_bytes"] for row in rows) + more == before, "bytes were lost"
        assert sum(row["dead"] for row in rows) <= dead, "a hole is free, and of no use"

    @precondition(lambda self: self.live)
    @rule(choice=st.integers(0, 99), length=st.integers(1, 4))
    def execute(self, choice: int, length: int) -> None:
        """Make the chunks of a code list executable: all of them are, after it."""
        start = choice % len(self.live)
        code_list = self.live[start : start + length]
        for number, block in code_list:
            self.heap.mark_exec(number)
            self.twin.mark(self.twin.chunk_of(block), True)
        chunks = {self.twin.chunks.index(self.twin.chunk_of(block)) for _, block in code_list}
        rows = self.heap.blocks()
        assert {row["chunk"] for row in rows} >= chunks
        for row in rows:
            assert row["executable"] or row["chunk"] not in chunks, "a chunk is not executable"

    @precondition(lambda self: self.live)
    @rule(choice=st.integers(0, 99), keep=st.integers(0, 400), whole=st.booleans())
    def shrink(self, choice: int, keep: int, whole: bool) -> None:
        """Keep the low bytes of a block: it stays where it is, and no byte is lost."""
        number, block = self.live[choice % len(self.live)]
        keep = self.twin.payload(block) if whole else min(keep, self.twin.payload(block))
        before = sum(row["payload_bytes"] for row in self.heap.blocks())
        blocks = len(self.heap.blocks())
        found = self.heap.shrink(number, keep)
        self.twin.shrink(block, keep)
        assert found == (number, block.start + self.twin.header, self.twin.payload(block))
        assert found[2] >= keep, "bytes that were to be kept are gone"
        rows = self.heap.blocks()
        more = (len(rows) - blocks) * self.twin.header
        assert sum(row["payload_bytes"] for row in rows) + more == before, "bytes were lost"

    @rule(all_of_it=st.booleans())
    def sweep(self, all_of_it: bool) -> None:
        """Give empty chunks back, or everything is freed first: then nothing is left."""
        if all_of_it:
            while self.live:
                self.release(0, 4)
            if self.twin.joins:
                for row in self.heap.blocks():
                    whole = row["chunk_bytes"] - 2 * self.twin.header
                    assert (row["offset"], row["payload_bytes"]) == (0, whole), "not one block"
        kept = [row for row in self.heap.blocks() if not row["free"]]
        self.heap.sweep()
        self.twin.sweep()
        left = self.heap.blocks()
        assert [row["payload_bytes"] for row in left if not row["free"]] == [
            row["payload_bytes"] for row in kept
        ]
        used = {row["chunk"] for row in left if not row["free"]}
        assert used == {row["chunk"] for row in left}, "an empty chunk is left"

    @rule()
    def start_again(self) -> None:
        """Give everything back."""
        self.heap.reset()
        self.twin.reset()
        self.live.clear()
        assert self.heap.blocks() == []

    @rule(share=st.integers(0, 7), n=st.integers(1, 3), books=st.booleans())
    def backing_fails(self, share: int, n: int, books: bool) -> None:
        """See that an alloc that is refused a call changes nothing."""
        twin = self.twin
        # Retention keeps what it cannot give back, and says nothing; bump has flushed before it
        # asks; of two mappings one may have been made and taken back. The twin knows no refusals.
        keeps_all = twin.keep_bytes == twin.keep_chunks == math.inf and not twin.keep_operations
        if twin.policy == "bump" or not keeps_all:
            return
        if twin.wx == "dual" and not books:
            return
        before = self.heap.blocks(), self.heap.counters()
        self.heap.fail_backing_call(n, books)
        size = 0 if twin.historical else self.size(share)
        try:
            found = self.alloc(size)
        except MemoryError:
            self.heap.fail_backing_call(0, books)
            after = self.heap.counters()
            # The search was made, though in vain, and bitmap has learnt from it.
            if twin.policy == "bitmap":
                twin.search_bitmap(twin.rounded(size))
            twin.counters["list_scan_steps"] = after["list_scan_steps"]
            assert after | {"list_scan_steps": before[1]["list_scan_steps"]} == before[1]
            assert self.heap.blocks() == before[0]
        else:
            self.heap.fail_backing_call(0, books)
            self.same_place(found, twin.alloc(size))

    @invariant()
    def agrees(self) -> None:
        """Every block and every counter agrees with the twin, and the check is content."""
        if not hasattr(self, "heap"):
            return
        self.heap.check()
        twin = self.twin
        rows = self.heap.blocks()
        assert rows == blocks_of(twin)
        counted = self.heap.counters()
        expected = {name: twin.counters[name] for name in counted}
        expected |= {
            "vma_count_peak": twin.vma_peak,
            "mapped_bytes": twin.mapped_bytes,
            "code_bytes": twin.code_bytes,
        }
        assert counted == expected
        assert_sound(rows, twin.header, twin.least_listed, joins=twin.joins)
        executable = sum(chunk.executable for chunk in twin.chunks) + twin.executable_gone
        assert counted["flips_to_exec"] - counted["flips_to_write"] == executable
        assert counted["flips_to_write"] <= self.allocs, "a flip to write without an alloc"


def blocks_of(heap: CodeHeap) -> list[dict[str, int]]:
    """Return the twin's blocks as `pyallocx.CodeReplay` has them."""
    return [
        {
            "chunk": number,
            "chunk_bytes": chunk.chunk_bytes,
            "offset": block.start - chunk.base,
            "header_bytes": heap.header,
            "payload_bytes": heap.payload(block),
            "code_bytes": block.code_bytes,
            "free": int(block.free),
            "listed": int(block.bin is not None),
            "dead": int(block.free and heap.payload(block) < heap.least_listed),
            "executable": int(chunk.executable or heap.wx in ("dual", "rwx")),
        }
        for number, chunk in enumerate(heap.chunks)
        for block in chunk.blocks
    ]


def assert_sound(
    rows: list[dict[str, int]], header: int, least: int, *, joins: bool = True
) -> None:
    """Demand what must hold of every heap at every moment: tiling, merging, conservation."""
    chunks: dict[int, list[dict[str, int]]] = {}
    for row in rows:
        chunks.setdefault(row["chunk"], []).append(row)
    for blocks in chunks.values():
        at = 0
        for row in blocks:
            assert row["offset"] == at, "blocks do not tile their chunk"
            assert row["code_bytes"] <= row["payload_bytes"]
            at += header + row["payload_bytes"]
        assert at + header == blocks[0]["chunk_bytes"], "bytes of a chunk are missing"
        for lower, higher in pairwise(blocks):
            assert not (joins and lower["free"] and higher["free"]), "free neighbours"
        for row in blocks:
            assert not row["listed"] or (row["free"] and row["payload_bytes"] >= least)


# --- the hunt -------------------------------------------------------------------------------------


@dataclass(frozen=True)
class SplitFailure:
    """The smallest parameters found with which a split goes wrong, and how.

    Attributes
    ----------
    header_bytes, min_payload_bytes, byte_limit, payload_bytes : int
        H, M, L, and S: the payload of the free block that was split (of the used block that was
        given a hole, where `hole` is not None).
    hole : tuple of int or None
        Start and end of the hole, from the start of the payload.
    what : str
        What is wrong.
    blocks : list of dict
        The broken chunk, as in `pyallocx.CodeReplay`.
    """

    header_bytes: int
    min_payload_bytes: int
    byte_limit: int
    payload_bytes: int
    hole: tuple[int, int] | None
    what: str
    blocks: list[dict[str, int]]


def _split(policy: str, h: int, m: int, limit: int, payload: int) -> SplitFailure | None:
    """Take one block out of a free one of `payload` bytes, and look at the pieces."""
    heap = CodeBlocks(
        policy=policy, header_bytes=h, min_payload_bytes=m, byte_limit=limit,
        chunk_bytes=payload + 2 * h, page_bytes=1,
    )  # fmt: skip
    got = heap.alloc()[2]
    blocks = heap.blocks()
    what = None
    try:
        heap.check()
    except CorruptionError as error:
        what = str(error)
    if what is None and not m <= got <= limit:
        what = f"a block of {got} bytes was returned"
    if what is None and any(row["payload_bytes"] < m for row in blocks):
        what = "a piece is too small"
    return None if what is None else SplitFailure(h, m, limit, payload, None, what, blocks)


def _cut_hole(
    rule: str, h: int, m: int, pointer: int, start: int, hole: int
) -> SplitFailure | None:
    """Give a hole of a whole block back, and look at the pieces."""
    payload = start + hole + 2 * (h + m)
    payload += -(payload + 2 * h) % pointer
    heap = CodeBlocks(
        policy="whole_block", min_hole=rule, header_bytes=h, min_payload_bytes=m,
        pointer_bytes=pointer, chunk_bytes=payload + 2 * h, page_bytes=1,
    )  # fmt: skip
    number, address, _ = heap.alloc()
    heap.add_remainder(number, address + start, address + start + hole)
    blocks = heap.blocks()
    what = None
    try:
        heap.check()
    except CorruptionError as error:
        what = str(error)
    if what is None and any(row["free"] and row["payload_bytes"] < m for row in blocks):
        what = "a free block is too small to be listed"
    place = (start, start + hole)
    return None if what is None else SplitFailure(h, m, 0, payload, place, what, blocks)


def find_split_failure(
    policy: str = "byte_limit",
    min_hole: str | None = None,
    *,
    limit: Callable[[int, int], int] = LEAST_LIMITS["byte_limit"],
    settings: hypothesis.settings | None = None,
) -> SplitFailure | None:
    """Hunt for the smallest parameters with which a policy's split goes wrong.

    Parameters
    ----------
    policy : str
        Whose limited alloc is looked at.
    min_hole : str, optional
        Look at this smallest hole of add_remainder instead: holes at the low end and in the middle
        of a block, down to a part of one pointer.
    limit : callable
        The smallest byte limit that is tried, from H and M. By default the smallest with which any
        policy can be right: two payloads of M and a header.
    settings : hypothesis.settings, optional
        How many examples are tried; by default those of the current profile.

    Returns
    -------
    SplitFailure or None
        None where nothing was found.

    Examples
    --------
    >>> failure = find_split_failure("halving")
    >>> h, m = failure.header_bytes, failure.min_payload_bytes
    >>> failure.byte_limit == h + 2 * m - 1
    True
    >>> find_split_failure("byte_limit") is None
    True
    """

    def fails(drawn: tuple[int, int, int]) -> SplitFailure | None:
        h, m, more = drawn
        if min_hole is None:
            bytes_limit = limit(h, m) + more
            sizes = range(bytes_limit + 1, bytes_limit + 2 * h + 2 * m + 2)
            return next(filter(None, (_split(policy, h, m, bytes_limit, s) for s in sizes)), None)
        pointer = 8 if more % 2 else 4
        h, m = -(-h // pointer) * pointer, -(-m // pointer) * pointer
        least = min_hole_bytes(min_hole, h, m)
        places = [(1, n) for n in range(1, pointer - 1)]
        places += [(start, least + n) for start in (0, pointer) for n in range(0, h + 1, pointer)]
        tried = (_cut_hole(min_hole, h, m, pointer, *place) for place in places)
        return next(filter(None, tried), None)

    numbers = st.tuples(st.integers(1, 48), st.integers(1, 48), st.integers(0, 40))
    own = hypothesis.settings(
        settings or hypothesis.settings(), database=None, deadline=None,
        suppress_health_check=list(hypothesis.HealthCheck),
    )  # fmt: skip
    try:
        found = hypothesis.find(numbers, lambda drawn: fails(drawn) is not None, settings=own)
    except hypothesis.errors.NoSuchExample:
        return None
    return fails(found)
