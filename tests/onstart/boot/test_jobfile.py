"""What the onstart steps read of job.json, as the shell reads it."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.programs import command, training


def said(box: Path, job: dict[str, Any]) -> list[str]:
    (box / "job.json").write_text(json.dumps(job))
    done = subprocess.run(
        [sys.executable, "-m", "vastrun.onstart.boot.jobfile"],
        env={**os.environ, "VASTRUN_BOX": str(box)},
        capture_output=True,
        check=True,
        text=True,
    )
    return done.stdout.split("\0")[:-1]


def test_values_of_any_kind_arrive_whole(tmp_path: Path) -> None:
    env = {"LINES": "a\nb", "QUOTES": 'it\'s "quoted" $HOME', "EMPTY": "", "EQUALS": "a=b"}
    variables = said(tmp_path, {"ranks": 1, "gpus": 0, "env": env, "program": command("x")})
    assert variables[:4] == [f"{name}={value}" for name, value in env.items()]


@pytest.mark.parametrize(
    ("program", "expected"),
    [
        (training({}), {"KIND=train", "PREPARE=35-check-model 40-data 42-check-data", "PRELOAD=3"}),
        (command("x"), {"KIND=command", "PREPARE=", "PRELOAD=0"}),
    ],
)
def test_steps_learn_what_they_decide_by(tmp_path: Path, program: dict[str, Any], expected: set[str]) -> None:
    job = {
        "program": program,
        "ranks": 3,
        "gpus": 2,
        "setup": ["a", "b"],
        "pushed": ["s3://a", "s3://b"],
        "start_from": "s3://c",
        "data": [{}],
    }
    variables = said(tmp_path, job)
    of_any = {
        "VASTRUN_RANKS=3",
        "VASTRUN_GPUS=2",
        "VASTRUN_SETUP=2",
        "VASTRUN_FETCH=3",
        "VASTRUN_DOWNLOADS=1",
    }
    assert set(variables) == {*of_any, *(f"VASTRUN_{item}" for item in expected)}
