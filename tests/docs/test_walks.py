"""The walks through the code, in the guide for contributors, are ways that the code itself goes."""

from __future__ import annotations

import ast
import re
from functools import cache
from itertools import permutations
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
_WALK = re.compile(r"^### (From .+)\n((?:(?!^##).*\n)*)", re.MULTILINE)
_STOP = re.compile(r"^\d+\. `([^`]+)`: ", re.MULTILINE)
_MAX_FILES = {
    "From the job file to the machine's end": 16,
    "From a rank's exit code to the printed verdict": 10,
    "From a file of data to the optimiser's step": 11,
    "From `batch submit` to the first rented machine": 6,
}
"""Number of files that a reader may have to open for each story."""


def walks() -> dict[str, list[str]]:
    """Return the files of each walk, in the order read."""
    page = (ROOT / "docs" / "contributing.md").read_text(encoding="utf-8")
    return {title: _STOP.findall(body) for title, body in _WALK.findall(page)}


def module_of(path: str) -> str:
    name = path.removesuffix(".py").removesuffix("/__init__").replace("/", ".")
    return name if name.startswith("vastrun.") else f"vastrun.{name}"


@cache
def imports(path: str) -> set[tuple[str, str]]:
    """Return what a file imports by name: from where, and what."""
    tree = ast.parse((ROOT / path).read_text(encoding="utf-8"))
    froms = (node for node in ast.walk(tree) if isinstance(node, ast.ImportFrom) and node.module)
    return {(str(node.module), name.name) for node in froms for name in node.names}


@cache
def definitions(path: str) -> set[str]:
    """Return the classes and functions of a file."""
    body = ast.parse((ROOT / path).read_text(encoding="utf-8")).body
    return {node.name for node in body if isinstance(node, ast.ClassDef | ast.FunctionDef)}


def uses(path: str, other: str) -> bool:
    """Tell whether a file imports something that the other one defines, also where its folder hands it on."""
    defined = definitions(other)
    module = module_of(other)
    folder = module.rpartition(".")[0]
    return any(where == module or (where == folder and name in defined) for where, name in imports(path))


def test_every_walk_is_there_and_names_a_file_once() -> None:
    assert walks().keys() == _MAX_FILES.keys()
    assert all(len(files) == len(set(files)) > 5 for files in walks().values())


@pytest.mark.parametrize(("title", "most"), _MAX_FILES.items())
def test_a_story_is_told_in_few_files(title: str, most: int) -> None:
    assert len(walks()[title]) <= most


@pytest.mark.parametrize("title", walks())
def test_each_file_of_a_walk_imports_another_one_of_it_or_is_imported_by_one(title: str) -> None:
    python = [path for path in walks()[title] if path.endswith(".py")]
    met = {path for path, other in permutations(python, 2) if uses(path, other) or uses(other, path)}
    assert [path for path in python if path not in met] == []
