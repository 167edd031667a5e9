"""The picture of a profile: which share of it is in sizes up to each size."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import numpy as np

from pyallocx.plot import _COLOURS, _new_axes, _save, _set_scale, _tick_text
from pyallocx.units import format_bytes, format_count, printable

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from pyallocx.profile import Profile

__all__ = ["plot_profile"]

_MARKS = ((0.5, "half"), (0.9, "90%"))
_MARK = "pyallocx-mark"
_DASHES = ("-", "--", ":")


def plot_profile(
    profile: Profile,
    weighted: str,
    *,
    ax: Axes | None = None,
    path: str | os.PathLike[str] | None = None,
    title: str | None = None,
) -> Axes:
    """Draw `profile`; see `Profile.plot`, which calls this."""
    weights = profile._weights(weighted)
    if not weights.any():
        raise ValueError(f"{profile!r} requests no bytes, so that there is no share of them")
    if ax is None:
        ax = _new_axes(path is None)
    # What marks a single curve would be in the way of several.
    for mark in [line for line in ax.lines if line.get_gid() == _MARK]:
        mark.remove()
    number = len(ax.lines)
    sizes = profile.sizes.astype(np.float64)
    shares = np.cumsum(weights)
    shares = 100 * shares / shares[-1]
    # The first step rises from nothing.
    drawn = np.concatenate(([sizes[0]], sizes)), np.concatenate(([0.0], shares))
    ax.plot(
        *drawn,
        drawstyle="steps-post",
        color=_COLOURS[number % len(_COLOURS)],
        linestyle=_DASHES[number // len(_COLOURS) % len(_DASHES)],
        linewidth=1.6,
        label=printable(profile.name).replace("$", r"\$") or "profile",
    )
    _set_scale(
        ax, "x", np.concatenate([np.asarray(line.get_xdata()) for line in ax.lines]), binary=True
    )
    ax.xaxis.set_major_formatter(lambda v, _: _tick_text("size_bytes", v))
    ax.set_ylim(0, 102)
    ax.yaxis.set_major_formatter(lambda v, _: f"{v:g}%")
    what = "requested bytes" if weighted == "bytes" else "count"
    ax.set_xlabel("size [bytes]", fontsize=10)
    ax.set_ylabel(f"share of the {what} in sizes up to this one", fontsize=10)
    ax.grid(True, which="major", color="#E3E3E3", linewidth=0.8)
    ax.set_axisbelow(True)
    ax.spines[["top", "right"]].set_visible(False)
    if number:
        ax.set_title(title or "", fontsize=12, fontweight="bold", loc="left", parse_math=False)
        ax.legend(fontsize=8.5, frameon=False, loc="best")
    else:
        _name(ax, profile, weighted, what, title)
    if path is not None:
        _save(ax, path)
    return ax


def _name(ax: Axes, profile: Profile, weighted: str, what: str, title: str | None) -> None:
    """Say above the only curve what it is of, and mark where it has come half and nearly all."""
    reached = []
    for share, word in _MARKS:
        size = profile.quantile(share, weighted="bytes" if weighted == "bytes" else "count")
        reached.append(f"{word} of the {what} up to {format_bytes(size)}")
        ax.axvline(size, ymax=share / 1.02, color="#999999", linewidth=1, linestyle=":", gid=_MARK)
    name = printable(profile.name) or "profile"
    lines = [
        title
        or f"{name}: {len(profile):,} sizes, count {format_count(profile.total_count)}, "
        f"{format_bytes(profile.total_bytes)}",
        "; ".join(reached),
    ]
    ax.set_title("\n".join(lines), fontsize=10, loc="left", color="#333333", parse_math=False)
