"""The plain-Python twin of `pyallocx.replay_code`.

The heap is that of `pyallocx.reference.codeheap`; the rule by which a trace drives it is here.
"""

from __future__ import annotations

from collections import deque
from typing import Any

from pyallocx._core import CorruptionError
from pyallocx.code import SYSTEM_CALLS
from pyallocx.reference.codeheap import Block, CodeHeap
from pyallocx.trace import OP_ALLOC, OP_FREE, Trace

__all__ = ["CodeHeap", "Replay", "replay"]


class Replay:
    """A trace of compiled methods driven through a heap, one event at a time."""

    def __init__(
        self, trace: Trace, *, jump_bytes: int = 8, hot_methods: int = 256, **params: Any
    ) -> None:
        self.trace = trace
        self.heap = CodeHeap(**params)
        self.jump = jump_bytes
        self.hot_methods = hot_methods
        self.at = 0
        self.live: dict[int, tuple[int, list[Block]]] = {}
        self.recent: deque[tuple[int, int, int]] = deque(maxlen=4 * hot_methods + 1)
        self.undersized = 0
        self.methods = self.mapped_sum = self.wastage_sum = 0
        self.code_peak = self.wastage_peak = 0

    def compile(self, size: int) -> list[Block]:
        """Place a method; return its blocks."""
        heap = self.heap
        code_list: list[Block] = []
        if heap.historical:
            need = max(size, 1)
            while need:
                block = heap.alloc()
                payload = heap.payload(block)
                self.undersized += payload < heap.least
                room = max(payload - self.jump, 0)
                if room == 0 or payload > heap.chunk_bytes:
                    raise CorruptionError("alloc returned a block without room")
                block.code_bytes = min(room, need)
                if room < need:
                    code_list.insert(0, block)
                else:
                    heap.add_remainder(
                        code_list, block, block.start + heap.header, block.end - need
                    )
                need -= min(room, need)
        else:
            code_list = [heap.alloc(size)]
        for block in code_list:
            self.recent.append((block.start, block.end, self.methods))
            heap.mark(heap.chunk_of(block), True)
        self.methods += 1
        return code_list

    def step(self) -> None:
        """Replay one event."""
        op, thing = int(self.trace.op[self.at]), int(self.trace.object[self.at])
        heap = self.heap
        ended = None if op == OP_ALLOC else self.live.pop(thing)
        if op != OP_FREE:
            code_list = self.compile(int(self.trace.size_bytes[self.at]))
            self.live[thing] = (heap.counters["flushes"], code_list)
        if ended is not None and ended[0] == heap.counters["flushes"]:
            for block in ended[1]:
                heap.free(block)
        wastage = heap.mapped_bytes - heap.code_bytes
        self.mapped_sum += heap.mapped_bytes
        self.wastage_sum += wastage
        self.wastage_peak = max(self.wastage_peak, wastage)
        self.code_peak = max(self.code_peak, heap.code_bytes)
        self.at += 1

    def hot_pages(self, page: int) -> int:
        """Count different pages under the blocks of the most recent methods."""
        first = max(self.methods - self.hot_methods, 0)
        return len(
            {
                number
                for start, end, method in self.recent
                if method >= first
                for number in range(start // page, (end - 1) // page + 1)
            }
        )

    def row(self) -> dict[str, Any]:
        """Return the counters of a finished replay, as `px.replay_code` names them."""
        heap, events = self.heap, max(len(self.trace), 1)
        payloads = [heap.payload(b) for _, b in heap.blocks() if b.free]
        used = [(heap.payload(b), b.code_bytes) for _, b in heap.blocks() if not b.free]
        largest = max(payloads, default=0)
        blocks, chunks = len(payloads) + len(used), len(heap.chunks)
        counted = heap.counters
        row: dict[str, Any] = {
            name: counted[name]
            for name in (
                "chunk_maps", "chunk_unmaps", "protect_calls", "file_calls", "flips_to_write",
                "flips_to_exec", "pages_flipped", "splits", "coalesces", "list_scan_steps",
                "unmarked_header_writes", "reach_failures", "flushes",
            )
        }  # fmt: skip
        row |= {
            "methods": self.methods,
            "system_calls": sum(row[name] for name in SYSTEM_CALLS),
            "mapped_bytes_end": heap.mapped_bytes,
            "mapped_bytes_peak": heap.mapped_peak,
            "mapped_bytes_mean": self.mapped_sum / events,
            "code_bytes_end": heap.code_bytes,
            "code_bytes_peak": self.code_peak,
            "wastage_bytes_peak": self.wastage_peak,
            "wastage_bytes_mean": self.wastage_sum / events,
            "pages_flipped_per_method": counted["pages_flipped"] / max(self.methods, 1),
            "header_bytes": (blocks + chunks) * heap.header,
            "dead_bytes": sum(p for p in payloads if p < heap.least_listed),
            "free_bytes": sum(payloads),
            "largest_free_block": largest,
            "internal_fragmentation": sum(payload - code for payload, code in used),
            "external_fragmentation": sum(payloads) - largest,
            "vma_count_peak": heap.vma_peak,
            "hot_pages_4k": self.hot_pages(4096),
            "hot_pages_64k": self.hot_pages(65536),
            "hot_pages_2m": self.hot_pages(2 << 20),
            "undersized_blocks": self.undersized,
            "blocks_end": blocks,
            "chunks_end": chunks,
        }
        return row


def replay(trace: Trace, **params: Any) -> dict[str, Any]:
    """Replay a `pyallocx.Trace`; return the row that `pyallocx.replay_code` returns.

    Examples
    --------
    >>> import pyallocx as px
    >>> trace = px.synthesize_code(50, seed=1)
    >>> replay(trace, policy="scan") == px.replay_code(trace, policy="scan").row
    True
    """
    twin = Replay(trace, **params)
    while twin.at < len(trace):
        twin.step()
    twin.heap.check()
    return twin.row()
