"""What all exports share: what is exported, how it is named, and the judgement over every size."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from pyallocx._core import CorruptionError
from pyallocx.sizemap import SizeMap

U64 = npt.NDArray[np.uint64]
I64 = npt.NDArray[np.int64]
#: From needed sizes to the sizes of the classes that hold them; 0 where none does.
Lookup = Callable[[I64], I64]

# Sizes that are judged at a time, and up to where every one of them is.
_AT_ONCE = 1 << 20
_EVERY = 1 << 26


class Subject(NamedTuple):
    """What is exported: a size map, and what a fit says of where it comes from."""

    map: SizeMap
    bits: int | None
    about: tuple[str, ...]
    fitted: bool

    @property
    def classes(self) -> list[int]:
        """The sizes of the classes, bytes."""
        return [int(size) for size in self.map.classes]


def subject_of(thing: Any) -> Subject:
    """Return what is exported of a size map or a fit."""
    if isinstance(thing, SizeMap):
        name = f" {thing.name}" if thing.name else ""
        return Subject(thing, None, (f"size map{name}: {_shape(thing.classes)}",), False)
    if not hasattr(thing, "to_map") or not hasattr(thing, "constraints"):
        raise TypeError(f"a SizeMap or a Fit is exported, not {type(thing).__name__}")
    made: SizeMap = thing.to_map(kind="search")
    about = [f"fitted: {_shape(thing.classes)}, wastage {thing.wastage_bytes:.0f} bytes"]
    slack = 0 if thing.exact else 1e-9 * abs(thing.wastage_bytes) + thing.noise_bytes
    if thing.gap <= slack:
        about.append("no table of so many classes under these constraints wastes less")
    words = [
        f"{name} {value}"
        for name, value in thing.constraints.items()
        if isinstance(value, (int, float))
        and name != "classes"
        and (name, value) != ("request_align_bytes", 1)
    ]
    about.append(f"constraints: {', '.join(words)}")
    return Subject(made, thing.constraints.get("bits"), tuple(about), True)


def _shape(classes: U64) -> str:
    number = len(classes)
    return f"{number} {'class' if number == 1 else 'classes'} up to {int(classes[-1])} bytes"


# Words that no text names anything by: of C, C++ and Go together, since a table may move from one
# to another. Go's predeclared names (int, len, ...) may be packages; what C calls int is here.
_KEYWORDS = frozenset(
    re.findall(
        r"\w+",
        """
    alignas alignof and and_eq asm auto bitand bitor bool break case catch char char16_t char32_t
    char8_t class co_await co_return co_yield compl concept const const_cast consteval constexpr
    constinit continue decltype default delete do double dynamic_cast else enum explicit export
    extern false float for friend goto if inline int long mutable namespace new noexcept not not_eq
    nullptr operator or or_eq private protected public register reinterpret_cast requires restrict
    return short signed sizeof static static_assert static_cast struct switch template this
    thread_local throw true try typedef typeid typename typeof typeof_unqual union unsigned using
    virtual void volatile wchar_t while xor xor_eq
    chan defer fallthrough func go import interface map package range select type var
    """,
    )
)


def identifier(name: str | None, otherwise: str, taken: Iterable[str] = ()) -> str:
    """Return a name that C takes: the one that is given, or else what can be made of another.

    Parameters
    ----------
    name : str or None
        What is asked for.
    otherwise : str
        What to make a name of where there is none.
    taken : iterable of str
        Names that the text uses itself.

    Raises
    ------
    ValueError
        If the given name is none, a keyword of C, C++ or Go, or taken.
    """
    used = _KEYWORDS | set(taken)
    if name is None:
        made = re.sub(r"[^A-Za-z0-9]+", "_", otherwise).strip("_")
        if not made or made[0].isdigit() or made in used:
            return f"size_{made}".rstrip("_")
        return made
    if not isinstance(name, str) or not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", name):
        raise ValueError(f"name must be an identifier of C (letters, digits, _), got {name!r}")
    if name in _KEYWORDS or name == "_":
        raise ValueError(f"name must be an identifier, {name!r} is a word of C, C++ or Go")
    if name in used:
        raise ValueError(f"name must be another: what is written uses {name!r} itself")
    return name


def comment(lines: Iterable[str]) -> Iterator[str]:
    """Yield comments of C: one line each, with nothing in them that a compiler could take up."""
    for line in lines:
        safe = re.sub(r"[^A-Za-z0-9 .,:;()+=%<>_-]", "_", line)
        yield f"// {safe}"


def rows(values: Sequence[Any], per_line: int, indent: str = "    ") -> Iterator[str]:
    """Yield an initialiser, so many values a line."""
    for i in range(0, len(values), per_line):
        yield indent + ", ".join(str(value) for value in values[i : i + per_line]) + ","


def no_header(target: str, subject: Subject) -> None:
    """Refuse classes of which a header takes a part, where the target has none."""
    if subject.map.header_bytes:
        raise ValueError(
            f"{target}: header_bytes is {subject.map.header_bytes}, but its objects have no "
            "header; px.fit(..., header_bytes=0) makes classes without one"
        )


def named(target: str, options: Mapping[str, Any], known: Iterable[str]) -> None:
    """Refuse options that a target does not have."""
    names = tuple(known)
    for word in options:
        if word not in names:
            there = ", ".join(names) if names else "none"
            raise TypeError(f"export to {target} has no option {word!r}; options: {there}")


# --- reading back what was written: nothing below has seen the classes


def number_of(text: str, name: str) -> int:
    """Return the number that a constant of the text is set to."""
    found = re.findall(rf"\b{re.escape(name)}\s*=?\s*(?:UINT64_C\()?(0x[0-9a-fA-F]+|\d+)", text)
    if len(found) != 1:
        raise CorruptionError(f"{name} is there {len(found)} times in what was written")
    return int(found[0], 0)


def numbers_of(text: str, name: str) -> list[int]:
    """Return the numbers of an array of the text."""
    found = re.findall(rf"\b{re.escape(name)}\s*(?:\[[^\]]*\])?\s*=[^{{;]*\{{([^}}]*)\}}", text)
    if len(found) != 1:
        raise CorruptionError(f"{name} is there {len(found)} times in what was written")
    return [int(word, 0) for word in re.findall(r"0x[0-9a-fA-F]+|\d+", _uncommented(found[0]))]


def _uncommented(text: str) -> str:
    return re.sub(r"//[^\n]*", "", text)


def judge(
    target: str, lookup: Lookup, classes: Sequence[int], edges: Iterable[int] = (), first: int = 0
) -> None:
    """Compare a lookup with the plain definition on every size up to the largest class.

    Parameters
    ----------
    target : str
        For the message.
    lookup : callable
        From sizes, int64, to the sizes of their classes.
    classes : sequence of int
        Rising.
    edges : iterable of int
        Sizes up to each of which, from the one before, the lookup gives the same. Where the largest
        class is above 64 MiB only sizes around these and around the classes are looked at, which
        are enough: between two of them neither side changes.
    first : int, default 0
        The smallest size that the target looks up.

    Raises
    ------
    CorruptionError
        For the first size with another class than the smallest that holds it.
    """
    table = np.array(classes, dtype=np.int64)
    largest = int(table[-1])

    def compare(sizes: I64) -> None:
        expected = table[np.searchsorted(table, sizes)]
        found = lookup(sizes)
        wrong = np.flatnonzero(found != expected)
        if len(wrong):
            at = int(wrong[0])
            raise CorruptionError(
                f"{target}: what was written gives size {sizes[at]} the class of {found[at]} "
                f"bytes, the smallest that holds it has {expected[at]}"
            )

    if largest <= _EVERY:
        for start in range(first, largest + 1, _AT_ONCE):
            compare(np.arange(start, min(start + _AT_ONCE, largest + 1), dtype=np.int64))
        return
    ends = np.unique(np.array([*edges, *classes], dtype=np.int64))
    around = np.unique(np.concatenate([ends, ends + 1]))
    around = around[(around >= first) & (around <= largest)]
    for start in range(0, len(around), _AT_ONCE):
        compare(around[start : start + _AT_ONCE])
