"""Real programs, recorded: the traces agree with what the programs and other tools count."""

import os
import re
import shutil
import subprocess
import sys
import threading
import time
from pathlib import Path

import numpy as np
import pytest

import pyallocx as px

PROGRAMS = Path(__file__).parent / "programs"
MARK_BYTES = 77777  # as in tell_heap.c

JSON = """
import json
rows = [{"id": i, "name": "n%d" % i, "tags": ["a", "b", str(i % 7)]} for i in range(3000)]
assert json.loads(json.dumps(rows)) == rows
"""
SQL = """
create table t(a integer primary key, b text, c real);
with recursive n(i) as (values(1) union all select i + 1 from n where i < 4000)
  insert into t select i, 'row ' || i, i / 7.0 from n;
create index tb on t(b);
select count(*), sum(c) from t where b like '%7%';
delete from t where a % 3 = 0;
select group_concat(b) from (select b from t order by c desc limit 20);
"""
SOURCE = "\n".join(
    f"int f{i}(int a, int b) {{ int s = {i}; for (int k = 0; k < a; k++) s += k * b ^ (s >> 3); "
    f"return s{f' + f{i - 1}(b, a & 7)' if i else ''}; }}"
    for i in range(60)
)


def tool(name):
    """Return the path of an installed program; without it the test is skipped."""
    found = shutil.which(name)
    if found is None:
        pytest.skip(f"{name} is not installed")
    return found


def compiled(directory, source, *flags):
    """Compile a program of the tests."""
    compiler = tool("c++" if source.endswith(".cpp") else "cc")
    target = directory / Path(source).with_suffix(".so" if "-shared" in flags else "").name
    subprocess.run([compiler, "-O1", *flags, PROGRAMS / source, "-o", target], check=True)
    return target


def whole(trace):
    """Assert what holds of a recording to which nothing happened, and return its summary."""
    assert "cut" not in trace.metadata
    assert trace.metadata["dropped"] == {}
    assert trace.metadata["counts"].get("order_repairs", 0) == 0
    assert not [kind for kind in trace.metadata["counts"] if kind.endswith("_of_unknown")]
    return trace.summary()


def live_at_mark(trace):
    """Return the sizes of the objects that live where `tell_heap` asked the allocator."""
    made = (trace.op == px.OP_ALLOC) & (trace.size_bytes == MARK_BYTES)
    mark = int(np.flatnonzero(made)[-1])
    sizes = np.zeros(trace.n_objects, dtype=np.uint64)
    resizes = trace.op[:mark] != px.OP_FREE
    # In order, so that the last size of an object is what remains.
    sizes[trace.object[:mark][resizes]] = trace.size_bytes[:mark][resizes]
    live = np.zeros(trace.n_objects, dtype=bool)
    live[trace.object[:mark]] = True
    live[trace.object[:mark][trace.op[:mark] == px.OP_FREE]] = False
    return sizes[live], np.unique(trace.thread[:mark]).size


@pytest.fixture(scope="session")
def teller(tmp_path_factory):
    return compiled(tmp_path_factory.mktemp("teller"), "tell_heap.c", "-shared", "-fPIC")


def told(teller, tmp_path, command, **options):
    """Record a program and return the trace, and what its allocator said at the end was in use."""
    answers = tmp_path / "told"
    env = dict(options.pop("env", os.environ))
    env |= {
        "LD_PRELOAD": str(teller),
        "TELL_HEAP": str(answers),
        # Freed chunks in these caches count as used; mapped chunks are not in what is counted.
        "GLIBC_TUNABLES": "glibc.malloc.tcache_count=0:glibc.malloc.mxfast=0:"
        "glibc.malloc.mmap_threshold=4294967296",
    }
    trace = px.record(command, env=env, stdout=subprocess.DEVNULL, **options)
    used, mapped, _ = map(int, answers.read_text().split())
    assert mapped == 0
    return trace, used


def assert_agrees(trace, used):
    """Assert that what lives in the trace is what glibc's own books say is in use."""
    sizes, threads = live_at_mark(trace)
    chunks = np.maximum(32, (sizes.astype(np.int64) + 8 + 15) // 16 * 16)
    # A chunk may be 16 bytes larger, where what it was cut from left too little for another. A
    # thread has one for its cache (656 bytes), and may have an arena, whose own record (2,248)
    # lies in its heap. That is all there is beside what was asked for.
    rest = used - int(chunks.sum())
    most = 16 * len(sizes) + 700 * threads + 2400 * (threads - 1)
    assert 0 <= rest <= most, (used, int(chunks.sum()), len(sizes), threads)


# ---- the program's own allocator agrees --------------------------------------------------------


def test_sqlite3(teller, tmp_path):
    script = tmp_path / "script.sql"
    script.write_text(SQL)
    command = [tool("sqlite3"), ":memory:", f".read {script}"]
    trace, used = told(teller, tmp_path, command)
    assert whole(trace)["allocs"] > 3000
    assert_agrees(trace, used)


def test_git(teller, tmp_path):
    git = [tool("git"), "-C", str(tmp_path), "-c", "user.name=a", "-c", "user.email=a@b.c"]
    subprocess.run([*git, "init", "-q"], check=True)
    for i in range(20):
        (tmp_path / f"f{i % 3}").write_text("\n".join(map(str, range(i * 20))))
        subprocess.run([*git, "add", "-A"], check=True)
        subprocess.run([*git, "commit", "-q", "-m", f"commit {i}"], check=True)
    trace, used = told(teller, tmp_path, [*git, "log", "--stat"])
    assert whole(trace)["allocs"] > 1000
    assert_agrees(trace, used)


def test_python3_without_its_own_allocator(teller, tmp_path):
    env = {**os.environ, "PYTHONMALLOC": "malloc"}
    trace, used = told(teller, tmp_path, [sys.executable, "-S", "-c", JSON], env=env)
    assert whole(trace)["allocs"] > 20000
    assert_agrees(trace, used)


def compiler_proper(tmp_path):
    """Return a command that runs what gcc calls cc1, and the file that it writes."""
    found = subprocess.run([tool("gcc"), "-print-prog-name=cc1"], capture_output=True, text=True)
    cc1 = found.stdout.strip()
    if not os.path.isabs(cc1):
        pytest.skip("gcc has no cc1 of its own")
    (tmp_path / "s.c").write_text(SOURCE)
    return [cc1, "-quiet", "-O2", str(tmp_path / "s.c"), "-o", str(tmp_path / "s.s")]


def test_cc1(teller, tmp_path):
    trace, used = told(teller, tmp_path, compiler_proper(tmp_path))
    assert whole(trace)["allocs"] > 100_000
    assert_agrees(trace, used)


def test_node(teller, tmp_path):
    script = "let a = []; for (let i = 0; i < 1e5; i++) a.push({i}); console.log(a.length)"
    trace, used = told(teller, tmp_path, [tool("node"), "-e", script])
    assert whole(trace)["threads"] > 1
    assert_agrees(trace, used)


def test_threads_that_free_what_others_made(teller, tmp_path):
    churn = compiled(tmp_path, "churn.cpp", "-pthread")
    trace, used = told(teller, tmp_path, [str(churn), "6", "20000"])
    summary = whole(trace)
    assert summary["threads"] == 7
    assert summary["cross_thread_frees"] > 20
    assert_agrees(trace, used)


def test_redis_under_a_client(tmp_path):
    server, client = tool("redis-server"), tool("redis-cli")
    socket = tmp_path / "socket"
    answers = []

    def use():
        for _ in range(200):
            if socket.exists():
                break
            time.sleep(0.05)
        lines = "".join(f"SET key:{i} {'x' * (i % 300)}\n" for i in range(3000))
        lines += "".join(f"DEL key:{i}\n" for i in range(0, 3000, 2))
        for text in (lines, "INFO memory\n", "SHUTDOWN NOSAVE\n"):
            ran = subprocess.run(
                [client, "-s", socket], input=text, capture_output=True, text=True, check=False
            )
            answers.append(ran.stdout)

    user = threading.Thread(target=use)
    user.start()
    command = [server, "--port", "0", "--unixsocket", str(socket), "--save", "", "--logfile", "log"]
    try:
        trace = px.record(command, cwd=tmp_path, stdout=subprocess.DEVNULL)
    finally:
        user.join()
    # Whatever allocator redis was built with, it adds up what malloc_usable_size says.
    told = re.search(r"^used_memory:(\d+)", answers[1], re.MULTILINE)
    asked = trace.asides["usable_size"]
    usable = np.zeros(trace.n_objects, dtype=np.uint64)
    usable[asked["object"]] = asked["size_bytes"]
    usable[trace.object[trace.op == px.OP_FREE]] = 0
    assert whole(trace)["live_objects_end"] > 1500
    assert int(usable.sum()) == pytest.approx(int(told[1]), rel=0.05)


# ---- others count the same ----------------------------------------------------------------------


def counted_by_valgrind(command, env=None):
    """Return allocs, frees and allocated bytes as memcheck counts them (a realloc is both)."""
    options = ["--run-libc-freeres=no", "--leak-check=no"]
    ran = subprocess.run(
        [tool("valgrind"), *options, *command], capture_output=True, text=True, env=env
    )
    found = re.search(
        r"total heap usage: ([\d,]+) allocs, ([\d,]+) frees, ([\d,]+) bytes", ran.stderr
    )
    assert found, ran.stderr
    return [int(number.replace(",", "")) for number in found.groups()]


def counted(trace):
    s = whole(trace)
    return [s["allocs"] + s["reallocs"], s["frees"] + s["reallocs"], s["allocated_bytes"]]


def test_valgrind_counts_the_same_of_sqlite3(tmp_path):
    script = tmp_path / "script.sql"
    script.write_text(SQL)
    command = [tool("sqlite3"), ":memory:", f".read {script}"]
    theirs = counted_by_valgrind(command)
    assert counted(px.record(command, stdout=subprocess.DEVNULL)) == theirs


@pytest.mark.slow
def test_valgrind_counts_the_same_of_python3():
    command = [sys.executable, "-S", "-c", JSON.replace("3000", "300")]
    env = {**os.environ, "PYTHONMALLOC": "malloc", "PYTHONHASHSEED": "0"}
    theirs = counted_by_valgrind(command, env)
    # Python keeps its environment, in which each puts variables of its own.
    assert counted(px.record(command, env=env)) == pytest.approx(theirs, rel=5e-3)


def test_ltrace_counts_the_same(tmp_path):
    source = tmp_path / "count.c"
    source.write_text(
        "#include <stdlib.h>\n"
        "int main(void) { void *p[50]; for (int i = 0; i < 50; i++) p[i] = malloc(10 + i);\n"
        "for (int i = 0; i < 50; i += 2) p[i] = realloc(p[i], 500 + i);\n"
        "for (int i = 0; i < 40; i++) free(p[i]); free(calloc(3, 7)); return 0; }\n"
    )
    program = tmp_path / "count"
    subprocess.run([tool("cc"), "-O0", source, "-o", program], check=True)
    log = tmp_path / "log"
    subprocess.run(
        [tool("ltrace"), "-e", "malloc+calloc+realloc+free", "-o", log, program], check=True
    )
    theirs = px.load(log)
    ours = px.record([str(program)])
    assert whole(ours)["allocs"] == 51
    for column in ("op", "object", "size_bytes", "call"):
        assert np.array_equal(getattr(ours, column), getattr(theirs, column))


# ---- processes that make processes --------------------------------------------------------------


def test_a_pipeline_of_a_shell(tmp_path):
    words = tmp_path / "words"
    words.write_text("\n".join(f"word{i % 97}" for i in range(2000)))
    out = tmp_path / "out"
    script = f"for i in 1 2 3; do cat {words} | sort | uniq -c | sort -n | tail -n 2; done > {out}"
    recording = px.record_run([tool("sh"), "-c", script], follow_forks=True)
    assert recording.returncode == 0
    assert len(out.read_text().splitlines()) == 6
    programs = [trace.metadata["program"] for trace in recording.children]
    assert programs.count("sort") == 6
    assert programs.count("uniq") == 3
    for trace in recording.children:
        assert trace.metadata["dropped"] == {}
        assert "cut" not in trace.metadata
