"""Size maps: golden numbers, every kind against twin and oracle, arrays, files, refusals."""

import json
import pickle
import signal
import threading
import time

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

import pyallocx as px
from pyallocx import _core
from pyallocx.reference.sizemap import FixedMap, ReferenceMap, TableMap
from pyallocx.sizemap import MAP_KINDS
from pyallocx.testing import (
    check_size_map,
    class_lists,
    fixed_parameters,
    table_parameters,
    wrong_size_maps,
)

ANDROID64 = [
    0x20, 0x30, 0x40, 0x50, 0x60, 0x70, 0x90, 0xB0, 0xC0, 0xE0, 0x120, 0x160, 0x1C0, 0x250, 0x320,
    0x450, 0x670, 0x830, 0xA10, 0xC30, 0x1010, 0x1210, 0x1BD0, 0x2210, 0x2D90, 0x3790, 0x4010,
    0x4810, 0x5A10, 0x7310, 0x8210, 0x10010,
]  # fmt: skip
ANDROID64_LOG = {
    "num_bits": 7,
    "min_size_log": 4,
    "mid_size_log": 6,
    "max_size_log": 16,
    "delta_bytes": 16,
}
SEARCHED = ("flat", "search", "search_branchless")
DTYPES = [np.dtype(kind + str(width)) for kind in "iu" for width in (1, 2, 4, 8)]


def android64(kind="table"):
    return px.SizeMap(ANDROID64, kind=kind, header_bytes=16, align_bytes=16, **ANDROID64_LOG)


# --- golden numbers


@pytest.mark.parametrize(
    ("params", "delta", "count", "largest"),
    [
        ((3, 5, 8, 17), 0, 44, 2**17),  # Default
        ((3, 5, 8, 17), 16, 44, 2**17 + 16),  # Fuchsia, and the seed's Default
        ((4, 4, 8, 14), 16, 64, 2**14 + 16),  # Svelte64
        ((4, 3, 7, 14), 8, 72, 2**14 + 8),  # Svelte32
        ((1, 7, 7, 7), 0, 1, 128),  # Trusty once
        ((1, 5, 5, 15), 0, 11, 2**15),  # Trusty
        ((1, 5, 5, 5), 0, 1, 32),  # OneClass
        ((3, 4, 8, 63), 0, 236, 2**63),  # LargeMax
        ((3, 4, 8, 63), 2**48, 236, 2**63 + 2**48),
    ],
)
def test_fixed_maps_of_scudo(params, delta, count, largest):
    fixed = px.SizeMap.fixed(*params, delta_bytes=delta)
    assert (len(fixed), fixed.largest) == (count, largest)
    assert fixed.classes.tolist() == FixedMap(*params, delta).classes
    fixed.check()
    assert [fixed.class_of(n) for n in (0, 1, largest, largest + 1, 2**64 - 1, 2**70)] == [
        1, 1, count, 0, 0, 0,
    ]  # fmt: skip
    near = np.unique(np.concatenate([fixed.classes - 1, fixed.classes, fixed.classes + 1]))
    twin = FixedMap(*params, delta)
    assert fixed.class_of(near).tolist() == [twin.class_of(int(n)) for n in near]


def test_android64():
    table = android64()
    assert len(table.table) == table.memory_bytes == 640
    assert table.table.dtype == np.uint8
    assert not (table.table == 255).any()
    assert table.violations() == ()
    table.check()
    check_size_map(table)
    # What a program asks for where the class changes: the class less the header.
    for id, size in enumerate(ANDROID64, start=1):
        assert table.class_of(table.need(size - 16)) == id
        assert table.class_of(table.need(size - 15)) == (id + 1 if id < 32 else 0)
    assert table.usable.tolist() == [size - 16 for size in ANDROID64]
    # What is left out follows from the classes.
    assert px.SizeMap(ANDROID64, kind="table", delta_bytes=16).max_size_log == 16
    derived = px.SizeMap(ANDROID64, kind="table", delta_bytes=16)
    assert derived.as_kind("flat").classes.tolist() == ANDROID64
    assert (derived.num_bits, derived.min_size_log, derived.mid_size_log) == (7, 4, 6)


@pytest.mark.parametrize(("middle", "entries"), [(7, 1152), (8, 1024)])
def test_length_of_android32(middle, entries):
    classes = px.SizeMap.fixed(4, 4, middle, 16, delta_bytes=16).classes
    table = px.SizeMap(
        classes, kind="table", num_bits=8, min_size_log=4, mid_size_log=middle, max_size_log=16,
        delta_bytes=16,
    )  # fmt: skip
    assert len(table.table) == entries
    table.check()


def test_switch_points_of_default():
    fixed = px.SizeMap.fixed(3, 5, 8, 17, header_bytes=16, align_bytes=16)
    requests = np.arange(1, 2**17 - 15)
    ids = fixed.class_of(fixed.need(requests))
    last = requests[np.flatnonzero(np.diff(ids))]
    assert last.tolist() == (fixed.classes[:-1] - 16).tolist()
    assert fixed.class_of(fixed.need(32)) == 2
    assert fixed.class_of(fixed.need(2**17 - 15)) == 0


@pytest.mark.parametrize(
    ("classes", "hint", "bytes_log", "expected"),
    [
        ([32, 64, 1024, 4096], 14, 10, [14, 14, 1, 1]),
        ([32], 0, 0, [1]),
        ([32, 100, 2**40], 13, 13, [13, 13, 1]),
        ([3, 2**33], 2**32 - 1, 35, [2**32 - 1, 4]),
        ([1], 2**32 - 1, 31, [2**31]),
        ([1], 2**32 - 1, 32, [2**32 - 1]),
    ],
)
def test_hints(classes, hint, bytes_log, expected):
    assert px.SizeMap(classes, kind="search").hints(hint, bytes_log).tolist() == expected


def test_least_set_bits():
    sizes = px.SizeMap([1, 2, 6, 40, 2**40], kind="search")
    assert sizes.least_set_bit([1, 2, 3, 4, 5]).tolist() == [0, 1, 1, 3, 40]
    assert sizes.least_set_bit(5) == 40
    assert not sizes._core.layout()["packed"]
    layout = android64()._core.layout()
    assert (layout["packed"], layout["packed_least"]) == (1, 4)
    assert android64().least_set_bit(np.arange(1, 33)).tolist() == [
        (size & -size).bit_length() - 1 for size in ANDROID64
    ]
    assert not px.SizeMap([16, 256])._core.layout()["packed"]
    assert px.SizeMap([16, 128])._core.layout()["packed"]
    assert not px.SizeMap(range(16, 16 * 34, 16))._core.layout()["packed"]


# --- every kind against the twin, the oracle and each other


@given(class_lists())
def test_any_list(classes):
    twin = ReferenceMap(classes)
    sizes = sorted({max(0, n + d) for n in classes for d in (-1, 0, 1)} | {0, 1, 2**63})
    expected = [twin.class_of(n) for n in sizes]
    for kind in SEARCHED:
        ours = px.SizeMap(classes, kind=kind)
        ours.check()
        assert [ours.class_of(n) for n in sizes] == expected
        assert ours.class_of(np.array(sizes, np.uint64)).tolist() == expected
        assert ours.round(np.array(sizes, np.uint64)).tolist() == [
            twin.size_of(i) for i in expected
        ]
        check_size_map(ours, ())


@given(
    class_lists(max_bytes=4096),
    st.lists(st.integers(1, 2000), min_size=1, max_size=20, unique=True),
    st.integers(12, 50),
    st.integers(0, 5000),
)
def test_large_classes_behind_small_ones(classes, multiples, grid_log, shift):
    """Mostly flat maps of two levels."""
    above = [4096 + shift + (multiple << grid_log) for multiple in sorted(multiples)]
    ours, twin = px.SizeMap(classes + above), ReferenceMap(classes + above)
    sizes = [n + d for n in (0, 1, *classes, *above) for d in (-1, 0, 1) if n + d >= 0]
    assert ours.class_of(sizes).tolist() == [twin.class_of(n) for n in sizes]
    assert [ours.class_of(n) for n in sizes] == [twin.class_of(n) for n in sizes]


@given(fixed_parameters())
def test_fixed(params):
    fixed, twin = px.SizeMap.fixed(**params), FixedMap(**params)
    assert fixed.classes.tolist() == twin.classes
    fixed.check()
    sizes = np.arange(0, fixed.largest + 2, max(1, fixed.largest // 3000))
    expected = [twin.class_of(int(n)) for n in sizes]
    for kind in MAP_KINDS:
        assert fixed.as_kind(kind).class_of(sizes).tolist() == expected
        fixed.as_kind(kind).check()
    assert fixed.violations() == ()
    assert fixed.as_kind("table").as_kind("fixed") == fixed


@given(table_parameters())
def test_table(params):
    table, twin = px.SizeMap(kind="table", **params), TableMap(**params)
    assert table.table.tolist() == twin.entries
    assert table.violations() == ()
    table.check()
    sizes = np.arange(0, table.largest + 2)
    assert np.array_equal(table.class_of(sizes), table.as_kind("flat").class_of(sizes))
    some = sizes[:: max(1, len(sizes) // 1000)]
    assert table.class_of(some).tolist() == [twin.class_of(int(n)) for n in some]


@given(
    table_parameters(max_log=11),
    st.integers(0, 4),
    st.data(),
)
def test_a_list_that_is_not_valid_is_refused_or_caught(params, kind, data):
    """One class moved, lost or added, or a parameter changed."""
    classes = list(params["classes"])
    at = data.draw(st.integers(0, len(classes) - 1), label="at")
    if kind == 0:
        classes[at] += data.draw(st.integers(-20, 20), label="by")
    elif kind == 1:
        del classes[at]
    elif kind == 2:
        classes.insert(at, classes[at] - data.draw(st.integers(-1, 9), label="below"))
    else:
        name = data.draw(st.sampled_from([*params][1:]), label="name")
        params[name] = max(0, params[name] + data.draw(st.integers(-2, 2), label="by"))
    params["classes"] = classes
    assume(classes)
    try:
        table = px.SizeMap(kind="table", **params)
    except ValueError:
        return
    conditions = [violation.condition for violation in table.violations()]
    sizes = np.arange(1, table.largest + 1)
    ids = table.class_of(sizes)
    assert ids.all()
    assert (table.size_of(ids) >= sizes).all(), "what is not refused is safe"
    if "V4" in conditions:
        with pytest.raises(px.CorruptionError):
            table.check()
    else:
        assert conditions == []
        table.check()


WRONG_ON = [
    (ANDROID64, 7, 4, 6, 16, 16),
    (FixedMap(3, 4, 5, 12, 16).classes, 3, 4, 5, 12, 16),
]


@pytest.mark.parametrize("name", wrong_size_maps)
@pytest.mark.parametrize("params", WRONG_ON)
def test_wrong_maps_are_caught(name, params):
    wrong = wrong_size_maps[name](*params)
    with pytest.raises(AssertionError):
        check_size_map(wrong)
    sizes = np.arange(1, wrong.largest + 2)
    right = px.SizeMap(params[0]).class_of(sizes).tolist()
    assert [wrong.class_of(n) for n in sizes.tolist()] != right
    check_size_map(TableMap(*params))


# --- conditions by name


def conditions(classes, **params):
    return [(v.condition, v.refused, v.class_index) for v in px.table_violations(classes, **params)]


LOG = {"num_bits": 3, "min_size_log": 4, "mid_size_log": 6, "max_size_log": 8, "delta_bytes": 16}
VALID = [32, 48, 64, 80, 96, 112, 144, 272]


@pytest.mark.parametrize(
    ("classes", "change", "expected"),
    [
        (VALID, {}, []),
        ([*VALID[:5], 96, *VALID[6:]], {}, [("V1", True, 5)]),
        (
            range(32, 32 + 16 * 255, 16),
            {"num_bits": 7, "max_size_log": 12},
            [("V1", True, 255), ("V4", True, 254)],
        ),
        ([16, *VALID], {}, [("V2", True, 0)]),
        (VALID[1:], {}, [("V2", True, 0)]),
        ([32, 48, 80, 96], {}, [("V2", True, 2)]),
        ([32, 48], {}, [("V2", True, 2)]),
        (VALID, {"num_bits": 8}, [("V3", True, 0)]),
        ([*VALID[:5], 100, *VALID[5:]], {}, [("V4", False, 5)]),
        ([*VALID[:7], 200, 272], {}, [("V4", False, 7)]),
        ([*VALID[:7], 200], {}, [("V4", True, 7)]),
        ([*VALID, 336], {}, [("V5", True, 8)]),
        (VALID, {"align_bytes": 32}, [("V6", False, 1)]),
        ([33, 48], {}, [("V2", True, 0)]),
    ],
)  # fmt: skip
def test_conditions(classes, change, expected):
    params = LOG | change
    assert conditions(classes, **params) == expected
    if any(refused for _, refused, _ in expected):
        with pytest.raises(ValueError, match=r"V\d|at most 254"):
            px.SizeMap(classes, kind="table", **params)
        with pytest.raises(ValueError, match=r"V\d|number of classes|delta"):
            _core.SizeMap(params | {"kind": 1}, np.array(classes, np.uint64))
    else:
        table = px.SizeMap(classes, kind="table", **params)
        assert [v.condition for v in table.violations()] == [c for c, _, _ in expected]


def test_off_the_grid_is_safe_and_said():
    classes = [*VALID[:7], 200, 272]
    table = px.SizeMap(classes, kind="table", **LOG)
    (violation,) = table.violations()
    assert violation.text == (
        "V4: class 8, 200, less delta_bytes has 5 significant bits (10111000), num_bits allows 3"
    )
    assert table.class_of([176, 177, 200, 201]).tolist() == [8, 9, 9, 9]
    with pytest.raises(px.CorruptionError, match="smaller one holds it: found 9, expected 8"):
        table.check()
    assert [v.condition for v in table.violations(align_bytes=7)] == ["V4", "V6"]
    one_size = px.SizeMap([*VALID[:7], 177, 272], kind="table", **LOG)
    with pytest.raises(px.CorruptionError, match=r"found 9, expected 8 \(at 177\)"):
        one_size.check()


@pytest.mark.parametrize(
    ("call", "text"),
    [
        (lambda: px.SizeMap([]), "at least one class"),
        (lambda: px.SizeMap([16, 16]), r"rise strictly \(V1\), but class 2 is 16 after 16"),
        (lambda: px.SizeMap([32, 16]), "class 2 is 16 after 32"),
        (lambda: px.SizeMap([0, 16]), "class 1 is 0"),
        (lambda: px.SizeMap([-16]), "class 1 is -16"),
        (lambda: px.SizeMap([2**64 - 1], kind="search"), "class 1 is"),
        (lambda: px.SizeMap(range(1, 65536)), "65535 classes"),
        (lambda: px.SizeMap([16], kind="best"), "kind must be one of"),
        (lambda: px.SizeMap([16], kind="fixed"), "SizeMap.fixed"),
        (lambda: px.SizeMap([16, 32], header_bytes=32), "largest class is 32"),
        (lambda: px.SizeMap([16, 32], align_bytes=24), "power of two"),
        (lambda: px.SizeMap([16, 32], delta_bytes=16), "delta_bytes is 16"),
        (lambda: px.SizeMap([16, 2**62 + 16]), "flat map"),
        (lambda: px.SizeMap([1, 2**30 - 1, 2**30]), "entries of a flat map in two levels"),
        (lambda: px.SizeMap([1, 2**63]), "largest class of a flat map"),
        (lambda: px.SizeMap([16, 32], kind="table", num_bits=33), "num_bits"),
        (lambda: px.SizeMap.fixed(5, 0, 3, 9), "num_bits"),
        (lambda: px.SizeMap.fixed(0, 3, 4, 9), "num_bits"),
        (lambda: px.SizeMap.fixed(2, 5, 4, 9), "min_size_log"),
        (lambda: px.SizeMap.fixed(2, 3, 10, 9), "mid_size_log"),
        (lambda: px.SizeMap.fixed(2, 3, 4, 64), "max_size_log"),
        (lambda: px.SizeMap.fixed(1, 0, 63, 63), "number of classes"),
        (lambda: px.SizeMap.fixed(8, 0, 7, 17), "number of classes"),
        (lambda: px.SizeMap([16]).hints(-1, 3), "max_cached"),
        (lambda: px.SizeMap([16]).hints(1, 64), "max_bytes_log"),
        (lambda: px.SizeMap([16, 2**40], kind="search").as_kind("fixed"), "needs num_bits"),
        (lambda: px.SizeMap(VALID, **LOG).as_kind("fixed"), "not those of"),
        (lambda: px.SizeMap([16]).need(-1), "request is -1"),
        (lambda: px.SizeMap([16]).need([4, -1]), r"requests\[1\] is -1"),
    ],
)
def test_refusals(call, text):
    with pytest.raises(ValueError, match=text):
        call()


@pytest.mark.parametrize(
    "call",
    [
        lambda: px.SizeMap([16.0]),
        lambda: px.SizeMap(np.array([16.0])),
        lambda: px.SizeMap([True]),
        lambda: px.SizeMap([16], delta_bytes=1.5),
        lambda: px.SizeMap([16], name=3),
        lambda: px.SizeMap([16]).class_of(1.0),
        lambda: px.SizeMap([16]).class_of(True),
        lambda: px.SizeMap([16]).class_of(np.array([True])),
        lambda: px.SizeMap([16]).class_of(np.array([1.0])),
        lambda: px.SizeMap([16]).class_of(["16"]),
        lambda: px.SizeMap([16]).class_of(3, out=np.empty(1, np.uint8)),
        lambda: px.SizeMap([16]).class_of([3], out=[0]),
        lambda: px.SizeMap([16]).class_of([3], out=np.empty(1)),
        lambda: px.SizeMap([16]).need([1.5]),
    ],
)
def test_wrong_types(call):
    with pytest.raises(TypeError):
        call()


# --- arrays


SOME = [0, 1, 16, 17, 31, 32, 33, 48, 49, 64, 65, 100, 112, 113, 127]


@pytest.mark.parametrize("kind", MAP_KINDS)
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_every_dtype(kind, dtype):
    classes = px.SizeMap.fixed(3, 4, 5, 7)
    ours, twin = classes.as_kind(kind), ReferenceMap(classes.classes)
    assert len(ours) == 10
    sizes = np.resize(np.array(SOME, dtype), 2500)
    ids = [twin.class_of(n) for n in sizes.tolist()]
    assert ours.class_of(sizes).tolist() == ids
    rounded = [twin.size_of(i) for i in ids]
    assert ours.round(sizes).tolist() == rounded
    assert ours.size_of(np.array(ids, dtype)).tolist() == rounded
    for other in DTYPES:
        out = np.full(2500, 77, other)
        assert ours.class_of(sizes, out=out) is out
        assert out.tolist() == ids
        if other != np.int8:
            assert ours.round(sizes, out=out).tolist() == rounded
            assert ours.size_of(np.array(ids, dtype), out=out).tolist() == rounded
    in_place = sizes.copy()
    assert ours.class_of(in_place, out=in_place).tolist() == ids
    for view in (sizes[::-1], sizes[::3], sizes[1:]):
        expected = [twin.class_of(n) for n in view.tolist()]
        assert ours.class_of(view).tolist() == expected
        wide = np.zeros(2 * len(view), np.int32)
        ours.class_of(view, out=wide[::2])
        assert wide[::2].tolist() == expected
        assert not wide[1::2].any()


@given(
    classes=class_lists(),
    values=st.lists(st.integers(0, 2**64 - 1) | st.integers(0, 2**14), max_size=60),
    repeat=st.sampled_from((1, 50)),
)
def test_large_sizes_beside_small_ones(classes, values, repeat):
    """Blocks with and without sizes above the largest take different loops."""
    twin = ReferenceMap(classes)
    sizes = np.repeat(np.array(values, np.uint64), repeat)
    expected = np.repeat([twin.class_of(n) for n in values], repeat).astype(np.uint8)
    assert np.array_equal(px.SizeMap(classes).class_of(sizes), expected)


@pytest.mark.parametrize("dtype", [dtype for dtype in DTYPES if dtype.kind == "i"], ids=str)
@pytest.mark.parametrize("at", [0, 255, 256, 3000])
def test_negative_sizes(dtype, at):
    sizes = np.arange(3001, dtype=np.int64).astype(dtype) & 127
    sizes[at:] = -5
    before = sizes.copy()
    for look_up in (android64("flat").class_of, android64("flat").round):
        with pytest.raises(ValueError, match=rf"sizes\[{at}\] is -5, allowed is at least 0"):
            look_up(sizes)
    if dtype != np.int8:
        with pytest.raises(ValueError, match=r"is -5"):
            android64("flat").class_of(sizes, out=sizes)
        assert np.array_equal(sizes, before), "an array that is written over is looked at first"
    sizes[at:] = np.iinfo(dtype).min
    with pytest.raises(ValueError, match=rf"\[{at}\] is {np.iinfo(dtype).min}, "):
        android64("search").class_of(sizes[:])
    with pytest.raises(ValueError, match="size is -1"):
        android64().class_of(-1)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_ids_that_are_none(dtype):
    ours = android64()
    ids = np.zeros(2000, dtype)
    ids[1500] = 33
    with pytest.raises(ValueError, match=r"ids\[1500\] is 33, allowed is 0 to 32"):
        ours.size_of(ids)
    with pytest.raises(ValueError, match=r"ids\[0\] is 0, allowed is 1 to 32"):
        ours.least_set_bit(ids)
    for id in (33, -1, 2**64):
        with pytest.raises(ValueError, match="id is"):
            ours.size_of(id)
    with pytest.raises(ValueError, match="id is 0"):
        ours.least_set_bit(0)


def test_out_must_hold_the_answer():
    many = px.SizeMap(range(1, 301))
    assert many.class_of([1]).dtype == np.uint16
    assert px.SizeMap(range(1, 256)).class_of([255, 256]).tolist() == [255, 0]
    for dtype, good in ((np.uint8, False), (np.int8, False), (np.int16, True), (np.uint16, True)):
        out = np.zeros(2, dtype)
        if good:
            assert many.class_of([300, 301], out=out).tolist() == [300, 0]
        else:
            with pytest.raises(ValueError, match="the largest answer is 300"):
                many.class_of([300, 301], out=out)
    with pytest.raises(ValueError, match="the largest answer is 65552"):
        android64().round([1], out=np.zeros(1, np.uint16))
    with pytest.raises(ValueError, match="shape"):
        android64().class_of([1], out=np.zeros(2, np.uint8))
    frozen = np.zeros(1, np.uint8)
    frozen.flags.writeable = False
    with pytest.raises(ValueError, match="read-only"):
        android64().class_of([1], out=frozen)


def test_shapes_orders_and_overlaps():
    ours = android64("flat")
    cube = np.arange(4 * 5 * 6).reshape(4, 5, 6) * 7
    expected = ours.class_of(cube.reshape(-1)).reshape(cube.shape)
    for sizes in (cube, np.asfortranarray(cube), cube.astype(">i4"), cube.astype(">u8")):
        assert np.array_equal(ours.class_of(sizes), expected)
        for out in (
            np.zeros(cube.shape, np.int16),
            np.zeros(cube.shape, np.int16, order="F"),
            np.zeros(cube.shape, ">i8"),
            np.zeros((4, 5, 12), np.uint8)[:, :, ::2],
        ):
            assert ours.class_of(sizes, out=out) is out
            assert np.array_equal(out, expected)
    assert np.array_equal(ours.class_of(cube.T), expected.T)
    assert np.array_equal(ours.class_of(cube[:, ::2, ::-1]), expected[:, ::2, ::-1])
    scalar = ours.class_of(np.array(100))
    assert (scalar.shape, int(scalar)) == ((), ours.class_of(100))
    assert ours.class_of(np.zeros((3, 0), int)).shape == (3, 0)
    assert ours.class_of(np.uint16(100)) == ours.class_of(100) == 6
    record = np.zeros(50, [("a", "u1"), ("size", "u8"), ("b", "u4")])  # not aligned
    record["size"] = np.arange(50) * 100
    assert np.array_equal(ours.class_of(record["size"]), ours.class_of(np.arange(50) * 100))
    ours.round(record["size"], out=record["b"])
    assert record["b"].tolist() == ours.round(np.arange(50) * 100).tolist()
    for shift in (1, -1, 7):
        line = np.arange(3000, dtype=np.uint32) * 3
        a, b = (line[shift:], line[:-shift]) if shift > 0 else (line[:shift], line[-shift:])
        expected_line = ours.class_of(a.copy())
        assert np.array_equal(ours.class_of(a, out=b), expected_line)
    bytes_of = np.arange(3000, dtype=np.uint32)
    want = ours.class_of(bytes_of)
    assert np.array_equal(ours.class_of(bytes_of, out=bytes_of.view(np.uint8)[:3000]), want)


def test_flat_levels():
    glibc = px.SizeMap(range(24, 24 + 16 * 4095, 16))
    assert len(glibc) == 4095
    assert glibc.class_of([24, 25, 40, 41]).tolist() == [1, 2, 2, 3]
    assert glibc._core.layout()["levels"] == 1
    assert glibc.table.nbytes < 8300
    jemalloc = [8] + [16 * k for k in range(1, 5)]
    while jemalloc[-1] < 2**30:
        base = 1 << (jemalloc[-1].bit_length() - 1)
        jemalloc += [
            base + base // 4 * k for k in range(1, 5) if base + base // 4 * k > jemalloc[-1]
        ]
    to_256k = px.SizeMap([size for size in jemalloc if size <= 2**18])
    assert to_256k._core.layout()["levels"] == 1
    to_256k.check()
    huge = px.SizeMap([size for size in jemalloc if size <= 2**26])
    assert huge._core.layout()["levels"] == 2
    assert huge.table.nbytes < 2**18
    huge.check()
    sizes = np.unique(np.concatenate([huge.classes.astype(int) + d for d in (-1, 0, 1)]))
    assert np.array_equal(huge.class_of(sizes), huge.as_kind("search").class_of(sizes))
    powers = px.SizeMap([2**k for k in range(16, 31)])
    powers.check()
    single = px.SizeMap([2**40 + 1])
    assert single.class_of([0, 1, 2**40 + 1, 2**40 + 2]).tolist() == [1, 1, 1, 0]
    assert single.memory_bytes < 10
    two = px.SizeMap([5, 2**40 + 5, 2**41 + 5])
    assert two.class_of([5, 6, 2**40 + 5, 2**40 + 6, 2**41 + 6]).tolist() == [1, 2, 2, 3, 0]
    wide = px.SizeMap([*range(16, 16 * 60001, 16), 2**24])
    wide.check()
    assert wide._core.layout()["entry_bytes"] == 2


def test_as_many_classes_as_ids():
    most = px.SizeMap(range(1, 65535))
    assert most.class_of([0, 1, 65534, 65535]).tolist() == [1, 1, 65534, 0]
    most.check()
    full = px.SizeMap(range(16, 16 * 255, 16), kind="table", num_bits=8, mid_size_log=7)
    assert (len(full), full.class_of(16 * 254)) == (254, 254)
    full.check()


def test_every_observed_list(shared_data):
    """Flat, where the classes of real allocators need one level or two, and bisected."""
    lists = sorted((shared_data / "sizeclass" / "observed").glob("*.txt"))
    assert len(lists) >= 20
    for path in lists:
        classes = sorted(map(int, path.read_text().split()))
        flat = px.SizeMap(classes)
        flat.check()
        assert flat.memory_bytes <= 1 << 17
        sizes = np.arange(flat.largest + 2)
        ids = np.searchsorted(np.array(classes), sizes) + 1
        ids[-1] = 0
        assert np.array_equal(flat.class_of(sizes), ids), path.name
        assert np.array_equal(flat.as_kind("search_branchless").class_of(sizes), ids), path.name


@pytest.mark.parametrize("name", px.preset_names())
def test_every_preset(name):
    made = px.SizeMap.preset(name)
    made.check()
    flat, branchless = made.as_kind("flat"), made.as_kind("search_branchless")
    flat.check()
    sizes = np.arange(made.largest + 2)
    assert np.array_equal(made.class_of(sizes), branchless.class_of(sizes))
    assert np.array_equal(flat.class_of(sizes), branchless.class_of(sizes))


def test_need():
    scudo = android64()
    assert [scudo.need(n) for n in (0, 1, 16, 17)] == [16, 32, 32, 48]
    assert scudo.need(np.array([0, 1, 16, 17], np.int8)).tolist() == [16, 32, 32, 48]
    most = np.array([2**64 - 1, 2**64 - 17, 2**64 - 32, 2**64 - 33], np.uint64)
    assert scudo.need(most).tolist() == [scudo.need(int(n)) for n in most]
    assert scudo.class_of(scudo.need(most)).tolist() == [0] * 4
    assert px.SizeMap([16]).need(7) == 7
    assert px.SizeMap([16, 32], header_bytes=20).usable.tolist() == [0, 12]


# --- equality, files, memory, threads


def test_equal_maps():
    a, b = android64(), android64()
    assert a == b
    assert hash(a) == hash(b)
    assert a != android64("flat")
    assert a != "table"
    assert pickle.loads(pickle.dumps(a)) == a
    assert repr(a) == "<SizeMap table, 32 classes up to 65552, header 16>"
    assert repr(px.SizeMap([8], name="one")) == "<SizeMap 'one': flat, 1 class up to 8>"
    with pytest.raises(ValueError, match="read-only"):
        a.classes[0] = 1
    with pytest.raises(AttributeError, match="does not change: header_bytes"):
        a.header_bytes = 8


@pytest.mark.parametrize("kind", MAP_KINDS)
def test_a_file(kind, tmp_path):
    saved = px.SizeMap.fixed(3, 5, 8, 17, header_bytes=16, align_bytes=16, name="é").as_kind(kind)
    saved.save(tmp_path / "map.json")
    loaded = px.SizeMap.load(tmp_path / "map.json")
    assert loaded == saved
    assert (loaded.name, loaded.kind) == ("é", kind)


def altered(**changes):
    document = {"format": "pyallocx size map", "version": 1} | android64()._document() | changes
    return json.dumps({key: value for key, value in document.items() if value != "gone"})


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "not JSON"),
        ("[1]", "format"),
        ("[" * 100_000, "wrong"),
        (altered(format="other"), "format"),
        (altered(version=2), "version 2"),
        (altered(version=True), "version True"),
        (altered(kind="best"), "kind must be one of"),
        (altered(kind=["flat"]), "kind must be one of"),
        (altered(kind="gone"), "'kind' is missing"),
        (altered(more=1), "unknown key 'more'"),
        (altered(classes=[32, 32]), "class 2 is 32 after 32"),
        (altered(classes=[32, 48.5]), "class 2 must be an integer"),
        (altered(classes=[True]), "class 1 must be an integer"),
        (altered(classes="32"), "'classes' must be a list"),
        (altered(classes=[]), "at least one"),
        (altered(classes=[16, 32]), "V2"),
        (altered(delta_bytes="16"), "delta_bytes must be an integer"),
        (altered(num_bits=9), "V3"),
        (altered(name=7), "name must be a text"),
        (altered(kind="fixed", num_bits=3), "not those of the fixed map"),
        (altered(kind="fixed", num_bits=None), "needs num_bits"),
        ('{"version": 1, "version": 1}', "there twice"),
        (b"\xff\xfe", "no text"),
    ],
)
def test_a_file_that_is_wrong(text, message, tmp_path):
    path = tmp_path / "wrong.json"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    with pytest.raises(ValueError, match=message) as caught:
        px.SizeMap.load(path)
    assert "wrong.json" in str(caught.value)


@pytest.mark.parametrize("kind", MAP_KINDS)
def test_refused_memory(kind):
    logs = {name: value for name, value in ANDROID64_LOG.items() if name != "delta_bytes"}
    if kind == "fixed":
        logs = {"num_bits": 3, "min_size_log": 5, "mid_size_log": 8, "max_size_log": 17}
    params = logs | {"kind": MAP_KINDS.index(kind), "delta_bytes": 16}
    classes = np.array(ANDROID64, np.uint64)
    calls = 3 if kind in ("table", "flat") else 2
    for n in range(1, calls + 1):
        with pytest.raises(MemoryError):
            _core.SizeMap(params, classes, n)
    assert _core.SizeMap(params, classes, calls + 1).class_of(33) == (2 if kind != "fixed" else 1)


def test_bad_arguments_do_not_reach_the_core():
    core = android64()._core
    sizes, out = np.zeros(4, np.uint32), np.zeros(4, np.uint8)
    for arguments in (
        (4, sizes, out, 0, 4),
        (-1, sizes, out, 0, 4),
        (0, sizes, out, 0, 5),
        (0, sizes, out, -1, 4),
        (0, sizes, out, 3, 2),
        (0, sizes, out[:3], 0, 3),
        (0, sizes.reshape(2, 2), out, 0, 2),
    ):
        with pytest.raises(ValueError):
            core.look_up(*arguments)
    for source in (sizes.astype(float), sizes.astype(bool), sizes.astype(">u4"), [1], None):
        with pytest.raises(TypeError):
            core.look_up(0, source, out, 0, 4)
    with pytest.raises(TypeError, match="classes are missing"):
        _core.SizeMap({"kind": 2})
    with pytest.raises(ValueError, match="kind is 5"):
        _core.SizeMap({"kind": 5}, np.ones(1, np.uint64))
    with pytest.raises(ValueError, match="number of classes"):
        _core.SizeMap({"kind": 2}, np.empty(0, np.uint64))
    with pytest.raises(ValueError, match="number of classes"):
        _core.size_map_violations({"num_bits": 1}, np.empty(0, np.uint64))
    with pytest.raises(ValueError, match="V1"):
        _core.SizeMap({"kind": 3}, np.array([2, 2], np.uint64))


def test_check_looks_at_large_maps_in_part():
    sizes = px.SizeMap([2**20, 2**30, 2**40, 2**50 + 1], kind="search")
    started = time.perf_counter()
    sizes.check()
    assert time.perf_counter() - started < 20


def test_ctrl_c_is_heard():
    sizes = np.ones(30_000_000, np.uint8)
    ours = android64("search")
    threading.Timer(0.05, signal.raise_signal, [signal.SIGINT]).start()
    with pytest.raises(KeyboardInterrupt):
        list(map(ours.class_of, [sizes] * 1000))


def test_lists_are_integers():
    sizes = px.SizeMap([16, 32], header_bytes=8, align_bytes=4)
    for call in (sizes.class_of, sizes.size_of, sizes.round, sizes.least_set_bit, sizes.need):
        empty = call([])
        assert (empty.shape, empty.dtype) == ((0,), call(np.array([], dtype=np.uint64)).dtype)
        for wrong in ([1.0], [True], ["1"], [None, 1], np.array([]), np.array([1], dtype=object)):
            with pytest.raises(TypeError):
                call(wrong)
        with pytest.raises(ValueError, match="-1"):
            call([2**63, -1])
    for large in (2**63, 2**64 - 1, 2**64, 2**70):
        assert sizes.class_of([1, large]).tolist() == [1, sizes.class_of(large)] == [1, 0]
        assert sizes.round([1, large]).tolist() == [16, sizes.round(large)]
        assert sizes.need([1, large]).tolist() == [12, sizes.need(large)]
        with pytest.raises(ValueError):
            sizes.size_of([1, large])
    assert sizes.class_of([[1, 2**63], [17, 33]]).tolist() == [[1, 0], [2, 0]]
