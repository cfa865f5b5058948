"""The notebook of examples/, executed as Jupyter does, with real runs on this computer."""

import os
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.terminal import Terminal
from tests.waiting import LONGEST_S

NOTEBOOK = Path(__file__).parents[2] / "examples" / "notebook" / "parabola.ipynb"


@pytest.mark.slow
@pytest.mark.needs("jupyter")
def test_the_notebook_of_the_examples_runs_and_shows_its_runs(
    terminal: Terminal, monkeypatch: pytest.MonkeyPatch
) -> None:
    import nbformat
    from nbclient import NotebookClient

    for name in [*os.environ]:
        if name not in terminal.variables:
            monkeypatch.delenv(name)
    for name, value in terminal.variables.items():
        monkeypatch.setenv(name, value)
    notebook = nbformat.read(NOTEBOOK, as_version=4)
    resources = {"metadata": {"path": str(terminal.folder)}}
    NotebookClient(notebook, timeout=LONGEST_S, kernel_name="python3", resources=resources).execute()

    shown = {cell.id: "".join(map(html, cell.outputs)) for cell in notebook.cells if cell.cell_type == "code"}
    assert "SUCCEEDED" in shown["launch"] and "100 of 100" in shown["launch"]
    assert "<polyline" in shown["card"]
    assert "dataframe" in shown["metrics"] and "dataframe" in shown["frame"]
    assert shown["sweep"].count("SUCCEEDED") >= 3
    assert terminal.leftovers() == []


def html(output: Any) -> str:
    """The form of one output that a notebook shows."""
    assert output.output_type != "error", output
    return str(output.get("data", {}).get("text/html", ""))
