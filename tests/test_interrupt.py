"""Ctrl-C under slow policies: a replay ends its step by the work done, not by the events."""

import os
import subprocess
import sys
import time

import numpy as np
import pytest

import pyallocx as px
from pyallocx import code

# Small methods that are never unloaded, which these policies search from the first to the last.
SLOW = """import numpy as np, pyallocx as px
n = 300_000
trace = px.Trace(np.zeros(n, "u1"), np.arange(n, dtype="u4"), np.full(n, 100, "u8"))
"""
POLICIES = ("pack", "scan")


def slow_trace(n=300_000):
    return px.Trace(np.zeros(n, "u1"), np.arange(n, dtype="u4"), np.full(n, 100, "u8"))


@pytest.mark.parametrize("policy", POLICIES)
def test_a_step_ends_by_the_work_done(policy):
    trace = slow_trace()
    values = {p.name: p.default for p in code.PARAMETERS} | {"policy": policy}
    replay = code._start(trace, values)
    steps = 0
    left = len(trace)
    while left and steps < 20:
        before, left = left, replay.step(len(trace))
        assert left < before
        steps += 1
    assert steps == 20  # the whole trace in one step before


RUNS = {
    "sweep": "px.sweep(px.CodeHeap, trace, policy='pack', chunk_bytes=[65536, 131072])",
    "replay": "px.replay_code(trace, policy='pack')",
    "cli": "trace.save('slow.npz'); "
    "print('go', flush=True); "
    "raise SystemExit(px.cli.main(['sweep', 'code', 'slow.npz', '--policy', 'pack', "
    "'--chunk-bytes', '65536,131072']))",
}


@pytest.mark.parametrize("run", list(RUNS))
def test_ctrl_c_is_heard_within_a_second(tmp_path, run):
    program = f"{SLOW}import pyallocx.cli\nprint('go', flush=True)\n{RUNS[run]}\n"
    process = subprocess.Popen(
        [sys.executable, "-c", program],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        cwd=tmp_path,
        env=os.environ | {"PYTHONUNBUFFERED": "1"},
    )
    assert process.stdout is not None
    for _ in range(2 if run == "cli" else 1):
        assert process.stdout.readline() == b"go\n"
    time.sleep(1.5)
    assert process.poll() is None
    started = time.monotonic()
    process.send_signal(2)
    out, err = process.communicate(timeout=60)
    # A second, and what a busy machine adds; without the bound on work it is ten and more.
    assert time.monotonic() - started < 4, (out, err)
    assert process.returncode in ((130,) if run == "cli" else (1, -2, 130)), err
