"""Recording programs: signals, ends, names, and that nothing is lost on the way to the file."""

from __future__ import annotations

import contextlib
import json
import os
import pty
import re
import resource
import shutil
import signal
import struct
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import recording

import pyallocx as px
from pyallocx import _runlogs, recorder
from pyallocx._rawlog import program_of
from pyallocx._running import Ended, ending_tidily

SANITIZED = "asan" in os.environ.get("LD_PRELOAD", "")

pytestmark = [
    pytest.mark.skipif(SANITIZED, reason="the programs would run under the sanitizers, too"),
    pytest.mark.skipif(shutil.which("cc") is None, reason="no C compiler is installed"),
]

PROGRAM = r"""
#define _GNU_SOURCE
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

static volatile sig_atomic_t seen[65];
static void *volatile kept;

static void count(int number) { seen[number]++; }

int main(int argc, char **argv)
{
    const char *what = argc > 1 ? argv[1] : "";
    if (strcmp(what, "launch") == 0) {
        if (fork() == 0) execv(argv[2], argv + 2);
        int status;
        wait(&status);
        return WEXITSTATUS(status);
    }
    for (int i = 0; i < 20; i++) kept = malloc(1000 + i);
    if (strcmp(what, "count") == 0) {
        static const int caught[] = {SIGINT, SIGQUIT, SIGTERM, SIGHUP, SIGUSR1, SIGUSR2};
        for (int i = 0; i < 6; i++) signal(caught[i], count);
        /* What a program sends the process that started it is not for the program. */
        kill(getppid(), SIGUSR1);
        usleep(100000);
        puts("ready");
        fflush(stdout);
        for (int i = 0; i < 600 && !seen[SIGUSR2]; i++) usleep(50000);
        for (int i = 0; i < 6; i++) printf("%d ", seen[caught[i]]);
        puts("seen");
    } else if (strcmp(what, "signal") == 0) {
        signal(atoi(argv[2]), SIG_DFL);
        kill(getpid(), atoi(argv[2]));
    } else if (strcmp(what, "daemon") == 0) {
        if (fork() == 0) {
            for (int i = 0; i < 300000; i++) {
                kept = malloc(77);
                if (i == 5) puts("begun"), fflush(stdout), close(1), close(2), close(0);
                usleep(50);
            }
            return 0;
        }
        usleep(100000);
    } else if (strcmp(what, "many") == 0) {
        for (int i = 0; i < 100000; i++) free(kept), kept = malloc(33);
    } else if (strcmp(what, "children") == 0) {
        for (int i = 0; i < atoi(argv[2]); i++) {
            if (fork() == 0) kept = malloc(88), _exit(0);
            wait(NULL);
        }
    }
    return argc > 3 ? atoi(argv[3]) : 0;
}
"""


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> str:
    recording.library()
    directory = tmp_path_factory.mktemp("program")
    source = directory / "program.c"
    source.write_text(PROGRAM)
    target = directory / "program"
    subprocess.run(["cc", "-O1", "-w", str(source), "-o", str(target)], check=True)
    return str(target)


def command(*arguments: str | bytes) -> list[str | bytes]:
    return [sys.executable, "-m", "pyallocx", "record", *arguments]


def run(*arguments: str | bytes, cwd: Path, **options: Any) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command(*arguments), cwd=cwd, capture_output=True, text=True, timeout=60, **options
    )


def names(directory: Path) -> list[str]:
    return sorted(os.listdir(directory))


# ---- words that are no text ---------------------------------------------------------------------

ODD = b"na\xefve.txt"


def test_words_need_not_be_utf_8(tmp_path: Path) -> None:
    (tmp_path / os.fsdecode(ODD)).write_text("hello\n")
    done = run("-o", "u.npz", "--sites", "--", "cat", ODD, cwd=tmp_path)
    assert (done.returncode, done.stdout) == (0, "hello\n")
    assert px.load(tmp_path / "u.npz").metadata["command"] == ["cat", "na\ufffdve.txt"]
    done = run("--json", "--", "true", ODD, cwd=tmp_path)
    assert json.loads(done.stdout)["metadata"]["command"][1] == "na\ufffdve.txt"


def test_programs_need_not_be_called_utf_8(tmp_path: Path, program: str) -> None:
    """Nor where its name becomes that of call sites, and of a child's file."""
    odd = os.fsencode(tmp_path) + b"/" + b"na\xefve"
    shutil.copy(program, odd)
    out = tmp_path / "u.npz"
    run = px.record_run(
        [odd, b"children", "1"], sites=True, follow_forks=True, output=os.fsencode(out)
    )
    assert run.trace.metadata["program"] == "na\ufffdve"
    assert run.trace.metadata["executable"] == f"{tmp_path}/na\ufffdve"
    assert px.load(out).metadata["command"] == [f"{tmp_path}/na\ufffdve", "children", "1"]
    assert any("(na\ufffdve)" in name for name in px.load(out).metadata["key_names"])
    assert names(tmp_path) == sorted([os.fsdecode(b"na\xefve"), "u.1-na_ve.npz", "u.npz"])


@pytest.mark.parametrize(
    ("wrong", "options", "error", "message"),
    [
        (None, {}, TypeError, "command is None"),
        ("git", {}, TypeError, "command is 'git'"),
        (7, {}, TypeError, "command is 7"),
        (["git", 7], {}, TypeError, r"command\[1\] is 7"),
        (["git", "a\0b"], {}, ValueError, r"command\[1\] is .*NUL"),
        (["git", "\ud800"], {}, ValueError, r"command\[1\] is .*no text"),
        (["git"], {"max_bytes": "x"}, TypeError, "max_bytes is 'x'"),
        (["git"], {"max_bytes": True}, TypeError, "max_bytes is True"),
        (["git"], {"max_bytes": 1e9}, TypeError, "max_bytes is 1000000000.0"),
        (["git"], {"max_bytes": 5}, ValueError, "max_bytes is 5"),
        (["git"], {"output": "x.txt"}, ValueError, "'x.txt'.*pyallocx convert makes files"),
        (["git"], {"output": "adir/"}, ValueError, "'adir/', expected the name of a file"),
        (["git"], {"output": "/nowhere/x"}, FileNotFoundError, "no such directory: '/nowhere'"),
    ],
)
def test_what_is_wrong_is_said_before_anything_runs(
    monkeypatch: pytest.MonkeyPatch, wrong: Any, options: Any, error: type[Exception], message: str
) -> None:
    monkeypatch.setattr("subprocess.Popen", None)
    with pytest.raises(error, match=message):
        px.record(wrong, **options)


@pytest.mark.parametrize("name", ["x.csv", "x.parquet", "x.H", "adir/", "dangling"])
def test_the_command_refuses_outputs_that_it_does_not_write(tmp_path: Path, name: str) -> None:
    (tmp_path / "dangling").symlink_to(tmp_path / "nowhere" / "file")
    done = run("-o", name, "--", "touch", "ran", cwd=tmp_path)
    assert done.returncode == 2
    assert name in done.stderr
    assert ".pyallocx-record" not in done.stderr
    assert names(tmp_path) == ["dangling"]


# ---- signals ------------------------------------------------------------------------------------


@contextlib.contextmanager
def started(*arguments: str, cwd: Path, tell: str = "ready\n") -> Iterator[subprocess.Popen[str]]:
    process = subprocess.Popen(
        command(*arguments),
        cwd=cwd,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    try:
        assert process.stdout is not None
        assert process.stdout.readline() == tell
        yield process
    finally:
        process.kill()
        process.communicate()


def test_signals_to_the_command_alone_are_passed_on(tmp_path: Path, program: str) -> None:
    with started("-o", "a.npz", "--", program, "count", cwd=tmp_path) as process:
        for number in (
            signal.SIGINT,
            signal.SIGQUIT,
            signal.SIGTERM,
            signal.SIGHUP,
            signal.SIGUSR1,
            signal.SIGUSR2,
        ):
            process.send_signal(number)
            time.sleep(0.05)
        out, _err = process.communicate(timeout=60)
    # Neither lost nor sent back to the program that made it.
    assert out == "1 1 1 1 1 1 seen\n"
    assert process.returncode == 0
    assert names(tmp_path) == ["a.npz"]


def test_what_a_terminal_sends_comes_once(tmp_path: Path, program: str) -> None:
    child, terminal = pty.fork()
    if child == 0:
        os.chdir(tmp_path)
        os.execv(sys.executable, command("-o", "a.npz", "--", program, "count"))
    seen = b""
    try:
        while b"ready" not in seen:
            seen += os.read(terminal, 4096)
        for key in (b"\x03", b"\x1c", b"\x03"):
            os.write(terminal, key)
            time.sleep(0.2)
        os.kill(child, signal.SIGUSR2)
        with contextlib.suppress(OSError):
            while more := os.read(terminal, 4096):
                seen += more
        _, status = os.waitpid(child, 0)
    finally:
        os.close(terminal)
    assert b"2 1 0 0 0 1 seen" in seen
    assert status == 0
    assert names(tmp_path) == ["a.npz"]


@pytest.mark.parametrize("name", ["SIGINT", "SIGTERM", "SIGHUP", "SIGQUIT", "SIGKILL", "SIGSEGV"])
def test_the_command_dies_as_the_program_did(tmp_path: Path, program: str, name: str) -> None:
    number = signal.Signals[name].value
    done = run("-o", "a.npz", "--", program, "signal", str(number), cwd=tmp_path)
    assert done.returncode == -number
    assert "trace: a.npz" in done.stderr
    assert px.load(tmp_path / "a.npz").metadata["returncode"] == -number
    assert names(tmp_path) == ["a.npz"]


def test_handlers_are_as_before(program: str) -> None:
    numbers = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1)
    before = [signal.getsignal(number) for number in numbers]
    seen = []
    signal.signal(signal.SIGUSR1, lambda number, frame: seen.append(number))
    try:
        with pytest.raises(px.RecordingError, match="no call"):
            px.record([program, "launch", "/bin/true"])
        os.kill(os.getpid(), signal.SIGUSR1)
        assert seen == [signal.SIGUSR1]
    finally:
        signal.signal(signal.SIGUSR1, before[-1])
    assert [signal.getsignal(number) for number in numbers] == before
    # What Python believes of its handlers is not all: ask the system.
    with pytest.raises(KeyboardInterrupt):
        signal.raise_signal(signal.SIGINT)


# ---- between the program's end and the file -----------------------------------------------------

SLOW = """
import sys, time
from pyallocx import recorder
from pyallocx.cli import main
def slow(*arguments):
    print("reading", flush=True)
    time.sleep(60)
recorder.read_run = slow
sys.exit(main(sys.argv[1:]))
"""


@pytest.mark.parametrize("name", ["SIGINT", "SIGTERM", "SIGHUP", "SIGQUIT"])
@pytest.mark.parametrize("output", [True, False])
def test_an_interrupted_reading_keeps_the_log(
    tmp_path: Path, program: str, name: str, output: bool
) -> None:
    spare = tmp_path / "spare"
    spare.mkdir()
    process = subprocess.Popen(
        [sys.executable, "-c", SLOW, "record", *(["-o", "a.npz"] if output else []), "--", program],
        cwd=tmp_path,
        env={**os.environ, "TMPDIR": str(spare)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "reading\n"
    process.send_signal(signal.Signals[name])
    _, err = process.communicate(timeout=60)
    assert process.returncode == -signal.Signals[name]
    assert "Traceback" not in err
    assert names(spare) == []
    if output:
        assert names(tmp_path) == ["a.axlog", "spare"]
        assert (
            "interrupted while reading; the raw log is kept: a.axlog "
            "(pyallocx convert a.axlog a.npz reads it)"
        ) in err
        assert px.load(tmp_path / "a.axlog").size_bytes[:20].max() >= 1001
    else:
        assert names(tmp_path) == ["spare"]
        assert "interrupted while reading; nothing is kept" in err


@pytest.mark.parametrize("problem", [KeyboardInterrupt(), MemoryError("none"), OSError(28, "full")])
def test_nothing_after_the_run_loses_the_recording(
    tmp_path: Path, program: str, monkeypatch: pytest.MonkeyPatch, problem: BaseException
) -> None:
    def fail(*arguments: object) -> None:
        raise problem

    (tmp_path / "a.axlog").write_text("mine")
    monkeypatch.setattr(px.Trace, "save", fail)
    with pytest.raises(type(problem)) as caught:
        px.record_run([program, "children", "1"], output=tmp_path / "a.npz", follow_forks=True)
    (note,) = caught.value.__notes__
    assert f"the raw log is kept: {tmp_path}/a.2.axlog, with 1 of other processes" in note
    assert names(tmp_path) == ["a.1-program.axlog", "a.2.axlog", "a.axlog"]
    assert (tmp_path / "a.axlog").read_text() == "mine"
    assert len(px.load(tmp_path / "a.2.axlog")) >= 20


@pytest.mark.skipif(shutil.which("node") is None, reason="node is not installed")
def test_a_code_log_that_cannot_be_read_does_not_lose_the_rest(tmp_path: Path) -> None:
    with pytest.raises(px.RecordingError, match="no isolate 9") as caught:
        px.record_run(["node", "-e", "1"], jit=True, isolate=9, output=tmp_path / "a.npz")
    assert f"the raw log is kept: {tmp_path}/a.axlog" in caught.value.__notes__[0]
    assert len(px.load(tmp_path / "a.axlog")) > 1000


def test_what_ends_us_is_an_exception_meanwhile() -> None:
    with pytest.raises(Ended) as caught, ending_tidily():
        signal.raise_signal(signal.SIGTERM)
    assert caught.value.code == 128 + signal.SIGTERM
    assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL


# ---- whose trace it is --------------------------------------------------------------------------


def test_children_of_one_that_allocates_nothing_are_kept(tmp_path: Path, program: str) -> None:
    done = run(
        "-o", "a.npz", "--follow-forks", "--", program, "launch", program, "", "", "5", cwd=tmp_path
    )
    assert done.returncode == 5
    assert "nothing was recorded of the program itself: the program made no call" in done.stderr
    assert "its children's traces are kept" in done.stderr
    assert names(tmp_path) == ["a.1-program.npz", "a.npz"]
    first = px.load(tmp_path / "a.npz")
    assert len(first) == 0
    assert first.metadata["returncode"] == 5
    assert first.metadata["program"] == "program"
    assert len(px.load(tmp_path / "a.1-program.npz")) >= 20
    assert main_info(tmp_path / "a.npz") == 0
    with pytest.raises(px.RecordingError, match="made no call"):
        px.record([program, "launch", program])


def main_info(path: Path) -> int:
    from pyallocx.cli import main

    return main(["info", str(path)])


def test_a_child_that_goes_on_is_told_to_stop(
    tmp_path: Path, program: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    told = []
    read = _runlogs.read_rawlog

    def look(file: Any, *arguments: Any, **options: Any) -> px.Trace:
        told.append(struct.unpack("<I", os.pread(file.fileno(), 4, 392))[0])
        return read(file, *arguments, **options)

    monkeypatch.setattr(_runlogs, "read_rawlog", look)
    run = px.record_run([program, "daemon"], follow_forks=True, stdout=subprocess.DEVNULL)
    (child,) = run.children
    pid = child.metadata["pid"]
    try:
        assert told == [1, 1]
        for _ in range(300):
            if ".axlog" not in Path(f"/proc/{pid}/maps").read_text():
                break
            time.sleep(0.1)
        else:
            pytest.fail("the file is held, and grows without a name")
    finally:
        os.kill(pid, signal.SIGKILL)
    assert child.metadata["ended"] == "running"
    assert run.trace.metadata["children_still_running"] == 1


def test_the_command_says_that_a_child_goes_on(tmp_path: Path, program: str) -> None:
    done = run("--json", "--follow-forks", "--", program, "daemon", cwd=tmp_path)
    (child,) = json.loads(done.stdout.partition("\n")[2])["children"]
    os.kill(child["metadata"]["pid"], signal.SIGKILL)
    done = run("-o", "a.npz", "--follow-forks", "--", program, "daemon", cwd=tmp_path)
    os.kill(px.load(tmp_path / "a.1-program.npz").metadata["pid"], signal.SIGKILL)
    assert "1 child process still ran when program ended; recorded up to then" in done.stderr


def test_what_takes_the_recorder_away_is_named(tmp_path: Path, program: str) -> None:
    for words in (["env", "-i", program], ["env", "LD_PRELOAD=", program]):
        done = run("--", *words, cwd=tmp_path)
        assert "the trace is of env; what it became was not recorded" in done.stderr
        assert "LD_PRELOAD=... pyallocx record -- PROGRAM" in done.stderr
    done = run("--", "env", program, cwd=tmp_path)
    assert "was not recorded" not in done.stderr


def test_a_program_has_the_name_it_was_called_by(tmp_path: Path, program: str) -> None:
    (tmp_path / "called").symlink_to(program)
    trace = px.record(["./called"], cwd=tmp_path)
    assert trace.metadata["program"] == "called"
    assert trace.metadata["executable"] == os.path.realpath(program)


@pytest.mark.parametrize(
    ("argument", "flags", "name"),
    [
        (b"/usr/bin/g++\0-O2\0", 0, "g++"),
        (b"-bash\0", 0, "bash"),
        (b"a b/my prog\0", 0, "my prog"),
        (b"redis-server *:6379\0", 8, "redis-server"),
        (b"nginx: worker process\0", 8, "nginx"),
        (b"\0", 0, "exe"),
        (b"", 0, "exe"),
    ],
)
def test_names_of_programs(argument: bytes, flags: int, name: str) -> None:
    assert program_of({"command": argument, "exe": b"/bin/exe", "flags": flags}) == name


def test_many_files_are_not_all_named(tmp_path: Path, program: str) -> None:
    done = run("-o", "a.npz", "--follow-forks", "--", program, "children", "15", cwd=tmp_path)
    lines = [line for line in done.stderr.splitlines() if line.startswith("trace: ")]
    assert lines[0] == "trace: a.npz"
    assert len(lines) == 11
    assert lines[-1] == "trace: and 6 more, the last is a.15-program.npz"
    assert len(names(tmp_path)) == 16


def test_a_log_without_room_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "pyallocx-7-0.axlog").touch()
    with pytest.raises(
        px.RecordingError, match=r"no room for its log, the disk .* was full"
    ) as caught:
        _runlogs.read_run(str(tmp_path), 7, ["app"], 0, False, False)
    assert caught.value.returncode == 0
    (tmp_path / "pyallocx-7-0.axlog").unlink()
    with pytest.raises(px.RecordingError, match="recorder was not loaded"):
        _runlogs.read_run(str(tmp_path), 7, ["app"], 0, False, False)


def test_limits_of_the_size_of_files(tmp_path: Path, program: str) -> None:
    def limited(kib: int, *words: str) -> subprocess.CompletedProcess[str]:
        limit = (kib << 10, kib << 10)
        return run(
            *words,
            cwd=tmp_path,
            preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, limit),
        )

    done = limited(100, "--", program, "", "", "6")
    assert done.returncode == 6
    assert "its log may not be longer than 102,400 bytes" in done.stderr
    done = limited(100, "--", program)
    assert done.returncode == 1
    done = limited(2000, "--", program, "many")
    assert done.returncode == 0
    assert "the log had reached the limit of the size of files (ulimit -f)" in done.stderr


def test_suffixes_of_other_formats_are_those_that_convert_knows() -> None:
    assert ".npz" not in recorder.OTHER_FORMATS
    assert all(re.fullmatch(r"\.[a-z0-9]+", suffix) for suffix in recorder.OTHER_FORMATS)
