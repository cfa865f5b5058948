"""What the onstart steps read of job.json, as the shell reads it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest


def said(box: Path, job: dict[str, Any]) -> list[str]:
    (box / "job.json").write_text(json.dumps(job))
    done = subprocess.run(
        [sys.executable, "-m", "vastrun.trainer.boot.jobfile"],
        env={**os.environ, "VASTRUN_BOX": str(box)},
        capture_output=True,
        check=True,
        text=True,
    )
    return done.stdout.split("\0")[:-1]


def test_values_of_any_kind_arrive_whole(tmp_path: Path) -> None:
    env = {"LINES": "a\nb", "QUOTES": 'it\'s "quoted" $HOME', "EMPTY": "", "EQUALS": "a=b"}
    variables = said(tmp_path, {"ranks": 1, "gpus": 0, "env": env})
    assert variables[:4] == [f"{name}={value}" for name, value in env.items()]


@pytest.mark.parametrize(
    ("job", "kind"),
    [
        ({"train": {}}, "train"),
        ({"train": None, "command": ["x"]}, "command"),
        ({"train": None, "command": None, "hold": {"slots": 2}}, "hold"),
        ({"train": {}, "hold": None}, "train"),
    ],
)
def test_the_steps_learn_what_they_decide_by(tmp_path: Path, job: dict[str, Any], kind: str) -> None:
    job |= {
        "ranks": 3,
        "gpus": 2,
        "setup": ["a", "b"],
        "pushed": ["s3://a", "s3://b"],
        "start_from": "s3://c",
        "data": [{}],
    }
    variables = said(tmp_path, job)
    expected = {
        "VASTRUN_RANKS=3",
        "VASTRUN_GPUS=2",
        "VASTRUN_SETUP=2",
        "VASTRUN_FETCH=3",
        "VASTRUN_DOWNLOADS=1",
    }
    assert set(variables) == {*expected, f"VASTRUN_KIND={kind}"}
