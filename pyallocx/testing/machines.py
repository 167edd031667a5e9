"""State machines that drive an allocator against its plain-Python twin."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from pyallocx._core import InvalidFree
from pyallocx.arena import POLICIES, Arena
from pyallocx.reference.arena import Arenas, Chunks

__all__ = ["ArenaMachine", "arena_parameters"]

# Just below, at and just above the rungs that short lists reach.
_CUTS = (0, 15, 16, 17, 31, 32, 33, 63, 64, 65, 128, 255, 256, math.inf)
_SIZES = (1, 8, 9, 24, 40, 399, 400, 500)


@st.composite
def arena_parameters(draw: st.DrawFn, policies: tuple[str, ...] = POLICIES) -> dict[str, Any]:
    """Draw parameters of an arena, small enough that short runs reach every edge.

    Parameters
    ----------
    policies : tuple of str
        Policies to choose from.
    """
    policy = draw(st.sampled_from(policies))
    params: dict[str, Any] = {
        "policy": policy,
        "chunk_bytes": draw(st.sampled_from((64, 100, 256, 520, 8192))),
        "chunk_header_bytes": draw(st.sampled_from((24, 32))),
        "alignment_bytes": draw(st.sampled_from((8, 16))),
        "list_header_bytes": draw(st.sampled_from((0, 8, 16))),
        "large_capacity": draw(st.sampled_from((0, 1, 3, 7, 500))),
    }
    own: dict[str, dict[str, st.SearchStrategy[Any]]] = {
        "byte_cut": {"retain_bytes": st.sampled_from(_CUTS)},
        "capacity_cut": {"retain_capacity": st.integers(0, 16)},
        "peak_window": {"window_episodes": st.integers(1, 3), "padding_entries": st.integers(0, 4)},
        "low_water": {"tick_operations": st.integers(1, 20)},
        "age": {"idle_operations": st.integers(0, 20)},
        "budget": {"budget_bytes": st.sampled_from(_CUTS)},
        "intrusive": {"recycle_below_bytes": st.sampled_from((0, 24, 400, math.inf))},
    }
    for name, values in own.get(policy, {}).items():
        params[name] = draw(values)
    return params


class ArenaMachine(RuleBasedStateMachine):
    """Drives an arena and the twin through the same calls and compares all that can be seen.

    Subclass it to test an allocator of your own: ``make(**params)`` must return an object with
    ``alloc(key, size_bytes)``, ``free(key, handle)``, ``view(handle)``, ``stats()``, ``check()``
    and ``close()`` as `pyallocx.Arena` has them; a handle needs an ``address``.

    Attributes
    ----------
    make : callable
        Makes the arena under test.
    parameters : strategy
        Draws its parameters.
    can_share : bool
        Whether ``make(share=other)`` gives another arena under one policy.
    can_fail : bool
        Whether ``fail_backing_call`` makes a call to the backing fail.
    """

    make: Callable[..., Any] = staticmethod(Arena)
    parameters: st.SearchStrategy[dict[str, Any]] = arena_parameters()
    can_share = False
    can_fail = False

    def __init__(self) -> None:
        super().__init__()
        self.arenas: dict[int, Any] = {}
        self.opened = 0
        # Twin's object number -> (arena, address, bytes) of the same object under test.
        self.known: dict[int, tuple[int, int, int]] = {}
        self.live: list[tuple[int, int, int, Any, bytes]] = []
        self.dead: list[tuple[int, int, Any]] = []
        self.writes = 0

    @initialize(data=st.data())
    def start(self, data: st.DataObject) -> None:
        """Open the first arena."""
        params = data.draw(type(self).parameters, label="parameters")
        self.arenas[0] = self.make(**params)
        self.opened = 1
        self.twin = Arenas(**params)
        self.twin.pools[0] = Chunks()
        self.keys = data.draw(
            st.lists(st.sampled_from(_SIZES), min_size=1, max_size=3), label="size of each key"
        )

    def pick(self, choice: int) -> int:
        """Return one of the open arenas."""
        return sorted(self.arenas)[choice % len(self.arenas)]

    def alloc(self, name: int, key: int) -> None:
        """Allocate on both sides; the same object must come back for the same number."""
        size = self.keys[key]
        handle = self.arenas[name].alloc(key, size)
        number = self.twin.alloc(name, key, size)
        rounded = self.twin.rounded(size)
        if number in self.known:
            assert handle.address == self.known[number][1], "another object than the newest"
        else:
            assert handle.address % self.twin.alignment_bytes == 0
            for _, address, length in self.known.values():
                assert handle.address >= address + length or handle.address + rounded <= address
            self.known[number] = (name, handle.address, rounded)
        self.writes += 1
        content = (self.writes % 251).to_bytes(1, "little") * size
        with self.arenas[name].view(handle) as memory:
            assert memory.nbytes == size
            memory[:] = content
        self.live.append((name, key, number, handle, content))

    def free(self, choice: int) -> None:
        """Free on both sides; the content must be what was written."""
        name, key, number, handle, content = self.live.pop(choice % len(self.live))
        with self.arenas[name].view(handle) as memory:
            assert bytes(memory) == content, "a live object was written to"
        self.arenas[name].free(key, handle)
        self.twin.free(self.twin.list_of(name, key, self.keys[key]), number)
        self.dead.append((name, key, handle))

    @rule(choice=st.integers(0, 99), key=st.integers(0, 2), times=st.integers(1, 20))
    def allocate(self, choice: int, key: int, times: int) -> None:
        """Allocate some objects of one key."""
        for _ in range(times):
            self.alloc(self.pick(choice), key % len(self.keys))

    @precondition(lambda self: self.live)
    @rule(choice=st.integers(0, 99), step=st.integers(0, 2), times=st.integers(1, 20))
    def release(self, choice: int, step: int, times: int) -> None:
        """Free some objects, from one end or scattered."""
        for i in range(min(times, len(self.live))):
            self.free(choice + i * step)

    @rule(
        choice=st.integers(0, 99),
        key=st.integers(0, 2),
        up=st.sampled_from((1, 2, 3, 4, 7, 8, 9, 16)),
        down=st.integers(0, 16),
    )
    def run_an_episode(self, choice: int, key: int, up: int, down: int) -> None:
        """Fill one list and take some of it back: how lists live, and how edges are reached."""
        name = self.pick(choice)
        key %= len(self.keys)
        first = len(self.live)
        for _ in range(up):
            self.alloc(name, key)
        for _ in range(up):
            self.free(first)
        for _ in range(down):
            self.alloc(name, key)

    @precondition(lambda self: self.can_share and len(self.arenas) < 3)
    @rule()
    def open_another(self) -> None:
        """Open an arena that shares the policy."""
        first = self.arenas[self.pick(0)]
        self.arenas[self.opened] = self.make(share=first)
        self.twin.pools[self.opened] = Chunks()
        self.opened += 1

    @precondition(lambda self: len(self.arenas) > 1)
    @rule(choice=st.integers(0, 2))
    def close_one(self, choice: int) -> None:
        """Close an arena; its memory may be handed out again by the system."""
        name = self.pick(choice)
        gone = [entry for entry in self.live if entry[0] == name]
        self.known = {n: place for n, place in self.known.items() if place[0] != name}
        self.live = [entry for entry in self.live if entry[0] != name]
        self.dead = [entry for entry in self.dead if entry[0] != name]
        arena = self.arenas.pop(name)
        arena.close()
        self.twin.close(name)
        for _, key, _, handle, _ in gone:
            with _raises(ValueError):
                arena.free(key, handle)

    @precondition(lambda self: self.live)
    @rule(choice=st.integers(0, 99))
    def free_under_another_key(self, choice: int) -> None:
        """See a wrong key refused, and nothing change."""
        name, key, _, handle, _ = self.live[choice % len(self.live)]
        self.unchanged(InvalidFree, lambda: self.arenas[name].free(key + 1, handle))

    @precondition(lambda self: self.dead)
    @rule(choice=st.integers(0, 99))
    def free_again(self, choice: int) -> None:
        """See a freed handle refused, whether or not its memory was handed out again."""
        name, key, handle = self.dead[choice % len(self.dead)]
        self.unchanged(InvalidFree, lambda: self.arenas[name].free(key, handle))
        self.unchanged(InvalidFree, lambda: self.arenas[name].view(handle))

    @precondition(lambda self: self.live and len(self.arenas) > 1)
    @rule(choice=st.integers(0, 99))
    def free_in_another_arena(self, choice: int) -> None:
        """See a handle of another arena refused."""
        name, key, _, handle, _ = self.live[choice % len(self.live)]
        other = next(n for n in self.arenas if n != name)
        self.unchanged(InvalidFree, lambda: self.arenas[other].free(key, handle))

    @rule(choice=st.integers(0, 99), key=st.integers(0, 2))
    def ask_another_size(self, choice: int, key: int) -> None:
        """See that a key that has a size keeps it."""
        key %= len(self.keys)
        name = self.pick(choice)
        used = any(
            x.bumps for (owner, k, _), x in self.twin.lists.items() if (owner, k) == (name, key)
        )
        if used and self.twin.policy != "intrusive":
            self.unchanged(ValueError, lambda: self.arenas[name].alloc(key, self.keys[key] + 64))

    @precondition(lambda self: self.can_fail)
    @rule(
        choice=st.integers(0, 99),
        key=st.integers(0, 2),
        books=st.booleans(),
        freeing=st.booleans(),
        n=st.integers(1, 2),
    )
    def backing_fails(self, choice: int, key: int, books: bool, freeing: bool, n: int) -> None:
        """See that a call that the backing refuses changes nothing, and works afterwards."""
        name = self.pick(choice)
        key %= len(self.keys)
        if freeing and not self.live:
            return
        # A tick may shrink a buffer; that it cannot is no failure of the call. The twin does not
        # know such refusals.
        if self.twin.policy in ("peak_window", "low_water"):
            return
        if freeing:
            name, key, _, handle, _ = self.live[choice % len(self.live)]
        arena = self.arenas[name]
        before = self.seen(arena)
        arena.fail_backing_call(n, bookkeeping=books)
        try:
            made = arena.free(key, handle) if freeing else arena.alloc(key, self.keys[key])
        except MemoryError:
            arena.fail_backing_call(0, bookkeeping=books)
            assert self.seen(arena) == before
            arena.check()
        else:
            arena.fail_backing_call(0, bookkeeping=books)
            self.catch_up(name, key, made, choice if freeing else None)
        if freeing:
            return
        self.alloc(name, key)

    def catch_up(self, name: int, key: int, handle: Any, freed: int | None) -> None:
        """Let the twin do what the arena under test has just done by itself."""
        if freed is not None:
            name, key, number, handle, _ = self.live.pop(freed % len(self.live))
            self.twin.free(self.twin.list_of(name, key, self.keys[key]), number)
            self.dead.append((name, key, handle))
            return
        number = self.twin.alloc(name, key, self.keys[key])
        self.known.setdefault(number, (name, handle.address, self.twin.rounded(self.keys[key])))
        with self.arenas[name].view(handle) as memory:
            self.live.append((name, key, number, handle, bytes(memory)))

    def seen(self, arena: Any) -> dict[str, Any]:
        """Return the counters that a refused call must not touch."""
        stats = dict(arena.stats())
        for refused in ("backing_failed", "lists"):
            stats.pop(refused, None)
        return stats

    def unchanged(self, error: type[Exception], call: Callable[[], object]) -> None:
        """Demand that a call is refused and changes nothing."""
        before = [arena.stats() for arena in self.arenas.values()]
        with _raises(error):
            call()
        assert [arena.stats() for arena in self.arenas.values()] == before

    @invariant()
    def agrees(self) -> None:
        """Every counter agrees with the twin, and the arena's own check is content."""
        if not self.arenas:
            return
        row = self.twin.row()
        arena = self.arenas[self.pick(0)]
        stats = arena.stats()
        for name in (
            "chunk_mallocs",
            "lists_end",
            "live_bytes_end",
            "held_bytes_end",
            "arenas_end",
        ):
            row.pop(name)
        for name, value in row.items():
            assert stats[name.removesuffix("_end")] == value, name
        for arena in self.arenas.values():
            arena.check()

    def teardown(self) -> None:
        """Close what is open."""
        for arena in self.arenas.values():
            arena.close()


class _raises:
    """`pytest.raises` without pytest, which a user of these machines need not have."""

    def __init__(self, error: type[Exception]) -> None:
        self.error = error

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> bool:
        assert kind is not None, f"{self.error.__name__} expected, nothing was raised"
        return issubclass(kind, self.error)
