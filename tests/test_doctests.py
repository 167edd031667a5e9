"""The examples in the docstrings of every module of the package that is installed."""

import doctest
import importlib
import pkgutil

import pytest

import pyallocx

MODULES = sorted(
    ["pyallocx"]
    + [
        module.name
        for module in pkgutil.walk_packages(pyallocx.__path__, "pyallocx.")
        # The recorder has the name of an extension, but is none.
        if not module.name.endswith((".__main__", ".preload.record"))
    ]
)


@pytest.mark.parametrize("name", MODULES)
def test_examples(name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)  # an example may write a file
    module = importlib.import_module(name)
    runner = doctest.DocTestRunner(optionflags=doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE)
    report = []
    for example in doctest.DocTestFinder(exclude_empty=True).find(module):
        runner.run(example, out=report.append)
    assert runner.summarize(verbose=False).failed == 0, "".join(report)
