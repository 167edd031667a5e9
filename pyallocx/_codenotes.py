"""What a reader of a code sweep must know and no number says: for the lines under the table."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from pyallocx._core import CODE_POLICIES
from pyallocx.answer import parameters_of
from pyallocx.table import SweepResult
from pyallocx.units import counted

__all__ = ["LEAST_LIMITS", "USED_BY", "notes"]

_HISTORICAL = tuple(CODE_POLICIES[:6])
_SIZED = tuple(CODE_POLICIES[6:])
_LIMITED = ("halving", "halving_payload", "byte_limit")

_HISTORICAL_HEADER = 40

#: Smallest byte limits with which a policy's two pieces are always large enough, from header H and
#: minimum payload M (found by going through all of them).
LEAST_LIMITS: Mapping[str, Callable[[int, int], int]] = {
    "byte_limit": lambda h, m: h + 2 * m - 1,
    "halving": lambda h, m: h + 2 * m,
    "halving_payload": lambda h, m: max(3 * h + 2 * m - 3, h + 2 * m - 1, 2 * m - h),
}

#: The policies whose replay a parameter changes, for parameters that not all use.
USED_BY: Mapping[str, tuple[str, ...]] = {
    "byte_limit": _LIMITED,
    "min_hole": _HISTORICAL,
    "pointer_bytes": _HISTORICAL,
    "jump_bytes": _HISTORICAL,
    "granule_bytes": _SIZED,
    "min_rest_bytes": ("first_fit", "best_fit", "segregated"),
    "partitions": ("partition",),
    "max_code_bytes": ("bump",),
}


def notes(result: SweepResult) -> list[str]:
    """Return a sentence for each thing about these rows that is easily overlooked."""
    measured = [(i, parameters_of(result, i)) for i in result._ok_indices()]
    return [*_unused(result, measured), *_unlimited(result, measured), *_too_low(result, measured)]


def _unused(result: SweepResult, measured: list[tuple[int, dict[str, Any]]]) -> list[str]:
    lines = []
    for name, users in USED_BY.items():
        if name not in result.grid_keys:
            continue
        named = [(i, p) for i, p in measured if result._columns[name][i] is not None]
        ignoring = list(dict.fromkeys(p["policy"] for _, p in named if p["policy"] not in users))
        values = {str(p[name]) for _, p in named if p["policy"] in ignoring}
        several = len(values) > 1
        # One value for all policies is not worth a word, unless nobody looks at it.
        if not ignoring or not (several or all(p["policy"] in ignoring for _, p in named)):
            continue
        who = (
            f"used by {_listed(users)} only"
            if len(users) <= 3
            else f"not used by {_listed(ignoring)}"
        )
        same = f": rows of {_listed(ignoring)} that differ in it alone are the same"
        lines.append(f"{name} is {who}{same if several else ''}.")
    return lines


def _unlimited(result: SweepResult, measured: list[tuple[int, dict[str, Any]]]) -> list[str]:
    found = {
        p["policy"]: None for _, p in measured if p["policy"] in _LIMITED and not p["byte_limit"]
    }
    if not found:
        return []
    noun = "is" if len(found) == 1 else "are"
    return [f"With byte_limit 0, {_listed(list(found))} {noun} the same as whole_block."]


def _too_low(result: SweepResult, measured: list[tuple[int, dict[str, Any]]]) -> list[str]:
    lines = []
    for policy in _LIMITED:
        rows = {}
        for index, known in measured:
            if known["policy"] == policy and known["byte_limit"]:
                header = known["header_bytes"]
                header = _HISTORICAL_HEADER if header is None else header
                bound = LEAST_LIMITS[policy](header, known["min_payload_bytes"])
                if known["byte_limit"] < bound:
                    rows[index] = bound, header, known["min_payload_bytes"]
        if not rows:
            continue
        bound, header, least = next(iter(rows.values()))
        wrong = [i for i in rows if result._columns["undersized_blocks"][i]]
        happened = (
            f"{len(wrong)} of them handed out blocks below min_payload_bytes (undersized_blocks)"
            if wrong
            else "it happened to go well here"
        )
        lines.append(
            f"Wrong: {policy} is right for a byte_limit of {bound} B and more (with header_bytes "
            f"{header}, min_payload_bytes {least}); {counted(len(rows), 'row')} with less, "
            f"{happened}. px.testing.find_split_failure shows what goes wrong."
        )
    return lines


def _listed(names: Any) -> str:
    *most, last = names
    return f"{', '.join(most)} and {last}" if most else str(last)
