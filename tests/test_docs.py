"""What the documents say in numbers and names, held to the code."""

import math
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from pyallocx import _core
from pyallocx.arena import ArenaSystem
from pyallocx.code import CODE_POLICIES, MIN_HOLES, PARAMETERS, CodeSystem


def section_of(text, heading):
    return text.split(f"\n## {heading}\n", 1)[1].split("\n## ", 1)[0]


def rows_of(text, heading):
    """Return the names in the first cells of the table under a heading."""
    explained = []
    for line in re.findall(r"(?m)^\| (`[a-z0-9_`, ]+`) \|", section_of(text, heading)):
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
        default = re.search(row, section_of(text, "Parameters"))[1]
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


@pytest.mark.parametrize("page", ["formats.md", "traces.md"])
def test_each_example_runs_by_itself(repository, page):
    examples = re.findall(r"(?s)```python\n(.*?)```", (repository / "docs" / page).read_text())
    assert examples
    for example in examples:
        exec(example, {})


def test_the_examples_of_working_with_traces_run_in_order(repository, tmp_path, monkeypatch):
    pytest.importorskip("matplotlib")
    pytest.importorskip("pandas")
    monkeypatch.chdir(tmp_path)
    text = (repository / "docs" / "working-with-traces.md").read_text()
    names = {}
    for example in re.findall(r"(?s)```python\n(.*?)```", text):
        exec(example, names)
    assert names["small"].size_bytes.tolist() == [10_000]


def without_times(text):
    return re.sub(r"\(([a-z]+), [\d.e+-]+ m?s\)", r"(\1)", text)


def shell_blocks(text):
    """Return commands, and what the document says that they print."""
    return re.findall(r"(?s)```sh\n([^`]*)\n```\n\n```(?:text|cpp)\n(.*?)\n```", text)


@pytest.mark.parametrize(("file", "least"), [("README.md", 3), ("docs/sizeclasses.md", 1)])
def test_commands_print_what_is_written(file, least, repository, tmp_path):
    blocks = shell_blocks((repository / file).read_text())
    assert len(blocks) >= least
    programs = Path(sys.executable).parent
    if not (programs / "pyallocx").exists():
        pytest.skip("the command is not installed")
    env = os.environ | {"PATH": f"{programs}:{os.environ['PATH']}", "COLUMNS": "100"}
    for command, printed in blocks:
        done = subprocess.run(
            command, shell=True, cwd=tmp_path, env=env, capture_output=True, text=True, check=True
        )
        assert without_times(done.stdout.rstrip("\n")) == without_times(printed)


def test_the_options_of_exports_are_explained(repository):
    from pyallocx.exports import FORMATS, export, flat, json, memcached, scudo, spans

    text = (repository / "docs" / "sizeclasses.md").read_text()
    section = text[text.index("## Export") : text.index("## The commands")]
    for format in FORMATS:
        assert f"| `{format}` |" in section
    for option in (
        *flat.OPTIONS,
        *json.OPTIONS,
        *memcached.OPTIONS,
        *scudo.OPTIONS,
        *spans.TCMALLOC_OPTIONS,
        *spans.GO_OPTIONS,
    ):
        assert f"`{option}`" in section
        assert f"``{option}``" in export.__doc__


def test_the_flags_of_the_verbs_are_explained(repository):
    from pyallocx.cli import SYSTEMS, _build_parser

    text = (repository / "docs" / "sizeclasses.md").read_text()
    section = text[text.index("## The commands") :]
    verbs = _build_parser([], SYSTEMS)._subparsers._group_actions[0].choices
    for verb in ("fit", "waste", "lookup-bench"):
        for action in verbs[verb]._actions:
            for flag in action.option_strings:
                assert flag in ("-h", "--help") or f"`{flag}" in section, (verb, flag)
