# ---
# jupyter:
#   jupytext:
#     text_representation:
#       extension: .py
#       format_name: percent
#   kernelspec:
#     display_name: Python 3
#     language: python
#     name: python3
# ---

# %% [markdown]
# # What does a real program ask of its allocator?
#
# One run of one ordinary program, recorded with one call. Then all three questions of this library, asked of the same recording: what a retention threshold is worth to its arenas, which size classes fit it, and what larger
# chunks save its just-in-time compiler. Nothing is prepared: the program is node, as it is installed, with a script of a few lines. Where node is not installed, it is Python, without the third question. Every number is computed here.

# %%
import os
import shutil
import sys
import tempfile
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd

import pyallocx as px

BLUE, ORANGE, GREY = "#0072B2", "#D55E00", "#999999"
plt.rcParams |= {"axes.spines.top": False, "axes.spines.right": False, "axes.axisbelow": True}

SCRIPT = """
const { createHash } = require("crypto"), { deflateSync } = require("zlib");
const words = Array.from({ length: 20000 }, (_, i) => "w" + (i * 48271 % 7919).toString(36));
const count = new Map();
for (const word of words) count.set(word, (count.get(word) || 0) + 1);
const rows = [...count].map(([word, n]) => ({ word, n }));
// Three hundred functions of their own, each called until it is worth compiling.
const rules = Array.from({ length: 300 }, (_, i) =>
  new Function("row", `let s = ${i}; for (const c of row.word) s = (s * ${i + 2} + c.charCodeAt(0)) % ${7919 + i};
                       return s % ${i + 3} === 0 ? row.n : 0;`));
for (let pass = 0; pass < 4; pass++)
  for (const rule of rules) { let hits = 0; for (const row of rows.slice(0, 1500)) hits += rule(row); }
for (let i = 0; i < 40; i++) deflateSync(JSON.stringify(rows.slice(0, 500)));
createHash("sha256").update(words.join(" ")).digest("hex");
"""
FALLBACK = """
import json
rows = [{"id": i, "name": "n%d" % i, "tags": ["a", "b", str(i % 7)]} for i in range(20000)]
assert json.loads(json.dumps(rows)) == rows
"""

# %% [markdown]
# ## Record

# %%
with tempfile.TemporaryDirectory() as directory:
    script = Path(directory, "words.js" if shutil.which("node") else "rows.py")
    if shutil.which("node"):
        script.write_text(SCRIPT)
        run = px.record_run(["node", str(script)], sites=True, maps=True, jit=True)
    else:
        script.write_text(FALLBACK)
        env = {**os.environ, "PYTHONMALLOC": "malloc"}
        run = px.record_run([sys.executable, str(script)], env=env, sites=True, maps=True)
    trace = run.trace
    bytes_per_event = {}
    for compress in (False, True):
        file = Path(directory, "trace.npz")
        trace.save(file, compress=compress)
        bytes_per_event[compress] = file.stat().st_size / len(trace)
trace

# %% [markdown]
# In a shell: `pyallocx record -o words.npz --sites --maps --jit -- node words.js`. The recording has every call of malloc and its kin, in an order that is right across threads, with time, thread, alignment, the function that was
# called and the place that called it; beside them the calls that failed, what `malloc_usable_size` was asked, when each realloc began, and the mappings.

# %%
summary = trace.summary()
print(
    f"{len(trace):,} events of {summary['threads']} threads in {summary['duration_ns'] / 1e9:.2f} s"
)
print(f"{summary['cross_thread_frees']:,} frees by another thread than gave the object its memory")
beside = ", ".join(f"{len(aside['event']):,} {name}" for name, aside in trace.asides.items())
print(f"beside the events: {beside}")
print(f"on disk {bytes_per_event[True]:.2f} bytes an event, {bytes_per_event[False]:.1f} unpacked")

# %% [markdown]
# ## Look
#
# What lives over the run, what is asked for, and how long it lives. Lifetimes are counted in allocated bytes: an object dies *within 4 KiB* if the program allocates less than that between its birth and its death.

# %%
px.plot_trace(trace)

# %%
lifetimes = trace.lifetimes()
within = [1024, 65536, 1 << 20]
print("die within:", ", ".join(f"{w // 1024:,} KiB {lifetimes.died_within(w):.0%}" for w in within))

# %% [markdown]
# Who asks? The call sites, by requests. What a site asks for mostly has one size, and mostly dies young: that is why a site can stand for a type.

# %%
made = trace.op == px.OP_ALLOC
sites, requests = np.unique(trace.key[made], return_counts=True)
top = sites[np.argsort(-requests)[:10]]
names = trace.metadata["key_names"]
rows = {}
for site in top:
    sizes, counts = np.unique(trace.size_bytes[made & (trace.key == site)], return_counts=True)
    rows[names[site][:60]] = {
        "requests": f"{counts.sum():,}",
        "different sizes": len(sizes),
        "most common": f"{sizes[counts.argmax()]} B ({counts.max() / counts.sum():.0%})",
    }
pd.DataFrame(rows).T

# %% [markdown]
# ## 1. What is a retention threshold worth?
#
# The question of [notebook 01](01-arena-retention.ipynb): a free list that has just run empty may keep its buffer. Two programs in one here: objects of one *site* share a list, or objects of one *size* do.

# %%
columns = {name: column for name, column in trace.columns().items() if name != "key"}
THRESHOLDS = [0, 16, 32, 64, 128, 256, 512, 1024, 2048, float("inf")]
by_site = px.sweep(px.Arena, trace, retain_bytes=THRESHOLDS)
by_size = px.sweep(px.Arena, px.Trace(**columns), retain_bytes=THRESHOLDS)

fig, ax = plt.subplots(figsize=(8, 4), layout="constrained")
for sweep, label, colour in (
    (by_site, "a list per call site", BLUE),
    (by_size, "a list per size", ORANGE),
):
    waste = [row["overhead_bytes_mean"] / 1024 for row in sweep]
    calls = [row["list_calls"] for row in sweep]
    ax.plot(waste, calls, "o-", color=colour, label=label)
    for row, x, y in zip(sweep, waste, calls):
        if row["retain_bytes"] in (0, 64, 2048):
            ax.annotate(
                f"{row['retain_bytes']:.0f} B",
                (x, y),
                (6, 6),
                textcoords="offset points",
                color=colour,
            )
ax.set(
    xlabel="unused capacity of the lists, mean, KiB",
    ylabel="malloc, realloc and free calls of the lists",
    yscale="log",
)
ax.yaxis.set_major_formatter("{x:,.0f}")
ax.margins(x=0.1)
ax.grid(alpha=0.3)
ax.legend(frameon=False)
plt.show()

# %%
for sweep, label in ((by_site, "site"), (by_size, "size")):
    rows = {row["retain_bytes"]: row for row in sweep}
    none, kept = rows[0], rows[2048]
    more = (kept["overhead_bytes_mean"] - none["overhead_bytes_mean"]) / 1024
    saved = 1 - kept["list_calls"] / none["list_calls"]
    print(
        f"a list per {label}: 2048 bytes save {saved:.1%} of {none['list_calls']:,} calls for {more:.1f} KiB"
    )

# %% [markdown]
# ## 2. Which size classes fit?
#
# The question of [notebook 03](03-size-classes.ipynb), with its definition of waste: what a class has beyond the request, in percent of the bytes requested, up to 64 KiB. The best table of 32 classes, and what allocators ship.

# %%
LIMIT = 65536
profile = trace.profile("count").below(LIMIT)
fitted = px.fit(profile, 32, largest_bytes=LIMIT, page_cap=None)
PRESETS = ["glibc", "go", "google-tcmalloc", "jemalloc", "mimalloc", "scudo-android64-19"]
league = px.league([profile], PRESETS, tables={"fitted": fitted.to_map()}, limit_bytes=LIMIT)
rows = sorted(league.rows, key=lambda row: -row.percents[0])
percent = {f"{row.name} ({row.classes:,})": row.percents[0] for row in rows}

fig, ax = plt.subplots(figsize=(8, 3), layout="constrained")
bars = ax.barh(
    list(percent), list(percent.values()), color=[BLUE if "fitted" in n else GREY for n in percent]
)
ax.bar_label(bars, fmt="%.1f %%", padding=4)
ax.set(xlabel="wasted, in % of the requested bytes (in brackets: classes up to 64 KiB)")
ax.margins(x=0.12)
plt.show()

# %%
print(f"classes: {' '.join(map(str, fitted.classes))}")
print(f"proof: gap {fitted.gap:.2g} bytes to the lower bound")

# %% [markdown]
# The fitted table was made from this run and is judged on this run: the least that 32 classes can waste here. What it is worth on another program is the subject of notebook 03, section by section; `px.cross_validate` tells.

# %% [markdown]
# ## 3. What do larger chunks save the compiler?
#
# The question of [notebook 02](02-code-chunks.ipynb), of the code that V8 compiled in this very run.

# %%
if run.code is None:
    print("No node here, so no code.")
else:
    grid = {"chunk_bytes": [4096, 16384, 65536, 1 << 18, 1 << 20], "byte_limit": 4096}
    chunks = px.sweep(px.CodeHeap, run.code, policy=["byte_limit", "segregated"], **grid)
    fig, axes = plt.subplots(1, 2, figsize=(8, 3.2), layout="constrained")
    for policy, colour in (("byte_limit", ORANGE), ("segregated", BLUE)):
        rows = [row for row in chunks if row["policy"] == policy]
        x = [row["chunk_bytes"] / 1024 for row in rows]
        for ax, column in zip(axes, ("chunk_maps", "protect_calls")):
            ax.plot(x, [row[column] for row in rows], "o-", color=colour, label=policy)
            ax.set(
                xscale="log",
                xlabel="chunk size in KiB",
                ylabel=column.replace("_", " "),
                xticks=x,
            )
            ax.minorticks_off()
            ax.grid(visible=True, alpha=0.3)
    for ax in axes:
        ax.set_ylim(0)
        ax.xaxis.set_major_formatter("{x:,.0f}")
    axes[0].legend(frameon=False)
    plt.show()
    least, most = (
        next(r for r in chunks if r["policy"] == "segregated" and r["chunk_bytes"] == c)
        for c in (4096, 1 << 20)
    )
    print(
        f"{run.code.summary()['allocs']:,} compiled pieces of code, {run.code.summary()['allocated_bytes'] / 1024:,.0f} KiB"
    )
    for column in ("chunk_maps", "protect_calls", "pages_flipped"):
        print(
            f"{column}, segregated: {least[column]:,} with chunks of 4 KiB, {most[column]:,} with 1 MiB"
        )

# %% [markdown]
# V8 itself asked the system for its memory meanwhile; that is the aside `maps`, and `px.mappings_trace` makes a trace of the executable part: not the pieces of code, but the ranges that V8 keeps them in.

# %%
mapped = px.mappings_trace(trace, executable=True)
print(
    f"{mapped!r}: executable memory, at most {mapped.summary()['peak_live_bytes'] / 2**20:.1f} MiB at a time"
)
