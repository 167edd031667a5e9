"""What a preset is: a rule with knobs, checked, and the table that it gives."""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable, Iterator, Mapping
from difflib import get_close_matches
from itertools import count, islice
from types import MappingProxyType
from typing import Final, Literal, NamedTuple, SupportsIndex

#: The most classes that a map can have.
MOST_CLASSES: Final = 65534
#: The largest size that a class can have.
MOST_BYTES: Final = 1 << 48

Kind = Literal["flat", "fixed", "table"]


class PresetClasses(NamedTuple):
    """The size classes of an allocator, as its rule gives them.

    A request of r bytes needs ``roundup(r, align_bytes) + header_bytes`` bytes and gets the
    smallest class that holds them.

    Attributes
    ----------
    name : str
        The name of the preset.
    classes : tuple of int
        Class sizes in bytes, strictly increasing. They are what the program can use, except where
        `header_bytes` says that the header of a chunk is in them.
    header_bytes : int
        Bytes of each class that the program cannot use; 0 where `classes` are usable sizes.
    align_bytes : int
        What a request is rounded up to before the header is added.
    delta_bytes : int
        By how much the sizes are shifted against the grid of a scudo map; 0 elsewhere.
    kind : str
        The lookup that the classes are made for: ``fixed`` (logarithmic), ``table`` (a byte table
        behind the logarithm) or ``flat`` (any list).
    parameters : dict
        The values of all knobs; for ``fixed`` and ``table`` also ``num_bits``, ``min_size_log``,
        ``mid_size_log``, ``max_size_log``, and for scudo the limits of its caches.
    source : str
        Which allocator in which version, and where the classes are from.
    """

    name: str
    classes: tuple[int, ...]
    header_bytes: int
    align_bytes: int
    delta_bytes: int
    kind: Kind
    parameters: dict[str, int]
    source: str


class Knob(NamedTuple):
    """A number that a preset's rule can be turned by.

    Attributes
    ----------
    name : str
        The keyword.
    default : int or bool
        What the allocator has as it is shipped. A knob whose default is a bool takes bools.
    lowest, highest : int
        The range, both ends included.
    help : str
        What it is, with its unit.
    power_of_two : bool
        Whether only powers of two are values.
    """

    name: str
    default: int
    lowest: int
    highest: int
    help: str
    power_of_two: bool = False

    def check(self, preset: str, value: SupportsIndex) -> int:
        """Return the value as an int (or bool), or raise and say what is wrong with it."""
        switch = isinstance(self.default, bool)
        if isinstance(value, bool) != switch:
            wanted = "True or False" if switch else "a whole number"
            raise TypeError(f"{preset}: {self.name} must be {wanted}, got {value!r}")
        if switch:
            return value  # type: ignore[return-value]  # a bool
        try:
            number = operator.index(value)
        except TypeError:
            raise TypeError(
                f"{preset}: {self.name} must be a whole number, got {value!r}"
            ) from None
        if not self.lowest <= number <= self.highest:
            raise ValueError(
                f"{preset}: {self.name} must be from {self.lowest} to {self.highest}, got {number}"
            )
        if self.power_of_two and number & (number - 1):
            raise ValueError(f"{preset}: {self.name} must be a power of two, got {number}")
        return number


class Rule(NamedTuple):
    """How the classes of a preset are made, and what is fixed about them."""

    build: Callable[..., Iterable[int]]
    source: str
    knobs: tuple[Knob, ...] = ()
    header_bytes: int = 0
    align_bytes: int = 1
    kind: Kind = "flat"
    #: Parameters that are no knobs.
    fixed: Mapping[str, int] = MappingProxyType({})


def build(name: str, rule: Rule, given: Mapping[str, SupportsIndex]) -> PresetClasses:
    """Check the knobs of a rule and make its table."""
    values = settle(name, rule.knobs, given)
    try:
        # A list that is too long is noticed before it is made.
        classes = tuple(islice(rule.build(**values), MOST_CLASSES + 1))
    except ValueError as error:
        raise ValueError(f"{name}: {error}") from None
    if len(classes) > MOST_CLASSES:
        raise ValueError(f"{name}: these knobs give more than {MOST_CLASSES} classes")
    parameters = {**rule.fixed, **values}
    return PresetClasses(
        name=name,
        classes=classes,
        header_bytes=parameters.get("header_bytes", rule.header_bytes),
        align_bytes=parameters.get("align_bytes", rule.align_bytes),
        delta_bytes=parameters.get("delta_bytes", 0),
        kind=rule.kind,
        parameters=parameters,
        source=rule.source,
    )


def settle(
    name: str, knobs: tuple[Knob, ...], given: Mapping[str, SupportsIndex]
) -> dict[str, int]:
    """Return the value of every knob: the one that is given, checked, or else its default."""
    known = {knob.name: knob for knob in knobs}
    for word in given:
        if word not in known:
            there = ", ".join(known) if known else "none"
            raise TypeError(f"{name} has no knob {word!r}{_perhaps(word, known)}; knobs: {there}")
    return {
        word: knob.check(name, given[word]) if word in given else knob.default
        for word, knob in known.items()
    }


def unknown(name: object, names: Iterable[str]) -> str:
    """Return what to say about a name that is none of the presets."""
    names = tuple(names)
    return f"no preset {name!r}{_perhaps(str(name), names)}; presets: {', '.join(names)}"


def _perhaps(word: str, words: Iterable[str]) -> str:
    near = get_close_matches(word, list(words), 1)
    return f" (did you mean {near[0]!r}?)" if near else ""


def roundup(number: int, multiple: int) -> int:
    """Return the smallest multiple of `multiple` that is not below `number`."""
    return -(-number // multiple) * multiple


def upto(sizes: Iterable[int], largest: int) -> Iterator[int]:
    """Yield increasing sizes up to the first that holds `largest` bytes, that one included."""
    for size in sizes:
        yield size
        if size >= largest:
            return


def multiples(step: int, first: int = 1) -> Iterator[int]:
    """Yield the multiples of `step`, from the `first`-th on."""
    return count(first * step, step)


def per_doubling(start: int, steps: int) -> Iterator[int]:
    """Yield the sizes above `start` that cut every doubling of it into equal steps."""
    while True:
        for i in range(1, steps + 1):
            yield start + start * i // steps
        start *= 2


def largest_knob(default: int, lowest: int = 1) -> Knob:
    """Return the knob of rules that go on without end, or to a limit of the allocator's own."""
    return Knob(
        "largest_bytes",
        default,
        lowest,
        MOST_BYTES,
        "bytes; the list ends with the first class that holds them",
    )
