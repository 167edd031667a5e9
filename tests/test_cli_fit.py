"""The verbs fit and waste."""

import csv
import dataclasses
import json
import subprocess
import sys

import pytest

import pyallocx as px
from pyallocx import cli_fit, profiles
from pyallocx._flagwords import PROFILE_FORMATS
from pyallocx.cli import main
from pyallocx.exports import FORMATS


@pytest.fixture
def files(tmp_path):
    """Return two programs in files."""
    one = px.Profile([16, 40, 100, 320, 1500, 9000, 70000], [300, 12, 60, 7, 4, 2, 1], name="one")
    two = px.Profile([24, 64, 100, 700, 4000], [30, 120, 60, 70, 4], name="two")
    paths = [tmp_path / "one.txt", tmp_path / "two.txt"]
    for profile, path in zip((one, two), paths, strict=True):
        profile.save(path)
    return [str(path) for path in paths]


def run(capsys, *argv, code=0):
    assert main([str(word) for word in argv]) == code
    return capsys.readouterr()


def test_lists_are_those_of_the_library():
    assert cli_fit._FORMATS == FORMATS
    assert tuple(profiles.FORMATS) == PROFILE_FORMATS
    assert sorted(cli_fit._METHODS) == sorted(px.fit.__globals__["METHODS"])


def test_a_person_reads_the_table_the_proof_and_what_was_left_out(files, capsys):
    out, err = run(capsys, "fit", files[0], "--classes", 4, "--largest", "64KiB")
    assert err == ""
    best = px.fit(px.load_profile(files[0]), 4, largest_bytes=65536)
    lines = out.splitlines()
    assert lines[0].startswith("fitted to: one, 385 requests of ")
    assert f"classes (4): {' '.join(map(str, best.classes.tolist()))}" in lines
    assert "proof: no table of so many classes wastes less" in out
    assert "left out: 1 request of 68.4 KiB above 65536 has no class, costs 0" in out
    assert "one class more: " in out
    assert "one class less: without " in out
    assert "presets on the same requests, by the same measure: " in out
    assert "warning: fitted to one program" in out


def test_json_of_fit(files, capsys):
    out, err = run(
        capsys,
        *("fit", files[0], "--classes", "6", "--bits", "7", "--header", "16", "--largest", "65552"),
        *("--compare-greedy", "--json"),
    )
    assert err == ""
    result = json.loads(out)
    best = px.fit(px.load_profile(files[0]), 6, bits=7, header_bytes=16, largest_bytes=65552)
    assert result["classes"] == best.classes.tolist()
    assert result["wastage_bytes"] == best.wastage_bytes == sum(result["parts"].values())
    assert (result["lower_bound_bytes"], result["gap"]) == (best.lower_bound_bytes, 0)
    assert result["constraints"] == best.constraints
    assert result["seconds"] >= 0
    assert result["greedy"]["wastage_bytes"] >= best.wastage_bytes
    assert result["excluded_count"] == 1
    assert result["loss_bytes"][-1] is None
    assert result["held_out"] is False
    assert {one["name"] for one in result["presets"]} <= set(px.preset_names())


def test_greedy_in_json(tmp_path, capsys):
    path = tmp_path / "p.txt"
    path.write_text("80 1000\n96 2\n128 2\n")
    argv = ("fit", path, "--classes", 3, "--largest", 65536, "--method", "greedy")
    out, _ = run(capsys, *argv, "--json")
    result = json.loads(out)
    assert (result["wastage_bytes"], result["lower_bound_bytes"], result["gap"]) == (
        16000,
        64,
        15936,
    )
    assert result["method"] == "greedy"
    # With a class for every size only the alignment is left, of which there is none here.
    assert result["floor_bytes"] == 0
    out, _ = run(capsys, *argv)
    assert "the best table wastes at least 64 B, 15.6 KiB less (greedy" in out
    path.write_text("81 1000\n97 2\n")
    result = json.loads(run(capsys, *argv, "--json")[0])
    assert result["floor_bytes"] == 1002 * 15


def test_a_broken_condition_is_told(tmp_path, monkeypatch, capsys):
    path = tmp_path / "p.txt"
    path.write_text("2000 5\n5000 3\n")
    best = px.fit(px.load_profile(path), 2)
    broken = dataclasses.replace(best, monge=False, method="quadratic")
    monkeypatch.setattr(sys.modules["pyallocx.fit"], "fit", lambda *args, **options: broken)
    out, _ = run(capsys, "fit", path)
    assert "(quadratic, since the tail rule breaks the quadrangle condition, " in out
    out, _ = run(capsys, "fit", path, "--json")
    assert json.loads(out)["quadrangle_condition"] is False


def test_flags_reach_the_fit(files, capsys):
    out, _ = run(
        capsys,
        *(
            "fit",
            files[0],
            "--classes",
            "10",
            "--header",
            "8",
            "--align",
            "8",
            "--force",
            "24,1KiB",
        ),
        *(
            "--request-align",
            "16",
            "--prefix",
            "2",
            "--page-cap",
            "inf",
            "--page",
            "8KiB",
            "--method",
            "quadratic",
        ),
        *("--tail-rule", "gperftools", "--json"),
    )
    constraints = json.loads(out)["constraints"]
    assert constraints["tail_rule"]["move_bytes"] == 65536
    del constraints["tail_rule"], constraints["largest_bytes"]
    assert constraints == {
        "classes": 10,
        "bits": None,
        "header_bytes": 8,
        "request_align_bytes": 16,
        "align_bytes": 8,
        "forced": [16, 24, 1024],
        "prefix": 2,
        "page_bytes": 8192,
        "page_cap": None,
        "grid": None,
        "lsb_span": None,
    }


@pytest.mark.parametrize("weights", ["bytes", "count", "equal"])
def test_several_programs(files, capsys, weights):
    out, _ = run(capsys, "fit", *files, "--weights", weights, "--classes", 4, "--json")
    both = [px.load_profile(path) for path in files]
    assert json.loads(out)["classes"] == px.fit(both, 4, weights=weights).classes.tolist()
    out, _ = run(capsys, "fit", *files, "--classes", 4)
    assert "fitted to: one, two\n  each with the same bytes: " in out
    assert "note: not tested on programs that were left out" in out


def test_cross_validation(files, capsys):
    out, err = run(capsys, "fit", *files, "--classes", 4, "--cross-validate")
    assert err == ""
    assert "4 size classes, 2 programs" in out
    assert "held out" in out
    assert "note:" not in out
    out, _ = run(capsys, "fit", *files, "--classes", 4, "--cross-validate", "--json")
    result = json.loads(out)
    assert result["held_out"] is True
    assert [row["program"] for row in result["cross_validation"]["programs"]] == ["one", "two"]
    assert result["cross_validation"]["low_percent"] is None


def test_runs_of_one_program(files, capsys):
    out, _ = run(
        capsys,
        *("fit", *files, files[0], "--classes", 4, "--cross-validate", "--groups", "a,b,a"),
        "--json",
    )
    rows = json.loads(out)["cross_validation"]["programs"]
    assert [row["group"] for row in rows] == ["a", "b", "a"]
    both = [px.load_profile(path) for path in files]
    table = px.fit(both[1], 4, largest_bytes=70000)
    assert rows[0]["held_out_percent"] == pytest.approx(table.evaluate(both[0]).percent)


def test_cross_validation_names_a_program_that_no_class_holds(files, tmp_path, capsys):
    path = tmp_path / "huge.txt"
    path.write_text("100000 3\n")
    argv = ("fit", files[0], path, "--classes", 4, "--largest", "4096", "--cross-validate")
    out, err = run(capsys, *argv, code=1)
    assert "classes (4)" in out
    assert "--cross-validate: huge asks for nothing that the largest class holds (4096" in err


def test_traces_and_weights(capsys):
    out, _ = run(capsys, "fit", "shipped:sqlite3", "--weight", "peak", "--classes", 8, "--json")
    profile = px.load_shipped("sqlite3").profile("peak")
    assert json.loads(out)["classes"] == px.fit(profile, 8).classes.tolist()
    out, _ = run(capsys, "waste", "shipped:sqlite3", "shipped:python3", "--preset", "go")
    assert "sqlite3         python3" in out


def test_a_format_is_insisted_on(tmp_path, capsys):
    chunks, tabs = tmp_path / "glibc.xml", tmp_path / "heap.txt"
    chunks.write_text(
        '<malloc version="1">\n<heap nr="0">\n<sizes>\n'
        '<size from="33" to="33" total="99" count="3"/>\n</sizes>\n</heap>\n</malloc>\n'
    )
    tabs.write_text("8\t5\n24\t100\n")
    for verb in ("fit", "waste", "info"):
        _, err = run(capsys, verb, chunks, code=1)
        assert err.endswith("not what was asked for; --format glibc-free reads those\n")
        out, _ = run(capsys, verb, chunks, "--format", "glibc-free", "--json")
        assert json.loads(out)
        out, _ = run(capsys, verb, tabs, "--format", "heaptrack", "--json")
        assert json.loads(out)
        _, err = run(capsys, verb, tabs, "--format", "jemalloc", code=1)
        assert f"{tabs}: " in err
        _, err = run(capsys, verb, tabs, "--format", "xml", code=2)
        assert "invalid choice" in err
    out, _ = run(capsys, "info", tabs, "--format", "heaptrack", "--json")
    assert json.loads(out)["metadata"]["format"] == "heaptrack"
    _, err = run(capsys, "info", "--format", "text", code=2)
    assert "--format text: what is shipped are traces" in err
    _, err = run(capsys, "info", tabs, "--format", "text", "--on-error", "skip", code=2)
    assert "read strictly" in err


def test_equal_names_are_told_apart(files, capsys):
    out, _ = run(capsys, "waste", files[0], files[0], "--json", "--preset", "go")
    programs = json.loads(out)["programs"]
    assert len(set(programs)) == 2


@pytest.mark.parametrize("format", FORMATS)
def test_an_export_is_alone_on_standard_output(format, files, tmp_path, capsys):
    header = []
    out, err = run(capsys, "fit", *files, "--export", format, *header)
    assert "classes (" in err
    assert "classes (" not in out
    target = tmp_path / "out"
    name = [] if format == "memcached" else ["--name", "mine"]
    told, err = run(capsys, "fit", *files, "--export", format, *header, *name, "-o", target)
    assert f"export ({format}): {target}" in told
    assert err == ""
    written = target.read_text()
    assert written.replace("mine", "").lower() != ""
    if format == "json":
        assert px.SizeMap.load(target).name == "mine"
    out, _ = run(capsys, "fit", *files, "--export", format, *header, *name, "--json")
    assert json.loads(out)["export"] == {"format": format, "text": written}


def test_an_export_sets_the_grid_of_its_target(files, capsys):
    for target, grid in (
        ("tcmalloc", [[1024, 8], [None, 128]]),
        ("go", [[32, 8], [1024, 16], [None, 128]]),
    ):
        out, _ = run(capsys, "fit", *files, "--export", target, "--json")
        assert json.loads(out)["constraints"]["grid"] == grid
    out, _ = run(capsys, "fit", *files, "--export", "go", "--align", "16", "--json")
    assert json.loads(out)["constraints"]["grid"] == [[32, 16], [1024, 16], [None, 128]]
    out, _ = run(capsys, "fit", *files, "--grid", "1KiB:16,64")
    assert "grid 16 up to 1024 then 64" in " ".join(out.split())
    flags = ("--export", "scudo", "--compressed-lsb", "--bits", "5")
    out, err = run(capsys, "fit", files[0], *flags, "--json")
    assert err == ""
    result = json.loads(out)
    assert result["constraints"]["lsb_span"] == 3
    assert "least set bits fit in two bits" in result["export"]["text"]
    out, _ = run(capsys, "fit", files[0], "--lsb-span", 1, "--json")
    assert json.loads(out)["constraints"]["lsb_span"] == 1


def test_an_export_that_is_not_possible_is_told_beside_the_table(files, capsys):
    out, err = run(
        capsys,
        *("fit", files[0], "--export", "scudo", "--bits", "6", "--prefix", "0", "--classes", "3"),
        code=1,
    )
    assert "classes (3)" in out
    assert "pyallocx: error: --export: scudo: V2: " in err
    assert "; --header 16 --bits 6 --prefix table makes such" in err
    out, err = run(
        capsys, "fit", files[0], "--export", "memcached", "--header", "0", "--json", code=1
    )
    assert json.loads(out)["export"]["text"] is None
    assert "the smallest chunk is 48" in err
    assert "--header 48 adds it where" in err


@pytest.mark.parametrize("format", FORMATS)
def test_an_export_needs_no_other_flag(format, shared_data, capsys):
    for path in sorted((shared_data / "sizeclass" / "profiles").iterdir()):
        out, err = run(capsys, "fit", path, "--export", format)
        assert out
        assert "error" not in err
    out, _ = run(capsys, "fit", "shipped:sqlite3", "--export", format)
    assert out


def test_sizes_of_items_have_their_header(files, tmp_path, capsys):
    path = tmp_path / "items.txt"
    path.write_bytes(b"STAT 96 5\r\nSTAT 160 3\r\nSTAT 1024 2\r\nEND\r\n")
    out, err = run(capsys, "fit", path, "--export", "memcached")
    assert out == "-o slab_sizes=96-160-1024\n"
    out, _ = run(capsys, "fit", path, "--export", "memcached", "--header", "48")
    assert out == "-o slab_sizes=144-208-1072\n"
    _, err = run(capsys, "fit", path, files[0], "--export", "memcached", code=2)
    assert "items.txt" not in err
    assert "--export memcached: items has the sizes of items" in err
    assert "give --header" in err


def test_the_header_of_scudo_moves_its_largest_class(files, capsys):
    out, _ = run(capsys, "fit", files[0], "--export", "scudo", "--header", "32", "--json")
    assert json.loads(out)["classes"][-1] == 65536 + 32


def test_curve_and_plot(files, tmp_path, capsys):
    pytest.importorskip("matplotlib")
    curve, picture = tmp_path / "curve.csv", tmp_path / "fit.png"
    out, _ = run(capsys, "fit", files[0], "--classes", 3, "--curve", curve, "--plot", picture)
    assert f"curve: {curve}\npicture: {picture}\n" in out
    rows = list(csv.DictReader(curve.open()))
    best = px.fit(px.load_profile(files[0]), 3)
    assert [row["classes"] for row in rows] == ["1", "2", "3", "4", "5", "6", "7"]
    assert int(rows[2]["wastage_bytes"]) == best.wastage_bytes
    assert picture.stat().st_size > 10000


def test_waste(files, tmp_path, capsys):
    pytest.importorskip("matplotlib")
    table = tmp_path / "ours.json"
    px.fit(px.load_profile(files[0]), 6).to_map(name="").save(table)
    target, picture = tmp_path / "w.csv", tmp_path / "w.png"
    out, err = run(
        capsys,
        *("waste", *files, "--preset", "jemalloc,linux-kmalloc,jemalloc", "--classes", table),
        *("--csv", target, "--plot", picture),
    )
    assert err == ""
    lines = out.splitlines()
    assert [line.split()[0] for line in lines[4:7]] == ["ours", "jemalloc", "linux-kmalloc"] or [
        line.split()[0] for line in lines[4:7]
    ] == ["jemalloc", "ours", "linux-kmalloc"]
    assert "+" in lines[6]
    assert "*" in out
    assert len(target.read_text().splitlines()) == 4
    assert picture.exists()
    out, _ = run(capsys, "waste", files[0], "--json")
    result = json.loads(out)
    assert {row["name"] for row in result["rows"]} == set(px.preset_names())
    assert result["above_limit"]["one"]["requests"] == 1
    assert result["above_limit"]["one"]["requested_bytes"] == 70000
    out, _ = run(capsys, "waste", files[0], "--preset", "linux-kmalloc")
    *_, above, without, _, sources = out.splitlines()
    assert sources == "  sources: one: text profile"
    assert above.startswith("above 64 KiB, in no figure: one, 1 request (0.259%) of 68.4 KiB (")
    assert without == "up to 64 KiB, without a class in linux-kmalloc: one, 2 requests"
    out, _ = run(capsys, "waste", files[0], "--preset", "go", "--limit", "1KiB", "--json")
    assert json.loads(out)["limit_bytes"] == 1024
    assert json.loads(out)["page_cap"] is None
    flags = ("waste", files[0], "--preset", "scudo-android64-19", "--page-cap", "0.5")
    out, _ = run(capsys, *flags, "--json")
    (row,) = json.loads(out)["rows"]
    capped = px.league(px.load_profile(files[0]), ["scudo-android64-19"], page_cap=0.5).rows[0]
    assert row["mean_percent"] == capped.mean_percent
    out, _ = run(capsys, *flags)
    assert "a request wastes at most 0.5 pages of 4 KiB" in out


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        (["fit"], "required"),
        (["fit", "ONE", "--classes", "0"], "--classes must be between 1"),
        (["fit", "ONE", "--classes", "many"], "--classes: 'many' is not a number"),
        (["fit", "ONE", "--classes", "inf"], "--classes: 'inf' is not a finite number"),
        (["fit", "ONE", "--prefix", "table"], "--prefix is 'table', which needs --bits"),
        (["fit", "ONE", "--classes", "2", "--force", "16,32"], "3 must be there"),
        (["fit", "ONE", "--force", "16,,32"], "--force"),
        (["fit", "ONE", "--largest", "8"], "--largest is 8"),
        (["fit", "ONE", "--largest", "96", "--bits", "1"], "above --header (0); --bits allows 1"),
        (["fit", "ONE", "--header", "8", "--bits", "1"], "--bits=1 leaves no class"),
        (["fit", "ONE", "--bits", "65"], "--bits must be"),
        (["fit", "ONE", "--align", "3"], "--align is 3"),
        (["fit", "ONE", "--header", "1MiB", "--largest", "64KiB"], "--header"),
        (["fit", "ONE", "--page-cap", "two"], "--page-cap: 'two' is not a number of pages"),
        (["fit", "ONE", "--page-cap", "nan"], "--page-cap must be"),
        (["fit", "ONE", "--cross-validate"], "at least two"),
        (["fit", "ONE", "--grid", "1024,128"], "--grid: '1024' is no END:STEP"),
        (["fit", "ONE", "--grid", "1024:16,24"], "powers of two that do not fall"),
        (["fit", "ONE", "--compressed-lsb"], "it is a rule of --export scudo"),
        (["fit", "ONE", "--lsb-span", "0", "--force", "16,32"], "--lsb-span"),
        (["fit", "ONE", "--groups", "a"], "nothing is left out without --cross-validate"),
        (["fit", "ONE", "ONE", "--cross-validate", "--groups", "a"], "1 labels for 2 programs"),
        (["fit", "ONE", "ONE", "--cross-validate", "--groups", "a,a"], "one group"),
        (["fit", "ONE", "-o", "x"], "nothing to write without --export"),
        (["fit", "ONE", "--name", "x"], "nothing to name without --export"),
        (["fit", "ONE", "--export", "rust"], "invalid choice"),
        (["fit", "ONE", "--bits", "3", "--bits", "4"], "given twice"),
        (["fit", "ONE", "--export", "flat", "-o", "ONE"], "is the profile itself"),
        (["fit", "ONE", "--export", "flat", "-o", "-"], "- is no file"),
        (["fit", "ONE", "--curve", "ONE"], "is the profile itself"),
        (["fit", "ONE", "--curve", "c.csv", "--plot", "c.csv"], "one file"),
        (["fit", "ONE", "--curve", "nowhere/c.csv"], "no such directory"),
        (["fit", "ONE", "--plot", "x.docx"], "no picture format"),
        (["fit", "no such file"], "No such file"),
        (["fit", "shipped:nobody"], "no shipped trace"),
        (["waste"], "required"),
        (["waste", "ONE", "--preset", "jemaloc"], "no preset 'jemaloc'"),
        (["waste", "ONE", "--preset", ""], "no preset ''"),
        (["waste", "ONE", "--classes", "ONE"], "--classes: "),
        (["waste", "ONE", "--page-cap", "x"], "--page-cap: 'x' is not a number of pages"),
        (["waste", "ONE", "--limit", "1"], "requests no bytes"),
        (["waste", "ONE", "--csv", "ONE"], "is the profile itself"),
    ],
)
def test_wrong_use(argv, message, files, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    before = (tmp_path / "one.txt").read_bytes()
    out, err = run(capsys, *(files[0] if word == "ONE" else word for word in argv), code=2)
    assert out == ""
    assert message in err
    assert (tmp_path / "one.txt").read_bytes() == before
    assert not (tmp_path / "c.csv").exists()


@pytest.mark.parametrize("content", ["", "16 0\n", "16 1\nx\n", "16 nan\n", "16 -3\n"])
@pytest.mark.parametrize("verb", ["fit", "waste"])
def test_profiles_that_are_none(content, verb, tmp_path, capsys):
    path = tmp_path / "bad.txt"
    path.write_text(content)
    out, err = run(capsys, verb, path, code=1)
    assert out == ""
    assert err.startswith(f"pyallocx: error: {path}: ")
    assert err.count("\n") == 1


def test_a_weight_that_a_trace_has_not(tmp_path, capsys):
    path = tmp_path / "t.npz"
    px.Trace(op=[0, 1], object=[0, 0], size_bytes=[16, 0]).save(path)
    out, err = run(capsys, "fit", path, "--weight", "end", code=1)
    assert out == ""
    assert str(path) in err


def test_a_full_disk_does_not_lose_the_answer(files, capsys):
    out, err = run(
        capsys, "fit", files[0], "--classes", 3, "--export", "flat", "-o", "/dev/full", code=1
    )
    assert "classes (3)" in out
    assert "-o: /dev/full: No space left" in err


def test_a_program_that_a_cross_validation_cannot_do_without(tmp_path, capsys):
    names = []
    for name, size in (("one", 16), ("big", 100000), ("two", 32)):
        names.append(tmp_path / name)
        names[-1].write_text(f"{size} 3\n")
    out, err = run(capsys, "fit", *names, "--largest", "1KiB", "--cross-validate", code=1)
    assert "classes (2): 32 1024" in out or "classes (3)" in out
    assert "note:" not in out
    assert err.count("\n") == 1
    assert err.startswith("pyallocx: error: --cross-validate: ")
    assert "big" in err
    out, _ = run(capsys, "fit", *names, "--largest", "1KiB", "--cross-validate", "--json", code=1)
    assert json.loads(out)["held_out"] is False


def test_the_report_says_what_a_file_is_taken_for(tmp_path, capsys):
    trace = px.Trace(op=[0, 1], object=[0, 0], size_bytes=[16, 0])
    trace.save(tmp_path / "t.npz")
    (tmp_path / "m").write_bytes(b"= Start\n@ ./t:[0x11a0] + 0x56317a78e2a0 0xa\n")
    px.load(tmp_path / "m").profile().save(tmp_path / "saved")
    (tmp_path / "p").write_text("16 3\n")
    paths = [tmp_path / name for name in ("t.npz", "m", "saved", "p")]
    for verb in ("fit", "waste"):
        out, _ = run(capsys, verb, *paths)
        words = " ".join(out.split("sources: ")[1].split()[:12])
        kinds = [word.split(": ")[1] for word in words.split(", ")[:3]]
        assert kinds == ["trace", "mtrace trace", "mtrace trace"]
        assert "p: text profile" in words
    out, _ = run(capsys, "fit", "shipped:python3")
    assert "sources" not in out
    out, _ = run(capsys, "fit", paths[1], "--json")
    assert [(p["format"], p["reader"]) for p in json.loads(out)["profiles"]] == [
        ("trace", "mtrace")
    ]


def test_fit_of_a_real_program_can_be_compiled_from_the_shell(shared_data):
    path = shared_data / "sizeclass" / "profiles" / "sqlite3-cum.xml"
    command = [sys.executable, "-m", "pyallocx", "fit", path, "--bits", "5", "--export", "scudo"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stdout.startswith("//")
    assert done.stdout.endswith("};\n")
    assert "0x00020" in done.stdout
