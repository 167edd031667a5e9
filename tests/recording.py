"""Programs for the recorder's tests, and how to record them by the environment alone."""

from __future__ import annotations

import atexit
import functools
import os
import shutil
import subprocess
import tempfile
from pathlib import Path

import pytest
import rawlog_model

from pyallocx import preload

PROGRAMS = Path(__file__).resolve().parent / "programs"


@functools.cache
def library() -> Path:
    """The recorder, or no test."""
    try:
        return preload.library_path()
    except FileNotFoundError as error:
        pytest.skip(str(error))


@functools.cache
def built() -> Path:
    """The directory that programs are built into, once for a run of the tests; it goes with it."""
    folder = tempfile.mkdtemp(prefix="pyallocx-programs-")
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return Path(folder)


@functools.cache
def program(source: str, *flags: str, name: str = "") -> Path:
    """Compile one of the programs."""
    compiler = shutil.which("c++" if source.endswith(".cpp") else "cc")
    if not compiler:
        pytest.skip("no compiler")
    target = built() / (name or Path(source).stem)
    command = [compiler, "-O1", "-g", "-fno-builtin", "-pthread", "-w", PROGRAMS / source, *flags]
    subprocess.run([*command, "-o", target, "-ldl"], check=True)
    return target


def environment(
    folder: Path, flags: int = 0, parent: int = 0, max_bytes: int = 0, preload_too: str = ""
) -> dict[str, str]:
    """What the launcher would set."""
    return {
        **os.environ,
        "LD_PRELOAD": f"{library()}:{preload_too}" if preload_too else str(library()),
        "PYALLOCX_RECORD_DIR": str(folder),
        "PYALLOCX_RECORD_FLAGS": str(flags),
        "PYALLOCX_RECORD_PARENT": str(parent),
        "PYALLOCX_RECORD_MAX_BYTES": str(max_bytes),
    }


def run(
    folder: Path, *command: str | Path, status: int = 0, **settings: object
) -> tuple[str, list[rawlog_model.Log]]:
    """Record a command; return its output and its logs in the order of their start."""
    folder.mkdir(exist_ok=True)
    folder.chmod(0o777)
    done = subprocess.run(
        [str(word) for word in command],
        env=environment(folder, **settings),  # type: ignore[arg-type]
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.stderr == ""
    assert done.returncode == status, done
    return done.stdout, logs(folder)


def logs(folder: Path) -> list[rawlog_model.Log]:
    """All logs of a directory, in the order of their start; without the empty ones."""
    found = [rawlog_model.read(path) for path in folder.glob("*.axlog") if path.stat().st_size]
    return sorted(found, key=lambda log: (log.header.stamp0, log.path.name))


def flawless(log: rawlog_model.Log, skipped: bool = False) -> rawlog_model.Judgement:
    """Judge a whole log of a process that began with an exec: nothing in it is impossible."""
    found = rawlog_model.judge(log.merged())
    assert found.allocs_of_live == []
    assert found.unknown_frees == []
    assert skipped or log.skipped_granules == 0
    return found


def pairs(log: rawlog_model.Log) -> tuple[int, int]:
    """How often malloc and free are in a log."""
    return log.count(rawlog_model.MALLOC), log.count(rawlog_model.FREE)
