"""The chunk map: every block of every chunk of a code heap, drawn to scale.

`chunk_map` draws a picture, `chunk_map_text` writes one line per chunk for a terminal. Both take
what `replay_code` returns, its ``blocks``, or several of them by name, which are drawn one beside
the other: before and after.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, overload

import numpy as np
import numpy.typing as npt

from pyallocx.units import format_bytes

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["chunk_map", "chunk_map_text"]

Blocks = Sequence[Mapping[str, int]]


@dataclass(frozen=True)
class _Kind:
    name: str
    sign: str
    colour: str
    hatch: str | None = None


# Okabe and Ito's colours; the hatches tell them apart in print.
_KINDS = (
    _Kind("code", "#", "#0072B2"),
    _Kind("used, not filled", "+", "#9CC9E6"),
    _Kind("free", ".", "#F0F0F0"),
    _Kind("dead: free, too small to be listed", "!", "#E69F00", "////"),
    _Kind("header", "|", "#333333"),
    _Kind("broken: headers overlap", "X", "#D0006F", "xxxx"),
)
_CODE, _UNFILLED, _FREE, _DEAD, _HEADER, _BROKEN = range(len(_KINDS))
# In a text a column shows what most of its bytes are, but these if there is any of them.
_NEVER_HIDDEN = (_DEAD, _BROKEN)
_EXECUTABLE, _WRITABLE = "rx", "rw"


@dataclass
class _Chunk:
    number: int
    chunk_bytes: int
    executable: bool
    spans: list[tuple[int, int, int]]  # kind, start, end; what is broken lies on top, so it is last
    texts: list[tuple[float, int, str]]  # middle and width of a block, and what it holds
    code_bytes: int


def _chunks_of(heap: Any) -> list[_Chunk]:
    blocks = getattr(heap, "blocks", heap)
    if callable(blocks):
        blocks = blocks()
    by_chunk: dict[int, list[Mapping[str, int]]] = {}
    for block in blocks:
        by_chunk.setdefault(block["chunk"], []).append(block)
    return [_chunk(number, rows) for number, rows in sorted(by_chunk.items())]


def _chunk(number: int, blocks: list[Mapping[str, int]]) -> _Chunk:
    total, header = blocks[0]["chunk_bytes"], blocks[0]["header_bytes"]
    chunk = _Chunk(number, total, bool(blocks[0]["executable"]), [], [], 0)
    broken = []
    ends = [*(block["offset"] for block in blocks[1:]), total - header]
    for block, end in zip(blocks, ends, strict=True):
        start = block["offset"]
        at = start + header
        chunk.spans.append((_HEADER, start, min(at, end)))
        if end < at:
            broken.append((_BROKEN, end, min(at, total)))
        elif block["free"]:
            chunk.spans.append((_DEAD if block["dead"] else _FREE, at, end))
        else:
            filled = min(at + block["code_bytes"], end)
            chunk.spans.append((_CODE, at, filled))
            chunk.spans.append((_UNFILLED, filled, end))
            chunk.code_bytes += block["code_bytes"]
        chunk.texts.append(((at + end) / 2, abs(end - at), f"{block['payload_bytes']:,}"))
    chunk.spans.append((_HEADER, total - header, total))  # the terminator
    chunk.spans = [span for span in chunk.spans + broken if span[1] < span[2]]
    return chunk


def _named(heaps: Any) -> dict[str, Any]:
    return dict(heaps) if isinstance(heaps, Mapping) else {"": heaps}


# --- text


def chunk_map_text(heap: Any, *, width: int = 80, most: int = 40) -> str:
    """Write the blocks of a code heap, one line per chunk, to scale.

    A character stands for the same number of bytes in all chunks: for what most of them are, but
    always for dead and broken ones if there is any. ``rx`` is a chunk that is executable, ``rw``
    one that is not; the share at the end is that of code in the chunk.

    Parameters
    ----------
    heap : CodeReplay, sequence of dict, or mapping of str to either
        As `chunk_map`.
    width : int, default 80
        Columns of the terminal, at least 60.
    most : int, default 40
        Chunks to write; how many more there are is said.

    Returns
    -------
    str
        Lines, with a legend of the signs that occur at the end.

    Examples
    --------
    >>> import pyallocx as px
    >>> trace = px.synthesize_code(60, seed=5)
    >>> heap = px.replay_code(trace, policy="whole_block", chunk_bytes=16384)
    >>> print(chunk_map_text(heap, width=72))
    0 16 KiB rx ###....###############################################  85 %
    1 16 KiB rx ######################################################  90 %
    2 16 KiB rx ......................################################  53 %
    <BLANKLINE>
    one character is 304 bytes; rx executable, rw writable
    # code   . free
    """
    if width < 60:
        raise ValueError(f"width is {width}, allowed is 60 and more")
    if most < 1:
        raise ValueError(f"most is {most}, allowed is 1 and more")
    heaps = {name: _chunks_of(one) for name, one in _named(heap).items()}
    everything = [chunk for chunks in heaps.values() for chunk in chunks]
    if not everything:
        return "no chunk"
    number = len(str(max(chunk.number for chunk in everything)))
    size = max(len(format_bytes(chunk.chunk_bytes)) for chunk in everything)
    bar = width - number - size - len("  rx ") - len(" 100 %")
    unit = max(1, -(-max(chunk.chunk_bytes for chunk in everything) // bar))
    lines: list[str] = []
    seen: set[int] = set()
    for name, chunks in heaps.items():
        lines += [name] if name else []
        for chunk in chunks[:most]:
            kinds = _columns(chunk, unit)
            seen |= set(kinds)
            signs = "".join(_KINDS[kind].sign for kind in kinds)
            share = f"{round(100 * chunk.code_bytes / chunk.chunk_bytes):3} %"
            lines.append(
                f"{chunk.number:{number}} {format_bytes(chunk.chunk_bytes):>{size}} "
                f"{_EXECUTABLE if chunk.executable else _WRITABLE} {signs.ljust(bar)} {share}"
            )
        if not chunks:
            lines.append("no chunk")
        if len(chunks) > most:
            lines.append(f"... and {len(chunks) - most:,} more chunks")
    plural = "s" if unit > 1 else ""
    lines += ["", f"one character is {unit:,} byte{plural}; rx executable, rw writable"]
    return "\n".join([*lines, *_legend(seen, width)])


def _columns(chunk: _Chunk, unit: int) -> list[int]:
    count = -(-chunk.chunk_bytes // unit)
    bytes_of = np.zeros((len(_KINDS), count))
    for kind, start, end in chunk.spans:
        # In a heap that a wrong policy broke, a block may leave its chunk or end before it starts.
        start, end = max(start, 0), min(end, chunk.chunk_bytes)
        if start >= end:
            continue
        first, last = start // unit, (end - 1) // unit
        bytes_of[kind, first : last + 1] += unit
        bytes_of[kind, first] -= start - first * unit
        bytes_of[kind, last] -= (last + 1) * unit - end
    kinds: npt.NDArray[np.int64] = bytes_of.argmax(axis=0)
    for kind in _NEVER_HIDDEN:
        kinds[bytes_of[kind] > 0] = kind
    found: list[int] = kinds.tolist()
    return found


def _legend(seen: set[int], width: int) -> Iterator[str]:
    line = ""
    for kind in sorted(seen):
        entry = f"{_KINDS[kind].sign} {_KINDS[kind].name}"
        if line and len(line) + 3 + len(entry) > width:
            yield line
            line = ""
        line += ("   " if line else "") + entry
    yield line


# --- picture


@overload
def chunk_map(
    heap: Mapping[str, Any],
    path: str | os.PathLike[str] | None = None,
    ax: None = None,
    *,
    title: str | None = None,
    most: int = 40,
) -> list[Axes]: ...
@overload
def chunk_map(
    heap: Any,
    path: str | os.PathLike[str] | None = None,
    ax: Axes | None = None,
    *,
    title: str | None = None,
    most: int = 40,
) -> Axes: ...
def chunk_map(
    heap: Any,
    path: str | os.PathLike[str] | None = None,
    ax: Axes | None = None,
    *,
    title: str | None = None,
    most: int = 40,
) -> Axes | list[Axes]:
    """Draw the blocks of a code heap, one bar per chunk, to scale.

    Where in its block a method's code lies is not known: it is drawn from the low end. In a map of
    up to 40 blocks, each is labelled with the bytes of its payload.

    Parameters
    ----------
    heap : CodeReplay, sequence of dict, or mapping of str to either
        What `replay_code` returned, or its ``blocks``. Several by name are drawn side by side, in
        the same scale: ``{"before": a, "after": b}``.
    path : path, optional
        Write the picture there; its suffix decides the format.
    ax : matplotlib.axes.Axes, optional
        Where to draw one heap; by default a new figure.
    title : str, optional
        Of the picture.
    most : int, default 40
        Chunks to draw of each heap; how many more there are is said.

    Returns
    -------
    matplotlib.axes.Axes or list of them
        A list for a mapping.

    Raises
    ------
    ImportError
        If matplotlib is not installed.
    ValueError
        If there is nothing to draw, or `ax` is given for several heaps.

    Examples
    --------
    >>> import pyallocx as px
    >>> heap = px.replay_code(px.synthesize_code(100), chunk_bytes=16384)
    >>> ax = chunk_map(heap, path="chunks.png")
    """
    try:
        import matplotlib  # noqa: F401
    except ImportError as exc:
        raise ImportError("chunk_map needs matplotlib: pip install 'pyallocx[plot]'") from exc
    from pyallocx.plot import _save

    several = isinstance(heap, Mapping)
    if several and ax is not None:
        raise ValueError("one ax holds one heap; there are several")
    if most < 1:
        raise ValueError(f"most is {most}, allowed is 1 and more")
    heaps = {name: _chunks_of(one) for name, one in _named(heap).items()}
    everything = [chunk for chunks in heaps.values() for chunk in chunks]
    if not everything:
        raise ValueError("the heap has no chunk to draw")
    rows = max(min(len(chunks), most) for chunks in heaps.values())
    axes = [ax] if ax is not None else _new_axes(path is None, rows, len(heaps))
    longest = max(chunk.chunk_bytes for chunk in everything)
    for (name, chunks), one in zip(heaps.items(), axes, strict=True):
        heading = name if several else title
        _draw(one, chunks, rows, longest, most, heading)
    seen = {span[0] for chunk in everything for span in chunk.spans}
    _add_legend(axes, seen, ax is None)
    figure = axes[0].get_figure()
    if several and title is not None and figure is not None:
        figure.suptitle(title, fontsize=12, fontweight="bold", x=0.02, ha="left", parse_math=False)
    if path is not None:
        _save(axes[0], path)
    return axes if several else axes[0]


def _new_axes(interactive: bool, rows: int, panels: int) -> list[Axes]:
    size = (9.0 if panels == 1 else 6.0 * panels, 1.7 + 0.3 * rows)
    if interactive:
        import matplotlib.pyplot as plt

        figure = plt.figure(figsize=size, layout="constrained")
    else:
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure

        figure = Figure(figsize=size, layout="constrained")
        FigureCanvasAgg(figure)
    found: list[Axes] = figure.subplots(1, panels, squeeze=False)[0].tolist()
    return found


def _draw(
    ax: Axes, chunks: list[_Chunk], rows: int, longest: int, most: int, title: str | None
) -> None:
    from matplotlib.ticker import FixedLocator

    from pyallocx.plot import _binary_ticks, _tick_text

    shown = chunks[:most]
    for row, chunk in enumerate(shown):
        spans: dict[int, list[tuple[float, float]]] = {}
        for kind, start, end in chunk.spans:
            spans.setdefault(kind, []).append((start, end - start))
        for kind, ranges in sorted(spans.items()):
            ax.broken_barh(
                ranges,
                (row - 0.38, 0.76),
                facecolors=_KINDS[kind].colour,
                hatch=_KINDS[kind].hatch,
                edgecolors="white" if _KINDS[kind].hatch else "none",
                linewidth=0,
                zorder=2,
            )
        # A frame for the eye: solid around what can be executed, dashed around what is written.
        ax.broken_barh(
            [(0, chunk.chunk_bytes)],
            (row - 0.38, 0.76),
            facecolors="none",
            edgecolors="#333333",
            linewidth=0.8,
            linestyle="-" if chunk.executable else ":",
            zorder=3,
        )
    ax.set_xlim(-0.005 * longest, 1.005 * longest)
    ax.set_ylim(rows - 0.4, -0.6)
    ticks = [tick for tick in _binary_ticks(0, longest) if tick <= longest]
    ax.xaxis.set_major_locator(FixedLocator(ticks))
    ax.xaxis.set_major_formatter(lambda value, _: _tick_text("bytes", value))
    ax.set_yticks(
        range(len(shown)),
        [f"{c.number}  {_EXECUTABLE if c.executable else _WRITABLE}" for c in shown],
        fontsize=8,
        family="monospace",
    )
    ax.tick_params(axis="y", length=0)
    ax.spines[["top", "right", "left"]].set_visible(False)
    more = f"; {len(chunks) - most:,} more chunks are not drawn" if len(chunks) > most else ""
    ax.set_xlabel(f"offset in the chunk{more}", fontsize=10)
    if title:
        ax.set_title(title, loc="left", fontsize=11, fontweight="bold", parse_math=False)
    _write_sizes(ax, shown)


def _write_sizes(ax: Axes, chunks: list[_Chunk]) -> None:
    """Write the payload of each block into it where it fits; numbers in many would be noise."""
    from matplotlib.patheffects import withStroke

    figure = ax.get_figure(root=True)
    assert figure is not None
    texts = [(row, *text) for row, chunk in enumerate(chunks) for text in chunk.texts]
    if len(texts) > 40:
        return
    figure.draw_without_rendering()
    pixels = ax.get_window_extent().width / abs(np.subtract(*ax.get_xlim()))
    for row, middle, width, text in texts:
        if width * pixels < 0.85 * 8 * len(text) * figure.dpi / 100 and not text.startswith("-"):
            continue
        ax.text(
            middle,
            row,
            text,
            ha="center",
            va="center",
            fontsize=8,
            zorder=4,
            path_effects=[withStroke(linewidth=3, foreground="white")],
        )


def _add_legend(axes: list[Axes], seen: set[int], own: bool) -> None:
    from matplotlib.patches import Patch

    handles = [
        Patch(
            facecolor=_KINDS[kind].colour,
            hatch=_KINDS[kind].hatch,
            edgecolor="white" if _KINDS[kind].hatch else "#BBBBBB",
            linewidth=0 if _KINDS[kind].hatch else 0.5,
            label=_KINDS[kind].name,
        )
        for kind in sorted(seen)
    ]
    outline: dict[str, Any] = {"facecolor": "none", "edgecolor": "#333333"}
    handles.append(Patch(**outline, label=f"{_EXECUTABLE}: executable"))
    handles.append(Patch(**outline, linestyle=":", label=f"{_WRITABLE}: writable"))
    style: dict[str, Any] = {"fontsize": 8.5, "frameon": False, "handles": handles}
    figure = axes[0].get_figure()
    if own and figure is not None:
        figure.legend(loc="outside lower center", ncols=min(5 * len(axes), len(handles)), **style)
    else:
        axes[0].legend(
            loc="upper center", bbox_to_anchor=(0.5, 0), borderaxespad=4.6, ncols=5, **style
        )
