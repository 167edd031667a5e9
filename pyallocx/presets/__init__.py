"""The size classes of allocators, by name, generated from each allocator's rule.

`preset_names` lists them, `preset_classes` makes a table, `preset_knobs` says what can be turned.
``docs/presets.md`` says which of them were compared with the allocator itself.
"""

from __future__ import annotations

from types import MappingProxyType
from typing import Final, SupportsIndex

from pyallocx.presets import _scudo, _spans, _steps
from pyallocx.presets._base import Knob, PresetClasses, Rule, build, unknown
from pyallocx.presets._waste import waste_percent
from pyallocx.sizemap import SizeMap

__all__ = [
    "Knob",
    "PresetClasses",
    "preset",
    "preset_classes",
    "preset_knobs",
    "preset_names",
    "waste_percent",
]

_RULES: Final = MappingProxyType({**_scudo.RULES, **_spans.RULES, **_steps.RULES})


def preset_names() -> tuple[str, ...]:
    """Return the names of all presets, in a fixed order: scudo, spans, steps.

    Examples
    --------
    >>> [name for name in preset_names() if "android" in name]
    ['scudo-android64-2020', 'scudo-android64-14', 'scudo-android64-19']
    """
    return tuple(_RULES)


def preset_knobs(name: str) -> tuple[Knob, ...]:
    """Return the knobs of a preset.

    Parameters
    ----------
    name
        One of `preset_names`.

    Returns
    -------
    tuple of Knob
        Each with its name, default, range (both ends included) and a line of help.

    Raises
    ------
    ValueError
        There is no such preset.

    Examples
    --------
    >>> for knob in preset_knobs("hardened-malloc"):
    ...     print(knob.name, knob.default, knob.lowest, knob.highest)
    extended True 0 1
    canary True 0 1
    largest_bytes 262144 1 281474976710656
    """
    return _rule(name).knobs


def preset_classes(name: str, **knobs: SupportsIndex) -> PresetClasses:
    """Make the table of an allocator from its rule.

    Parameters
    ----------
    name
        One of `preset_names`.
    **knobs
        Values of the preset's knobs (see `preset_knobs`); the others keep their defaults, which
        are those of the allocator as it is shipped.

    Returns
    -------
    PresetClasses

    Raises
    ------
    TypeError
        The preset has no such knob, or the value is of the wrong type.
    ValueError
        There is no such preset, or a value is out of its range, or the values do not go together;
        the message names the value and the range.

    Examples
    --------
    >>> preset_classes("jemalloc", largest_bytes=256).classes
    (8, 16, 32, 48, 64, 80, 96, 112, 128, 160, 192, 224, 256)
    >>> preset_classes("jemalloc", largest_bytes=256, lg_ngroup=1).classes
    (8, 16, 32, 48, 64, 96, 128, 192, 256)
    >>> preset_classes("jemalloc", lg_quantum=13)
    Traceback (most recent call last):
    ...
    ValueError: jemalloc: lg_quantum must be from 3 to 12, got 13
    """
    return build(name, _rule(name), knobs)


def preset(name: str, **knobs: SupportsIndex) -> SizeMap:
    """Make the size map of an allocator: `preset_classes` as a `pyallocx.SizeMap`.

    Parameters
    ----------
    name, **knobs
        As in `preset_classes`.

    Returns
    -------
    SizeMap
        A map of the kind that the allocator has: ``fixed``, ``table``, or else ``flat``.

    Raises
    ------
    TypeError, ValueError
        As in `preset_classes`.
    """
    made = preset_classes(name, **knobs)
    about = {
        "delta_bytes": made.delta_bytes,
        "header_bytes": made.header_bytes,
        "align_bytes": made.align_bytes,
    }
    logs = {
        word: made.parameters[word]
        for word in ("num_bits", "min_size_log", "mid_size_log", "max_size_log")
        if made.kind != "flat"
    }
    if made.kind == "fixed":
        return SizeMap.fixed(**logs, **about, name=made.name)
    return SizeMap(made.classes, kind=made.kind, **logs, **about, name=made.name)


def _rule(name: str) -> Rule:
    try:
        return _RULES[name]
    except (KeyError, TypeError):
        pass
    if isinstance(name, str) and name in _scudo.MISSING:
        raise ValueError(f"no preset {name!r}: {_scudo.MISSING[name]}")
    raise ValueError(unknown(name, _RULES))
