"""The programs of `examples/` as a user launches, stops and continues them: steps, curves and final weights.

Each trains once undisturbed. Another run of it is stopped, and a third continues from what that one saved.
"""

import importlib.util
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from benchmarks.chaos.frameworks.judgement import difference, load_weights, starts_in
from benchmarks.chaos.frameworks.plans import PROGRAMS, Program
from tests.e2e.terminal import Terminal

pytestmark = [pytest.mark.torch, pytest.mark.slow]

STEP_S = 0.3
"""Long enough for a stop between the first steps and the last."""
WITHIN_S = 500.0
"""Two ranks import a framework on a busy computer."""


@dataclass(frozen=True, kw_only=True)
class Ended:
    """A run that has ended, by what a user finds of it."""

    id: str
    folder: Path
    verdict: str
    outcome: Mapping[str, Any]
    metrics: tuple[Mapping[str, Any], ...]

    @property
    def saved(self) -> int:
        """The step of its newest downloaded checkpoint."""
        return int(json.loads((self.folder / "checkpoints" / "latest.json").read_text())["step"])


def ended(terminal: Terminal) -> Ended:
    run = terminal.status()["run"]
    folder = Path(run["out_dir"])
    lines = (folder / "metrics.jsonl").read_text().splitlines()
    return Ended(
        id=run["id"],
        folder=folder,
        verdict=run["verdict"],
        outcome=terminal.outcome(),
        metrics=tuple(map(json.loads, lines)),
    )


def arguments(program: Program, step_s: float) -> tuple[str, ...]:
    # The set-up commands would ask an index for what is installed here.
    settings = ("setup=[]", f"env.STEP_S={step_s}", "checkpoints.every_s=0.5", "limits.stall_s=300")
    return (str(program.job), "--provider", "local", *(word for each in settings for word in ("--set", each)))


@pytest.fixture(params=[name for name, one in PROGRAMS.items() if one.layout is None])
def program(request: pytest.FixtureRequest) -> Program:
    found = PROGRAMS[request.param]
    if importlib.util.find_spec(found.module) is None:
        pytest.skip(f"{found.module} is not installed: make frameworks")
    return found


def test_a_program_is_seen_stops_with_a_checkpoint_and_continues_to_the_same_weights(
    program: Program, terminal: Terminal
) -> None:
    done = terminal.type("launch", *arguments(program, 0.0), within_s=WITHIN_S)
    assert done.exit_code == 0, done.err
    whole = ended(terminal)
    assert [rank["step"] for rank in whole.outcome["ranks"]] == [40, 40]
    losses = [line["loss"] for line in whole.metrics if "loss" in line]
    assert len(losses) >= 4
    assert losses[-1] < losses[0]
    expected = load_weights(whole.folder / "outputs" / program.weights)

    launch = terminal.start("launch", *arguments(program, STEP_S))
    launch.shows("rank0 step 7", within_s=WITHIN_S)
    assert terminal.type("stop", "last").exit_code == 0
    assert launch.end(within_s=WITHIN_S).exit_code != 0
    stopped = ended(terminal)
    assert stopped.verdict == "STOPPED"
    ranks = stopped.outcome["ranks"]
    assert [rank["exit_code"] for rank in ranks] == [143, 143]
    assert ranks[0]["step"] == ranks[1]["step"] == stopped.saved
    assert not (stopped.folder / "outputs" / program.weights).exists(), "it did not end"

    done = terminal.type("launch", *arguments(program, 0.0), "--from", stopped.id, within_s=WITHIN_S)
    assert done.exit_code == 0, done.err
    continued = ended(terminal)
    assert starts_in(continued.folder) == [stopped.saved]
    assert difference(continued.folder, program, expected) == 0
    assert (continued.folder / "report.html").is_file()
    assert terminal.leftovers() == []
