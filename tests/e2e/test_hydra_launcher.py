"""The Hydra launcher of `examples/hydra`: a multirun with the real Hydra becomes a batch of this computer."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.waiting import LONGEST_S

EXAMPLE = Path(__file__).parents[2] / "examples" / "hydra"
pytestmark = [pytest.mark.slow, pytest.mark.needs("hydra")]


def environment(folder: Path) -> dict[str, str]:
    """That of a user with the package installed, and a ledger of their own."""
    state = {f"XDG_{name}_HOME": str(folder / name.lower()) for name in ("STATE", "CACHE", "CONFIG")}
    paths = [str(EXAMPLE / "src"), *os.environ.get("PYTHONPATH", "").split(os.pathsep)]
    return {**os.environ, **state, "PYTHONPATH": os.pathsep.join(filter(None, paths))}


def multirun(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    program = folder / "program"
    if not program.exists():
        shutil.copytree(EXAMPLE / "example", program)
    command = [sys.executable, "train.py", "--multirun", "hydra/launcher=vastrun", *arguments]
    return subprocess.run(
        command,
        cwd=program,
        env=environment(folder),
        capture_output=True,
        text=True,
        timeout=LONGEST_S,
        check=False,
    )


def test_a_multirun_is_a_batch_whose_runs_get_their_overrides(tmp_path: Path) -> None:
    ended = multirun(tmp_path, "lr=0.1,0.01", "optim.momentum=0.5", "hydra.launcher.batch=rates")
    said = ended.stdout + ended.stderr
    assert ended.returncode == 0, said
    assert "batch rates: 2 jobs on local" in said
    assert "#0 : lr=0.1 optim.momentum=0.5 : SUCCEEDED, loss" in said
    assert "#1 : lr=0.01 optim.momentum=0.5 : SUCCEEDED, loss" in said
    configs = sorted((tmp_path / "program" / "batches" / "rates").rglob("hydra/.hydra/overrides.yaml"))
    assert sorted(config.read_text() for config in configs) == [
        "- lr=0.01\n- optim.momentum=0.5\n",
        "- lr=0.1\n- optim.momentum=0.5\n",
    ]


def test_a_job_that_fails_fails_the_multirun_with_the_command_that_says_why(tmp_path: Path) -> None:
    ended = multirun(tmp_path, "lr=0.1,oops")
    assert ended.returncode != 0
    assert "vastrun why " in ended.stdout + ended.stderr
