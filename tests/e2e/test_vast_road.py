"""The road to Vast and back, with the installed command, an emulated market and real ranks on real boxes."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from tests.e2e.terminal import JOBS, Terminal, eventually
from tests.emulators.vast import VastEmulator

pytestmark = pytest.mark.torch

ON_VAST = ("--provider", "vast", "--set", "limits.usd=1", "-y")
SCRIPT = ("launch", str(JOBS / "script.yaml"), *ON_VAST, "--set", "ranks=1", "--set", "resources.gpus=1")


def losses(outputs: Path) -> list[tuple[int, float]]:
    """Of the metrics that came home."""
    points = map(json.loads, (outputs / "metrics.jsonl").read_text().splitlines())
    return [(point["step"], point["loss"]) for point in points]


def told(outputs: Path) -> list[str]:
    """What the ranks said of their steps, without what depends on the hour and the load."""
    log = (outputs / "run.log").read_text()
    return re.findall(r"rank0 (step \d+/\d+  loss \S+|checkpoint \S+ saved|rollout nRMSE \S+)", log)


def names(outputs: Path) -> set[str]:
    """Of all files, without W&B's own folder, which is named after the hour."""
    paths = (str(path.relative_to(outputs)) for path in outputs.rglob("*") if path.is_file())
    return {path for path in paths if not path.startswith("wandb/")}


def test_a_training_on_vast_ends_as_it_does_on_this_computer(
    terminal: Terminal, rented: Terminal, vast: VastEmulator
) -> None:
    here = terminal.type("launch", str(JOBS / "learn.yaml"))
    there = rented.type("launch", str(JOBS / "learn.yaml"), *ON_VAST)

    assert there.exit_code == here.exit_code == 0, there.err
    assert terminal.status()["run"]["verdict"] == rented.status()["run"]["verdict"] == "SUCCEEDED"
    assert losses(rented.outputs()) == losses(terminal.outputs())
    assert told(rented.outputs()) == told(terminal.outputs())
    assert names(rented.outputs()) == names(terminal.outputs())
    assert len(vast.instances) == 0


def test_the_ledger_says_what_vast_bills(rented: Terminal, vast: VastEmulator) -> None:
    done = rented.type(*SCRIPT, "--set", "command=python script.py works_for_20_s")

    assert done.exit_code == 0, done.err
    assert rented.type("cost", "--json").json()["usd"] == pytest.approx(vast.billing.total_usd(), rel=0.01)


@pytest.mark.parametrize("behaviour", ["passes", "raises", "waits"])
def test_a_box_whose_launcher_is_gone_for_good_ends_by_itself(
    behaviour: str, rented: Terminal, vast: VastEmulator
) -> None:
    limits = ("--set", "limits.hours=0.006", "--set", "limits.collect_s=2")
    launch = rented.start(*SCRIPT, "--set", f"command=python script.py {behaviour}", *limits)
    launch.shows("supervisor starting")
    launch.kill()
    assert len(vast.instances) == 1

    eventually(lambda: len(vast.instances) == 0, what="the end of the box by its lease")
