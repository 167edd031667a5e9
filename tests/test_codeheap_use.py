"""A code heap as somebody uses it who has read the README: wrong calls, words, live maps."""

import pytest

import pyallocx as px

# --- writing --------------------------------------------------------------------------------------


def test_writing_refuses_at_the_call():
    with px.CodeHeap() as heap, px.CodeHeap() as other:
        freed, sealed = heap.alloc(8), heap.alloc(8)
        heap.free(freed)
        heap.seal(sealed)
        foreign = [other.alloc(8), other.alloc(8)]
        other.seal(foreign[0])
        for block in (freed, *foreign):
            with pytest.raises(px.InvalidFree):
                heap.writing(block)
        assert not foreign[1].sealed
        heap.writing(sealed)
        assert sealed.sealed  # nothing is opened before the with statement
        with pytest.raises(TypeError):
            heap.writing(None)
    with pytest.raises(ValueError, match="closed"):
        heap.writing(sealed)


def test_a_block_that_its_writer_sealed_or_freed():
    with px.CodeHeap() as heap:
        block = heap.alloc(8)
        with heap.writing(block) as writer:
            writer.write(b"12")
            heap.seal(block)
            with pytest.raises(ValueError, match="sealed"):
                writer.write(b"3")
        assert block.sealed
        with heap.writing(block):
            heap.free(block)
        assert heap.stats()["used_blocks"] == 0
        # Another block in its place is none of the writer's.
        with heap.writing(heap.alloc(8)) as writer:
            heap.free(writer._block)
            again = heap.alloc(8)
        assert not again.sealed
        heap.check()


def test_shrink_names_the_block_s_own_range():
    with px.CodeHeap() as heap:
        block = heap.alloc(100)
        for size in (0, 101, 2**40):
            with pytest.raises(ValueError, match=rf"size_bytes.*{size}.* 1 to 100\b"):
                heap.shrink(block, size)
        heap.shrink(block, 100)


# --- words ----------------------------------------------------------------------------------------


def test_zero_is_a_number():
    code = px.CodeHeap(policy="byte_limit", byte_limit=256)
    with code as heap:
        blocks = [heap.alloc(), heap.alloc()]
        heap.write(blocks[0], bytes(256))
        import ctypes

        ctypes.memset(blocks[1].address - 40, 0, 16)
        with pytest.raises(px.CorruptionError) as caught:
            heap.check()
        assert "nil" not in str(caught.value)
        assert "found 0x0," in str(caught.value)


def test_out_of_memory_in_plain_words():
    with pytest.raises(MemoryError, match=r"^out of memory: the system refused"):
        px.replay_code(px.synthesize_code(5), fail_at=1)


def test_one_is_not_many():
    one = px.Trace([0], [0], [10])
    text = repr(px.replay_code(one))
    assert text.startswith("<CodeReplay 1 method, ")
    assert text.endswith("in 1 chunk>")
    with px.CodeHeap() as heap:
        heap.alloc(1)
        assert repr(heap) == "<CodeHeap 1 block of 1 byte, 1 open, 1 chunk of 65,536 bytes>"


# --- maps -----------------------------------------------------------------------------------------


def test_a_map_of_a_live_heap():
    with px.CodeHeap(chunk_bytes=16384) as heap:
        assert px.chunk_map_text(heap) == "no chunk"
        heap.seal(heap.alloc(8192))
        lines = px.chunk_map_text(heap).splitlines()
        assert lines[0].startswith("0 16 KiB rx ###")
        assert lines[0].endswith(" 50 %")
        assert sum(b["code_bytes"] for b in heap.blocks() if not b["free"]) == 8192
        heap.alloc(100)
        assert px.chunk_map_text(heap).startswith("0 16 KiB rw ")
        px.chunk_map({"live": heap, "its blocks": heap.blocks()})
    with pytest.raises(ValueError, match="closed"):
        px.chunk_map_text(heap)


@pytest.mark.parametrize("draw", [px.chunk_map, px.chunk_map_text])
@pytest.mark.parametrize("wrong", [None, 3, "heap", [3], {"one": None}, px.synthesize_code(3)])
def test_what_no_map_is_made_of(draw, wrong):
    with pytest.raises(TypeError, match="a chunk map is made of a CodeHeap, of what replay_code"):
        draw(wrong)


def test_wrong_arguments():
    heap = px.replay_code(px.synthesize_code(5))
    with pytest.raises(TypeError, match="width is a number of columns, not None"):
        px.chunk_map_text(heap, width=None)
    with pytest.raises(TypeError, match="most is a number of chunks, not None"):
        px.chunk_map_text(heap, most=None)
    with pytest.raises(TypeError, match="a code heap replays a Trace, not NoneType"):
        px.replay_code(None)


def test_no_chunk_holds_more_than_all_of_it():
    heap = px.replay_code(
        px.synthesize_code(200, seed=1), policy="whole_block", min_hole="H+M", header_bytes=40,
        min_payload_bytes=9, chunk_bytes=4096, on_corruption="keep",
    )  # fmt: skip
    wrong = [dict(block, code_bytes=50 * 4096) for block in heap.blocks]
    for blocks in (heap.blocks, wrong):
        shares = [
            int(line.split()[-2])
            for line in px.chunk_map_text(blocks, most=1000).splitlines()
            if line.endswith("%") and " rx " in line
        ]
        assert shares
        assert max(shares) <= 100
