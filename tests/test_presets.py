"""Presets: what is published and was observed, what each rule promises, and what is refused."""

import re
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from pyallocx.presets import (
    preset,
    preset_classes,
    preset_knobs,
    preset_names,
    waste_percent,
)

NAMES = preset_names()
each_preset = pytest.mark.parametrize("name", NAMES)

# Preset, file, knobs; a file goes to 256 KiB where the allocator does.
OBSERVED = [
    ("gperftools", "gperftools-tcmalloc-2.10", {}),
    ("google-tcmalloc", "published-google-tcmalloc-fce3f55-8k-align8", {}),
    ("google-tcmalloc-legacy", "published-google-tcmalloc-fce3f55-legacy-8k-align8", {}),
    ("go", "go-1.19", {}),
    ("jemalloc", "jemalloc-5.3.0", {}),
    ("mimalloc", "mimalloc-2.0.9", {}),
    ("rpmalloc", "rpmalloc-5dacae8", {"largest_bytes": 262144}),
    ("snmalloc", "snmalloc-f70eb82", {}),
    ("hardened-malloc", "hardened_malloc-53326b3", {}),
    ("musl-mallocng", "published-musl-mallocng-maxrequest", {}),
    ("supermalloc", "published-supermalloc-709663f", {}),
    ("linux-kmalloc", "linux-6.18-kmalloc", {}),
    ("scudo-default-14", "scudo-14-default-block", {}),
    ("scudo-default-19", "scudo-19-default-block", {}),
]


def of(name, **knobs):
    return preset_classes(name, **knobs).classes


@pytest.fixture(scope="module")
def observed(shared_data):
    folder = shared_data / "sizeclass" / "observed"
    if not folder.is_dir():
        pytest.skip(f"no {folder}")
    return lambda file: [int(line) for line in (folder / f"{file}.txt").read_text().split()]


# --- what was observed ---


@pytest.mark.parametrize(("name", "file", "knobs"), OBSERVED, ids=[row[0] for row in OBSERVED])
def test_as_observed(observed, name, file, knobs):
    assert list(of(name, **knobs)) == observed(file)


def test_glibc_as_observed(observed):
    # A chunk that was mapped on its own, at the threshold, is of whole pages less two words.
    mapped = 33 * 4096 - 16
    assert [size for size in observed("glibc-2.36") if size != mapped] == list(of("glibc"))


def test_tbb_as_observed(observed):
    # Above its largest class an object is as large as the request: the file ends with two of them.
    assert observed("tbbmalloc-2021.8-upto8128") == [*of("tbb"), 8129, 8130]


@pytest.mark.parametrize("version", [14, 16, 19])
def test_scudo_switches_where_the_header_no_longer_fits(observed, version):
    table = preset_classes("scudo-default-14" if version < 19 else "scudo-default-19")
    assert list(table.classes) == observed(f"scudo-{version}-default-block")
    usable = [size - table.header_bytes for size in table.classes]
    assert usable == observed(f"scudo-{version}-default-maxrequest")


# --- golden numbers ---


# Of every preset: how many classes, the first, the last, and their sum.
@pytest.mark.parametrize(
    ("name", "number", "first", "last", "total"),
    [
        ("scudo-default-2020", 44, 48, 131088, 852160),
        ("scudo-default-14", 44, 32, 131072, 851456),
        ("scudo-default-19", 44, 32, 131072, 851456),
        ("scudo-fuchsia-14", 44, 48, 131088, 852160),
        ("scudo-fuchsia-19", 44, 48, 131088, 852160),
        ("scudo-svelte64-2020", 64, 32, 16400, 204800),
        ("scudo-svelte64-14", 64, 32, 16400, 204800),
        ("scudo-svelte32-2020", 72, 16, 16392, 204864),
        ("scudo-svelte32-14", 72, 16, 16392, 204864),
        ("scudo-trusty-14", 1, 128, 128, 128),
        ("scudo-trusty-19", 11, 32, 32768, 65504),
        ("scudo-android64-2020", 32, 32, 65552, 262096),
        ("scudo-android64-14", 32, 32, 65552, 250864),
        ("scudo-android64-19", 32, 32, 65552, 250864),
        ("gperftools", 85, 8, 262144, 4477448),
        ("google-tcmalloc", 47, 8, 262144, 1327528),
        ("google-tcmalloc-legacy", 85, 8, 262144, 2106056),
        ("go", 95, 8, 262144, 4616224),
        ("jemalloc", 53, 8, 262144, 1703688),
        ("mimalloc", 51, 8, 262144, 1310472),
        ("rpmalloc", 108, 16, 2097152, 13658112),
        ("snmalloc", 46, 16, 262144, 818944),
        ("hardened-malloc", 52, 8, 262144, 1703296),
        ("tbb", 26, 8, 8128, 28424),
        ("partitionalloc-denser", 111, 16, 983040, 12057600),
        ("partitionalloc-neutral", 63, 16, 917504, 5767680),
        ("glibc", 16384, 24, 262152, 2147745792),
        ("musl-mallocng", 48, 12, 131052, 795440),
        ("supermalloc", 45, 8, 258048, 572500),
        ("linux-kmalloc", 13, 8, 8192, 16664),
    ],
)
def test_counts(name, number, first, last, total):
    classes = of(name)
    assert (len(classes), classes[0], classes[-1], sum(classes)) == (number, first, last, total)


def test_go_has_67_small_classes():
    assert sum(size <= 32768 for size in of("go")) == 67


def test_upstream_test_configurations():
    large = {"num_bits": 3, "min_size_log": 4, "mid_size_log": 8, "max_size_log": 63}
    one = {"num_bits": 1, "min_size_log": 5, "mid_size_log": 5, "max_size_log": 5}
    assert len(of("scudo-fixed", **large)) == 236
    assert of("scudo-fixed", **one) == (32,)


def test_named_scudo_maps_are_the_fixed_map():
    shape = ("num_bits", "min_size_log", "mid_size_log", "max_size_log", "delta_bytes")
    for name in NAMES:
        made = preset_classes(name)
        if made.kind == "fixed":
            knobs = {knob: made.parameters[knob] for knob in shape}
            assert of("scudo-fixed", **knobs) == made.classes, name


@pytest.mark.parametrize("name", [name for name in NAMES if "android64" in name])
def test_android_tables_are_valid(name):
    """What a table map needs: a linear beginning, few bits, and an end inside its range."""
    made = preset_classes(name)
    p, delta = made.parameters, made.delta_bytes
    linear = 1 << (p["mid_size_log"] - p["min_size_log"])
    assert made.kind == "table"
    assert len(made.classes) <= 254
    for i, size in enumerate(made.classes):
        body = size - delta
        assert size % made.align_bytes == 0
        if i < linear:
            assert body == (i + 1) << p["min_size_log"]
        assert body.bit_length() - (body & -body).bit_length() < p["num_bits"]
    assert p["mid_size_log"] >= p["num_bits"] - 1
    assert (1 << p["max_size_log"]) + delta >= made.classes[-1]
    assert made.classes[-1] - made.header_bytes == 65536


def test_hints_of_the_three_dates():
    hints = {name: preset_classes(name).parameters for name in NAMES if name.startswith("scudo")}
    pairs = {
        name.removeprefix("scudo-"): (p["max_num_cached_hint"], p["max_bytes_cached_log"])
        for name, p in hints.items()
    }
    assert pairs == {
        "default-2020": (8, 10),
        "default-14": (14, 10),
        "default-19": (14, 10),
        "fuchsia-14": (10, 10),
        "fuchsia-19": (12, 10),
        "svelte64-2020": (4, 10),
        "svelte64-14": (13, 10),
        "svelte32-2020": (5, 10),
        "svelte32-14": (14, 10),
        "trusty-14": (8, 10),
        "trusty-19": (12, 10),
        "android64-2020": (14, 14),
        "android64-14": (13, 13),
        "android64-19": (13, 13),
        "fixed": (14, 10),
    }


def test_google_lists_pass_the_allocators_own_checks():
    for name in ("google-tcmalloc", "google-tcmalloc-legacy"):
        assert all(size % (8 if size <= 1024 else 128) == 0 for size in of(name))


def test_partition_alloc_neutral_is_every_other_bucket():
    denser, neutral = of("partitionalloc-denser"), of("partitionalloc-neutral")
    linear = sum(size <= 256 for size in denser)
    assert neutral[:linear] == denser[:linear]
    assert neutral[linear:] == denser[linear + 1 :: 2]


def test_hardened_malloc_switches():
    plain = of("hardened-malloc", extended=False, canary=False)
    assert plain == of("jemalloc")[1:]
    only_small = of("hardened-malloc", extended=False)
    assert [p - c for p, c in zip(plain, only_small, strict=True)] == [
        8 if size <= 16384 else 0 for size in plain
    ]


def test_jemalloc_in_other_shapes():
    assert of("jemalloc", lg_quantum=3, largest_bytes=64) == (8, 16, 24, 32, 40, 48, 56, 64)
    assert of("jemalloc", lg_quantum=3, lg_tiny_min=2, largest_bytes=16) == (4, 8, 16)
    assert of("jemalloc", lg_ngroup=3, largest_bytes=320)[-6:] == (208, 224, 240, 256, 288, 320)
    assert of("jemalloc", lg_ngroup=0, lg_tiny_min=4, largest_bytes=128) == (16, 32, 64, 128)
    pages = of("jemalloc", page_steps=True, largest_bytes=40960)
    assert pages[-8:] == (14336, 16384, 20480, 24576, 28672, 32768, 36864, 40960)


def test_kmalloc_drops_odd_caches_below_its_smallest():
    assert of("linux-kmalloc", min_bytes=64, largest_bytes=512) == (64, 128, 192, 256, 512)
    assert of("linux-kmalloc", min_bytes=128, largest_bytes=512) == (128, 256, 512)


def test_glibc_of_32_bit_words():
    assert of("glibc", size_bytes=4, largest_bytes=40) == (12, 20, 28, 36, 44)


# --- the league table: waste in percent of the bytes asked for, requests up to 64 KiB ---

PROFILES = ("cc1plus-cum", "clang-cum", "clang-peak", "python3-19870.cum", "git-cum", "sqlite3-cum")
LEAGUE = {
    "glibc": (4095, 1.31, 1.42, 1.33, 2.88, 0.56, 1.74),
    "jemalloc": (45, 5.24, 3.55, 3.43, 15.48, 5.52, 13.23),
    "gperftools": (61, 4.03, 2.30, 1.88, 6.56, 8.07, 10.20),
    "google-tcmalloc": (40, 6.34, 5.23, 2.91, 8.09, 10.01, 12.03),
    "google-tcmalloc-legacy": (74, 3.11, 2.27, 1.46, 5.18, 3.67, 8.23),
    "mimalloc": (45, 5.24, 3.55, 3.43, 15.48, 5.52, 13.23),
    "go": (71, 3.58, 3.19, 1.73, 6.44, 7.85, 9.50),
    "rpmalloc": (88, 4.04, 3.09, 1.44, 15.41, 4.98, 13.23),
    "musl-mallocng": (44, 7.23, 10.56, 12.64, 7.76, 12.06, 11.10),
    "scudo-default-19": (40, 8.20, 17.38, 20.70, 19.13, 15.63, 14.74),
    "scudo-android64-19": (32, 9.74, 7.55, 3.73, 37.41, 13.79, 15.25),
}


@pytest.fixture(scope="module")
def profiles(shared_data):
    folder = shared_data / "sizeclass" / "profiles"
    if not folder.is_dir():
        pytest.skip(f"no {folder}")

    def read(name):
        found = re.findall(
            r'<alloc size="(\d+)" count="(\d+)"/>', (folder / f"{name}.xml").read_text()
        )
        return np.array(found, dtype=np.int64).T

    return [read(name) for name in PROFILES]


@pytest.mark.parametrize("name", LEAGUE)
def test_league_table(profiles, name):
    number, *percents = LEAGUE[name]
    made = preset_classes(name)
    assert sum(size - made.header_bytes <= 65536 for size in made.classes) == number
    for (sizes, counts), percent in zip(profiles, percents, strict=True):
        found = waste_percent(made.classes, made.header_bytes, sizes, counts)
        assert f"{found:.2f}" == f"{percent:.2f}"


def test_waste_of_what_is_above_every_class():
    assert waste_percent([16, 32], 0, [8, 33], [1, 100]) == 100.0
    assert waste_percent([16, 32], 16, [8, 16, 17], [1, 1, 100]) == pytest.approx(100 * 8 / 24)
    assert waste_percent([16], 0, [17], [1]) == 0.0


# --- whatever the knobs ---


@st.composite
def settings_of(draw, name):
    """Draw values of some knobs, each in its range."""
    values = {}
    for knob in draw(st.lists(st.sampled_from(preset_knobs(name) or [None]), unique=True)):
        if knob is None:
            continue
        if isinstance(knob.default, bool):
            values[knob.name] = draw(st.booleans())
        elif knob.power_of_two:
            lowest, highest = (knob.lowest - 1).bit_length(), knob.highest.bit_length() - 1
            values[knob.name] = 1 << draw(st.integers(lowest, highest))
        else:
            values[knob.name] = draw(st.integers(knob.lowest, min(knob.highest, 1 << 21)))
    return values


def made_with(name, draw):
    knobs = draw.draw(settings_of(name))
    try:
        return preset_classes(name, **knobs)
    except ValueError as error:
        message = str(error)
    assert message.startswith(f"{name}: ")
    assume(False)  # values that do not go together, or too many classes
    return None


@each_preset
@given(draw=st.data())
def test_increasing_and_in_range(name, draw):
    made = made_with(name, draw)
    assert made.name == name
    assert all(type(size) is int for size in made.classes)
    assert made.classes[0] > 0
    assert all(a < b for a, b in pairwise(made.classes))
    assert len(made.classes) <= 65534
    p = made.parameters
    if "largest_bytes" in p and len(made.classes) > 1:
        assert made.classes[-2] < p["largest_bytes"] <= made.classes[-1]
    assert {knob.name for knob in preset_knobs(name)} <= set(p)


def octave(size):
    return 1 << (size.bit_length() - 1)


def span_step(a, p):
    """Return how far the next class can be: a step, and what a span with a tail hides."""
    tail = p["tail_divisor"]
    return (a + max(16, a // 8)) * tail / (tail - 1) - a if tail > 1 else float("inf")


def next_count(lines):
    """Return the next count of cache lines that may be a class: a prime, 9 or 15."""
    while True:
        lines += 1
        if lines in (9, 15) or all(lines % i for i in range(2, lines)):
            return lines


# For each rule the quantum of sizes (less delta or canary), and the most that is between class a
# and the next.
PROMISES = {
    "scudo-fixed": (
        lambda p: min(1 << p["min_size_log"], 1 << (p["mid_size_log"] - p["num_bits"] + 1)),
        lambda a, b, p: (
            1 << p["min_size_log"]
            if a < 1 << p["mid_size_log"]
            else octave(a) >> (p["num_bits"] - 1)
        ),
    ),
    "jemalloc": (
        lambda p: 1 << min(p["lg_tiny_min"], p["lg_quantum"]),
        lambda a, b, p: max(
            min(a, 1 << p["lg_quantum"]),
            octave(a) >> p["lg_ngroup"],
            (1 << p["lg_page"]) if p["page_steps"] else 0,
        ),
    ),
    "mimalloc": (
        lambda p: 8,
        lambda a, b, p: max(
            p["step_bytes"],
            octave(a) // 4,
            p["slice_bytes"] if b > p["medium_bytes"] else 0,
        ),
    ),
    "rpmalloc": (
        lambda p: 16,
        lambda a, b, p: max(p["granularity_bytes"], octave(a) // 4),
    ),
    "snmalloc": (
        lambda p: p["min_step_bytes"],
        lambda a, b, p: (
            a
            if a >= p["slab_bytes"]
            else max(p["min_step_bytes"], octave(a) >> p["intermediate_bits"])
        ),
    ),
    "hardened-malloc": (
        lambda p: 8 if p["canary"] else 16,
        # Where the canaries end, a step is larger by one.
        lambda a, b, p: max(16, octave(a + 8) // 4) + 8,
    ),
    "partitionalloc-denser": (lambda p: 16, lambda a, b, p: max(16, octave(a) // 8)),
    "partitionalloc-neutral": (lambda p: 16, lambda a, b, p: max(16, octave(a) // 4)),
    "glibc": (lambda p: p["size_bytes"], lambda a, b, p: 2 * p["size_bytes"]),
    "linux-kmalloc": (lambda p: 8, lambda a, b, p: a),
    "gperftools": (lambda p: 8, lambda a, b, p: span_step(a, p)),
    "go": (
        lambda p: 8,
        lambda a, b, p: max(
            span_step(a, p), p["page_bytes"] if b > p["largest_small_bytes"] else 0
        ),
    ),
    "supermalloc": (
        lambda p: 2,
        lambda a, b, p: (
            (a if a >= 16384 else max(2, octave(a) // 4))
            if b > 16384 or a < 256
            else max(a * (100 / p["spacing_percent"] - 1), next_count(a // 64) * 64 - a)
        ),
    ),
}


@pytest.mark.parametrize("name", PROMISES)
@given(draw=st.data())
def test_quantum_and_steps(name, draw):
    made = made_with(name, draw)
    quantum, step = PROMISES[name]
    sizes = [size - made.delta_bytes for size in made.classes]
    assert all(size % quantum(made.parameters) == 0 for size in sizes)
    for a, b in pairwise(sizes):
        assert b - a <= step(a, b, made.parameters), (a, b)


def test_every_preset_with_knobs_has_promises():
    assert {name for name in NAMES if preset_knobs(name)} == set(PROMISES)


@each_preset
def test_knobs_tell(name):
    for knob in preset_knobs(name):
        assert knob.lowest <= knob.default <= knob.highest
        assert knob.help
        assert "\n" not in knob.help
        assert preset_classes(name, **{knob.name: knob.default}) == preset_classes(name)
    assert "\n" not in preset_classes(name).source


# --- what is refused ---


def test_unknown_presets():
    with pytest.raises(ValueError, match=r"no preset 'jemaloc' \(did you mean 'jemalloc'\?\)"):
        preset_classes("jemaloc")
    with pytest.raises(ValueError, match="no preset 'scudo-android32-14': its parameters are"):
        preset_knobs("scudo-android32-14")
    with pytest.raises(ValueError, match="no preset 7"):
        preset_classes(7)
    with pytest.raises(ValueError, match="no preset"):
        preset_classes([])


@pytest.mark.parametrize(
    ("name", "knobs", "error", "message"),
    [
        ("jemalloc", {"lg_grp": 2}, TypeError, "has no knob 'lg_grp' .* knobs: lg_quantum"),
        ("tbb", {"slab": 2}, TypeError, "has no knob 'slab'; knobs: none"),
        ("jemalloc", {"lg_ngroup": 7}, ValueError, "lg_ngroup must be from 0 to 6, got 7"),
        ("jemalloc", {"lg_ngroup": 2.0}, TypeError, r"lg_ngroup must be a whole number, got 2\.0"),
        ("jemalloc", {"lg_ngroup": True}, TypeError, "must be a whole number, got True"),
        ("jemalloc", {"page_steps": 1}, TypeError, "page_steps must be True or False, got 1"),
        ("jemalloc", {"lg_tiny_min": 5}, ValueError, r"lg_tiny_min \(5\) must be at most"),
        ("jemalloc", {"lg_ngroup": 6, "lg_quantum": 3}, ValueError, "at most 256 small classes"),
        ("go", {"page_bytes": 12288}, ValueError, "must be a power of two, got 12288"),
        ("glibc", {"largest_bytes": 1 << 30}, ValueError, "more than 65534 classes"),
        ("scudo-fixed", {"mid_size_log": 18}, ValueError, r"min_size_log \(5\) <= mid_size_log"),
        ("scudo-fixed", {"num_bits": 9, "mid_size_log": 7}, ValueError, "at least num_bits - 1"),
        ("scudo-fixed", {"num_bits": 8}, ValueError, "at most 255 classes, these logs give"),
    ],
)
def test_refused_knobs(name, knobs, error, message):
    with pytest.raises(error, match=f"^{name}:? .*{message}"):
        preset_classes(name, **knobs)


def test_numpy_numbers_are_whole():
    assert of("jemalloc", lg_ngroup=np.uint8(1)) == of("jemalloc", lg_ngroup=1)


# --- as size maps ---


@each_preset
def test_as_size_map(name):
    made, map_ = preset_classes(name), preset(name)
    assert tuple(map_.classes.tolist()) == made.classes
    assert (map_.kind, map_.name) == (made.kind, name)
    assert (map_.usable == map_.classes - made.header_bytes).all()
    map_.check()


# --- the document ---


def test_the_document_has_every_preset_and_knob(repository):
    text = (repository / "docs" / "presets.md").read_text()
    rows = dict(re.findall(r"(?m)^\| `([a-z0-9-]+)` \| (.*) \|$", text))
    assert list(rows) == list(NAMES)
    for name, row in rows.items():
        knobs = row.split(" | ")[1]
        written = re.findall(r"`([a-z_]+)=([0-9A-Za-z]+)`", knobs)
        assert written == [(knob.name, str(knob.default)) for knob in preset_knobs(name)], name
