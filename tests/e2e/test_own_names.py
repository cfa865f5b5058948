"""What we ship does not stand in the way of what the user has: modules of the same name, on either side."""

from pathlib import Path

import pytest

from tests.e2e.terminal import STUB_TORCH, Terminal

JOB = f"""
name: own-names
resources: {{gpus: 0, disk_gb: 8}}
ranks: 1
code: {{path: code}}
setup: python -c "import trainer; trainer.MINE"
command: PROGRAM
env: {{PYTHONPATH: ".:{STUB_TORCH}"}}
success: {{steps: 3}}
"""
TRAINING = """
name: own-names
resources: {gpus: 0, disk_gb: 8}
ranks: 1
code: {path: code}
train: {steps: 5, batch: 4, data: {train: 8}, wandb: {mode: "off"}}
"""
PROGRAM = """
import os
import torch
import trainer
from trainer.heartbeat import MINE
from vastrun import beat

assert trainer.MINE and MINE
for step in range(1, 4):
    beat(step, loss=1 / step, rank=int(os.environ["RANK"]))
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    "program",
    ["train.py", "scripts/train.py"],
    ids=["its folder is looked in first", "its folder is on PYTHONPATH"],
)
def test_a_program_with_a_package_trainer_has_that_and_a_heartbeat(terminal: Terminal, program: str) -> None:
    _write(terminal.folder / "code/trainer/__init__.py", "MINE = True\n")
    _write(terminal.folder / "code/trainer/heartbeat.py", "MINE = True\n")
    _write(terminal.folder / "code" / program, PROGRAM)
    _write(terminal.folder / "job.yaml", JOB.replace("PROGRAM", f"python {program}"))
    done = terminal.type("launch", "job.yaml", "-y", "--out", "outputs")
    assert done.exit_code == 0, done.err
    (run,) = (path.parent for path in (terminal.folder / "outputs").rglob("report.html"))
    lines = (run / "metrics.jsonl").read_text().splitlines()
    assert lines[0] == '{"step": 1, "loss": 1.0, "rank": 0.0}'
    assert len(lines) == 3


@pytest.mark.slow
@pytest.mark.torch
def test_the_onboard_trainer_trains_beside_user_modules_named_as_ours(terminal: Terminal) -> None:
    for name in ("trainer/__init__.py", "trainer/heartbeat.py", "launcher.py", "contract.py"):
        _write(terminal.folder / "code" / name, "raise SystemExit('not ours')\n")
        _write(terminal.folder / name, "raise SystemExit('not ours')\n")
    _write(terminal.folder / "job.yaml", TRAINING)
    done = terminal.type("launch", "job.yaml", "-y", "--out", "outputs")
    assert done.exit_code == 0, done.err


def _write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
