"""Exports: what is written is right for every size, here by other hands than ours, too."""

import re
import shutil
import subprocess

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

import pyallocx as px
from pyallocx.exports import FORMATS, _base, flat, json, memcached, scudo, spans

PROFILES = (
    "cc1plus-cum.xml",
    "clang-cum.xml",
    "clang-peak.xml",
    "git-cum.xml",
    "python3-19870.cum.xml",
    "scudo19-clang.malloc_info.xml",
    "sqlite3-cum.xml",
)
SMALL = {16: 30, 40: 12, 100: 60, 320: 7, 1500: 4, 9000: 2, 30000: 1}


def scudo_fit(profile=SMALL, bits=7, **options):
    return px.fit(
        profile,
        32,
        bits=bits,
        header_bytes=16,
        largest_bytes=65552,
        prefix="table",
        **options,
    )


def run(tmp_path, compiler, suffix, source, *flags):
    """Compile without a warning, run, return what it prints."""
    if shutil.which(compiler) is None:
        pytest.skip(f"no {compiler}")
    path = tmp_path / f"program.{suffix}"
    path.write_text(source)
    program = tmp_path / "program"
    command = [compiler, *flags, "-O1", "-Wall", "-Wextra", "-Werror", "-o", program, path]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return subprocess.run([program], capture_output=True, text=True, check=True).stdout


# --- the flat table, in C


def flat_maps():
    yield "fit", scudo_fit()
    yield "android", px.preset("scudo-android64-19")
    yield "glibc", px.preset("glibc")
    yield "musl", px.preset("musl-mallocng")
    yield "one", px.SizeMap([1])
    yield "odd", px.SizeMap([3, 7, 8, 100, 101])
    yield "two", px.SizeMap([8, 16, 24, 1 << 20, 3 << 20])
    yield "wide", px.SizeMap(range(16, 16 * 400, 16))


def test_the_generated_c_is_right_for_every_size(tmp_path):
    texts, calls = [], []
    for name, subject in flat_maps():
        options = {"max_entries": 64} if name == "two" else {}
        text = px.export(subject, "flat", name=name, **options)
        assert ("_table_high[" in text) == (name == "two")
        texts.append(text)
        calls.append(f"    failures += JUDGE({name}, {name.upper()});")
    source = "\n".join(
        [
            *texts,
            "#include <stdio.h>",
            # The plain definition: count classes that are too small.
            "#define JUDGE(N, B) judge(#N, N##_class, B##_LARGEST, B##_CLASSES, SIZES(N))",
            "#define SIZES(N) (uint64_t[]){0}, N##_sizes, sizeof N##_sizes[0]",
            "static int judge(const char *name, unsigned (*class_of)(uint64_t), uint64_t largest,",
            "                 unsigned classes, const uint64_t *unused, const void *sizes,",
            "                 size_t width) {",
            "    (void)unused;",
            "    unsigned right = 1;",
            "    for (uint64_t size = 0; size <= largest + 70000; size++) {",
            "        while (right <= classes &&",
            "               (width == 4 ? ((const uint32_t *)sizes)[right]",
            "                           : ((const uint64_t *)sizes)[right]) < size) {",
            "            right++;",
            "        }",
            "        if (class_of(size) != (right <= classes ? right : 0)) {",
            '            printf("%s: size %llu\\n", name, (unsigned long long)size);',
            "            return 1;",
            "        }",
            "    }",
            "    return class_of(UINT64_MAX) != 0 || class_of(largest + 1) != 0;",
            "}",
            "int main(void) {",
            "    int failures = 0;",
            *calls,
            '    printf("%d %llu\\n", failures, (unsigned long long)fit_need(17));',
            "    return failures;",
            "}",
        ]
    )
    printed = run(tmp_path, "cc", "c", source, "-std=c11", "-Wno-unused-function")
    assert printed == "0 48\n"


def test_a_table_that_is_too_long_is_refused():
    sizes = px.SizeMap([1, 1 << 20, (1 << 21) - 1], kind="search")
    with pytest.raises(ValueError, match=r"flat: the table would have .* max_entries allows 65536"):
        px.export(sizes, "flat")
    with pytest.raises(ValueError, match="flat: the table would have 8 entries"):
        px.export(px.SizeMap([1024 * 7]), "flat", max_entries=1)
    assert px.export(px.SizeMap([2**40]), "flat")


# --- the scudo struct, in C++


def cpp(structs):
    checks = [
        f"    {{ typedef TableMap<{name}> M; "
        f'std::printf("{name} %lu %lu %d\\n", (unsigned long)M::first_wrong(), '
        f"(unsigned long)M::count, (int)M::packs()); }}"
        for name, _ in structs
    ]
    return "\n".join(
        [
            '#include "table_size_class_map.h"',
            "#include <cstdio>",
            *(text for _, text in structs),
            "int main() {",
            *checks,
            "}",
        ]
    )


def test_the_struct_is_right_for_every_size(tmp_path, repository):
    fitted = scudo_fit()
    subjects = [
        ("Android", px.preset("scudo-android64-19"), {"compressed_lsb": True}),
        ("Default", px.preset("scudo-default-19"), {}),
        ("Fuchsia", px.preset("scudo-fuchsia-19"), {"llvm": 14}),
        ("Fitted", fitted, {}),
        ("Coarse", scudo_fit(bits=5), {}),
        ("Linear", px.SizeMap(range(16, 272, 16)), {}),
        ("One", px.SizeMap([32]), {}),
        ("Twofold", px.SizeMap([48, 80, 144, 272], header_bytes=16, align_bytes=16), {}),
    ]
    structs = [
        (name, px.export(subject, "scudo", name=name, **options))
        for name, subject, options in subjects
    ]
    include = f"-I{repository / 'tests'}"
    printed = run(tmp_path, "c++", "cc", cpp(structs), "-std=c++17", include)
    lines = [line.split() for line in printed.splitlines()]
    assert [line[0] for line in lines] == [name for name, _, _ in subjects]
    assert [line[1] for line in lines] == ["0"] * len(lines)
    assert [int(line[2]) for line in lines] == [len(s.classes) for _, s, _ in subjects]
    for (_, text), line in zip(structs, lines, strict=True):
        assert ("do not fit" in text) == (line[3] == "0")


def test_the_header_of_the_tests_can_fail(tmp_path, repository):
    text = px.export(px.preset("scudo-android64-19"), "scudo", name="A")
    # As the seed's tool did on a real profile: a first class that is all header.
    wrong = text.replace("0x00020, ", "0x00010, 0x00020, ", 1).replace("0x00050, ", "", 1)
    include = f"-I{repository / 'tests'}"
    printed = run(tmp_path, "c++", "cc", cpp([("A", wrong)]), "-std=c++17", include)
    assert printed.split()[1] != "0"


def numbers(text):
    return {
        word: int(value)
        for word, value in re.findall(r"(?m)^  static const \w+ (\w+) = (\d+);", text)
    }


def test_android_gets_its_own_numbers_back():
    text = px.export(px.preset("scudo-android64-19"), "scudo", compressed_lsb=True)
    assert numbers(text) == {
        "NumBits": 7,
        "MinSizeLog": 4,
        "MidSizeLog": 6,
        "MaxSizeLog": 16,
        "MaxNumCachedHint": 13,
        "MaxBytesCachedLog": 13,
        "SizeDelta": 16,
    }
    assert "struct scudo_android64_19 {" in text
    assert "Table of 640 bytes" in text


@pytest.mark.parametrize("name", [n for n in px.preset_names() if n.startswith("scudo")])
def test_every_scudo_preset_is_a_table(name):
    made = px.preset(name)
    found = numbers(px.export(made, "scudo"))
    assert found["SizeDelta"] == made.delta_bytes
    assert found["NumBits"] <= made.num_bits


@pytest.mark.parametrize(
    ("classes", "options", "message"),
    [
        ([0x10, 0x20, 0x30, 0x40, 0xB0], {}, r"V2: .* first classes must be 0x20 .* 0x10 must not"),
        ([0x30, 0x40, 0x50, 0x60], {"num_bits": 7}, r"V2: .* 0x20 is missing; px\.fit\(.*prefix"),
        ([0x20, 0x30, 0x58], {}, "V6: classes are multiples of 16, 0x58 is none"),
        ([16 * i for i in range(1, 256)], {}, "V1: 255 classes, at most 254"),
        ([0x20, 0x30, 0x40, 0x50, 0x10010 + 16], {"num_bits": 3}, "V4: .* 13 significant bits"),
        ([0x20, 1 << 20], {"num_bits": 20}, "V2"),
        ([32 + 16 * i for i in range(33)], {"compressed_lsb": True}, "compressed LSB: 33 classes"),
        ([0x20, 0x30, 0x40, 0x50, 0x110, 0x100 + 0x100], {"compressed_lsb": True}, "0x200 has"),
    ],
)
def test_scudo_says_which_condition_is_broken(classes, options, message):
    sizes = px.SizeMap(classes, kind="search", header_bytes=16, align_bytes=16)
    with pytest.raises(ValueError, match=f"^scudo: .*{message}"):
        px.export(sizes, "scudo", delta_bytes=16, **options)


def test_a_table_that_is_too_large_for_a_byte_table_is_refused():
    classes = [*range(16, 16 + (1 << 7), 1)][:100]
    with pytest.raises(ValueError, match=r"^scudo: "):
        px.export(px.SizeMap([*classes, (1 << 30) + 1]), "scudo", min_align_bytes=1)


# --- every format on real programs: the seed's tool fails on the last


@pytest.mark.parametrize("file", PROFILES)
@pytest.mark.parametrize("bits", [5, 7])
def test_real_programs(shared_data, file, bits):
    profile = px.load_profile(shared_data / "sizeclass" / "profiles" / file)
    best = scudo_fit(profile, bits)
    text = best.export("scudo")
    found = numbers(text)
    classes = _base.numbers_of(text, "Classes")
    table = px.SizeMap(
        classes,
        kind="table",
        delta_bytes=found["SizeDelta"],
        num_bits=found["NumBits"],
        min_size_log=found["MinSizeLog"],
        mid_size_log=found["MidSizeLog"],
        max_size_log=found["MaxSizeLog"],
    )
    table.check()
    assert table.violations(align_bytes=16) == ()
    assert found["NumBits"] <= bits
    for format in ("flat", "json"):
        assert best.export(format)
    pages = px.fit(profile, 67, bits=4, largest_bytes=32768)
    assert pages.export("go")
    pages = px.fit(profile, 85, bits=4, align_bytes=8, largest_bytes=262144)
    assert pages.export("tcmalloc")
    items = px.fit({s + 48: 1 for s in profile.sizes[:500].tolist()}, 62, largest_bytes=524288)
    assert items.export("memcached")


# --- google/tcmalloc and Go


def test_tcmalloc_rows():
    text = px.export(px.preset("google-tcmalloc"), "tcmalloc", name="kClasses")
    rows = [tuple(map(int, row)) for row in re.findall(r"\{(\d+), (\d+), (\d+)\}", text)]
    assert len(rows) == 48
    assert rows[0] == (0, 0, 0)
    assert rows[1] == (8, 1, 32)
    assert rows[-1] == (262144, 32, 2)
    for size, pages, moved in rows[1:]:
        assert 2 <= moved <= 128
        objects = pages * 8192 // size
        assert pages == 1 or objects <= 64
        assert 8 * (pages * 8192 % size) <= pages * 8192


@pytest.mark.parametrize(
    ("format", "classes", "options", "message"),
    [
        ("tcmalloc", [8, 1024, 65536], {}, "last class must be 262144"),
        ("tcmalloc", [8, 1024, 1100, 262144], {}, "above 1024 bytes are multiples of 128"),
        ("tcmalloc", [12, 262144], {}, "up to 1024 bytes are multiples of 8, class 1 is 12"),
        ("tcmalloc", [*range(8, 696, 8), 262144], {}, "87 classes, at most 85"),
        ("tcmalloc", [8, 262144], {"page_shift": 14}, "page_shift is 14"),
        ("go", [8, 16, 65536], {}, "last class must be 32768"),
        ("go", [16, 32768, 65536], {}, "last class must be 32768 .* it is 65536"),
        ("go", [8, 16, 24, 32, 40, 32768], {}, "from 32 bytes on are multiples of 16, class 5"),
        ("go", [16, 1040, 32768], {}, "above 1024 bytes are multiples of 128, class 2 is 1040"),
        ("go", [*range(16, 16 + 67 * 16, 16), 32768], {}, "68 classes, at most 67"),
        ("memcached", [40, 96], {}, "the first class is 40, the smallest chunk is 48"),
        ("memcached", [96, 1 << 20], {}, "the largest class is 1048576, the largest chunk"),
        ("memcached", [96, 104], {}, "increments: 104 must be more than 8 bytes above 96"),
        ("memcached", [100, 200], {}, "alignment: chunks are multiples of 8, a class is 100"),
        ("memcached", [*range(96, 96 + 63 * 16, 16)], {}, "63 classes .* at most 62"),
        ("memcached", [524288], {}, "a class below the largest chunk"),
    ],
)
def test_targets_name_the_rule(format, classes, options, message):
    with pytest.raises(ValueError, match=f"^{format}: .*{message}"):
        px.export(px.SizeMap(classes, kind="search"), format, **options)


@pytest.mark.parametrize("format", ["tcmalloc", "go"])
def test_a_header_has_no_place(format):
    sizes = px.SizeMap([32, 32768], header_bytes=16)
    with pytest.raises(ValueError, match=f"^{format}: header_bytes is 16"):
        px.export(sizes, format)


def test_go_gets_its_own_numbers_back(shared_data):
    text = px.export(px.preset("go"), "go")
    sizes = _base.numbers_of(text, "class_to_size")
    path = shared_data / "sizeclass" / "observed" / "go-1.19.txt"
    observed = [int(line) for line in path.read_text().split()]
    assert sizes[1:] == [size for size in observed if size <= 32768]
    assert _base.number_of(text, "_NumSizeClasses") == 68
    pages = _base.numbers_of(text, "class_to_allocnpages")
    for size, count in zip(sizes[1:], pages[1:], strict=True):
        assert 8 * (count * 8192 % size) <= count * 8192
        assert all(8 * (n * 8192 % size) > n * 8192 for n in range(-(-size // 8192), count))


# --- memcached and JSON


def test_memcached_accepts_it():
    program = shutil.which("memcached")
    if program is None:
        pytest.skip("no memcached")
    best = px.fit(dict.fromkeys(range(60, 9000, 37), 1), 63, largest_bytes=524288)
    option = px.export(best, "memcached").split()
    command = [program, "-u", "nobody", "-vv", "-U", "0", "-p", "0", "-s", "/dev/null/no", *option]
    said = subprocess.run(command, capture_output=True, text=True, timeout=20)
    chunks = [int(size) for size in re.findall(r"chunk size +(\d+)", said.stderr + said.stdout)]
    assert chunks == best.classes.tolist()


def test_memcached_option():
    assert px.export(px.SizeMap([96, 112, 524288]), "memcached") == "-o slab_sizes=96-112\n"


@pytest.mark.parametrize("kind", [None, "flat", "table", "search", "search_branchless"])
def test_json_reads_back(tmp_path, kind):
    fitted = scudo_fit()
    options = {} if kind is None else {"kind": kind}
    if kind == "table":
        fitted = fitted.to_map(kind="table", delta_bytes=16)
    path = tmp_path / "map.json"
    path.write_text(px.export(fitted, "json", name="a map", **options))
    again = px.SizeMap.load(path)
    assert again.name == "a map"
    assert again.kind == (kind or "flat")
    assert again.classes.tolist() == fitted.classes.tolist()
    assert (again.header_bytes, again.align_bytes) == (16, 16)


def test_json_of_a_table_that_is_wasteful():
    table = px.SizeMap([16, 32, 48, 64, 84, 128], kind="table", num_bits=3, min_size_log=4)
    assert [one.condition for one in table.violations(align_bytes=1)] == ["V4"]
    with pytest.raises(ValueError, match=r"^json: V4: class 5, 84"):
        px.export(table, "json")
    assert px.export(table, "json", kind="flat")
    odd = px.SizeMap([16, 32, 48, 64, 80], kind="table", align_bytes=32)
    assert px.export(odd, "json")


def test_json_of_a_fit_that_is_too_large_for_a_flat_map():
    best = px.fit({1: 1, 1 << 20: 3, (1 << 21) - 1: 1}, 3, align_bytes=1)
    assert '"kind": "search"' in best.export("json")


# --- what is refused, and what could be written wrongly


def test_wrong_use():
    sizes = px.SizeMap([16, 32])
    with pytest.raises(ValueError, match="format is 'rust', allowed are 'scudo', 'flat'"):
        px.export(sizes, "rust")
    with pytest.raises(TypeError, match="a SizeMap or a Fit is exported, not list"):
        px.export([16, 32], "flat")
    with pytest.raises(TypeError, match="export to flat has no option 'num_bits'"):
        sizes.export("flat", num_bits=3)
    for name in ("9x", "a b", "", "x*/", 3):
        with pytest.raises(ValueError, match="identifier"):
            px.export(sizes, "flat", name=name)


def test_a_name_is_no_code():
    sizes = px.SizeMap([16, 32], name='*/ int x;\n#error "no" \\')
    text = px.export(sizes, "flat")
    assert "#error" not in text
    assert "int_x_error_no_class(uint64_t size)" in text
    assert px.export(px.SizeMap([16], name="3 words"), "flat").count("size_3_words_class(") >= 1
    # Words that do not compile: of the languages, and those that the text uses itself.
    wrong = {
        "scudo": ["class", "int", "typename", "_", "Classes", "NumBits", "SizeDelta", "uptr"],
        "flat": ["int", "static", "alignas", "nullptr"],
        "tcmalloc": ["class", "SizeClassInfo"],
        "go": ["type", "func", "range", "_"],
    }
    subjects = {
        "scudo": px.preset("scudo-android64-19"),
        "flat": px.SizeMap([16]),
        "tcmalloc": px.preset("google-tcmalloc"),
        "go": px.preset("go"),
    }
    for format, names in wrong.items():
        for name in names:
            with pytest.raises(ValueError, match="name must be"):
                px.export(subjects[format], format, name=name)
        assert px.export(subjects[format], format, name="Classes_")
    for name in ("Classes", "class"):
        (struct,) = re.findall(r"struct (\w+)", px.export(px.SizeMap([16], name=name), "scudo"))
        assert struct == f"size_{name}"


def test_mistakes_in_what_is_written_are_found(monkeypatch):
    best = scudo_fit()
    pages = px.preset("go")
    rows = px.preset("google-tcmalloc")
    slabs = px.SizeMap([96, 112, 200])

    def wrong(module, name, subject, format, change):
        whole = getattr(module, name)
        with monkeypatch.context() as patch:
            patch.setattr(module, name, lambda *args: change("\n".join(whole(*args))).split("\n"))
            with pytest.raises(px.CorruptionError, match=format):
                px.export(subject, format)

    def swap(old, new, times=1):
        def change(text):
            assert old in text
            return text.replace(old, new, times)

        return change

    def entry(name, index, by):
        """Change one number of an array."""

        def change(text):
            start = text.index("{", text.index(f"{name}"))
            words = list(re.finditer(r"\d+", text[start:]))
            word = words[index]
            low, high = start + word.start(), start + word.end()
            return text[:low] + str(int(word.group()) + by) + text[high:]

        return change

    for index in (0, 1, 2, 3, 500, 4097):
        wrong(flat, "_lines", best, "flat", entry("sizes_table[", index, 1))
    wrong(flat, "_lines", best, "flat", swap("STEP_LOG 4", "STEP_LOG 5"))
    wrong(flat, "_lines", best, "flat", swap("_LARGEST UINT64_C(65552)", "_LARGEST UINT64_C(9)"))
    wrong(scudo, "_lines", best, "scudo", swap("NumBits = ", "NumBits = 1"))
    wrong(scudo, "_lines", best, "scudo", swap("MidSizeLog = ", "MidSizeLog = 1"))
    wrong(scudo, "_lines", best, "scudo", swap("SizeDelta = 16", "SizeDelta = 0"))
    wrong(scudo, "_lines", best, "scudo", swap("MinSizeLog = 4", "MinSizeLog = 5"))
    wrong(scudo, "_lines", best, "scudo", swap("0x00020", "0x00010"))
    wrong(spans, "_go_lines", pages, "go", entry("size_to_class8 =", 60, 1))
    wrong(spans, "_go_lines", pages, "go", entry("size_to_class128 =", 60, -1))
    wrong(spans, "_go_lines", pages, "go", entry("class_to_size =", 9, 16))
    wrong(spans, "_go_lines", pages, "go", entry("class_to_divmagic =", 9, -40000))
    wrong(spans, "_tcmalloc_lines", rows, "tcmalloc", swap("{64, 1, 32}", "{64, 1, 1}"))
    wrong(spans, "_tcmalloc_lines", rows, "tcmalloc", swap("{64, 1, 32}", "{72, 1, 32}"))
    wrong(spans, "_tcmalloc_lines", rows, "tcmalloc", swap("{64, 1, 32}", "{64, 9, 32}"))
    wrong(spans, "_tcmalloc_lines", rows, "tcmalloc", swap("{262144, ", "{262144, 2"))
    assert memcached._STEP == 8
    with pytest.raises(px.CorruptionError):
        memcached._check("-o slab_sizes=96-200", _base.subject_of(slabs), 524288)
    with pytest.raises(px.CorruptionError, match="refused"):
        memcached._check("-o slab_sizes=96-104-200", _base.subject_of(slabs), 524288)


def test_above_64_mib_the_edges_are_enough():
    classes = [16, 1 << 27]
    right = np.array(classes)

    def lookup(sizes):
        found = right[np.searchsorted(right, sizes)]
        found[sizes == 17] = 16
        return found

    with pytest.raises(px.CorruptionError, match="size 17"):
        _base.judge("x", lookup, classes)


# --- random maps


@st.composite
def table_maps(draw):
    low = draw(st.integers(0, 5))
    middle = draw(st.integers(low, low + 4))
    bits = draw(st.integers(1, min(8, middle + 1)))
    high = draw(st.integers(middle + 1, middle + 6))
    delta = draw(st.sampled_from([0, 1 << low, 3 << low]))
    steps = 1 << (bits - 1)
    grid = [
        (1 << log) + (k + 1) * ((1 << log) // steps)
        for log in range(middle, high)
        for k in range(steps)
    ]
    some = draw(st.sets(st.sampled_from(grid), max_size=60))
    prefix = [(i + 1) << low for i in range(1 << (middle - low))]
    classes = sorted({*prefix, *some})
    return bits, delta, [size + delta for size in classes]


@given(table_maps())
def test_every_valid_table_map_goes_through(made):
    bits, delta, classes = made
    sizes = px.SizeMap(classes, kind="search")
    text = px.export(sizes, "scudo", delta_bytes=delta, min_align_bytes=1)
    found = numbers(text)
    assert found["NumBits"] <= bits
    assert found["SizeDelta"] == delta
    assert _base.numbers_of(text, "Classes") == classes
    given_bits = px.export(sizes, "scudo", delta_bytes=delta, min_align_bytes=1, num_bits=bits)
    assert numbers(given_bits)["NumBits"] == bits


@given(table_maps(), st.data())
def test_without_a_class_of_the_prefix_it_is_refused_by_name(made, data):
    bits, delta, classes = made
    low = (classes[0] - delta).bit_length() - 1
    needed = 1 << max(0, bits - 1 - low)
    assume(needed > 1 and len(classes) > needed)
    gone = data.draw(st.integers(1, needed - 1))
    sizes = px.SizeMap([*classes[:gone], *classes[gone + 1 :]], kind="search")
    with pytest.raises(ValueError, match=r"^scudo: (V2: .* (is|are) missing|V4: )"):
        px.export(sizes, "scudo", delta_bytes=delta, min_align_bytes=1, num_bits=bits)


@given(
    st.sets(st.integers(1, 5000), min_size=1, max_size=80),
    st.sampled_from([1, 8, 16, 128]),
    st.sampled_from([0, 0, 16]),
    st.sampled_from([None, 32768, 262144]),
    st.sampled_from(FORMATS),
)
def test_any_map_is_exported_or_refused_by_name(sizes, align, header, last, format):
    classes = sorted({-(-size // align) * align for size in sizes} | ({last} if last else set()))
    assume(classes[-1] > header)
    subject = px.SizeMap(classes, kind="search", header_bytes=header)
    refusal = f"{format}: "
    try:
        text = px.export(subject, format)
    except ValueError as error:
        refusal = str(error)
        text = "\n"
    assert refusal.startswith(f"{format}: ")
    assert text.endswith("\n")
    if format == "json" and len(text) > 1:
        assert json._made(json._parse(text.encode())).classes.tolist() == classes
