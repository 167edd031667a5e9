"""What is said under a code sweep: rows that are the same, blocks that are too small."""

import itertools

import pytest

import pyallocx as px
from pyallocx._codenotes import USED_BY
from pyallocx.cli import main
from pyallocx.code import CODE_POLICIES, PARAMETERS

TRACE = px.synthesize_code(150, seed=3)
# Two values of each parameter that some policies do not use, and which tell in those that do.
VALUES = {
    "byte_limit": [0, 256],
    "min_hole": ["max(M,2H)", "4H+3M"],
    "pointer_bytes": [4, 8],
    "jump_bytes": [0, 31],
    "granule_bytes": [1, 2048],
    "min_rest_bytes": [0, 4096],
    "partitions": [1, 4],
    "max_code_bytes": [8192, 2 << 20],
}


def notes(**grid):
    return px.sweep(px.CodeHeap, TRACE, **grid).metadata.get("notes", [])


def test_every_parameter_is_here():
    used_by_all = {
        "policy", "chunk_bytes", "wx", "header_bytes", "page_bytes", "reach_bytes", "keep_bytes",
        "keep_chunks", "keep_operations", "hot_methods", "min_payload_bytes",
    }  # fmt: skip
    assert set(USED_BY) | used_by_all == {p.name for p in PARAMETERS}
    assert set(VALUES) == set(USED_BY)


@pytest.mark.parametrize("name", list(USED_BY))
def test_who_uses_a_parameter(name):
    """Rows of the others are the same whatever it is."""
    fixed = {"chunk_bytes": 4096} if name != "granule_bytes" else {}
    using = set()
    for policy in CODE_POLICIES:
        rows = px.sweep(px.CodeHeap, TRACE, policy=policy, **fixed, **{name: VALUES[name]}).rows()
        one, other = ({k: v for k, v in row.items() if k != name} for row in rows)
        if one != other:
            using.add(policy)
    # buckets has powers of two instead of granules, from 32 bytes on.
    assert using <= set(USED_BY[name])
    assert using >= set(USED_BY[name]) - {"buckets"}


def test_ignored_parameters_are_named():
    assert notes(policy="segregated", partitions=[4, 8]) == [
        "partitions is used by partition only: rows of segregated that differ in it alone are the "
        "same."
    ]
    assert notes(policy="segregated", partitions=4) == ["partitions is used by partition only."]
    assert notes(policy=["partition", "segregated"], partitions=4) == []
    assert notes(policy="partition", partitions=[4, 8]) == []
    assert notes(policy=["byte_limit", "bump", "pack"], byte_limit=4096, jump_bytes=[8, 16]) == [
        "jump_bytes is not used by bump and pack: rows of bump and pack that differ in it alone "
        "are the same."
    ]
    # The default grid is no mistake.
    assert notes() == []


def test_no_limit():
    found = notes(policy=["halving", "byte_limit", "whole_block"])
    assert found == ["With byte_limit 0, halving and byte_limit are the same as whole_block."]
    rows = px.sweep(px.CodeHeap, TRACE, policy=["halving", "byte_limit", "whole_block"]).rows()
    for one, other in itertools.pairwise(rows):
        assert one | {"policy": ""} == other | {"policy": ""}


def test_limits_that_are_wrong():
    res = px.sweep(
        px.CodeHeap, px.synthesize_code(2000), policy="halving", byte_limit=[60, 80, 103, 4096]
    )
    assert set(res["status"]) == {"ok"}
    assert (res["undersized_blocks"] > 0).tolist() == [False, False, True, False]
    (note,) = res.metadata["notes"]
    assert note.startswith(
        "Wrong: halving is right for a byte_limit of 104 B and more (with header_bytes 40, "
        "min_payload_bytes 32); 3 rows with less, 1 of them handed out blocks below "
    )
    assert "note: Wrong: halving" in repr(res)
    assert "note: Wrong: halving" in res._repr_html_()
    (note,) = notes(policy=["halving", "byte_limit"], byte_limit=103)
    assert note.startswith("Wrong: halving is right")
    assert not any(
        px.replay_code(TRACE, policy=policy, byte_limit=103).row["undersized_blocks"]
        for policy in ("byte_limit", "scan", "segregated")
    )


def test_a_trace_without_a_name(capsys):
    assert main(["sweep", "code", ""]) == 2
    assert "TRACE: the name of the file is empty" in capsys.readouterr().err
