"""px.Arena on real memory, step by step; the state machine covers the combinations."""

import gc
import math
import struct
import threading

import pytest

import pyallocx as px
from pyallocx import _core
from pyallocx.arena import POLICIES

POISON = 0x7FFFFFFFF0DEA7FF


def fill(arena, key, size, count):
    return [arena.alloc(key, size) for _ in range(count)]


def empty_list_after(arena, key, size, peak):
    """One episode: a list that reaches `peak` and is emptied again."""
    for handle in fill(arena, key, size, peak):
        arena.free(key, handle)
    return fill(arena, key, size, peak)


def test_reuse_is_last_in_first_out():
    with px.Arena() as a:
        first, second = a.alloc(1, 40), a.alloc(1, 40)
        assert second.address == first.address + 40
        a.free(1, first)
        a.free(1, second)
        assert a.alloc(1, 40).address == second.address
        assert a.alloc(1, 40).address == first.address
        assert a.alloc(1, 40).address == second.address + 40


def test_types_of_one_size_do_not_share():
    with px.Arena() as a:
        p = a.alloc(1, 40)
        a.free(1, p)
        assert a.alloc(2, 40).address != p.address
    with px.Arena(policy="intrusive") as a:
        p = a.alloc(1, 40)
        a.free(1, p)
        assert a.alloc(2, 40).address == p.address


def test_handle_tells_what_it_is():
    with px.Arena() as a:
        p = a.alloc(key=7, size_bytes=13)
        assert (p.key, p.size_bytes, p.generation) == (7, 13, 1)
        assert "key=7" in repr(p)
        assert "size_bytes=13" in repr(p)
        a.free(7, p)
        assert a.alloc(7, 13).generation == 2


def test_view_is_exactly_the_object_and_writable():
    with px.Arena() as a:
        p, q = a.alloc(1, 13), a.alloc(1, 13)
        with a.view(p) as memory, a.view(q) as other:
            assert (memory.nbytes, memory.readonly, memory.format) == (13, False, "B")
            memory[:] = bytes(range(13))
            other[:] = bytes(13)
            assert bytes(memory) == bytes(range(13))


def test_exported_view_keeps_object_and_arena():
    a = px.Arena()
    p, q = a.alloc(1, 16), a.alloc(1, 16)
    memory = a.view(p)
    part = memory[4:8]
    with pytest.raises(BufferError, match="view"):
        a.free(1, p)
    with pytest.raises(BufferError, match="view"):
        a.close()
    a.free(1, q)
    memory.release()
    with pytest.raises(BufferError):
        a.free(1, p)  # the slice still shows it
    part.release()
    a.free(1, p)
    a.close()


def test_view_outlives_the_name_of_its_arena():
    a = px.Arena()
    memory = a.view(a.alloc(1, 1 << 16))
    del a
    gc.collect()
    memory[:] = b"\xab" * (1 << 16)
    assert memory[-1] == 0xAB


@pytest.mark.parametrize("policy", POLICIES)
def test_misuse_is_named_and_changes_nothing(policy):
    with px.Arena(policy=policy) as a, px.Arena(policy=policy) as other:
        p = a.alloc(1, 40)
        stale = a.alloc(1, 40)
        a.free(1, stale)
        reused = a.alloc(1, 40)
        dead = a.alloc(1, 40)
        a.free(1, dead)
        before = a.stats()
        cases = [
            (px.InvalidFree, "already free", lambda: a.free(1, dead)),
            (px.InvalidFree, "stale", lambda: a.free(1, stale)),
            (px.InvalidFree, "stale", lambda: a.view(stale)),
            (px.InvalidFree, "key 1, freed under 2", lambda: a.free(2, p)),
            (px.InvalidFree, "another arena", lambda: other.free(1, p)),
            (px.InvalidFree, "another arena", lambda: other.view(p)),
            (TypeError, "Handle", lambda: a.free(1, p.address)),
            (TypeError, "Handle", lambda: a.view(None)),
            (ValueError, "size_bytes is 0, allowed is 1", lambda: a.alloc(1, 0)),
            (ValueError, "size_bytes is -1", lambda: a.alloc(1, -1)),
            (ValueError, f"size_bytes is {2**70}", lambda: a.alloc(1, 2**70)),
            (ValueError, f"key is {2**32}, allowed is 0 to {2**32 - 1}", lambda: a.alloc(2**32, 8)),
            (TypeError, "str", lambda: a.alloc("frame", 8)),
            (TypeError, "float", lambda: a.alloc(1, 8.0)),
        ]
        if policy != "intrusive":
            cases.append((ValueError, "key 1 holds objects of 40 bytes", lambda: a.alloc(1, 48)))
        for error, text, call in cases:
            with pytest.raises(error, match=text):
                call()
        assert a.stats() == before
        a.check()
        a.free(1, reused)
        a.free(1, p)


def test_same_rounded_size_is_the_same_size():
    with px.Arena() as a:
        a.free(1, a.alloc(1, 33))
        p = a.alloc(1, 40)
        assert p.size_bytes == 40
        with pytest.raises(ValueError, match="holds objects of 40 bytes, asked for 41"):
            a.alloc(1, 41)


def test_use_after_close():
    a = px.Arena()
    p = a.alloc(1, 8)
    assert not a.closed
    a.close()
    a.close()
    assert a.closed
    assert repr(a) == "<Arena closed>"
    for call in (
        lambda: a.alloc(1, 8),
        lambda: a.free(1, p),
        lambda: a.view(p),
        lambda: a.check(),
        lambda: a.__enter__(),
        lambda: px.Arena(share=a),
    ):
        with pytest.raises(ValueError, match="closed"):
            call()


def test_handle_of_a_closed_arena_is_foreign_to_the_next():
    a = px.Arena()
    p = a.alloc(1, 8)
    a.close()
    del a
    with px.Arena() as b:
        b.alloc(1, 8)
        with pytest.raises(px.InvalidFree, match="another arena"):
            b.free(1, p)


def test_poison_is_written_over_the_whole_rounded_object():
    with px.Arena() as a:
        p = a.alloc(1, 20)
        a.free(1, p)
        q = a.alloc(1, 24)
        assert q.address == p.address
        with a.view(q) as memory:
            assert struct.unpack("3Q", memory) == (POISON,) * 3
    with px.Arena(poison=False) as a:
        p = a.alloc(1, 8)
        with a.view(p) as memory:
            memory[:] = b"untouch!"
        a.free(1, p)
        with a.view(a.alloc(1, 8)) as memory:
            assert bytes(memory) == b"untouch!"


@pytest.mark.parametrize(("policy", "offset"), [("byte_cut", 16), ("intrusive", 16)])
def test_write_after_free_is_found_at_reuse(policy, offset):
    import ctypes

    with px.Arena(policy=policy, check_poison=True) as a:
        p = a.alloc(1, 32)
        a.free(1, p)
        ctypes.c_uint64.from_address(p.address + offset).value = 0xDEAD
        before = a.stats()
        with pytest.raises(px.PoisonError) as caught:
            a.alloc(1, 32)
        text = str(caught.value)
        assert f"offset {offset}" in text
        assert f"wanted {POISON:#x}" in text
        assert "found 0xdead" in text
        assert f"{p.address:#x}" in text
        assert a.stats() == before
        ctypes.c_uint64.from_address(p.address + offset).value = POISON
        assert a.alloc(1, 32).address == p.address


@pytest.mark.parametrize("header", [24, 32])
def test_chunks_slop_and_oversize(header):
    payload = 8192 - header
    with px.Arena(chunk_header_bytes=header) as a:
        a.alloc(1, payload - 1000)  # rounded up
        taken = payload - -(-(payload - 1000) // 8) * 8
        assert a.stats()["unused_tail_bytes"] == taken
        a.alloc(2, payload + 8)  # oversize: a chunk of its own, the current one stays
        stats = a.stats()
        assert (stats["chunks"], stats["oversize_chunks"], stats["slop_bytes"]) == (2, 1, 0)
        assert stats["chunk_bytes"] == 8192 + header + payload + 8
        a.alloc(3, taken)  # fills the current chunk to the brim
        assert a.stats()["chunks"] == 2
        a.alloc(4, payload)  # exactly a standard payload: current, and full
        assert a.stats()["unused_tail_bytes"] == 0
        a.alloc(5, 8)
        a.alloc(4, payload)
        assert a.stats()["slop_bytes"] == payload - 8


@pytest.mark.parametrize("policy", POLICIES)
def test_parts_add_up(policy):
    with px.Arena(policy=policy, chunk_bytes=512) as a:
        held = []
        for i in range(600):
            if i % 3 == 2:
                a.free(*held.pop(i % len(held)))
            else:
                key = i % 7
                held.append((key, a.alloc(key, 20 + 60 * key)))
        s = a.stats()
        assert s["chunk_bytes"] == (
            s["chunk_header_bytes"]
            + s["live_bytes"]
            + s["freelist_bytes"]
            + s["leaked_bytes"]
            + s["slop_bytes"]
            + s["unused_tail_bytes"]
        )
        assert s["live_bytes"] == s["requested_bytes"] + s["rounding_bytes"]
        assert s["list_buffer_bytes"] == (
            s["list_header_bytes"]
            + s["overhead_bytes"]
            + (0 if policy == "intrusive" else 8 * s["freelist_objects"])
        )
        assert s["backing_bytes"] == s["chunk_bytes"] + s["list_buffer_bytes"]
        assert s["backing_mallocs"] == s["chunks"] + s["list_mallocs"]
        assert s["backing_frees"] == s["list_frees"]
        for name in ("pops", "bumps", "transitions", "freelist_bytes"):
            assert s[name] == sum(row[name] for row in a.free_lists())


@pytest.mark.parametrize(
    ("peak", "buffer", "kept"), [(255, 2048, True), (256, 4096, False), (1, 16, True)]
)
def test_2048_bytes_is_the_largest_kept_buffer(peak, buffer, kept):
    for params in ({"retain_bytes": 2048}, {"policy": "capacity_cut", "retain_capacity": 500}):
        with px.Arena(**params) as a:
            empty_list_after(a, 1, 8, peak)
            s = a.stats()
            assert s["histogram_buffer"] == {buffer: 1}
            assert s["list_frees"] == (not kept)
            assert s["list_buffer_bytes"] == (buffer if kept else 0)


def test_large_pops_are_those_from_more_than_500_entries():
    with px.Arena() as a:
        empty_list_after(a, 1, 8, 511)
        assert a.stats()["pops_large"] == 511
    with px.Arena() as a:
        empty_list_after(a, 1, 8, 255)
        assert a.stats()["pops_large"] == 0


def test_peak_window_shrinks_to_what_was_needed_lately():
    with px.Arena(policy="peak_window", window_episodes=2) as a:
        for peak, expected in [(60, 512), (3, 512), (3, 32), (2, 32), (1, 32), (1, 16)]:
            for handle in empty_list_after(a, 1, 8, peak):
                del handle
            assert a.free_lists()[0]["buffer_bytes"] == expected, peak


def test_low_water_gives_half_back_at_each_tick():
    with px.Arena(policy="low_water", tick_operations=1000) as a:
        empty_list_after(a, 1, 8, 250)
        assert a.free_lists()[0]["buffer_bytes"] == 2048
        seen = []
        while a.free_lists()[0]["buffer_bytes"]:
            fill(a, 2, 8, 500)
            seen.append(a.free_lists()[0]["buffer_bytes"] or a.free_lists()[1]["buffer_bytes"])
        assert a.free_lists()[1]["buffer_bytes"] == 0


def test_age_counts_operations_of_all_arenas_that_share():
    with px.Arena(policy="age", idle_operations=10) as a, px.Arena(share=a) as b:
        empty_list_after(a, 1, 8, 1)
        fill(b, 1, 8, 9)
        assert a.stats()["list_buffer_bytes"] == 16
        fill(b, 1, 8, 1)
        assert a.stats()["list_buffer_bytes"] == 0


def test_budget_is_one_for_all_arenas_that_share():
    with px.Arena(policy="budget", budget_bytes=48) as a, px.Arena(share=a) as b:
        empty_list_after(a, 1, 8, 2)  # 32 bytes
        empty_list_after(b, 1, 8, 1)  # 16 bytes
        empty_list_after(b, 2, 8, 1)  # no room for 16 more
        s = a.stats()
        assert (s["list_buffer_bytes"], s["list_frees"], s["arenas"]) == (48, 1, 2)
        b.close()
        assert a.stats()["arenas"] == 1
        empty_list_after(a, 2, 8, 1)
        assert a.stats()["list_frees"] == 1  # b's share came back when it closed
    with pytest.raises(TypeError, match="no parameters of its own"), px.Arena() as a:
        px.Arena(share=a, retain_bytes=0)
    with pytest.raises(TypeError, match="share must be an Arena"):
        px.Arena(share=3)


@pytest.mark.parametrize(
    ("params", "error", "text"),
    [
        ({"policy": "keepall"}, ValueError, "did you mean 'keep_all'"),
        ({"retain_bytes": -1}, ValueError, "retain_bytes.*-1.*0 to .*inf"),
        ({"retain_bytes": 1.5}, TypeError, "retain_bytes.*1.5"),
        ({"retain_bytes": math.nan}, TypeError, "nan"),
        ({"retain_bytes": True}, TypeError, "True"),
        ({"chunk_bytes": 24}, ValueError, "chunk_bytes is 24, allowed is 32 to"),
        ({"chunk_header_bytes": 16}, ValueError, "chunk_header_bytes is 16, allowed is 24"),
        ({"alignment_bytes": 12}, ValueError, "alignment_bytes.*12"),
        ({"alignment_bytes": 4}, ValueError, "alignment_bytes.* is 4"),
        ({"pointer_bytes": 4}, ValueError, "pointer_bytes.*real memory.* is 4"),
        ({"list_header_bytes": 12}, ValueError, "multiple of 8.* is 12"),
        ({"window_episodes": 0}, ValueError, "window_episodes.*1 to 64"),
        ({"retain_byte": 3}, TypeError, "retain_byte"),
        ({"max_object_bytes": 3}, TypeError, "max_object_bytes"),
    ],
)
def test_bad_parameters(params, error, text):
    with pytest.raises(error, match=text):
        px.Arena(**params)


def test_core_takes_no_unknown_parameter():
    with pytest.raises(TypeError, match="unknown arena parameter 'retain'"):
        _core.Arena({"retain": 1})
    with pytest.raises(ValueError, match=f"pointer_bytes is {2**32}"):
        _core.Arena({"pointer_bytes": 2**32})


def test_defaults_of_the_package_are_those_of_the_core():
    """One default each, said twice: in C for the core's users, in Python for help and sweeps."""
    trace = px.synthesize(3000, seed=5)
    by_core = _core.ArenaReplay(
        {},
        trace.op,
        trace.object,
        trace.size_bytes,
        None,
        None,
        None,
        None,
        trace.n_objects,
        1,
        0,
        0,
    )
    by_core.step(len(trace))
    (row,) = by_core.rows()
    ours = px.replay_arena(trace).row
    assert all(ours[name] == value for name, value in row.items() if value == value)


def test_every_backing_call_may_fail():
    """The n-th refusal for every n: reported, nothing lost, and the same call works afterwards."""

    def work(a, on_refusal):
        held = []
        for i in range(300):
            key = i % 5
            call = (
                (lambda key=key: held.append((key, a.alloc(key, 8 + 300 * key))))
                if i % 4
                else (lambda: a.free(*held[0]) or held.pop(0))
            )
            if i % 4 == 0 and not held:
                continue
            try:
                call()
            except MemoryError:
                on_refusal(a)
                a.check()
                call()
        return held

    for books in (False, True):
        refusals = 1
        n = 0
        while refusals:
            n += 1
            refusals = 0

            def note(arena):
                nonlocal refusals
                refusals += 1

            with px.Arena(chunk_bytes=1024, retain_bytes=64) as a:
                a.fail_backing_call(n, bookkeeping=books)
                held = work(a, note)
                a.fail_backing_call(0, bookkeeping=books)
                for key, handle in held:
                    a.free(key, handle)
                a.check()
                assert a.stats()["live_objects"] == 0
        assert n > (5 if books else 20)


def test_two_threads_may_each_have_an_arena():
    failures = []

    def churn():
        try:
            with px.Arena() as a:
                for _ in range(300):
                    empty_list_after(a, 1, 24, 5)
                a.check()
        except Exception as exc:
            failures.append(exc)

    threads = [threading.Thread(target=churn) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures


def test_smashed_link_of_an_intrusive_list_is_found():
    import ctypes

    with px.Arena(policy="intrusive", check_poison=True) as a:
        handles = [a.alloc(1, 40) for _ in range(4)]
        for handle in handles:
            a.free(1, handle)
        for handle in (handles[3], handles[0]):  # the newest, and the one that ends the list
            word = ctypes.c_uint64.from_address(handle.address)
            link = word.value
            word.value = 0x4141414141414141
            with pytest.raises(px.PoisonError, match=r"link.*found 0x4141414141414141"):
                a.check()
            word.value = link
        a.check()
        word = ctypes.c_uint64.from_address(handles[3].address)
        link, word.value = word.value, 8
        with pytest.raises(px.PoisonError, match="link"):
            a.alloc(1, 40)
        word.value = link
        assert a.alloc(1, 40).address == handles[3].address


@pytest.mark.parametrize("policy", ["byte_cut", "intrusive"])
def test_check_looks_at_poison(policy):
    import ctypes

    with px.Arena(policy=policy, check_poison=True) as a:
        first, second = a.alloc(1, 24), a.alloc(1, 24)
        a.free(1, first)
        a.free(1, second)
        a.check()
        byte = ctypes.c_uint8.from_address(first.address + 17)
        byte.value ^= 1
        with pytest.raises(px.PoisonError, match="offset 16"):
            a.check()
        byte.value ^= 1
        a.check()


def test_with_lets_the_users_exception_through():
    a = px.Arena()
    memory = a.view(a.alloc(1, 8))
    with pytest.raises(KeyError, match="mine"), a:
        raise KeyError("mine")
    assert not a.closed
    with pytest.raises(BufferError, match="view"), a:
        pass
    memory.release()
    with a:
        pass
    assert a.closed


@pytest.mark.parametrize(
    "name", ["alloc", "free", "view", "stats", "free_lists", "check", "close", "fail_backing_call"]
)
def test_methods_are_documented(name):
    assert len(getattr(px.Arena, name).__doc__) > 40
