"""What the documents say in numbers and names, held to the code."""

import re

from pyallocx import _core
from pyallocx.arena import ArenaSystem


def test_every_column_of_a_sweep_is_explained(repository):
    text = (repository / "docs" / "arena.md").read_text()
    explained = []
    for line in re.findall(r"(?m)^\| (`[a-z_`, ]+`) \|", text):
        first, *more = re.findall(r"`([a-z_]+)`", line)
        explained += [first, *(first.rpartition("_")[0] + suffix for suffix in more)]
    assert sorted(explained) == sorted([*ArenaSystem.columns, "status"])


def test_the_ladder_is_as_written(repository):
    text = (repository / "docs" / "arena.md").read_text()
    both = [dict(_core.ladder(8, width)) for width in (8, 4)]
    rows = re.findall(r"(?m)^\| ([\d,]+)( MiB)? \| ([\d,]+|-) \| ([\d,]+|-) \|$", text)
    assert len(rows) == 14
    for size, mib, *entries in rows:
        size_bytes = int(size.replace(",", "")) << (20 if mib else 0)
        for ladder, written in zip(both, entries, strict=True):
            expected = ladder.get(size_bytes)
            assert written == ("-" if expected is None else f"{expected:,}")
