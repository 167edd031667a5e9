"""The plain-Python twin of the code heap in ``csrc/core/codeheap``.

A heap is a list of chunks, a chunk is a list of blocks; free lists are lists, newest first. Nothing
here is clever: it is the oracle of the property tests, and readable as an explanation of each
policy. Addresses are those of the modelled pages: they only ever rise, so the order of age is the
order of addresses.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from pyallocx._core import CorruptionError

__all__ = ["Block", "Chunk", "CodeHeap", "min_hole_bytes", "size_bin"]

_MODEL_BASE = 0x10000
_MODEL_PAGE = 4096
_WILDERNESS = -1
_VICTIM = -1
_LARGEST_BASE = 64 << 20

#: header_bytes, granule_bytes and min_rest_bytes of each design.
DESIGNS = {
    "scan": (40, 1, 0),
    "whole_block": (40, 1, 0),
    "partition": (40, 1, 0),
    "halving": (40, 1, 0),
    "halving_payload": (40, 1, 0),
    "byte_limit": (40, 1, 0),
    "first_fit": (16, 8, 64),
    "best_fit": (16, 128, 768),
    "bitmap": (0, 64, 0),
    "pack": (0, 64, 0),
    "buckets": (0, 64, 0),
    "bump": (0, 16, 0),
    "segregated": (0, 16, 64),
}
HISTORICAL = tuple(DESIGNS)[:6]


def u64(number: int) -> int:
    """Wrap as unsigned arithmetic does: wrong policies must go wrong in the same way."""
    return number % 2**64


def min_hole_bytes(rule: str, header: int, least: int) -> int:
    """Return the smallest hole that add_remainder cuts.

    Examples
    --------
    >>> [min_hole_bytes(rule, 20, 32) for rule in ("max(M,2H)", "H+M", "2H+M", "3H+M", "4H+3M")]
    [40, 52, 72, 92, 176]
    """
    return {
        "max(M,2H)": max(least, 2 * header),
        "H+M": header + least,
        "2H+M": 2 * header + least,
        "3H+M": 3 * header + least,
        "4H+3M": 4 * header + 3 * least,
    }[rule]


@dataclass(eq=False)
class Block:
    """From its header, at `start`, to the next one's, at `end`."""

    start: int
    end: int
    free: bool = True
    code_bytes: int = 0
    bin: int | None = None  # the free list it stands on


@dataclass(eq=False)
class Chunk:
    """Blocks from `base` on; then the terminator, a header alone."""

    base: int
    chunk_bytes: int
    empty_since: int
    blocks: list[Block] = field(default_factory=list)
    executable: bool = False
    pool: int | None = None
    # bitmap: no free block is known to be larger.
    bound: float = math.inf

    @property
    def empty(self) -> bool:
        """Whether none of its blocks is used."""
        return all(block.free for block in self.blocks)


class CodeHeap:
    """A code heap. Parameters are those of a sweep of `px.replay_code`, with their defaults.

    Blocks of the historical policies are taken with ``alloc()``, those of today's designs with
    ``alloc(size_bytes)``.
    """

    def __init__(
        self,
        *,
        policy: str = "segregated",
        chunk_bytes: int = 65536,
        byte_limit: int = 0,
        min_hole: str = "3H+M",
        wx: str = "flip",
        header_bytes: int | None = None,
        min_payload_bytes: int = 32,
        pointer_bytes: int = 8,
        granule_bytes: int | None = None,
        min_rest_bytes: int | None = None,
        page_bytes: int = 4096,
        partitions: int = 16,
        max_code_bytes: int = 2 << 20,
        reach_bytes: int = 0,
        keep_bytes: float = math.inf,
        keep_operations: int = 0,
        keep_chunks: float | None = None,
    ) -> None:
        header, granule, rest = DESIGNS[policy]
        self.policy = policy
        self.chunk_bytes = chunk_bytes
        self.limit = byte_limit
        self.wx = wx
        self.header = header if header_bytes is None else header_bytes
        self.least = min_payload_bytes
        self.pointer = pointer_bytes
        self.granule = granule if granule_bytes is None else granule_bytes
        self.min_rest = rest if min_rest_bytes is None else min_rest_bytes
        self.page = page_bytes
        self.partitions = partitions
        self.max_code = max_code_bytes
        self.reach = reach_bytes
        self.keep_bytes = keep_bytes
        self.keep_operations = keep_operations
        own_keep = 1 if policy == "bitmap" else math.inf
        self.keep_chunks = own_keep if keep_chunks is None else keep_chunks
        self.min_hole = min_hole
        self.hole_least = min_hole_bytes(min_hole, self.header, self.least)
        self.historical = policy in HISTORICAL
        self.joins = policy not in ("buckets", "bump")
        # Payload from which a free block is listed; None: whatever its size (or never).
        self.lists_by_size = policy not in ("scan", "bitmap", "pack", "buckets", "bump")
        self.chunks: list[Chunk] = []  # oldest first
        self.lists: dict[int, list[Block]] = {}  # newest first
        self.counters: Counter[str] = Counter()
        self.cursor: Block | None = None
        self.operations = 0
        self.executable_gone = 0  # chunks that were executable when they left
        self.next_address = _MODEL_BASE
        self.mapped_peak = self.vma_peak = 0

    # --- what can be seen

    def payload(self, block: Block) -> int:
        """Return the bytes behind a block's header."""
        return u64(block.end - block.start - self.header)

    def blocks(self) -> Iterator[tuple[Chunk, Block]]:
        """Visit all blocks in the order of addresses."""
        return ((chunk, block) for chunk in self.chunks for block in chunk.blocks)

    @property
    def mapped_bytes(self) -> int:
        """Bytes of all chunks."""
        return sum(chunk.chunk_bytes for chunk in self.chunks)

    @property
    def empty_bytes(self) -> int:
        """Bytes of the empty chunks."""
        return sum(chunk.chunk_bytes for chunk in self.chunks if chunk.empty)

    @property
    def code_bytes(self) -> int:
        """Bytes of code in all blocks."""
        return sum(block.code_bytes for _, block in self.blocks())

    @property
    def least_listed(self) -> int:
        """Payload from which a free block is of use."""
        if self.historical:
            return self.least
        return self.granule if self.joins else 0

    def chunk_of(self, block: Block) -> Chunk:
        """Return the chunk of a block."""
        return next(chunk for chunk in self.chunks if block in chunk.blocks)

    def check(self) -> None:
        """Raise `CorruptionError` where blocks do not tile their chunk or lists are wrong."""
        listed = [block for each in self.lists.values() for block in each]
        for chunk in self.chunks:
            at, before = chunk.base, None
            for block in chunk.blocks:
                if block.start != at or block.end - block.start < self.header:
                    raise CorruptionError("blocks do not tile their chunk")
                if not block.free and block.code_bytes > self.payload(block):
                    raise CorruptionError("more code than room")
                if self.joins and before is not None and before.free and block.free:
                    raise CorruptionError("two neighbouring blocks are free")
                should = block.free and self.payload(block) >= self.least_listed
                if self.lists_by_size and (block.bin is not None) != should:
                    raise CorruptionError("a block is listed, or not, though it should")
                if (block in listed) != (block.bin is not None):
                    raise CorruptionError("a block is on no list, though it says so")
                at, before = block.end, block
            if at != chunk.base + chunk.chunk_bytes - self.header:
                raise CorruptionError("blocks do not reach the terminator")

    # --- chunks

    def map(self, size: int) -> int:
        """Ask the system for memory, which is at an address of its own."""
        address = -(-self.next_address // _MODEL_PAGE) * _MODEL_PAGE
        self.next_address = address + size
        self.counters["chunk_maps"] += 1
        return address

    def new_chunk(self, size: int) -> None:
        """Make a chunk for a request, or as many as the policy makes at once."""
        wanted = self.chunk_wanted(size)
        wanted = -(-wanted // self.page) * self.page
        pieces = self.partitions if self.policy == "partition" else 1
        base = self.map(wanted * pieces)
        if self.wx == "dual":
            self.map(wanted * pieces)
            self.counters["file_calls"] += 3  # made, given its length, closed
        for i in range(pieces):
            chunk = Chunk(base + i * wanted, wanted, self.operations + 1)
            chunk.blocks = [Block(chunk.base, chunk.base + wanted - self.header)]
            self.chunks.append(chunk)
            self.note_vmas()
            self.fresh(chunk.blocks[0])
        self.mapped_peak = max(self.mapped_peak, self.mapped_bytes)

    def chunk_wanted(self, size: int) -> int:
        """Return the bytes of a new chunk for a request."""
        if self.historical:
            return self.chunk_bytes
        needed = self.rounded(size)
        if self.policy == "buckets":
            needed = 1 << (needed - 1).bit_length()
        if self.policy == "bitmap":
            return self.bitmap_chunk(needed)
        return max(self.chunk_bytes, needed + 2 * self.header)

    def bitmap_chunk(self, wanted: int) -> int:
        """Twice the newest chunk of the pool, or else the first size; or a multiple of that."""
        pool = self.pool_of(wanted)
        last = [chunk.chunk_bytes for chunk in self.chunks if chunk.pool == pool]
        size = last[-1] if last else self.chunk_bytes
        size = max(size, min(2 * size, _LARGEST_BASE))
        needed = wanted + 2 * self.header
        return size if needed <= size else -(-needed // self.chunk_bytes) * self.chunk_bytes

    def pool_of(self, wanted: int) -> int:
        """Sizes that are multiples of 4 or 2 granules live apart from the others."""
        return next(i for i in (4, 2, 1) if wanted % (i * self.granule) == 0)

    def drop_chunk(self, chunk: Chunk) -> None:
        """Give a chunk back, whatever its blocks are."""
        self.counters["chunk_unmaps"] += 2 if self.wx == "dual" else 1
        self.executable_gone += chunk.executable
        for block in chunk.blocks:
            if block.bin is not None:
                self.unlist(block)
            if block is self.cursor:
                self.cursor = None
        self.chunks.remove(chunk)

    def reset(self) -> None:
        """Give all chunks back. Nobody searches a list for the blocks of each."""
        for chunk in self.chunks:
            for block in chunk.blocks:
                block.bin = None
        self.lists.clear()
        for chunk in self.chunks[:]:
            self.drop_chunk(chunk)

    def sweep(self) -> None:
        """Give the empty chunks back."""
        for chunk in reversed(self.chunks[:]):
            if chunk.empty:
                self.drop_chunk(chunk)

    def retain(self) -> None:
        """Give back what the retention of empty chunks does not keep, newest first."""
        for chunk in reversed(self.chunks[:]):
            old = 0 < self.keep_operations <= self.operations - chunk.empty_since
            like = sum(each.empty and each.pool == chunk.pool for each in self.chunks)
            too_many = self.empty_bytes > self.keep_bytes or like > self.keep_chunks
            if chunk.empty and (too_many or old or self.own_pages(chunk.chunk_bytes)):
                self.drop_chunk(chunk)

    def note_vmas(self) -> None:
        """Neighbouring chunks of one permission are one VMA."""
        vmas = 0
        for i, chunk in enumerate(self.chunks):
            before = self.chunks[i - 1] if i else None
            vmas += (
                before is None
                or before.base + before.chunk_bytes != chunk.base
                or (self.wx == "flip" and before.executable != chunk.executable)
            )
        # A second mapping has as many.
        self.vma_peak = max(self.vma_peak, 2 * vmas if self.wx == "dual" else vmas)

    def mark(self, chunk: Chunk, executable: bool) -> None:
        """Flip a chunk's permission, where it has another."""
        if self.wx in ("rwx", "dual") or chunk.executable == executable:
            return
        chunk.executable = executable
        self.counters["flips_to_exec" if executable else "flips_to_write"] += 1
        if self.wx == "flip":
            self.counters["protect_calls"] += 1
            self.counters["pages_flipped"] += chunk.chunk_bytes // self.page
            self.note_vmas()

    # --- blocks and lists

    def cut(self, block: Block, at: int) -> Block:
        """Cut a block in two; return the high part."""
        high = Block(at, block.end)
        block.end = at
        blocks = self.chunk_of(block).blocks
        blocks.insert(blocks.index(block) + 1, high)
        self.counters["splits"] += 1
        return high

    def join(self, block: Block) -> None:
        """Join a block with the one above it."""
        blocks = self.chunk_of(block).blocks
        gone = blocks.pop(blocks.index(block) + 1)
        block.end = gone.end
        if self.cursor is gone:
            self.cursor = block
        self.counters["coalesces"] += 1

    def use(self, block: Block, code_bytes: int) -> Block:
        """Make a free block a used one."""
        block.free = False
        block.code_bytes = code_bytes
        return block

    def unuse(self, block: Block) -> None:
        """Make a used block a free one, of no list."""
        chunk = self.chunk_of(block)
        block.free = True
        block.code_bytes = 0
        if chunk.empty:
            chunk.empty_since = self.operations + 1

    def push(self, block: Block, bin: int = 0) -> None:
        """Put a block at the head of a list."""
        block.bin = bin
        self.lists.setdefault(bin, []).insert(0, block)

    def unlist(self, block: Block) -> Block | None:
        """Take a block off its list; return the one before it on a list that is linked one way."""
        assert block.bin is not None
        entries = self.lists[block.bin]
        at = entries.index(block)
        if self.historical:
            self.counters["list_scan_steps"] += at
        before = entries[at - 1] if at else None
        del entries[at]
        if not entries:
            del self.lists[block.bin]
        block.bin = None
        return before

    def list_by_address(self, block: Block) -> None:
        """Put a block where its address belongs."""
        entries = self.lists.setdefault(0, [])
        at = sum(entry.start < block.start for entry in entries)
        entries.insert(at, block)
        block.bin = 0
        self.counters["list_scan_steps"] += at

    def neighbours(self, block: Block) -> tuple[Block | None, Block | None]:
        """Return the blocks below and above, where there are any."""
        blocks = self.chunk_of(block).blocks
        at = blocks.index(block)
        return (
            blocks[at - 1] if at else None,
            blocks[at + 1] if at + 1 < len(blocks) else None,
        )

    # --- alloc, free, add_remainder

    def alloc(self, size: int = 0) -> Block:
        """Return a used block in a writable chunk."""
        block = self.find(size)
        if block is None:
            self.new_chunk(size)
            block = self.find(size)
        if block is None:
            raise OverflowError(size)
        lowest, last = self.chunks[0], self.chunks[-1]
        if self.reach and (
            block.end - lowest.base > self.reach
            or last.base + last.chunk_bytes - block.start > self.reach
        ):
            self.counters["reach_failures"] += 1
        self.operations += 1
        self.retain()
        return block

    def free(self, block: Block) -> None:
        """Give a used block back."""
        self.unuse(block)
        if not self.historical:
            self.note_header_write(self.chunk_of(block))
        self.give(block)
        self.operations += 1
        self.retain()

    def note_header_write(self, chunk: Chunk) -> None:
        """Count a header that is written where nobody has asked whether it may be."""
        self.counters["unmarked_header_writes"] += chunk.executable and self.header > 0

    def shrink(self, block: Block, size: int) -> None:
        """Keep the low bytes of a used block; what is behind them goes if it is worth a block."""
        start = block.start + self.header
        if self.historical:
            at = -(-(start + size) // self.pointer) * self.pointer
            least = self.hole_least
        else:
            at = start + self.rounded(size)
            least = self.least_rest
        block.code_bytes = size
        if block.end - at >= least:
            self.give(self.cut(block, at))

    def add_remainder(
        self, code_list: list[Block], block: Block, hole_start: int, hole_end: int
    ) -> None:
        """Give a hole of a used block back; put what remains at the head of a code list."""
        start, end = block.start + self.header, block.end
        hs = -(-hole_start // self.pointer) * self.pointer
        he = hole_end // self.pointer * self.pointer
        # The first rule subtracts, the others add.
        hole = u64(he - hs) if self.min_hole == "max(M,2H)" else he - hs
        if hole < self.hole_least:
            code_list.insert(0, block)
            return
        code = block.code_bytes
        self.unuse(block)
        if hs == start and he == end:
            self.give(block)
        elif hs == start:
            code_list.insert(0, self.use(self.cut(block, he - self.header), code))
            self.give(block)
        else:
            free = self.cut(block, hs)
            low = min(code, hs - start)
            if he != end:
                high = self.cut(free, he - self.header)
                code_list.insert(0, self.use(high, code - low))
            code_list.insert(0, self.use(block, low))
            self.give(free)

    def fresh(self, block: Block) -> None:
        """List the one block of a new chunk, as the policy lists it."""
        if self.policy in ("buckets", "bump"):
            self.push(block, _WILDERNESS)
        elif self.policy == "best_fit":
            self.list_by_address(block)
        elif self.policy == "segregated":
            self.list_rest(block)
        elif self.lists_by_size:
            self.push(block)

    def give(self, block: Block) -> None:
        """Join a block that has become free with its neighbours, and list it."""
        if self.historical:
            self.give_historical(block)
            return
        if self.policy == "bump":
            return
        if self.policy == "buckets":
            self.push(block, self.payload(block).bit_length() - 1)
            return
        lower, higher = self.neighbours(block)
        joins_victim = False
        for neighbour in (higher, lower):
            if neighbour is not None and neighbour.free:
                joins_victim |= neighbour is self.victim
                if neighbour.bin is not None:
                    self.unlist(neighbour)
                low = block if neighbour is higher else neighbour
                self.join(low)
                block = low
        chunk = self.chunk_of(block)
        chunk.bound = max(chunk.bound, self.payload(block))
        if self.lists_by_size and self.payload(block) >= self.granule:
            if self.policy == "best_fit":
                self.list_by_address(block)
            elif self.policy == "segregated":
                self.push(block, _VICTIM if joins_victim else size_bin(self.payload(block)))
            else:
                self.push(block)

    def give_historical(self, block: Block) -> None:
        """Join with the lower neighbour, which keeps its place on the list, then the higher one.

        Headers are written to without asking whether their chunk may be.
        """
        chunk = self.chunk_of(block)
        self.note_header_write(chunk)
        lower, higher = self.neighbours(block)
        if lower is not None and lower.free:
            self.join(lower)
            block = lower
        if higher is not None and higher.free:
            if higher.bin is not None:
                before = self.unlist(higher)
                if before is not None:
                    other = self.chunk_of(before)
                    if other is not chunk:
                        self.note_header_write(other)
            self.join(block)
        if self.lists_by_size and block.bin is None and self.payload(block) >= self.least:
            self.push(block)

    # --- the policies

    def find(self, size: int) -> Block | None:
        """Find, cut and use a block; None: none will do."""
        if self.policy == "scan":
            return self.find_scan()
        if self.historical:
            return self.find_limited()
        finder: Callable[[int], Block | None] = getattr(self, "find_" + self.policy)
        found = finder(self.rounded(size))
        return None if found is None else self.use(found, size)

    def find_scan(self) -> Block | None:
        """V1: the first one that is large enough, newest chunk first, from its high end."""
        for chunk in reversed(self.chunks):
            for block in reversed(chunk.blocks):
                self.counters["list_scan_steps"] += 1
                if block.free and self.payload(block) >= self.least:
                    self.mark(chunk, False)
                    return self.use(block, 0)
        return None

    def find_limited(self) -> Block | None:
        """V2 to V7: the newest listed block, or its high end."""
        entries = self.lists.get(0)
        if not entries:
            return None
        block, limit, header = entries[0], self.limit, self.header
        payload = self.payload(block)
        limited = self.policy in ("byte_limit", "halving", "halving_payload")
        self.mark(self.chunk_of(block), False)
        if not limited or limit == 0 or payload <= limit:
            self.unlist(block)
            return self.use(block, 0)
        consume = limit + header
        if self.policy == "byte_limit":
            if payload < limit + 2 * header + self.least:
                consume = header + self.least
        elif payload < limit + header + self.least:
            consume //= 2
            if self.policy == "halving_payload":
                consume += header
        # The rest keeps its place on the list, whatever is left of it.
        return self.use(self.cut(block, block.end - consume), 0)

    def rounded(self, size: int) -> int:
        """Round a request up to granules, and to the smallest payload.

        HotSpot's segments hold the header, too, and no block is smaller than the smallest rest.
        """
        wanted = max(size, 1, self.least)
        if self.policy == "best_fit":
            wanted = max(wanted + self.header, self.min_rest)
            return -(-wanted // self.granule) * self.granule - self.header
        return -(-wanted // self.granule) * self.granule

    @property
    def least_rest(self) -> int:
        """Return the smallest block that is cut off, header and all."""
        rest = self.min_rest + (0 if self.policy == "best_fit" else self.header)
        return max(self.header + self.granule, rest)

    def own_pages(self, size: int) -> bool:
        """Tell whether a chunk is larger than a pack, and so for one method only."""
        return self.policy == "pack" and size > self.chunk_bytes

    def worth_cutting(self, block: Block, wanted: int, rest: int) -> bool:
        """Whether a rest remains that is at least `rest` and can be listed."""
        rest = max(rest, self.least_listed, 1)
        return self.payload(block) >= wanted + self.header + rest

    def take_high(self, block: Block, wanted: int, least_rest: int) -> Block:
        """Cut the high end off a listed block; a rest too small stays with it."""
        self.mark(self.chunk_of(block), False)
        if block.end - block.start >= self.header + wanted + least_rest:
            return self.cut(block, block.end - wanted - self.header)
        self.unlist(block)
        return block

    def take_low(self, block: Block, wanted: int, rest: int) -> Block | None:
        """Take the low end of a block that is on no list; return what is cut off."""
        self.mark(self.chunk_of(block), False)
        if self.worth_cutting(block, wanted, rest):
            return self.cut(block, block.start + self.header + wanted)
        return None

    def find_first_fit(self, wanted: int) -> Block | None:
        """Take the newest one that is large enough."""
        for block in self.lists.get(0, []):
            self.counters["list_scan_steps"] += 1
            if self.payload(block) >= wanted:
                return self.take_high(block, wanted, self.least_rest)
        return None

    def find_best_fit(self, wanted: int) -> Block | None:
        """Take the smallest that is large enough: of those the lowest, or the first exact one."""
        best = None
        for block in self.lists.get(0, []):
            if best is not None and self.payload(best) == wanted:
                break
            self.counters["list_scan_steps"] += 1
            if self.payload(block) >= wanted and (
                best is None or self.payload(block) < self.payload(best)
            ):
                best = block
        return None if best is None else self.take_high(best, wanted, self.least_rest)

    def first_of(self, blocks: list[Block], wanted: int) -> Block | None:
        """Return the first free block that is large enough."""
        for block in blocks:
            self.counters["list_scan_steps"] += 1
            if block.free and self.payload(block) >= wanted:
                return block
        return None

    def search_bitmap(self, wanted: int) -> Block | None:
        """From where the last search ended, then in the chunks of the size's pool, newest first.

        Chunks that are known to have no such room are passed.
        """
        pool = self.pool_of(wanted)
        found = None
        if self.cursor is not None:
            chunk = self.chunk_of(self.cursor)
            if chunk.pool == pool and chunk.bound >= wanted:
                at = chunk.blocks.index(self.cursor)
                found = self.first_of(chunk.blocks[at:], wanted)
        for chunk in reversed(self.chunks):
            if found is None and chunk.pool in (pool, None) and chunk.bound >= wanted:
                found = self.first_of(chunk.blocks, wanted)
                if found is None:
                    frees = [self.payload(block) for block in chunk.blocks if block.free]
                    chunk.bound = max(frees, default=0)
        return found

    def find_bitmap(self, wanted: int) -> Block | None:
        """Take what the search finds from its low end; the next one goes on from there."""
        found = self.search_bitmap(wanted)
        if found is not None:
            self.take_low(found, wanted, 0)
            self.chunk_of(found).pool = self.pool_of(wanted)
            self.cursor = found
        return found

    def find_pack(self, wanted: int) -> Block | None:
        """Take the first that is large enough, oldest chunk first, from its low end.

        What is larger than a pack is alone in pages of its own.
        """
        own = self.own_pages(wanted + 2 * self.header)
        for chunk in self.chunks:
            if own != self.own_pages(chunk.chunk_bytes):
                continue
            found = self.first_of(chunk.blocks, wanted)
            if found is not None:
                self.take_low(found, wanted, 0)
                return found
        return None

    def find_buckets(self, wanted: int) -> Block | None:
        """Take a block of the same power of two, or a piece of what nobody has cut yet."""
        bucket = (wanted - 1).bit_length()
        wanted = 1 << bucket
        if self.lists.get(bucket):
            found = self.lists[bucket][0]
            self.mark(self.chunk_of(found), False)
            self.unlist(found)
            return found
        for found in self.lists.get(_WILDERNESS, []):
            if self.payload(found) >= wanted:
                self.unlist(found)
                rest = self.take_low(found, wanted, self.granule)
                if rest is not None:
                    self.push(rest, _WILDERNESS)
                return found
            self.counters["list_scan_steps"] += 1
        return None

    def find_bump(self, wanted: int) -> Block | None:
        """Take the high end of the newest chunk; with too much code, all of it goes."""
        entries = self.lists.get(_WILDERNESS)
        if entries and self.payload(entries[0]) >= wanted:
            return self.take_high(entries[0], wanted, self.header + self.granule)
        if self.chunks and self.mapped_bytes + self.chunk_bytes > self.max_code:
            self.reset()
            self.counters["flushes"] += 1
        return None

    def find_segregated(self, wanted: int) -> Block | None:
        """Cut the victim, or the newest block of a bin that is a closer fit."""
        edge = wanted + (1 << (wanted.bit_length() - 4)) - 1 if wanted >= 8 else wanted
        bins = [bin for bin in self.lists if bin >= size_bin(edge)]
        found = self.victim
        if (
            found is None
            or self.payload(found) < wanted
            or (bins and size_bin(self.payload(found)) > min(bins))
        ):
            if not bins:
                return None
            found = self.lists[min(bins)][0]
        was_victim = found is self.victim
        self.unlist(found)
        rest = self.take_low(found, wanted, self.min_rest)
        if rest is not None and was_victim:
            self.push(rest, _VICTIM)
        elif rest is not None:
            self.list_rest(rest)
        return found

    @property
    def victim(self) -> Block | None:
        """The largest rest of a cut, which is in no bin."""
        return next(iter(self.lists.get(_VICTIM, [])), None)

    def list_rest(self, block: Block) -> None:
        """List the rest of a cut, or a new chunk: the larger one is the victim."""
        victim = self.victim
        if victim is None or self.payload(block) > self.payload(victim):
            if victim is not None:
                self.unlist(victim)
                self.push(victim, size_bin(self.payload(victim)))
            self.push(block, _VICTIM)
        else:
            self.push(block, size_bin(self.payload(block)))


def size_bin(payload: int) -> int:
    """Return the bin of a size: eight to a doubling.

    Examples
    --------
    >>> [size_bin(n) for n in (7, 8, 15, 16, 17, 18, 31, 32)]
    [7, 8, 15, 16, 16, 17, 23, 24]
    """
    if payload < 8:
        return payload
    top = payload.bit_length() - 1
    return (top - 2) * 8 + (payload >> (top - 3)) % 8
