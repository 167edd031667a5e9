"""The launcher makes memory for a log ahead of the program, and nobody can tell."""

from __future__ import annotations

import mmap
import os
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import recording
from hypothesis import given, settings
from hypothesis import strategies as st

import pyallocx as px
from pyallocx import _prefill, recorder
from pyallocx._prefill import MOST_AHEAD, Prefill
from pyallocx._running import wait_for

MIB = 1 << 20


def can_populate() -> bool:
    with mmap.mmap(-1, 1 << 16) as memory:
        try:
            memory.madvise(23)
        except OSError:
            return False
    return len(os.sched_getaffinity(0)) > 1


pytestmark = pytest.mark.skipif(not can_populate(), reason="an old kernel, or one processor")


def make_log(folder: Path, used: int, size: int, name: str = "pyallocx-1-0.axlog") -> Path:
    path = folder / name
    with path.open("wb") as file:
        file.truncate(size)
    take(path, used)
    return path


def take(path: Path, used: int) -> None:
    with path.open("r+b") as file:
        file.seek(80)
        file.write(used.to_bytes(8, "little"))


def made(path: Path) -> int:
    """Bytes of the file that there are: the header's page is one."""
    return path.stat().st_blocks * 512


@pytest.fixture
def idle(monkeypatch: pytest.MonkeyPatch) -> None:
    """The machine has nothing else to do, whatever it does."""
    monkeypatch.setattr(_prefill, "_is_busy", lambda: False)
    monkeypatch.setattr(_prefill, "_has_memory", lambda: True)
    monkeypatch.setattr(_prefill, "_make", lambda log, start, stop: log.make(start, stop))


def run_dry(prefill: Prefill) -> None:
    """Go on until it has nothing more to do."""
    prefill._look_again = 0
    for _ in range(200):
        if prefill.step() != 0:
            return
    raise AssertionError("it never rests")


# ---- what is made ---------------------------------------------------------------------------


@given(
    used=st.integers(0, 1 << 30),
    ready=st.integers(0, (1 << 30) // _prefill._PIECE).map(lambda k: k * _prefill._PIECE),
    size=st.integers(0, 1 << 30),
)
@settings(max_examples=200, deadline=None)
def test_what_is_wanted(
    tmp_path_factory: pytest.TempPathFactory, used: int, ready: int, size: int
) -> None:
    path = make_log(tmp_path_factory.mktemp("log"), used, max(size, 88))
    log = _prefill._Log(str(path))
    try:
        assert log.look() == (used != 0)
        assert not log.look()
        log.ready = ready
        start, stop = log.wanted()
        if start < stop:
            assert used >= MIB
            assert start >= max(ready, used)
            assert stop <= min(used + used // 2, used + MOST_AHEAD, max(size, 88))
            assert stop - start <= MIB
            assert start % mmap.PAGESIZE == stop % mmap.PAGESIZE == 0
        elif used >= 4 * MIB and ready <= used and size >= used * 2:
            raise AssertionError("nothing is wanted of a log that grows")
    finally:
        log.close()


def test_memory_comes_as_the_log_grows(tmp_path: Path, idle: None) -> None:
    path = make_log(tmp_path, MIB - 1, 1 << 30)
    with Prefill(str(tmp_path)) as prefill:
        run_dry(prefill)
        before = made(path)
        assert before <= 1 << 16
        for used in (4 * MIB, 9 * MIB, 200 * MIB):
            take(path, used)
            had = made(path)
            run_dry(prefill)
            ahead = min(used // 2, MOST_AHEAD)
            assert ahead // 2 <= made(path) - had <= ahead
            had = made(path)
            run_dry(prefill)
            assert made(path) == had
    with path.open("rb") as file:
        file.seek(88)
        assert not any(any(file.read(MIB)) for _ in range(20))
    assert path.stat().st_size == 1 << 30


def test_never_beyond_the_file(tmp_path: Path, idle: None) -> None:
    path = make_log(tmp_path, 8 * MIB, 9 * MIB + 5000)
    with Prefill(str(tmp_path)) as prefill:
        run_dry(prefill)
    assert path.stat().st_size == 9 * MIB + 5000
    assert MIB // 4 <= made(path) <= MIB


def test_nothing_is_held_afterwards(tmp_path: Path, idle: None) -> None:
    for k in range(40):
        make_log(tmp_path, 2 * MIB, 8 * MIB, f"pyallocx-{k}-0.axlog")
    (tmp_path / "other").write_bytes(bytes(100))
    (tmp_path / "pyallocx-99-0.axlog").mkdir()
    before = os.listdir("/proc/self/fd")
    with Prefill(str(tmp_path)) as prefill:
        run_dry(prefill)
        assert len(prefill._logs) == 16
        assert len(os.listdir("/proc/self/fd")) == len(before) + 16
    assert os.listdir("/proc/self/fd") == before


@pytest.mark.parametrize("what", ["_is_busy", "_has_memory", "disk", "processor"])
def test_it_stands_back(
    tmp_path: Path, idle: None, monkeypatch: pytest.MonkeyPatch, what: str
) -> None:
    path = make_log(tmp_path, 8 * MIB, 1 << 30)
    before = made(path)
    if what == "disk":
        monkeypatch.setattr(_prefill, "SPARE_DISK", 1 << 60)
    elif what == "processor":
        monkeypatch.setattr(os, "sched_getaffinity", lambda pid: {0})
    else:
        monkeypatch.setattr(_prefill, what, lambda: what == "_is_busy")
    with Prefill(str(tmp_path)) as prefill:
        again = [prefill.step() for _ in range(5)]
    assert again == [None if what == "processor" else _prefill._STAND_BACK] * 5
    assert made(path) == before


def test_what_the_machine_says() -> None:
    assert _prefill._has_memory() in (False, True)
    assert _prefill._is_busy() in (False, True)


@pytest.mark.parametrize("trouble", ["gone", "cut", "directory", "kernel"])
def test_trouble_ends_it(
    tmp_path: Path, idle: None, monkeypatch: pytest.MonkeyPatch, trouble: str
) -> None:
    folder = tmp_path / "logs"
    folder.mkdir()
    path = make_log(folder, 8 * MIB, 1 << 30)
    with Prefill(str(folder)) as prefill:
        assert prefill.step() == 0
        prefill._look_again = 0
        if trouble == "directory":
            shutil.rmtree(folder)
            assert prefill.step() is None
            return
        if trouble == "gone":
            path.unlink()
            run_dry(prefill)
            return
        if trouble == "cut":
            with path.open("r+b") as file:
                file.truncate(50)
        else:
            monkeypatch.setattr(_prefill, "_MADV_POPULATE_WRITE", 12345)
        run_dry(prefill)
        assert prefill._logs == [] or trouble == "cut"


# ---- with programs ----------------------------------------------------------------------------


@pytest.fixture
def count(idle: None, monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The bytes that are made for programs; these are not under the sanitizers of the tests."""
    recording.library()
    monkeypatch.delenv("LD_PRELOAD", raising=False)
    parts: list[int] = []
    make = _prefill._Log.make

    def counting(self: _prefill._Log, start: int, stop: int) -> None:
        make(self, start, stop)
        parts.append(stop - start)

    monkeypatch.setattr(_prefill._Log, "make", counting)
    return parts


def without(monkeypatch: pytest.MonkeyPatch, action: Callable[[], px.Trace]) -> px.Trace:
    with monkeypatch.context() as patch:
        patch.setattr(Prefill, "step", lambda self: None)
        return action()


@pytest.mark.parametrize("how", ["", "kill"])
def test_the_trace_is_the_same(count: list[int], monkeypatch: pytest.MonkeyPatch, how: str) -> None:
    command = [str(recording.program("many_events.c")), "400000", *([how] if how else [])]
    plain = without(monkeypatch, lambda: px.record(command))
    assert not count
    ahead = px.record(command)
    assert sum(count) > 0
    assert len(ahead) >= 2 * 400000 - 64
    for column in ("op", "object", "size_bytes", "call"):
        assert np.array_equal(getattr(plain, column), getattr(ahead, column)), column
    counts = [trace.metadata["counts"] for trace in (plain, ahead)]
    assert counts[0] == counts[1]
    assert ahead.metadata["returncode"] == (-9 if how else 0)


def test_threads(count: list[int]) -> None:
    command = [str(recording.program("many_events.c")), "200000", "threads"]
    trace = px.record(command)
    assert sum(count) > 0
    assert set(np.unique(trace.thread, return_counts=True)[1] // 1000) == {399}


def test_a_limit_stays_one(count: list[int]) -> None:
    command = [str(recording.program("many_events.c")), "400000"]
    trace = px.record(command, max_bytes=4 * MIB)
    assert trace.metadata["cut"]["why"] == "max_bytes"
    assert 3 * MIB < 16 * len(trace) < 4 * MIB


@pytest.mark.parametrize("spare", [0, 4 * MIB])
def test_a_full_disk(
    tmp_path: Path, count: list[int], monkeypatch: pytest.MonkeyPatch, spare: int
) -> None:
    disk = tmp_path / "disk"
    disk.mkdir()
    mount = shutil.which("mount")
    command = ["mount", "-t", "tmpfs", "-o", "size=9m", "tmpfs", str(disk)]
    if not mount or subprocess.run(command, capture_output=True, check=False).returncode:
        pytest.skip("no small file system to be had")
    monkeypatch.setattr(_prefill, "SPARE_DISK", spare)
    words = [str(recording.program("many_events.c")), "400000"]

    def record() -> px.Trace:
        run = recorder.run_program(words, output=str(disk / "a.npz"))
        assert run.returncode == 0
        return run.trace

    try:
        plain = without(monkeypatch, record)
        ahead = record()
    finally:
        subprocess.run(["umount", str(disk)], check=True)
    assert sum(count) > 0
    assert plain.metadata["cut"]["why"] == ahead.metadata["cut"]["why"] == "disk_full"
    assert len(plain) == len(ahead) > 8 * MIB // 16
    assert np.array_equal(plain.object, ahead.object)
    assert plain.metadata["counts"]["lost"] == ahead.metadata["counts"]["lost"]


def test_a_program_that_ends_at_once(count: list[int]) -> None:
    trace = px.record([str(recording.program("many_events.c")), "1"])
    assert len(trace) >= 1
    assert not count


@pytest.mark.parametrize("known", [True, False])
@pytest.mark.parametrize("pause", [0, 0.001, None])
def test_waiting(monkeypatch: pytest.MonkeyPatch, known: bool, pause: float | None) -> None:
    if not known:

        def refuse(pid: int) -> int:
            raise OSError(38, "function not implemented")

        monkeypatch.setattr(os, "pidfd_open", refuse)
    calls = 0

    def meanwhile() -> float | None:
        nonlocal calls
        calls += 1
        return pause

    before = os.listdir("/proc/self/fd")
    process = subprocess.Popen(["sh", "-c", "sleep 0.1; exit 7"])
    assert wait_for(process, meanwhile) == 7
    assert calls == 1 if pause is None else calls > 3
    assert os.listdir("/proc/self/fd") == before
