"""A run whose GPUs wait says so while it trains, once, and `why` repeats it."""

from dataclasses import asdict, replace
from pathlib import Path
from typing import get_args

import pytest

from tests.fakebox import Training
from tests.launcher.faults import launch_killed
from tests.launcher.terminal import Terminal
from tests.launcher.world import RUN_ID, World
from vastrun.contract.outcome import IdleGpus, WaitsFor
from vastrun.launcher.decisions.slow_training import IDLE_GPUS, idle_gpus_text

IDLE = IdleGpus(
    load=0.31, seconds=312.0, step=40, waits_for="data", data=0.62, disk=0.0, main_thread=0.2, cores=0.97
)
TEXT = (
    "31% busy over 5 min, at step 40; the ranks wait for data 62% of the time (the run uses 97% of the CPU "
    "cores; try more cores, or less work per sample)"
)


def reports(world: World) -> list[str]:
    return [event.text for event in world.ledger.events(RUN_ID) if event.text.startswith(IDLE_GPUS)]


def test_it_is_reported_once_while_the_run_trains_on(tmp_path: Path) -> None:
    world = World(tmp_path, training=Training(seconds=600.0, supervisor={"idle_gpus": asdict(IDLE)}))
    assert world.launch().cause is None
    assert reports(world) == [f"{IDLE_GPUS}{TEXT}"]


@pytest.mark.parametrize(
    ("later", "count"),
    [
        (replace(IDLE, data=0.71, cores=0.5), 1),
        (replace(IDLE, waits_for="disk"), 2),
        (replace(IDLE, waits_for="collectives"), 2),
    ],
)
def test_another_launcher_reports_only_another_reason(tmp_path: Path, later: IdleGpus, count: int) -> None:
    status: dict[str, object] = {"idle_gpus": asdict(IDLE)}
    world = World(tmp_path, training=Training(seconds=600.0, supervisor=status))
    launch_killed(world, "output_store.download_log", "after", nth=5)
    assert len(reports(world)) == 1
    status["idle_gpus"] = asdict(later)
    assert world.resume().cause is None
    assert len(reports(world)) == count


def test_why_has_it_by_the_evidence_of_the_machine(tmp_path: Path) -> None:
    terminal = Terminal(tmp_path, Training(outcome=lambda outcome: replace(outcome, idle_gpus=IDLE)))
    assert terminal.launch().exit_code == 0
    shown = " ".join(terminal.type("why", "last").stdout.split())
    assert f"gpus {TEXT}" in shown
    assert terminal.document("why", "last")["idle_gpus"] == f"{IDLE_GPUS}{TEXT}"


def test_why_has_it_of_a_run_without_evidence_and_is_silent_about_busy_gpus(tmp_path: Path) -> None:
    idle = Training(writes_outcome=False, supervisor={"idle_gpus": asdict(IDLE)})
    terminal = Terminal(tmp_path, idle, Training())
    terminal.launch()
    assert TEXT in terminal.document("why", "last")["idle_gpus"]
    terminal.launch()
    assert terminal.document("why", "last")["idle_gpus"] == ""
    assert "gpus" not in terminal.type("why", "last").stdout


@pytest.mark.parametrize("reason", get_args(WaitsFor))
def test_each_reason_has_a_sentence_of_its_own(reason: WaitsFor) -> None:
    text = idle_gpus_text(replace(IDLE, waits_for=reason))
    others = {idle_gpus_text(replace(IDLE, waits_for=one)) for one in get_args(WaitsFor) if one != reason}
    assert text.startswith(IDLE_GPUS)
    assert text not in others
