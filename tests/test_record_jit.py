"""Recording the code that node and java compile: `pyallocx record-jit`."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import pyallocx as px
from pyallocx.cli import main
from pyallocx.codetraces.record import RecordingError, UnknownProgram, record_jit


def kinds(trace: px.Trace) -> set[str]:
    assert trace.key is not None
    return {trace.metadata["key_names"][key] for key in trace.key.tolist()}


node = pytest.mark.skipif(shutil.which("node") is None, reason="node is not installed")
java = pytest.mark.skipif(shutil.which("java") is None, reason="java is not installed")
javac = pytest.mark.skipif(shutil.which("javac") is None, reason="no JDK is installed")

SCRIPT = """
const { Worker, isMainThread } = require('worker_threads');
if (isMainThread && process.argv[2] === 'worker') new Worker(__filename);
function f(i) { return i * 3 + 1; }
let sum = 0;
for (let i = 0; i < 1e6; i++) sum += f(i);
if (isMainThread) {
  process.stdin.on('data', (text) => process.stdout.write(text.toString().toUpperCase()));
  process.stdin.on('end', () => process.exit(process.argv[2] === 'worker' ? 0 : 7));
}
"""


def run_record(
    directory: Path, *arguments: str, text: str = "hello", **options: Any
) -> subprocess.CompletedProcess[str]:
    """Run `pyallocx record-jit` in a directory of its own, which must stay empty."""
    empty = directory / "empty"
    empty.mkdir(exist_ok=True)
    spare = directory / "temporary"
    spare.mkdir(exist_ok=True)
    done = subprocess.run(
        [sys.executable, "-m", "pyallocx.cli", "record-jit", *arguments],
        cwd=empty,
        env={**os.environ, "TMPDIR": str(spare)},
        input=text,
        capture_output=True,
        text=True,
        **options,
    )
    assert list(empty.iterdir()) == []
    assert list(spare.iterdir()) == []
    return done


@node
def test_record_node(tmp_path: Path) -> None:
    script = tmp_path / "a.js"
    script.write_text(SCRIPT)
    out = tmp_path / "out.npz"
    done = run_record(tmp_path, "-o", str(out), "--", "node", str(script))
    assert (done.returncode, done.stdout) == (7, "HELLO")
    assert "seen" in done.stderr
    assert done.stderr.count(str(script)) == 1
    assert f"trace: {out}" in done.stderr
    trace = px.load(out)
    assert trace.metadata["reader"] == "v8"
    assert trace.metadata["command"] == ["node", str(script)]
    assert trace.metadata["returncode"] == 7
    assert any(kind.endswith(":*") for kind in kinds(trace))
    assert "isolates" not in trace.metadata
    assert "file" not in trace.metadata


@node
def test_record_node_with_a_worker(tmp_path: Path) -> None:
    script = tmp_path / "a.js"
    script.write_text(SCRIPT)
    done = run_record(tmp_path, "--json", "--", "node", str(script), "worker")
    assert done.returncode == 0
    assert done.stdout.startswith("HELLO")
    document = json.loads(done.stdout.removeprefix("HELLO"))
    assert document["metadata"]["isolates"] == 2
    assert document["trace"] is None
    assert done.stderr == ""


@node
def test_record_node_that_a_signal_ends(tmp_path: Path) -> None:
    done = run_record(tmp_path, "--", "node", "-e", "process.kill(process.pid, 'SIGKILL')")
    assert done.returncode == -signal.SIGKILL
    assert "not kept" in done.stderr


@node
def test_record_node_keeps_the_old_file(tmp_path: Path) -> None:
    out = tmp_path / "no" / "out.npz"
    done = run_record(tmp_path, "-o", str(out), "--", "node", "-e", "0")
    assert done.returncode == 2
    assert "no such directory" in done.stderr


@node
def test_record_node_without_a_log(tmp_path: Path) -> None:
    done = run_record(tmp_path, "--", "node", "--no-such-flag", "a.js")
    assert done.returncode == 9
    assert "node wrote no log of its code" in done.stderr


@node
@pytest.mark.parametrize(
    ("out", "code", "message"),
    [
        ("-", 2, "--output: - is no file"),
        ("", 2, "--output: the name of the file is empty"),
        (".", 2, ".: is a directory"),
        ("/dev/full", 7, "/dev/full: No space left on device"),
    ],
)
def test_record_what_cannot_be_written(tmp_path: Path, out: str, code: int, message: str) -> None:
    script = tmp_path / "a.js"
    script.write_text(SCRIPT)
    done = run_record(tmp_path, "-o", out, "--", "node", str(script))
    assert done.returncode == code
    assert message in done.stderr
    # Nothing has run where it could be told before; else what ran is told.
    assert done.stdout == ("HELLO" if code == 7 else "")
    assert ("allocs: " in done.stderr) == (code == 7)
    assert "trace: /dev/full" not in done.stderr


def test_record_what_may_not_be_executed(tmp_path: Path) -> None:
    program = tmp_path / "node"
    program.write_text("this is no program")
    with pytest.raises(UnknownProgram, match="node: it may not be executed"):
        record_jit([str(program)])
    program.chmod(0o755)
    done = run_record(tmp_path, "--", str(program))
    assert done.returncode == 2
    assert f"{program}: Exec format error" in done.stderr


def test_record_a_killed_program_whose_log_is_cut(tmp_path: Path) -> None:
    log = tmp_path / "log"
    log.write_text("code-creation,JS,11,5,0x1000,16,f,0x77,^\ncode-creation,JS,11,9,0x20")
    fake = tmp_path / "node"
    fake.write_text(
        '#!/bin/sh\nfor a in "$@"; do case $a in --logfile=*) to=${a#--logfile=};; esac; done\n'
        f'cat {log} > "$to"\n[ "$1" = --log-code ] && [ "$3" = die ] && kill -9 $$\nexit 0\n'
    )
    fake.chmod(0o755)
    with pytest.raises(RecordingError, match="line 2: the file ends inside this line"):
        record_jit([str(fake), "live"])
    code, trace = record_jit([str(fake), "die"])
    assert (code, len(trace)) == (-signal.SIGKILL, 1)
    assert trace.metadata["dropped"] == {"truncated": 1}
    done = run_record(tmp_path, "--", str(fake), "die")
    assert done.returncode == -signal.SIGKILL
    assert "1 event (1 event of the file dropped)" in done.stderr


@java
@javac
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL])
def test_record_java_that_a_signal_ends(tmp_path: Path, number: int) -> None:
    source = tmp_path / "W.java"
    source.write_text(
        "public class W { public static void main(String[] a) throws Exception {"
        " System.out.println(ProcessHandle.current().pid()); Thread.sleep(60000); } }"
    )
    subprocess.run(["javac", "-d", str(tmp_path), str(source)], check=True)
    spare = tmp_path / "temporary"
    spare.mkdir()
    process = subprocess.Popen(
        [sys.executable, "-m", "pyallocx", "record-jit", "--", "java", "-cp", str(tmp_path), "W"],
        env={**os.environ, "TMPDIR": str(spare)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    try:
        assert process.stdout is not None
        pid = int(process.stdout.readline())
        if number == signal.SIGINT:
            os.killpg(process.pid, number)  # as a terminal does
        else:
            os.kill(pid, number)
        _, err = process.communicate(timeout=60)
    finally:
        process.kill()
    # Java handles the first, and ends with what a shell would have made of it.
    assert process.returncode == (130 if number == signal.SIGINT else -number)
    assert "not kept" in err
    assert list(spare.iterdir()) == []
    assert not list(Path("/tmp").glob(f"hs_c*_pid{pid}.log"))


@java
@javac
def test_record_java(tmp_path: Path) -> None:
    source = tmp_path / "H.java"
    source.write_text(
        "public class H { static int f(int i) { return i * 3 + 1; }"
        " public static void main(String[] a) throws Exception { int s = 0;"
        " for (int i = 0; i < 3000000; i++) s += f(i); System.out.write(System.in.read());"
        " System.out.flush(); System.exit(3); } }"
    )
    subprocess.run(["javac", "-d", str(tmp_path), str(source)], check=True)
    out = tmp_path / "out.npz"
    done = run_record(tmp_path, "-o", str(out), "--", "java", "-cp", str(tmp_path), "H")
    assert (done.returncode, done.stdout) == (3, "h")
    trace = px.load(out)
    assert trace.metadata["reader"] == "hotspot_logcompilation"
    assert any(kind.startswith("c1 level 3") for kind in kinds(trace))


@pytest.mark.parametrize(
    ("command", "message"),
    [
        ([], "no program was named"),
        (["ls"], "ls: expected node or java"),
        (["/nowhere/node", "a.js"], "/nowhere/node: no such program"),
        (["nodemon"], "nodemon: expected node or java"),
    ],
)
def test_record_what_cannot_be(tmp_path: Path, command: list[str], message: str) -> None:
    done = run_record(tmp_path, "--", *command)
    assert done.returncode == 2
    assert message in done.stderr
    assert done.stdout == ""
    with pytest.raises(UnknownProgram, match=message):
        record_jit(command)


def test_record_says_when_the_log_is_not_as_expected(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    fake = tmp_path / "node"
    fake.write_text(
        '#!/bin/sh\nfor a in "$@"; do case $a in --logfile=*) log=${a#--logfile=};; esac; done\n'
        'printf "code-creation,JS\\n" > "$log"\nexit 5\n'
    )
    fake.chmod(0o755)
    with pytest.raises(RecordingError, match="line 1: expected 'code-creation") as caught:
        record_jit([str(fake)])
    assert caught.value.returncode == 5
    assert main(["record-jit", str(fake)]) == 5
    assert "the log of node" in capfd.readouterr().err


WAITING = """
process.on('SIGTERM', () => { console.log('asked to end'); process.exit(4); });
setInterval(() => {}, 1000);
console.log('ready');
"""


@node
def test_record_passes_on_what_asks_it_to_end(tmp_path: Path) -> None:
    process = subprocess.Popen(
        [sys.executable, "-m", "pyallocx.cli", "record-jit", "--", "node", "-e", WAITING],
        env={**os.environ, "TMPDIR": str(tmp_path)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    process.send_signal(signal.SIGTERM)
    try:
        out, err = process.communicate(timeout=60)
    finally:
        process.kill()
    assert (process.returncode, out) == (4, "asked to end\n")
    assert "not kept" in err
    assert list(tmp_path.iterdir()) == []


@node
def test_another_isolate_is_read_when_asked_for(tmp_path: Path) -> None:
    script = tmp_path / "script.js"
    script.write_text(SCRIPT)
    found = {}
    for number in ("0", "1"):
        out = tmp_path / f"{number}.npz"
        done = run_record(
            tmp_path, "--isolate", number, "-o", str(out), "--", "node", str(script), "worker"
        )
        assert done.returncode == 0, done.stderr
        found[number] = trace = px.load(out)
        assert (trace.metadata["isolates"], trace.metadata["isolate"]) == (2, int(number))
        line = f"1 more isolate (threads), with {trace.metadata['creations_not_read']} creation"
        assert line in done.stderr
        assert main(["info", str(out)]) == 0
    # The main isolate compiles; whether the worker does before it ends is a matter of luck.
    assert found["1"].metadata["creations_not_read"] > 0
    done = run_record(tmp_path, "--isolate", "2", "--", "node", str(script), "worker")
    assert "node has no isolate 2; there are 0 to 1" in done.stderr
    assert done.returncode == 1
    done = run_record(tmp_path, "--isolate", "-1", "--", "node", str(script))
    assert done.returncode == 2
    with pytest.raises(ValueError, match="isolate is -1"):
        record_jit(["node"], isolate=-1)


@node
def test_the_end_of_a_program_is_no_death(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "trace.npz"
    done = run_record(tmp_path, "-o", str(out), "--", "node", "-e", "1")
    trace = px.load(out)
    deaths = trace.metadata["counts"]["deaths_at_exit"]
    assert trace.summary()["live_objects_end"] == deaths > 0
    line = f"{deaths} deaths of code by the end of the program"
    assert f"left out: {line}" in done.stderr
    assert main(["info", str(out)]) == 0
    assert line in capsys.readouterr().out
    assert px.replay_code(trace).row["code_bytes_end"] > 0


@node
def test_its_own_flag_overrides_ours(tmp_path: Path) -> None:
    log = tmp_path / "own.log"
    with pytest.raises(RecordingError, match=f"its own flag --logfile={log} overrode ours"):
        record_jit(["node", f"--logfile={log}", "-e", "1"])


@java
def test_its_own_flag_overrides_ours_in_java(tmp_path: Path) -> None:
    flag = f"-XX:LogFile={tmp_path / 'own.log'}"
    with pytest.raises(RecordingError, match=f"its own flag {flag} overrode ours"):
        record_jit(["java", flag, "-version"])


@node
def test_a_link_to_node_is_node(tmp_path: Path) -> None:
    link = tmp_path / "mine"
    program = shutil.which("node")
    assert program is not None
    link.symlink_to(program)
    assert len(record_jit([str(link), "-e", "1"]).trace) > 0
