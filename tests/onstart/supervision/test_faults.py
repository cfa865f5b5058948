"""What goes wrong in a training has its verdict, wherever it happens, and nothing waits for a time-out.

Of all products of faults, moments and strategies these are a covering part: every fault and every moment
under every strategy; which moment a fault meets is shifted from one strategy to the next. Quick: each fault
under one strategy.
"""

from collections.abc import Iterator
from typing import Any

import pytest

from tests.onstart.supervision.forked import Train
from vastrun.contract.outcome import Reason

pytestmark = pytest.mark.torch

STRATEGIES = ("single", "ddp", "fsdp2")
VERDICTS: dict[str, tuple[Reason, str]] = {
    "exception": ("error", "ValueError: injected"),
    "SIGSEGV": ("signal", "was killed by SIGSEGV"),
    "SIGKILL": ("signal", "was killed by SIGKILL"),
    "disk full": ("disk", "[Errno 2"),  # 28 where there is no room, 27 where a file may not grow
    "out of memory": ("oom", "OutOfMemoryError: injected"),
    "sleep": ("hang", "faulty.py"),
    "one-sided broadcast": ("hang", "_ask_the_others"),
    "exit 0": ("error", "exited with code 0"),
}
MOMENTS: dict[str, dict[str, Any]] = {
    "setup": {"where": "setup"},
    "first step": {"where": "forward", "step": 0},
    "forward": {"where": "forward"},
    "backward": {"where": "backward"},
    "optimizer": {"where": "optimizer"},
    "checkpoint": {"where": "checkpoint", "step": 4, "rank": 0},
    "eval": {"where": "eval"},
}
START_S = 12.0
LONG_S = 40.0
"""Nothing that goes on takes as long, on a busy computer."""


def cases() -> Iterator[Any]:
    for shift, strategy in enumerate(STRATEGIES):
        for number, what in enumerate(VERDICTS):
            moment = list(MOMENTS)[(number + 2 * shift) % len(MOMENTS)]
            if strategy != "single" or what != "one-sided broadcast":  # one rank alone waits for nobody
                marks = [pytest.mark.slow] * ((number + 1) % len(STRATEGIES) != shift)
                yield pytest.param(what, moment, strategy, id=f"{what}-{moment}-{strategy}", marks=marks)


@pytest.mark.parametrize(("what", "moment", "strategy"), list(cases()))
def test_every_fault_has_its_verdict_anywhere(what: str, moment: str, strategy: str, train: Train) -> None:
    ranks = 1 if strategy == "single" else 2
    fault = {"what": what, "rank": ranks - 1, **MOMENTS[moment]}
    if (what, moment) == ("disk full", "checkpoint"):
        fault |= {"what": "no room for files", "where": "forward"}
    stall_s = 5.0 if VERDICTS[what][0] == "hang" else LONG_S
    limits = {"eval_s": stall_s, "checkpoint_s": stall_s}
    run = train(
        fault,
        train={"steps": 6, "strategy": strategy, "checkpoint_every": 5, "limits": limits},
        ranks=ranks,
        restarts={},
        stall_s=stall_s,
        start_s=START_S if moment == "setup" else LONG_S,
    )

    outcome = run.outcome()
    reason, text = VERDICTS[what]
    if what == "exit 0" and strategy == "single":  # it says that it is done; that nothing proves it, is seen
        assert (outcome.reason, outcome.final_record) == ("finished", False)
    else:
        assert (outcome.reason, text in outcome.detail) == (reason, True), outcome.detail
        assert f"rank {fault['rank']}" in outcome.detail


@pytest.mark.slow
def test_a_rank_that_compiles_for_too_long_hangs_by_the_limit_of_that(train: Train) -> None:
    settings = {"strategy": "single", "compile": "blocks", "limits": {"compile_s": 3.0}}
    run = train(
        {"what": "sleep", "rank": 0, **MOMENTS["first step"]},
        train=settings,
        ranks=1,
        restarts={},
        stall_s=LONG_S,
        start_s=LONG_S,
    )
    outcome = run.outcome()
    assert (outcome.reason, outcome.hang and outcome.hang.activity) == ("hang", "compile"), outcome.detail
