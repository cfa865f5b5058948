"""What the onstart steps read of job.json, as the shell reads it."""

import json
from pathlib import Path
from typing import Any

import pytest

from tests.onstart.boxes import run_module
from tests.programs import command, training


def said(box: Path, job: dict[str, Any]) -> list[str]:
    (box / "job.json").write_text(json.dumps(job))
    return run_module(box, "boot.jobfile").stdout.split("\0")[:-1]


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
    counted = {"setup": ["a", "b"], "pushed": ["s3://a", "s3://b"], "start_from": "s3://c", "data": [{}]}
    variables = said(tmp_path, {"program": program, "ranks": 3, "gpus": 2, **counted})
    of_any = {"RANKS=3", "GPUS=2", "SETUP=2", "FETCH=3", "DOWNLOADS=1"}
    assert set(variables) == {f"VASTRUN_{item}" for item in of_any | expected}
