"""What a step takes is asked of a Python that may have no torch, once, and never believed unread."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path

import pytest

from launcher.commands.foretelling import Foreteller, ForetellingError
from launcher.core.job import Resources
from tests.fakes import command_job, train_job, workloads

JOB = train_job(resources=Resources(gpus=1))


def foreteller(folder: Path, script: str) -> Foreteller:
    python = folder / "bin" / "python"
    python.parent.mkdir(exist_ok=True)
    python.write_text(f"#!/bin/sh\n{script}\n")
    python.chmod(0o700)
    return Foreteller(python=str(python), environment={"PATH": "/usr/bin:/bin"}, cache=folder / "cache")


def test_an_answer_is_kept_so_that_the_next_one_needs_no_process(tmp_path: Path) -> None:
    answer = json.dumps(asdict(workloads()))
    first = foreteller(tmp_path, f"cat >/dev/null; echo '{answer}'")
    assert first.known(JOB) is None
    assert first.workloads(JOB) == workloads()
    assert foreteller(tmp_path, "exit 1").workloads(JOB) == workloads()


def test_another_torch_is_asked_anew(tmp_path: Path) -> None:
    answer = json.dumps(asdict(workloads()))
    asked = foreteller(tmp_path, f"cat >/dev/null; echo '{answer}'")
    asked.workloads(JOB)
    (tmp_path / "lib/python3.12/site-packages/torch-2.14.0.dist-info").mkdir(parents=True)
    assert asked.known(JOB) is None


def test_without_torch_one_line_says_what_brings_it(tmp_path: Path) -> None:
    asked = foreteller(tmp_path, "cat >/dev/null; echo \"No module named 'torch'\" >&2; exit 1")
    with pytest.raises(ForetellingError, match=r"has no torch; .* -m pip install 'vastrun\[trainer\]'"):
        asked.workloads(JOB)


@pytest.mark.parametrize(
    "answer",
    ["", "{}", '{"workloads": []}', "x" * 70_000, json.dumps(asdict(workloads())).replace("48", "-1")],
)
def test_an_answer_that_is_none_is_refused_and_not_kept(tmp_path: Path, answer: str) -> None:
    asked = foreteller(tmp_path, f"cat >/dev/null; echo '{answer}'")
    with pytest.raises(ForetellingError, match="gave no answer"):
        asked.workloads(JOB)
    assert asked.known(JOB) is None


def test_a_program_of_the_users_own_is_not_asked_for(tmp_path: Path) -> None:
    assert foreteller(tmp_path, "exit 1").workloads(command_job()) is None
