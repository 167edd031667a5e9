"""The notebooks: each is a py:percent source with a paired .ipynb that has its outputs and runs."""

import json
import sys
from pathlib import Path

import jupytext
import nbformat
import pytest
from nbclient import NotebookClient

NOTEBOOKS = Path(__file__).resolve().parent.parent / "notebooks"
SOURCES = sorted(NOTEBOOKS.glob("*.py"))

each_notebook = pytest.mark.parametrize("source", SOURCES, ids=lambda path: path.stem)


def paired(source):
    path = source.with_suffix(".ipynb")
    assert path.is_file(), f"{source.name} has no {path.name}: run jupytext --sync and execute it"
    return nbformat.read(path, as_version=4)


@pytest.fixture
def kernel(tmp_path, monkeypatch):
    """Name of a kernel that is this interpreter, whatever kernels and profiles the user has."""
    directory = tmp_path / "jupyter" / "kernels" / "this-interpreter"
    directory.mkdir(parents=True)
    (directory / "kernel.json").write_text(
        json.dumps(
            {
                "argv": [sys.executable, "-m", "ipykernel_launcher", "-f", "{connection_file}"],
                "display_name": "this interpreter",
                "language": "python",
            }
        )
    )
    monkeypatch.setenv("JUPYTER_PATH", str(tmp_path / "jupyter"))
    monkeypatch.setenv("JUPYTER_RUNTIME_DIR", str(tmp_path / "runtime"))
    monkeypatch.setenv("IPYTHONDIR", str(tmp_path / "ipython"))
    return directory.name


def test_sources_and_notebooks_are_pairs(repository):
    # Without this an empty directory would pass every other test here.
    assert SOURCES, f"no notebook in {NOTEBOOKS.name}/"
    assert {path.stem for path in NOTEBOOKS.glob("*.ipynb")} == {path.stem for path in SOURCES}


@each_notebook
def test_cells_are_those_of_the_source(source):
    wanted = [(cell.cell_type, cell.source) for cell in jupytext.read(source).cells]
    found = [(cell.cell_type, cell.source) for cell in paired(source).cells]
    assert found == wanted


@each_notebook
def test_outputs_are_there_and_whole(source):
    code = [cell for cell in paired(source).cells if cell.cell_type == "code" and cell.source]
    # Run from top to bottom, once, in a new kernel.
    assert [cell.execution_count for cell in code] == list(range(1, len(code) + 1))
    outputs = [output for cell in code for output in cell.outputs]
    assert any(output.output_type in ("display_data", "execute_result") for output in outputs)
    assert not [output for output in outputs if output.output_type == "error"]


@each_notebook
def test_runs(source, kernel, tmp_path):
    client = NotebookClient(
        paired(source),
        timeout=300,
        kernel_name=kernel,
        resources={"metadata": {"path": str(tmp_path)}},
    )
    client.execute()  # raises CellExecutionError, which shows the cell and the error
