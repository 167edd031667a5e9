"""The code heap against its twin, call by call, and the hunt for wrong split arithmetic."""

import math

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from hypothesis.stateful import run_state_machine_as_test

from pyallocx import CorruptionError
from pyallocx.code import CODE_POLICIES, HISTORICAL, MIN_HOLES
from pyallocx.reference.codeheap import CodeHeap, min_hole_bytes
from pyallocx.testing import (
    CodeBlocks,
    CodeHeapMachine,
    code_parameters,
    find_split_failure,
    least_limit,
)

SETTINGS = settings(suppress_health_check=list(HealthCheck), stateful_step_count=40)
LIMITED = ("byte_limit", "halving", "halving_payload")


def machine(**attributes):
    return type("Machine", (CodeHeapMachine,), attributes)


@pytest.mark.parametrize("policy", CODE_POLICIES)
def test_code_heap_agrees_with_twin(policy):
    parameters = code_parameters((policy,))
    run_state_machine_as_test(machine(parameters=parameters), settings=SETTINGS)


def forced(**values):
    """Draw sound parameters of V7, and make one of them wrong.

    Chunks are so small that the first split is of a block just above the limit, or, where holes are
    what is wrong, so large that a hole fits into the middle of one.
    """

    def force(params, more):
        params |= {name: value(params) for name, value in values.items()}
        whole = 2 * params["header_bytes"] + (params["byte_limit"] or params["min_payload_bytes"])
        return params | {"page_bytes": 1, "chunk_bytes": whole + more, "keep_bytes": math.inf}

    more = st.sampled_from((400, 800)) if "min_hole" in values else st.sampled_from((1, 1, 1, 2))
    return st.builds(force, code_parameters(("byte_limit",)), more)


def below(policy):
    """One byte below what is enough for a policy; the largest wrong limit."""

    def limit(params):
        h, m = params["header_bytes"], params["min_payload_bytes"]
        return max(1, least_limit(policy, h, m) - 1)

    return limit


def holes(rule, **numbers):
    """A rule for the smallest hole that is wrong with these numbers."""
    numbers |= {"min_hole": rule, "byte_limit": 0}
    return {name: lambda _, value=value: value for name, value in numbers.items()}


@pytest.mark.parametrize(
    "wrong",
    [
        {"policy": lambda _: "byte_limit", "byte_limit": below("byte_limit")},
        {"policy": lambda _: "halving", "byte_limit": below("halving")},
        {"policy": lambda _: "halving_payload", "byte_limit": below("halving_payload")},
        # Headers that overlap; a free block that is too small; less than nothing.
        holes("H+M", header_bytes=40, min_payload_bytes=8),
        holes("max(M,2H)", header_bytes=20, pointer_bytes=4),
        holes("max(M,2H)", header_bytes=0, pointer_bytes=8),
    ],
    ids=["byte_limit", "halving", "halving_payload", "H+M", "max(M,2H)", "max(M,2H), wraps"],
)
def test_machine_convicts(wrong):
    """The machine that is content with what is right is not with what is wrong."""
    examples = settings.get_profile("ci").max_examples
    hunt = settings(SETTINGS, max_examples=examples, phases=[Phase.generate], database=None)
    with pytest.raises((AssertionError, CorruptionError)):
        run_state_machine_as_test(machine(parameters=forced(**wrong)), settings=hunt)


# --- the hunt -------------------------------------------------------------------------------------


def landed(h, m):
    """Return the smallest limit that the assert of what landed lets through."""
    return 2 * (h + m) + 1


@pytest.mark.parametrize(
    ("policy", "limit"), [("halving", None), ("halving_payload", None), ("halving_payload", landed)]
)
def test_wrong_policy_is_convicted(policy, limit):
    failure = find_split_failure(policy, **({} if limit is None else {"limit": limit}))
    assert failure is not None
    h, m = failure.header_bytes, failure.min_payload_bytes
    # The limit is below the policy's bound, and its neighbour below the split block.
    assert failure.byte_limit < least_limit(policy, h, m)
    assert failure.payload_bytes == failure.byte_limit + 1


@pytest.mark.parametrize(
    ("policy", "limit"),
    [
        ("byte_limit", None),
        ("byte_limit", landed),
        ("halving", None),
        ("halving_payload", None),
    ],
)
def test_right_policy_is_not_convicted(policy, limit):
    bound = limit if limit is landed else lambda h, m: least_limit(policy, h, m)
    assert find_split_failure(policy, limit=bound) is None


@pytest.mark.parametrize("rule", MIN_HOLES)
def test_min_hole_is_convicted_where_it_is_wrong(rule):
    failure = find_split_failure(min_hole=rule)
    assert (failure is not None) == (rule in ("max(M,2H)", "H+M"))


# --- the boundaries, exactly ----------------------------------------------------------------------


def split(policy, h, m, limit, payload):
    """Return the payloads of the rest and of the block that one alloc takes, and the verdict."""
    heap = CodeBlocks(
        policy=policy, header_bytes=h, min_payload_bytes=m, byte_limit=limit,
        chunk_bytes=payload + 2 * h, page_bytes=1,
    )  # fmt: skip
    got = heap.alloc()[2]
    pieces = [row["payload_bytes"] for row in heap.blocks()]
    assert pieces[-1] == got
    return pieces


def first_failure(policy, h, m, limit):
    """Return the smallest S of a split that goes wrong, and its pieces."""
    for payload in range(limit + 1, limit + 3 * (h + m)):
        pieces = split(policy, h, m, limit, payload)
        if min(pieces) < m or max(pieces) > payload or pieces[-1] > limit:
            return payload, pieces
    return None


def test_the_failures_of_the_specification():
    assert split("byte_limit", 20, 32, 82, 83) == [31, 32]
    assert split("halving", 20, 32, 83, 84) == [33, 31]
    # The last split that is halved, the first that is not; the last tiny block.
    assert split("halving", 20, 32, 100, 151) == [91, 40]
    assert split("halving", 20, 32, 100, 152) == [32, 100]
    assert split("byte_limit", 20, 32, 100, 171) == [119, 32]
    assert split("byte_limit", 20, 32, 100, 172) == [52, 100]
    assert first_failure("byte_limit", 20, 32, 82) == (83, [31, 32])
    assert first_failure("halving", 20, 32, 83) == (84, [33, 31])
    # With the limit H + M, half of the sum is M and half a header: always too small.
    assert first_failure("halving", 20, 32, 52)[1][-1] == 16


@pytest.mark.parametrize("policy", LIMITED)
@pytest.mark.parametrize(("h", "m"), [(20, 32), (40, 32), (20, 36), (20, 200), (1, 1), (0, 5)])
def test_bounds_of_the_limit(policy, h, m):
    """Right from the bound on, wrong one below it.

    For halving_payload the specification says 3H+2M-2 and, for 20/32, 121, which is 3H+2M-3. It is
    3H+2M-3: there L + H is odd, and the half is rounded down.
    """
    bound = least_limit(policy, h, m)
    for limit in range(bound, bound + 40):
        assert first_failure(policy, h, m, limit) is None
    if bound > 1:
        payload, pieces = first_failure(policy, h, m, bound - 1)
        assert (payload, min(pieces)) == (bound, m - 1)


def test_bounds_in_numbers():
    pairs = [(20, 32), (40, 32), (20, 36), (20, 200)]
    assert [least_limit("byte_limit", *pair) for pair in pairs] == [83, 103, 91, 419]
    assert [least_limit("halving_payload", *pair) for pair in pairs[:2]] == [121, 181]


def cut(rule, h, m, start, hole, pointer=4):
    """Give a hole of a whole block back; return the heap."""
    heap = CodeBlocks(
        policy="whole_block", min_hole=rule, header_bytes=h, min_payload_bytes=m,
        pointer_bytes=pointer, chunk_bytes=1000 + 2 * h, page_bytes=1,
    )  # fmt: skip
    number, address, _ = heap.alloc()
    heap.add_remainder(number, address + start, address + start + hole)
    return heap


def dead_holes(rule, h, m, start, pointer=4):
    """Return the holes whose block is free, and too small to be listed."""
    dead = []
    for hole in range(pointer, 5 * (h + m), pointer):
        heap = cut(rule, h, m, start, hole, pointer)
        heap.check()
        if any(row["free"] and row["payload_bytes"] < m for row in heap.blocks()):
            dead.append(hole)
    return dead


def test_dead_blocks_of_the_first_min_hole():
    assert dead_holes("max(M,2H)", 20, 32, 100) == list(range(40, 72, 4))
    assert dead_holes("max(M,2H)", 20, 32, 0) == list(range(40, 52, 4))
    assert dead_holes("max(M,2H)", 40, 32, 104, 8) == list(range(80, 112, 8))
    assert dead_holes("max(M,2H)", 40, 32, 0, 8) == []
    for rule in ("2H+M", "3H+M", "4H+3M"):
        for h, pointer in ((20, 4), (40, 8)):
            for start in (0, 104):
                assert dead_holes(rule, h, 32, start, pointer) == []


@pytest.mark.parametrize("rule", MIN_HOLES)
@pytest.mark.parametrize(("h", "m"), [(20, 32), (40, 32), (16, 64)])
def test_the_smallest_hole_that_is_cut(rule, h, m):
    least = min_hole_bytes(rule, h, m)
    for start in (0, 100):
        assert len(cut(rule, h, m, start, least - 4).blocks()) == 1
        assert len(cut(rule, h, m, start, least).blocks()) == (2 if start == 0 else 3)


def test_two_headers_and_the_payload_are_tight():
    """Comment 18 is right: one pointer less would be too small."""
    free = [row for row in cut("2H+M", 20, 32, 100, 72).blocks() if row["free"]]
    assert [row["payload_bytes"] for row in free] == [32]


def test_headers_overlap():
    with pytest.raises(CorruptionError, match="smaller than its header"):
        cut("H+M", 40, 32, 100, 72).check()
    cut("H+M", 40, 32, 0, 72).check()


@pytest.mark.parametrize("rule", MIN_HOLES)
def test_hole_inside_one_pointer(rule):
    """Subtracting wraps: the code of its day takes less than nothing for a great deal."""
    heap = cut(rule, 40, 32, 1, 6, pointer=8)
    if rule == "max(M,2H)":
        with pytest.raises(CorruptionError):
            heap.check()
    else:
        heap.check()
        assert len(heap.blocks()) == 1


@pytest.mark.parametrize("rule", MIN_HOLES)
def test_hole_at_the_high_end(rule):
    """The case that the code of its day left out: the high part is freed, and nothing is lost."""
    heap = CodeBlocks(
        policy="whole_block", min_hole=rule, header_bytes=20, min_payload_bytes=32,
        pointer_bytes=4, chunk_bytes=1040, page_bytes=1,
    )  # fmt: skip
    number, address, payload = heap.alloc()
    assert payload == 1000
    kept = heap.add_remainder(number, address + 400, address + 1000)
    assert [piece[1:] for piece in kept] == [(address, 400)]
    heap.check()
    rows = [(row["payload_bytes"], row["free"], row["listed"]) for row in heap.blocks()]
    assert rows == [(400, 0, 0), (580, 1, 1)]
    assert heap.alloc()[2] == 580


def test_dead_block_comes_back():
    """By coalescing only, from either side, and it is listed then."""
    for side in (0, -1):
        heap = CodeBlocks(
            policy="whole_block", min_hole="max(M,2H)", header_bytes=20, min_payload_bytes=32,
            pointer_bytes=4, chunk_bytes=1040, page_bytes=1,
        )  # fmt: skip
        number, address, _ = heap.alloc()
        low, high = heap.add_remainder(number, address + 100, address + 148)
        heap.free((low, high)[side][0])
        heap.check()
        assert [row["listed"] for row in heap.blocks()].count(1) == 1


def test_all_of_a_block():
    heap = CodeBlocks(policy="whole_block", chunk_bytes=4096)
    number, address, payload = heap.alloc()
    assert heap.add_remainder(number, address, address + payload) == []
    assert heap.alloc()[1:] == (address, payload)


def test_emptied_exit_block_leaves_its_chunk_writable():
    """Hazard (b): the chunk holds live code, and nobody who is left marks it."""
    heap = CodeBlocks(policy="byte_limit", byte_limit=4096)
    main = heap.alloc()[0]
    heap.mark_exec(main)
    assert all(row["executable"] for row in heap.blocks())
    number, address, payload = heap.alloc()
    assert heap.add_remainder(number, address, address + payload) == []
    heap.check()
    assert [row["executable"] for row in heap.blocks() if not row["free"]] == [0]


def test_free_writes_into_executable_chunks():
    """Hazard (a): the header of the block, and one of another chunk that is linked to it."""
    heap = CodeBlocks(policy="whole_block", chunk_bytes=4096)
    pieces = []
    for number, address, _ in (heap.alloc(), heap.alloc()):
        pieces.append(heap.add_remainder(number, address + 400, address + 800))
    for low, _ in pieces:
        heap.mark_exec(low[0])
    # The hole of the first chunk stands behind that of the second, whose header is written to when
    # it is unlinked.
    heap.free(pieces[0][0][0])
    assert heap.counters()["unmarked_header_writes"] == 2
    assert heap.counters()["flips_to_write"] == 0
    assert all(row["executable"] for row in heap.blocks())


# --- golden vectors -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("header", "chunk", "blocks", "rest"),
    [(20, 64 << 10, 15, 3756), (20, 1 << 20, 254, 3072), (40, 2 << 20, 507, 120)],
)
def test_golden_vectors(header, chunk, blocks, rest):
    heap = CodeBlocks(
        policy="byte_limit", header_bytes=header, min_payload_bytes=32, byte_limit=4096,
        chunk_bytes=chunk,
    )  # fmt: skip
    got = [heap.alloc()[1:] for _ in range(blocks + 1)]
    assert [payload for _, payload in got] == [4096] * blocks + [rest]
    offsets = [row["offset"] for row in heap.blocks()]
    assert offsets == sorted(
        [0] + [chunk - header - (i + 1) * (4096 + header) for i in range(blocks)]
    )
    if header == 20 and blocks == 15:
        assert offsets[-2:] == [57284, 61400]
    assert heap.counters()["chunk_maps"] == 1
    heap.alloc()
    assert heap.counters()["chunk_maps"] == 2


@pytest.mark.parametrize(("header", "smallest"), [(20, 202), (40, 100)])
def test_tiny_blocks_by_chunk_size(header, smallest):
    """Of all chunk sizes in pages, the first one whose walk ends in a block of M bytes."""

    def tiny(pages):
        payload = pages * 4096 - 2 * header
        while payload > 4096:
            if payload < 4096 + 2 * header + 32:
                return True
            payload -= 4096 + header
        return False

    found = [pages for pages in range(1, 2049) if tiny(pages)]
    assert (len(found), found[0]) == ({20: 31, 40: 50}[header], smallest)
    heap = CodeBlocks(
        policy="byte_limit", header_bytes=header, byte_limit=4096, chunk_bytes=smallest * 4096
    )
    sizes = {heap.alloc()[2] for _ in range(smallest)}
    assert 32 in sizes


# --- segregated -----------------------------------------------------------------------------------


def a_hole(size, wall=64):
    """Return a heap with a free block of a size between two used ones, below the large rest."""
    heap = CodeBlocks(policy="segregated", chunk_bytes=65536)
    hole = heap.alloc(size)[0]
    heap.alloc(wall)
    heap.free(hole)
    return heap


def test_blocks_of_a_bin_that_may_be_too_small_are_not_looked_at():
    """4112 and 4352 bytes share a bin."""
    heap = a_hole(4112)
    heap.alloc(4352)
    heap.check()
    assert heap.blocks()[0]["free"]


def test_a_closer_fit_goes_before_the_victim():
    """The hole is filled, and its rest, being smaller, does not take the large one's place."""
    heap = a_hole(4096)
    heap.alloc(1024)
    assert not heap.blocks()[0]["free"]
    rest = 65536 - 4096 - 64
    # Exactly what is left. In a bin it would not be found: other blocks of that bin are smaller.
    heap.alloc(rest)
    assert heap.counters()["chunk_maps"] == 1
    heap.check()


@pytest.mark.parametrize("binned", [False, True])
def test_a_closer_fit_goes_before_the_victim_with_records_to_spare(binned):
    """The same where an alloc could cut the victim without asking the policy."""
    heap = CodeBlocks(policy="segregated")
    large, _, small, _, spare = (heap.alloc(size)[0] for size in (4096, 64, 512, 64, 64))
    heap.free(spare)  # its record is unused then: what was its block is the victim's
    heap.free(large)
    if binned:  # else it is what was freed last, which is in no bin
        heap.free(small)
        heap.alloc(512)
    heap.alloc(1024)
    assert not heap.blocks()[0]["free"]
    heap.check()


# --- retention ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("keep", "left"),
    [({"keep_bytes": n}, left) for n, left in ((0, 0), (4095, 0), (4096, 1), (8191, 1), (8192, 2))]
    + [({"keep_chunks": n}, left) for n, left in ((0, 0), (1, 1), (2, 2), (5, 3))],
)
def test_keep_just_enough(keep, left):
    """Empty chunks go until the rest is within the budget, of bytes or of chunks."""
    heap = CodeBlocks(policy="segregated", chunk_bytes=4096, **keep)
    live = [heap.alloc(3500)[0] for _ in range(3)]
    for number in live:
        heap.free(number)
    assert len(heap.blocks()) == left
    assert heap.counters()["chunk_unmaps"] == 3 - left
    heap.check()


@pytest.mark.parametrize("operations", [1, 2, 7])
def test_keep_by_age(operations):
    """An empty chunk goes when it has been empty for so many operations."""
    heap = CodeBlocks(policy="segregated", chunk_bytes=4096, keep_operations=operations)
    stays, goes = heap.alloc(3500)[0], heap.alloc(3500)[0]
    heap.free(goes)
    small = []
    for n in range(1, operations + 1):
        assert len({row["chunk"] for row in heap.blocks()}) == 2, n
        # Operations in the chunk that is not empty.
        if small:
            heap.free(small.pop())
        else:
            small.append(heap.alloc(32)[0])
    assert len({row["chunk"] for row in heap.blocks()}) == 1
    heap.check()
    heap.free(stays)


@pytest.mark.parametrize("rule", MIN_HOLES)
def test_the_smallest_rest_that_shrink_gives_back(rule):
    """For history that of the hole, for the others what an alloc would have cut."""
    least = min_hole_bytes(rule, 20, 32)
    for rest, cuts in ((least - 4, 0), (least, 1)):
        heap = CodeBlocks(
            policy="whole_block", min_hole=rule, header_bytes=20, min_payload_bytes=32,
            pointer_bytes=4, chunk_bytes=1040, page_bytes=1,
        )  # fmt: skip
        number, address, payload = heap.alloc()
        assert heap.shrink(number, payload - rest) == (number, address, payload - rest * cuts)
        assert heap.counters()["splits"] == cuts
    for rest, cuts in ((63, 0), (64, 1)):
        heap = CodeBlocks(policy="first_fit", header_bytes=16, granule_bytes=1)
        number, address, _ = heap.alloc(1000)
        assert heap.shrink(number, 1000 - 16 - rest)[2] == 1000 - (16 + rest) * cuts


# --- differential ---------------------------------------------------------------------------------


class FifthVersion(CodeHeap):
    """V5: a new chunk's block is handed out without having been listed."""

    def alloc(self, size=0):
        if self.lists.get(0):
            return super().alloc(size)
        self.new_chunk(size)
        block = self.chunks[-1].blocks[0]
        self.use(block, 0)
        self.operations += 1
        return block

    def fresh(self, block):
        pass


@given(steps=st.lists(st.tuples(st.booleans(), st.integers(0, 99), st.integers(0, 300))))
def test_v5_is_v6(steps):
    """Property 13: with a new chunk's block on the list or past it, the same blocks come."""
    params = {"policy": "whole_block", "chunk_bytes": 1024, "page_bytes": 256}
    fifth, sixth = FifthVersion(**params), CodeBlocks(**params)
    live = []
    for give, choice, keep in steps:
        if give and live:
            number, block = live.pop(choice % len(live))
            sixth.free(number)
            fifth.free(block)
        else:
            number, address, payload = sixth.alloc()
            block = fifth.alloc()
            assert (address, payload) == (block.start + 40, fifth.payload(block))
            hole = max(0, payload - keep)
            pieces = sixth.add_remainder(number, address, address + hole)
            kept = []
            fifth.add_remainder(kept, block, address, address + hole)
            live += zip((piece[0] for piece in pieces), kept, strict=True)
        assert [row["offset"] for row in sixth.blocks()] == [
            block.start - chunk.base for chunk, block in fifth.blocks()
        ]


@pytest.mark.parametrize("policy", HISTORICAL)
def test_history_has_no_size(policy):
    """A size is ignored."""
    heaps = [CodeBlocks(policy=policy, byte_limit=4096) for _ in range(2)]
    assert heaps[0].alloc(0) == heaps[1].alloc(10)
