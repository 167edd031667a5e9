"""Raw logs of the recorder: what they say, in which order, and what happens to broken ones."""

from __future__ import annotations

import contextlib
import gzip
import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from rawlog_bytes import (
    CALLOC,
    DELETE,
    FORK,
    FORKED,
    FREE,
    GRANULE,
    HEADER_BYTES,
    MALLOC,
    MAPS,
    MMAP,
    MPROTECT,
    MREMAP,
    MUNMAP,
    NEW,
    POSIX_MEMALIGN,
    REALLOC,
    REALLOC_BEGIN,
    REALLOC_END,
    REALLOCARRAY_BEGIN,
    SITES,
    THREAD,
    TSC,
    USABLE,
    USABLE_SIZE,
    Log,
    Record,
    Window,
    windows_of,
)

import pyallocx as px
from pyallocx._core import RawLog, clock_rate

NONE = 2**64 - 1
# Also the surrogates that names of files become.
ANY = st.characters(codec=None, min_codepoint=1)


@pytest.fixture
def read(tmp_path: Path) -> Any:
    def read(log: Log | bytes, **options: Any) -> px.Trace:
        path = tmp_path / "raw.axlog"
        path.write_bytes(log if isinstance(log, bytes) else log.to_bytes())
        return px.load(path, **options)

    return read


def one(*records: Record, flags: int = 0, **fields: Any) -> Log:
    """A log of one thread in one window."""
    first = records[0].stamp if records else 0
    return Log([Window([Record(THREAD, first, 0, 700), *records])], flags=flags, **fields)


def events(trace: px.Trace) -> list[tuple[int, int, int, int]]:
    assert trace.call is not None
    columns = (trace.op, trace.object, trace.size_bytes, trace.call)
    return list(zip(*(column.tolist() for column in columns), strict=True))


def rows(trace: px.Trace, name: str) -> list[dict[str, int]]:
    columns = {column: array.tolist() for column, array in trace.asides[name].items()}
    return [
        dict(zip(columns, values, strict=True)) for values in zip(*columns.values(), strict=True)
    ]


# ---- what records mean --------------------------------------------------------------------------


def test_each_call_is_an_event(read: Any) -> None:
    records = [
        Record(kind, 10 + kind, 0x1000 * kind, kind, align=64 if kind == POSIX_MEMALIGN else 0)
        for kind in range(MALLOC, NEW + 1)
    ]
    records += [Record(FREE, 50, 0x2000), Record(DELETE, 51, 0xB000)]
    trace = read(one(*records))
    expected = [(px.OP_ALLOC, i, i + 2, i + 1) for i in range(10)]
    assert events(trace) == [*expected, (px.OP_FREE, 0, 0, 11), (px.OP_FREE, 9, 0, 12)]
    assert [px.CALLS[c] for c in trace.call.tolist()] == [*px.CALLS[1:11], "free", "delete"]
    assert trace.align_log2.tolist() == [0, 0, 0, 0, 6, 0, 0, 0, 0, 0, 0, 0]
    assert trace.time_ns.tolist() == [*range(12, 22), 50, 51]
    assert trace.metadata["tids"] == [700]
    assert trace.metadata["program"] == "app"
    assert trace.metadata["command"] == ["app", "-x"]
    assert trace.metadata["ended"] == "exit"
    assert trace.metadata["counts"] == {"records": 13, "windows": 1, "reallocs_of_null": 2}
    assert trace.metadata["dropped"] == {}
    assert set(trace.asides) == {"realloc_begin", "failed"}


def test_what_does_not_fit_two_words(read: Any) -> None:
    trace = read(
        one(
            Record(MALLOC, 5, 0x1000, 2**40),
            Record(MALLOC, 5 + 2**33, 0x2000, 7),
            Record(POSIX_MEMALIGN, 6 + 2**33, 2**56, 9, align=24),
            Record(MALLOC, 7 + 2**33, 0x3000, 1, wide=True),
            Record(FREE, 8 + 2**33, 2**56),
        )
    )
    assert trace.size_bytes.tolist() == [2**40, 7, 9, 1, 0]
    assert trace.object.tolist() == [0, 1, 2, 3, 2]
    assert trace.align_log2.tolist() == [0, 0, 5, 0, 0]
    assert trace.time_ns.tolist() == [5, 5 + 2**33, 6 + 2**33, 7 + 2**33, 8 + 2**33]
    assert trace.metadata["counts"]["alignments_raised"] == 1
    assert rows(trace, "asked_align") == [{"event": 2, "align_bytes": 24}]
    # It goes where its event goes.
    assert rows(trace.slice(2, 5, inherit=False), "asked_align") == [
        {"event": 0, "align_bytes": 24}
    ]
    assert rows(trace.slice(3, 5), "asked_align") == []


def test_a_realloc_is_one_event_at_its_end(read: Any) -> None:
    trace = read(
        one(
            Record(MALLOC, 1, 0x1000, 8),
            Record(REALLOC_BEGIN, 2, 0x1000, 16),
            Record(REALLOC_END, 5, 0x2000),
            Record(REALLOCARRAY_BEGIN, 6, 0x2000, 24),
            Record(REALLOC_END, 7, 0x2000),
            Record(FREE, 8, 0x2000),
        )
    )
    assert events(trace) == [(0, 0, 8, 1), (2, 0, 16, 3), (2, 0, 24, 4), (1, 0, 0, 11)]
    assert trace.time_ns.tolist() == [1, 5, 7, 8]
    assert rows(trace, "realloc_begin") == [
        {"event": 1, "time_ns": 2},
        {"event": 2, "time_ns": 6},
    ]


def test_another_thread_may_have_the_old_address_before_a_realloc_ends(read: Any) -> None:
    mine = [
        Record(MALLOC, 1, 0x1000, 8),
        Record(REALLOC_BEGIN, 2, 0x1000, 16),
        Record(REALLOC_END, 9, 0x2000),
    ]
    other = [Record(MALLOC, 5, 0x1000, 99), Record(FREE, 12, 0x2000)]
    trace = read(
        Log(
            [
                *windows_of(mine, 0, 1, per_window=99),
                *windows_of(other, 1, 2, per_window=99),
            ]
        )
    )
    assert events(trace) == [(0, 0, 8, 1), (0, 1, 99, 1), (2, 0, 16, 3), (1, 0, 0, 11)]
    assert trace.thread.tolist() == [0, 1, 0, 1]
    assert "order_repairs" not in trace.metadata["counts"]


def test_failed_calls_are_beside_the_events(read: Any) -> None:
    trace = read(
        one(
            Record(MALLOC, 1, 0x1000, 8),
            Record(CALLOC, 2, 0, NONE, failed=True),
            Record(POSIX_MEMALIGN, 3, 0, 5, align=24, failed=True),
            Record(REALLOC_BEGIN, 4, 0x1000, 2**50),
            Record(REALLOC_END, 5, 0, failed=True),
            Record(FREE, 6, 0x1000),
        )
    )
    assert events(trace) == [(0, 0, 8, 1), (1, 0, 0, 11)]
    assert rows(trace, "failed") == [
        {
            "event": 1,
            "thread": 0,
            "time_ns": time,
            "begin_ns": begin,
            "call": call,
            "size_bytes": size,
            "align_bytes": align,
            "object": object,
        }
        for begin, time, call, size, align, object in (
            (2, 2, 2, NONE, 0, NONE),
            (3, 3, 5, 5, 24, NONE),
            (4, 5, 3, 2**50, 0, 0),
        )
    ]
    counts = trace.metadata["counts"]
    assert (counts["failed_allocs"], counts["failed_reallocs"]) == (2, 1)


def test_a_realloc_to_nothing_is_a_free(read: Any) -> None:
    trace = read(
        one(
            Record(REALLOC, 1, 0x1000, 8),
            Record(REALLOC_BEGIN, 2, 0x1000, 0),
            Record(REALLOC_END, 3, 0),
            Record(MALLOC, 4, 0x1000, 9),
        )
    )
    assert events(trace) == [(0, 0, 8, 3), (1, 0, 0, 3), (0, 1, 9, 1)]
    assert rows(trace, "realloc_begin") == [{"event": 1, "time_ns": 2}]
    assert trace.metadata["counts"]["reallocs_to_null"] == 1
    assert trace.metadata["counts"]["reallocs_of_null"] == 1


def test_a_realloc_that_never_ended_did_not_happen(read: Any) -> None:
    trace = read(one(Record(MALLOC, 1, 0x1000, 8), Record(REALLOC_BEGIN, 2, 0x1000, 64)))
    assert events(trace) == [(0, 0, 8, 1)]
    assert trace.metadata["counts"]["reallocs_unfinished"] == 1
    # A handler of a signal jumped out of it.
    trace = read(
        one(
            Record(MALLOC, 1, 0x1000, 8),
            Record(REALLOC_BEGIN, 2, 0x1000, 64),
            Record(REALLOC_BEGIN, 3, 0x1000, 32),
            Record(REALLOC_END, 4, 0x3000),
        )
    )
    assert events(trace) == [(0, 0, 8, 1), (2, 0, 32, 3)]
    assert trace.metadata["counts"]["reallocs_unfinished"] == 1


def test_objects_from_before_the_recording(read: Any) -> None:
    trace = read(
        one(
            Record(FREE, 1, 0x9000),
            Record(DELETE, 2, 0x9100),
            Record(REALLOC_BEGIN, 3, 0x9200, 50),
            Record(REALLOC_END, 4, 0x1000),
            Record(REALLOC_BEGIN, 5, 0x9300, 0),
            Record(REALLOC_END, 6, 0),
            Record(REALLOC_BEGIN, 7, 0x9400, 70),
            Record(REALLOC_END, 8, 0, failed=True),
            Record(USABLE_SIZE, 9, 0x9500, 80),
            Record(USABLE_SIZE, 10, 0x1000, 56),
            Record(FREE, 11, 0x1000),
            flags=USABLE | FORKED,
        )
    )
    assert events(trace) == [(0, 0, 50, 3), (1, 0, 0, 11)]
    counts = trace.metadata["counts"]
    assert counts["frees_of_unknown"] == 1
    assert counts["deletes_of_unknown"] == 1
    assert counts["reallocs_of_unknown"] == 1
    assert counts["reallocs_of_unknown_to_null"] == 1
    assert counts["usable_sizes_of_unknown"] == 1
    assert rows(trace, "usable_size") == [
        {"event": 1, "thread": 0, "time_ns": 10, "object": 0, "size_bytes": 56}
    ]
    assert rows(trace, "realloc_begin") == [{"event": 0, "time_ns": 3}]
    failed = rows(trace, "failed")
    assert [(row["object"], row["begin_ns"], row["time_ns"]) for row in failed] == [(NONE, 7, 8)]
    assert trace.metadata["forked_from"] == 99


def test_maps_are_beside_the_events(read: Any) -> None:
    trace = read(
        one(
            Record(MMAP, 1, 0x10000, 4096, extra=(3 | 34 << 32,)),
            Record(MPROTECT, 2, 0x10000, 4096, extra=(5,)),
            Record(MALLOC, 3, 0x1000, 8),
            Record(MREMAP, 4, 0x20000, 8192, extra=(0x10000, 4096)),
            Record(MMAP, 5, 0, 1, failed=True, extra=(0,)),
            Record(MUNMAP, 6, 0x20000, 8192),
            Record(FORK, 7, 0, 55),
            flags=MAPS,
        )
    )
    table = rows(trace, "maps")
    assert [row["event"] for row in table] == [0, 0, 1, 1]
    assert [row["call"] for row in table] == [0, 1 + 1, 3, 1]
    assert [row["prot"] for row in table] == [3, 5, 0, 0]
    assert [row["flags"] for row in table] == [34, 0, 0, 0]
    assert [row["address"] for row in table] == [0x10000, 0x10000, 0x20000, 0x20000]
    assert (table[2]["old_address"], table[2]["old_bytes"]) == (0x10000, 4096)
    counts = trace.metadata["counts"]
    assert (counts["failed_maps"], counts["forks"]) == (1, 1)


def test_call_sites_are_keys(read: Any) -> None:
    maps = b"00400000-00500000 r-xp 00001000 08:01 7 /nowhere/app\n"
    log = one(
        Record(MALLOC, 1, 0x1000, 8, site=0x400123),
        Record(MALLOC, 2, 0x2000, 8, site=0x400456),
        Record(MALLOC, 3, 0x3000, 8, site=0x400123),
        Record(REALLOC_BEGIN, 4, 0x2000, 9),
        Record(REALLOC_END, 5, 0x4000, site=0x999999),
        Record(FREE, 6, 0x4000),
        Record(FREE, 7, 0x3000),
        Record(MALLOC, 8, 0x5000, 8, site=0),
        flags=SITES,
    )
    log.windows = [*log.windows, Window(text=maps)]
    trace = read(log)
    assert trace.key.tolist() == [0, 1, 0, 1, 1, 0, 2]
    assert trace.metadata["key_names"] == ["app+0x1123", "app+0x1456", "unknown"]
    px.replay_arena(trace)


# ---- order --------------------------------------------------------------------------------------


def two(mine: list[Record], other: list[Record], **fields: Any) -> Log:
    return Log(
        [*windows_of(mine, 0, 1, per_window=99), *windows_of(other, 1, 2, per_window=99)], **fields
    )


def test_a_free_waits_for_its_alloc(read: Any) -> None:
    mine = [Record(MALLOC, 100, 0x1000, 8), Record(MALLOC, 101, 0x2000, 9)]
    other = [Record(FREE, 98, 0x1000), Record(MALLOC, 99, 0x3000, 10)]
    trace = read(two(mine, other))
    assert events(trace) == [(0, 0, 8, 1), (1, 0, 0, 11), (0, 1, 10, 1), (0, 2, 9, 1)]
    assert trace.time_ns.tolist() == [100, 100, 100, 101]
    counts = trace.metadata["counts"]
    assert (counts["order_repairs"], counts["times_raised"]) == (1, 2)


def test_an_alloc_waits_for_the_free_of_its_address(read: Any) -> None:
    mine = [Record(MALLOC, 1, 0x1000, 8), Record(MALLOC, 50, 0x1000, 9)]
    other = [Record(MALLOC, 2, 0x2000, 7), Record(FREE, 60, 0x1000)]
    trace = read(two(mine, other))
    assert events(trace) == [(0, 0, 8, 1), (0, 1, 7, 1), (1, 0, 0, 11), (0, 2, 9, 1)]
    assert trace.metadata["counts"]["order_repairs"] == 1
    assert "frees_inferred" not in trace.metadata["counts"]


def test_a_realloc_waits_on_both_sides(read: Any) -> None:
    mine = [Record(MALLOC, 10, 0x1000, 8), Record(MALLOC, 30, 0x2000, 8), Record(FREE, 60, 0x2000)]
    other = [Record(REALLOC_BEGIN, 9, 0x1000, 16), Record(REALLOC_END, 55, 0x2000)]
    trace = read(two(mine, other))
    assert [op for op, *_ in events(trace)] == [0, 0, 1, 2]
    assert trace.object.tolist() == [0, 1, 1, 0]
    assert trace.metadata["counts"]["order_repairs"] == 2


def test_a_thread_that_waits_keeps_its_own_order(read: Any) -> None:
    """What follows in the next window of the same thread must not overtake what waits."""
    mine = windows_of([Record(FREE, 10, 0x1000)], 0, 1, per_window=1)
    mine += [Window([Record(MALLOC, 11, 0x5000, 5)], thread=0)]
    other = windows_of([Record(MALLOC, 20, 0x1000, 8)], 1, 2, per_window=9)
    trace = read(Log([*mine, *other]))
    assert events(trace) == [(0, 0, 8, 1), (1, 0, 0, 11), (0, 1, 5, 1)]
    assert trace.thread.tolist() == [0, 1, 1]


def test_waits_end(read: Any) -> None:
    """What has waited in vain is told, and nobody waits for long."""
    far = 1 << 40
    mine = [Record(MALLOC, 1, 0x1000, 8), Record(MALLOC, 50, 0x1000, 9), Record(FREE, 51, 0x9000)]
    other = [Record(MALLOC, 2, 0x2000, 7), Record(FREE, far, 0x1000)]
    trace = read(two(mine, other))
    assert [op for op, *_ in events(trace)] == [0, 0, 1, 0, 1]
    assert trace.object.tolist() == [0, 1, 0, 2, 2]
    assert trace.call.tolist() == [1, 1, 0, 1, 11]
    counts = trace.metadata["counts"]
    assert (counts["frees_inferred"], counts["frees_of_unknown"]) == (1, 1)
    assert "order_repairs" not in counts


def test_threads_that_wait_for_each_other_go_on(read: Any) -> None:
    mine = [Record(FREE, 1, 0x1000), Record(MALLOC, 2, 0x2000, 8)]
    other = [Record(FREE, 1, 0x2000), Record(MALLOC, 2, 0x1000, 8)]
    trace = read(two(mine, other))
    assert len(trace) == 3
    counts = trace.metadata["counts"]
    assert counts["frees_of_unknown"] == 1
    assert counts["order_repairs"] == 1


def test_windows_may_be_anywhere_and_change_hands(read: Any) -> None:
    mine = windows_of(
        [Record(MALLOC, 10 * i, 0x1000 * i, i) for i in range(1, 9)], 0, 1, per_window=2
    )
    # A window that the first thread had, handed on when it was dead.
    mine[-1].records = [
        *mine[-1].records,
        Record(THREAD, 100, 1, 2),
        Record(MALLOC, 101, 0xA000, 100),
    ]
    late = Window([Record(MALLOC, 200, 0xB000, 101)], thread=1)
    rng = random.Random(4)
    windows = [*mine, late]
    rng.shuffle(windows)
    trace = read(Log(windows))
    assert trace.size_bytes.tolist() == [*range(1, 9), 100, 101]
    assert trace.thread.tolist() == [0] * 8 + [1] * 2
    assert trace.metadata["tids"] == [1, 2]


class History:
    """A program with threads, in the true order of what happened."""

    def __init__(self, rng: random.Random, threads: int, steps: int) -> None:
        self.records: list[list[Record]] = [[] for _ in range(threads)]
        self.events: list[tuple[int, int, int, int, int]] = []  # thread, op, object, size, time
        live: dict[int, int] = {}  # address -> object
        halfway: dict[int, tuple[int, int, int]] = {}  # thread -> address, object, size
        free = [0x1000 * i for i in range(1, 9)]
        objects = 0
        for time in range(1, steps + 1):
            thread = rng.randrange(threads)
            mine = self.records[thread]
            if thread in halfway:
                old, object, size = halfway.pop(thread)
                fate = rng.randrange(4)
                if fate == 0 and old in free:
                    free.remove(old)
                    mine.append(Record(REALLOC_END, time, 0, failed=True))
                    live[old] = object
                elif fate == 1:
                    mine.append(Record(REALLOC_END, time, 0))
                    self.events.append((thread, px.OP_FREE, object, 0, time))
                elif free:
                    address = free.pop(rng.randrange(len(free)))
                    mine.append(Record(REALLOC_END, time, address))
                    live[address] = object
                    self.events.append((thread, px.OP_REALLOC, object, size, time))
                else:
                    halfway[thread] = (old, object, size)
                continue
            choice = rng.randrange(10)
            if choice < 5 and free:
                address = free.pop(rng.randrange(len(free)))
                mine.append(Record(MALLOC, time, address, time))
                live[address] = objects
                self.events.append((thread, px.OP_ALLOC, objects, time, time))
                objects += 1
            elif choice < 8 and live:
                address = rng.choice(list(live))
                mine.append(Record(FREE, time, address))
                self.events.append((thread, px.OP_FREE, live.pop(address), 0, time))
                free.append(address)
            elif choice < 9 and live:
                address = rng.choice(list(live))
                mine.append(Record(REALLOC_BEGIN, time, address, time))
                halfway[thread] = (address, live.pop(address), time)
                free.append(address)
            elif live:
                mine.append(Record(USABLE_SIZE, time, rng.choice(list(live)), 64))

    def log(self, rng: random.Random) -> Log:
        """Write it; windows of one thread in their order, as a program takes them."""
        left = [
            windows_of(records, thread, 10 + thread, per_window=rng.randrange(1, 9))
            for thread, records in enumerate(self.records)
        ]
        windows: list[Window] = []
        while any(left):
            windows.append(rng.choice([mine for mine in left if mine]).pop(0))
        return Log(windows, threads=len(self.records))


def imported(tmp_path: Path, log: Log) -> px.Trace:
    path = tmp_path / "history.axlog"
    path.write_bytes(log.to_bytes())
    return px.load(path)


@given(seed=st.integers(0, 2**32), threads=st.integers(1, 5), steps=st.integers(0, 120))
def test_a_log_is_read_as_the_history_it_was_written_of(
    seed: int, threads: int, steps: int, tmp_path_factory: pytest.TempPathFactory
) -> None:
    rng = random.Random(seed)
    history = History(rng, threads, steps)
    trace = imported(tmp_path_factory.mktemp("raw"), history.log(rng))
    tids = [trace.metadata["tids"][thread] - 10 for thread in trace.thread.tolist()]
    got = list(
        zip(
            tids,
            trace.op.tolist(),
            trace.object.tolist(),
            trace.size_bytes.tolist(),
            trace.time_ns.tolist(),
            strict=True,
        )
    )
    assert got == history.events
    counts = trace.metadata["counts"]
    assert not {"order_repairs", "times_raised", "frees_inferred"} & set(counts)


@given(seed=st.integers(0, 2**32), threads=st.integers(2, 4), steps=st.integers(0, 120))
def test_clocks_that_differ_a_little_change_no_threads_order(
    seed: int, threads: int, steps: int, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """Every thread's events are all there, in its order, and the trace is valid.

    The clocks differ by less than two calls take: an address that one thread was given and gave
    back in that time would seem to be there for the others before.
    """
    rng = random.Random(seed)
    history = History(rng, threads, steps)
    for records in history.records:
        ahead = rng.randrange(4)
        for record in records:
            record.stamp = 2 * record.stamp + ahead
    trace = imported(tmp_path_factory.mktemp("raw"), history.log(rng))
    for thread in range(threads):
        want = [(op, size) for who, op, _, size, _ in history.events if who == thread]
        tids = trace.metadata["tids"]
        if 10 + thread not in tids:
            assert want == []
            continue
        mine = trace.thread == tids.index(10 + thread)
        got = list(zip(trace.op[mine].tolist(), trace.size_bytes[mine].tolist(), strict=True))
        assert got == want
    counts = trace.metadata["counts"]
    assert not {"frees_inferred", "frees_of_unknown", "reallocs_of_unknown"} & set(counts)


# ---- time ---------------------------------------------------------------------------------------


def test_ticks_become_nanoseconds_by_the_two_readings_of_the_clocks(read: Any) -> None:
    records = [Record(MALLOC, 1000 + 4 * i, 0x1000 * (i + 1), 1) for i in range(3)]
    pairs = (1000, 5_000, 1000 + 4 * 10**8, 5_000 + 10**8)
    trace = read(one(*records, clock=TSC, pairs=pairs))
    assert trace.time_ns.tolist() == [0, 1, 2]
    clock = trace.metadata["clock"]
    assert (clock["kind"], clock["ns_per_tick"], clock["start_monotonic_ns"]) == ("tsc", 0.25, 5000)
    # A program that was killed wrote no second pair; its windows have some.
    log = one(*records, clock=TSC, pairs=(1000, 5_000, 0, 0))
    log.windows = [*log.windows, Window(base=1000 + 2 * 10**8, mono=5_000 + 10**8)]
    assert read(log).metadata["clock"]["ns_per_tick"] == 0.5


def test_a_short_recording_is_timed_by_this_machines_clock(read: Any) -> None:
    rate = clock_rate(TSC)
    records = [Record(MALLOC, 1000 + 10**6 * i, 0x1000 * (i + 1), 1) for i in range(3)]
    trace = read(one(*records, clock=TSC, pairs=(1000, 5_000, 1010, 6_000)))
    found = trace.metadata["clock"]["ns_per_tick"]
    assert found == (100.0 if rate is None else pytest.approx(rate, rel=0.2))
    assert clock_rate(1) is None


# ---- what is cut, torn or damaged ---------------------------------------------------------------


def test_nothing_behind_the_cut_is_used(read: Any) -> None:
    mine = [Record(MALLOC, 10 * i, 0x1000 * i, i) for i in range(1, 6)]
    other = [Record(MALLOC, 10 * i + 5, 0x1000 * i + 64, 50 + i) for i in range(1, 6)]
    trace = read(two(mine, other, cut=1, cut_stamp=30))
    assert trace.size_bytes.tolist() == [1, 51, 2, 52]
    assert trace.metadata["cut"] == {"why": "max_bytes", "time_ns": 30}
    assert trace.metadata["counts"]["records_after_cut"] == 2


def test_a_killed_program_leaves_whole_records(read: Any) -> None:
    log = one(*(Record(MALLOC, i, 0x1000 * i, i) for i in range(1, 6)), ended=0)
    first = log.windows[0]
    assert isinstance(first, Window)
    # Word 0 of a record is written last.
    body = bytearray(log.to_bytes())
    at = HEADER_BYTES + 64 + 16 * 5
    body[at : at + 8] = bytes(8)
    trace = read(bytes(body))
    assert trace.size_bytes.tolist() == [1, 2, 3, 4]
    assert trace.metadata["ended"] == "killed"


def test_a_window_whose_owner_died_is_passed_over(read: Any) -> None:
    log = one(Record(MALLOC, 1, 0x1000, 1))
    late = Window([Record(MALLOC, 9, 0x2000, 2)], frees_of_null=3, lost=4)
    log.windows = [bytes(GRANULE), *log.windows, bytes(2 * GRANULE), late]
    trace = read(log)
    assert trace.size_bytes.tolist() == [1, 2]
    counts = trace.metadata["counts"]
    assert counts["windows_unused"] == 3
    assert (counts["frees_of_null"], counts["lost"]) == (3, 4)


def test_the_end_of_a_realloc_whose_beginning_is_lost(read: Any) -> None:
    trace = read(
        one(Record(REALLOC_END, 1, 0x1000, 0), Record(REALLOC_END, 2, 0), Record(FREE, 3, 0x1000))
    )
    assert events(trace) == [(0, 0, 0, 3), (1, 0, 0, 11)]
    assert trace.metadata["counts"]["realloc_ends_alone"] == 2


BROKEN = {
    "kind": (HEADER_BYTES + 64 + 16, bytes([60, 0, 0, 0, 0, 0, 0, 1]), "expected a record"),
    "bits": (HEADER_BYTES + 64 + 17, bytes([0xC0]), "expected a record"),
    "window": (HEADER_BYTES, b"AXWINDOX", "expected the magic of a window"),
    "bytes": (HEADER_BYTES + 8, bytes([1]), "expected a window of whole granules"),
    "short": (HEADER_BYTES + 10, bytes([9]), "the file ends before this window does"),
}


@pytest.mark.parametrize("name", BROKEN)
def test_damage_is_refused_with_its_place_or_counted(read: Any, name: str) -> None:
    at, wrong, message = BROKEN[name]
    log = one(*(Record(MALLOC, i, 0x1000 * i, i) for i in range(1, 4)))
    log.windows = [*log.windows, Window([Record(MALLOC, 9, 0x9000, 9)])]
    body = bytearray(log.to_bytes())
    body[at : at + len(wrong)] = wrong
    with pytest.raises(px.TraceError, match=rf"raw\.axlog: at byte \d+: {message}"):
        read(bytes(body))
    trace = read(bytes(body), on_error="skip")
    assert sum(trace.metadata["dropped"].values()) == 1


def test_headers_that_are_none(read: Any) -> None:
    whole = one(Record(MALLOC, 1, 0x1000, 1)).to_bytes()
    with pytest.raises(px.TraceError, match="the raw log ends inside its header"):
        read(whole[:5000])
    with pytest.raises(px.TraceError, match="another version"):
        read(whole[:8] + b"\x02" + whole[9:])
    with pytest.raises(px.TraceError, match="expected a known clock"):
        read(whole[:24] + b"\x07" + whole[25:])
    with pytest.raises(px.TraceError, match="expected a raw log of the recorder"):
        read(b"0: malloc 0x10 5\n", format="rawlog")
    with pytest.raises(px.TraceError, match="the file ends before"):
        read(whole[:-GRANULE])
    assert len(read(whole[:-GRANULE], on_error="skip")) == 0
    assert len(read(one())) == 0


def test_a_packed_log_is_read(read: Any, tmp_path: Path) -> None:
    log = one(Record(MALLOC, 1, 0x1000, 1))
    assert read(gzip.compress(log.to_bytes())) == read(log)


def test_bytes_that_are_no_text_become_text(read: Any, tmp_path: Path) -> None:
    """Whatever stands in the header or in the memory maps can be saved and shown."""
    maps = b"00400000-00500000 r-xp 00000000 08:01 7 /no/\xff\xfe.so\n"
    log = one(
        Record(MALLOC, 1, 0x1000, 1, site=0x401000),
        flags=SITES,
        exe=b"/bin/\x80app",
        command=[b"app\xe9", b"\xff"],
    )
    log.windows = [*log.windows, Window(text=maps)]
    for on_error in ("raise", "skip"):
        trace = read(log, on_error=on_error)
        (site,) = trace.metadata["key_names"]
        assert site.endswith(".so+0x1000")
        for text in (site, trace.metadata["program"], *trace.metadata["command"]):
            text.encode()
        trace.save(tmp_path / "saved.npz")
        assert px.load(tmp_path / "saved.npz").metadata == trace.metadata
        repr(trace), trace._repr_html_()


@given(metadata=st.dictionaries(st.text(ANY, max_size=4), st.lists(st.text(ANY, max_size=4))))
def test_metadata_is_text(metadata: dict[str, list[str]]) -> None:
    kept = px.Trace([0], [0], [8], metadata=metadata).metadata
    whole = {key: value for key, value in metadata.items() if is_text(key, *value)}
    assert whole.items() <= kept.items() or len(whole) < len(metadata)
    assert is_text(*kept, *(text for value in kept.values() for text in value))


def is_text(*texts: str) -> bool:
    return not any("\ud800" <= letter <= "\udfff" for text in texts for letter in text)


def test_what_metadata_says_of_bytes() -> None:
    said = px.Trace([0], [0], [8], metadata={"a\udcff": ["\\", "\ud800é\udc80\n"]}).metadata
    assert said == {r"a\xff": ["\\", "\\ud800é\\x80\n"]}


@given(data=st.data())
def test_changed_bytes_do_no_harm(
    data: st.DataObject, tmp_path_factory: pytest.TempPathFactory
) -> None:
    rng = random.Random(data.draw(st.integers(0, 2**32)))
    body = bytearray(History(rng, 3, 60).log(rng).to_bytes())
    for _ in range(data.draw(st.integers(1, 8))):
        # Headers and records are at the starts of windows.
        start = rng.choice([0, *range(HEADER_BYTES, len(body), GRANULE)])
        at = start + rng.randrange(256)
        body[at] = rng.choice([0, 1, 64, 128, 255, rng.randrange(256)])
    del body[len(body) - rng.choice([0, 0, 0, 1, 40, GRANULE]) :]
    path = tmp_path_factory.mktemp("raw") / "broken.axlog"
    path.write_bytes(body)
    for on_error in ("raise", "skip"):
        with contextlib.suppress(px.TraceError):
            px.load(path, on_error=on_error, format="rawlog").summary()


def test_the_object_answers_only_what_its_state_allows(tmp_path: Path) -> None:
    path = tmp_path / "raw.axlog"
    path.write_bytes(one(*(Record(MALLOC, i, 0x1000 * i, i) for i in range(1, 9))).to_bytes())
    with path.open("rb") as file:
        log = RawLog(file.fileno())
    with pytest.raises(RuntimeError, match="once, when all steps are done"):
        log.tables()
    assert log.step(3) is False
    assert log.step(100) is True
    with pytest.raises(RuntimeError, match="the log is read"):
        log.step(1)
    columns = log.tables()["events"]
    assert np.asarray(columns["size_bytes"]).tolist() == list(range(1, 9))
    with pytest.raises(RuntimeError, match="once"):
        log.tables()
    with pytest.raises(OSError, match="Bad file descriptor"):
        RawLog(10**6)
    with path.open("wb") as file, pytest.raises(OSError):
        RawLog(file.fileno())
