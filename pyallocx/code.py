"""Code memory: chunks that are cut into blocks, joined again, and flipped to be executable.

`CodeSystem` replays a trace of compiled methods through ``csrc/core/codeheap`` under the historical
policies of Mozilla bug 601724 and under today's designs. The live `CodeHeap` is the same C code on
real pages.
"""

from __future__ import annotations

import math
import mmap
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Self

from pyallocx import _core
from pyallocx._codenotes import notes
from pyallocx._systems import FAIL_AT, drive, one_of, power_of_two, validated, whole
from pyallocx.codetraces.synthetic import synthesize_code
from pyallocx.sweep import Cell, Control, Parameter
from pyallocx.table import SweepResult
from pyallocx.trace import Trace
from pyallocx.units import counted, parse_bytes, parse_count

if TYPE_CHECKING:
    from typing_extensions import Buffer

__all__ = [
    "CODE_POLICIES",
    "HISTORICAL",
    "MIN_HOLES",
    "WX_MODES",
    "CodeHeap",
    "CodeReplay",
    "CodeSystem",
    "CodeWriter",
    "replay_code",
]

#: Names of the policies, in the order of the core's table; those of the bug's history come first.
CODE_POLICIES: tuple[str, ...] = _core.CODE_POLICIES
#: The policies that know no size and give the rest of a block back with add_remainder.
HISTORICAL: tuple[str, ...] = CODE_POLICIES[:6]
#: The smallest hole that is cut out of a used block, from header H and minimum payload M.
MIN_HOLES = ("max(M,2H)", "H+M", "2H+M", "3H+M", "4H+3M")
#: How writable and executable exclude each other.
WX_MODES = ("flip", "dual", "rwx", "per_thread")

#: The columns whose sum is ``system_calls``.
SYSTEM_CALLS = ("chunk_maps", "chunk_unmaps", "protect_calls", "file_calls")

_U64_MAX = 2**64 - 1
_OWN = 2**32 - 1
_OWN_CHUNKS = _U64_MAX - 1


PARAMETERS: tuple[Parameter, ...] = (
    Parameter("policy", "segregated", str, "how blocks are found, cut and joined", CODE_POLICIES),
    Parameter(
        "chunk_bytes",
        65536,
        parse_bytes,
        "what is asked of the system at a time, a multiple of page_bytes",
        check=whole(1, 1 << 32),
    ),
    Parameter(
        "byte_limit",
        0,
        parse_bytes,
        "byte_limit, halving: largest payload that alloc returns; sized and live: what alloc() "
        "without a size returns; 0 none",
        check=whole(0, 1 << 32),
    ),
    Parameter(
        "min_hole",
        "3H+M",
        str,
        "historical: smallest hole that is given back; until 2011 max(M,2H), which leaves dead "
        "blocks; H+M is nobody's and overlaps; 2H+M is tight (comment 18), 3H+M landed (bug "
        "614126), 4H+3M is comment 18's for the limit",
        MIN_HOLES,
    ),
    Parameter(
        "wx",
        "flip",
        str,
        "flip: mprotect per chunk; dual: two mappings; rwx: neither; per_thread: protection keys",
        WX_MODES,
    ),
    Parameter(
        "header_bytes",
        None,
        parse_bytes,
        "bytes of the header before each block, such as 16 in sljit, 20 or 40 in nanojit; 0 none; "
        "default: the design's own, 40 in history",
        check=whole(0, 4096, missing=True),
    ),
    Parameter(
        "min_payload_bytes",
        32,
        parse_bytes,
        "smallest payload of a block",
        check=whole(1, 65536),
    ),
    Parameter(
        "pointer_bytes", 8, parse_bytes, "4 or 8: headers are aligned to it", check=one_of(4, 8)
    ),
    Parameter(
        "granule_bytes",
        None,
        parse_bytes,
        "sized designs round requests up to this; default: the design's own",
        check=whole(1, 65536, missing=True),
    ),
    Parameter(
        "min_rest_bytes",
        None,
        parse_bytes,
        "first_fit, best_fit, segregated: smaller rests stay with the block; default: the design's",
        check=whole(0, 1 << 31, missing=True),
    ),
    Parameter(
        "page_bytes",
        4096,
        parse_bytes,
        "page of the system, a power of two",
        check=power_of_two(1, 1 << 30),
    ),
    Parameter(
        "partitions", 16, parse_count, "partition: pieces of one request", check=whole(1, 65536)
    ),
    Parameter(
        "max_code_bytes",
        2 << 20,
        parse_bytes,
        "bump: everything is flushed beyond this",
        check=whole(1, 1 << 40),
    ),
    Parameter(
        "reach_bytes",
        0,
        parse_bytes,
        "how far a jump reaches; blocks beyond it are counted; 0 any distance",
        check=whole(0, 1 << 48),
    ),
    Parameter(
        "keep_bytes",
        math.inf,
        parse_bytes,
        "bytes of empty chunks kept, together: 0 none, inf all",
        check=whole(0, _U64_MAX - 1, infinite=True),
    ),
    Parameter(
        "keep_chunks",
        None,
        parse_count,
        "empty chunks kept (bitmap: in each pool): 0 none, inf all; default: the design's own, 1 "
        "with bitmap, inf with the others",
        check=whole(0, _U64_MAX - 2, infinite=True, missing=True),
    ),
    Parameter(
        "keep_operations",
        0,
        parse_count,
        "give an empty chunk back after so many operations; 0 never by age",
        check=whole(0, _U64_MAX),
    ),
    Parameter(
        "jump_bytes",
        8,
        parse_bytes,
        "historical: room for the jump from one block to the next",
        check=whole(0, 4096),
    ),
    Parameter(
        "hot_methods",
        256,
        parse_count,
        "hot_pages: how many of the most recent methods are looked at",
        check=whole(0, 1 << 20),
    ),
)

_REPLAY_ONLY = ("jump_bytes", "hot_methods")


def _core_params(values: Mapping[str, Any]) -> dict[str, int]:
    numbers = {}
    names = {"policy": CODE_POLICIES, "min_hole": MIN_HOLES, "wx": WX_MODES}
    for name, value in values.items():
        if name in _REPLAY_ONLY:
            continue
        if name in names:
            value = names[name].index(value)
        elif value is None:
            value = _OWN_CHUNKS if name == "keep_chunks" else _OWN
        numbers[name] = _U64_MAX if value == math.inf else int(value)
    return numbers


def _validated(given: Mapping[str, object], *, live: bool) -> dict[str, Any]:
    hidden = _REPLAY_ONLY if live else ()
    known = [p for p in PARAMETERS if p.name not in hidden]
    return validated("code heap", known, given)


@dataclass(frozen=True)
class CodeReplay:
    """One replay of a trace through a code heap.

    Attributes
    ----------
    row : dict
        The counters, named as the columns of a sweep; empty if the replay stopped at a broken heap.
    blocks : list of dict
        The heap at the end, block by block in the order of addresses: ``chunk``, ``chunk_bytes``,
        ``offset`` (of the header), ``header_bytes``, ``payload_bytes`` (negative where the header
        of the next block overlaps this one's), ``code_bytes``, and 0 or 1 for ``free``,
        ``listed``, ``dead`` (free, but too small to be listed), ``executable``. `chunk_map` draws
        them.
    broken : str or None
        What is wrong with the heap, if ``on_corruption="keep"`` asked for it all the same.
    """

    row: dict[str, Any]
    blocks: list[dict[str, int]]
    broken: str | None = None

    def __repr__(self) -> str:
        """Say what it is about; the numbers are in `row`, the blocks make thousands of lines."""
        if self.broken is not None:
            return f"<CodeReplay broken: {self.broken}; {counted(len(self.blocks), 'block')}>"
        return (
            f"<CodeReplay {counted(self.row['methods'], 'method')}, "
            f"{counted(self.row['system_calls'], 'system call')}, "
            f"{counted(len(self.blocks), 'block')} in {counted(self.row['chunks_end'], 'chunk')}>"
        )


def _start(
    trace: Trace, values: Mapping[str, Any], *, modelled: bool = True, fail_at: int = 0
) -> _core.CodeReplay:
    return _core.CodeReplay(
        _core_params(values),
        trace.op,
        trace.object,
        trace.size_bytes,
        trace.n_objects,
        values["jump_bytes"],
        values["hot_methods"],
        modelled=modelled,
        fail_at=fail_at,
    )


def _finish(row: dict[str, Any]) -> dict[str, Any]:
    row["system_calls"] = sum(row[kind] for kind in SYSTEM_CALLS)
    return row


def replay_code(
    trace: Trace,
    *,
    modelled: bool = True,
    fail_at: int = 0,
    on_corruption: Literal["raise", "keep"] = "raise",
    **params: object,
) -> CodeReplay:
    """Replay a trace of compiled methods through a code heap under one policy.

    Parameters
    ----------
    trace : Trace
        Every alloc is a method here, its size bytes of code: a compiled method whose main code
        and exits are two streams (`synthesize_code`) counts twice.
    modelled : bool
        Count without memory. False maps and protects real pages, which changes only what depends
        on their addresses: ``vma_count_peak``, ``hot_pages_*``, ``reach_failures``, and with
        several chunks the order of ``best_fit``'s list. Protection keys are in the model only: the
        pages of ``wx="per_thread"`` are mapped once and never protected.
    fail_at : int
        Make this call to the system fail, counted from 1 (0: none).
    on_corruption : {"raise", "keep"}
        What to do when the policy's arithmetic broke the heap: raise, or return the heap as it is
        then, with the reason in `broken`, for a look at it.
    **params
        Parameters of a sweep.

    Returns
    -------
    CodeReplay
        Counters, and the blocks at the end.

    Raises
    ------
    CorruptionError
        If the policy's arithmetic broke the heap (some historical ones do) and `on_corruption` is
        ``"raise"``.
    MemoryError
        If the system refused.
    ValueError
        If a parameter or `fail_at` is out of range.
    TraceError
        If an event breaks the rules of a trace, or a method has more than 256 MiB.

    Examples
    --------
    >>> import pyallocx as px
    >>> trace = px.synthesize(1000, seed=1, sizes="lognormal")
    >>> px.replay_code(trace, policy="byte_limit", byte_limit=4096).row["chunk_maps"] > 0
    True
    """
    if on_corruption not in ("raise", "keep"):
        raise ValueError(f"on_corruption is 'raise' or 'keep', not {on_corruption!r}")
    values = {p.name: p.default for p in PARAMETERS} | _validated(params, live=False)
    if not isinstance(trace, Trace):
        raise TypeError(f"a code heap replays a Trace, not {type(trace).__name__}")
    call = FAIL_AT.validate(fail_at)
    assert isinstance(call, int)
    replay = _start(trace, values, modelled=modelled, fail_at=call)
    try:
        drive(replay, len(trace), None)
        replay.check()
    except _core.CorruptionError as broken:
        if on_corruption == "raise":
            raise
        return CodeReplay({}, replay.blocks(), str(broken))
    return CodeReplay(_finish(replay.row()), replay.blocks())


class CodeSystem:
    """How a code heap is swept; docs/code.md says what each column counts.

    Notes
    -----
    The policies. Those of the history of Mozilla bug 601724 [1]_ know no size; versions are those
    of nanojit's allocator, comments those of the bug:

    ``scan``
        The first free block that is large enough (V1, May 2009).
    ``whole_block``
        The whole of the newest listed block (V2 to V6, July 2009 to November 2010: V6 is the
        bug's first part, comments 8 to 12, 16 and 19).
    ``partition``
        The same, one request being several chunks (comments 1 to 3, rejected).
    ``halving``
        At most the byte limit, or half of it and the header (comment 13, as comment 17 describes
        it; never landed). Wrong with a limit below H + 2M.
    ``halving_payload``
        The same, half being payload (comment 17, as its author calculates). Wrong below
        3H + 2M - 3.
    ``byte_limit``
        At most the byte limit, or a block of the least size (V7, January 2011: what landed, under
        bug 614126 [2]_). Right from H + 2M - 1.

    Six after designs of today, and our own, ``segregated``, are told a size:

    ``first_fit``
        sljit: cuts the high end, joins both sides.
    ``best_fit``
        HotSpot: a list in the order of addresses; small rests stay with the block.
    ``bitmap``
        asmjit: granules in three pools, each chunk twice the newest one of its pool.
    ``pack``
        Linux's bpf_prog_pack: granules, oldest chunk first.
    ``buckets``
        Powers of two, reused by their own size.
    ``bump``
        LuaJIT: down the newest chunk; everything is flushed when full.
    ``segregated``
        Our own: two-level segregated fit, in constant time. The default.

    H is ``header_bytes``, M ``min_payload_bytes``. The wrong ones are kept wrong: they are what
    tests must catch.

    References
    ----------
    .. [1] https://bugzilla.mozilla.org/show_bug.cgi?id=601724
    .. [2] https://bugzilla.mozilla.org/show_bug.cgi?id=614126
    """

    name = "code"
    parameters = PARAMETERS
    columns = (
        "methods",
        "chunk_maps",
        "chunk_unmaps",
        "protect_calls",
        "file_calls",
        "system_calls",
        "flips_to_write",
        "flips_to_exec",
        "pages_flipped",
        "pages_flipped_per_method",
        "mapped_bytes_peak",
        "mapped_bytes_mean",
        "mapped_bytes_end",
        "code_bytes_peak",
        "code_bytes_end",
        "wastage_bytes_mean",
        "wastage_bytes_peak",
        "header_bytes",
        "dead_bytes",
        "free_bytes",
        "largest_free_block",
        "internal_fragmentation",
        "external_fragmentation",
        "splits",
        "coalesces",
        "list_scan_steps",
        "unmarked_header_writes",
        "vma_count_peak",
        "hot_pages_4k",
        "hot_pages_64k",
        "hot_pages_2m",
        "reach_failures",
        "flushes",
        "undersized_blocks",
        "blocks_end",
        "chunks_end",
    )
    default_grid: ClassVar[Mapping[str, Sequence[object]]] = {
        "policy": ["byte_limit", "segregated"],
        "chunk_bytes": [4096, 16384, 65536, 262144, 1 << 20, 2 << 20],
        "byte_limit": [4096],
    }
    x = "wastage_bytes_mean"
    y = "system_calls"
    labels: ClassVar[Mapping[str, str]] = {
        "wastage_bytes_mean": "mapped and not code, mean",
        "wastage_bytes_peak": "mapped and not code, peak",
        "methods": "methods (allocs: main code and exits apart)",
        "system_calls": "calls of mmap, munmap, mprotect, memfd",
        "pages_flipped_per_method": "pages flipped per method",
    }

    trace_type = Trace

    def default_trace(self) -> tuple[str, Trace]:
        """Return what is swept where no trace is given: the shipped ones are not of code."""
        name = "2,000 synthetic methods in two streams, 4,000 allocs (px.synthesize_code())"
        return name, synthesize_code()

    def group(self, cells: Sequence[Cell]) -> list[list[int]]:
        """Every cell is a pass of its own, but equal ones are one."""
        groups: dict[tuple[object, ...], list[int]] = {}
        for index, cell in enumerate(cells):
            groups.setdefault(tuple(cell.values()), []).append(index)
        return list(groups.values())

    def notes(self, result: SweepResult) -> list[str]:
        """Return what a reader of the table must know beside its numbers."""
        return notes(result)

    def check(self, cell: Cell) -> None:
        """Raise for parameters that the core refuses together, whatever the trace."""
        _start(Trace([], [], []), cell)

    def run(self, trace: Trace, cells: Sequence[Cell], control: Control) -> list[object]:
        """Replay one group."""
        replay = _start(trace, cells[0])
        drive(replay, len(trace), control)
        replay.check()
        row = _finish(replay.row())
        return [dict(row) for _ in cells]


def _demand_alive(heap: CodeHeap, block: _core.Block) -> None:
    """Raise InvalidFree for a block that is another heap's, or gone."""
    try:
        heap.write(block, b"")
    except _core.InvalidFree:
        raise
    except ValueError:
        if not block.sealed:
            raise


class CodeWriter:
    """Writes into one open block of a `CodeHeap`: what ``with heap.writing(block)`` gives.

    Attributes
    ----------
    position : int
        Where the next `write` without an offset goes: behind the last one.
    """

    __slots__ = ("_block", "_heap", "_writing", "position")

    def __init__(self, heap: CodeHeap, block: _core.Block) -> None:
        self._heap = heap
        self._block = block
        self._writing: bool | None = None  # None: not yet
        self.position = 0

    def __enter__(self) -> Self:
        """Open the block, if it is sealed."""
        if self._block.sealed:
            self._heap.open(self._block)
        else:
            _demand_alive(self._heap, self._block)
        self.position = 0
        self._writing = True
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Seal the block: also after an exception, as its neighbours wait for that."""
        self._writing = False
        if self._block.sealed or self._heap.closed:
            return
        try:
            self._heap.seal(self._block)
        except _core.InvalidFree:
            return  # freed inside, which is what to do with a block that is half written
        except (ValueError, MemoryError):
            if error is None:  # else what went wrong first is what matters
                raise

    def write(self, code: Buffer, offset: int | None = None) -> None:
        """Copy code into the block.

        Parameters
        ----------
        code : buffer
            Bytes, or any contiguous buffer.
        offset : int, optional
            Where in the block the first byte goes; by default behind what was written last.

        Raises
        ------
        ValueError
            If the code does not fit, or the writing has not begun or has ended. Nothing was
            written.
        """
        if not self._writing:
            if self._heap.closed:
                raise ValueError("code heap is closed")
            if self._writing is None:
                raise ValueError("the writing has not begun: write inside of the with statement")
            raise ValueError("the writing has ended: write inside of the with statement")
        start = self.position if offset is None else offset
        self._heap.write(self._block, code, start)
        self.position = start + memoryview(code).nbytes


class CodeHeap(_core.CodeHeap):
    """Memory for machine code on real pages: chunks cut into blocks, and W^X between them.

    ``alloc`` gives an open block, ``write`` fills it, ``seal`` makes it executable (and flushes the
    instruction cache), ``open`` makes it writable again, ``free`` gives it back. A block has an
    ``address`` that `ctypes` can call, and keeps the heap, so that code which somebody may still
    call stays mapped until `close`.

    A compiler that does not know yet how much it will write takes a block as it comes, ``alloc()``,
    and gives back what it did not need, `shrink`.

    A foreign, stale or doubly freed block raises `InvalidFree`, writing to a sealed block or
    outside of one `ValueError`, and nothing has changed. What no allocator can catch is a call of
    code that is not executable: the CPU ends the process. ``block.executable`` tells beforehand.

    Any call may raise `MemoryError`, as the system may refuse any call. Then every block is as it
    was, open or sealed, and so is its chunk; the same call again is the retry. (But ``"bump"`` may
    have flushed.) What holds at every moment: a sealed block in a chunk without open blocks is
    executable. So after a refused `seal` the block is still open, and with ``wx="flip"`` its sealed
    neighbours in the chunk are not executable either until the retry succeeds, or the block is
    freed; all other chunks run on. A free never fails because the system keeps an empty chunk.

    Parameters
    ----------
    policy : str
        How blocks are found, cut and joined: ``"segregated"`` (bins by size, constant time),
        ``"first_fit"`` (sljit), ``"best_fit"`` (HotSpot), ``"bitmap"`` (asmjit), ``"pack"``
        (Linux's bpf_prog_pack), ``"buckets"`` (powers of two), ``"bump"`` (LuaJIT: beyond
        ``max_code_bytes`` an `alloc` flushes all blocks, which are stale then). The policies of
        bug 601724's history know no size: ``alloc()`` gives a block as they do, `shrink` gives the
        rest back. They are ``"scan"`` (V1), ``"whole_block"`` (V2 to V6), ``"partition"`` (comments
        1 to 3), ``"halving"`` (comments 13 and 17), ``"halving_payload"`` (comment 17 as its author
        calculates) and ``"byte_limit"`` (V7, which landed under bug 614126).
    wx : str
        How writable and executable exclude each other.

        ``"flip"``
            ``mprotect`` per chunk, read-write or read-execute. A chunk is executable while no block
            in it is open: `alloc` and `open` stop the code of the block's neighbours until the last
            open block of the chunk is sealed (or freed). A thread that runs such code meanwhile
            ends the process.
        ``"dual"``
            Two mappings of one ``memfd``, one read-write and one read-execute. Nothing flips, all
            sealed code runs all the time. After a fork the child shares the memory.
        ``"rwx"``
            One mapping with all rights.

        ``"per_thread"`` (protection keys) exists in replays only.
    chunk_bytes, page_bytes : int
        What is asked of the system at a time, a multiple of the page (default: the system's).
    header_bytes, granule_bytes, min_rest_bytes, min_payload_bytes : int
        The layout, by default the design's own. With ``header_bytes`` each block has a header in
        its chunk, which mirrors what the heap knows; `check` names the header that somebody wrote
        over, and the field. The heap decides nothing by what they say.
    byte_limit : int
        What ``alloc()`` without a size returns: at most, under ``"byte_limit"``, ``"halving"`` and
        ``"halving_payload"`` (a limit with which they cut blocks that are too small is refused);
        exactly, under those that are told a size. 0: what a chunk holds.
    min_hole, pointer_bytes, partitions : str, int, int
        Of the historical policies: the smallest rest that `shrink` gives back, what its end is
        aligned to; pieces of one request.
    keep_bytes, keep_chunks, keep_operations : int or float
        Empty chunks kept: their bytes together, their number (with ``"bitmap"`` in each pool,
        where it is 1 by default), 0 none, ``math.inf`` all; and for how many operations, 0 for
        ever.
    max_code_bytes, reach_bytes : int
        See the policies; blocks farther apart than a jump reaches are counted.

    Examples
    --------
    A function that adds two numbers, written, sealed and called:

    >>> import ctypes, platform
    >>> import pyallocx as px
    >>> add = {
    ...     "x86_64": bytes.fromhex("89f8 01f0 c3"),       # mov eax, edi; add eax, esi; ret
    ...     "aarch64": bytes.fromhex("0000010b c0035fd6"),  # add w0, w0, w1; ret
    ... }
    >>> code = add.get(platform.machine())
    >>> for wx in ("flip", "dual", "rwx") if code else ():
    ...     with px.CodeHeap(wx=wx) as heap:
    ...         block = heap.alloc(len(code))
    ...         with heap.writing(block) as w:
    ...             w.write(code)
    ...         call = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_int, ctypes.c_int)(block.address)
    ...         assert call(40, 2) == 42

    >>> with px.CodeHeap() as heap:
    ...     block = heap.alloc(100)
    ...     heap.seal(block)
    ...     heap.write(block, b"too late")
    Traceback (most recent call last):
    ValueError: block is sealed: open it before it is written to
    """

    __slots__ = ()
    __sweep__: ClassVar[CodeSystem] = CodeSystem()

    def __new__(cls, **params: object) -> Self:
        """Check the parameters and open the heap."""
        values = {"page_bytes": mmap.PAGESIZE} | _validated(params, live=True)
        if values.get("wx") == "per_thread":
            raise ValueError(
                "wx 'per_thread' (protection keys) exists in replays only; on real pages: "
                "flip, dual, rwx"
            )
        return super().__new__(cls, _core_params(values))

    def writing(self, block: _core.Block) -> CodeWriter:
        """Write to a block, which is open inside a ``with`` and sealed after it.

        It is sealed after an exception, too: with ``wx="flip"`` its neighbours cannot run before.
        A block that is half written can be freed inside, and one that is done be sealed there.

        It gives a writer and not a view of the memory: somebody could keep a view, and with
        ``wx="flip"`` a write through it after the seal would end the process.

        Parameters
        ----------
        block : Block
            An open one, or a sealed one, which is opened.

        Returns
        -------
        CodeWriter
            With ``write(code, offset=None)``.

        Raises
        ------
        InvalidFree
            If the block is another heap's, stale, or freed: at the call.
        MemoryError
            If the system refuses to open the block (it is still sealed) or, at the end, to make it
            executable (it is still open: `seal` it again).
        """
        _demand_alive(self, block)
        return CodeWriter(self, block)

    def __repr__(self) -> str:
        """Say what it holds."""
        if self.closed:
            return "<CodeHeap closed>"
        stats = self.stats()
        return (
            f"<CodeHeap {counted(stats['used_blocks'], 'block')} of "
            f"{counted(stats['code_bytes'], 'byte')}, {stats['open_blocks']} open, "
            f"{counted(stats['chunks'], 'chunk')} of {counted(stats['mapped_bytes'], 'byte')}>"
        )
