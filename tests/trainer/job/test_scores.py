"""Scores as they are shown: whatever of them a box leaves out, or makes up, there are words for the rest."""

from hypothesis import given
from hypothesis import strategies as st

from vastrun.trainer.job.scores import FLOORS, score_lines

NAMES = [f"{name}_nrmse" for name in ("rollout", "blind", "operator", *FLOORS)] + [
    "rollout_diverged",
    "stage_helps",
]
NUMBERS = st.floats(allow_nan=False, allow_infinity=False)


@given(st.dictionaries(st.sampled_from([*NAMES, *(f"darcy.{name}" for name in NAMES)]), NUMBERS))
def test_any_part_of_the_scores_can_be_shown(scores: dict[str, float]) -> None:
    lines = score_lines(scores)
    assert bool(lines) == bool(scores)


def test_of_a_stage_that_does_not_say_whether_it_helps_nothing_is_claimed() -> None:
    (line,) = score_lines({"rollout_nrmse": 0.1, "persistence_nrmse": 0.9, "operator_nrmse": 0.2})
    assert line.endswith("the operator alone has 0.2")
