"""What the documents say in numbers and names, held to the code."""

import math
import re

import pytest

from pyallocx import _core
from pyallocx.arena import ArenaSystem
from pyallocx.code import CODE_POLICIES, MIN_HOLES, PARAMETERS, CodeSystem


def section(text, heading):
    return text.split(f"\n## {heading}\n", 1)[1].split("\n## ", 1)[0]


def rows_of(text, heading):
    """Return the names in the first cells of the table under a heading."""
    explained = []
    for line in re.findall(r"(?m)^\| (`[a-z0-9_`, ]+`) \|", section(text, heading)):
        first, *more = re.findall(r"`([a-z0-9_]+)`", line)
        for name in more:  # `_mean` is short for what stands before it with another ending
            explained.append(first.rpartition("_")[0] + name if name.startswith("_") else name)
        explained.append(first)
    return sorted(explained)


@pytest.mark.parametrize(
    ("page", "columns"),
    [("arena.md", [*ArenaSystem.columns, "status"]), ("code.md", CodeSystem.columns)],
)
def test_every_column_of_a_sweep_is_explained(repository, page, columns):
    text = (repository / "docs" / page).read_text()
    assert rows_of(text, "Columns") == sorted(columns)


def test_every_parameter_of_a_code_heap_is_explained(repository):
    text = (repository / "docs" / "code.md").read_text()
    assert rows_of(text, "Parameters") == sorted(p.name for p in PARAMETERS)
    for p in PARAMETERS:
        row = rf"(?m)^\| `{p.name}` \| ([^|]*) \| "
        default = re.search(row, section(text, "Parameters"))[1]
        if p.default is None:
            assert default == "the design's"
        elif isinstance(p.default, str):
            assert default == f"`{p.default}`"
        else:
            assert default == (f"{p.default:,}" if p.default != math.inf else "inf")


def test_every_policy_and_smallest_hole_is_explained(repository):
    text = (repository / "docs" / "code.md").read_text()
    assert rows_of(text, "Policies") == sorted(CODE_POLICIES)
    assert all(f"`{rule}`" in text for rule in MIN_HOLES)


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


def test_the_example_of_testing_runs(repository):
    text = (repository / "README.md").read_text()
    (example,) = re.findall(r"(?s)```python\n(from hypothesis.*?)```", text)
    exec(example, {})
