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
# # Which size classes waste least on my programs, and does the choice hold on others?
#
# An allocator rounds requests up to size classes. In 2020 scudo, Android's allocator, got a table of classes made from a profile instead of a fixed rule
# ([LLVM 041547eb](https://github.com/llvm/llvm-project/commit/041547eb4eb0fcb2155af7537aaed7f601ea6343)). The commit says:
#
# 1. shift all classes by the header, since requests are often powers of two;
# 2. look sizes up in a table, since binary search costs about 30 %;
# 3. choose the classes to fit a profile; it comes with a tool that does so greedily.
#
# Each is looked at here on real programs, and then the question that the commit does not ask: is the table any good on a program that it was not made from? Every number is computed here.

# %%
import json
import math
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from IPython.display import display
from matplotlib.ticker import FixedLocator, NullLocator

import pyallocx as px

BLUE, ORANGE, GREY, GREEN = "#0072B2", "#D55E00", "#999999", "#009E73"
KIB = 1024
LIMIT = 64 * KIB
plt.rcParams |= {"axes.spines.top": False, "axes.spines.right": False, "axes.axisbelow": True}

shared = Path(os.environ.get("PYALLOCX_SHARED_DATA") or "../../shared/data")
FILES = {
    "cc1plus": "sizeclass/profiles/cc1plus-cum.xml",
    "clang": "sizeclass/profiles/clang-cum.xml",
    "git": "sizeclass/profiles/git-cum.xml",
    "git (other run)": "traces/recorded/git_log.zip",
    "python3": "sizeclass/profiles/python3-19870.cum.xml",
    "sqlite3": "sizeclass/profiles/sqlite3-cum.xml",
    "surfaceflinger": "traces/aosp/surfaceflinger.zip",
    "Google fleet 0": "traces/fleetbench/TCMALLOC_0.csv",
    "Google fleet 3": "traces/fleetbench/TCMALLOC_3.csv",
}


def requests(thing):
    """How often each size up to 64 KiB is asked for."""
    profile = thing if isinstance(thing, px.Profile) else thing.profile("count")
    return profile.below(LIMIT)


everything = all((shared / file).is_file() for file in FILES.values())
programs = {}
if everything:
    programs = {
        name: requests(px.load_profile_or_trace(shared / file)) for name, file in FILES.items()
    }
else:
    print("The shared profiles are not here, so all that follows is about the two shipped traces.")
for name in px.shipped():
    label = f"{name} (other run)" if everything else name
    programs[label] = requests(px.load_shipped(name))
programs = {name: programs[name] for name in sorted(programs, key=str.lower)}
NAMES = list(programs)


def is_power(sizes):
    return (sizes & (sizes - 1)) == 0


pd.DataFrame(
    {
        name: {
            "requests": f"{p.total_count:,.0f}",
            "MiB": f"{p.total_bytes / KIB**2:,.1f}",
            "sizes": f"{len(p):,}",
            "powers of two": f"{p.counts[is_power(p.sizes)].sum() / p.total_count:.0%} of requests",
        }
        for name, p in programs.items()
    }
).T

# %% [markdown]
# One definition throughout. **Waste is what a class has beyond header and request, in percent of the bytes requested**, over all requests up to 64 KiB. No page rounding, no tails of spans, no caches. What the requests do to
# the memory of a whole process is another question: these are counts of calls, not of live objects.
#
# ## 1. Shift by the header?
#
# scudo puts 16 bytes before each object. A request of 64 needs 80: with classes 64, 96, 128, ... it gets 96. Shifted by 16, the class is 80. Four maps: the fixed one without (today's default) and with the shift (2020's), and Android's
# table of 2020 and of today.

# %%
MAPS = {
    "fixed": ("scudo-default-19", ORANGE),
    "fixed, shifted": ("scudo-default-2020", BLUE),
    "table of 2020": ("scudo-android64-2020", GREY),
    "table of today": ("scudo-android64-19", GREEN),
}
maps = {label: px.preset(name) for label, (name, _) in MAPS.items()}
COLOUR = {label: colour for label, (_, colour) in MAPS.items()}
assert [m.delta_bytes for m in maps.values()] == [0, 16, 16, 16]
assert [len(m) for m in maps.values()] == [44, 44, 32, 32]

powers = 2 ** np.arange(4, 17)
density = {
    label: powers / m.round(m.need(powers)).astype(float) for label, m in maps.items()
}
ideal = powers / (powers + 16)
assert (density["fixed, shifted"][1:] == ideal[1:]).all()  # of 32 bytes and more: no better density
assert (density["table of today"][:4] == ideal[:4]).all()
assert (density["fixed"][4:] == 0.8).all()
assert (density["fixed"][1], density["fixed"][2]) == (0.5, 64 / 96)


def waste(table, profile):
    """Percent of the requested bytes."""
    return px.wastage(table, profile, page_cap=None).percent


SCUDO = {"header_bytes": 16, "largest_bytes": LIMIT + 16, "page_cap": None}
wasted = pd.DataFrame(
    {label: {name: waste(m, p) for name, p in programs.items()} for label, m in maps.items()}
)
wasted["best table"] = [
    px.fit(p, 32, bits=7, prefix="table", **SCUDO).table.percent for p in programs.values()
]


def bytes_label(size):
    return f"{size // KIB} KiB" if size >= KIB else f"{size:,.0f}"


fig, axes = plt.subplots(1, 2, figsize=(13, 5.2), layout="constrained", width_ratios=[1, 1.15])
ax = axes[0]
ax.plot(powers, 100 * ideal, color="black", linewidth=6, alpha=0.12)
for label, values in density.items():
    ax.plot(powers, 100 * values, "o-", color=COLOUR[label], markersize=4.5)
ax.annotate("the best possible", (512, 98), xytext=(0, 7), textcoords="offset points", fontsize=9.5, color="#555555")
ax.annotate("fixed", (4096, 80), xytext=(0, -14), textcoords="offset points", color=ORANGE, fontsize=10.5)
ax.set_xscale("log", base=2)
ax.set_xticks(powers[::2], [bytes_label(p) for p in powers[::2]])
ax.xaxis.set_minor_locator(NullLocator())
ax.set(xlabel="request, a power of two [bytes]", ylabel="request in % of its block", ylim=(45, 103))
ax.grid(color="#EEEEEE")
ax.set_title("Powers of two: unshifted, a fifth of each block is lost", loc="left", fontsize=11, fontweight="bold")

ax = axes[1]
y = np.arange(len(NAMES))
ax.hlines(y, wasted.min(axis=1), wasted.max(axis=1), color="#DDDDDD", linewidth=1)
for label in MAPS:
    ax.plot(wasted[label], y, "o", color=COLOUR[label], markersize=7, label=f"{label} ({len(maps[label])})")
ax.plot(wasted["best table"], y, "k|", markersize=13, markeredgewidth=2, label="best table for the program (32)")
ax.set_yticks(y, NAMES)
ax.invert_yaxis()
ax.set(xlabel="waste [% of requested bytes]", xlim=(0, None))
ax.grid(axis="x", color="#EEEEEE")
ax.set_title("Real programs: the shift pays on most, Android's tables on few", loc="left", fontsize=11, fontweight="bold")
fig.legend(*ax.get_legend_handles_labels(), loc="outside lower center", ncols=5, frameon=False, fontsize=9.5)
wasted.round(1)
