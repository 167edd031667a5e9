"""Every way to the row of a code replay: modelled pages, real pages, the twin."""

import contextlib
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

import pyallocx as px
from pyallocx import _core, code
from pyallocx.code import CODE_POLICIES, HISTORICAL
from pyallocx.reference import code as reference
from pyallocx.testing import code_parameters, traces
from pyallocx.testing.code import assert_sound, blocks_of

# What depends on where the system puts chunks.
PLACED = ("vma_count_peak", "hot_pages_4k", "hot_pages_64k", "hot_pages_2m", "reach_failures")

HEADER_AND_LEAST = ("header_bytes", "min_payload_bytes")


def start(trace, **params):
    """Start a replay of the core that the test steps itself."""
    known = {p.name: p for p in code.PARAMETERS}
    values = {p.name: p.default for p in code.PARAMETERS}
    values |= {name: known[name].validate(value) for name, value in params.items()}
    return code._start(trace, values)


@st.composite
def cases(draw, policy, *, sound):
    """Draw parameters, and a trace whose sizes lie around their limits."""
    params = draw(code_parameters((policy,), sound=sound))
    least, limit = params["min_payload_bytes"], params.get("byte_limit", 0)
    chunk = params["chunk_bytes"] - 2 * params["header_bytes"]
    jump = draw(st.integers(0, least - 1)) if policy in HISTORICAL else 8
    edges = {1, least - jump, least, limit - jump, limit, chunk - jump, chunk, chunk // 3}
    sizes = {n + d for n in edges for d in (-1, 0, 1)} | {2 * chunk + 5}
    sizes = sorted(n for n in sizes if 0 <= n < 20000)
    events = draw(st.sampled_from((0, 15, 30)))
    trace = draw(
        traces(sizes=sizes, min_events=events, max_events=events + 30, arenas=1, threads=1, keys=1)
    )
    return trace, params | {
        "jump_bytes": jump,
        "hot_methods": draw(st.sampled_from((0, 1, 3, 256))),
    }


def outcome(call):
    """Return None, or the kind of error that a call ends in."""
    try:
        call()
    except (px.CorruptionError, OverflowError) as error:
        return type(error)
    return None


def step_both(trace, params):
    """Drive core and twin event by event; return both, and whether they ended in an error."""
    replay, twin = start(trace, **params), reference.Replay(trace, **params)
    for _ in range(len(trace)):

        def core():
            replay.step(1)
            replay.check()

        def python():
            twin.step()
            twin.heap.check()

        ours, theirs = outcome(core), outcome(python)
        assert ours == theirs, f"event {twin.at}"
        if ours is not None:
            return replay, twin, ours
        assert replay.blocks() == blocks_of(twin.heap)
    return replay, twin, None


def assert_rows_agree(trace, params, replay, twin):
    row = px.replay_code(trace, **params).row
    assert row == twin.row()
    assert row == replay.row() | {"system_calls": row["system_calls"]}
    if params["page_bytes"] != 4096 or (params["policy"] == "best_fit" and row["chunk_maps"] > 1):
        return  # memory has pages of its own size; best fit looks at addresses across chunks
    real = px.replay_code(trace, modelled=False, **params).row
    for name in row.keys() - set(PLACED):
        assert real[name] == row[name], name


@pytest.mark.parametrize("policy", CODE_POLICIES)
@given(data=st.data())
def test_all_ways_agree(policy, data):
    """Any trace, any parameters with which the policy is right: never an error, always the same."""
    trace, params = data.draw(cases(policy, sound=True))
    replay, twin, error = step_both(trace, params)
    assert error is None
    header = twin.heap.header
    assert_sound(replay.blocks(), header, twin.heap.least_listed, joins=twin.heap.joins)
    assert_rows_agree(trace, params, replay, twin)


@pytest.mark.parametrize("policy", HISTORICAL)
@given(data=st.data())
def test_wrong_parameters_go_wrong_alike(policy, data):
    """Any limit and any smallest hole: the same rows, or corruption at the same event."""
    trace, params = data.draw(cases(policy, sound=False))
    replay, twin, error = step_both(trace, params)
    if error is None:
        assert_rows_agree(trace, params, replay, twin)


@given(data=st.data(), policy=st.sampled_from(("byte_limit", "halving", "halving_payload")))
def test_limit_of_a_whole_chunk_is_none(data, policy):
    """Property 12."""
    trace, params = data.draw(cases(policy, sound=True))
    whole = params["chunk_bytes"] - 2 * params["header_bytes"]
    rows = [
        px.replay_code(trace, **params | {"policy": name, "byte_limit": limit}).row
        for name, limit in ((policy, 0), (policy, whole), (policy, whole + 999), ("whole_block", 0))
    ]
    assert all(row == rows[0] for row in rows)


def misaligned(trace, **params):
    """Return the headers at the end that do not stand at a multiple of a pointer."""
    blocks = px.replay_code(trace, **params).blocks
    return [row["offset"] for row in blocks if row["offset"] % params["pointer_bytes"]]


@given(data=st.data(), policy=st.sampled_from(("whole_block", "scan", "partition", "byte_limit")))
def test_headers_are_aligned(data, policy):
    """Property 6: where chunk, limit, smallest payload and header are multiples of a pointer."""
    trace, params = data.draw(cases(policy, sound=True))
    pointer = params["pointer_bytes"]
    header, least = (-(-params[name] // pointer) * pointer for name in HEADER_AND_LEAST)
    limit = params["byte_limit"] and header + 2 * least + params["byte_limit"] // pointer * pointer
    chunk = (params["chunk_bytes"] + 2 * header + least) // 64 * 64 + 64
    params |= {"header_bytes": header, "min_payload_bytes": least, "byte_limit": limit}
    params |= {"chunk_bytes": chunk, "page_bytes": 64}
    assert misaligned(trace, **params) == []


def test_halving_misaligns_headers():
    """Half of a sum of multiples need not be one: comment 17's attachment breaks property 6."""
    trace = px.synthesize_code(200, seed=1)
    params = {"header_bytes": 20, "pointer_bytes": 4, "chunk_bytes": 4096 + 60, "page_bytes": 4}
    params["byte_limit"] = 4090 // 4 * 4
    assert misaligned(trace, policy="halving", **params)
    assert not misaligned(trace, policy="byte_limit", **params)


@given(data=st.data(), policy=st.sampled_from(CODE_POLICIES))
def test_parts_add_up(data, policy):
    """Every mapped byte is code, header, free, or what a block has more than its code."""
    trace, params = data.draw(cases(policy, sound=True))
    row = px.replay_code(trace, **params).row
    parts = ("code_bytes_end", "header_bytes", "free_bytes", "internal_fragmentation")
    assert sum(row[name] for name in parts) == row["mapped_bytes_end"]
    assert row["free_bytes"] == row["largest_free_block"] + row["external_fragmentation"]
    assert row["dead_bytes"] <= row["free_bytes"] <= row["mapped_bytes_end"]
    if params["wx"] == "flip":
        assert row["protect_calls"] == row["flips_to_write"] + row["flips_to_exec"]
    assert row["code_bytes_end"] <= row["code_bytes_peak"] <= row["mapped_bytes_peak"]


@pytest.mark.parametrize("wx", code.WX_MODES)
def test_neighbouring_chunks_of_protection_keys_are_one_vma(wx):
    """Only a flip of pages makes a border between VMAs."""
    trace = px.synthesize_code(100, seed=3)
    row = px.replay_code(trace, policy="segregated", chunk_bytes=4096, wx=wx).row
    twin = reference.replay(trace, policy="segregated", chunk_bytes=4096, wx=wx)
    assert row == twin
    if wx in ("per_thread", "rwx"):
        assert row["vma_count_peak"] == 1


@pytest.mark.parametrize("policy", CODE_POLICIES)
def test_each_call_may_fail(policy):
    """The replay ends in MemoryError, whichever call it is; the heap is consistent."""
    trace = px.synthesize_code(40, seed=5)
    params = {"policy": policy, "chunk_bytes": 4096, "max_code_bytes": 16384, "keep_bytes": 0}
    calls = px.replay_code(trace, **params).row["system_calls"]
    for n in range(1, calls + 1):
        replay = _core.CodeReplay(
            code._core_params({p.name: p.default for p in code.PARAMETERS} | params),
            trace.op, trace.object, trace.size_bytes, trace.n_objects, 8, 256, fail_at=n,
        )  # fmt: skip
        # An empty chunk that the system does not take back stays, and nobody is told.
        with contextlib.suppress(MemoryError):
            while replay.step(len(trace)):  # a step ends by the work done
                pass
        replay.check()
    with pytest.raises(MemoryError):
        px.replay_code(trace, fail_at=1, **params)


# --- the numbers of the seed ----------------------------------------------------------------------


def test_trade_of_larger_chunks():
    """Comment 7: maps fall 16 and 200 times, flips hardly, pages grow: the specification's table.

    Its own model of 2,000 methods has 659, 41 and 3 chunks, 4555, 4037 and 4001 flips, and 2.3,
    32.3 and 512 pages for each method.
    """
    trace = px.synthesize_code(2000, seed=1, exit_sizes=None, unload_fraction=0)
    rows = [
        px.replay_code(trace, policy="byte_limit", header_bytes=20, pointer_bytes=4, **params).row
        for params in (
            {"chunk_bytes": 4096},
            {"chunk_bytes": 65536, "byte_limit": 4096},
            {"chunk_bytes": 1 << 20, "byte_limit": 4096},
        )
    ]
    maps = [row["chunk_maps"] for row in rows]
    assert maps[0] / maps[1] == pytest.approx(16, rel=0.05)
    assert maps[0] / maps[2] == pytest.approx(220, rel=0.15)
    flips = [row["flips_to_write"] + row["flips_to_exec"] for row in rows]
    assert flips == pytest.approx([4555, 4037, 4001], rel=0.05)
    pages = [row["pages_flipped_per_method"] for row in rows]
    assert pages == pytest.approx([2.3, 32.3, 512], rel=0.05)


@pytest.mark.parametrize("seed", range(3))
def test_min_hole_trades_internal_for_external_waste(seed):
    """The specification: 41 chunks with 2H+M and 3H+M, 42 with 4H+3M."""
    trace = px.synthesize_code(2000, seed=seed, exit_sizes=None, unload_fraction=0)
    params = {"byte_limit": 4096, "header_bytes": 20, "pointer_bytes": 4}
    rows = [
        px.replay_code(trace, policy="byte_limit", min_hole=rule, **params).row
        for rule in ("2H+M", "3H+M", "4H+3M")
    ]
    maps = [row["chunk_maps"] for row in rows]
    assert maps[0] == maps[1] <= maps[2] <= maps[0] + 1
    kept = [row["internal_fragmentation"] for row in rows]
    assert kept[0] <= kept[1] < kept[2]
    assert [row["dead_bytes"] for row in rows] == [0, 0, 0]


def test_unmarked_header_writes():
    """Hazard (a): free writes into executable chunks, where a design keeps its headers there."""
    trace = px.synthesize_code(2000, seed=1)
    rows = {policy: px.replay_code(trace, policy=policy).row for policy in CODE_POLICIES}
    in_chunks = {*HISTORICAL, "first_fit", "best_fit"}
    for policy, row in rows.items():
        writes = row["unmarked_header_writes"]
        assert (writes > 1000) == (policy in in_chunks), policy
        assert (writes == 0) == (policy not in in_chunks), policy
    # One for each free of a method that is a block: its header says that it is free.
    frees = int((trace.op == px.OP_FREE).sum())
    assert rows["first_fit"]["unmarked_header_writes"] == frees


@pytest.mark.parametrize("policy", ["segregated", "bitmap", "byte_limit"])
def test_keep_chunks_bounds_what_is_kept(policy):
    trace = px.synthesize_code(500, seed=2, unload_fraction=1)
    rows = {
        keep: px.replay_code(trace, policy=policy, chunk_bytes=16384, keep_chunks=keep).row
        for keep in (0, 1, 2, math.inf)
    }
    for keep, row in rows.items():
        assert row["code_bytes_end"] == 0
        assert row["chunks_end"] <= keep * (3 if policy == "bitmap" else 1)
        assert (row["chunk_unmaps"] == 0) == (keep == math.inf)
    assert rows[0]["chunks_end"] == 0 < rows[1]["chunks_end"] <= rows[2]["chunks_end"]


def test_chunks_of_bitmap_shrink_again():
    """As asmjit's: twice the newest of the pool, so that what was given back is forgotten."""
    big = [0] * 40 + [1] * 40
    trace = px.Trace([*big, 0], [*range(40), *range(40), 40], [4096] * 40 + [0] * 40 + [64])
    given_back, kept = (
        px.replay_code(trace, policy="bitmap", chunk_bytes=4096, keep_chunks=keep)
        for keep in (0, math.inf)
    )
    assert given_back.row["mapped_bytes_end"] == 8192
    assert kept.row["mapped_bytes_end"] > 100_000
    # 64 bytes are of another pool than 4096: their chunk is a first one all the same.
    assert [row["chunk_bytes"] for row in kept.blocks][-1] == 8192


@pytest.mark.parametrize("wrong", [-1, 2**64])
def test_a_call_that_cannot_fail_is_named(wrong):
    trace = px.synthesize_code(5, seed=1)
    with pytest.raises(ValueError, match=rf"fail_at.*{wrong}.*allowed is 0 to {2**64 - 1}"):
        px.replay_code(trace, fail_at=wrong)
    with pytest.raises(TypeError, match="fail_at"):
        px.replay_code(trace, fail_at=1.5)


def test_keep_bytes_bounds_what_is_kept():
    trace = px.synthesize_code(500, seed=2, unload_fraction=1)
    rows = {
        keep: px.replay_code(trace, chunk_bytes=16384, keep_bytes=keep).row
        for keep in (0, 65536, 200_000, math.inf)
    }
    for keep, row in rows.items():
        assert row["code_bytes_end"] == 0
        assert row["mapped_bytes_end"] <= keep
        assert (row["chunk_unmaps"] == 0) == (keep == math.inf)
    assert rows[0]["mapped_bytes_end"] == 0 < rows[65536]["mapped_bytes_end"]
    assert rows[math.inf]["mapped_bytes_end"] == rows[math.inf]["mapped_bytes_peak"]


def test_replay_is_not_finished():
    replay = start(px.synthesize_code(10, seed=1))
    replay.step(3)
    with pytest.raises(RuntimeError, match="not finished"):
        replay.row()


@pytest.mark.parametrize("policy", CODE_POLICIES)
def test_a_size_that_no_method_has_is_named(policy):
    trace = px.Trace([0, 0], [0, 1], [100, 2**28 + 1])
    with pytest.raises(
        px.TraceError, match=r"event 1: no chunk holds a method of this size .*268435457"
    ):
        px.replay_code(trace, policy=policy)


def test_repr_is_short():
    trace = px.synthesize_code(100)
    assert repr(px.replay_code(trace)).startswith("<CodeReplay 200 methods, ")
    assert len(repr(px.replay_arena(trace))) < 100
    broken = px.replay_code(
        px.synthesize_code(300), policy="halving", header_bytes=40, byte_limit=100,
        min_hole="H+M", chunk_bytes=8192, on_corruption="keep",
    )  # fmt: skip
    assert "broken" in repr(broken)
