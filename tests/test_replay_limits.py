"""Long work: how it stops, and what memory it takes."""

import json
import os
import signal
import subprocess
import sys
import textwrap
import time

import pytest

import pyallocx as px


def run(script, *args, **kwargs):
    return subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(script), *map(str, args)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        **kwargs,
    )


@pytest.mark.slow
def test_ctrl_c_stops_a_running_sweep_within_a_second(tmp_path):
    process = run(
        """
        import sys, time, pyallocx as px
        trace = px.synthesize(8_000_000, seed=1)
        print("ready", flush=True)
        try:
            # Thousands of passes: minutes of work.
            px.sweep(px.Arena, trace, policy="age", idle_operations=range(3000))
        except KeyboardInterrupt:
            print(time.time(), flush=True)
            raise
        """
    )
    try:
        assert process.stdout.readline() == "ready\n"
        time.sleep(1.0)
        sent = time.time()
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=30)
    finally:
        process.kill()
    assert float(out) - sent < 1.0
    assert "KeyboardInterrupt" in err
    assert process.returncode in (1, 130, -signal.SIGINT)


@pytest.mark.slow
@pytest.mark.skipif(not os.path.exists("/proc/self/status"), reason="needs Linux's /proc")
def test_a_mapped_trace_is_not_copied(tmp_path):
    """A replay needs a word per live object; dead ones are given back, the columns stay mapped."""
    trace = px.synthesize(6_000_000, seed=1)
    objects = trace.n_objects
    path = tmp_path / "trace.npz"
    trace.save(path, compress=False)
    columns = path.stat().st_size
    process = run(
        """
        import json, sys, numpy as np, pyallocx as px

        def anonymous():
            with open("/proc/self/status") as status:
                lines = dict(line.split(":", 1) for line in status)
            return int(lines["RssAnon"].split()[0]) * 1024, int(lines["RssFile"].split()[0]) * 1024

        before, _ = anonymous()
        trace = px.load(sys.argv[1])
        loaded, _ = anonymous()
        replay = px.arena._start(trace, {p.name: p.default for p in px.arena.PARAMETERS}, [0, 2048])
        replay.step(len(trace))
        replayed, mapped = anonymous()
        rows = px.sweep(px.Arena, trace, progress=False).to_dicts()
        print(json.dumps([loaded - before, replayed - loaded, mapped, len(rows)]))
        """,
        path,
    )
    out, err = process.communicate(timeout=120)
    assert process.returncode == 0, err
    load_bytes, replay_bytes, mapped_bytes, rows = json.loads(out)
    assert rows == 12
    assert mapped_bytes > 0.7 * columns
    # Validation needs a bit per object; the rest is slack for the interpreter.
    assert load_bytes < objects / 8 + (8 << 20)
    # 3 million objects, of which few thousand live at a time, would be 12 MB of words.
    assert replay_bytes < (4 << 20) < 4 * objects / 2
