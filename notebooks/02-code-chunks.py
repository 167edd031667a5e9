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
# ([Mozilla bug 601724](https://bugzilla.mozilla.org/show_bug.cgi?id=601724)), with a limit on the block that one call returns (the *byte limit*).
# Comment 7 warned: then the whole chunk flips for each method. Nobody counted. Comments 17 and 18 doubted the arithmetic of the split. Nobody checked.
#
# Here both are done, and then the designs of that bug are put beside those of today. Every number is computed here.

# %%
import math
import os
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from matplotlib.ticker import FixedLocator, NullLocator

import pyallocx as px
from pyallocx.code import CODE_POLICIES, HISTORICAL
from pyallocx.synth import LogNormal
from pyallocx.testing import CodeBlocks, find_split_failure, least_limit

pd.set_option("display.max_colwidth", None)
KIB, MIB = 1024, 1 << 20
CHUNKS = [4 * KIB, 64 * KIB, MIB, 2 * MIB]
NAMES = ["4 KiB", "64 KiB", "1 MiB", "2 MiB"]

# Real code, if it is here: set PYALLOCX_SHARED_DATA to the directory with jit/*. Otherwise only made-up methods.
shared = Path(os.environ.get("PYALLOCX_SHARED_DATA") or "../../shared/data") / "jit"
REAL = {"V8": "node20-log-code.v8.log.gz", "HotSpot": "hotspot17-jvmti.csv"}
traces = {name: px.load(shared / file) for name, file in REAL.items() if (shared / file).is_file()}
if len(traces) < len(REAL):
    print("The logs of V8 and HotSpot are not here, so what follows is about made-up methods only.")
traces["made up"] = px.synthesize_code(2000)
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
# HotSpot's trace has every load and unload as the JVM reported them. V8 logs no deaths; they are inferred from later code at the same address, and from pages
# that it gave back during the run. What was alive when the program ended stays alive. In the made-up trace each method is two pieces, main code and exits, and half of them are unloaded.
#
# ## 1. What does a larger chunk cost, and what does it save?

# %%
# Designs that are told the size they must hold: see part 3. (bump flushes code that the program still needs, and bitmap's chunks
# double whatever the chunk size says.)
SIZED = ["segregated", "first_fit", "best_fit", "pack", "buckets"]
trade = {}
for name, trace in traces.items():
    table = px.sweep(px.CodeHeap, trace, policy="byte_limit", byte_limit=4096, chunk_bytes=CHUNKS)
    maps, pages = table["chunk_maps"], table["pages_flipped_per_method"]
    flips = table["flips_to_write"] + table["flips_to_exec"]
    trade[name] = pd.DataFrame(
        {
            "maps": maps,
            "fewer maps": [f"{maps[0] / n:.0f} x" for n in maps],
            "flips": flips,
            "flips, change": [f"{n / flips[0] - 1:+.0%}" for n in flips],
            "flips per method": (flips / table["methods"]).round(2),
            "pages per flip": (table["pages_flipped"] / flips).round(),
            "pages per method": pages.round(1),
            "more pages": [f"{n / pages[0]:.0f} x" for n in pages],
        },
        index=NAMES,
    )
    assert 15 <= maps[0] / maps[1] <= 17
    assert 170 <= maps[0] / maps[2] <= 220
    assert 11 <= pages[1] / pages[0] <= 16
    assert 180 <= pages[2] / pages[0] <= 230
    assert (table["protect_calls"] == flips).all()
    # More than two flips per method with small chunks, two with large ones: less than a third is saved, of maps nearly all.
    assert 2.2 <= flips[0] / table["methods"][0] <= 2.9
    assert 1.99 <= flips[-1] / table["methods"][0] <= 2.02
    assert 0.11 <= 1 - flips[-1] / flips[0] <= 0.3
    assert 1 - maps[-1] / maps[0] >= 0.99
    # Without unloading nearly all of it is saved by 64 KiB, where methods no longer span chunks.
    if name in REAL:
        assert flips[0] - flips[1] >= 0.94 * (flips[0] - flips[-1])
    # Designs with sizes never need more than two.
    sized = px.sweep(px.CodeHeap, trace, policy=SIZED, chunk_bytes=CHUNKS)
    per_method = (sized["flips_to_write"] + sized["flips_to_exec"]) / sized["methods"]
    assert 1.4 <= per_method.min() <= per_method.max() <= 2.001
    # The limit itself changes nothing here: what is left of a block goes back in any case.
    free = px.sweep(px.CodeHeap, trace, policy="whole_block", chunk_bytes=CHUNKS)
    assert np.allclose(free["system_calls"], table["system_calls"], rtol=0.01)

# What larger chunks save beyond 64 KiB they save where code is unloaded: a method is scattered over holes of several chunks.
unloading = {}
for fraction in (0, 0.5, 0.9):
    made = px.synthesize_code(2000, unload_fraction=fraction)
    table = px.sweep(px.CodeHeap, made, policy="byte_limit", byte_limit=4096, chunk_bytes=CHUNKS)
    unloading[f"{fraction:.0%} unloaded"] = table["protect_calls"]
unloading = pd.DataFrame(unloading, index=NAMES).T
saved = 1 - unloading["2 MiB"] / unloading["64 KiB"]
assert saved.iloc[0] < 0.01 < 0.15 < saved.iloc[1] < saved.iloc[2] < 0.27

# An independent model counted 2,000 methods that are never unloaded, in the layout of 32-bit ARM: 659, 41 and 3 maps, 4555,
# 4037 and 4001 flips, 2.3, 32.3 and 512 pages per method. With other random numbers we should get nearly the same.
ARM = {"policy": "byte_limit", "header_bytes": 20, "pointer_bytes": 4}
like_it = px.synthesize_code(
    2000,
    sizes=LogNormal(median_bytes=700, sigma=1.1, max_bytes=64 * KIB),
    exit_sizes=None,
    unload_fraction=0,
)
for size, *model in ((4 * KIB, 659, 4555, 2.3), (64 * KIB, 41, 4037, 32.3), (MIB, 3, 4001, 512)):
    row = px.replay_code(
        like_it, **ARM, chunk_bytes=size, byte_limit=0 if size == 4 * KIB else 4096
    ).row
    ours = row["chunk_maps"], row["protect_calls"], row["pages_flipped_per_method"]
    assert np.allclose(ours, model, rtol=0.03)
pd.concat(trade)

# %%
CURVES = {
    "pages_flipped": ("pages flipped", "#B00020"),
    "protect_calls": ("flips", "#0072B2"),
    "chunk_maps": ("maps", "#009E73"),
}
fig, axes = plt.subplots(
    1,
    len(traces),
    figsize=(4.6 * len(traces), 3.8),
    layout="constrained",
    sharey=True,
    squeeze=False,
)
for ax, (name, trace) in zip(axes[0], traces.items()):
    table = px.sweep(
        px.CodeHeap, trace, policy="byte_limit", byte_limit=4096,
        chunk_bytes=[4 * KIB, 16 * KIB, 64 * KIB, 256 * KIB, MIB, 2 * MIB],
    )  # fmt: skip
    for column, (label, colour) in CURVES.items():
        per_method = table[column] / table["methods"]
        ax.plot(table["chunk_bytes"] / KIB, per_method, "o-", color=colour)
        ax.annotate(
            label, (64, per_method[2]), xytext=(0, 9), textcoords="offset points",
            color=colour, fontsize=11, ha="right" if column == "pages_flipped" else "left",
        )  # fmt: skip
    ax.set(xscale="log", yscale="log", xlabel="bytes of a chunk")
    ax.set_xticks([4, 64, 1024], ["4 KiB", "64 KiB", "1 MiB"])
    ax.xaxis.set_minor_locator(NullLocator())
    ax.yaxis.set_minor_locator(NullLocator())
    ax.set_yticks([0.0001, 0.001, 0.01, 0.1, 1, 10, 100, 1000])
    ax.yaxis.set_major_formatter(lambda value, _: f"{value:g}")
    ax.set_title(f"{name}: {table['methods'][0]:,} methods", loc="left")
    ax.grid(color="#E3E3E3")
    ax.spines[["top", "right"]].set_visible(False)
axes[0, 0].set_ylabel("per method")
title = "Larger chunks save nearly all maps, at most three flips in ten, and each flip is larger (byte_limit)"
_ = fig.suptitle(title, x=0.02, ha="left", weight="bold")

# %% [markdown]
# **The warning was right.** 64 KiB need 16 times fewer maps, 1 MiB about 200 times. But maps were never the most calls: a method needs two flips, and each covers the
# whole chunk: from 2 to 3 pages per method to at least 32, 512, 1023. What made the flips cheap is what made the maps frequent.
#
# Flips fall, too, by 12 to 29 % from 4 KiB to 2 MiB, because `byte_limit` needs more than two where chunks are small: 2.3 to 2.8 per method at 4 KiB. It fills what is left of one block and goes on in another, and where that is another chunk, it flips
# both. On real code 64 KiB already save almost all of that: V8's methods are the largest, and spanned pages most often. Beyond 64 KiB it depends on unloading, which leaves holes in many chunks that a method is then scattered over:

# %%
unloading

# %% [markdown]
# Designs that are told a size put a method into one chunk, and need at most two flips per method with chunks of any size (fewer with small ones: a chunk is writable when it is mapped).
# The byte limit has no part in it: `whole_block`, which has none, needs the same calls to 1 %.
#
# ## 2. Is the arithmetic right?
#
# A free block with a payload of $S$ bytes is cut if $S$ is above the limit $L$; $H$ is the header, $M$ the smallest payload. `find_split_failure` knows none of the arithmetic. It lets hypothesis draw numbers, cuts one block in
# the allocator itself, looks at the pieces, and shrinks what fails. Three ways to cut a block, then five rules for the smallest *hole* that a method gives back, each from a cold start; at first with any limit above $H + M$,
# then from $H + 2M - 1$ on, below which nothing can be right (two payloads and a header).

# %%
LIMITED = ("halving", "halving_payload", "byte_limit")
HOLES = ("max(M,2H)", "H+M", "2H+M", "3H+M", "4H+3M")
hunts = {
    (policy, "L > H+M"): find_split_failure(policy, limit=lambda h, m: h + m + 1)
    for policy in LIMITED
}
hunts |= {(policy, "L ≥ H+2M-1"): find_split_failure(policy) for policy in LIMITED}
hunts |= {("min_hole", rule): find_split_failure(min_hole=rule) for rule in HOLES}
lines = {}
for what, failure in hunts.items():
    lines[what] = dict.fromkeys(["H", "M", "L", "S", "hole", "payloads after it"], "")
    lines[what]["wrong"] = "nothing found"
    if failure is not None:
        payloads = [block["payload_bytes"] for block in failure.blocks]
        small = min(payloads)
        lines[what] = {
            "H": failure.header_bytes,
            "M": failure.min_payload_bytes,
            "L": failure.byte_limit or "",
            "S": failure.payload_bytes,
            "hole": "{} to {}".format(*failure.hole) if failure.hole else "",
            "payloads after it": " ".join(map(str, payloads)),
            "wrong": "headers overlap" if small < 0 else f"{small} is below M",
        }
right = {what for what, failure in hunts.items() if failure is None}
assert right == {("byte_limit", "L ≥ H+2M-1"), *(("min_hole", rule) for rule in HOLES[2:])}
pd.DataFrame(lines).T

# %% [markdown]
# What landed in 2011 is right wherever anything can be; both readings of the halving that was reviewed are not, and two of the rules for holes are not. The chunks that hypothesis ended with, each of a few bytes:

# %%
found = {what: failure for what, failure in hunts.items() if failure is not None}
SHOWN = [
    ("halving", "L ≥ H+2M-1"),
    ("halving_payload", "L ≥ H+2M-1"),
    ("min_hole", "max(M,2H)"),
    ("min_hole", "H+M"),
]


def filled(blocks):
    """Draw used blocks as if code filled them."""
    return [b | {"code_bytes": 0 if b["free"] else max(0, b["payload_bytes"])} for b in blocks]


def draw(chunks, title):
    """One row per chunk, from a name to M and its blocks; what is wrong is framed, and said at the row's end."""
    rows = [
        block | {"chunk": number}
        for number, (_, blocks) in enumerate(chunks.values())
        for block in filled(blocks)
    ]
    size = (11, 1.6 + 0.72 * len(chunks))
    ax = plt.figure(figsize=size, layout="constrained").add_subplot()
    px.chunk_map(rows, ax=ax, title=title)
    ax.set_yticks(range(len(chunks)), list(chunks), fontsize=9)
    ax.set_ylabel("")
    longest = max(blocks[0]["chunk_bytes"] for _, blocks in chunks.values())
    ax.set_xlim(right=1.2 * longest)
    for number, (least, blocks) in enumerate(chunks.values()):
        small = [block for block in blocks if block["payload_bytes"] < least]
        for block in small:
            # From the header of the block to where it ends, or where the next one's begins before that.
            ends = [
                block["offset"],
                block["offset"] + block["header_bytes"] + block["payload_bytes"],
            ]
            ends = sorted([max(0, ends[0]), max(ends[0] + block["header_bytes"], ends[1])])
            frame = plt.Rectangle(
                (ends[0], number - 0.38), ends[1] - ends[0], 0.76,
                fill=False, edgecolor="#B00020", linewidth=2, zorder=6,
            )  # fmt: skip
            ax.add_patch(frame)
        worst = min(block["payload_bytes"] for block in blocks)
        ax.text(
            blocks[0]["chunk_bytes"] + 0.012 * longest,
            number,
            f"wrong: {worst} < {least}" if small else f"right: none < {least}",
            color="#B00020" if small else "#00664B",
            fontsize=9,
            weight="bold",
            va="center",
        )


def numbers(failure):
    limit = (
        f"L {failure.byte_limit}" if failure.byte_limit else "hole {} to {}".format(*failure.hole)
    )
    return f"H {failure.header_bytes}, M {failure.min_payload_bytes}, {limit}"


smallest = {}
for policy, rule in SHOWN:
    failure = found[policy, rule]
    name = f"{rule if policy == 'min_hole' else policy}\n{numbers(failure)}"
    smallest[name] = failure.min_payload_bytes, failure.blocks
draw(
    smallest,
    "The smallest chunk that each wrong rule breaks; numbers are payloads, the block that is too small is framed",
)

# %% [markdown]
# And at the sizes of 2010, $M = 32$ with headers of 20 bytes (32-bit) or 40 (64-bit): one block cut at the largest limit that fails, and one hole in the *middle* of a block (there was code on both sides of it, on ARM).


# %%
def cut(policy, H, M, L, S):
    """The blocks of a chunk of one free block with a payload of S, after one alloc."""
    heap = CodeBlocks(
        policy=policy, header_bytes=H, min_payload_bytes=M, byte_limit=L, chunk_bytes=S + 2 * H, page_bytes=1
    )  # fmt: skip
    heap.alloc()
    return heap.blocks()


def cut_hole(rule, H, M, hole):
    """The blocks of a chunk of 512 bytes, after the only block gave a hole in its middle back."""
    heap = CodeBlocks(
        policy="whole_block", min_hole=rule, header_bytes=H, min_payload_bytes=M,
        pointer_bytes=H // 5, chunk_bytes=512, page_bytes=1,
    )  # fmt: skip
    number, start, _ = heap.alloc()
    heap.add_remainder(number, start + 160, start + 160 + hole)
    return heap.blocks()


def is_wrong(blocks, M):
    return any(block["payload_bytes"] < M for block in blocks)


H, M = 20, 32
real = {}
for policy in LIMITED:
    bound = least_limit(policy, H, M)
    failing = {
        L: S
        for L in range(M, bound + 60)
        for S in range(L + 1, L + 2 * (H + M) + 2)
        if is_wrong(cut(policy, H, M, L, S), M)
    }
    assert max(failing) == bound - 1  # exact: wrong just below it, right from it on
    blocks = cut(policy, H, M, max(failing), failing[max(failing)])
    real[f"{policy}, H 20\nL {max(failing)}, just below {bound}"] = M, blocks
for rule, H, hole in (("max(M,2H)", 20, 40), ("H+M", 40, 72), ("2H+M", 40, 112)):
    blocks = cut_hole(rule, H, M, hole)
    assert is_wrong(blocks, M) == (rule != "2H+M")
    real[f"min_hole {rule}\nH {H}, a hole of {hole}"] = M, blocks
draw(
    real,
    "At the sizes of 2010, M = 32: three limits just below what is right, and three rules for a hole",
)

# %% [markdown]
# - **The limit**: `byte_limit` is right from $L = H + 2M - 1$ on, halving from $H + 2M$, and in its reviewer's reading from $3H + 2M - 3$. Just below, one size $S$ leaves a piece of 31 bytes or less. The flaw was real and narrow.
# - **The hole**: comment 18 is right, $2H + M$ is exactly tight. The old $\max(M, 2H)$ loses memory: the block is free, on no list, and comes back only when a neighbour is freed; and a hole inside one pointer wraps around.
#   $H + M$ corrupts the chunk where headers are larger than the smallest payload. What landed ($3H+M$) keeps up to one header too much, $4H+3M$ more.
#
# One more defect, which the review does not mention: half of $L + H$ need not be whole words, so that `halving` misaligns headers. And one that all designs of the bug share: a free writes headers into
# chunks that nobody marked writable. nanojit never freed a single method; HotSpot and V8 do, and would fault under an enforced W^X:

# %%
odd = px.replay_code(px.synthesize_code(2000), **ARM | {"policy": "halving"}, byte_limit=4096)
assert sum(block["offset"] % 4 > 0 for block in odd.blocks) == 3
hazard = {}
for name, trace in traces.items():
    table = px.sweep(px.CodeHeap, trace, policy=[*HISTORICAL, "segregated"], byte_limit=4096)
    hazard[name] = {"frees": int((trace.op == px.OP_FREE).sum())}
    hazard[name] |= dict(zip(table["policy"], table["unmarked_header_writes"].tolist()))
hazard = pd.DataFrame(hazard).T
assert (hazard[list(HISTORICAL)].min(axis=1) > hazard["frees"]).all()
assert (hazard["segregated"] == 0).all()
hazard

# %% [markdown]
# ## 3. Which design wins?
#
# Today's designs are told the size they must hold. Each, and what landed in the bug, with four chunk sizes; empty chunks are kept. To the left is less memory that is mapped and holds no code, on average over
# the run; lower are fewer system calls. With flips, all of today's designs need two calls per method, so only the waste is left to compare:

# %%
TODAY = [policy for policy in CODE_POLICIES if policy not in HISTORICAL]
PANELS = [*SIZED, "byte_limit"]
every = {
    (name, wx): px.sweep(
        px.CodeHeap, trace, policy=[*TODAY, "byte_limit"], byte_limit=4096,
        chunk_bytes=CHUNKS, keep_bytes=[0, math.inf], wx=wx,
    )
    for name, trace in traces.items()
    for wx in ("flip", "dual")
}  # fmt: skip


def round_numbers(low, high, most):
    """A few round numbers in between, for a logarithmic axis."""
    for digits in ((1, 2, 5), (1, 1.5, 2, 3, 5)):
        found = [d * 10**p for p in range(6) for d in digits if low <= d * 10**p <= high]
        if len(found) >= 2:
            break
    return found[:: -(-len(found) // most)]


SHADES = ["#9CC9E6", "#4E9CD0", "#0072B2", "#003B5C"]
fig, axes = plt.subplots(
    1, len(traces), figsize=(5 * len(traces), 4.3), layout="constrained", sharey=True, squeeze=False
)
for ax, name in zip(axes[0], traces):
    table = every[name, "flip"]
    for row, policy in enumerate(PANELS):
        curve = table[(table["policy"] == policy) & (table["keep_bytes"] == math.inf)]
        waste, calls = curve["wastage_bytes_mean"] / KIB, curve["system_calls"] / curve["methods"]
        assert (np.diff(waste[1:]) >= 0).all()
        ax.plot(waste, [row] * len(waste), color="#BBBBBB", zorder=1)
        for number in range(len(waste)):
            ax.plot(waste[number], row, "o", color=SHADES[number], markersize=9)
        ends = f"{calls[0]:.1f} to {calls[-1]:.1f}" if calls[0] > 2.05 else f"{calls[0]:.1f}"
        ax.text(1.02, row, ends, transform=ax.get_yaxis_transform(), va="center", fontsize=9)
    ax.text(1.02, -0.75, "calls per\nmethod", transform=ax.get_yaxis_transform(), fontsize=9)
    ax.set(xscale="log", ylim=(len(PANELS) - 0.5, -0.5))
    ax.xaxis.set_major_locator(FixedLocator(round_numbers(*ax.get_xlim(), 6)))
    ax.xaxis.set_minor_locator(NullLocator())
    ax.xaxis.set_major_formatter(lambda value, _: f"{value:,.0f}")
    ax.set_yticks(range(len(PANELS)), PANELS)
    ax.grid(axis="x", color="#EEEEEE")
    ax.spines[["top", "right"]].set_visible(False)
    ax.set_xlabel("mapped and not code, mean [KiB]")
    ax.set_title(name, loc="left", weight="bold")
dots = [plt.Line2D([], [], color=shade, marker="o", linestyle="none") for shade in SHADES]
fig.legend(
    dots,
    [f"chunks of {name}" for name in NAMES],
    loc="outside lower center",
    ncols=4,
    frameon=False,
)
_ = fig.suptitle("Memory wasted with flips (wx = flip)", x=0.01, ha="left", weight="bold")

# %% [markdown]
# From 64 KiB on, larger chunks waste more under every design. Smaller ones need not waste less: here a method must fit into one chunk, so that the ends of small ones stay unused.
# With two mappings of the same memory (`dual`) only maps are left, and the calls differ by the chunk size. One panel per design, the others in grey:

# %%
fig, axes = plt.subplots(
    len(traces), len(PANELS), figsize=(15, 2.5 * len(traces) + 0.9), layout="constrained",
    sharex="row", sharey="row", squeeze=False,
)  # fmt: skip
for row, name in zip(axes, traces):
    table = every[name, "dual"]
    table = table[table["keep_bytes"] == math.inf]
    curves = {policy: table[table["policy"] == policy] for policy in PANELS}
    for ax, policy in zip(row, PANELS):
        for other, curve in curves.items():
            x = curve["wastage_bytes_mean"] / KIB
            y = curve["system_calls"] / curve["methods"]
            if other != policy:
                ax.plot(x, y, color="#D5D5D5", linewidth=1.2, zorder=1)
                continue
            ax.plot(x, y, "o-", color="#B00020" if policy == "byte_limit" else "#0072B2", zorder=3)
            for label, *at in zip(NAMES, x, y):
                ax.annotate(label, at, xytext=(6, 4), textcoords="offset points", fontsize=8.5)
        ax.set(xscale="log", yscale="log")
        ax.margins(0.24, 0.2)
        ax.xaxis.set_minor_locator(NullLocator())
        ax.yaxis.set_minor_locator(NullLocator())
        ax.yaxis.set_major_locator(FixedLocator([0.001, 0.01, 0.1, 1]))
        ax.yaxis.set_major_formatter(lambda value, _: f"{value:g}")
        ax.xaxis.set_major_locator(FixedLocator(round_numbers(*ax.get_xlim(), 3)))
        ax.xaxis.set_major_formatter(lambda value, _: f"{value:,.0f}")
        ax.tick_params(labelsize=8.5)
        ax.grid(color="#EEEEEE")
        ax.spines[["top", "right"]].set_visible(False)
    row[0].set_ylabel(f"{name}\nsystem calls per method")
for ax, policy in zip(axes[0], PANELS):
    ax.set_title(policy, loc="left", fontsize=11, weight="bold")
fig.supxlabel("mapped and not code, mean [KiB]", fontsize=11)
title = "Calls against waste with two mappings (wx = dual); points are the bytes of a chunk"
_ = fig.suptitle(title, x=0.01, ha="left", weight="bold")

# %% [markdown]
# Who wins in each, over the six designs of today, our own (`segregated`) and `byte_limit`, empty chunks kept or given back; cells in which `bump` threw live code away are left out:


# %%
def cell(row):
    empty = "kept" if row["keep_bytes"] else "given back"
    return (
        f"{row['policy']}, {row['chunk_bytes'] // KIB} KiB, {empty}: "
        f"{row['wastage_bytes_mean'] / KIB:,.0f} KiB, {row['system_calls'] / row['methods']:.3g} calls"
    )


lines = {}
for (name, wx), table in every.items():
    keeps = table[table["flushes"] == 0]
    waste, calls = keeps["wastage_bytes_mean"], keeps["system_calls"]
    fewest = min(
        range(len(keeps)), key=lambda i: (calls[i], waste[i], keeps["policy"][i] != "segregated")
    )
    least = min(range(len(keeps)), key=lambda i: (waste[i], calls[i]))
    lines[name, wx] = {
        "least waste": cell(keeps[least]),
        "knee": cell(keeps.knee()),
        "fewest calls": cell(keeps[fewest]),
    }
    assert calls[keeps["policy"] == "segregated"].min() == calls.min()
    if name in REAL:
        assert keeps["policy"][least] == "byte_limit"
        assert keeps["chunk_bytes"][least] == 4 * KIB
    assert (wx == "flip") == (calls.min() >= 1.9 * table["methods"][0])
    for row in keeps[keeps["policy"] == "segregated"].rows():
        if wx == "dual" and row["keep_bytes"] and row["chunk_bytes"] == 64 * KIB:
            assert row["system_calls"] < row["methods"] / 7
assert all(line["knee"].startswith("segregated") for line in lines.values())
pd.DataFrame(lines).T

# %% [markdown]
# `segregated` is ours, so the same without it: who of the six wins?

# %%
PEERS = [policy for policy in TODAY if policy != "segregated"]
assert set(PEERS) == {"first_fit", "best_fit", "bitmap", "pack", "buckets", "bump"}
lines = {}
for (name, wx), table in every.items():
    peers = table[np.isin(table["policy"], PEERS) & (table["flushes"] == 0)]
    waste, calls = peers["wastage_bytes_mean"], peers["system_calls"]
    least = min(range(len(peers)), key=lambda i: (waste[i], calls[i]))
    fewest = min(range(len(peers)), key=lambda i: (calls[i], waste[i]))
    lines[name, wx] = {
        "least waste": cell(peers[least]),
        "knee": cell(peers.knee()),
        "fewest calls": cell(peers[fewest]),
    }
    assert peers["policy"][least] in ("pack", "first_fit")
    assert peers.knee()["policy"] in ("pack", "first_fit")
    ours = table[(table["policy"] == "segregated") & (table["keep_bytes"] == 0)]
    assert ours["wastage_bytes_mean"].min() <= 1.02 * waste[least]
pd.DataFrame(lines).T

# %% [markdown]
# Without ours `pack` or `first_fit` wins on every trace, by waste as well as at the knee. Both join what is freed with its neighbours and cut to within 64 bytes; powers of two, units of 128 bytes and chunks that double cost more than they save.
#
# All thirteen at once, with 64 KiB chunks: waste against churn, which is here the chunks that are mapped and given back. A line goes from empty chunks given back (the dot) to all of them kept (the ring); policies on the same point share a label.

# %%
COLOURS = {"history": "#B00020", "today": "#0072B2", "ours": "#009E73"}
KINDS = (
    dict.fromkeys(HISTORICAL, "history") | dict.fromkeys(PEERS, "today") | {"segregated": "ours"}
)
assert set(KINDS) == set(CODE_POLICIES)
churn = {}
fig, axes = plt.subplots(
    1, len(traces), figsize=(6.2 * len(traces), 5), layout="constrained", squeeze=False
)
for ax, (name, trace) in zip(axes[0], traces.items()):
    table = px.sweep(
        px.CodeHeap, trace, policy=CODE_POLICIES, byte_limit=4096, chunk_bytes=64 * KIB, keep_bytes=[0, math.inf],
    )  # fmt: skip
    assert (table["status"] == "ok").all()
    ends = {}
    for policy in CODE_POLICIES:
        rows = table[table["policy"] == policy].rows()
        ends[policy] = [
            (
                row["wastage_bytes_mean"] / KIB,
                1000 * (row["chunk_maps"] + row["chunk_unmaps"]) / row["methods"],
            )
            for row in rows
        ]
        # To keep empty chunks never maps more.
        assert ends[policy][1][1] <= ends[policy][0][1]
        for number, what in enumerate(("given back", "kept")):
            waste, calls = ends[policy][number]
            flushed = "*" if rows[number]["flushes"] else ""
            churn.setdefault(policy, {})[name, what] = f"{waste:,.0f}{flushed} / {calls:,.1f}"
        colour = COLOURS[KINDS[policy]]
        ax.plot(*zip(*ends[policy]), color=colour, linewidth=1, alpha=0.5, zorder=2)
        ax.plot(*ends[policy][0], "o", color=colour, markersize=7, zorder=3)
        ax.plot(*ends[policy][1], "o", color=colour, mfc="white", markersize=5, zorder=2.5)
    # One label for what is on one point, all of them beside the panel, in the order of height.
    shared_points = []
    for policy, (at, _) in sorted(ends.items(), key=lambda item: item[1][0][::-1]):
        same = [
            point for point in shared_points if np.allclose(point[0], at, rtol=0.03) and KINDS[policy] == KINDS[point[1][0]]
        ]  # fmt: skip
        if same:
            same[0][1].append(policy)
        else:
            shared_points.append((at, [policy]))
    for number, (at, names) in enumerate(shared_points):
        height = (number + 0.5) / len(shared_points)
        words = [", ".join(names[i : i + 2]) for i in range(0, len(names), 2)]
        ax.annotate(
            ",\n".join(words), at, xytext=(1.05, height), textcoords="axes fraction", va="center",
            fontsize=9, color=COLOURS[KINDS[names[0]]],
            arrowprops={"arrowstyle": "-", "color": "#BBBBBB", "linewidth": 0.7, "shrinkB": 4},
        )  # fmt: skip
    ax.set(xscale="log", yscale="log", xlabel="mapped and not code, mean [KiB]")
    ax.xaxis.set_major_locator(FixedLocator(round_numbers(*ax.get_xlim(), 5)))
    ax.yaxis.set_major_locator(FixedLocator(round_numbers(*ax.get_ylim(), 6)))
    for axis in (ax.xaxis, ax.yaxis):
        axis.set_minor_locator(NullLocator())
        axis.set_major_formatter(lambda value, _: f"{value:,g}")
    ax.grid(color="#EEEEEE")
    ax.spines[["top", "right"]].set_visible(False)
    ax.set_title(name, loc="left", weight="bold")
axes[0, 0].set_ylabel("chunks mapped and given back, per 1,000 methods")
title = "Waste against churn, 64 KiB chunks: the bug's history (red), today's (blue), ours (green)"
_ = fig.suptitle(title, x=0.01, ha="left", weight="bold")

# %% [markdown]
# The same in numbers, KiB / chunks per 1,000 methods; a star where live code was thrown away:

# %%
pd.DataFrame(churn).T

# %% [markdown]
# `segregated` needs the fewest calls everywhere, and is the knee. On real code `byte_limit` with the smallest chunks wastes least, for far more calls: it may spread a method over
# what is left of several chunks. Before believing it, two questions. How much of the lead of `segregated` is only that its headers are kept elsewhere, where "mapped" does not count them? And what does each design
# pay in searching? With 64 KiB chunks, given back when empty; `segregated` once more with headers as sljit's and as nanojit's:

# %%
lines, waste = {}, {}
for name, trace in traces.items():
    table = px.sweep(
        px.CodeHeap,
        trace,
        [
            {"policy": [*TODAY, "byte_limit"], "byte_limit": [4096]},
            {"policy": ["segregated"], "header_bytes": [16, 40]},
        ],
        chunk_bytes=64 * KIB,
        keep_bytes=0,
    )
    for row in table.rows():
        headers = f", {row['header_bytes']:.0f} B headers" if row["header_bytes"] else ""
        lines.setdefault(row["policy"] + headers, {}).update(
            {
                (name, "not code [KiB]"): f"{row['wastage_bytes_mean'] / KIB:,.0f}",
                (
                    name,
                    "search steps per method",
                ): f"{row['list_scan_steps'] / row['methods']:,.1f}",
                (name, "flushes"): row["flushes"],
            }
        )
        waste.setdefault(row["policy"] + headers, []).append(row["wastage_bytes_mean"])
        if row["policy"] in ("segregated", "bump"):
            assert row["list_scan_steps"] == 0
waste = pd.DataFrame(waste, index=list(traces))
assert (waste["segregated"] < waste["first_fit"]).all()
assert (waste["segregated, 16 B headers"] < 1.03 * waste["first_fit"]).all()
assert (waste["segregated, 40 B headers"] > waste["byte_limit"]).all()
pd.DataFrame(lines).T

# %% [markdown]
# **Much of the lead in waste is the headers.** With 16 bytes of header as sljit has, `segregated` wastes about as much as `first_fit` on HotSpot, and less elsewhere; with 40 bytes it wastes more than `byte_limit` on every trace. What it does not lose is time: it looks at no
# block that it does not take, nor does `bump`, while `best_fit` walks its list and `pack`, as modelled, every block from the oldest chunk on. (Linux's own searches a bitmap, many granules at a time.) `bump` never searches because it never
# reuses; it fits V8 into its 2 MiB only by throwing live code away. `bitmap` is not to be judged by these tables: its chunks double, and start smaller again only where empty ones are given back.
#
# What the choice looks like, the same run at its end:

# %%
name = "HotSpot" if "HotSpot" in traces else "made up"
heaps = {
    policy: px.replay_code(traces[name], policy=policy, byte_limit=4096, keep_bytes=0)
    for policy in ("byte_limit", "segregated")
}
assert heaps["segregated"].row["wastage_bytes_mean"] < heaps["byte_limit"].row["wastage_bytes_mean"]
_ = px.chunk_map(heaps, title=f"{name}: the heap at the end, empty chunks given back under both")

# %% [markdown]
# ## Answer
#
# - **Larger chunks save nearly all maps**: 64 KiB 16 times, 1 MiB about 200 times fewer. **Of the flips they save 12 to 29 %**, under `byte_limit`, which needs 2.3 to 2.8 per method with small chunks; today's designs need at most two with any. Each flip covers the whole chunk: 12 to 15 times the pages at 64 KiB, about 200 times at 1 MiB.
# - **64 KiB already save 94 % of the maps.** Who wants larger chunks (for large pages, comment 6) should stop flipping: with two mappings (`dual`) the calls of `segregated` fall from two per method to less than one per seven with 64 KiB that are kept when empty, though a chunk takes five to make (two maps, and three for the file behind them) where a flipped one takes one.
# - **What landed is right**, for $L \ge H+2M-1$, and nothing can be better. Both readings of the reviewed halving are worse. $2H+M$ is the tight smallest hole.
# - **None of the old designs can free a single method under W^X**: each free writes into executable memory.
# - **Of the six designs of today `pack` and `first_fit` win**, by waste and at the knee; ours is beside them.
# - The default, `segregated`, needs the fewest calls on every trace, and no search. Its lead in waste is that its headers are elsewhere. V8's deaths are inferred, so its waste is the least certain number here.
