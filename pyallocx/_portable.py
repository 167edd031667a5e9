"""Random numbers and elementary functions that give the same bits everywhere.

NumPy promises the raw output of a bit generator and the state that a ``SeedSequence`` gives it,
but not the streams of its distributions (NEP 19), nor the last bits of ``log`` and ``exp``, which
differ between its vector kernels, the C libraries and the processors. A synthetic trace is quoted
in papers and bug reports by its seed, so it must not move with any of them: here everything is
made of raw output and of operations that IEEE 754 rounds exactly (``+ - * /``, ``sqrt``,
``floor``, ``frexp``, ``ldexp``).
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable

import numpy as np
import numpy.typing as npt

F64 = npt.NDArray[np.float64]
I64 = npt.NDArray[np.int64]

LN2 = 0.6931471805599453
# ln 2 in two parts: the first has 21 trailing zero bits, so that k times it is exact for
# |k| < 2**20.
LN2_HIGH = float.fromhex("0x1.62e42feep-1")
LN2_LOW = float.fromhex("0x1.a39ef35793c76p-33")


class Stream:
    """One independent stream of random numbers.

    Parameters
    ----------
    seed
        Seed of the whole trace, an int >= 0.
    number
        Which of the seed's streams. A quantity has a stream of its own, so that a change of one
        parameter leaves the draws of the others as they were.
    """

    def __init__(self, seed: int, number: int) -> None:
        self._bits = np.random.PCG64(np.random.SeedSequence(seed, spawn_key=(number,)))

    def uniform(self, n: int) -> F64:
        """`n` numbers in the open interval (0, 1): odd multiples of 2**-53, all equally likely."""
        raw: npt.NDArray[np.uint64] = self._bits.random_raw(n)
        # 52 bits and a half: with 53 the largest would round to 1.
        return ((raw >> np.uint64(12)).astype(np.float64) + 0.5) * 2.0**-52

    def below(self, n: int, bounds: int | I64) -> I64:
        """`n` integers, each at least 0 and less than its bound (below 2**48)."""
        return np.floor(self.uniform(n) * bounds).astype(np.int64)

    def exponential(self, n: int) -> F64:
        """`n` exponentially distributed numbers with mean 1."""
        return -log(self.uniform(n))


def _blockwise(function: Callable[[F64], F64]) -> Callable[[F64], F64]:
    """Call `function` on blocks that stay in the cache: ten times as fast on long arrays."""

    @functools.wraps(function)
    def wrapper(x: F64) -> F64:
        out = np.empty_like(x)
        for start in range(0, x.size, 1 << 14):
            out[start : start + (1 << 14)] = function(x[start : start + (1 << 14)])
        return out

    return wrapper


def _polynomial(x: F64, coefficients: tuple[float, ...]) -> F64:
    """Value at `x` of the polynomial with these `coefficients`, the constant first (Horner)."""
    value = np.full_like(x, coefficients[-1])
    for coefficient in coefficients[-2::-1]:
        value *= x
        value += coefficient
    return value


# ln m = 2 artanh s with s = (m - 1) / (m + 1); for m in [sqrt(1/2), sqrt(2)) |s| <= 0.172, and the
# first term left out is below 2**-60.
_ARTANH = tuple(2.0 / (2 * k + 1) for k in range(11))
# exp r on |r| <= ln(2) / 2; the first term left out is below 2**-65.
_EXP = tuple(1.0 / math.factorial(k) for k in range(15))


@_blockwise
def log(x: F64) -> F64:
    """Natural logarithm of positive, normal numbers, right to a few units in the last place."""
    mantissa, exponent = np.frexp(x)
    low = mantissa < math.sqrt(0.5)
    mantissa = np.where(low, 2.0 * mantissa, mantissa)
    k = (exponent - low).astype(np.float64)
    s = (mantissa - 1.0) / (mantissa + 1.0)
    return k * LN2_HIGH + (k * LN2_LOW + s * _polynomial(s * s, _ARTANH))


@_blockwise
def exp(x: F64) -> F64:
    """Exponential of numbers between -700 and 700, right to a few units in the last place."""
    k = np.floor(x / LN2 + 0.5)
    r = (x - k * LN2_HIGH) - k * LN2_LOW
    return np.ldexp(_polynomial(r, _EXP), k.astype(np.int32))


# Wichura, M. J. (1988), Algorithm AS 241: The percentage points of the normal distribution, Applied
# Statistics 37, 477-484, routine PPND16: numerators and denominators for the middle (|p - 1/2| <=
# 0.425), the tails (sqrt(-ln p) <= 5) and the far tails.
_MIDDLE = (
    (
        3.3871328727963666080e0,
        1.3314166789178437745e2,
        1.9715909503065514427e3,
        1.3731693765509461125e4,
        4.5921953931549871457e4,
        6.7265770927008700853e4,
        3.3430575583588128105e4,
        2.5090809287301226727e3,
    ),
    (
        1.0,
        4.2313330701600911252e1,
        6.8718700749205790830e2,
        5.3941960214247511077e3,
        2.1213794301586595867e4,
        3.9307895800092710610e4,
        2.8729085735721942674e4,
        5.2264952788528545610e3,
    ),
)
_TAIL = (
    (
        1.42343711074968357734e0,
        4.63033784615654529590e0,
        5.76949722146069140550e0,
        3.64784832476320460504e0,
        1.27045825245236838258e0,
        2.41780725177450611770e-1,
        2.27238449892691845833e-2,
        7.74545014278341407640e-4,
    ),
    (
        1.0,
        2.05319162663775882187e0,
        1.67638483018380384940e0,
        6.89767334985100004550e-1,
        1.48103976427480074590e-1,
        1.51986665636164571966e-2,
        5.47593808499534494600e-4,
        1.05075007164441684324e-9,
    ),
)
_FAR_TAIL = (
    (
        6.65790464350110377720e0,
        5.46378491116411436990e0,
        1.78482653991729133580e0,
        2.96560571828504891230e-1,
        2.65321895265761230930e-2,
        1.24266094738807843860e-3,
        2.71155556874348757815e-5,
        2.01033439929228813265e-7,
    ),
    (
        1.0,
        5.99832206555887937690e-1,
        1.36929880922735805310e-1,
        1.48753612908506148525e-2,
        7.86869131145613259100e-4,
        1.84631831751005468180e-5,
        1.42151175831644588870e-7,
        2.04426310338993978564e-15,
    ),
)


def _ratio(x: F64, fraction: tuple[tuple[float, ...], tuple[float, ...]]) -> F64:
    return _polynomial(x, fraction[0]) / _polynomial(x, fraction[1])


@_blockwise
def normal_quantile(p: F64) -> F64:
    """Return standard normal quantiles of probabilities in the open interval (0, 1), by AS 241."""
    q = p - 0.5
    z = q * _ratio(0.180625 - q * q, _MIDDLE)
    outside = np.flatnonzero(np.abs(q) > 0.425)
    if outside.size:
        q = q[outside]
        tail = p[outside]
        r = np.sqrt(-log(np.minimum(tail, 1.0 - tail)))
        magnitude = _ratio(r - 1.6, _TAIL)
        far = np.flatnonzero(r > 5.0)
        magnitude[far] = _ratio(r[far] - 5.0, _FAR_TAIL)
        z[outside] = np.where(q < 0.0, -magnitude, magnitude)
    return z
