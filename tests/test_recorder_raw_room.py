"""Where there is no room for a log, none for more of it, or nobody who wants it any longer."""

import os
import platform
import shutil
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import rawlog_model as raw
import recording

STOP_OFFSET = 392  # in the header; written down in rawlog.h


@contextmanager
def small_disk(tmp_path: Path, kind: str, free_kib: int) -> Iterator[Path]:
    """A file system on which so much is free, or no test."""
    disk = tmp_path / "disk"
    disk.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", "size=3m", "tmpfs", str(disk)]
    if kind == "ext4":
        image = tmp_path / "image"
        with image.open("wb") as file:
            file.truncate(8 << 20)
        if not shutil.which("mkfs.ext4"):
            pytest.skip("no ext4 to be had")
        subprocess.run(["mkfs.ext4", "-q", "-m", "0", "-O", "^has_journal", image], check=True)
        command = ["mount", "-o", "loop", str(image), str(disk)]
    if not shutil.which("mount") or subprocess.run(command, capture_output=True).returncode:
        pytest.skip("no small file system to be had")
    try:
        fill = disk / "fill"
        with fill.open("wb", buffering=0) as file:
            try:
                while True:
                    file.write(bytes(4096))
            except OSError:
                pass
            os.fsync(file.fileno())
        os.truncate(fill, max(0, fill.stat().st_size // 4096 * 4096 - (free_kib << 10)))
        yield disk
    finally:
        subprocess.run(["umount", str(disk)], check=True)


def is_empty(path: Path) -> bool:
    return path.stat().st_size == 0


@pytest.mark.parametrize("old", ["", "old_kernel", "old_file_system"])
@pytest.mark.parametrize("kind", ["tmpfs", "ext4"])
@pytest.mark.parametrize("free_kib", [0, 4, 24, 40, 44, 64, 128, 400])
def test_a_full_disk(tmp_path: Path, kind: str, free_kib: int, old: str) -> None:
    command = [str(recording.program("survive.c")), "close-all"]
    with small_disk(tmp_path, kind, free_kib) as disk:
        if old:
            flags = ["-DNO_FALLOCATE"] if old == "old_file_system" else []
            command.insert(0, str(recording.program("old_kernel.c", *flags, name=old)))
        output, logs = recording.run(disk, *command, flags=raw.SITES)
        assert output == "ok\n"
        files = list(disk.glob("*.axlog"))
        assert len(files) == 1 + bool(old)
        assert sum(map(is_empty, files)) == len(files) - len(logs)
        if free_kib == 0:
            assert logs == []
        for log in [log for log in logs if log.header.exe.endswith(b"survive")]:
            assert log.header.cut == 2
            recording.flawless(log, skipped=True)
            assert log.lost > 20000
            # The first call of all, a free of NULL, is among the lost where there was no window.
            assert log.count(raw.MALLOC, raw.FREE) + log.lost - 40020 in (0, 1)
        if free_kib == 400:
            assert logs[-1].count(raw.MALLOC) > 1000


@pytest.mark.parametrize("kind", ["tmpfs", "ext4"])
def test_children_on_a_full_disk(tmp_path: Path, kind: str) -> None:
    with small_disk(tmp_path, kind, 1000) as disk:
        output, logs = recording.run(disk, recording.program("survive.c"), "forks-on-a-full-disk")
        assert output == "ok\n"
        (log,) = logs
        recording.flawless(log, skipped=True)
        assert log.header.forks == 3
        assert log.header.children_not_recorded == 3
        assert sum(map(is_empty, disk.glob("*.axlog"))) == 3


def test_a_limit_of_the_files_length_cuts(tmp_path: Path) -> None:
    program = recording.program("survive.c")
    output, logs = recording.run(tmp_path, "bash", "-c", f"ulimit -f 400; {program} close-all")
    assert output == "ok\n"
    (log,) = [log for log in logs if log.header.exe.endswith(b"survive")]
    recording.flawless(log)
    assert log.header.cut == 5
    assert sum(recording.pairs(log)) + log.lost == 40020


@pytest.mark.parametrize("max_bytes", [0, 1, 40000, 1 << 20])
def test_a_limit_below_the_header_is_no_signal(tmp_path: Path, max_bytes: int) -> None:
    program = recording.program("survive.c")
    script = f"ulimit -f 32; {program} underscore-exit; exit $?"
    output, logs = recording.run(tmp_path, "bash", "-c", script, max_bytes=max_bytes)
    assert output == "" or output == "ok\n"
    # An empty file would say that the disk is full.
    assert not any(map(is_empty, tmp_path.glob("*.axlog")))
    assert not [log for log in logs if log.header.exe.endswith(b"survive")]


@pytest.mark.parametrize("max_bytes", [0, 200_000])  # while it goes on, and after it was cut
def test_a_reader_says_stop(tmp_path: Path, max_bytes: int) -> None:
    program = subprocess.Popen(
        [recording.program("survive.c"), "goes-on"],
        env=recording.environment(tmp_path, max_bytes=max_bytes),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        bufsize=0,
    )
    assert program.stdin is not None
    assert program.stdout is not None
    with program:
        try:
            assert program.stdout.read(3) == b"ok\n"
            (path,) = tmp_path.glob("*.axlog")
            maps = Path(f"/proc/{program.pid}/maps")
            assert maps.read_text().count(".axlog") == 1
            with path.open("r+b", buffering=0) as file:
                os.pwrite(file.fileno(), b"\1\0\0\0", STOP_OFFSET)
                path.unlink()
                begun = os.fstat(file.fileno()).st_blocks
                program.stdin.write(b"\n")
                assert program.stdout.read(3) == b"ok\n"
                until = time.monotonic() + 30
                while ".axlog" in maps.read_text() and time.monotonic() < until:
                    time.sleep(0.01)  # another thread is about to let go of it
                assert ".axlog" not in maps.read_text()
                # At most a window of each thread that was under way.
                assert os.fstat(file.fileno()).st_blocks - begun < 3 * 262144 * 2 // 512
            program.stdin.write(b"x")
            assert program.stdout.read(3) == b"ok\n"
            assert program.wait(60) == 0
        finally:
            program.kill()
    assert list(tmp_path.glob("*.axlog")) == []


def test_children_inherit_the_stop(tmp_path: Path) -> None:
    program = subprocess.Popen(
        [recording.program("survive.c"), "goes-on", "10"],
        env=recording.environment(tmp_path, max_bytes=1 << 20),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        bufsize=0,
    )
    assert program.stdin is not None
    assert program.stdout is not None
    with program:
        try:
            assert program.stdout.read(3) == b"ok\n"
            (path,) = tmp_path.glob("*.axlog")
            with path.open("r+b", buffering=0) as file:
                os.pwrite(file.fileno(), b"\1\0\0\0", STOP_OFFSET)
            program.stdin.write(b"x")
            assert program.stdout.read(3) == b"ok\n"
            assert program.wait(60) == 0
        finally:
            program.kill()
    assert list(tmp_path.glob("*.axlog")) == [path]


def test_children_that_are_not_recorded_let_go_of_the_file(tmp_path: Path) -> None:
    program = recording.program("survive.c")
    done = subprocess.run(
        [program, "goes-on", "10"],
        env=recording.environment(tmp_path, parent=os.getpid()),
        input=b"x",
        capture_output=True,
        timeout=60,
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, b"ok\nok\n", b"")
    (log,) = recording.logs(tmp_path)
    recording.flawless(log)
    assert (log.header.forks, log.header.children_not_recorded, log.header.ended) == (1, 1, 1)


def test_a_first_process_that_only_forks(tmp_path: Path) -> None:
    first = recording.program("forks_only.c")
    _, logs = recording.run(tmp_path, first, recording.program("survive.c"), "close-all")
    names = [Path(log.header.exe.decode()).name for log in logs]
    assert names == ["forks_only", "survive"]
    assert (logs[0].header.forks, logs[0].count(raw.FORK), logs[0].header.ended) == (1, 1, 1)
    assert logs[0].count(raw.MALLOC, raw.FREE) == 0
    assert logs[1].header.ppid == logs[0].header.pid
    assert recording.pairs(logs[1]) == (20010, 20010)


@pytest.mark.skipif(platform.machine() != "x86_64", reason="only there it can be forbidden")
@pytest.mark.parametrize("flags", [0, raw.SITES])
def test_a_program_that_forbids_the_counter(tmp_path: Path, flags: int) -> None:
    program = recording.program("survive.c")
    output, logs = recording.run(tmp_path, program, "no-counter", flags=flags)
    assert output == "ok\n"
    (log,) = logs
    recording.flawless(log)
    assert (log.header.cut, log.header.ended, log.header.forks) == (4, 1, 3)
    assert recording.pairs(log) == (100, 100)
    assert log.lost >= 200


def test_a_program_that_locks_its_memory(tmp_path: Path) -> None:
    output, (log,) = recording.run(tmp_path, recording.program("survive.c"), "locks-memory")
    assert output.endswith("\nok\n")
    assert 0 <= int(output.split()[0]) <= 300 << 10
    assert log.header.cut == 0
    assert log.count(raw.MALLOC) >= 20100
