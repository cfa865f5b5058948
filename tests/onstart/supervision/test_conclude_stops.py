"""What is said of a training that was stopped."""

import json
import signal
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.onstart.supervision.concluding import exits, outcome
from vastrun.contract import layout


def test_a_crash_before_the_stop_is_still_the_reason(box: Path) -> None:
    told = outcome(box, replace(exits(-signal.SIGSEGV, 143), stop_cause="stopped", stopped_at=10.5))
    assert (told.reason, told.detail) == ("signal", "rank 0 was killed by SIGSEGV")


@pytest.mark.parametrize("stopped_at", [9.0, 10.0], ids=["after the stop", "in the same moment"])
def test_a_crash_on_the_way_out_does_not_hide_the_stop(stopped_at: float, box: Path) -> None:
    observed = replace(exits(-signal.SIGSEGV, 143), stop_cause="time_limit", stopped_at=stopped_at)
    told = outcome(box, observed)
    assert (told.reason, told.stop_cause, told.first_failure) == ("stopped", "time_limit", None)


@pytest.mark.parametrize(
    ("changes", "reason", "sent_at"),
    [
        ({}, "stopped", 9.0),
        ({"steps_needed": 600, "stopped_at_step": 599}, "stopped", 9.0),
        ({"steps_needed": 600, "stopped_at_step": None}, "stopped", 9.0),
        ({"steps_needed": 600, "stopped_at_step": 600}, "finished", 9.0),
        # One rank had ended before the stop, the other had not.
        ({"stopped_at": 10.5}, "stopped", 10.5),
        # All had ended.
        ({"stopped_at": 11.5}, "finished", None),
        # It exits 0 only when it has finished.
        ({"training": True}, "finished", 9.0),
    ],
)
def test_a_program_that_exits_0_after_a_stop_has_finished_only_if_it_had_done_its_steps(
    box: Path, changes: dict[str, Any], reason: str, sent_at: float | None
) -> None:
    observed = replace(exits(0, 0), stop_cause="time_limit", stopped_at=9.0)
    told = outcome(box, replace(observed, **changes))
    assert (told.reason, told.stop_sent_at) == (reason, sent_at)
    assert told.stop_sent_step == (None if sent_at is None else changes.get("stopped_at_step"))


def test_ranks_that_were_too_slow_to_stop_are_named(box: Path) -> None:
    observed = replace(exits(143, -9), stop_cause="stopped", stopped_at=9.0, killed=frozenset({1}))
    assert (
        outcome(box, observed).detail
        == "stopped at your request; did not exit in time and was killed: rank 1"
    )


@pytest.mark.parametrize(
    ("exception", "told"),
    [
        (None, "checkpoint saved"),
        (
            "StoppedWithoutSaveError: asked to stop in step 7: left without saving",
            "rank 1 could not save in time: the steps since the last checkpoint are lost",
        ),
    ],
)
def test_stopped_ranks_are_shown_as_saved_or_not(box: Path, exception: str | None, told: str) -> None:
    for rank, said in enumerate((None, exception)):
        record = {"reason": "stopped", "step": 7, "exception": said}
        (box / layout.RANKS / f"rank-{rank}.json").write_text(json.dumps(record))
    observed = replace(exits(143, 143), stop_cause="stopped", stopped_at=9.0)
    assert outcome(box, observed).detail == f"stopped at your request; {told}"


def test_a_signal_to_one_rank_alone_is_told_though_all_leave_together(box: Path) -> None:
    for rank in (0, 1):
        record = {"reason": "stopped", "step": 7, "asked": rank == 1}
        (box / layout.RANKS / f"rank-{rank}.json").write_text(json.dumps(record))
    told = outcome(box, exits(143, 143))
    assert told.reason == "stopped"
    assert told.detail == "rank 1 received SIGTERM from outside of this run; checkpoint saved"
