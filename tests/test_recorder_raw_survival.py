"""Programs that are hard to record: they run as ever, and their logs are whole."""

import signal
from pathlib import Path

import pytest
import rawlog_model as raw
import recording
from recording import pairs


def survive(
    tmp_path: Path, name: str, *number: str, status: int = 0, flags: int = 0, max_bytes: int = 0
) -> list[raw.Log]:
    program = recording.program("survive.c")
    output, logs = recording.run(
        tmp_path, program, name, *number, status=status, flags=flags, max_bytes=max_bytes
    )
    assert output.endswith("ok\n") or status
    return logs


def test_threads_at_once(tmp_path: Path) -> None:
    (log,) = survive(tmp_path, "threads-at-once", "2000")
    found = recording.flawless(log)
    # churn(20), churn(5); the key's value and three more in its rounds, one after the last.
    assert log.count(raw.MALLOC) == 2000 * 30 + 1
    assert {record.kind for record in found.live.values()} <= {raw.CALLOC}  # libc's, of threads
    assert log.header.threads == 2001
    assert log.header.next < 64 << 20
    assert log.lost == 0


@pytest.mark.parametrize("number", [2000, pytest.param(20000, marks=pytest.mark.slow)])
def test_threads_in_turn_share_a_window(tmp_path: Path, number: int) -> None:
    (log,) = survive(tmp_path, "threads-in-turn", str(number))
    recording.flawless(log)
    assert pairs(log) == (number * 30, number * 30)
    assert log.header.threads == number + 1
    assert log.header.next < raw.HEADER_BYTES + 200_000 + number * 30 * 2 * 24


def test_threads_that_die(tmp_path: Path) -> None:
    (log,) = survive(tmp_path, "threads-die")
    recording.flawless(log)
    assert log.header.threads == 21


def test_frees_of_what_other_threads_made(tmp_path: Path) -> None:
    (log,) = survive(tmp_path, "cross-frees", "2000")
    found = recording.flawless(log)
    assert log.header.threads == 33
    assert log.count(raw.MALLOC) == 32 * 2000
    assert all(record.kind == raw.CALLOC for record in found.live.values())  # libc's, of threads


def test_closed_descriptors(tmp_path: Path) -> None:
    (log,) = survive(tmp_path, "close-all")
    recording.flawless(log)
    assert pairs(log) == (20010, 20010)


def test_fork_storm(tmp_path: Path) -> None:
    first, *children = survive(tmp_path, "fork-storm", "15")
    recording.flawless(first)
    assert pairs(first) == (1 + 15 * 3, 1 + 15 * 3)
    assert first.header.forks == first.count(raw.FORK) == 10  # five were raw clones
    assert len(children) == 15 + 3
    by_pid = {log.header.pid: log for log in children}
    forked = [record for record in first.merged() if record.kind == raw.FORK]
    before = {record.address for record in first.merged()[:1]}
    for child in children:
        assert child.header.flags & raw.FORKED
        found = raw.judge(child.merged())
        assert found.allocs_of_live == []
        assert {record.address for record in found.unknown_frees} <= before
        if child.header.parent_file.decode() == first.path.name:
            assert len(found.unknown_frees) == 1
            assert pairs(child) == (30, 31)
    for record in forked:
        child = by_pid[record.size]
        earlier = [r.stamp for r in first.merged() if r.stamp < child.header.fork_stamp]
        assert len(earlier) == first.merged().index(record)


def test_fork_of_a_program_with_threads(tmp_path: Path) -> None:
    first, *children = survive(tmp_path, "fork-in-threads")
    recording.flawless(first)
    assert len(children) == 20
    assert all(pairs(child) == (50, 50) for child in children)
    assert all(child.header.threads == 1 for child in children)


def test_vfork(tmp_path: Path) -> None:
    first, *executed = survive(tmp_path, "vfork-exec")
    recording.flawless(first)
    assert pairs(first) == (25, 25)
    assert first.header.ended == 1
    assert [Path(log.header.exe.decode()).name for log in executed] == ["true"] * 5


def test_a_chain_of_exec(tmp_path: Path) -> None:
    logs = survive(tmp_path, "exec-chain")
    assert [log.header.ended for log in logs] == [3] * 5 + [1]
    assert len({log.header.pid for log in logs}) == 1
    assert [log.path.name.rpartition("-")[2] for log in logs] == [f"{k}.axlog" for k in range(6)]
    assert all(pairs(log) == (100, 100) for log in logs)


def test_a_daemon(tmp_path: Path) -> None:
    logs = survive(tmp_path, "daemonise")
    assert [pairs(log) for log in logs] == [(10, 10), (2000, 2000)]
    assert logs[1].header.ended == 1


def test_a_jail(tmp_path: Path) -> None:
    (log,) = survive(tmp_path, "jail")[:1]
    recording.flawless(log)
    assert pairs(log) == (20010, 20010)
    assert log.header.forks == 1


def test_underscore_exit(tmp_path: Path) -> None:
    (log,) = survive(tmp_path, "underscore-exit")
    assert (log.header.ended, pairs(log)) == (2, (100, 100))


@pytest.mark.parametrize(
    ("name", "by"),
    [("abort", signal.SIGABRT), ("segv", signal.SIGSEGV), ("kill", signal.SIGKILL)],
)
def test_fatal_signals_lose_nothing(tmp_path: Path, name: str, by: signal.Signals) -> None:
    (log,) = survive(tmp_path, name, status=-by)
    recording.flawless(log)
    assert pairs(log) == (5000, 5000)
    assert log.header.ended == 0


def test_limits_that_a_program_sets_itself(tmp_path: Path) -> None:
    (log,) = survive(tmp_path, "limits")
    recording.flawless(log)
    assert pairs(log) == (21001, 21001)
    assert log.header.cut == 0


@pytest.mark.parametrize("limit", ["-v 300000", "-f 2000"])
def test_limits_from_before(tmp_path: Path, limit: str) -> None:
    program = recording.program("survive.c")
    script = f"ulimit {limit} && exec {program} close-all"
    output, logs = recording.run(tmp_path, "bash", "-c", script)
    assert output == "ok\n"
    (log,) = [log for log in logs if log.header.exe.endswith(b"survive")]
    recording.flawless(log)
    assert log.header.cut == 0
    assert pairs(log) == (20010, 20010)


@pytest.mark.parametrize("name", ["seccomp-strict", "seccomp-filter"])
def test_seccomp_ends_the_recording_and_not_the_program(tmp_path: Path, name: str) -> None:
    (log,) = survive(tmp_path, name)
    recording.flawless(log)
    assert log.header.cut == 3
    calls = sum(pairs(log)) + log.lost
    assert calls == {"seccomp-strict": 40000 + 21, "seccomp-filter": 40000 + 40}[name]
    assert sum(pairs(log)) >= {"seccomp-strict": 21, "seccomp-filter": 4000}[name]


def asked(folder: Path, name: str) -> tuple[int, list[raw.Log]]:
    program = recording.program("survive.c")
    output, logs = recording.run(folder, program, name, flags=raw.USABLE)
    assert output.splitlines()[1] == "ok"
    return int(output.split()[1]), logs


def test_signal_handlers_that_are_recorded(tmp_path: Path) -> None:
    calls, (log,) = asked(tmp_path, "signals")
    recording.flawless(log)
    assert log.count(raw.USABLE_SIZE) == calls
    assert log.lost == 0
    assert len(log.windows) > calls * 16 // 262144 + 3  # some came in the middle of a record


def test_jumps_out_of_signal_handlers(tmp_path: Path) -> None:
    calls, (log,) = asked(tmp_path, "jumps")
    recording.flawless(log)
    # A call that a jump has ended may have been counted and not recorded.
    assert calls - 100 <= log.count(raw.USABLE_SIZE) <= calls
    assert log.lost == 0


def test_forks_in_the_middle_of_anything(tmp_path: Path) -> None:
    calls, (first, *children) = asked(tmp_path, "forks-in-handlers")
    recording.flawless(first)
    assert first.count(raw.USABLE_SIZE) == calls
    assert len(children) >= 10
    for child in children:
        assert child.lost == 0
        assert child.header.parent_file.decode() == first.path.name


def test_an_old_kernel(tmp_path: Path) -> None:
    old, program = recording.program("old_kernel.c"), recording.program("survive.c")
    output, logs = recording.run(tmp_path / "files", old, program, "close-all")
    assert output == "ok\n"
    (log,) = [log for log in logs if log.header.exe.endswith(b"survive")]
    recording.flawless(log)
    assert pairs(log) == (20010, 20010)
    output, logs = recording.run(tmp_path / "forks", old, program, "fork-in-threads")
    first, *children = [log for log in logs if log.header.exe.endswith(b"survive")]
    recording.flawless(first)
    assert len(children) == 20
    assert all(pairs(child) == (50, 50) for child in children)
