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
# # What do larger chunks cost a JIT, and what do they save?
#
# A just-in-time compiler asks the system for executable memory in chunks, writes methods into them, and flips a chunk between
# writable and executable around each method. In 2010 nanojit's allocator asked for one page at a time on ARM, and somebody wanted 64 KiB or 1 MiB
# ([Mozilla bug 601724](https://bugzilla.mozilla.org/show_bug.cgi?id=601724)). A limit on the block that one call returns (the *byte limit*) was to keep
# pieces small for ARM's instruction set. Comment 7 warned: then the whole chunk flips for each method. Nobody counted. Comments 17 and 18 doubted the
# arithmetic of the split. Nobody checked.
#
# Here both are done, and then the designs of that bug are put beside those of today. Every number is computed here.

# %%
import math
import os
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from IPython.display import display

import pyallocx as px
from pyallocx.code import CODE_POLICIES, HISTORICAL
from pyallocx.synth import LogNormal

KIB, MIB = 1024, 1 << 20
CHUNKS = [4 * KIB, 64 * KIB, MIB, 2 * MIB]
NAMES = ["4 KiB", "64 KiB", "1 MiB", "2 MiB"]

# Real code, if it is here: set PYALLOCX_SHARED_DATA to the directory with jit/*. Otherwise only made-up methods.
shared = Path(os.environ.get("PYALLOCX_SHARED_DATA") or "../../shared/data") / "jit"
REAL = {"V8": "node20-log-code.v8.log.gz", "HotSpot": "hotspot17-jvmti.csv"}
traces = {name: px.load(shared / file) for name, file in REAL.items() if (shared / file).is_file()}
if len(traces) < len(REAL):
    print("The logs of V8 and HotSpot are not here, so what follows is about made-up methods only.")
traces["synthetic"] = px.synthesize_code(2000)
pd.DataFrame(
    {
        name: {
            "methods": trace.n_objects,
            "bytes of code": int(trace.size_bytes.sum()),
            "median bytes": int(np.median(trace.size_bytes[trace.op == px.OP_ALLOC])),
            "unloaded": int((trace.op == px.OP_FREE).sum()),
        }
        for name, trace in traces.items()
    }
).T

# %% [markdown]
# HotSpot's trace has every load and unload as the JVM reported them. V8 logs no deaths; they are inferred from later code at the same address, and most of
# them only from the end of the run. In the made-up trace each method is two pieces, main code and exits, and half of them are unloaded.
#
# ## 1. The trade of comment 7
#
# First a check against another program: an independent model of 2,000 methods that are never unloaded counted the figures in the upper rows below, for the
# layout of 32-bit ARM. With methods of the same kind, but other random numbers, we should get nearly the same.

# %%
model = pd.DataFrame(
    {"chunk maps": [659, 41, 3], "flips": [4555, 4037, 4001], "pages per method": [2.3, 32.3, 512]},
    index=NAMES[:3],
)
like_it = px.synthesize_code(
    2000,
    sizes=LogNormal(median_bytes=700, sigma=1.1, max_bytes=64 * KIB),
    exit_sizes=None,
    unload_fraction=0,
)
ARM = {"policy": "byte_limit", "header_bytes": 20, "pointer_bytes": 4}
rows = [
    px.replay_code(like_it, **ARM, chunk_bytes=size, byte_limit=0 if size == 4 * KIB else 4096).row
    for size in CHUNKS[:3]
]
ours = pd.DataFrame(
    {
        "chunk maps": [row["chunk_maps"] for row in rows],
        "flips": [row["flips_to_write"] + row["flips_to_exec"] for row in rows],
        "pages per method": [round(row["pages_flipped_per_method"], 1) for row in rows],
    },
    index=NAMES[:3],
)
assert (abs(ours / model - 1) < 0.03).all(axis=None)
pd.concat({"independent model": model, "replayed here": ours})

# %% [markdown]
# They agree to 3 %. Now the traces, with a byte limit of 4096 and 64-bit headers.

# %%
trade = {}
for name, trace in traces.items():
    table = px.sweep(px.CodeHeap, trace, policy="byte_limit", byte_limit=4096, chunk_bytes=CHUNKS)
    maps = table["chunk_maps"]
    flips = table["flips_to_write"] + table["flips_to_exec"]
    trade[name] = pd.DataFrame(
        {
            "maps": maps,
            "fewer maps": [f"{maps[0] / n:.0f} x" for n in maps],
            "flips": flips,
            "flips, change": [f"{n / flips[0] - 1:+.0%}" for n in flips],
            "pages per method": table["pages_flipped_per_method"].round(1),
            "mapped, not code, mean [KiB]": (table["wastage_bytes_mean"] / KIB).round().astype(int),
        },
        index=NAMES,
    )
    assert 15 <= maps[0] / maps[1] <= 17
    assert 170 <= maps[0] / maps[2] <= 220
    pages = table["pages_flipped_per_method"] / table["pages_flipped_per_method"][0]
    assert 11 <= pages[1] <= 16
    assert 180 <= pages[2] <= 230
    assert (table["protect_calls"] == flips).all()
    assert 1.7 * len(trace.op[trace.op == px.OP_ALLOC]) < flips.min()
    # The limit itself changes nothing here: what is left of a block goes back in any case.
    free = px.sweep(px.CodeHeap, trace, policy="whole_block", chunk_bytes=CHUNKS)
    assert np.allclose(free["system_calls"], table["system_calls"], rtol=0.01)
pd.concat(trade)

# %%
fig, axes = plt.subplots(
    1, len(traces), figsize=(5 * len(traces), 4), layout="constrained", sharey=True
)
for ax, (name, trace) in zip(np.atleast_1d(axes), traces.items()):
    fine = px.sweep(
        px.CodeHeap,
        trace,
        policy="byte_limit",
        byte_limit=4096,
        chunk_bytes=[4 * KIB, 16 * KIB, 64 * KIB, 256 * KIB, MIB, 2 * MIB],
    )
    fine.plot_against(
        "chunk_bytes",
        "pages_flipped",
        "protect_calls",
        "chunk_maps",
        ax=ax,
        title=f"{name}: {fine['methods'][0]:,} methods",
    )

# %% [markdown]
# **The warning was right.** 64 KiB need 16 times fewer maps, 1 MiB about 200 times. But maps were never the expensive part: all along there are about two flips
# per method, which larger chunks hardly change. Each of them covers the whole chunk: from 2 to 3 pages per method to at least 32, 512, 1023. What made the flips cheap is what made the maps frequent.
# The byte limit has no part in it: `whole_block`, which has none, needs the same calls to 1 %.
#
# Where flips *do* fall (V8, from 4 KiB to 64 KiB), methods had been larger than a page and spanned several chunks.
#
# ## 2. Is the arithmetic right?
#
# A free block with a payload of $S$ bytes is cut if $S$ is above the limit $L$. Header $H$, smallest payload $M$. Three ways to cut, as Python:


# %%
def cut(policy, H, M, L, S):
    """Payloads of the returned block and of the rest."""
    taken = H + L  # header included
    if policy == "byte_limit":  # what landed
        taken = H + L if S >= L + 2 * H + M else H + M
    elif taken + M > S:  # the patch under review in comment 17
        taken //= 2  # half, as the rest would be too small
        if policy == "halving_payload":  # the same, as its reviewer reads it: half is payload
            taken += H
    return taken - H, S - taken


def wrong(policy, H, M, L, word=1):
    """The smallest S, in steps of a word, at which a piece is below M or the returned one above L."""
    for S in range(L + word, L + 2 * H + 2 * M + 2, word):
        got, rest = cut(policy, H, M, L, S)
        if not M <= got <= L or rest < M:
            return S
    return None


BOUND = {
    "byte_limit": ("H + 2M - 1", lambda H, M: H + 2 * M - 1),
    "halving": ("H + 2M", lambda H, M: H + 2 * M),
    "halving_payload": ("3H + 2M - 3", lambda H, M: 3 * H + 2 * M - 3),
}
PAIRS = [(H, M) for H in range(1, 25) for M in range(1, 25)] + [
    (20, 32),
    (40, 32),
    (20, 36),
    (20, 200),
]
lines = []
for policy, (text, bound) in BOUND.items():
    for H, M in PAIRS:
        failing = [L for L in range(M, bound(H, M) + 2 * (H + M)) if wrong(policy, H, M, L)]
        assert max(failing) == bound(H, M) - 1  # right from the bound on, wrong just below it
    L = bound(20, 32) - 1
    S = wrong(policy, 20, 32, L)
    in_words = [L for L in range(32, 140, 4) if wrong(policy, 20, 32, L, word=4)]
    lines.append(
        [text, bound(20, 32), bound(40, 32), L, S, *cut(policy, 20, 32, L, S), max(in_words)]
    )
# The assertion that landed with byte_limit, L > 2(H + M), is enough for it; not for halving_payload.
landed = 2 * (20 + 32) + 1
assert BOUND["byte_limit"][1](20, 32) <= landed < BOUND["halving_payload"][1](20, 32)
pd.DataFrame(
    lines,
    index=list(BOUND),
    columns=[
        "right from L =",
        "H 20, M 32",
        "H 40, M 32",
        "wrong at L",
        "with S",
        "returned",
        "rest",
        "wrong at L, in words",
    ],
)

# %% [markdown]
# The bounds are exact for all 576 pairs of $H$ and $M$ up to 24, and for four real ones. No cut of one block into two of at least $M$ can do with less than
# $L = H + 2M - 1$, so what landed is as good as it can be; the halving that was reviewed needs one byte more, and in its reviewer's reading $2(H - 1)$ more.
#
# Now the allocator itself. One-byte methods that keep their blocks whole make it cut a chunk from top to bottom; every chunk up to 10 KiB in steps of 64 bytes is tried.

# %%
whole = px.synthesize_code(600, sizes=1, exit_sizes=None, unload_fraction=0)
counts = [whole.head(n) for n in range(len(whole) + 1)]
SMALL = {"page_bytes": 64, "pointer_bytes": 4, "jump_bytes": 0, "min_hole": "4H+3M"}


def hunt(policy, H, M, L, chunks=range(64, 10 * KIB, 64)):
    """The first chunk that the core cuts into blocks smaller than M, and its blocks."""
    for size in chunks:
        if size < 2 * H + M:
            continue
        replay = px.replay_code(
            counts[min(600, 2 * size // (2 * H + L) + 2)],
            policy=policy,
            header_bytes=H,
            min_payload_bytes=M,
            byte_limit=L,
            chunk_bytes=size,
            on_corruption="keep",
            **SMALL,
        )
        blocks = [block for block in replay.blocks if block["chunk"] == 0]
        if min(block["payload_bytes"] for block in blocks) < M:
            return {"blocks": blocks, "broken": replay.broken}
    return None


smallest, largest, shown = [], [], {}
for policy, (_, bound) in BOUND.items():
    order = sorted((H + M + L, H, M, L) for H, M in PAIRS[:576] if H + M < 8 for L in range(M, 12))
    found = next(
        (H, M, L, hit) for _, H, M, L in order if (hit := hunt(policy, H, M, L, range(64, 321, 64)))
    )
    smallest.append((*found[:3], wrong(policy, *found[:3])))
    # Just below the bound the core must fail wherever it can make the one fatal S; at the bound never.
    assert not hunt(policy, 20, 32, bound(20, 32))
    failing = [L for L in range(40, bound(20, 32) + 3) if hunt(policy, 20, 32, L)]
    largest.append(max(failing))
    failing = [L for L in failing if hunt(policy, 20, 32, L, range(64, 385, 64))]
    shown[policy] = hunt(policy, 20, 32, max(failing), range(64, 385, 64)) | {"L": max(failing)}
# The halving has another flaw, which the review does not mention: half of L + H need not be whole words.
halved = px.replay_code(
    px.synthesize_code(2000), **ARM | {"policy": "halving"}, byte_limit=4096, chunk_bytes=64 * KIB
)
odd = [block["offset"] for block in halved.blocks if block["offset"] % 4]
assert len(odd) == 3
display(
    pd.DataFrame(
        {
            "smallest failing (H, M, L, S)": smallest,
            "largest failing L at H 20, M 32": largest,
            "exact": [bound(20, 32) - 1 for _, bound in BOUND.values()],
        },
        index=list(BOUND),
    )
)

# %% [markdown]
# The smallest failing case of each is the smallest there is: header, payload and limit of one byte. At 20 and 32 the core's largest failing limits are the
# exact ones or one below: the one fatal $S$ is odd there, and a chunk of 64-byte pages with even pieces never leaves an odd rest. With all sizes in words of 4 bytes, as
# they were in nanojit, the last failing limits are lower still. So the flaw was real, narrow, and half hidden by alignment: not what tests of whole programs find.
#
# And one more, which the review does not mention: half of $L + H$ need not be whole words. With nanojit's own parameters on ARM ($H = 20$, $L = 4096$) and 64 KiB, `halving` leaves three headers at addresses that are not
# divisible by 4 in the made-up trace. It takes a block just above the limit.
#
# Broken chunks, the largest failing limit that a chunk of up to 384 bytes shows. Numbers are payloads:

# %%
rows = [
    # The one-byte methods are drawn as if they filled their blocks.
    block | {"chunk": row, "code_bytes": block["payload_bytes"]}
    for row, hit in enumerate(shown.values())
    for block in hit["blocks"]
]
fig, ax = plt.subplots(figsize=(11, 3.2), layout="constrained")
px.chunk_map(rows, ax=ax, title="H = 20, M = 32: each chunk has a piece that is too small")
ax.set_yticks(range(len(shown)), [f"{policy}, L {hit['L']}" for policy, hit in shown.items()])
for block in rows:
    if block["payload_bytes"] < 32:
        middle = block["offset"] + 20 + block["payload_bytes"] / 2
        ax.annotate(
            f"{block['payload_bytes']} < 32",
            (middle, block["chunk"] - 0.42),
            ha="center",
            color="#B00020",
            fontsize=8,
            fontweight="bold",
        )
{policy: hit["broken"] or "used, and lost when it is freed" for policy, hit in shown.items()}

# %% [markdown]
# The second arithmetic is about what a method gives back: it fills its block from the top, and a *hole* at the low end becomes a free block if it is not too small
# (with code below it as well, on ARM, the hole is in the *middle* and costs two headers). The rule was $\max(M, 2H)$; comment 18 says it must be $2H+M$, and $4H+3M$ for the limit; $3H+M$ landed. Which holes does each get wrong?

# %%
RULES = {
    "max(M,2H)": lambda H, M: max(M, 2 * H),
    "H+M": lambda H, M: H + M,
    "2H+M": lambda H, M: 2 * H + M,
    "3H+M": lambda H, M: 3 * H + M,
    "4H+3M": lambda H, M: 4 * H + 3 * M,
}


def spread(holes):
    return f"{min(holes)} to {max(holes)}" if holes else ""


lines = {}
for rule, least in RULES.items():
    line = {}
    for H, M, word in ((20, 32, 4), (40, 32, 8)):
        cut_out = range(least(H, M), 6 * H + 4 * M, word)
        line |= {
            f"H {H}: dead, low": spread([hole for hole in cut_out if hole - H < M]),
            f"H {H}: dead, middle": spread([hole for hole in cut_out if 0 <= hole - 2 * H < M]),
            f"H {H}: overlap, middle": spread([hole for hole in cut_out if hole < 2 * H]),
            f"H {H}: wasted needlessly": spread(range(2 * H + M, least(H, M), word)),
        }
        # The low end, in the core: one method leaves the hole.
        dead = []
        for hole in range(word, 6 * H + 4 * M, word):
            one = px.synthesize_code(
                1, sizes=KIB - 2 * H - hole, exit_sizes=None, unload_fraction=0
            )
            layout = {"header_bytes": H, "min_payload_bytes": M, "chunk_bytes": KIB, **SMALL}
            layout |= {"pointer_bytes": word, "min_hole": rule}
            if px.replay_code(one, policy="whole_block", **layout).row["dead_bytes"]:
                dead.append(hole)
        assert spread(dead) == line[f"H {H}: dead, low"]
    lines[rule] = line
holes = pd.DataFrame(lines).T
# Tight: 2H+M is the first rule without dead blocks or overlaps, at any H and M.
assert all(hole - 2 * H < M for H, M in PAIRS for hole in range(H + M, 2 * H + M))
assert (holes.loc["2H+M"] == "").all()
holes.loc[:, (holes != "").any()]

# %%
# The overlap needs a hole in the middle, which a replay never leaves: these blocks are worked out by hand.
H, M, hole = 40, 32, 72
at = {"chunk_bytes": 512, "header_bytes": H, "chunk": 1, "listed": 0, "dead": 0, "executable": 1}
by_hand = [
    at | {"offset": 0, "payload_bytes": 200, "code_bytes": 200, "free": 0},
    at | {"offset": 240, "payload_bytes": hole - 2 * H, "code_bytes": 0, "free": 1},
    at | {"offset": 240 + hole - H, "payload_bytes": 200, "code_bytes": 200, "free": 0},
]
fig, ax = plt.subplots(figsize=(11, 2.9), layout="constrained")
small = px.replay_code(
    px.synthesize_code(1, sizes=512 - 2 * 20 - 40, exit_sizes=None, unload_fraction=0),
    policy="whole_block", header_bytes=20, min_payload_bytes=32, chunk_bytes=512,
    **SMALL | {"min_hole": "max(M,2H)"},
).blocks  # fmt: skip
px.chunk_map(small + by_hand, ax=ax, title="What the wrong rules leave behind")
ax.set_yticks([0, 1], ["max(M,2H)\nH 20, M 32, hole 40", "H+M\nH 40, M 32, hole 72"])
assert [block["payload_bytes"] for block in small if block["dead"]] == [20]

# %% [markdown]
# **Comment 18 is right about $2H+M$**: it is exactly tight. The old rule loses memory, it does not corrupt it: dead blocks are free, on no list, and come back only when a neighbour
# is freed. $H+M$ corrupts it where headers are larger than the smallest payload. What landed keeps up to one header too much; $4H+3M$ wastes more and was to prevent something that the limit must.
#
# ## 3. Writing into what is executable
#
# The old designs write headers into the chunk when a method is freed, and nobody marks the chunk writable first. nanojit never freed single methods. Who does, as HotSpot and V8, would fault
# under an enforced W^X:

# %%
hazard = {}
for name, trace in traces.items():
    table = px.sweep(
        px.CodeHeap,
        trace,
        [{"policy": list(HISTORICAL)}, {"policy": ["first_fit", "best_fit", "segregated"]}],
        byte_limit=4096,
        chunk_bytes=[4 * KIB, 64 * KIB],
    )
    frees = int((trace.op == px.OP_FREE).sum())
    for row in table.rows():
        hazard.setdefault((name, f"{row['chunk_bytes'] // KIB} KiB"), {"frees": frees})[
            row["policy"]
        ] = row["unmarked_header_writes"]
hazard = pd.DataFrame(hazard).T
assert (hazard[list(HISTORICAL)].min(axis=1) > hazard["frees"]).all()
assert (hazard["frees"] == hazard[["first_fit", "best_fit"]].T).all(axis=None)
assert (hazard["segregated"] == 0).all()
hazard

# %% [markdown]
# More writes than frees: each free writes its own header, and where it unlinks a neighbour the predecessor's on the list, in whatever chunk that is. The default design keeps its headers out of the chunk.
# `first_fit` and `best_fit`, after sljit and HotSpot, have headers in the chunk as well: one write for each free. A live heap (`px.CodeHeap`) writes such a header when the chunk is next opened.
#
# ## 4. Which design wins?
#
# Today's designs are told the size they must hold. Each, and what landed in the bug, with four chunk sizes, keeping all empty chunks or none; memory that is mapped and holds no code, on average over
# the run, against all system calls. Once with flips, and once with two mappings of the same memory (`dual`), where only maps are left. Cells in which `bump` flushed are left out: it threw code away that the program still needed, and compiling that again is not counted. The pictures leave out
# `bump` and `bitmap`, of which more below.

# %%
TODAY = [policy for policy in CODE_POLICIES if policy not in HISTORICAL]
every = {
    (name, wx): px.sweep(
        px.CodeHeap,
        trace,
        policy=[*TODAY, "byte_limit"],
        byte_limit=4096,
        chunk_bytes=CHUNKS,
        keep_bytes=[0, math.inf],
        wx=wx,
    )
    for name, trace in traces.items()
    for wx in ("flip", "dual")
}
for name in traces:
    fig, axes = plt.subplots(1, 2, figsize=(15, 5.4), layout="constrained")
    for ax, wx in zip(axes, ("flip", "dual")):
        table = every[name, wx]
        drawn = ~np.isin(table["policy"], ["bump", "bitmap"]) & (table["keep_bytes"] == math.inf)
        table[drawn].plot(ax=ax, title=f"{name}, {wx}, empty chunks kept")

# %%
lines = []
for (name, wx), table in every.items():
    keeps = table[table["flushes"] == 0]
    points = {}
    for row in keeps.pareto().rows():
        points.setdefault((row["system_calls"], row["wastage_bytes_mean"]), []).append(row)
    for (calls, wasted), rows in points.items():
        lines.append(
            {
                "trace": name,
                "W^X": wx,
                "calls": calls,
                "mapped, not code, mean [KiB]": round(wasted / KIB),
                "chunk [KiB]": " ".join(sorted({f"{row['chunk_bytes'] // KIB}" for row in rows})),
                "empty chunks": " or ".join(
                    sorted({"kept" if row["keep_bytes"] else "given back" for row in rows})
                ),
                "policy": " ".join(dict.fromkeys(row["policy"] for row in rows)),
            }
        )
    fewest = keeps[keeps["system_calls"] == keeps["system_calls"].min()]
    assert "segregated" in fewest["policy"]
    methods = table["methods"][0]
    for row in keeps[keeps["policy"] == "segregated"].rows():
        if wx == "dual" and row["keep_bytes"] and row["chunk_bytes"] == 64 * KIB:
            assert row["system_calls"] < methods / 15
    assert (wx == "flip") == (fewest["system_calls"][0] >= 1.9 * methods)
front = pd.DataFrame(lines).set_index(["trace", "W^X"])
assert front.groupby(level=[0, 1])["policy"].sum().str.contains("segregated").all()
front

# %% [markdown]
# `segregated` is on every front, and ends each with the fewest calls; at the end of least waste `byte_limit` beats it on real code, with the smallest chunks and far more calls, as it may spread a method
# over what is left of several chunks; and once, on V8, `first_fit` is ahead. Before believing it, two questions. How much of its lead is only that its headers are kept elsewhere, where "mapped" does not count them? And what does each design
# pay in searching? The rows below are for 64 KiB chunks, given back when empty; `segregated` once more with headers as sljit's and as nanojit's.

# %%
lines, waste = {}, {}
for name, trace in traces.items():
    same = {"chunk_bytes": 64 * KIB, "keep_bytes": 0}
    table = px.sweep(
        px.CodeHeap,
        trace,
        [
            {"policy": [*TODAY, "byte_limit"], "byte_limit": [4096]},
            {"policy": ["segregated"], "header_bytes": [16, 40]},
        ],
        **same,
    )
    for row in table.rows():
        label = row["policy"] + (
            f", {row['header_bytes']:.0f} B headers" if row["header_bytes"] else ""
        )
        lines.setdefault(label, {}).update(
            {
                (name, "not code [KiB]"): f"{row['wastage_bytes_mean'] / KIB:,.0f}",
                (name, "steps"): f"{row['list_scan_steps'] / row['methods']:,.1f}",
                (name, "flushes"): row["flushes"],
            }
        )
        waste.setdefault(label, []).append(row["wastage_bytes_mean"])
        if row["policy"] in ("segregated", "bump"):
            assert row["list_scan_steps"] == 0
        if row["policy"] == "pack":
            assert row["list_scan_steps"] > 100 * row["methods"]
waste = pd.DataFrame(waste, index=list(traces))
assert (waste["segregated"] < waste["first_fit"]).all()
assert (waste["segregated, 16 B headers"] < 1.03 * waste["first_fit"]).all()
assert (waste["segregated, 40 B headers"] > waste["byte_limit"]).all()
pd.DataFrame(lines).T

# %% [markdown]
# **Much of the lead in waste is the headers.** With 16 bytes of header as sljit has, `segregated` wastes a little more than `first_fit` on HotSpot, and less elsewhere; with 40 bytes it wastes more than `byte_limit` on every trace. What it does not lose is time: it looks at no
# block that it does not take, nor does `bump`, while `best_fit` walks its list and `pack`, as modelled, every block from the oldest chunk on, hundreds per method. (Linux's own searches a bitmap, many granules at a time.) `bump` never searches because it never
# reuses; it fits V8 into its 2 MiB only by throwing live code away. `bitmap` is not to be judged by these tables: its chunks double, whatever the chunk size says; asmjit gives all but one empty chunk of each pool back (`keep_chunks=1`), and starts smaller again then.
#
# What the choice looks like: the same run at its end, on what landed in 2011 with all chunks kept, and on the default with empty ones given back.

# %%
name = "HotSpot" if "HotSpot" in traces else "synthetic"
heaps = {
    "byte_limit, empty chunks kept": px.replay_code(
        traces[name], policy="byte_limit", byte_limit=4096
    ),
    "segregated, given back": px.replay_code(traces[name], policy="segregated", keep_bytes=0),
}
assert (
    heaps["segregated, given back"].row["chunks_end"]
    < heaps["byte_limit, empty chunks kept"].row["chunks_end"]
)
px.chunk_map(heaps, title=f"{name}: the heap at the end")
print(px.chunk_map_text(heaps["segregated, given back"]))

# %% [markdown]
# ## Answer
#
# - **Larger chunks save maps and nothing else.** 64 KiB: 16 times fewer; 1 MiB: about 200 times fewer. The flips stay, two per method, and each covers the whole chunk: 12 to 15 times the pages at 64 KiB, about 200 times at 1 MiB.
# - **64 KiB already save 94 % of the maps**; beyond, hardly anything changes but the pages per flip. Who wants larger chunks (for large pages, comment 6) should stop flipping: with two mappings (`dual`) the calls fall from two per
#   method to less than one per fifteen methods.
# - **What landed is right**, for $L \ge H+2M-1$, and nothing can be better. Both readings of the reviewed halving are worse, and it can misalign headers. $2H+M$ is the tight smallest hole.
# - **None of the old designs can free a single method under W^X**: each free writes into executable memory.
# - The default, `segregated`, needs the fewest calls on every trace, and no search. Its lead in waste is that its headers are elsewhere. V8's deaths are inferred, so its waste is the least certain number here.
