"""The tables by which a run is steered and judged, value by value: as documented, or as written here."""

from pathlib import Path

import pytest

from vastrun.contract.outcome import REASONS, Meaning
from vastrun.launcher.core import Cause, Phase, UserRequest, Verdict
from vastrun.launcher.core.phases import NEXT, Result
from vastrun.launcher.core.verdict import EXIT_CODE_OF, VERDICT_OF
from vastrun.launcher.decisions.run_assessment import CAUSE_OF_STEP
from vastrun.launcher.notifications import ENDING_OF
from vastrun.trainer.job.program import MAX_RESTARTS, TrainProgram

ARCHITECTURE = Path(__file__).parents[3] / "ARCHITECTURE.md"

ENDS = {
    None: ("SUCCEEDED", 0),
    "user_error": ("FAILED", 5),
    "setup": ("FAILED", 5),
    "out_of_memory": ("FAILED", 5),
    "signal": ("FAILED", 5),
    "communication": ("FAILED", 5),
    "data": ("FAILED", 5),
    "diverged": ("FAILED", 5),
    "gate_missed": ("FAILED", 5),
    "disk": ("FAILED", 5),
    "host": ("FAILED", 5),
    "slow": ("FAILED", 5),
    "storage": ("FAILED", 5),
    "provider": ("FAILED", 5),
    "internal": ("FAILED", 5),
    "hang": ("HUNG", 6),
    "stopped": ("STOPPED", 3),
    "pruned": ("PRUNED", 3),
    "time_limit": ("LIMIT", 9),
    "money_limit": ("LIMIT", 9),
    "preempted": ("PREEMPTED", 7),
    "lost": ("LOST", 7),
    "outputs_lost": ("OUTPUTS_LOST", 7),
    "no_offer": ("NO_OFFER", 8),
    "unproven": ("UNKNOWN", 10),
    "contradiction": ("UNKNOWN", 10),
}
"""By cause: verdict and exit code, on which scripts of users rely."""


@pytest.mark.parametrize("phase", NEXT)
def test_a_phase_is_followed_by_what_the_documented_table_says(phase: Phase) -> None:
    lines = [line.split() for line in ARCHITECTURE.read_text(encoding="utf-8").splitlines()]
    (row,) = [
        words for words in lines if len(words) >= 4 and words[0] == phase.value and words[1] in set(Phase)
    ]
    assert [NEXT[phase][result] for result in (Result.OK, Result.FAILED, Result.LOST)] == row[1:4]


def test_a_cause_has_its_verdict_and_exit_code() -> None:
    assert {cause: (verdict.value, EXIT_CODE_OF[verdict]) for cause, verdict in VERDICT_OF.items()} == ENDS


def test_a_verdict_is_notified_as_an_end_a_failure_or_a_loss() -> None:
    kinds: dict[str, set[str]] = {
        "END": {"SUCCEEDED", "STOPPED", "PRUNED"},
        "FAILURE": {"FAILED", "HUNG", "LIMIT", "UNKNOWN", "NO_OFFER"},
        "LOST": {"PREEMPTED", "LOST", "OUTPUTS_LOST"},
    }
    assert {name: {v for v in Verdict if ENDING_OF[v].name == name} for name in kinds} == kinds


@pytest.mark.parametrize(
    ("request_", "cause"),
    [
        ("none", None),
        ("detach_once_training", None),
        ("detach", None),
        ("prune", Cause.PRUNED),
        ("stop", Cause.STOPPED),
        ("destroy", Cause.STOPPED),
    ],
)
def test_only_requests_that_end_a_run_have_a_cause_and_each_is_stronger_than_the_one_before(
    request_: str, cause: Cause | None
) -> None:
    found = UserRequest[request_.upper()]
    assert found.cause is cause
    assert list(UserRequest).index(found) == found.strength


def test_a_step_that_fails_before_the_training_has_the_cause_of_what_it_does() -> None:
    assert CAUSE_OF_STEP | {step.name: step.cause for step in TrainProgram.prepare} == {
        "00-environment": "setup",
        "10-check-gpu": "host",
        "20-check-comm": "host",
        "22-check-nodes": "communication",
        "25-packages": "host",
        "30-unpack": "setup",
        "35-check-model": "user_error",
        "38-download": "data",
        "40-data": "data",
        "42-check-data": "data",
        "45-fetch": "data",
        "evaluate": "setup",  # in a rehearsal only
    }


def test_ranks_are_started_again_up_to_a_number_of_times_by_cause() -> None:
    assert MAX_RESTARTS == {"out_of_memory": 10, "signal": 3, "communication": 3, "hang": 2, "host": 3}


def test_a_reason_has_its_cause_and_exit_codes() -> None:
    failures = {
        "error": ("user_error", False),
        "signal": ("signal", True),
        "communication": ("communication", True),
        "data": ("data", False),
        "disk": ("disk", False),
        "device": ("host", True),
        "network": ("host", True),
        "diverged": ("diverged", False),
        "gate_missed": ("gate_missed", False),
    }
    assert {
        **{name: Meaning(cause=cause, is_curable=curable) for name, (cause, curable) in failures.items()},
        "finished": Meaning(cause=None, exit_code=0, rank_exit_code=0),
        "oom": Meaning(cause="out_of_memory", exit_code=76, rank_exit_code=76, is_curable=True),
        "hang": Meaning(cause="hang", exit_code=75, rank_exit_code=1, is_curable=True),
        "stopped": Meaning(cause="stopped", exit_code=143, rank_exit_code=143),
    } == REASONS
    assert (Meaning(cause="x").exit_code, Meaning(cause="x").rank_exit_code) == (1, 1)
    assert not Meaning(cause="x").is_curable
