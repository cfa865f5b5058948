"""Three stages in one rent: whatever is killed in any of them, the same weights, and a smaller bill."""

import json
import os
import signal
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.market import vanish
from tests.e2e.terminal import JOBS, Terminal
from tests.emulators.vast import VastEmulator
from tests.waiting import eventually
from vastrun.contract.checkpoint_folder import newest_first, verify

pytestmark = [pytest.mark.torch, pytest.mark.slow, pytest.mark.timeout(1800)]

JOB = str(JOBS / "stages.yaml")
STAGES = ("operator", "refine", "distill")
ON_VAST = ("--provider", "vast", "-y", "--set", "limits.usd=1", "--set", "retry={lost: 4}")
ALONE = {
    "operator": ("train.stages=[]", "train.stage_options={}"),
    "refine": ("train.stages=[]", "train.stage_options={}", "train.stage=refine", "train.optim.lr=0.001"),
    "distill": ("train.stages=[]", "train.stage_options={}", "train.stage=distill"),
}
"""What makes of the job one that trains a single stage of it."""


@pytest.fixture
def go(tmp_path: Path) -> Path:
    folder = tmp_path / "go"
    folder.mkdir()
    return folder


def let_pass(go: Path, stages: Sequence[str] = STAGES) -> None:
    for stage in stages:
        (go / stage).touch()


def job(go: Path) -> tuple[str, ...]:
    return (JOB, "--set", f"env.GO={go}")


def final_weights(run: Path) -> list[Any]:
    """Checksums of the tensors of the newest checkpoint."""
    newest = newest_first(run / "checkpoints")[0]
    return [file.sha256 for file in verify(newest).files if file.path.endswith(".distcp")]


def alone(settings: Sequence[str]) -> list[str]:
    return [word for setting in settings for word in ("--set", setting)]


def test_three_stages_end_with_the_weights_of_three_rents_for_less(
    rented: Terminal, vast: VastEmulator, go: Path
) -> None:
    let_pass(go)
    done = rented.type("launch", *job(go), *ON_VAST, "--json")
    assert done.exit_code == 0, done.err
    ending, together, bill_usd = done.json(), rented.outputs(), vast.billing.total_usd()

    origin: tuple[str, ...] = ()
    for stage in STAGES:
        single = rented.type("launch", *job(go), *ON_VAST, *alone(ALONE[stage]), *origin)
        assert single.exit_code == 0, single.err
        origin = ("--from", "last")

    assert final_weights(rented.outputs()) == final_weights(together)
    assert bill_usd < vast.billing.total_usd() - bill_usd
    assert [(stage["name"], stage["steps_done"], stage["missed"]) for stage in ending["stages"]] == [
        (stage, 10, None) for stage in STAGES
    ]
    assert 0 < sum(stage["usd"] for stage in ending["stages"]) <= ending["run"]["usd"]
    assert {path.name for path in newest_first(together / "checkpoints")} >= {"step-000010", "step-000020"}
    assert {path.name for path in (together / "report").iterdir()} >= {"report.md", "operator", "refine"}


def test_launcher_rank_and_machine_are_killed_in_each_stage_and_the_weights_are_the_same(
    rented: Terminal, vast: VastEmulator, go: Path, tmp_path: Path
) -> None:
    launch = rented.start("launch", *job(go), *ON_VAST)
    for number, stage in enumerate(STAGES):
        saved = f"step-{10 * number + 5:06d}"
        launch.shows(f"checkpoint {saved} downloaded")
        launch.kill()

        launch = rented.start("resume", "last")
        first = rented.status()["run"]
        assert first["stage"] == stage
        kill_rank_1(rented, first["id"])
        launch.shows(f"stage: {stage}, stage {number + 1} of 3")
        launch.shows(f"training resumes after step {10 * number + 5}")

        vanish(vast)
        eventually(lambda old=first["id"]: rented.status()["run"]["id"] != old, what="another machine")
        eventually(
            lambda want=10 * number + 8: rented.status()["run"]["step"] >= want, what="the step of the wait"
        )
        (go / stage).touch()
    done = launch.end()

    assert done.exit_code == 0, done.err
    runs = rented.type("status", "--json").json()["runs"]
    assert [run["cause"] for run in runs] == [None, "lost", "lost", "lost"]
    disturbed = rented.outputs()
    outcome = json.loads((disturbed / "details" / "outcome.json").read_text())
    assert [(end["name"], end["steps_done"]) for end in outcome["stages"]] == [
        (stage, 10) for stage in STAGES
    ]
    again = rented.type("launch", *job(go), *ON_VAST)
    assert again.exit_code == 0, again.err
    assert final_weights(disturbed) == final_weights(rented.outputs())
    assert len(vast.instances) == 0


def test_stage_that_misses_its_gate_ends_the_run_and_says_what_it_cost(terminal: Terminal, go: Path) -> None:
    let_pass(go)
    gate = ("--set", "train.stage_options.refine.gate={rollout_nrmse: 1e-6}")
    done = terminal.type("launch", *job(go), *gate)

    assert done.exit_code == 5
    assert "FAILED: stage refine missed its gate: rollout_nrmse is " in done.out
    assert "the gate allows 1e-06" in done.out
    why = terminal.type("why", "last", "--json").json()
    assert why["run"]["cause"] == "gate_missed"
    assert [(end["steps_done"], bool(end["missed"])) for end in why["stages"]] == [
        (10, False),
        (10, True),
        (0, False),
    ]
    assert why["stages"][1]["seconds"] > 0
    assert why["run"]["step"] == 20

    # With another gate it goes on from there: no step of the two stages is done again.
    done = terminal.type("launch", *job(go), "--from", "last", "--set", "train.log_every=1")
    assert done.exit_code == 0, done.err
    log = (terminal.outputs() / "log.txt").read_text()
    assert "training resumes after step 20" in log
    assert "distill  step 30/30" in log
    assert "refine  step " not in log
    assert terminal.leftovers() == []


def kill_rank_1(terminal: Terminal, run: str) -> None:
    """As the kernel kills a process."""
    [box] = [one for one in [terminal.status()["box"]] if one is not None]
    [rank] = [rank for rank in box["ranks"] if rank["rank"] == 1]
    os.kill(rank["pid"], signal.SIGKILL)
