"""The developer commands: the list, the mutation tester and the checks that read files."""

import importlib.util
import subprocess
import sys
import textwrap

import pytest

EXTENSION = """
    #include <Python.h>
    #include "../core/limit.h"
    static PyObject *limit(PyObject *self, PyObject *arg)
    {
        (void)self;
        return PyLong_FromLong(ax_limit(PyLong_AsLong(arg)));
    }
    static PyMethodDef methods[] = {{"limit", limit, METH_O, NULL}, {NULL, NULL, 0, NULL}};
    static struct PyModuleDef definition = {
        PyModuleDef_HEAD_INIT, .m_name = "pyallocx._core", .m_methods = methods};
    PyMODINIT_FUNC PyInit__core(void)
    {
        return PyModule_Create(&definition);
    }
"""
LIMIT = """
    #include "limit.h"
    long ax_limit(long value)
    {
        return value > AX_MOST ? AX_MOST : value;
    }
"""
TESTS = """
    import pyallocx

    def test_limit():
        assert [pyallocx.limit(value) for value in (7, 8, 9)] == [7, 8, 8]
"""
FILES = {
    "csrc/core/limit.h": "#define AX_MOST 8\nlong ax_limit(long value);\n",
    "csrc/core/limit.c": LIMIT,
    "csrc/python/module.c": EXTENSION,
    "pyallocx/__init__.py": "from pyallocx._core import limit\n",
    "tests/test_limit.py": TESTS,
}


@pytest.fixture(scope="module")
def dev(repository):
    spec = importlib.util.spec_from_file_location("dev", repository / "dev.py")
    module = importlib.util.module_from_spec(spec)
    sys.modules["dev"] = module  # its dataclasses look themselves up
    spec.loader.exec_module(module)
    yield module
    del sys.modules["dev"]


@pytest.fixture
def tree(tmp_path):
    """A very small library of the same shape."""
    root = tmp_path / "tree"
    for name, text in FILES.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(textwrap.dedent(text))
    return root


def mutant(dev, name, old, new, file="csrc/core/limit.c"):
    return dev.Mutant(name, file, old, new, "a test", ["tests/test_limit.py::test_limit"])


def test_help_lists_every_command_from_anywhere(dev, repository, tmp_path):
    result = subprocess.run(
        [sys.executable, repository / "dev.py", "help"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=True,
    )
    lines = [line.split(maxsplit=1) for line in result.stdout.splitlines()]
    assert [line[0] for line in lines] == list(dev.COMMANDS)
    assert all(len(line) == 2 for line in lines)


def test_unknown_command_is_a_usage_error(dev, capsys):
    assert dev.main(["mutant"]) == 2
    assert "no command 'mutant'" in capsys.readouterr().err


def test_verdicts(dev, tree, tmp_path):
    mutants = [
        mutant(dev, "off-by-one", "value > AX_MOST ?", "value > AX_MOST + 1 ?"),
        mutant(dev, "header", "AX_MOST 8", "AX_MOST 7", "csrc/core/limit.h"),
        mutant(
            dev,
            "package",
            "limit\n",
            "limit as l\nlimit = lambda v: l(v) + 1\n",
            "pyallocx/__init__.py",
        ),
        mutant(dev, "crash", "return", "*(volatile int *)8 = 1; return"),
        mutant(dev, "equivalent", "value > AX_MOST ?", "value >= AX_MOST ?"),
        mutant(dev, "does-not-build", "return", "retrun"),
    ]
    outcomes = dev.run_mutants(tree, mutants, tmp_path / "work")
    assert {outcome.mutant.name: (outcome.caught, outcome.verdict) for outcome in outcomes} == {
        "off-by-one": (True, "caught"),
        "header": (True, "caught"),
        "package": (True, "caught"),
        "crash": (True, "caught, but by a crash: SIGSEGV"),
        "equivalent": (False, "survived"),
        "does-not-build": (False, "error: does not build"),
    }


def test_a_hang_is_ended(dev, tree, tmp_path, monkeypatch):
    monkeypatch.setattr(dev, "MUTANT_SECONDS", 3)
    hang = mutant(dev, "hang", "return", "for (volatile int i = 0;; i = 0) {} return")
    [outcome] = dev.run_mutants(tree, [hang], tmp_path / "work")
    assert outcome.caught
    assert outcome.verdict == "caught, but by a hang of 3 s"


def test_a_wrong_node_is_not_a_catch(dev, tree, tmp_path):
    (tree / "tests" / "test_other.py").write_text("def test_other(): pass\n")
    good = dev.Mutant("a", "csrc/core/limit.c", "return", "return 1 + ", "", ["tests/nothing.py"])
    with pytest.raises(dev.Failed, match="do not pass without a mutant"):
        dev.run_mutants(tree, [good], tmp_path / "work")


@pytest.mark.parametrize(("old", "count"), [("value > AX_LEAST", 0), ("AX_MOST", 2)])
def test_a_mutant_that_does_not_apply_is_an_error(dev, tree, tmp_path, old, count):
    with pytest.raises(dev.Failed, match=f"is {count} times in csrc/core/limit.c, not once"):
        dev.run_mutants(tree, [mutant(dev, "stale", old, "0")], tmp_path / "work")


def test_the_table_of_mutants_applies(dev, repository):
    mutants = dev.load_mutants(repository / "tests" / "mutants" / "mutants.toml")
    assert mutants
    for each in mutants:
        each.mutated(repository)
        assert all((repository / node.partition("::")[0]).is_file() for node in each.tests)


@pytest.mark.parametrize(
    ("text", "named"),
    [
        (b"see /" + b"root/x", True),
        (b"'/" + b"work/shared'", True),
        (b"https://py" + b"pi.org/simple", True),
        (b"pip install --index" + b"-url x", True),
        (b"csrc/work/x, tree/root/y", False),
        (b"https://www.example.org/pypi", False),
    ],
)
def test_machine_names_are_found(dev, text, named):
    assert bool(dev.MACHINE.search(text)) is named


def test_core_rules_are_checked(dev, tree, tmp_path):
    bad = """
        #include <stdio.h>
        #if 0
        #include "Python.h"
        #endif
        int calls;
        void ax_bad(void);
        void ax_bad(void)
        {
            printf("%d", calls++);
        }
    """
    dev.check_core(tree, tmp_path / "objects")
    (tree / "csrc" / "core" / "bad.c").write_text(textwrap.dedent(bad))
    with pytest.raises(dev.Failed) as failure:
        dev.check_core(tree, tmp_path / "objects")
    for finding in ("bad.c includes Python.h", "'calls' is a mutable global", "calls 'printf'"):
        assert finding in str(failure.value)
