"""The walks through the code, in the guide for contributors, are ways that a run really goes."""

import json
import os
import re
import shutil
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from tests.e2e.terminal import STUB_TORCH, Terminal

ROOT = Path(__file__).parents[2]
TRACED = Path(__file__).parent / "traced"
_WALK = re.compile(r"^### (From .+)\n((?:(?!^##).*\n)*)", re.MULTILINE)
_STOP = re.compile(r"^\d+\. `([^`]+)`: ", re.MULTILINE)

_BATCH = "From `batch submit` to the first rented machine"
_MAX_FILES = {
    "From the job file to the machine's end": 16,
    "From a rank's exit code to the printed verdict": 10,
    "From a file of data to the optimiser's step": 10,
    _BATCH: 6,
}
"""Number of files that a reader may have to open for each story."""

_HERE = {"name": "walk", "resources": {"gpus": 0, "disk_gb": 8}, "ranks": 1}
_DIVERGES = {
    "steps": 3,
    "batch": 8,
    "unroll": 1,
    "wandb": {"mode": "off"},
    "model": {"dim": 8, "depth": 1, "heads": 1},
    "optim": {"lr": 1e30, "clip": 1e30},
    "data": {"betas": [1.0], "train": 16, "test": 4, "points": 32, "frames": 4, "keep": "host"},
}
"""A training that ends with an error."""
_PRINTS = {"command": "echo {x}", "success": {"exit_code": 0}, "env": {"PYTHONPATH": str(STUB_TORCH)}}


def walks() -> dict[str, list[str]]:
    """Return the files of each walk, in the order read."""
    page = (ROOT / "docs" / "contributing.md").read_text(encoding="utf-8")
    return {title: _STOP.findall(body) for title, body in _WALK.findall(page)}


def not_met(files: Sequence[str], executed: Sequence[str]) -> list[str]:
    """Return the files of a walk from the first one on that executed nothing new after the one before it."""
    rest = iter(executed)
    return [file for file in files if file not in rest]


@pytest.fixture(scope="module")
def executed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, list[str]]]:
    """The files that a launch and a batch of one point execute on this computer, each in its order."""
    folder = tmp_path_factory.mktemp("walks")
    traces = {name: folder / f"{name}.trace" for name in ("job", "batch")}
    shell, bash = folder / "bash", shutil.which("bash")
    note = f'[[ $1 != *.sh ]] || echo "/vastrun/onstart/${{1##*/}}" >>{traces["job"]}'
    shell.write_text(f'#!{bash}\n{note}\nexec {bash} "$@"\n')
    shell.chmod(0o755)
    env = {"PYTHONPATH": str(TRACED), "WALK_TRACE": str(traces["job"])}
    job = {**_HERE, "env": env, "restarts": {}, "train": _DIVERGES}
    (folder / "job.yaml").write_text(json.dumps(job))
    (folder / "point.yaml").write_text(json.dumps({**_HERE, **_PRINTS}))
    (folder / "batch.yaml").write_text('{"name": "walk", "job": "point.yaml", "list": [{"x": 1}]}')
    terminal = Terminal(folder, PYTHONPATH=str(TRACED))
    with_shell = f"{folder}:{os.environ['PATH']}"
    launch = terminal.start("launch", "job.yaml", WALK_TRACE=str(traces["job"]), PATH=with_shell)
    submit = terminal.start("batch", "submit", "batch.yaml", WALK_TRACE=str(traces["batch"]))
    assert (launch.end().exit_code, submit.end().exit_code) == (5, 0), launch.err + submit.err
    yield {name: [_place(line) for line in trace.read_text().splitlines()] for name, trace in traces.items()}
    terminal.clean()


def _place(line: str) -> str:
    place = line.rpartition("/vastrun/")[2]
    return place if place.startswith(("launcher", "onstart", "trainer")) else f"vastrun/{place}"


def test_every_walk_is_there_and_names_a_file_once() -> None:
    assert walks().keys() == _MAX_FILES.keys()
    assert all(len(files) == len(set(files)) > 5 for files in walks().values())


@pytest.mark.parametrize(("title", "most"), _MAX_FILES.items())
def test_a_story_is_told_in_few_files(title: str, most: int) -> None:
    assert len(walks()[title]) <= most


@pytest.mark.slow
@pytest.mark.torch
def test_a_run_executes_the_files_of_each_walk_in_its_order(executed: dict[str, list[str]]) -> None:
    for title, files in walks().items():
        assert not_met(files, executed["batch" if title == _BATCH else "job"]) == [], title


def test_a_file_that_is_not_executed_after_the_one_before_is_found() -> None:
    assert not_met(["a.py", "b.py"], ["b.py", "a.py", "b.py"]) == []
    assert not_met(["a.py", "b.py"], ["b.py", "a.py"]) == ["b.py"]
