"""Profiles: how often each request size is asked for, without order.

>>> import pyallocx as px
>>> profile = px.Profile([48, 16, 48], [2, 10, 1], name="example")
>>> profile
Profile('example', 2 sizes, count 13, 304 B)
>>> profile.sizes, profile.counts
(array([16, 48], dtype=uint64), array([10.,  3.]))
"""

from __future__ import annotations

import copy
import json
import math
import os
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, ClassVar, Final, Literal, NoReturn, cast

import numpy as np
import numpy.typing as npt

from pyallocx._files import write_atomically
from pyallocx._histogram import check_factor, factors_of, histogram_of
from pyallocx._optional import data_frame
from pyallocx._sizes import MAX_BYTES
from pyallocx.units import format_bytes, format_count

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes

    from pyallocx.trace import Trace

__all__ = ["Profile", "load_profile", "load_profile_or_trace"]

LARGEST_SIZE: Final = MAX_BYTES
"""The largest request size of a profile, in bytes."""

SAVED: Final = "# pyallocx profile "
"""How the first line of a saved profile begins; its name and metadata follow, as JSON."""

_WEIGHTED: Final[tuple[Literal["count", "bytes"], ...]] = ("count", "bytes")

_set = object.__setattr__


class Profile:
    """How often each request size is asked for: an immutable histogram without order.

    Parameters
    ----------
    sizes : array_like of int, shape (n,)
        Request sizes in bytes, 0 to 2**48, in any order; the counts of equal ones are added up.
    counts : array_like of float, shape (n,)
        How often, or any other weight: finite and above 0.
    name : str, default ""
        What the profile is of, for tables and pictures.
    metadata : mapping, optional
        Where it comes from: whatever JSON can hold. The readers and `Trace.profile` set ``format``,
        ``weight`` and ``sizes`` (what the sizes mean, ``"requests"`` where they are what programs
        asked for).

    Attributes
    ----------
    sizes : ndarray of uint64, shape (k,)
        Strictly increasing; read-only.
    counts : ndarray of float64, shape (k,)
        Of each size; read-only.
    name : str
    metadata : mapping

    Raises
    ------
    TypeError
        `sizes` does not hold integers.
    ValueError
        There is no size, the lengths differ, a size is out of range, or a count is zero, negative,
        infinite or no number. The message names the size and the count.

    Notes
    -----
    Two profiles are equal where their sizes and counts are; name and metadata do not count.
    """

    __slots__ = ("__weakref__", "counts", "metadata", "name", "sizes")

    sizes: npt.NDArray[np.uint64]
    counts: npt.NDArray[np.float64]
    name: str
    metadata: Mapping[str, Any]

    __hash__: ClassVar[None]  # type: ignore[assignment]

    def __init__(
        self,
        sizes: npt.ArrayLike,
        counts: npt.ArrayLike,
        *,
        name: str = "",
        metadata: Mapping[str, Any] | None = None,
    ) -> None:
        distinct, totals = (column.copy() for column in histogram_of(sizes, counts))
        with np.errstate(over="ignore"):
            total = float(totals.sum()) + float((totals * distinct).sum())
        if not math.isfinite(total):
            raise ValueError("the counts are too large: their sums in bytes fit no float")
        if not isinstance(name, str):
            raise TypeError(f"name is {name!r}, expected a string")
        for attribute, column in (("sizes", distinct), ("counts", totals)):
            column.setflags(write=False)
            # A flag is not enough: NumPy lets an array be made writeable if its memory is.
            _set(self, attribute, np.asarray(column.data.toreadonly()))
        _set(self, "name", name)
        # Through JSON: a deep copy, and a proof that the profile can be saved.
        text = json.dumps({} if metadata is None else dict(metadata), allow_nan=False)
        _set(self, "metadata", MappingProxyType(json.loads(text)))

    def __setattr__(self, name: str, value: Any) -> NoReturn:
        raise AttributeError(f"a Profile is immutable: cannot set '{name}'")

    def __delattr__(self, name: str) -> NoReturn:
        raise AttributeError(f"a Profile is immutable: cannot delete '{name}'")

    def __copy__(self) -> Profile:
        return self

    def __deepcopy__(self, memo: dict[int, Any]) -> Profile:
        return self

    def __reduce__(self) -> tuple[Any, ...]:
        metadata = copy.deepcopy(dict(self.metadata))
        return _restore, (self.sizes.copy(), self.counts.copy(), self.name, metadata)

    def __len__(self) -> int:
        return len(self.sizes)

    def __eq__(self, other: Any) -> bool:
        if not isinstance(other, Profile):
            return NotImplemented
        return np.array_equal(self.sizes, other.sizes) and np.array_equal(self.counts, other.counts)

    def __repr__(self) -> str:
        name = f"{self.name!r}, " if self.name else ""
        sizes = "1 size" if len(self) == 1 else f"{len(self):,} sizes"
        count = format_count(self.total_count)
        return f"Profile({name}{sizes}, count {count}, {format_bytes(self.total_bytes)})"

    @property
    def total_count(self) -> float:
        """The sum of all counts."""
        return math.fsum(self.counts)

    @property
    def total_bytes(self) -> float:
        """The requested bytes: the sum of size times count."""
        return math.fsum(self.sizes * self.counts)

    def quantile(self, share: float, *, weighted: Literal["count", "bytes"] = "count") -> int:
        """Return the smallest size such that it and all smaller ones hold a share of the whole.

        Parameters
        ----------
        share : float
            0 to 1; 0.5 is the median.
        weighted : {"count", "bytes"}, default "count"
            Of the counts, or of the requested bytes.

        Returns
        -------
        int
            One of the sizes.

        Examples
        --------
        >>> profile = Profile([16, 4096], [99, 1])
        >>> profile.quantile(0.5), profile.quantile(0.5, weighted="bytes")
        (16, 4096)
        """
        if not 0 <= share <= 1:
            raise ValueError(f"share is {share}, allowed are 0 to 1")
        summed = np.cumsum(self._weights(weighted))
        at = int(np.searchsorted(summed, share * summed[-1]))
        return int(self.sizes[min(at, len(self) - 1)])

    def _weights(self, weighted: str) -> npt.NDArray[np.float64]:
        if weighted not in ("count", "bytes"):
            raise ValueError(f"weighted is {weighted!r}, allowed are 'count' and 'bytes'")
        return self.counts if weighted == "count" else self.counts * self.sizes

    @classmethod
    def combine(
        cls,
        profiles: Sequence[Profile],
        weights: Literal["bytes", "count", "equal"] | Sequence[float] = "bytes",
        *,
        name: str = "",
    ) -> Profile:
        """Return one profile of several.

        Parameters
        ----------
        profiles : sequence of Profile
            At least one.
        weights : {"bytes", "count", "equal"} or sequence of float, default "bytes"
            ``"count"`` adds the counts as they are, so that who asks most often matters most.
            ``"equal"`` first scales each profile to the mean of their total counts, ``"bytes"`` to
            the mean of their total bytes, so that all matter alike. A sequence has one factor,
            above 0, for each profile.
        name : str, default ""
            Of the new profile; by default the names of all, joined.

        Returns
        -------
        Profile
            Its metadata has ``parts``, the name and the factor of each profile, and of ``sizes``
            and ``weight`` what all of them agree on.

        Raises
        ------
        ValueError
            No profile, unknown weights, another number of factors than of profiles, a factor that
            is not finite and above 0; or weights ``"bytes"`` where one of several profiles has only
            size 0.

        Examples
        --------
        >>> many, few = Profile([16], [1000]), Profile([1600], [10])
        >>> Profile.combine([many, few], weights="equal").counts
        array([505., 505.])
        """
        if isinstance(profiles, Profile):
            raise TypeError("profiles must be a sequence of Profile, got one Profile")
        profiles = list(profiles)
        for i, one in enumerate(profiles):
            if not isinstance(one, Profile):
                raise TypeError(f"profile {i + 1} must be a Profile, got {type(one).__name__}")
        if not profiles:
            raise ValueError("there is no profile to combine")
        factors = factors_of(profiles, weights).tolist()
        about: dict[str, Any] = {
            "format": "combined",
            "weights": weights if isinstance(weights, str) else "given",
            "parts": [
                {"name": p.name, "factor": f} for p, f in zip(profiles, factors, strict=True)
            ],
        }
        for key in ("sizes", "weight"):
            said = [profile.metadata.get(key) for profile in profiles]
            if said[0] is not None and all(one == said[0] for one in said):
                about[key] = said[0]
        return cls(
            np.concatenate([profile.sizes for profile in profiles]),
            np.concatenate([p._times(f) for p, f in zip(profiles, factors, strict=True)]),
            name=name or " + ".join(profile.name for profile in profiles if profile.name),
            metadata=about,
        )

    def _times(self, factor: float) -> npt.NDArray[np.float64]:
        with np.errstate(over="ignore"):
            return self.counts * factor

    def scaled(self, factor: float) -> Profile:
        """Return the profile with all counts multiplied.

        Parameters
        ----------
        factor : float
            Finite and above 0.

        Returns
        -------
        Profile

        Raises
        ------
        ValueError
            `factor` is not, or a count is none any longer: 0 or infinite.
        """
        check_factor(factor)
        return Profile(self.sizes, self._times(factor), name=self.name, metadata=self.metadata)

    def below(self, limit_bytes: int) -> Profile:
        """Return the part with sizes of at most a limit.

        Parameters
        ----------
        limit_bytes : int
            The largest size that stays.

        Returns
        -------
        Profile

        Raises
        ------
        ValueError
            All sizes are larger.
        """
        kept = self.sizes <= limit_bytes
        if not kept.any():
            raise ValueError(
                f"no size is at most {limit_bytes} bytes, the smallest is {self.sizes[0]}"
            )
        return Profile(self.sizes[kept], self.counts[kept], name=self.name, metadata=self.metadata)

    def summary(self, top: int = 10) -> dict[str, Any]:
        """Return what there is to know about the profile in numbers.

        Parameters
        ----------
        top : int, default 10
            How many sizes to list in ``most_bytes``.

        Returns
        -------
        dict
            Fit for JSON: ``total_count``, ``total_bytes``, ``distinct_sizes``, ``mean_size_bytes``,
            ``smallest_size_bytes``, ``largest_size_bytes``; ``size_percentiles``, by ``count`` and
            by ``bytes``, each from percent to the size at which it is reached; ``most_bytes``, the
            sizes that hold most of the bytes, each with its ``size_bytes``, ``count``, ``bytes``
            and ``share`` of all bytes.
        """
        count, total = self.total_count, self.total_bytes
        weights = self._weights("bytes")
        order = np.argsort(-weights, kind="stable")[:top]
        return {
            "total_count": count,
            "total_bytes": total,
            "distinct_sizes": len(self),
            "mean_size_bytes": total / count,
            "smallest_size_bytes": int(self.sizes[0]),
            "largest_size_bytes": int(self.sizes[-1]),
            "size_percentiles": {
                by: {
                    str(percent): self.quantile(percent / 100, weighted=by)
                    for percent in (10, 25, 50, 75, 90, 99)
                }
                for by in _WEIGHTED
            },
            "most_bytes": [
                {
                    "size_bytes": int(self.sizes[i]),
                    "count": float(self.counts[i]),
                    "bytes": float(weights[i]),
                    "share": float(weights[i] / total) if total else 0.0,
                }
                for i in order
            ],
        }

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the profile as text, one ``size count`` a line, which `load_profile` reads back.

        Name and metadata are in a comment on the first line. The file is written whole or not at
        all.

        Parameters
        ----------
        path : str or path-like
            Where to.
        """
        lines = [SAVED + json.dumps({"name": self.name, "metadata": dict(self.metadata)})]
        for size, count in zip(self.sizes.tolist(), self.counts.tolist(), strict=True):
            whole = count == int(count) and count < 2**53
            lines.append(f"{size} {int(count) if whole else repr(count)}")
        data = ("\n".join(lines) + "\n").encode("ascii")
        write_atomically(path, lambda file: file.write(data))

    def to_pandas(self) -> pd.DataFrame:
        """Return a DataFrame with the columns ``size_bytes`` and ``count``.

        Raises
        ------
        ImportError
            If pandas is not installed.
        """
        return data_frame({"size_bytes": self.sizes.copy(), "count": self.counts.copy()})

    def plot(
        self,
        ax: Axes | None = None,
        *,
        weighted: Literal["bytes", "count"] = "bytes",
        path: str | os.PathLike[str] | None = None,
        title: str | None = None,
    ) -> Axes:
        """Draw which share of the bytes, or of the counts, is in sizes up to each size.

        Parameters
        ----------
        ax : matplotlib.axes.Axes, optional
            Where to draw; by default a new figure. Several profiles may go into one picture.
        weighted : {"bytes", "count"}, default "bytes"
            What the share is of.
        path : path, optional
            Write the picture there; its suffix decides the format.
        title : str, optional
            By default what the profile is.

        Returns
        -------
        matplotlib.axes.Axes

        Raises
        ------
        ImportError
            If matplotlib is not installed.
        """
        from pyallocx._profileplot import plot_profile

        return plot_profile(self, weighted, ax=ax, path=path, title=title)


def _restore(sizes: Any, counts: Any, name: str, metadata: Mapping[str, Any]) -> Profile:
    """Undo `Profile.__reduce__`."""
    return Profile(sizes, counts, name=name, metadata=metadata)


def load_profile(
    path: str | os.PathLike[str],
    *,
    format: str | None = None,
    weight: str | None = None,
    member: str | None = None,
) -> Profile:
    """Read a profile from a file, whatever known format it is in.

    The format is recognised by content, never by name, and through gzip and zip as by `load`.

    ============  ==================================================================================
    format        what it is
    ============  ==================================================================================
    text          ``size count`` lines, ``#`` comments; what `Profile.save` writes
    scudo         scudo's ``malloc_info`` XML
    glibc-free    glibc's ``malloc_info`` XML, which lists free chunks: read only on request
    jemalloc      jemalloc's statistics as JSON (``malloc_stats_print`` with ``J``)
    memcached     the answer to ``stats sizes``
    fleet         ``size, rate, live`` lines: distributions of whole fleets
    heaptrack     the histogram of ``heaptrack_print -H``: text with a tab; read only on request,
                  else it is text
    dhat          what valgrind's DHAT writes: JSON; sizes are means of call sites
    bpftrace      a map that bpftrace printed: hist, lhist, or counts by size
    memleak       reports of bcc's memleak: sizes are means of call sites
    ============  ==================================================================================

    Parameters
    ----------
    path : str or path-like
        The file.
    format : str, optional
        Insist on a format instead of recognising it.
    weight : {"count", "peak", "end", "byte_time"}, optional
        Of the formats that carry several (jemalloc, fleet, dhat), which to take; by default
        ``"count"``. ``"peak"`` and ``"end"`` are what is live. All other formats carry one
        histogram, which is taken whatever is asked for.
    member : str, optional
        The member to read of a zip that has several.

    Returns
    -------
    Profile
        Named after the file. Its metadata says ``format``, ``file``, ``weight`` (``"as written"``
        where the format does not say) and ``sizes``: what the sizes are, such as ``"requests"`` or
        ``"size classes"``.

    Raises
    ------
    OSError
        The file does not exist, is a directory or cannot be read.
    TraceError
        The file is empty, of no known format, truncated or damaged, or has a line that its format
        does not allow. The message names the file and the line. Nothing is left out in silence.
    ValueError
        `format` or `weight` is none of the above, the format does not carry that weight, or
        `member` is given and the file is no zip.
    """
    from pyallocx.profiles import load_file

    return cast(
        "Profile",
        load_file(os.fsdecode(path), format=format, weight=weight, member=member, traces=False),
    )


def load_profile_or_trace(
    path: str | os.PathLike[str],
    weight: str | None = None,
    *,
    format: str | None = None,
    on_error: str = "raise",
    progress: bool | None = None,
) -> Profile:
    """Read a profile from a file of either kind; of a trace, its profile.

    Parameters
    ----------
    path : str or path-like
        What `load_profile` or `load` reads.
    weight : {"count", "peak", "end", "byte_time"}, optional
        As for `load_profile` and `Trace.profile`; by default ``"count"``.
    format : str, optional
        As for `load_profile`; then the file is no trace.
    on_error : {"raise", "skip"}, default "raise"
        As for `load`, where the file is a trace.
    progress : bool, optional
        As for `load`, where the file is a trace.

    Returns
    -------
    Profile
        Named after the file.
    """
    from pyallocx.profiles import load_file, stem

    if format is not None:
        return load_profile(path, format=format, weight=weight)
    name = os.fsdecode(path)
    found = load_file(name, weight=weight, traces=True, on_error=on_error, progress=progress)
    if isinstance(found, Profile):
        return found
    trace: Trace = found
    profile = trace.profile(weight=weight or "count")
    return Profile(profile.sizes, profile.counts, name=stem(name), metadata=profile.metadata)
