"""Record the traces that the package ships, again and from nothing.

    python benchmarks/record_shipped.py [--output DIRECTORY] [NAME ...]

Each runs a small workload (``benchmarks/workloads``) in a program of the system, under glibc's
mtrace, started by a preload library (``csrc/preload/mtrace_start.c``). Needs Linux with glibc 2.34
or later, a C compiler, and the programs. The reader is strict: a recording with a free of an
unknown object, say from before the start, is an error and not a shipped trace.

Of the columns, `object` is most of a file (72 % of `python3`'s, 86 % of `sqlite3`'s):
ids of frees hardly compress. The others cost next to nothing, so nothing is left out.
"""

from __future__ import annotations

import argparse
import datetime
import os
import platform
import shutil
import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path

import pyallocx as px

ROOT = Path(__file__).resolve().parent.parent
# The system's programs, not those of a virtual environment or a version manager.
SYSTEM_PATH = "/usr/bin:/bin"


@dataclass(frozen=True)
class Workload:
    """A program and what it is given to do."""

    program: str
    arguments: tuple[str, ...]
    script: str  # in benchmarks/workloads, and the program's working directory
    stdin: bool  # read the script from standard input
    environment: tuple[tuple[str, str], ...] = ()

    @property
    def command(self) -> str:
        """What one would type in a shell."""
        words = [f"{name}={value}" for name, value in self.environment]
        words += [self.program, *self.arguments]
        return " ".join([*words, "<", self.script] if self.stdin else [*words, self.script])


WORKLOADS = {
    # Without its own small-object allocator CPython asks malloc for every object; without the site
    # module and bytecode files the run does not depend on what is installed.
    "python3": Workload(
        "python3",
        ("-B", "-s", "-S"),
        "python3.py",
        False,
        (("PYTHONMALLOC", "malloc"), ("PYTHONHASHSEED", "0")),
    ),
    "sqlite3": Workload("sqlite3", ("-batch", ":memory:"), "sqlite3.sql", True),
}


def compile_preload(directory: Path) -> Path:
    library = directory / "mtrace_start.so"
    source = ROOT / "csrc" / "preload" / "mtrace_start.c"
    compiler = os.environ.get("CC", "cc")
    subprocess.run([compiler, "-shared", "-fPIC", "-O2", "-o", library, source], check=True)
    return library


def record(workload: Workload, preload: Path, directory: Path) -> Path:
    """Run the workload in `directory` and return the mtrace file."""
    program = shutil.which(workload.program, path=SYSTEM_PATH)
    if program is None:
        raise SystemExit(f"{workload.program} is not in {SYSTEM_PATH}")
    script = shutil.copy(ROOT / "benchmarks" / "workloads" / workload.script, directory)
    output = directory / "mtrace.txt"
    command = [program, *workload.arguments]
    if not workload.stdin:
        command.append(workload.script)
    with open(script if workload.stdin else os.devnull, "rb") as stdin:
        subprocess.run(
            command,
            stdin=stdin,
            stdout=subprocess.DEVNULL,
            cwd=directory,
            check=True,
            # Nothing of this user's environment: it would be in the allocations.
            env={
                "PATH": SYSTEM_PATH,
                "HOME": str(directory),
                "LC_ALL": "C.UTF-8",
                "LD_PRELOAD": f"libc_malloc_debug.so.0:{preload}",
                "MALLOC_TRACE": str(output),
                **dict(workload.environment),
            },
        )
    if not output.exists():
        raise SystemExit("mtrace wrote no file: is this glibc 2.34 or later?")
    return output


def version(program: str) -> str:
    path = shutil.which(program, path=SYSTEM_PATH)
    answer = subprocess.run([path or program, "--version"], capture_output=True, check=True)
    # "Python 3.11.2", "3.40.1 2022-12-28 ..."
    return answer.stdout.decode().removeprefix("Python ").split()[0]


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"any of {', '.join(WORKLOADS)}")
    parser.add_argument("--output", type=Path, default=ROOT / "pyallocx" / "data")
    arguments = parser.parse_args()
    unknown = sorted(set(arguments.names) - set(WORKLOADS))
    if unknown:
        parser.error(f"NAME must be one of {', '.join(WORKLOADS)}, got {', '.join(unknown)}")

    for name in arguments.names or WORKLOADS:
        workload = WORKLOADS[name]
        with tempfile.TemporaryDirectory() as temporary:
            directory = Path(temporary)
            trace = px.load(record(workload, compile_preload(directory), directory))
        shipped = px.Trace(
            op=trace.op,
            object=trace.object,
            size_bytes=trace.size_bytes,
            metadata={
                "program": workload.program,
                "version": version(workload.program),
                "command": workload.command,
                "workload": f"benchmarks/workloads/{workload.script}",
                "machine": platform.machine(),
                "libc": os.confstr("CS_GNU_LIBC_VERSION"),
                "recorder": "glibc mtrace, started by csrc/preload/mtrace_start.c",
                "recorded": datetime.date.today().isoformat(),
                "dropped": trace.metadata.get("dropped", {}),  # none, as the reader is strict
            },
        )
        path = arguments.output / f"{name}.npz"
        shipped.save(path, compress=True)
        print(f"{path.name}: {len(shipped)} events, {path.stat().st_size} bytes")


if __name__ == "__main__":
    main()
