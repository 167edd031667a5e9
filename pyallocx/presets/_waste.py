"""The figure of the league table: internal fragmentation as a share of what was asked for."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt


def waste_percent(
    classes: Sequence[int],
    header_bytes: int,
    sizes: npt.ArrayLike,
    counts: npt.ArrayLike,
    largest: int = 65536,
    cap_bytes: float | None = None,
) -> float:
    """Return how many bytes a table wastes, in percent of the bytes asked for.

    The waste of a request is its class size less header and request: without page rounding, slab
    tails, caches. A size above every class counts neither here nor there.

    Parameters
    ----------
    classes
        Class sizes in bytes, strictly increasing.
    header_bytes
        Bytes of each class that are the header's.
    sizes, counts
        A profile: request sizes in bytes, and how often each was asked for.
    largest
        Bytes; requests above are left out, as are those above the largest class.
    cap_bytes
        A request wastes no more than this; None: no limit. (`pyallocx.fit` and `pyallocx.wastage`
        cap by default, at two pages.)

    Returns
    -------
    float
        Percent; 0 for a profile of which nothing is left.

    Examples
    --------
    >>> waste_percent([16, 32], 0, [12, 32], [1, 1])
    9.090909090909092
    """
    asked: npt.NDArray[Any] = np.asarray(sizes, dtype=np.int64)
    weights = np.asarray(counts, dtype=np.float64)
    usable = np.asarray(classes, dtype=np.int64) - header_bytes
    kept = asked <= min(largest, usable[-1])
    asked, weights = asked[kept], weights[kept]
    given = usable[np.searchsorted(usable, asked)]
    total = float(weights @ asked)
    wasted = given - asked if cap_bytes is None else np.minimum(given - asked, cap_bytes)
    return 100 * float(weights @ wasted) / total if total else 0.0
