"""The chunk map: what it draws is what the heap holds."""

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import pyallocx as px
from pyallocx.chunkmap import _bytes_by_column, _chunks_of

HEADER = 16


def heap(*payloads, chunk_bytes=None, executable=1, chunk=0, header=HEADER):
    """Blocks by hand: (payload, state), state used, full, free or dead."""
    rows, offset = [], 0
    for payload, state in payloads:
        free = state in ("free", "dead")
        rows.append(
            {
                "chunk": chunk,
                "offset": offset,
                "header_bytes": header,
                "payload_bytes": payload,
                "code_bytes": 0 if free else payload if state == "full" else payload // 2,
                "free": int(free),
                "listed": int(state == "free"),
                "dead": int(state == "dead"),
                "executable": executable,
            }
        )
        offset += header + payload
    return [row | {"chunk_bytes": chunk_bytes or offset + header} for row in rows]


def ones(count):
    """Methods of one byte: each gets a block that is kept whole."""
    return px.synthesize_code(count, sizes=1, exit_sizes=None, unload_fraction=0)


# Too small a limit: the rest of a split is too small to be a block.
BROKEN = {
    "policy": "byte_limit",
    "header_bytes": 20,
    "min_payload_bytes": 32,
    "byte_limit": 79,
    "chunk_bytes": 320,
    "page_bytes": 64,
    "pointer_bytes": 4,
    "jump_bytes": 0,
    "min_hole": "4H+3M",
}


def bar(text, line=0):
    return text.splitlines()[line].split("r", 1)[1][2:].rsplit(" ", 2)[0].strip()


# --- the blocks


def test_blocks_tile_their_chunk_and_know_what_is_dead():
    trace = px.synthesize_code(500, seed=3)
    for policy in px.code.CODE_POLICIES:
        replay = px.replay_code(trace, policy=policy, chunk_bytes=8192, byte_limit=1024)
        assert replay.broken is None
        for _, rows in itertools.groupby(replay.blocks, key=lambda block: block["chunk"]):
            end = 0
            for block in rows:
                assert block["offset"] == end
                end += block["header_bytes"] + block["payload_bytes"]
            assert end + block["header_bytes"] == block["chunk_bytes"]
        dead = [block for block in replay.blocks if block["dead"]]
        assert all(block["free"] and not block["listed"] for block in dead)
        assert sum(block["payload_bytes"] for block in dead) == replay.row["dead_bytes"]


@pytest.mark.parametrize("policy", px.code.CODE_POLICIES)
def test_what_is_mapped_is_the_sum_of_its_parts(policy):
    row = px.replay_code(px.synthesize_code(500, seed=8), policy=policy).row
    parts = ("code_bytes_end", "internal_fragmentation", "free_bytes", "header_bytes")
    assert sum(row[part] for part in parts) == row["mapped_bytes_end"]
    assert row["dead_bytes"] + row["largest_free_block"] <= max(row["free_bytes"], 1)


@pytest.mark.parametrize("wx", px.code.WX_MODES)
def test_a_finished_method_is_executable_in_every_mode(wx):
    replay = px.replay_code(px.synthesize_code(5, seed=1, unload_fraction=0), wx=wx)
    assert all(block["executable"] for block in replay.blocks)


def test_a_broken_heap_can_be_looked_at():
    with pytest.raises(px.CorruptionError, match="found 30, expected 32"):
        px.replay_code(ones(3), **BROKEN)
    replay = px.replay_code(ones(3), **BROKEN, on_corruption="keep")
    assert "found 30, expected 32" in replay.broken
    assert replay.row == {}
    assert [block["payload_bytes"] for block in replay.blocks] == [30, 32, 79, 79]
    # Where nothing is broken there is nothing to keep.
    assert px.replay_code(ones(2), **BROKEN, on_corruption="keep").broken is None
    with pytest.raises(ValueError, match="'raise' or 'keep'"):
        px.replay_code(ones(2), on_corruption="ignore")


def test_other_errors_are_raised_all_the_same():
    with pytest.raises(MemoryError):
        px.replay_code(ones(2), fail_at=1, on_corruption="keep")


# --- what is in a column

NAMES = ("code", "used", "free", "dead", "header", "broken")
some_blocks = st.lists(
    st.tuples(st.integers(-40, 400), st.sampled_from(("used", "full", "free", "dead"))),
    min_size=1, max_size=30,
)  # fmt: skip


@given(some_blocks, st.sampled_from((0, 7, 16)), st.lists(st.floats(0, 1), max_size=20))
def test_the_kinds_of_a_column_add_up_to_its_bytes(payloads, header, cuts):
    # Negative payloads: the headers that follow overlap, as a wrong policy leaves them.
    total = max(1, sum(payload + header for payload, _ in payloads) + header, header)
    (chunk,) = _chunks_of(heap(*payloads, header=header, chunk_bytes=total))
    assert chunk.spans[0][1] == 0
    assert chunk.spans[-1][2] == total
    assert all(a[2] == b[1] and a[1] < a[2] for a, b in itertools.pairwise(chunk.spans))
    edges = np.unique([0.0, total, *(cut * total for cut in cuts)])
    parts = _bytes_by_column(chunk, edges)
    assert (parts >= 0).all()
    assert parts.sum(axis=0) == pytest.approx(np.diff(edges))


@given(some_blocks, st.integers(1, 500))
def test_columns_hold_the_bytes_of_the_blocks(payloads, width):
    payloads = [(abs(payload), state) for payload, state in payloads]
    blocks = heap(*payloads)
    (chunk,) = _chunks_of(blocks)
    total = blocks[0]["chunk_bytes"]
    edges = np.append(np.arange(0.0, total, width), total)
    held = dict(zip(NAMES, _bytes_by_column(chunk, edges).sum(axis=1), strict=True))
    code = sum(block["code_bytes"] for block in blocks)
    expected = {
        "code": code,
        "used": sum(block["payload_bytes"] for block in blocks if not block["free"]) - code,
        "free": sum(p for p, state in payloads if state == "free"),
        "dead": sum(p for p, state in payloads if state == "dead"),
        "header": HEADER * (len(blocks) + 1),
        "broken": 0,
    }
    assert held == pytest.approx(expected)


# --- text


def test_text_is_to_scale():
    text = px.chunk_map_text(heap((240, "full"), (480, "free"), (224, "used")), width=81)
    assert bar(text) == "|" + "#" * 15 + "|" + "." * 30 + "|" + "#" * 7 + "+" * 7 + "|"
    assert "one character is 16 bytes" in text
    assert text.endswith("# code   + used, not filled   . free   | header")


def test_text_has_one_line_per_chunk_and_fits():
    trace = px.synthesize_code(2000, seed=1)
    for policy in px.code.CODE_POLICIES:
        replay = px.replay_code(trace, policy=policy, chunk_bytes=1 << 16)
        for width in (60, 80, 200):
            lines = px.chunk_map_text(replay, width=width, most=1000).splitlines()
            assert max(map(len, lines)) <= width
            assert lines.index("") == replay.row["chunks_end"]


def test_text_never_hides_what_is_dead_or_broken():
    blocks = heap((10_000, "full"), (8, "dead"), (10_000, "full"))
    assert bar(px.chunk_map_text(blocks)).count("!") == 1
    blocks[1] = blocks[1] | {"payload_bytes": -8}
    blocks[2] = blocks[2] | {"offset": blocks[1]["offset"] + 8}
    text = px.chunk_map_text(blocks)
    assert bar(text).count("X") == 1
    assert "X broken: headers overlap" in text


def test_text_says_where_nothing_is_half_of_a_character():
    mixed = heap(*[(6, "full"), (6, "free"), (6, "used")] * 500, header=4)
    text = px.chunk_map_text(mixed)
    assert set(bar(text)) == {"~"}
    assert "~ mixed: none is half of it" in text
    assert "code 30 %, not filled 10 %, free 20 %, header 40 %" in text


def test_text_says_what_is_executable_and_what_is_left_out():
    blocks = [
        block
        for number in range(12)
        for block in heap((64, "full"), chunk=number, executable=number % 2)
    ]
    lines = px.chunk_map_text(blocks, most=3).splitlines()
    assert [line[:11] for line in lines[:3]] == [" 0 96 B rw ", " 1 96 B rx ", " 2 96 B rw "]
    assert lines[3] == "... and 9 more chunks"


def test_text_of_several_heaps_in_one_scale():
    small, large = heap((80, "full")), heap((800, "full"))
    text = px.chunk_map_text({"before": small, "after": large})
    before, after = (text.splitlines().index(name) for name in ("before", "after"))
    assert 7 <= len(bar(text, after + 1)) / len(bar(text, before + 1)) <= 8
    assert px.chunk_map_text([]) == "no chunk"
    assert "before\nno chunk\nafter" in px.chunk_map_text({"before": [], "after": large})


def test_text_refuses_nonsense():
    with pytest.raises(ValueError, match="width is 59"):
        px.chunk_map_text(heap((64, "full")), width=59)
    with pytest.raises(ValueError, match="most is 0"):
        px.chunk_map_text(heap((64, "full")), most=0)


# --- picture

matplotlib = pytest.importorskip("matplotlib")
from matplotlib.colors import to_hex  # noqa: E402
from matplotlib.figure import Figure  # noqa: E402


def drawn(ax):
    """Bytes drawn, by colour: areas, where the whole height of a bar is one."""
    found = {}
    for bars in ax.collections:
        colours = bars.get_facecolor()
        if not len(colours) or colours[0][3] == 0:
            continue
        for path in bars.get_paths():
            x, y = path.vertices.T
            twice = abs(np.dot(x, np.roll(y, 1)) - np.dot(y, np.roll(x, 1)))
            colour = to_hex(colours[0]).upper()
            found[colour] = found.get(colour, 0) + twice / 2 / 0.76
    return found


def test_picture_draws_every_byte_once(tmp_path):
    blocks = heap((240, "full"), (480, "free"), (224, "used"), (8, "dead"))
    ax = px.chunk_map(blocks, tmp_path / "a.png")
    assert (tmp_path / "a.png").read_bytes().startswith(b"\x89PNG")
    assert drawn(ax) == pytest.approx(
        {"#0072B2": 240 + 112, "#9CC9E6": 112, "#F0F0F0": 480, "#E69F00": 8, "#333333": 5 * 16}
    )
    legend = {text.get_text() for text in ax.get_figure().legends[0].get_texts()}
    assert "dead: free, too small to be listed" in legend
    assert [label.get_text() for label in ax.get_yticklabels()] == ["0  rx"]


def test_picture_of_a_replay(tmp_path):
    replay = px.replay_code(px.synthesize_code(300, seed=2), policy="whole_block")
    ax = px.chunk_map(replay, tmp_path / "a.svg", title="300 methods")
    assert sum(drawn(ax).values()) == pytest.approx(replay.row["mapped_bytes_end"])
    assert ax.get_title(loc="left").startswith("300 methods\n")


def test_picture_of_a_broken_heap_names_the_payloads(tmp_path):
    replay = px.replay_code(ones(3), **BROKEN, on_corruption="keep")
    ax = px.chunk_map(replay, tmp_path / "a.png")
    assert [text.get_text() for text in ax.texts] == ["30", "32", "79", "79"]
    overlap = heap((64, "full"), (-8, "free"), (64, "full"))
    assert drawn(px.chunk_map(overlap, tmp_path / "b.png"))["#D0006F"] == pytest.approx(8)


def test_picture_of_narrow_blocks_keeps_areas(tmp_path):
    blocks = heap(*[(24, "full"), (48, "free"), (30, "used"), (6, "dead")] * 400)
    ax = px.chunk_map(blocks, tmp_path / "a.png")
    (chunk,) = _chunks_of(blocks)
    total = dict.fromkeys(drawn(ax), 0)
    kinds = {"code": "#0072B2", "used": "#9CC9E6", "free": "#F0F0F0", "dead": "#E69F00"}
    kinds["header"] = "#333333"
    for kind, start, end in chunk.spans:
        total[kinds[NAMES[kind]]] += end - start
    assert drawn(ax) == pytest.approx(total, rel=1e-6)
    assert "a column is" in ax.get_xlabel()
    # A sixth of a column would be overlooked.
    blocks[700] |= {"payload_bytes": -8}
    blocks[701] |= {"offset": blocks[700]["offset"] + 8}
    ax = px.chunk_map(blocks, tmp_path / "a.png")
    column = np.diff(ax.get_xlim())[0] / (ax.get_window_extent().width * 72 / ax.figure.dpi / 1.5)
    assert drawn(ax)["#D0006F"] >= 0.95 * column


def test_pictures_side_by_side_share_their_scale(tmp_path):
    small, large = heap((80, "full")), heap((800, "full"))
    axes = px.chunk_map({"before": small, "after": large}, tmp_path / "a.png", title="both")
    assert [ax.get_title(loc="left") for ax in axes] == [
        "before\n1 chunk, 112 B: code 71 %, header 29 %",
        "after\n1 chunk, 832 B: code 96 %, header 4 %",
    ]
    assert axes[0].get_xlim() == axes[1].get_xlim()
    assert axes[0].get_figure().get_suptitle() == "both"


def test_picture_on_an_ax_leaves_the_rest_out():
    blocks = [block for number in range(5) for block in heap((64, "full"), chunk=number)]
    ax = Figure().add_subplot()
    assert px.chunk_map(blocks, ax=ax, most=3) is ax
    assert len(ax.get_yticks()) == 3
    assert "2 more chunks" in ax.get_xlabel()
    assert ax.get_legend() is not None


def test_picture_refuses_nonsense():
    with pytest.raises(ValueError, match="no chunk"):
        px.chunk_map([])
    with pytest.raises(ValueError, match="one ax"):
        px.chunk_map({"a": heap((64, "full"))}, ax=Figure().add_subplot())
    with pytest.raises(ValueError, match="most is 0"):
        px.chunk_map(heap((64, "full")), most=0)


@pytest.mark.parametrize("policy", ["byte_limit", "halving", "halving_payload"])
@pytest.mark.parametrize("min_hole", ["H+M", "max(M,2H)"])
@pytest.mark.parametrize("byte_limit", [50, 60, 90, 100])
def test_every_broken_heap_has_a_text(policy, min_hole, byte_limit):
    heap = px.replay_code(
        px.synthesize_code(300).head(400), policy=policy, header_bytes=40, byte_limit=byte_limit,
        min_hole=min_hole, chunk_bytes=8192, on_corruption="keep",
    )  # fmt: skip
    assert "one character is" in px.chunk_map_text(heap)
