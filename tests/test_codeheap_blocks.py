"""px.CodeHeap: blocks whose size nobody knows, the policies of history, headers in the chunks."""

import ctypes
import re
from mmap import PAGESIZE

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from live_code import CODE_BYTES, MODES, call, constant, executes, writable

import pyallocx as px
from pyallocx import _core
from pyallocx.code import CODE_POLICIES, HISTORICAL
from pyallocx.testing import least_limit

# --- what is refused ------------------------------------------------------------------------------


@pytest.mark.parametrize("policy", HISTORICAL)
def test_policies_without_sizes_take_none(policy):
    with px.CodeHeap(policy=policy) as heap:
        for size in (1, 100, 2**31):
            with pytest.raises(ValueError, match=rf"is {size}, but policy '{policy}' takes none"):
                heap.alloc(size)
        assert heap.stats()["used_blocks"] == 0
        heap.check()


@pytest.mark.parametrize(
    ("policy", "bound"), [("byte_limit", 103), ("halving", 104), ("halving_payload", 181)]
)
def test_limits_that_are_wrong_are_not_live(policy, bound):
    """The bounds of docs/code.md, for headers of 40 bytes and payloads of 32."""
    assert least_limit(policy, 40, 32) == bound
    for limit in (1, bound - 1):
        with pytest.raises(ValueError, match=rf"byte_limit .* is {limit}, allowed is {bound} to"):
            px.CodeHeap(policy=policy, byte_limit=limit)
        with pytest.raises(ValueError, match="byte_limit"):
            _core.CodeHeap({"policy": CODE_POLICIES.index(policy), "byte_limit": limit})
    with px.CodeHeap(policy=policy, byte_limit=bound) as heap:
        sizes = [heap.alloc().size_bytes for _ in range(500)]
        assert min(sizes) >= 32
        assert max(sizes) <= bound
        heap.check()


# --- sizes that nobody knows ----------------------------------------------------------------------


@pytest.mark.parametrize("wx", MODES)
@pytest.mark.parametrize("policy", CODE_POLICIES)
def test_alloc_without_a_size(policy, wx):
    chunk = 16 * PAGESIZE
    with px.CodeHeap(policy=policy, chunk_bytes=chunk, wx=wx) as heap:
        block = heap.alloc()
        given = block.size_bytes
        assert chunk - 128 - 16 <= given <= chunk  # a segment and a header
        # No larger chunk than any other request gets.
        pieces = {"partition": 16, "bitmap": 2}.get(policy, 1)
        assert heap.stats()["mapped_bytes"] == chunk * pieces
        heap.write(block, b"x", given - 1)
        with pytest.raises(ValueError, match="allowed is"):
            heap.write(block, b"xy", given - 1)
        other = heap.alloc(size_bytes=None)
        assert other.size_bytes == given
        heap.check()
    with px.CodeHeap(policy=policy, chunk_bytes=chunk, byte_limit=1000, wx=wx) as heap:
        limited = policy not in ("scan", "whole_block", "partition")
        assert heap.alloc().size_bytes == (1000 if limited else given)


@pytest.mark.parametrize("header", [16, 40])
@pytest.mark.parametrize("policy", CODE_POLICIES)
def test_alloc_without_a_size_beside_headers(policy, header):
    """Two headers take their part, and what fits beside them is all that there is."""
    with px.CodeHeap(policy=policy, chunk_bytes=PAGESIZE, partitions=1, header_bytes=header) as h:
        size = h.alloc().size_bytes
        stats = h.stats()
        pieces = 2 if policy == "bitmap" else 1
        assert stats["mapped_bytes"] == PAGESIZE * pieces
        room = PAGESIZE - 2 * header
        assert size <= room
        assert size > (room // 2 if policy == "buckets" else room - 128)
        h.check()


@executes
@pytest.mark.parametrize("wx", MODES)
@pytest.mark.parametrize("policy", CODE_POLICIES)
def test_shrink(policy, wx):
    chosen = {"policy": policy, "wx": wx, "chunk_bytes": 4 * PAGESIZE, "byte_limit": 2000}
    with px.CodeHeap(**chosen, min_rest_bytes=64) as heap:
        blocks = []
        for number in range(60):
            block = heap.alloc()
            with heap.writing(block) as w:
                w.write(constant(number))
                heap.shrink(block, w.position)
            assert block.size_bytes == CODE_BYTES
            blocks.append(block)
            heap.check()
        assert [call(block) for block in blocks] == list(range(60))
        stats = heap.stats()
        assert stats["code_bytes"] == 60 * CODE_BYTES
        if policy not in ("scan", "bump", "buckets"):
            # What is given back is given out again.
            # (What is cut off the high end leaves rests on which no whole limit fits.)
            high = policy in ("first_fit", "best_fit")
            assert stats["chunks"] <= (16 if policy == "partition" else 9 if high else 3)
        for block in blocks[::2]:
            heap.free(block)
        assert [call(block) for block in blocks[1::2]] == list(range(1, 60, 2))
        assert heap.stats()["unmarked_header_writes"] == 0
        heap.check()


def test_shrink_is_refused():
    with px.CodeHeap() as heap, px.CodeHeap() as other:
        block, closed = heap.alloc(1000), heap.alloc(1000)
        heap.seal(closed)
        before = heap.stats()
        for size in (0, -1, 1001, 2**64):
            with pytest.raises(ValueError, match=r"size_bytes.* is .*allowed is 1 to|allowed is"):
                heap.shrink(block, size)
        with pytest.raises(ValueError, match=r"1001, allowed is 1 to 1000"):
            heap.shrink(block, 1001)
        for size in ("5", None, 1.5):
            with pytest.raises(TypeError):
                heap.shrink(block, size)
        with pytest.raises(TypeError):
            heap.shrink(5, 5)
        with pytest.raises(ValueError, match="open it before it is shrunk"):
            heap.shrink(closed, 10)
        with pytest.raises(px.InvalidFree, match="another code heap"):
            other.shrink(block, 10)
        assert heap.stats() == before
        assert (block.size_bytes, closed.size_bytes) == (1000, 1000)
        heap.shrink(block=block, size_bytes=1000)
        assert heap.stats() == before
        heap.free(block)
        with pytest.raises(px.InvalidFree, match="already free"):
            heap.shrink(block, 10)
    with pytest.raises(ValueError, match="code heap is closed"):
        heap.shrink(block, 10)


def test_shrink_that_is_refused_memory():
    with px.CodeHeap(chunk_bytes=64 * PAGESIZE) as heap:
        refused = 0
        for block in [heap.alloc(512) for _ in range(300)]:
            before = heap.stats()
            heap.fail_backing_call(1, bookkeeping=True)
            try:
                heap.shrink(block, 16)
            except MemoryError:
                refused += 1
                assert heap.stats() == before
                assert block.size_bytes == 512
                heap.check()
            heap.fail_backing_call(0, bookkeeping=True)
            heap.shrink(block, 16)
        assert refused > 0


@executes
@pytest.mark.parametrize("policy", CODE_POLICIES)
def test_a_freed_exit_block_leaves_its_chunk_executable(policy):
    """Hazard (b): an exit block in a chunk of live code, of which nothing is needed."""
    with px.CodeHeap(policy=policy, chunk_bytes=4 * PAGESIZE) as heap:
        main = heap.alloc() if policy in HISTORICAL else heap.alloc(200)
        heap.write(main, constant(5))
        heap.shrink(main, 100)
        heap.seal(main)
        stopped = False
        for _ in range(20):
            out = heap.alloc() if policy in HISTORICAL else heap.alloc(200)
            stopped |= not main.executable
            heap.shrink(out, 20)
            heap.shrink(out, 1)
            heap.free(out)
            assert call(main) == 5
            heap.check()
        assert stopped  # some were in its chunk


# --- headers in the chunks ------------------------------------------------------------------------

FIELDS = ("end", "lower neighbour", "flags", "check word", "fill")


@pytest.mark.parametrize("wx", MODES)
@pytest.mark.parametrize("policy", CODE_POLICIES)
@settings(max_examples=8)
@given(data=st.data(), header=st.sampled_from([1, 4, 6, 16, 20, 40]))
def test_headers_that_are_written_over_are_named(policy, wx, data, header):
    """By code that runs out of its block: whichever byte, whatever it becomes."""
    with px.CodeHeap(policy=policy, wx=wx, header_bytes=header, chunk_bytes=4 * PAGESIZE) as heap:
        blocks = []
        for size in data.draw(st.lists(st.integers(1, 2000), min_size=1, max_size=8)):
            block = heap.alloc() if policy in HISTORICAL else heap.alloc(size)
            heap.shrink(block, min(size, block.size_bytes))
            blocks.append(block)
        for block in blocks[1:]:
            step = data.draw(st.sampled_from(["keep", "seal", "free"]))
            if step != "keep":
                heap.seal(block)
            if step == "free":
                heap.free(block)
        heap.check()
        block = blocks[0]  # still open
        at = data.draw(st.integers(0, header - 1))
        address = block.address - header + at
        through = writable(address) if wx == "dual" else address
        if through is None:
            return  # what can be executed cannot be written to at this address
        assert (through == address) == (wx != "dual")
        before = ctypes.string_at(address, 1)[0]
        becomes = data.draw(st.integers(0, 255).filter(lambda byte: byte != before))
        ctypes.memset(through, becomes, 1)
        field = FIELDS[min(at // 4, 4)]
        message = rf"written over: {field} of block \d+ of chunk \d+ at 0x"
        with pytest.raises(px.CorruptionError, match=message) as caught:
            heap.check()
        named = int(re.search(r" at (0x[0-9a-f]+)", str(caught.value))[1], 16)
        assert named == (address if at >= 16 else address - at % 4)
        ctypes.memset(through, before, 1)
        heap.check()


@pytest.mark.parametrize("wx", MODES)
def test_headers_of_blocks_freed_while_their_chunk_runs(wx):
    """Hazard (a): nothing is written into a chunk that is executable, and nothing is missed."""
    with px.CodeHeap(policy="first_fit", wx=wx, chunk_bytes=4 * PAGESIZE) as heap:
        blocks = [heap.alloc(64) for _ in range(6)]
        for block in blocks:
            heap.seal(block)
        before = heap.stats()
        old = [ctypes.string_at(block.address - 16, 16) for block in blocks]
        for block in blocks[1::2]:
            heap.free(block)
            heap.check()
        new = [ctypes.string_at(block.address - 16, 16) for block in blocks]
        assert heap.stats()["system_calls"] == before["system_calls"]
        assert (new == old) == (wx == "flip")
        heap.open(blocks[0])
        heap.check()
        new = [ctypes.string_at(block.address - 16, 16) for block in blocks]
        # Free blocks say so, used ones do not. (The last one is a part of its lower neighbour.)
        assert [header[8] for header in new[:5]] == [0, 1, 0, 1, 0]
        assert heap.stats()["unmarked_header_writes"] == 0


def test_a_terminator_is_a_header_too():
    with px.CodeHeap(header_bytes=24, chunk_bytes=PAGESIZE, wx="rwx") as heap:
        base = heap.alloc(100).address - 24
        ctypes.memset(base + PAGESIZE - 24, 1, 1)
        with pytest.raises(px.CorruptionError, match=r"end of the terminator of chunk 0 at 0x"):
            heap.check()


def test_without_headers_nothing_is_written():
    with px.CodeHeap(wx="rwx", chunk_bytes=PAGESIZE) as heap:
        block = heap.alloc(64)
        assert ctypes.string_at(block.address, PAGESIZE) == bytes(PAGESIZE)
