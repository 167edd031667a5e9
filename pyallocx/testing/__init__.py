"""Hypothesis strategies and state machines for allocators: ours, and yours.

`traces` draws valid traces. `ArenaMachine` drives an arena against the plain-Python twin; point its
``make`` at your own allocator to test that. `wrong_arenas` are arenas with one deliberate mistake
each, to see that a test can fail. `CodeHeapMachine` does for code heaps what `ArenaMachine` does
for arenas, and `find_split_failure` hunts for the smallest parameters with which a policy's split
arithmetic goes wrong. `check_size_map` is the oracle of size maps, yours too; `wrong_size_maps` are
those it must catch.
"""

from pyallocx.testing.code import (
    CodeBlocks,
    CodeHeapMachine,
    SplitFailure,
    code_parameters,
    find_split_failure,
    least_limit,
)
from pyallocx.testing.machines import ArenaMachine, arena_parameters
from pyallocx.testing.sizemaps import (
    check_size_map,
    class_lists,
    fixed_parameters,
    table_parameters,
    wrong_size_maps,
)
from pyallocx.testing.strategies import traces
from pyallocx.testing.variants import ReferenceArena, wrong_arenas

__all__ = [
    "ArenaMachine",
    "CodeBlocks",
    "CodeHeapMachine",
    "ReferenceArena",
    "SplitFailure",
    "arena_parameters",
    "check_size_map",
    "class_lists",
    "code_parameters",
    "find_split_failure",
    "fixed_parameters",
    "least_limit",
    "table_parameters",
    "traces",
    "wrong_arenas",
    "wrong_size_maps",
]
