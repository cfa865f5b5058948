"""Programs that are asked to stop, as real processes: what reaches them, and what their outcome says."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.trainer.supervision.launches import Launched
from trainer.contract import layout

Launcher = Callable[..., Launched]

SAVES = """
    asked = []
    signal.signal(signal.SIGTERM, lambda *_: asked.append(1))
    for step in range(1, 10_000):
        heart.beat(step)
        print("step", step, flush=True)
        time.sleep(0.02)
        if asked:
            break
    (outputs / "saved.pt").write_text(str(step))
    print("saved at", step, flush=True)
    sys.exit({exit_code})
"""
"""Trains until it has SIGTERM, then saves and exits with a code."""


@pytest.fixture
def launch(tmp_path: Path) -> Iterator[Launcher]:
    launched: list[Launched] = []

    def start(program: str, **job: Any) -> Launched:
        launched.append(Launched(tmp_path / f"box-{len(launched)}", program, ranks=1, **job))
        return launched[-1]

    yield start
    for run in launched:
        run.end()


def stop(run: Launched, cause: str = "time_limit") -> None:
    run.until_steps(5)
    (run.box / layout.STOP).write_text(f"{cause}\n")


@pytest.mark.parametrize(
    ("cause", "exit_code", "success"),
    [
        ("time_limit", 0, {"exit_code": 0}),
        ("slow", 0, {"files": ["saved.pt"], "log": "saved at"}),
        ("pruned", 0, {"steps": 9_999}),
        ("money_limit", 3, {"exit_code": 3}),
    ],
)
def test_a_program_that_saves_when_asked_to_stop_was_stopped(
    launch: Launcher, cause: str, exit_code: int, success: dict[str, Any]
) -> None:
    run = launch(SAVES.format(exit_code=exit_code), success=success)
    stop(run, cause)
    outcome = run.outcome()
    assert (run.wait(), outcome.reason, outcome.stop_cause) == (143, "stopped", cause)
    assert [end.exit_code for end in outcome.ranks] == [exit_code]
    assert outcome.stop_sent_at is not None
    assert outcome.stop_sent_step is not None
    assert outcome.started_at < outcome.stop_sent_at <= outcome.ended_at
    saved_at = int((run.box / layout.OUTPUTS / "saved.pt").read_text())
    assert 5 <= outcome.stop_sent_step <= saved_at


def test_a_program_that_had_done_its_steps_before_the_stop_has_finished(launch: Launcher) -> None:
    run = launch(SAVES.format(exit_code=0), success={"steps": 5, "files": ["saved.pt"]})
    stop(run)
    outcome = run.outcome()
    assert (run.wait(), outcome.reason, outcome.stop_cause) == (0, "finished", "time_limit")
    assert outcome.stop_sent_step is not None
    assert outcome.stop_sent_step >= 5
    assert all(check.holds for check in outcome.checks)


def test_a_program_that_ended_without_a_stop_has_none_in_its_outcome(launch: Launcher) -> None:
    outcome = launch("heart.beat(3)").outcome()
    assert (outcome.reason, outcome.stop_sent_at, outcome.stop_sent_step) == ("finished", None, None)
