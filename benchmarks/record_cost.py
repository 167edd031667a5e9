"""What recording costs, in one run: the same command unrecorded, by ours, by heaptrack, by mtrace.

    python benchmarks/record_cost.py [WORKLOAD ...] [--runs N] [--logs DIRECTORY] [--sites]
                                     [--mtrace-seconds N] [--no-heaptrack]

Runs are interleaved; a ratio is that of medians. ``wall`` is the clock on the wall, ``cpu`` user
and system time of the command and its children, which is steadier where others use the machine.
``ours`` is the library alone, ``launched`` as `px.record` runs a program, which makes memory for
the log ahead of it where there is a processor to spare; what that takes is ``launcher``.
heaptrack writes its raw data only and unwinds a stack per event, so it does more; mtrace is stopped
when its time is up, and its ratio is then a lower bound. Programs that are not installed are left
out and named.

Much of what ours costs is the memory of the log's pages. On a virtual machine that gives free
memory back to its host (free page reporting) a page costs several times as much as on one that does
not; ``--logs`` on a tmpfs shows the difference.
"""

from __future__ import annotations

import argparse
import os
import resource
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO

from pyallocx import preload
from pyallocx._running import find_program
from pyallocx.recorder import run_logging

HERE = Path(__file__).resolve().parent
HEADER_BYTES = 65536

SQL = """
create table t(a integer primary key, b text, c real);
with recursive n(x) as (select 1 union all select x + 1 from n where x < 150000)
insert into t select x, 'row number ' || x || ' text ' || (x * 7919 % 10007), x * 0.5 from n;
create index i on t(b);
select count(*), sum(length(b)) from t where b like '%7%';
select substr(b, 1, 12), count(*) from t group by 1 order by 2 desc limit 5;
update t set b = b || 'x' where a % 3 = 0;
delete from t where a % 5 = 0;
select count(*) from t;
"""

JSON = """
import json
data = [
    {"id": k, "name": f"name {k}", "values": [k * 0.5, k, str(k)], "nested": {"a": [1, 2], "b": k}}
    for k in range(60000)
]
assert json.loads(json.dumps(data)) == data
"""

FUNCTION = """
struct s{k} {{ int a[{n}]; double d; struct s{k} *next; }};
int f{k}(struct s{k} *s, int n, const char *t)
{{
    int sum = {k};
    for (int i = 0; i < n; i++) {{
        if (s && s->a[i % {n}] > i) sum += s->a[i % {n}] * {k};
        else sum ^= t[i % 7] << (i & 3);
        switch (sum & 7) {{
        case 0: sum += i; break;
        case 1: sum -= 3 * i; break;
        case 2: sum *= 5; break;
        case 3: sum ^= {k} * 17; break;
        case 5: while (sum > 100) sum = sum / 3 - 1; break;
        default: s = s ? s->next : s;
        }}
    }}
    return sum + (s ? (int)s->d : 0);
}}
"""


@dataclass
class Workload:
    """A command, and what of the directory it runs in must be there first."""

    program: str
    arguments: list[str]
    stdin: str = ""
    environment: dict[str, str] = field(default_factory=dict)
    prepare: Callable[[Path], None] = lambda folder: None


def write_sql(folder: Path) -> None:
    (folder / "rows.sql").write_text(SQL)


def write_c(folder: Path) -> None:
    text = "".join(FUNCTION.format(k=k, n=k % 13 + 3) for k in range(220))
    (folder / "functions.c").write_text(text)


def write_python(folder: Path) -> None:
    (folder / "text.py").write_text(JSON)


def write_xml(folder: Path) -> None:
    item = '<item id="{0}" name="n{1}"><a>{2}</a><b x="{3}">text {0}</b></item>\n'
    with (folder / "items.xml").open("w") as file:
        file.write('<?xml version="1.0"?>\n<root>\n')
        k = 0
        while file.tell() < 9_500_000:
            file.write(item.format(k, k * 7 % 1000, k * 31, k % 17))
            k += 1
        file.write("</root>\n")


def build_churn(folder: Path) -> None:
    source = HERE / "record_churn.c"
    command = ["cc", "-std=gnu11", "-O2", "-pthread", str(source), "-o", str(folder / "churn")]
    subprocess.run(command, check=True)


def compiler_proper() -> str:
    if not shutil.which("gcc"):
        return "cc1"
    command = ["gcc", "-print-prog-name=cc1"]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()


WORKLOADS = {
    "sqlite3": Workload("sqlite3", [":memory:"], "rows.sql", prepare=write_sql),
    "cc1": Workload(
        compiler_proper(), ["-quiet", "-O2", "functions.c", "-o", "/dev/null"], prepare=write_c
    ),
    "python3": Workload(
        "/usr/bin/python3", ["text.py"], environment={"PYTHONMALLOC": "malloc"},
        prepare=write_python,
    ),
    "xmllint": Workload("xmllint", ["--noout", "items.xml"], prepare=write_xml),
    # Nothing but malloc and free, 35 ns an event; and with a little work, 135 ns, as programs have.
    "two-threads": Workload("./churn", ["2"], prepare=build_churn),
    "two-threads-work": Workload("./churn", ["2", "2000000", "9"], prepare=build_churn),
    "git-log": Workload("git", ["-C", str(HERE), "log", "--stat", "-n", "500"]),
}  # fmt: skip


@dataclass
class Run:
    """What one run took."""

    wall: float
    cpu: float
    launcher: float = 0.0
    log_bytes: int = 0
    events: int = 0
    stopped: bool = False


class Bench:
    """The programs that record, and where they write."""

    def __init__(self, folder: Path, logs: Path, sites: bool, mtrace_seconds: float) -> None:
        self.folder, self.logs, self.sites = folder, logs, sites
        self.mtrace_seconds = mtrace_seconds
        self.heaptrack = []
        if program := shutil.which("heaptrack"):
            help_ = subprocess.run([program, "--help"], capture_output=True, text=True, check=False)
            raw = "--record-only" if "--record-only" in help_.stdout else "--raw"
            self.heaptrack = [program, raw]
        self.mtrace = folder / "mtrace_start.so"
        command = [
            "cc",
            "-shared",
            "-fPIC",
            "-O2",
            str(HERE.parent / "csrc/preload/mtrace_start.c"),
        ]
        libraries = ["-o", str(self.mtrace), "-l:libc_malloc_debug.so.0"]
        built = subprocess.run([*command, *libraries], capture_output=True, check=False)
        self.has_mtrace = built.returncode == 0

    def run(self, work: Workload, how: str) -> Run:
        """Run a command once, recorded or not."""
        shutil.rmtree(self.logs, ignore_errors=True)
        self.logs.mkdir(parents=True)
        command = [work.program, *work.arguments]
        env = {**os.environ, **work.environment, "GIT_PAGER": "cat"}
        if how in ("ours", "launched"):
            env["LD_PRELOAD"] = str(preload.library_path())
        if how == "ours":
            env |= {
                "PYALLOCX_RECORD_DIR": str(self.logs),
                "PYALLOCX_RECORD_FLAGS": "1" if self.sites else "0",
                "PYALLOCX_RECORD_PARENT": "0",
                "PYALLOCX_RECORD_MAX_BYTES": "0",
            }
        elif how == "heaptrack":
            command = [*self.heaptrack, "-o", str(self.logs / "heaptrack"), *command]
        elif how == "mtrace":
            env |= {
                "LD_PRELOAD": f"libc_malloc_debug.so.0 {self.mtrace}",
                "MALLOC_TRACE": str(self.logs / "mtrace"),
            }
        before, start = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
        own = time.process_time()
        with open(self.folder / work.stdin if work.stdin else os.devnull) as stdin:
            if how == "launched":
                code, stopped = self.launch(command, env, stdin), False
            else:
                code, stopped = self.wait(command, env, stdin, how)
        wall, after = time.perf_counter() - start, resource.getrusage(resource.RUSAGE_CHILDREN)
        own = time.process_time() - own
        if code:
            raise RuntimeError(f"{' '.join(command)} ended with {code}")
        cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
        result = Run(wall, cpu, own, stopped=stopped)
        if how in ("ours", "launched"):
            for log in self.logs.glob("*.axlog"):
                used, events = look(log, 3 if self.sites else 2)
                result.log_bytes += used
                result.events += events
        shutil.rmtree(self.logs, ignore_errors=True)
        return result

    def launch(self, command: list[str], env: dict[str, str], stdin: IO[str]) -> int:
        program = find_program(command[0], cwd=str(self.folder), path=env["PATH"])
        return run_logging(
            command, program, str(self.logs), env, flags=self.sites, follow_forks=True,
            cwd=str(self.folder), stdin=stdin, stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )[1]  # fmt: skip

    def wait(
        self, command: list[str], env: dict[str, str], stdin: IO[str], how: str
    ) -> tuple[int, bool]:
        process = subprocess.Popen(
            command, cwd=self.folder, env=env, stdin=stdin,
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True,
        )  # fmt: skip
        try:
            return process.wait(self.mtrace_seconds if how == "mtrace" else None), False
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
            return 0, True


def look(log: Path, words: int) -> tuple[int, int]:
    """Bytes of records, and about how many there are, from what the windows have filled."""
    with log.open("rb") as file:
        used = int.from_bytes(file.read(88)[80:88], "little")
        events, at = 0, HEADER_BYTES
        while at < used:
            file.seek(at)
            head = file.read(16)
            size = int.from_bytes(head[8:12], "little") or 16384
            if head[:8] == b"AXWINDOW":
                file.seek(at + 64)
                events += len(file.read(size - 64).rstrip(b"\0")) // (8 * words)
            at += size
    return used - HEADER_BYTES, events


def report(name: str, runs: dict[str, list[Run]]) -> None:
    def median(how: str, what: str) -> float:
        return statistics.median(getattr(run, what) for run in runs[how])

    base = {what: median("alone", what) for what in ("wall", "cpu")}
    spread = [run.wall for run in runs["alone"]]
    print(
        f"{name:12} alone {base['wall']:6.2f} s [{min(spread):.2f} .. {max(spread):.2f}], "
        f"cpu {base['cpu']:.2f} s"
    )
    for how in [how for how in runs if how != "alone"]:
        bound = ">" if any(run.stopped for run in runs[how]) else ""
        wall, cpu = (median(how, what) / base[what] for what in ("wall", "cpu"))
        line = f"{'':12}   {how:9} wall {bound}{wall:5.2f}x  cpu {bound}{cpu:5.2f}x"
        if how in ("ours", "launched"):
            run = runs[how][-1]
            ns = (median(how, "cpu") - base["cpu"]) / max(run.events, 1) * 1e9
            line += f"  {run.events / 1e6:.2f} M events, "
            line += f"{run.log_bytes / max(run.events, 1):.1f} bytes and {ns:.0f} ns each"
        if how == "launched":
            line += f", launcher {median(how, 'launcher'):.2f} s"
        print(line, flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("workloads", nargs="*", metavar="WORKLOAD", help=", ".join(WORKLOADS))
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--logs", type=Path, help="where the recorders write; default: aside")
    parser.add_argument("--sites", action="store_true", help="ours with call sites")
    parser.add_argument("--mtrace-seconds", type=float, default=30, help="0: no mtrace")
    parser.add_argument("--no-heaptrack", action="store_true")
    options = parser.parse_args()
    if unknown := set(options.workloads) - set(WORKLOADS):
        parser.error(f"no workload {', '.join(sorted(unknown))}")
    with tempfile.TemporaryDirectory(prefix="pyallocx-cost-") as name:
        folder = Path(name)
        logs = (options.logs or folder) / "logs"
        bench = Bench(folder, logs, options.sites, options.mtrace_seconds)
        for key in options.workloads or WORKLOADS:
            work = WORKLOADS[key]
            work.prepare(folder)
            if not shutil.which(work.program) and not (folder / work.program).exists():
                print(f"{key:12} not installed")
                continue
            ways = ["alone", "ours", "launched"]
            ways += ["heaptrack"] if bench.heaptrack and not options.no_heaptrack else []
            ways += ["mtrace"] if bench.has_mtrace and options.mtrace_seconds else []
            runs: dict[str, list[Run]] = {way: [] for way in ways}
            for k in range(options.runs):
                for way in ways:
                    if way == "mtrace" and k and runs[way][0].wall > 5 * runs["alone"][0].wall:
                        continue  # once will do
                    runs[way].append(bench.run(work, way))
            report(key, runs)


if __name__ == "__main__":
    sys.exit(main())
