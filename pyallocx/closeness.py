"""How close a synthetic trace comes to the real one it is to stand for."""

from __future__ import annotations

import math
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from pyallocx._traceprofile import _histogram
from pyallocx.timeline import Lifetimes, lifetimes, timeline
from pyallocx.trace import OP_ALLOC, OP_REALLOC, Trace

__all__ = ["closeness"]

_POINTS: Final = 256
_RETAIN: Final = (0, 2048)
_CLASSES: Final = "jemalloc"


def closeness(real: Trace, synthetic: Trace) -> dict[str, Any]:
    """Return distances between two traces, in what the library is used to ask of a trace.

    Parameters
    ----------
    real, synthetic : Trace
        With events. Meant for traces of equal length; of others the shares and ratios compare.

    Returns
    -------
    dict
        Distances from 0 (alike) to 1, ratios (1 is alike; of the synthetic trace to the real one),
        fit for JSON:

        ``ops_tv``
            Total variation between the shares of allocs, frees, reallocs and destroys.
        ``sizes_tv``, ``sizes_ks``
            Total variation, and the largest difference of the distribution functions
            (Kolmogorov-Smirnov), of the request sizes of allocs and reallocs.
        ``lifetimes_ks``
            Of the survival of objects by lifetime in events, the largest difference in each tenth
            of the objects by size (tenths of the real trace; equal ones together); the largest of
            them in ``lifetimes_ks_most``.
        ``live_bytes_difference``
            The largest difference of the live bytes, each as a share of its own peak, after equal
            shares of the run.
        ``peak_ratio``, ``end_ratio``
            Of the peak and of the end of the live bytes; None where the real one is 0.
        ``cross_thread_difference``
            Of the shares of frees across threads in all frees.
        ``arena_calls_ratio``
            Of the calls that the free lists of an arena make per event, by retained bytes
            (`pyallocx.Arena`, ``list_calls``); None where the real one makes none.
        ``wastage_ratio``
            Of the bytes wasted, as a share of those requested, by the size classes of jemalloc.

    Raises
    ------
    TypeError
        One of them is no trace.
    ValueError
        A trace has no allocs.

    Examples
    --------
    >>> import pyallocx as px
    >>> trace = px.load_shipped("sqlite3").head(20_000)
    >>> px.closeness(trace, trace)["lifetimes_ks_most"]
    0.0
    """
    for name, trace in (("real", real), ("synthetic", synthetic)):
        if not isinstance(trace, Trace):
            raise TypeError(f"{name} must be a Trace, not {type(trace).__name__}")
        if not trace.n_objects:
            raise ValueError(f"{name} is {trace!r}, which has no allocs to compare")
    a, b = real.summary(), synthetic.summary()
    ops = [np.bincount(t.op, minlength=4) / len(t) for t in (real, synthetic)]
    crossed = [(s["cross_thread_frees"] or 0) / max(s["frees"] or 0, 1) for s in (a, b)]
    by_size = _lifetimes_ks(lifetimes(real), lifetimes(synthetic))
    tv, ks = _sizes(real, synthetic)
    curves = []
    for trace, summary in ((real, a), (synthetic, b)):
        line = timeline(trace, _POINTS, progress=False)
        at = np.interp(
            np.arange(1, _POINTS + 1) / _POINTS,
            line["event"] / len(trace),
            line["live_bytes"].astype(np.float64),
        )
        curves.append(at / max(summary["peak_live_bytes"] or 0, 1))
    return {
        "ops_tv": _rounded(np.abs(ops[0] - ops[1]).sum() / 2),
        "sizes_tv": tv,
        "sizes_ks": ks,
        "lifetimes_ks": by_size,
        "lifetimes_ks_most": max(by_size.values()),
        "live_bytes_difference": _rounded(np.abs(curves[0] - curves[1]).max()),
        "peak_ratio": _ratio(a["peak_live_bytes"], b["peak_live_bytes"]),
        "end_ratio": _ratio(a["live_bytes_end"], b["live_bytes_end"]),
        "cross_thread_difference": _rounded(abs(crossed[0] - crossed[1])),
        "arena_calls_ratio": _arena(real, synthetic),
        "wastage_ratio": _wastage(real, synthetic),
    }


def _rounded(value: float) -> float:
    # Sums in another order differ in the last digits, which nobody is to compare.
    return round(float(value), 9)


def _ratio(real: float | None, synthetic: float | None) -> float | None:
    return _rounded((synthetic or 0) / real) if real else None


def _sizes(real: Trace, synthetic: Trace) -> tuple[float, float]:
    parts = []
    for trace in (real, synthetic):
        asked = (trace.op == OP_ALLOC) | (trace.op == OP_REALLOC)
        parts.append(_histogram(trace.size_bytes[asked]))
    every = np.union1d(parts[0][0], parts[1][0])
    shares = []
    for sizes, counts in parts:
        share = np.zeros(len(every))
        share[np.searchsorted(every, sizes)] = counts / counts.sum()
        shares.append(share)
    difference = shares[0] - shares[1]
    return (
        _rounded(np.abs(difference).sum() / 2),
        _rounded(np.abs(np.cumsum(difference)).max()),
    )


def _lifetimes_ks(real: Lifetimes, synthetic: Lifetimes) -> dict[str, float]:
    """Return the largest difference of survival in each tenth of the sizes, by its upper size."""
    sizes = np.sort(real["size_bytes"])
    cuts = np.unique(sizes[[len(sizes) * k // 10 for k in range(1, 10)] + [len(sizes) - 1]])
    found = {}
    for k, cut in enumerate(cuts.tolist()):
        low = int(cuts[k - 1]) if k else -1
        last = k == len(cuts) - 1
        curves = [
            _survival_in(lives, low, math.inf if last else cut) for lives in (real, synthetic)
        ]
        found[str(cut)] = _largest_difference(*curves)
    return found


_Curve = tuple[npt.NDArray[Any], npt.NDArray[np.float64], float]


def _survival_in(lives: Lifetimes, low: int, high: float) -> _Curve:
    """Return times, survival, and how long anything was seen, of the sizes in (low, high]."""
    sizes = lives["size_bytes"]
    inside = (sizes > low) & (sizes <= high)
    part = Lifetimes({name: lives[name][inside] for name in lives.columns}, {})
    seen = float(part["lifetime_events"].max()) if len(part) else -1.0
    return *part.survival("events"), seen


def _largest_difference(real: _Curve, synthetic: _Curve) -> float:
    # Beyond what both have seen nothing is known.
    seen = min(real[2], synthetic[2])
    if seen < 0:
        return 1.0
    every = np.union1d(real[0], synthetic[0])
    every = every[every <= seen]
    if not len(every):
        return 0.0
    values = []
    for times, survival, _ in (real, synthetic):
        place = np.searchsorted(times, every, side="right")
        values.append(np.concatenate(([1.0], survival))[place])
    return _rounded(np.abs(values[0] - values[1]).max())


def _arena(real: Trace, synthetic: Trace) -> dict[str, float | None]:
    from pyallocx.arena import Arena
    from pyallocx.sweep import sweep

    calls = []
    for trace in (real, synthetic):
        result = sweep(Arena, trace, retain_bytes=list(_RETAIN), progress=False)
        calls.append(result["list_calls"] / len(trace))
    return {
        str(retain): _ratio(float(a), float(b))
        for retain, a, b in zip(_RETAIN, *calls, strict=True)
    }


def _wastage(real: Trace, synthetic: Trace) -> float | None:
    from pyallocx.fit import wastage
    from pyallocx.presets import preset

    classes = preset(_CLASSES)
    shares = [wastage(classes, trace).percent for trace in (real, synthetic)]
    return _ratio(shares[0], shares[1])
