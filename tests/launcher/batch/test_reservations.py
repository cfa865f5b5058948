"""Reservations: whatever launchers do in whatever order, no budget ever holds more than it has."""

from dataclasses import replace
from pathlib import Path

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from tests.runs import a_run
from vastrun.launcher.core import Driver, Phase
from vastrun.launcher.core.batch import Batch, BatchLimits, BatchSpec, Budget
from vastrun.launcher.core.errors import BudgetError
from vastrun.launcher.ledger.sqlite import SqliteLedger

NOW = 1_800_000_000.0
BATCHES = {"widths": 1.0, "depths": 0.6}
MONTH = Budget(name="this month", usd=1.2, since=NOW - 1000)
CENTS = st.integers(1, 60)


class Launchers(RuleBasedStateMachine):
    """Runs are begun, end for what they cost, and are tried again, by two terminals on one ledger."""

    def __init__(self) -> None:
        super().__init__()
        self.ledger = SqliteLedger(Path(":memory:"), now=lambda: NOW, alive=lambda _: True)
        self.number = 0
        self.refused = 0
        for name, usd in BATCHES.items():
            spec = BatchSpec(name=name, job="job.yaml", limits=BatchLimits(usd=usd))
            self.ledger.batches.submit(
                Batch(name=name, spec=spec, provider="fake", folder="/", created_at=NOW, opened_at=NOW), []
            )

    @rule(batch=st.sampled_from([*BATCHES, ""]), cents=CENTS, old=st.booleans())
    def begin(self, batch: str, cents: int, old: bool) -> None:
        self.number += 1
        run = a_run(
            id=f"run-{self.number}",
            provider="fake",
            phase=Phase.TRAIN,
            out_dir="/",
            created_at=NOW - 5000 if old else NOW,
            phase_at=NOW,
            batch=batch,
            usd_per_hour=36.0,
            reserved_usd=cents / 100,
        )
        before = self.held(batch)
        try:
            self.ledger.add(run, [MONTH])
        except BudgetError:
            self.refused += 1
            assert self.held(batch) == before
            room = [MONTH.usd - self.month(), *([BATCHES[batch] - before] if batch else [])]
            assert min(room) < cents / 100

    @precondition(lambda self: self.ledger.runs(open_only=True))
    @rule(data=st.data(), share=st.floats(0, 1))
    def end(self, data: st.DataObject, share: float) -> None:
        """It cost a share of what was reserved, at 1 cent a second."""
        run = data.draw(st.sampled_from(sorted(self.ledger.runs(open_only=True), key=lambda run: run.id)))
        self.ledger.hold(run.id, Driver(who="desk:1:0", until=NOW + 60))
        seconds = run.reserved_usd * share * 100
        self.ledger.save(
            replace(run, phase=Phase.ENDED, rented_at=NOW - seconds, released_at=NOW), who="desk:1:0"
        )

    def held(self, batch: str) -> float:
        return self.ledger.batches.held_usd(batch) if batch else 0.0

    def month(self) -> float:
        """Counted by hand: what was begun this month, and what is open."""
        counted = [
            run for run in self.ledger.runs() if run.created_at >= NOW - 1000 or run.phase is not Phase.ENDED
        ]
        return sum(
            run.reserved_usd
            if run.phase is not Phase.ENDED
            else (run.released_at or 0) / 100 - (run.rented_at or 0) / 100
            for run in counted
        )

    @invariant()
    def no_budget_holds_more_than_it_has(self) -> None:
        assert all(self.ledger.batches.held_usd(name) <= usd + 1e-6 for name, usd in BATCHES.items())
        assert self.month() <= MONTH.usd + 1e-6


Launchers.TestCase.settings = settings(stateful_step_count=40)
test_reservations = Launchers.TestCase
