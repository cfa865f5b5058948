"""TPE: a study rebuilt at each ask gives the same points to whoever asks, and gets better than chance."""

import math
import subprocess
import sys
from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from vastrun.launcher.batch.search import CompletedTrial, Dimension, propose
from vastrun.launcher.core.batch import Goal

LR = Dimension(key="train.optim.lr", kind="log", among=(1e-4, 1e-1))
CLIP = Dimension(key="train.optim.clip", kind="range", among=(0, 2))
DEPTH = Dimension(key="train.model.depth", kind="int", among=(1, 8))
CORE = Dimension(key="train.model.core", kind="choice", among=("attention", "fno", None, True, 1, [1, 2]))
SPACE = (LR, CLIP, DEPTH, CORE)


def finished(values: Mapping[str, Any], metric: float) -> CompletedTrial:
    return CompletedTrial(values=values, state="finished", metric=metric)


def searched(
    space: Sequence[Dimension], points: int, loss: Any, *, seed: int, goal: Goal = "min"
) -> list[CompletedTrial]:
    """A batch that runs one point after the other."""
    history: list[CompletedTrial] = []
    for _ in range(points):
        (values,) = propose(space, history, goal=goal, seed=seed)
        history.append(finished(values, loss(values)))
    return history


def loss(values: Mapping[str, Any]) -> float:
    """Best at a learning rate of 3e-3 with a clip of 1."""
    return abs(math.log(values[LR.key] / 3e-3)) + abs(values[CLIP.key] - 1)


def test_values_are_of_their_dimension_and_short() -> None:
    for seed in range(20):
        (values,) = propose(SPACE, (), seed=seed)
        assert list(values) == [dimension.key for dimension in SPACE]
        assert 1e-4 <= values[LR.key] <= 1e-1
        assert values[LR.key] == float(f"{values[LR.key]:.6g}")
        assert 0 <= values[CLIP.key] <= 2
        assert values[DEPTH.key] in range(1, 9)
        assert type(values[DEPTH.key]) is int
        assert values[CORE.key] in CORE.among


def test_the_same_history_and_seed_give_the_same_points_and_others_give_others() -> None:
    history = searched(SPACE, 14, loss, seed=1)
    asked = [propose(SPACE, history, pending=[history[3].values], seed=1, count=3) for _ in range(2)]
    assert asked[0] == asked[1]
    assert asked[0] != propose(SPACE, history, pending=[history[3].values], seed=2, count=3)
    assert len({str(tried.values) for tried in history}) == 14


def test_it_finds_better_points_than_its_first_ones() -> None:
    best = [min(map(loss_of, searched((LR, CLIP), 40, loss, seed=seed)[20:])) for seed in range(3)]
    first = [min(map(loss_of, searched((LR, CLIP), 10, loss, seed=seed))) for seed in range(3)]
    assert sum(best) < sum(first) / 2


def loss_of(tried: CompletedTrial) -> float:
    assert tried.metric is not None
    return tried.metric


def test_the_goal_says_which_end_is_best() -> None:
    def mean(goal: Goal) -> float:
        late = searched((CLIP,), 30, lambda values: values[CLIP.key], seed=0, goal=goal)[20:]
        return sum(map(loss_of, late)) / len(late)

    assert mean("min") < 0.5
    assert mean("max") > 1.5


def test_points_that_were_pruned_or_failed_or_diverged_are_learned_from_and_hurt_nothing() -> None:
    history = searched((CLIP,), 12, lambda values: values[CLIP.key], seed=0)
    history += [
        CompletedTrial(values={CLIP.key: 1.9}, state="pruned", metric=0.4, step=200),
        CompletedTrial(values={CLIP.key: 1.8}, state="pruned"),
        CompletedTrial(values={CLIP.key: 1.7}, state="failed"),
        *(finished({CLIP.key: 1.6 + n / 100}, value) for n, value in enumerate((math.nan, math.inf, 1e300))),
    ]

    (values,) = propose((CLIP,), history)

    assert 0 <= values[CLIP.key] <= 2


def test_points_that_go_on_are_not_asked_for_again_nor_those_that_were_tried() -> None:
    space = (Dimension(key="n", kind="int", among=(1, 6)),)
    history = [finished({"n": 1}, 0.1), CompletedTrial(values={"n": 2}, state="failed")]
    asked = propose(space, history, pending=[{"n": 3}], count=9)
    assert sorted(values["n"] for values in asked) == [4, 5, 6]
    assert propose(space, history, pending=[{"n": n} for n in range(3, 7)]) == []


def test_choices_are_told_apart_by_their_type() -> None:
    space = (Dimension(key="c", kind="choice", among=(1, 1.0, True, "1", None, [1])),)
    asked = propose(space, (), count=6)
    assert sorted(repr(values["c"]) for values in asked) == sorted(map(repr, space[0].among))


@pytest.mark.parametrize(
    "foreign",
    [
        {},
        {LR.key: 0.5, DEPTH.key: 2},
        {LR.key: "1e-3", DEPTH.key: 2},
        {LR.key: True, DEPTH.key: 2},
        {LR.key: 1e-3, DEPTH.key: 2.5},
        {LR.key: math.nan, DEPTH.key: 2},
    ],
)
def test_points_of_a_file_that_was_edited_do_not_count(foreign: dict[str, Any]) -> None:
    space = (LR, DEPTH)
    history = [finished({LR.key: 1e-3, DEPTH.key: 2}, 0.5)]
    assert propose(space, [*history, finished(foreign, 0.1)], [foreign]) == propose(space, history)


def test_nothing_is_said_on_the_terminal(capfd: pytest.CaptureFixture[str]) -> None:
    searched(SPACE, 12, loss, seed=0)
    assert capfd.readouterr() == ("", "")


def python(program: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)


def test_optuna_is_imported_where_it_is_asked_and_never_torch() -> None:
    done = python(
        "import sys; from vastrun.launcher.batch.search import Dimension, propose\n"
        "assert 'optuna' not in sys.modules\n"
        "propose([Dimension(key='n', kind='int', among=(1, 6))], ())\n"
        "print({'optuna', 'torch'} & set(sys.modules))"
    )
    assert (done.stdout, done.stderr) == ("{'optuna'}\n", "")


def test_without_optuna_it_says_what_to_install() -> None:
    done = python(
        "import sys; sys.modules['optuna'] = None\n"
        "from vastrun.launcher.core.errors import UsageError\n"
        "from vastrun.launcher.batch.search import Dimension, propose\n"
        "try: propose([Dimension(key='n', kind='int', among=(1, 6))], ())\n"
        "except UsageError as error: print(error, error.hint, error.exit_code)"
    )

    assert "tpe needs Optuna, which is not installed" in done.stdout
    assert "-m pip install 'optuna>=4' 2" in done.stdout
