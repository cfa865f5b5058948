"""Modules of the trainer, run in a folder of the user's."""

import json
import os
import subprocess
from pathlib import Path

import pytest

from tests.waiting import LONGEST_S
from vastrun.onstart.run_module import module_command

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("extra", [{}, {"PYTHONSAFEPATH": "1"}])
def test_a_file_in_the_working_folder_hides_no_module(tmp_path: Path, extra: dict[str, str]) -> None:
    for name in ("json", "trainer", "platform"):
        (tmp_path / f"{name}.py").write_text("raise SystemExit('not ours')")
    box = tmp_path / "box"
    box.mkdir()
    job = {"ranks": 1, "gpus": 0, "env": {"A": "make"}, "program": {"kind": "command"}}
    (box / "job.json").write_text(json.dumps(job))
    done = subprocess.run(
        module_command("vastrun.onstart.boot.jobfile"),
        env=os.environ | {"VASTRUN_BOX": str(box), "PYTHONPATH": str(ROOT)} | extra,
        cwd=tmp_path,
        capture_output=True,
        timeout=LONGEST_S,
    )
    assert (done.returncode, done.stdout.split(b"\0")[0], done.stderr) == (0, b"A=make", b"")
