"""A rehearsed program is killed with all that it started, and continues in an empty box from its snapshot."""

import json

import pytest

from tests.e2e.terminal import WITH_STUB_TORCH, Terminal
from tests.waiting import eventually

PROGRAM = """
import os, subprocess, time
from pathlib import Path

saves, step = Path("ckpt"), 0
saves.mkdir(exist_ok=True)
if (saves / "latest").exists():
    newest = saves / (saves / "latest").read_text()
    step = int((newest / "step.txt").read_text())
    is_there = Path("/proc", (newest / "helper.txt").read_text()).exists()
    print("continues after step", step, "and its helper", "lives" if is_there else "is gone", flush=True)
    (newest / "weights.bin").read_bytes()
helper = subprocess.Popen(["sleep", "600"], start_new_session=True)
while True:
    time.sleep(6)
    step += 1
    folder = saves / f"step{step}"
    folder.mkdir()
    (folder / "weights.bin").write_bytes(os.urandom(2_000_000))
    (folder / "step.txt").write_text(str(step))
    (folder / "helper.txt").write_text(str(helper.pid))
    (saves / "latest").write_text(folder.name)
"""
JOB = """\
name: loser
resources: {gpus: 0, disk_gb: 8}
ranks: 1
limits: {hours: 0.2}
code: {path: code}
command: python train.py
success: {exit_code: 0}
"""


@pytest.mark.slow
def test_a_rehearsal_kills_a_program_with_its_children_and_restores_its_files(terminal: Terminal) -> None:
    (terminal.folder / "code").mkdir()
    (terminal.folder / "code" / "train.py").write_text(PROGRAM)
    (terminal.folder / "job.yaml").write_text(JOB)
    box = terminal.state / "box"
    words = ("rehearse", "job.yaml", "resume", "--write", "--json", "--box", str(box), *WITH_STUB_TORCH)
    done = terminal.type(*words)
    assert done.exit_code == 0, done.err
    resume = done.json()["resume"]
    assert resume["answer"] == "read"
    assert "and its helper is gone" in done.err
    restored = json.loads((box / "resume" / "latest.json").read_text())["path"]
    assert f"snapshot {restored} is restored" in done.err
    eventually(lambda: not terminal.leftovers(), what="the end of all processes")
    assert (terminal.folder / "job.yaml").read_text() == f'{JOB}checkpoints: "ckpt/step*"\n'
    assert terminal.type("rehearse", "job.yaml", "config").exit_code == 0
