"""Recording programs: `px.record`, `px.record_run` and `pyallocx record`."""

from __future__ import annotations

import itertools
import json
import os
import shutil
import signal
import struct
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pytest
import rawlog_model
import recording

import pyallocx as px
from pyallocx import recorder
from pyallocx._running import check_preloadable
from pyallocx.cli import main

cc = shutil.which("cc") or shutil.which("gcc")
compiler = pytest.mark.skipif(cc is None, reason="no C compiler is installed")
node = pytest.mark.skipif(shutil.which("node") is None, reason="node is not installed")


SANITIZED = "asan" in os.environ.get("LD_PRELOAD", "")
own_process = pytest.mark.skipif(
    SANITIZED, reason="what another process of ours records would be under the sanitizers, too"
)


def library() -> str | None:
    try:
        return recorder._library()
    except px.UnknownProgram:
        return None


pytestmark = pytest.mark.skipif(library() is None, reason="no recorder for this machine")

PROGRAM = r"""
#define _GNU_SOURCE
#include <malloc.h>
#include <pthread.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

static void *volatile kept, *volatile nothing;

__attribute__((noinline)) static void *from_here(size_t size)
{
    void *p = malloc(size);
    kept = p;
    return p;
}

__attribute__((noinline)) static void *from_there(size_t size)
{
    void *p = malloc(size);
    kept = p;
    return p;
}

static void *thread(void *given)
{
    free(given);
    return from_there(7777);
}

int main(int argc, char **argv)
{
    const char *what = argc > 1 ? argv[1] : "";
    if (strcmp(what, "none") == 0) {
        return 4;
    }
    void *a = from_here(1001), *b = from_here(1002);
    void *c = from_there(1003);
    a = realloc(a, 100001);
    kept = calloc(3, 1004);
    if (posix_memalign(&b, 256, 1005) != 0) return 1;
    kept = reallocarray(NULL, 3, 335);
    kept = malloc(SIZE_MAX / 2);
    if (malloc_usable_size(c) < 1003) return 1;
    free(nothing);
    if (strcmp(what, "thread") == 0) {
        pthread_t id;
        void *got;
        pthread_create(&id, NULL, thread, c);
        pthread_join(id, &got);
        free(got);
    } else if (strcmp(what, "fork") == 0) {
        if (fork() == 0) {
            free(c);
            kept = malloc(555555);
            _exit(0);
        }
        wait(NULL);
    } else if (strcmp(what, "kill") == 0) {
        raise(SIGKILL);
    } else if (strcmp(what, "maps") == 0) {
        char *code = mmap(NULL, 65536, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        mprotect(code, 65536, PROT_READ | PROT_EXEC);
        munmap(code + 4096, 4096);
        munmap(code, 4096);
    } else if (strcmp(what, "many") == 0) {
        for (int i = 0; i < 400000; i++) {
            kept = malloc(33);
            free(kept);
        }
    } else if (strcmp(what, "wait") == 0) {
        puts("ready");
        fflush(stdout);
        sleep(60);
    }
    free(c == kept ? NULL : a);
    return argc > 2 ? atoi(argv[2]) : 0;
}
"""


@pytest.fixture(autouse=True)
def no_sanitizers(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the tests run under sanitizers, the programs that they record do not."""
    if SANITIZED:
        monkeypatch.delenv("LD_PRELOAD")


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> str:
    if cc is None:
        pytest.skip("no C compiler is installed")
    directory = tmp_path_factory.mktemp("program")
    source = directory / "program.c"
    source.write_text(PROGRAM)
    target = directory / "program"
    words = [cc, "-O1", "-g", "-w", "-pthread", str(source), "-o", str(target)]
    subprocess.run(words, check=True)
    return str(target)


@pytest.fixture
def spare(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The directory for temporary files, which must be empty in the end."""
    directory = tmp_path / "temporary"
    directory.mkdir()
    monkeypatch.setenv("TMPDIR", str(directory))
    monkeypatch.setattr("tempfile.tempdir", None)
    return directory


def sizes(trace: px.Trace) -> list[int]:
    return trace.size_bytes[trace.op == px.OP_ALLOC].tolist()


# ---- the trace ----------------------------------------------------------------------------------


def test_a_program_is_recorded(program: str, spare: Path) -> None:
    trace = px.record([program, "", "7"])
    assert list(spare.iterdir()) == []
    assert trace.metadata["returncode"] == 7
    assert trace.metadata["command"] == [program, "", "7"]
    assert trace.metadata["program"] == "program"
    assert trace.metadata["ended"] == "exit"
    assert "images" not in trace.metadata
    assert "file" not in trace.metadata
    assert {1001, 1002, 1003, 3012, 1005} <= set(sizes(trace))
    assert trace.call is not None
    calls = {(px.CALLS[c], s) for c, s in zip(trace.call, trace.size_bytes.tolist(), strict=True)}
    assert {
        ("malloc", 1001),
        ("realloc", 100001),
        ("calloc", 3012),
        ("posix_memalign", 1005),
        ("reallocarray", 1005),
    } <= calls
    assert trace.align_log2 is not None
    assert trace.align_log2.max() == 8
    assert trace.time_ns is not None
    assert 0 <= int(trace.time_ns[0]) <= int(trace.time_ns[-1]) < 60 * 10**9
    failed = trace.asides["failed"]
    assert failed["size_bytes"].tolist() == [2**63 - 1]
    usable = trace.asides["usable_size"]
    assert 1003 <= int(usable["size_bytes"][0]) < 1100
    assert len(trace.asides["realloc_begin"]["event"]) == int((trace.op == px.OP_REALLOC).sum())
    assert trace.metadata["counts"]["frees_of_null"] >= 1
    assert not {"frees_inferred", "lost"} & set(trace.metadata["counts"])
    px.replay_arena(trace)


def test_threads_are_told_apart(program: str) -> None:
    trace = px.record([program, "thread"], usable_size=False)
    assert "usable_size" not in trace.asides
    assert len(trace.metadata["tids"]) == len(set(trace.metadata["tids"])) == 2
    made = (trace.op == px.OP_ALLOC) & (trace.size_bytes == 7777)
    assert trace.thread[made].tolist() == [1]
    assert trace.summary()["cross_thread_frees"] == 2


def test_call_sites_have_names(program: str) -> None:
    trace = px.record([program], sites=True)
    assert trace.key is not None
    names = trace.metadata["key_names"]
    at = {
        size: names[key]
        for size, key in zip(trace.size_bytes.tolist(), trace.key.tolist(), strict=True)
    }
    assert at[1001] == at[1002] != at[1003]
    assert at[1001].startswith("from_here+0x")
    assert at[1003].startswith("from_there+0x")
    assert at[1003].endswith(" (program)")
    # A free and a realloc have the site of the object's alloc.
    made = dict(
        zip(
            trace.object[trace.op == px.OP_ALLOC].tolist(),
            trace.key[trace.op == px.OP_ALLOC].tolist(),
            strict=True,
        )
    )
    assert [made[o] for o in trace.object.tolist()] == trace.key.tolist()


def test_children_are_recorded_when_asked_for(program: str, tmp_path: Path) -> None:
    alone = px.record([program, "fork"])
    assert alone.metadata["children_not_recorded"] == 1
    assert 555555 not in sizes(alone)
    out = tmp_path / "o.npz"
    run = px.record_run([program, "fork"], follow_forks=True, output=out)
    assert len(run.children) == 1
    child = run.children[0]
    assert sizes(child) == [555555]
    assert child.metadata["counts"]["frees_of_unknown"] == 1
    assert child.metadata["parent_pid"] == run.trace.metadata["pid"]
    assert child.metadata["parent_program"] == "program"
    assert run.trace.time_ns is not None
    assert 0 < child.metadata["fork_time_ns"] < int(run.trace.time_ns[-1])
    assert run.trace.metadata["children_not_recorded"] == 0
    assert sorted(p.name for p in tmp_path.iterdir()) == ["o.1-program.npz", "o.npz"]
    assert px.load(tmp_path / "o.1-program.npz") == child


def test_what_a_command_becomes_is_recorded(program: str) -> None:
    trace = px.record(["sh", "-c", f"exec env A=1 {program}"])
    assert 1001 in sizes(trace)
    assert trace.metadata["images"][-2:] == ["env", "program"]
    assert trace.metadata["image"] == len(trace.metadata["images"]) - 1
    assert trace.metadata["command"][:2] == ["sh", "-c"]


def test_a_killed_program_loses_nothing(program: str) -> None:
    trace = px.record([program, "kill"])
    assert trace.metadata["returncode"] == -signal.SIGKILL
    assert {1001, 1002, 1003, 3012, 1005} <= set(sizes(trace))


def test_a_limit_cuts_the_trace(program: str) -> None:
    trace = px.record([program, "many", "3"], max_bytes=1 << 20)
    assert trace.metadata["returncode"] == 3
    assert trace.metadata["cut"]["why"] == "max_bytes"
    assert 10_000 < len(trace) < 100_000
    assert len(px.record([program, "many"])) > 800_000


def test_maps_become_a_trace(program: str) -> None:
    trace = px.record([program, "maps"], maps=True)
    code = px.mappings_trace(trace, executable=True)
    assert code.op.tolist()[-3:] == [px.OP_ALLOC, px.OP_REALLOC, px.OP_ALLOC] or len(code) >= 3
    assert 65536 in sizes(code)
    assert 65536 - 8192 in sizes(code)
    with pytest.raises(ValueError, match="record with maps=True"):
        px.mappings_trace(px.record([program]))


def test_streams_directory_and_environment_are_the_programs(tmp_path: Path) -> None:
    trace = px.record(
        ["sh", "-c", 'read x; echo "$x $PWD $MINE" > out; exit 9'],
        cwd=tmp_path,
        env={"MINE": "yes", "PATH": os.environ["PATH"]},
        stdin=_text(tmp_path),
    )
    assert trace.metadata["returncode"] == 9
    assert (tmp_path / "out").read_text() == f"hello {tmp_path} yes\n"


def _text(directory: Path) -> Any:
    (directory / "in").write_text("hello\n")
    return (directory / "in").open()


def test_a_library_in_a_place_with_blanks_is_loaded(
    program: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = tmp_path / "a place: with $blanks"
    place.mkdir()
    copy = shutil.copy(recorder._library(), place / "record.so")
    monkeypatch.setattr(recorder, "_library", lambda: str(copy))
    assert 1001 in sizes(px.record([program]))


@compiler
def test_another_preloaded_library_stays(
    program: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = tmp_path / "other.c"
    source.write_text(
        "#include <stdlib.h>\n"
        "__attribute__((constructor)) static void begin(void) { free(malloc(424242)); }\n"
    )
    other = tmp_path / "other.so"
    words = [str(cc), "-fno-builtin", "-shared", "-fPIC", str(source), "-o", str(other)]
    subprocess.run(words, check=True)
    before = os.environ.get("LD_PRELOAD")
    monkeypatch.setenv("LD_PRELOAD", f"{other}:{before}" if before else str(other))
    assert {1001, 424242} <= set(sizes(px.record([program])))


def test_it_works_from_another_thread(program: str) -> None:
    found: list[px.Trace] = []
    worker = threading.Thread(target=lambda: found.append(px.record([program])))
    worker.start()
    worker.join()
    assert 1001 in sizes(found[0])


@node
def test_one_run_gives_allocations_and_code(tmp_path: Path) -> None:
    script = "let s = 0; for (let i = 0; i < 2e6; i++) s += i; process.exit(5)"
    run = px.record_run(["node", "-e", script], jit=True, output=tmp_path / "o.npz")
    assert run.returncode == 5
    assert run.code is not None
    assert run.code.metadata["reader"] == "v8"
    assert len(run.trace) > 10_000
    assert run.trace.metadata["command"] == ["node", "-e", script]
    assert "own_malloc" not in run.trace.metadata
    assert px.load(tmp_path / "o.code.npz") == run.code
    with pytest.raises(px.UnknownProgram, match="expected node or java"):
        px.record_run(["ls"], jit=True)


# ---- what cannot be recorded --------------------------------------------------------------------


def test_wrong_commands_are_refused(tmp_path: Path) -> None:
    with pytest.raises(px.UnknownProgram, match="no program was named"):
        px.record([])
    with pytest.raises(px.UnknownProgram, match="no-such-thing: no such program"):
        px.record(["no-such-thing"])
    with pytest.raises(px.UnknownProgram, match="is a directory"):
        px.record([str(tmp_path)])
    (tmp_path / "text").write_text("no program")
    with pytest.raises(px.UnknownProgram, match="text: it may not be executed"):
        px.record([str(tmp_path / "text")])
    with pytest.raises(TypeError, match="expected a list of words"):
        px.record("ls")
    with pytest.raises(ValueError, match="max_bytes is 5, allowed is 1,048,576 and more"):
        px.record(["ls"], max_bytes=5)
    with pytest.raises(FileNotFoundError, match="no such directory"):
        px.record(["touch", str(tmp_path / "made")], output=tmp_path / "no" / "o.npz")
    assert not (tmp_path / "made").exists()
    with pytest.raises(ValueError, match="isolate is -1"):
        px.record_run(["node"], jit=True, isolate=-1)


@compiler
def test_a_static_program_is_refused(tmp_path: Path) -> None:
    source = tmp_path / "s.c"
    source.write_text("int main(void) { return 0; }")
    assert cc is not None
    for flag in ("-static", "-static-pie"):
        target = tmp_path / f"s{flag}"
        done = subprocess.run([cc, flag, str(source), "-o", str(target)], capture_output=True)
        if done.returncode == 0:
            with pytest.raises(px.UnknownProgram, match="is statically linked"):
                px.record([str(target)])
    script = tmp_path / "script"
    script.write_text(f"#!{tmp_path}/s-static -x\n")
    script.chmod(0o755)
    if (tmp_path / "s-static").exists():
        with pytest.raises(px.UnknownProgram, match=r"script: its interpreter .*s-static is stat"):
            px.record([str(script)])
    script.write_text("#!/nowhere/sh\n")
    with pytest.raises(px.UnknownProgram, match="interpreter /nowhere/sh does not exist"):
        px.record([str(script)])


def elf(path: Path, bits: int = 2, machine: int | None = None, interpreter: bytes = b"") -> str:
    """Write the beginning of an ELF program."""
    with open(recorder._library(), "rb") as file:
        ours = file.read(64)
    head = bytearray(ours)
    head[4] = bits
    if machine is not None:
        head[18:20] = struct.pack("<H", machine)
    head[32:40] = struct.pack("<Q", 64)
    head[54:58] = struct.pack("<HH", 56, 1 if interpreter else 0)
    segment = struct.pack("<IIQQQQQQ", 3, 4, 120, 0, 0, len(interpreter), 0, 1)
    path.write_bytes(bytes(head) + segment + interpreter)
    path.chmod(0o755)
    return str(path)


def test_programs_of_other_kinds_are_refused(tmp_path: Path) -> None:
    library = recorder._library()
    with pytest.raises(px.UnknownProgram, match="is a program of 32 bits"):
        check_preloadable(elf(tmp_path / "a", bits=1), library)
    with pytest.raises(px.UnknownProgram, match="is for another machine"):
        check_preloadable(elf(tmp_path / "b", machine=243), library)
    with pytest.raises(px.UnknownProgram, match="is linked with musl"):
        check_preloadable(elf(tmp_path / "c", interpreter=b"/lib/ld-musl-x86_64.so.1\0"), library)
    check_preloadable(elf(tmp_path / "d", interpreter=b"/lib64/ld-linux-x86-64.so.2\0"), library)
    check_preloadable(elf(tmp_path / "ld-linux-x86-64.so.2"), library)


def test_privileged_programs_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    mine = elf(tmp_path / "a", interpreter=b"/lib64/ld-linux-x86-64.so.2\0")
    os.chmod(mine, 0o6755)
    check_preloadable(mine, recorder._library())  # our own user's
    monkeypatch.setattr(os, "getuid", lambda: os.stat(mine).st_uid + 1)
    monkeypatch.setattr(os, "getgid", lambda: os.stat(mine).st_gid + 1)
    with pytest.raises(px.UnknownProgram, match="is setuid and is setgid: the loader ignores"):
        check_preloadable(mine, recorder._library())
    os.chmod(mine, 0o755)
    monkeypatch.setattr(os, "getxattr", lambda path, name: b"\x01")
    with pytest.raises(px.UnknownProgram, match="has file capabilities"):
        check_preloadable(mine, recorder._library())


def test_a_program_without_allocations_says_so(program: str, spare: Path) -> None:
    with pytest.raises(px.RecordingError, match="made no call of malloc") as caught:
        px.record([program, "none"])
    assert caught.value.returncode == 4
    assert list(spare.iterdir()) == []


@compiler
def test_a_program_with_its_own_malloc_says_so(tmp_path: Path) -> None:
    source = tmp_path / "own.c"
    source.write_text(
        "#include <stddef.h>\nstatic char heap[1 << 20]; static size_t used;\n"
        "void *malloc(size_t n) { void *p = heap + used; used += (n + 15) & ~15ul; return p; }\n"
        "void free(void *p) {}\nint main(void) { for (int i = 0; i < 99; i++) malloc(9);"
        " return 3; }\n"
    )
    assert cc is not None
    own = tmp_path / "own"
    subprocess.run(
        [cc, "-O0", "-w", "-rdynamic", "-fno-builtin", str(source), "-o", str(own)], check=True
    )
    with pytest.raises(px.RecordingError, match="brings its own malloc") as caught:
        px.record([str(own)])
    assert caught.value.returncode == 3


def test_a_program_that_loses_the_recorder_is_not_what_is_recorded(program: str) -> None:
    """With an empty environment, what env starts has no recorder: the trace is of env."""
    trace = px.record(["sh", "-c", f"exec env -i {program}"])
    assert trace.metadata["program"] != "program"
    assert 1001 not in sizes(trace)


# ---- the command --------------------------------------------------------------------------------


def run_record(
    directory: Path, *arguments: str, text: str = "hello", **options: Any
) -> subprocess.CompletedProcess[str]:
    """Run `pyallocx record` with a directory for temporary files, which must stay empty."""
    spare = directory / "temporary"
    spare.mkdir(exist_ok=True)
    done = subprocess.run(
        [sys.executable, "-m", "pyallocx", "record", *arguments],
        env={**os.environ, "TMPDIR": str(spare)},
        input=text,
        capture_output=True,
        text=True,
        **options,
    )
    assert list(spare.iterdir()) == []
    return done


@own_process
def test_the_command_keeps_the_programs_streams_and_status(tmp_path: Path, program: str) -> None:
    out = tmp_path / "app.npz"
    script = 'read x; echo "got $x"; echo oops >&2; exit 7'
    done = run_record(tmp_path, "-o", str(out), "--", "sh", "-c", script)
    assert (done.returncode, done.stdout) == (7, "got hello\n")
    first, *lines = done.stderr.splitlines()
    assert first == "oops"
    assert lines[0].startswith("recorded: sh -c 'read x;")
    assert any(line.startswith("memory: ") for line in lines)
    assert lines[-1] == f"trace: {out}"
    assert px.load(out).metadata["returncode"] == 7
    assert sorted(path.name for path in tmp_path.iterdir()) == ["app.npz", "temporary"]
    assert main(["info", str(out)]) == 0


@own_process
def test_the_command_writes_children(tmp_path: Path, program: str) -> None:
    out = tmp_path / "app.npz"
    done = run_record(tmp_path, "--", program, "fork")
    assert "1 child process was not recorded (--follow-forks records them)" in done.stderr
    assert "trace: not kept; -o FILE writes it" in done.stderr
    done = run_record(tmp_path, "-o", str(out), "--follow-forks", "--sites", "--", program, "fork")
    assert "children: 1 process was recorded: program 1 event" in done.stderr
    assert px.load(tmp_path / "app.1-program.npz").key is not None
    done = run_record(tmp_path, "--json", "--", program, "", "2")
    assert done.returncode == 2
    document = json.loads(done.stdout)
    assert document["trace"] is None
    assert document["summary"]["allocs"] > 5
    assert document["children"] == []
    assert done.stderr == ""


@own_process
@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (["--"], 2, "record: no program was named"),
        (["--", "no-such-thing"], 2, "record: no-such-thing: no such program"),
        (["--max-bytes", "5", "--", "ls"], 2, "--max-bytes: 5 is less than 1 MiB"),
        (["--max-bytes", "x", "--", "ls"], 2, "--max-bytes: "),
        (["-o", "-", "--", "ls"], 2, "--output: - is no file"),
        (["-o", "/dev/full", "--", "sh", "-c", "exit 6"], 6, "/dev/full: No space left on device"),
        (["--jit", "--", "ls"], 2, "expected node or java"),
        (["-o", "/nowhere/x.npz", "--", "ls"], 2, "no such directory"),
    ],
)
def test_the_command_says_what_is_wrong(
    tmp_path: Path, arguments: list[str], code: int, message: str
) -> None:
    done = run_record(tmp_path, *arguments)
    assert message in done.stderr
    assert done.returncode == code
    assert done.stdout == ""


@own_process
def test_the_command_says_that_nothing_was_recorded(tmp_path: Path, program: str) -> None:
    done = run_record(tmp_path, "--", program, "none")
    assert done.returncode == 4
    assert "made no call of malloc" in done.stderr


@own_process
def test_signals_are_the_programs(tmp_path: Path, program: str) -> None:
    spare = tmp_path / "temporary"
    spare.mkdir()
    for number in (signal.SIGINT, signal.SIGTERM):
        process = subprocess.Popen(
            [sys.executable, "-m", "pyallocx", "record", "--", program, "wait"],
            env={**os.environ, "TMPDIR": str(spare)},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
            # Where the tests themselves run in a script's background, it is ignored.
            preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
        )
        try:
            assert process.stdout is not None
            assert process.stdout.readline() == "ready\n"
            time.sleep(0.05)
            if number == signal.SIGINT:
                os.killpg(process.pid, number)  # as a terminal does
            else:
                process.send_signal(number)
            _, err = process.communicate(timeout=60)
        finally:
            process.kill()
        assert process.returncode == -number
        assert "not kept" in err
        assert list(spare.iterdir()) == []


# ---- logs as nobody would record them -----------------------------------------------------------

LEAVES_LOGS = """
import os, sys
from rawlog_bytes import *
where, me = os.environ["PYALLOCX_RECORD_DIR"], f"pyallocx-{os.getpid()}-9.axlog"
def leave(name, events, **fields):
    made = [Record(MALLOC, 9500 + i, 4096 * (i + 1), 77) for i in range(events)]
    with open(os.path.join(where, name), "wb") as file:
        file.write(Log([Window(made)], **fields).to_bytes())
"""


def leaving(script: str) -> list[str]:
    """A program that leaves logs of its own making, the last of which counts."""
    path = f"import sys; sys.path.append({os.path.dirname(__file__)!r})"
    return [sys.executable, "-S", "-c", f"{path}\n{LEAVES_LOGS}\n{script}"]


@own_process
def test_when_a_child_was_forked() -> None:
    """By the parent's clock, whenever the child's own log begins."""
    run = px.record_run(
        leaving(
            "leave(me, 1, pairs=(1000, 50, 0, 0))\n"
            "leave('pyallocx-999999999-0.axlog', 1, pairs=(9000, 8050, 0, 0), flags=FORKED,"
            " fork_stamp=5000, parent_file=me.encode())"
        ),
        follow_forks=True,
    )
    (child,) = (c for c in run.children if c.size_bytes.tolist() == [77])
    assert run.trace.size_bytes.tolist() == [77]
    assert child.metadata["fork_time_ns"] == 4000


@own_process
def test_few_events_of_a_program_with_its_own_malloc_are_none_of_it() -> None:
    with pytest.raises(px.RecordingError, match=r"but 15 events: .* brings its own malloc"):
        px.record(leaving("leave(me, 15, own_malloc=1)"))
    assert len(px.record(leaving("leave(me, 16, own_malloc=1)"))) == 16
    assert len(px.record(leaving("leave(me, 1)"))) == 1


# ---- the two readers of a raw log ---------------------------------------------------------------

CHURN = r"""
#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdlib.h>
static _Atomic(void *) slots[64];
static void *work(void *given)
{
    uint32_t s = (uint32_t)(uintptr_t)given * 77 + 1;
    for (int i = 0; i < 4000; i++) {
        s = s * 1664525 + 1013904223;
        void *mine = s & 0x100000 ? malloc(16 + (s >> 16) % 200) : NULL;
        void *old = atomic_exchange(&slots[(s >> 8) % 64], mine);
        if (old && s >> 30 == 3) old = realloc(old, 300);
        free(old);
    }
    return NULL;
}
int main(void)
{
    pthread_t id[4];
    for (long i = 0; i < 4; i++) pthread_create(&id[i], NULL, work, (void *)(i + 1));
    for (int i = 0; i < 4; i++) pthread_join(id[i], NULL);
    return 0;
}
"""


@compiler
def test_the_slow_reader_agrees(tmp_path: Path) -> None:
    source = tmp_path / "churn.c"
    source.write_text(CHURN)
    churn = tmp_path / "churn"
    subprocess.run([str(cc), "-O1", "-w", "-pthread", str(source), "-o", str(churn)], check=True)
    (tmp_path / "logs").mkdir()
    subprocess.run([churn], env=recording.environment(tmp_path / "logs"), check=True)
    (path,) = (tmp_path / "logs").iterdir()
    log = rawlog_model.read(path)
    judged = rawlog_model.judge(log.merged())
    assert judged.allocs_of_live == judged.unknown_frees == []
    trace = px.load(path)
    summary = trace.summary()
    assert summary["live_objects_end"] == len(judged.live)
    assert summary["live_bytes_end"] == judged.live_bytes
    allocs = log.count(*rawlog_model.ALLOCS)
    assert summary["allocs"] == allocs - judged.failed
    assert summary["frees"] == log.count(rawlog_model.FREE)
    assert summary["reallocs"] == log.count(rawlog_model.REALLOC_END) > 10
    assert summary["threads"] == len(log.threads()) == 5
    # No address had to correct a stamp, so the order is that of the stamps.
    if "order_repairs" not in trace.metadata["counts"]:
        made = [r for r in log.merged() if r.kind in rawlog_model.ALLOCS and not r.failed]
        found = sizes(trace)
        # The clock may stand still for a moment: of what has one stamp, any order is right ...
        at = 0
        for stamp, group in itertools.groupby(made, key=lambda record: record.stamp):
            want = sorted(record.size for record in group)
            assert sorted(found[at : at + len(want)]) == want, (stamp, at)
            at += len(want)
        assert at == len(found)
    # ... that is one of each thread's own.
    tids = trace.metadata["tids"]
    allocs_of = trace.thread[trace.op == px.OP_ALLOC]
    for records in log.threads().values():
        assert records[0].kind == rawlog_model.THREAD
        number = tids.index(records[0].size)
        want = [r.size for r in records if r.kind in rawlog_model.ALLOCS and not r.failed]
        assert trace.size_bytes[trace.op == px.OP_ALLOC][allocs_of == number].tolist() == want
