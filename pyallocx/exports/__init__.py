"""Size classes in the form that an allocator takes, judged on every size before they are given out.

One module per target. Each writes a text, reads its numbers back out of the text, looks every size
up as the target does, and compares with the plain definition: the smallest class that holds it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from pyallocx.exports import flat, json, memcached, scudo, spans
from pyallocx.exports._base import Subject, subject_of

__all__ = ["FORMATS", "export"]

_WRITERS: Final[Mapping[str, Callable[..., str]]] = {
    "scudo": scudo.write,
    "flat": flat.write,
    "tcmalloc": spans.write_tcmalloc,
    "go": spans.write_go,
    "memcached": memcached.write,
    "json": json.write,
}

FORMATS: Final = tuple(_WRITERS)
"""The names of the formats."""


def export(map_or_fit: Any, format: str, *, name: str | None = None, **options: Any) -> str:
    r"""Write size classes in the form that an allocator takes.

    Before the text is returned its numbers are read back and every size is looked up as the target
    does it, against the smallest class that holds the size.

    Parameters
    ----------
    map_or_fit : SizeMap or Fit
        The classes, with their header and alignment.
    format : {"scudo", "flat", "tcmalloc", "go", "memcached", "json"}
        ``"scudo"``: the struct of a table map, C++. ``"flat"``: a table and its lookup, C11 without
        dependencies. ``"tcmalloc"``: rows of google/tcmalloc. ``"go"``: the lists of Go's runtime.
        ``"memcached"``: ``-o slab_sizes=``. ``"json"``: what `SizeMap.load` reads.
    name : str, optional
        What the struct, table or list is called, an identifier that is no word of C, C++ or Go and
        is not used by the text itself (``json``: any text); by default the name of the map. For
        ``"go"`` the package.
    **options
        Of ``scudo``: ``num_bits`` (by default the fewest that will do), ``delta_bytes`` (by default
        that of the map, or the header), ``min_align_bytes`` (16), ``max_cached`` (13),
        ``max_bytes_log`` (13), ``compressed_lsb`` (True: refuse classes whose least set bits do not
        fit in two bits each), ``llvm`` (19, or 14 with narrower types). Of ``flat``:
        ``max_entries`` (65536; above it there are two tables). Of ``tcmalloc``: ``page_shift`` (13)
        and ``max_classes`` (85). Of ``go``: ``max_classes`` (67). Of ``memcached``:
        ``chunk_max_bytes`` (524288), ``chunk_min_bytes`` (48). Of ``json``: ``kind``.

    Returns
    -------
    str
        Ends with a line feed.

    Raises
    ------
    ValueError
        A rule of the target that the classes break, by name, and what makes classes that do not.
    TypeError
        An option that the format does not have.
    CorruptionError
        If what was written does not look up right, which is a mistake of ours.

    Examples
    --------
    >>> import pyallocx as px
    >>> sizes = px.SizeMap([32, 48, 64, 96, 128], header_bytes=16, align_bytes=16)
    >>> print(px.export(sizes, "scudo", name="Mine"), end="")
    // size map: 5 classes up to 128 bytes
    // Table of 8 bytes; least set bits fit in two bits a class.
    struct Mine {
      static const uptr NumBits = 3;
      static const uptr MinSizeLog = 4;
      static const uptr MidSizeLog = 5;
      static const uptr MaxSizeLog = 7;
      static const u16 MaxNumCachedHint = 13;
      static const uptr MaxBytesCachedLog = 13;
    <BLANKLINE>
      static constexpr uptr Classes[] = {
          0x00020, 0x00030, 0x00040, 0x00060, 0x00080,
      };
      static const uptr SizeDelta = 16;
    };
    >>> px.export(px.SizeMap([96, 128, 192]), "memcached").strip()
    '-o slab_sizes=96-128-192'
    """
    if format not in _WRITERS:
        raise ValueError(f"format is {format!r}, allowed are {', '.join(map(repr, FORMATS))}")
    subject: Subject = subject_of(map_or_fit)
    return _WRITERS[format](subject, name, **options)
