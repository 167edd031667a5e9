"""The recorder: failures that throw, locked memory, ends that are none, memory from before it."""

import os
import subprocess
import tempfile
from collections import Counter
from pathlib import Path

import pytest
import rawlog_model as raw
import recording

HUGE = 2**62


@pytest.fixture(params=["", "libjemalloc.so.2", "libtcmalloc_minimal.so.4"], ids=str)
def allocator(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """An allocator library, or that of the C library."""
    name: str = request.param
    tried = subprocess.run(["cat"], env={"LD_PRELOAD": name}, input=b"", capture_output=True)
    if tried.stderr:
        pytest.skip(f"no {name}")
    monkeypatch.setenv("TCMALLOC_LARGE_ALLOC_REPORT_THRESHOLD", str(2**63 - 1))  # it tells of them
    return name


def failed(
    tmp_path: Path, allocator: str, name: str, status: int = 0
) -> tuple[raw.Log, Counter[int]]:
    """Record a case of new_fails; it does what it does by itself. Return the sizes that failed."""
    program = recording.program("new_fails.cpp")
    alone = subprocess.run(
        [program, name],
        env={**os.environ, "LD_PRELOAD": allocator},
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert alone.returncode == status
    output, (log,) = recording.run(tmp_path, program, name, status=status, preload_too=allocator)
    assert output == alone.stdout
    if name != "allocates":  # jemalloc ends that exception itself, and its free looks like its own
        recording.flawless(log)
    return log, Counter(r.size - HUGE for r in log.merged() if r.failed)


def test_every_form_of_new_that_fails(tmp_path: Path, allocator: str) -> None:
    log, sizes = failed(tmp_path, allocator, "forms")
    assert sizes == {0: 80}
    aligned = raw.NEW if allocator else raw.ALIGNED_ALLOC
    plain = raw.NEW if allocator else raw.MALLOC
    records = [r for r in log.merged() if r.failed]
    assert Counter((r.kind, r.align) for r in records) == {(plain, 0): 40, (aligned, 128): 40}
    kept = [r for r in log.merged() if not r.failed and r.kind == aligned]
    assert [r.align for r in kept] == [128] * 10
    if allocator:
        assert [r.size for r in kept] == list(range(40, 50))


def test_delete_of_null_is_counted_once(tmp_path: Path, allocator: str) -> None:
    log, sizes = failed(tmp_path, allocator, "null")
    assert log.frees_of_null == 14
    assert not sizes


def test_a_new_handler_is_called_as_often(tmp_path: Path, allocator: str) -> None:
    _, sizes = failed(tmp_path, allocator, "handler")
    # Of malloc, each try is one; of a library's new, the call.
    assert sizes == {0: 5 if allocator else 20}


def test_other_exceptions_pass(tmp_path: Path, allocator: str) -> None:
    log, sizes = failed(tmp_path, allocator, "int")
    assert sizes == {0: 5}
    assert {r.align for r in log.merged() if r.failed} == {128}


def test_a_new_handler_that_allocates(tmp_path: Path, allocator: str) -> None:
    log, sizes = failed(tmp_path, allocator, "allocates")
    if allocator:
        # From the innermost outwards, as they fail.
        found = [(r.size - HUGE, r.align) for r in log.merged() if r.failed]
        assert found == [(1, 0), (2, 128), (0, 0)] * 5
    else:
        assert sizes.total() == 15


@pytest.mark.parametrize("name", ["jumps", "jumps-inside"])
def test_jumps_out_of_a_new_handler(tmp_path: Path, allocator: str, name: str) -> None:
    _, sizes = failed(tmp_path, allocator, name)
    if allocator:
        assert sizes.total() == {"jumps": 1, "jumps-inside": 20}[name]
        assert name != "jumps" or sizes == {4: 1}


def test_cancelled_is_not_failed(tmp_path: Path, allocator: str) -> None:
    _, sizes = failed(tmp_path, allocator, "cancelled")
    assert sizes == ({6: 1} if allocator else {0: 1, 6: 1})


def test_an_exception_that_nobody_catches(tmp_path: Path, allocator: str) -> None:
    _, sizes = failed(tmp_path, allocator, "uncaught", status=3)
    assert sizes == {0: 1}


CURRENT, FUTURE, ONFAULT = 1, 2, 4


@pytest.mark.parametrize(
    ("flags", "limit", "how"),
    [
        (CURRENT, 8 << 20, "-"),
        (CURRENT, 8 << 20, "r"),
        (CURRENT | FUTURE, 8 << 20, "t"),
        (CURRENT | FUTURE | ONFAULT, 8 << 20, "-"),
        (CURRENT, 16 << 20, "u"),
        (CURRENT | FUTURE, 16 << 20, "u"),
        (CURRENT | FUTURE, 16 << 10, "u"),
        (99, 8 << 20, "-"),
    ],
)
def test_memory_that_is_locked(flags: int, limit: int, how: str) -> None:
    # u: a user like others (of root), t: beside a second thread, r: by the system call's number.
    program = recording.program("locks_memory.c")
    program.parent.chmod(0o755)
    command = [str(program), str(flags), str(limit), how]
    alone = subprocess.run(command, capture_output=True, text=True, timeout=60)
    if alone.returncode or (how != "u" and "Cannot allocate" in alone.stdout):
        pytest.skip("memory cannot be locked here")
    # A directory of that user's, too.
    with tempfile.TemporaryDirectory() as folder:
        output, (log, child) = recording.run(Path(folder), *command)
        blocks = sum(path.stat().st_blocks for path in Path(folder).glob("*.axlog"))
    assert output == alone.stdout
    assert "too much" not in output
    recording.flawless(log)
    assert log.header.cut == child.header.cut == 0
    assert log.lost == child.lost == 0
    assert log.count(raw.MALLOC) >= 44000
    assert (child.count(raw.MALLOC), child.count(raw.FREE)) == (2000, 2000)
    # So the log grew far beyond what was left to it while memory was locked.
    assert log.header.next > 1_300_000
    assert blocks * 512 < 32 << 20


def test_quick_exit_is_an_end(tmp_path: Path) -> None:
    _, (log,) = recording.run(tmp_path, recording.program("ends_new.c"), "quick", status=5)
    assert log.header.ended == 2
    assert {1234, 4321} <= {r.size for r in log.merged()}


def test_the_end_of_a_child_that_shares_memory_is_not_ours(tmp_path: Path) -> None:
    _, logs = recording.run(tmp_path, recording.program("ends_new.c"), "vfork", status=-9)
    (log,) = [log for log in logs if log.header.exe.endswith(b"/ends_new")]
    assert log.header.ended == 0
    assert {1234, 1235} <= {r.size for r in log.merged()}


def test_memory_from_before_the_allocator_was_known(tmp_path: Path) -> None:
    own = recording.program(
        "early_new.c", "-DLIBRARY", "-O2", "-shared", "-fPIC", name="early_new.so"
    )
    program = recording.program("early_new.c", own, name="early_new")
    output, (log,) = recording.run(tmp_path, program, preload_too=str(own))
    assert output == "ok\n"
    found = recording.flawless(log)  # nothing of it is freed that was not made
    assert [r.size for r in log.merged() if r.kind == raw.REALLOC] == [5000] * 4
    assert not any(r.size == 5000 for r in found.live.values())
