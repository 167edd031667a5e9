"""Distributions of request sizes, and the checks of arguments that the models of `synth` share."""

from __future__ import annotations

import math
import operator
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import SupportsFloat, SupportsIndex

import numpy as np

from pyallocx._portable import F64, I64, exp, log, normal_quantile
from pyallocx.trace import OP_ALLOC, Trace

MAX_BYTES = 1 << 48  # as large as an address space, and exact in a float64


def integer(name: str, value: SupportsIndex, low: int, high: int) -> int:
    """`value` as an int between `low` and `high`, or an error that names it."""
    try:
        number = operator.index(value)
    except TypeError:
        raise TypeError(f"{name} must be an integer, got {value!r}") from None
    if not low <= number <= high:
        raise ValueError(f"{name} must be between {low} and {high}, got {number}")
    return number


def real(name: str, value: SupportsFloat, low: float, high: float) -> float:
    """`value` as a float between `low` and `high`, or an error that names it."""
    try:
        number = float(value)
    except (TypeError, ValueError):
        raise TypeError(f"{name} must be a number, got {value!r}") from None
    if not low <= number <= high:  # false for NaN too
        raise ValueError(f"{name} must be between {low} and {high}, got {number}")
    return number


def in_order(low_name: str, low: int, high_name: str, high: int) -> None:
    if low > high:
        raise ValueError(f"{low_name} must be at most {high_name} ({high}), got {low}")


@dataclass(frozen=True)
class Fixed:
    """Every request has the same size.

    Parameters
    ----------
    size_bytes
        From 1 to 2**48.
    """

    size_bytes: int = 64

    def __post_init__(self) -> None:
        integer("size_bytes", self.size_bytes, 1, MAX_BYTES)

    def quantile(self, u: F64) -> I64:
        """Sizes, bytes, at the probabilities `u`."""
        return np.full(u.shape, self.size_bytes, dtype=np.int64)


@dataclass(frozen=True)
class Uniform:
    """All sizes from `low_bytes` to `high_bytes`, both included, are equally likely.

    Parameters
    ----------
    low_bytes, high_bytes
        From 1 to 2**48.
    """

    low_bytes: int = 16
    high_bytes: int = 1024

    def __post_init__(self) -> None:
        integer("low_bytes", self.low_bytes, 1, MAX_BYTES)
        integer("high_bytes", self.high_bytes, 1, MAX_BYTES)
        in_order("low_bytes", self.low_bytes, "high_bytes", self.high_bytes)

    def quantile(self, u: F64) -> I64:
        """Sizes, bytes, at the probabilities `u`."""
        return self.low_bytes + whole(u * (self.high_bytes - self.low_bytes + 1))


@dataclass(frozen=True)
class LogNormal:
    """The logarithm of the size is normally distributed: the usual first model of a heap.

    The size is ``median_bytes * exp(sigma * z)`` with a standard normal z, rounded to a whole
    number and held between 1 and `max_bytes`.

    Parameters
    ----------
    median_bytes
        From 1 to 2**48; need not be whole.
    sigma
        Standard deviation of the natural logarithm of the size, from 0 to 10.
    max_bytes
        Larger sizes become this one. From `median_bytes` to 2**48.
    """

    median_bytes: float = 64.0
    sigma: float = 1.0
    max_bytes: int = 1 << 20

    def __post_init__(self) -> None:
        real("median_bytes", self.median_bytes, 1, MAX_BYTES)
        real("sigma", self.sigma, 0, 10)
        integer("max_bytes", self.max_bytes, math.ceil(self.median_bytes), MAX_BYTES)

    def quantile(self, u: F64) -> I64:
        """Sizes, bytes, at the probabilities `u`."""
        size = self.median_bytes * exp(self.sigma * normal_quantile(u))
        return whole(np.clip(size + 0.5, 1.0, self.max_bytes))


@dataclass(frozen=True)
class PowerLaw:
    """Many small sizes and a heavy tail: the density falls as ``size ** -exponent``.

    The bounded Pareto distribution on [`min_bytes`, `max_bytes`], by inversion, rounded down.

    Parameters
    ----------
    min_bytes, max_bytes
        From 1 to 2**48.
    exponent
        From 1 (every octave is equally likely) to 10.
    """

    min_bytes: int = 16
    exponent: float = 2.0
    max_bytes: int = 1 << 20

    def __post_init__(self) -> None:
        integer("min_bytes", self.min_bytes, 1, MAX_BYTES)
        integer("max_bytes", self.max_bytes, 1, MAX_BYTES)
        in_order("min_bytes", self.min_bytes, "max_bytes", self.max_bytes)
        real("exponent", self.exponent, 1, 10)

    def quantile(self, u: F64) -> I64:
        """Sizes, bytes, at the probabilities `u`."""
        (log_span,) = log(np.array([self.max_bytes / self.min_bytes]))
        a = self.exponent - 1.0
        # 1 - (min/max)**a; where it vanishes against u the distribution is log-uniform.
        reach = 1.0 - exp(np.array([max(-a * log_span, -700.0)]))[0]
        ratio = exp(u * log_span if reach < 1e-9 else log(1.0 - u * reach) * (-1.0 / a))
        return whole(np.clip(self.min_bytes * ratio, self.min_bytes, self.max_bytes))


@dataclass(frozen=True)
class Empirical:
    """Sizes as observed.

    Parameters
    ----------
    size_bytes
        The sizes, from 0 to 2**48; at least one.
    weights
        How likely each is, relative to the others, one finite number >= 0 for each size; at least
        one above 0. By default all are equally likely.

    Examples
    --------
    >>> sizes = Empirical([16, 48], weights=[3, 1])
    >>> from pyallocx import synthesize
    >>> trace = synthesize(10_000, sizes=sizes)
    >>> Empirical.of(trace).size_bytes
    (16, 48)
    """

    size_bytes: Sequence[int]
    weights: Sequence[float] | None = field(default=None, repr=False)

    def __post_init__(self) -> None:
        sizes = tuple(integer("size_bytes", size, 0, MAX_BYTES) for size in self.size_bytes)
        if not sizes:
            raise ValueError("size_bytes must hold at least one size, got none")
        weights = (1.0,) * len(sizes)
        if self.weights is not None:
            weights = tuple(real("weights", weight, 0, 1e300) for weight in self.weights)
        if len(weights) != len(sizes):
            raise ValueError(
                f"weights must be as many as the sizes ({len(sizes)}), got {len(weights)}"
            )
        if not any(weights):
            raise ValueError("weights must hold at least one number above 0, got none")
        object.__setattr__(self, "size_bytes", sizes)
        object.__setattr__(self, "weights", weights)

    @classmethod
    def of(cls, trace: Trace) -> Empirical:
        """Return the sizes of all allocations of `trace`, as often as they occur in it."""
        sizes, counts = np.unique(trace.size_bytes[trace.op == OP_ALLOC], return_counts=True)
        return cls(sizes.tolist(), counts.tolist())

    def quantile(self, u: F64) -> I64:
        """Sizes, bytes, at the probabilities `u`."""
        return np.array(self.size_bytes, dtype=np.int64)[choose(u, self.weights or ())]


def whole(x: F64) -> I64:
    return np.floor(x).astype(np.int64)


def choose(u: F64, weights: Sequence[float]) -> I64:
    """Index into `weights` for each of the probabilities `u`, each as likely as its weight."""
    # Divided first: the sum of weights near 1e300 is no float. accumulate adds from left to right,
    # where a sum would add in an order that NumPy chooses.
    limits = np.add.accumulate(np.array(weights, dtype=np.float64) / max(weights))
    index = np.searchsorted(limits, u * limits[-1], side="right")
    # The product may round up to the last limit: then it is the last of the weights above 0.
    last = max(i for i, weight in enumerate(weights) if weight > 0)
    chosen: I64 = np.minimum(index, last).astype(np.int64)
    return chosen
