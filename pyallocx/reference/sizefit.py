"""The plain-Python twin of `pyallocx.fit`: the definition, a quadratic solver, and all subsets.

Nothing here knows why the search can be fast. Costs are fractions, so that nothing is rounded.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from fractions import Fraction
from itertools import combinations

__all__ = ["best_classes", "best_of_all_subsets", "grid", "span", "wastage"]

Cost = Callable[[int], Fraction]


def significant_bits(number: int) -> int:
    """Return the bits from the highest to the lowest 1."""
    return len(bin(number)[2:].rstrip("0")) if number else 0


def grid(
    largest: int,
    *,
    align: int = 16,
    header: int = 0,
    bits: int | None = None,
    steps: Sequence[tuple[int | None, int]] = (),
    lowest: range | None = None,
) -> list[int]:
    """Return all classes up to `largest` that the constraints allow."""

    def allowed(size: int) -> bool:
        step = next((step for end, step in steps if end is None or size <= end), 1)
        return (
            size % step == 0
            and (bits is None or significant_bits(size - header) <= bits)
            and (lowest is None or len(bin(size)) - len(bin(size).rstrip("0")) in lowest)
        )

    return [size for size in range(align, largest + 1, align) if size > header and allowed(size)]


def span(
    size: int,
    *,
    page: int,
    max_tail: Fraction,
    max_pages: int,
    move_bytes: int = 0,
    fallback: str = "cheapest",
) -> Fraction:
    """Return what an object of a class costs: the bytes of its span over the objects in it."""
    least = max(1, min(max(move_bytes // size, 2), 32) // 4) if move_bytes else 1
    first = -(-size // page)
    costs = []
    for pages in range(first, max(first, max_pages) + 1):
        objects, tail = divmod(pages * page, size)
        costs.append(Fraction(pages * page, objects))
        if tail <= max_tail * pages * page and objects >= least:
            return costs[-1]
    return costs[-1] if fallback == "largest" else min(costs)


def wastage(
    classes: Iterable[int],
    profile: Mapping[int, Fraction | int],
    *,
    header: int = 0,
    cap: int | None = None,
    cost: Cost = Fraction,
) -> Fraction:
    """Return what a table wastes: size by size, no sums shared."""
    rising = sorted(classes)
    total = Fraction(0)
    for size, count in profile.items():
        need = size + header
        holds = [c for c in rising if c >= need]
        if holds:
            waste = cost(holds[0]) - need
            total += count * (waste if cap is None else min(waste, Fraction(cap)))
    return total


def best_classes(
    candidates: Sequence[int],
    profile: Mapping[int, Fraction | int],
    k: int,
    *,
    forced: Iterable[int] = (),
    header: int = 0,
    cap: int | None = None,
    cost: Cost = Fraction,
) -> tuple[Fraction, list[int]]:
    """Return the least wastage of at most k candidates, the last among them, and the candidates.

    least[j] is that of the sizes up to candidate j, it being the last of as many classes as there
    were rounds.
    """
    must = set(forced) | {candidates[-1]}

    def edge(i: int, j: int) -> Fraction | float:
        """Return the cost of the sizes above candidate i and up to candidate j, served by j."""
        below = candidates[i] if i >= 0 else -1
        if any(below < size < candidates[j] for size in must):
            return math.inf
        own = {s: n for s, n in profile.items() if below < s + header <= candidates[j]}
        return wastage([candidates[j]], own, header=header, cap=cap, cost=cost)

    m = len(candidates)
    edges = {(i, j): edge(i, j) for j in range(m) for i in range(-1, j)}
    least: list[tuple[Fraction | float, list[int]]] = [(edges[-1, j], [j]) for j in range(m)]
    best = least[-1]
    for _ in range(1, k):
        least = [
            min(
                ((least[i][0] + edges[i, j], [*least[i][1], j]) for i in range(j)),
                default=(math.inf, []),
                key=lambda one: one[0],
            )
            for j in range(m)
        ]
        best = min(best, least[-1], key=lambda one: one[0])
    value, path = best
    if not isinstance(value, Fraction):
        raise ValueError("no table has all that is forced")
    return value, [candidates[j] for j in path]


def best_of_all_subsets(
    candidates: Sequence[int],
    profile: Mapping[int, Fraction | int],
    k: int,
    *,
    forced: Iterable[int] = (),
    header: int = 0,
    cap: int | None = None,
    cost: Cost = Fraction,
) -> Fraction:
    """Return the least wastage, by looking at every table there is."""
    must = {*forced, candidates[-1]}
    others = [size for size in candidates if size not in must]
    return min(
        wastage([*must, *some], profile, header=header, cap=cap, cost=cost)
        for n in range(min(k - len(must), len(others)) + 1)
        for some in combinations(others, n)
    )
