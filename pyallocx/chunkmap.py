"""The chunk map: every block of every chunk of a code heap, drawn to scale.

`chunk_map` draws a picture, `chunk_map_text` writes one line per chunk for a terminal. Both take a
live `CodeHeap`, what `replay_code` returns, the ``blocks`` of either, or several of them by name,
which are drawn one beside the other: before and after.
"""

from __future__ import annotations

import os
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, overload

import numpy as np
import numpy.typing as npt

from pyallocx._optional import need_matplotlib
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
# From the bottom of a column up: free is the air over what is held.
_STACK = (_CODE, _UNFILLED, _HEADER, _DEAD, _BROKEN, _FREE)
# In a text a column shows what most of its bytes are, but these if there is any of them.
_NEVER_HIDDEN = (_DEAD, _BROKEN)
# No kind has half of the bytes.
_MIXED, _MIXED_SIGN, _MIXED_NAME = len(_KINDS), "~", "mixed: none is half of it"
# Points on paper that a column of a picture is wide: what is narrower the eye cannot tell.
_COLUMN_POINTS = 1.5
_EXECUTABLE, _WRITABLE = "rx", "rw"


@dataclass
class _Chunk:
    number: int
    chunk_bytes: int
    executable: bool
    spans: list[tuple[int, int, int]]  # kind, start, end; they tile the chunk
    texts: list[tuple[float, int, str]]  # middle and width of a block, and what it holds
    narrowest: int  # bytes of the smallest block


_ACCEPTED = (
    "a chunk map is made of a CodeHeap, of what replay_code returned, of the blocks of either, or "
    "of a dict of several by name"
)


def _named_type(value: object) -> str:
    return "None" if value is None else f"a {type(value).__name__}"


def _check_most(most: object) -> None:
    if isinstance(most, bool) or not isinstance(most, int):
        raise TypeError(f"most is a number of chunks, not {_named_type(most)}")
    if most < 1:
        raise ValueError(f"most is {most}, allowed is 1 and more")


def _chunks_of(heap: Any) -> list[_Chunk]:
    blocks = getattr(heap, "blocks", heap)
    if callable(blocks):
        blocks = blocks()
    if isinstance(blocks, (str, bytes)) or not isinstance(blocks, Sequence):
        raise TypeError(f"{_ACCEPTED}, not {_named_type(heap)}")
    by_chunk: dict[int, list[Mapping[str, int]]] = {}
    for block in blocks:
        if not isinstance(block, Mapping):
            raise TypeError(f"{_ACCEPTED}, not a list of {type(block).__name__}")
        by_chunk.setdefault(block["chunk"], []).append(block)
    return [_chunk(number, rows) for number, rows in sorted(by_chunk.items())]


def _chunk(number: int, blocks: list[Mapping[str, int]]) -> _Chunk:
    total, header = blocks[0]["chunk_bytes"], blocks[0]["header_bytes"]
    chunk = _Chunk(number, total, bool(blocks[0]["executable"]), [], [], total)
    broken = []
    ends = [*(block["offset"] for block in blocks[1:]), total - header]
    for block, end in zip(blocks, ends, strict=True):
        start = block["offset"]
        at = start + header
        if end > start:
            chunk.narrowest = min(chunk.narrowest, end - start)
        chunk.spans.append((_HEADER, start, min(at, end)))
        if end < at:
            broken.append((_BROKEN, end, min(at, total)))
        elif block["free"]:
            chunk.spans.append((_DEAD if block["dead"] else _FREE, at, end))
        else:
            filled = min(at + block["code_bytes"], end)
            chunk.spans.append((_CODE, at, filled))
            chunk.spans.append((_UNFILLED, filled, end))
        chunk.texts.append(((at + end) / 2, abs(end - at), f"{block['payload_bytes']:,}"))
    chunk.spans.append((_HEADER, total - header, total))  # the terminator
    # What is broken lies on top.
    chunk.spans = _tiled(chunk.spans + broken, total)
    return chunk


def _tiled(spans: list[tuple[int, int, int]], total: int) -> list[tuple[int, int, int]]:
    """Cut spans so that each byte of a chunk belongs to one: the last of those that claim it.

    In a heap that a wrong policy broke, a block may leave its chunk or end before it starts, and a
    byte may belong to none.
    """
    clipped = [(kind, max(start, 0), min(end, total)) for kind, start, end in spans]
    edges = np.unique([0, total, *(x for _, a, b in clipped if a < b for x in (a, b))])
    kinds = np.full(len(edges) - 1, _BROKEN)
    for kind, start, end in clipped:
        if start < end:
            first, last = np.searchsorted(edges, (start, end))
            kinds[first:last] = kind
    return list(zip(kinds.tolist(), edges[:-1].tolist(), edges[1:].tolist(), strict=True))


def _bytes_by_column(chunk: _Chunk, edges: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    """Return the bytes of each kind between `edges`, one row per kind: they add up to the width."""
    kind, start, end = np.array(chunk.spans).T
    at = np.append(start, end[-1])
    rows = [
        np.diff(np.interp(edges, at, np.append(0, np.cumsum((end - start) * (kind == one)))))
        for one in range(len(_KINDS))
    ]
    return np.array(rows)


def _held(chunk: _Chunk, kind: int) -> int:
    return sum(end - start for one, start, end in chunk.spans if one == kind)


def _summary(chunks: Sequence[_Chunk]) -> str:
    """Return how many chunks there are, and what share of their bytes each kind has."""
    total = sum(chunk.chunk_bytes for chunk in chunks)
    held = [sum(_held(chunk, kind) for chunk in chunks) for kind in range(len(_KINDS))]
    shares = [
        f"{kind.name.split(':')[0].removeprefix('used, ')} {round(100 * part / total) or '< 1'} %"
        for kind, part in zip(_KINDS, held, strict=True)
        if part
    ]
    plural = "s" if len(chunks) > 1 else ""
    return f"{len(chunks):,} chunk{plural}, {format_bytes(total)}: {', '.join(shares)}"


def _named(heaps: Any) -> dict[str, Any]:
    return dict(heaps) if isinstance(heaps, Mapping) else {"": heaps}


# --- text


def chunk_map_text(heap: Any, *, width: int = 80, most: int = 40) -> str:
    """Write the blocks of a code heap, one line per chunk, to scale.

    A character stands for the same number of bytes in all chunks: for what at least half of them
    are, or ``~`` where nothing is that much. Dead and broken ones are never hidden: a single byte
    of them takes the character. The lines at the end tell the true shares. ``rx`` is a chunk that
    is executable, ``rw`` one that is not; the share behind a chunk is that of code in it.

    Parameters
    ----------
    heap : CodeHeap, CodeReplay, sequence of dict, or mapping of str to one of them
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
    2 16 KiB rx ......................~###############################  53 %
    <BLANKLINE>
    3 chunks, 48 KiB: code 76 %, not filled 2 %, free 16 %, header 7 %
    one character is 304 bytes; rx executable, rw writable
    # code   . free   ~ mixed: none is half of it
    """
    if isinstance(width, bool) or not isinstance(width, int):
        raise TypeError(f"width is a number of columns, not {_named_type(width)}")
    if width < 60:
        raise ValueError(f"width is {width}, allowed is 60 and more")
    _check_most(most)
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
            signs = "".join(_sign(kind) for kind in kinds)
            share = f"{round(100 * _held(chunk, _CODE) / chunk.chunk_bytes):3} %"
            lines.append(
                f"{chunk.number:{number}} {format_bytes(chunk.chunk_bytes):>{size}} "
                f"{_EXECUTABLE if chunk.executable else _WRITABLE} {signs.ljust(bar)} {share}"
            )
        if not chunks:
            lines.append("no chunk")
        if len(chunks) > most:
            lines.append(f"... and {len(chunks) - most:,} more chunks")
    lines.append("")
    for name, chunks in heaps.items():
        text = f"{name}: {_summary(chunks)}" if name else _summary(chunks)
        lines += textwrap.wrap(text, width, subsequent_indent="  ") if chunks else []
    plural = "s" if unit > 1 else ""
    lines += [f"one character is {unit:,} byte{plural}; rx executable, rw writable"]
    return "\n".join([*lines, *_legend(seen, width)])


def _sign(kind: int) -> str:
    return _MIXED_SIGN if kind == _MIXED else _KINDS[kind].sign


def _columns(chunk: _Chunk, unit: int) -> list[int]:
    edges = np.append(np.arange(0, chunk.chunk_bytes, unit), chunk.chunk_bytes)
    bytes_of = _bytes_by_column(chunk, edges.astype(np.float64))
    kinds: npt.NDArray[np.int64] = bytes_of.argmax(axis=0)
    kinds[2 * bytes_of.max(axis=0) < np.diff(edges)] = _MIXED
    for kind in _NEVER_HIDDEN:
        kinds[bytes_of[kind] > 0] = kind
    found: list[int] = kinds.tolist()
    return found


def _legend(seen: set[int], width: int) -> Iterator[str]:
    line = ""
    for kind in sorted(seen):
        entry = f"{_sign(kind)} {_MIXED_NAME if kind == _MIXED else _KINDS[kind].name}"
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
    up to 40 blocks, each is labelled with the bytes of its payload. If blocks are too narrow to be
    seen, chunks are drawn in columns, each divided from the bottom up by the bytes of each kind in
    it, so that areas are bytes in any case; a column with broken bytes is broken to its top.

    Parameters
    ----------
    heap : CodeHeap, CodeReplay, sequence of dict, or mapping of str to one of them
        A live heap, what `replay_code` returned, or the ``blocks`` of either. Several by name are
        drawn side by side, in the same scale: ``{"before": a, "after": b}``.
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
    TypeError
        If `heap` is none of these.
    ValueError
        If there is nothing to draw, or `ax` is given for several heaps.

    Examples
    --------
    >>> import pyallocx as px
    >>> heap = px.replay_code(px.synthesize_code(100), chunk_bytes=16384)
    >>> ax = chunk_map(heap, path="chunks.png")
    """
    need_matplotlib("chunk_map")
    from pyallocx.plot import _save

    several = isinstance(heap, Mapping)
    if several and ax is not None:
        raise ValueError("one ax holds one heap; there are several")
    _check_most(most)
    heaps = {name: _chunks_of(one) for name, one in _named(heap).items()}
    everything = [chunk for chunks in heaps.values() for chunk in chunks]
    if not everything:
        raise ValueError("the heap has no chunk to draw")
    rows = max(min(len(chunks), most) for chunks in heaps.values())
    axes = [ax] if ax is not None else _new_axes(path is None, rows, len(heaps))
    longest = max(chunk.chunk_bytes for chunk in everything)
    for (name, chunks), one in zip(heaps.items(), axes, strict=True):
        heading = name if several else title
        if ax is None:
            heading = "\n".join(filter(None, [heading, _summary(chunks) if chunks else "no chunk"]))
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
    width = ax.get_window_extent().width * 72 / ax.figure.dpi
    column = longest / max(1, round(width / _COLUMN_POINTS))
    mixed = any(chunk.narrowest < 2 * column for chunk in shown)
    for row, chunk in enumerate(shown):
        if mixed:
            _draw_columns(ax, row, chunk, column)
        else:
            _draw_blocks(ax, row, chunk)
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
    label = "offset in the chunk"
    if mixed:
        label += f"; a column is {format_bytes(round(column))}, divided by what its bytes are"
    if len(chunks) > most:
        label += f"; {len(chunks) - most:,} more chunks are not drawn"
    ax.set_xlabel(label, fontsize=10)
    ax.set_ylabel("chunk", fontsize=10)
    if title:
        ax.set_title(title, loc="left", fontsize=10.5, parse_math=False)
    _write_sizes(ax, shown)


def _draw_blocks(ax: Axes, row: int, chunk: _Chunk) -> None:
    spans: dict[int, list[tuple[float, float]]] = {}
    for kind, start, end in chunk.spans:
        spans.setdefault(kind, []).append((start, end - start))
    for kind, ranges in sorted(spans.items()):
        ax.broken_barh(ranges, (row - 0.38, 0.76), **_paint(kind))


def _draw_columns(ax: Axes, row: int, chunk: _Chunk, column: float) -> None:
    """Draw a column's bytes as a stack, so that no kind hides another and colours stay pure."""
    edges = np.append(np.arange(0, chunk.chunk_bytes, column), chunk.chunk_bytes)
    parts = _bytes_by_column(chunk, edges)
    broken = parts[_BROKEN] > 0
    parts[:, broken] = 0
    parts[_BROKEN, broken] = np.diff(edges)[broken]
    low = np.zeros(len(edges) - 1)
    for kind in _STACK:
        high = low + parts[kind] / np.diff(edges)
        if parts[kind].any():
            y1, y2 = (row + 0.38 - 0.76 * np.append(x, x[-1]) for x in (low, high))
            ax.fill_between(edges, y1, y2, step="post", **_paint(kind))
        low = high


def _paint(kind: int) -> dict[str, Any]:
    hatch = _KINDS[kind].hatch
    return {
        "facecolor": _KINDS[kind].colour,
        "hatch": hatch,
        "edgecolor": "white" if hatch else "none",
        "linewidth": 0,
        # Rounded to pixels, a narrow block would be as wide as chance has it.
        "snap": False,
        "zorder": 2,
    }


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
        figure.legend(loc="outside lower center", ncols=min(6 * len(axes), len(handles)), **style)
    else:
        axes[0].legend(
            loc="upper center", bbox_to_anchor=(0.5, 0), borderaxespad=4.6, ncols=5, **style
        )
