"""What the systems that can be swept share: checks of values, and driving a replay to its end."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

from pyallocx.sweep import Control, Parameter
from pyallocx.units import parse_count

__all__ = ["FAIL_AT", "drive", "one_of", "power_of_two", "validated", "whole"]

# Events of the first slice; later ones are fitted to the time that a slice may take, so that a bar
# moves and Ctrl-C is heard. Where events can become slow all of a sudden, a replay ends its slice
# early by itself.
_SLICE_EVENTS = 1 << 16
_SLICE_SECONDS = 0.05


class _Replay(Protocol):
    def step(self, events: int, /) -> int: ...


def drive(replay: _Replay, events: int, control: Control | None) -> None:
    """Replay all events, a slice at a time; report each slice and hear about a cancellation."""
    left, slice_events = events, _SLICE_EVENTS
    while left:
        started = time.perf_counter()
        before, left = left, replay.step(slice_events)
        if time.perf_counter() - started < _SLICE_SECONDS:
            # What ends its slices by itself never takes long, so there is an end to doubling.
            slice_events = min(2 * slice_events, max(events, _SLICE_EVENTS))
        elif slice_events > 1:
            slice_events //= 2
        if control is not None:
            control.advance(before - left)
            control.check()


def whole(
    low: int, high: int, *, infinite: bool = False, missing: bool = False
) -> Callable[[object], object]:
    """Return a check for whole numbers of a range, and infinity or None where they are allowed."""

    def check(value: object) -> object:
        if missing and value is None:
            return None
        if infinite and isinstance(value, float) and value == math.inf:
            return math.inf
        if isinstance(value, float) and value.is_integer():
            value = int(value)
        if isinstance(value, bool) or not isinstance(value, int):
            raise TypeError(f"{value!r} is not a whole number{' or inf' if infinite else ''}")
        if not low <= value <= high:
            end = f"{high}, or inf" if infinite else f"{high}"
            raise ValueError(f"{value} is out of range, allowed is {low} to {end}")
        return value

    return check


#: Which call of a replay to the system fails.
FAIL_AT = Parameter("fail_at", 0, parse_count, "call to fail", check=whole(0, 2**64 - 1))


def one_of(*allowed: int) -> Callable[[object], object]:
    """Return a check for one of a few numbers."""

    def check(value: object) -> object:
        if isinstance(value, bool) or value not in allowed:
            raise ValueError(f"{value!r} is not one of {', '.join(map(str, allowed))}")
        return value

    return check


def power_of_two(low: int, high: int) -> Callable[[object], object]:
    """Return a check for the powers of two of a range."""
    in_range = whole(low, high)

    def check(value: object) -> object:
        number = in_range(value)
        if isinstance(number, int) and number & (number - 1):
            raise ValueError(f"{number} is no power of two, allowed are those of {low} to {high}")
        return number

    return check


def validated(
    system: str, parameters: Sequence[Parameter], given: Mapping[str, object]
) -> dict[str, Any]:
    """Return the values that were given, normalised.

    Raises
    ------
    TypeError, ValueError
        For a name that is none of the parameters', or a value that is not allowed.
    """
    known = {parameter.name: parameter for parameter in parameters}
    unknown = [name for name in given if name not in known]
    if unknown:
        raise TypeError(f"{system} has no parameter {unknown[0]!r}; it has: {', '.join(known)}")
    return {name: known[name].validate(value) for name, value in given.items()}
