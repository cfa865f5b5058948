"""Three runs of a terminal, each with another end, and what tests of their cost do with them."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from tests.fakebox import Training
from tests.launcher.terminal import CRASH, Terminal
from vastrun.contract.outcome import Outcome
from vastrun.launcher.core import Driver, Run


def scored(outcome: Outcome) -> Outcome:
    return replace(outcome, scores={"rollout_nrmse": 0.25, "persistence_nrmse": 1.5})


GOOD = Training(outcome=scored)


def three_runs(folder: Path) -> Terminal:
    """A run that succeeded, one that crashed and one that trains, from the newest to the oldest."""
    terminal = Terminal(folder, GOOD, CRASH, GOOD)
    terminal.launch("--tag", "lr", "--tag", "new")
    terminal.launch("--tag", "lr", "--set", "name=other")
    terminal.launch("--detach")
    terminal.clock.sleep(3600)
    return terminal


def changed(terminal: Terminal, run: Run, **changes: Any) -> Run:
    """The run's row is changed."""
    run = replace(run, **changes)
    terminal.ledger.hold(run.id, Driver(who="desk:1:1.0", until=terminal.clock.now() + 60))
    terminal.ledger.save(run, who="desk:1:1.0")
    terminal.ledger.release(run.id, "desk:1:1.0")
    return run


def runs(terminal: Terminal) -> Sequence[Run]:
    """The oldest first: it succeeded, it crashed, it trains."""
    return terminal.ledger.runs()[::-1]
