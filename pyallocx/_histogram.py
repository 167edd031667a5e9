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
    return histogram_of(sizes, counts)


def histogram_of(sizes: npt.ArrayLike, counts: npt.ArrayLike) -> Histogram:
    """Check sizes and counts, in any order, and add up the counts of equal sizes.

    Arrays that are in order already are returned as they are, and not copied.
    """
    whole = _whole_sizes(sizes)
    weights = _positive_counts(counts, whole)
    if not len(whole):
        raise ValueError("the profile is empty: it needs at least one size")
    if (whole[1:] > whole[:-1]).all():
        return Histogram(whole, weights)
    distinct, place = np.unique(whole, return_inverse=True)
    with np.errstate(over="ignore"):
        totals = np.bincount(place.reshape(-1), weights=weights, minlength=len(distinct))
    return Histogram(distinct, totals.astype(np.float64))


def _whole_sizes(sizes: npt.ArrayLike) -> U64:
    array = np.asarray(sizes)
    if array.ndim != 1:
        raise ValueError(f"sizes has {array.ndim} dimensions, expected 1")
    if array.dtype.kind not in "ui" and array.size:
        # Large Python integers arrive as objects or floats; they are read again as they are.
        items = np.asarray(sizes, dtype=object)
        if not all(isinstance(i, (int, np.integer)) and not isinstance(i, bool) for i in items):
            raise TypeError(f"sizes has dtype {array.dtype}, expected integers")
        array = items
    if array.size and (array.max() > MAX_BYTES or array.min() < 0):
        at = int(np.argmax((array < 0) | (array > MAX_BYTES)))
        raise ValueError(f"size {array[at]} is outside 0 to 2**48 bytes")
    return np.ascontiguousarray(array, dtype=np.uint64)


def _positive_counts(counts: npt.ArrayLike, sizes: U64) -> F64:
    given = np.asarray(counts)
    if given.dtype.kind not in "iufO":
        raise TypeError(f"counts has dtype {given.dtype}, expected numbers")
    try:
        array = np.ascontiguousarray(given, dtype=np.float64)
    except OverflowError:
        raise ValueError("a count does not fit a float") from None
    if array.shape != sizes.shape:
        raise ValueError(f"counts has shape {array.shape}, expected {sizes.shape} as sizes")
    # min and max are NaN where a count is.
    if array.size and not (array.min() > 0 and array.max() < np.inf):
        at = int(np.argmax(~((array > 0) & (array < np.inf))))
        raise ValueError(
            f"the count of size {sizes[at]} is {array[at]:g}, expected a finite number above 0"
        )
    return array


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


def check_factor(factor: float) -> float:
    """Return a factor of counts as a float, which must be finite and above 0."""
    value = float(factor)
    if not (np.isfinite(value) and value > 0):
        raise ValueError(f"weights: a factor is {factor}, expected a finite number above 0")
    return value


def factors_of(profiles: Sequence[Any], weights: str | Sequence[float]) -> F64:
    """Return what each profile's counts are multiplied by, shape (P,), float64."""
    if isinstance(weights, str):
        if weights not in WEIGHTS:
            raise ValueError(
                f"weights is {weights!r}, allowed are {', '.join(map(repr, WEIGHTS))} or a factor "
                "for each profile"
            )
        if weights == "count" or len(profiles) == 1:
            return np.ones(len(profiles))
        totals = np.array(
            [
                float((p.counts if weights == "equal" else p.counts * p.sizes).sum())
                for p in profiles
            ]
        )
        if not totals.all():
            at = int(np.argmin(totals))
            name = getattr(profiles[at], "name", "") or f"profile {at + 1}"
            raise ValueError(f"{name} requests no bytes, so that weights='bytes' has no scale")
        # Divided first: the sum of totals near 1e308 is no float.
        mean = float((totals / len(totals)).sum())
        return np.array([check_factor(mean / total) for total in totals])
    factors = np.array([check_factor(factor) for factor in weights])
    if len(factors) != len(profiles):
        raise ValueError(f"{len(factors)} weights for {len(profiles)} profiles, expected as many")
    return factors
