"""Profiles as the core takes them: sizes that rise, and how often each was asked for."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from pyallocx._sizes import MAX_BYTES

U64 = npt.NDArray[np.uint64]
F64 = npt.NDArray[np.float64]

WEIGHTS = ("count", "equal", "bytes")


class Histogram(NamedTuple):
    """Sizes, strictly rising, shape (N,), uint64; and counts above 0, shape (N,), float64."""

    sizes: U64
    counts: F64


def is_profile(thing: Any) -> bool:
    """Tell whether something is one profile, not a sequence of them.

    A tuple of two is a profile unless its members are: `(sizes, counts)`.
    """
    if isinstance(thing, Mapping) or hasattr(thing, "sizes") or hasattr(thing, "profile"):
        return True
    if isinstance(thing, tuple) and len(thing) == 2:
        return not any(is_profile(member) for member in thing)
    return False


def as_histogram(thing: Any) -> Histogram:
    """Return the sizes and counts of a profile, a trace, a pair or a dict."""
    if isinstance(thing, Histogram):
        return thing
    if hasattr(thing, "profile"):
        thing = thing.profile()
    if hasattr(thing, "sizes") and hasattr(thing, "counts"):
        sizes, counts = thing.sizes, thing.counts
    elif isinstance(thing, Mapping):
        sizes, counts = list(thing), list(thing.values())
    elif isinstance(thing, tuple) and len(thing) == 2:
        sizes, counts = thing
    else:
        raise TypeError(
            "a profile has sizes and counts, is a pair of them, or a dict of size to count, "
            f"not {type(thing).__name__}"
        )
    given = np.asarray(sizes)
    number = np.asarray(counts)
    if given.ndim != 1 or number.shape != given.shape:
        raise ValueError(f"sizes of shape {given.shape} and counts of shape {number.shape}")
    if len(given) == 0:
        raise ValueError("the profile is empty")
    if given.dtype.kind not in "iu" or number.dtype.kind not in "iuf":
        raise TypeError(
            f"sizes must be whole numbers and counts numbers: {given.dtype}, {number.dtype}"
        )
    # Of a signed array, negative sizes become huge ones.
    whole = np.ascontiguousarray(given, dtype=np.uint64)
    weight = np.ascontiguousarray(number, dtype=np.float64)
    if int(whole.max()) > MAX_BYTES:
        worst = given[int(whole.argmax())]
        raise ValueError(f"size {worst} is out of range, allowed is 0 to {MAX_BYTES}")
    # min and max are NaN where a count is.
    if not (weight.min() > 0 and weight.max() < np.inf):
        at = int(np.flatnonzero(~((weight > 0) & (weight < np.inf)))[0])
        raise ValueError(
            f"size {given[at]} has count {number[at]}, which must be above 0 and finite"
        )
    if not (whole[1:] > whole[:-1]).all():
        distinct, place = np.unique(whole, return_inverse=True)
        total = np.bincount(place.reshape(-1), weights=weight, minlength=len(distinct))
        return Histogram(distinct, total.astype(np.float64))
    return Histogram(whole, weight)


def rounded(sizes: U64, align: int) -> U64:
    """Return sizes rounded up to a power of two."""
    return (sizes + np.uint64(align - 1)) & np.uint64(2**64 - align)


def combined(profiles: Sequence[Histogram], weights: str | Sequence[float]) -> Histogram:
    """Return one profile of several; see `fit` for the weights."""
    if not profiles:
        raise ValueError("there are no profiles")
    factors = factors_of(profiles, weights)
    sizes = np.concatenate([profile.sizes for profile in profiles])
    pairs = zip(profiles, factors, strict=True)
    counts = np.concatenate([profile.counts * factor for profile, factor in pairs])
    return as_histogram((sizes, counts))


def factors_of(profiles: Sequence[Histogram], weights: str | Sequence[float]) -> F64:
    """Return what each profile's counts are multiplied by, shape (P,), float64."""
    if isinstance(weights, str):
        if weights not in WEIGHTS:
            raise ValueError(
                f"weights is {weights!r}, allowed are {', '.join(WEIGHTS)} or one number a profile"
            )
        if weights == "count" or len(profiles) == 1:
            return np.ones(len(profiles))
        totals = np.array(
            [
                float(p.counts.sum())
                if weights == "equal"
                else float((p.counts * p.sizes.astype(np.float64)).sum())
                for p in profiles
            ]
        )
        if not totals.all():
            raise ValueError("weights is 'bytes', but a profile asks for no bytes at all")
        return np.asarray(totals.mean() / totals, dtype=np.float64)
    factors = np.asarray(weights, dtype=np.float64)
    if factors.shape != (len(profiles),):
        raise ValueError(f"{len(factors)} weights for {len(profiles)} profiles")
    if not (np.isfinite(factors) & (factors > 0)).all():
        raise ValueError(f"weights must be above 0 and finite, got {list(weights)}")
    return factors
