"""What the library says of its arguments, in the flags of the command line."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator, Mapping
from typing import Final

from pyallocx._core import TraceError

__all__ = ["PROFILE_FORMATS", "in_flags", "naming_format"]

PROFILE_FORMATS: Final = (
    "text",
    "scudo",
    "glibc-free",
    "jemalloc",
    "memcached",
    "fleet",
    "heaptrack",
    "dhat",
    "bpftrace",
    "memleak",
)
"""What ``--format`` takes, the names of `pyallocx.profiles.FORMATS`, without the readers."""

_FLAGS: Final[Mapping[str, str]] = {
    "header_bytes": "--header",
    "request_align_bytes": "--request-align",
    "align_bytes": "--align",
    "largest_bytes": "--largest",
    "page_bytes": "--page",
    "page_cap": "--page-cap",
    "tail_rule": "--tail-rule",
    "limit_bytes": "--limit",
    "lsb_span": "--lsb-span",
    "classes": "--classes",
    "grid": "--grid",
    "groups": "--groups",
    "bits": "--bits",
    "prefix": "--prefix",
    "forced": "--force",
    "weights": "--weights",
    "method": "--method",
    "name": "--name",
}
_CALL: Final = re.compile(r"px\.fit\(\.\.\., ((?:[^()]|\([^()]*\))*)\)")
_ARGUMENT: Final = re.compile(r"(\w+)=((?:\[[^\]]*\]|\([^)]*\)|[^,\[(])*)")
_LONG: Final = re.compile(rf"\b({'|'.join(word for word in _FLAGS if '_' in word)})\b")
# These are words of English, too: an argument is what stands first, or where a value is wanted.
_FIRST: Final = re.compile(
    r"^((?:\w+: )?)(classes|grid|groups|bits|prefix|forced|weights|method|name) "
    r"(?=is |must |has |ends )"
)
_INNER: Final = re.compile(r"\bbits(?==\d| allows)|(?<=needs )bits\b")


def in_flags(message: str) -> str:
    """Return a message about arguments of `fit`, `export` or `league` with their flags instead.

    Examples
    --------
    >>> in_flags("largest_bytes is 8, but px.fit(..., bits=7, prefix='table') makes others")
    '--largest is 8, but --bits 7 --prefix table makes others'
    >>> in_flags("go: px.fit(..., forced=[16, 32], new_word=(3, 4)) or px.fit(..., align_bytes=)")
    'go: --force [16, 32] --new-word (3, 4) or --align'
    """

    def call(found: re.Match[str]) -> str:
        return " ".join(
            f"{_FLAGS.get(word, '--' + word.replace('_', '-'))} {value.strip(chr(39))}".strip()
            for word, value in _ARGUMENT.findall(found[1])
        )

    text = _CALL.sub(call, message)
    text = _LONG.sub(lambda found: _FLAGS[found[1]], text)
    text = _FIRST.sub(lambda found: found[1] + _FLAGS[found[2]] + " ", text)
    return _INNER.sub("--bits", text)


@contextlib.contextmanager
def naming_format() -> Iterator[None]:
    """Say ``--format`` in an error that says ``format=``."""
    try:
        yield
    except TraceError as exc:
        text = re.sub(r'\bformat="([a-z-]+)"', r"--format \1", str(exc))
        if text == str(exc):
            raise
        raise TraceError(text) from None
