"""A batch: one job at many points, under one budget. What its file says, and its rows in the ledger."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any, Literal

from annotated_types import Ge, Gt, Le, MinLen

from vastrun.launcher.core.hidden import HIDDEN
from vastrun.launcher.core.runs import UserRequest

MAX_PARALLEL = 200
"""Each run is a thread of one launcher."""
MAX_POINTS = 10_000
"""More are refused: at one rented machine every 4.5 s, even these would need half a day of rents."""


MAX_NAME = 63
"""Letters in the name of a batch."""
_LONGEST_JOB_NAME = MAX_NAME - len("-sweep")


Goal = Literal["min", "max"]
"""Which end of a metric is best."""


@dataclass(frozen=True, kw_only=True)
class BatchObjective:
    """What the runs are compared by."""

    metric: Annotated[str, MinLen(1)] = "loss"
    """`scores.NAME` of the final evaluation, or a name in `metrics.jsonl`, whose last value counts."""
    goal: Goal = "min"

    def sort_key(self, value: float | None) -> tuple[bool, float]:
        """Return a key that sorts the best value first and None last."""
        if value is None or value != value:
            return True, 0.0
        return False, value if self.goal == "min" else -value


@dataclass(frozen=True, kw_only=True)
class StopRules:
    """When a batch ends by itself before its last point."""

    same_cause: Annotated[int, Ge(1)] = 3
    """So many points that failed with one cause."""
    failed: Annotated[float, Gt(0), Le(1)] | None = None
    """More than this share of all points failed, with any cause."""


@dataclass(frozen=True, kw_only=True)
class BatchLimits:
    """What a batch may cost, and how much of it goes on at once."""

    usd: Annotated[float, Gt(0)] | None = None
    """For all of its runs together. Needed where machines cost money."""
    hours: Annotated[float, Gt(0)] | None = None
    """From its submit or resume on; then nothing new is started."""
    parallel: Annotated[int, Ge(1), Le(MAX_PARALLEL)] = 4
    """How many runs at once."""
    stop: StopRules = field(default_factory=StopRules)


@dataclass(frozen=True, kw_only=True)
class EarlyStop:
    """When a run of a batch is pruned."""

    rule: Literal["asha", "median"] = "asha"
    metric: Annotated[str, MinLen(1)] = "loss"
    """A name in `metrics.jsonl`."""
    min_steps: Annotated[int, Ge(1)]
    """No run is judged before it has done so many steps. With asha the first rung; the next are this times
    `factor`, `factor` squared, and so on."""
    factor: Annotated[int, Ge(2)] = 3
    """asha: of the runs that reached a rung, one in so many goes on."""
    goal: Goal | None = None
    """Which end of that metric is best; None: that of the objective if it is the same metric, else min."""


@dataclass(frozen=True, kw_only=True)
class Pruning:
    """A run to prune now."""

    run: str
    """Its id."""
    reason: str
    """In words, for its diary and its verdict."""


Sharing = Literal["auto", "never"]
"""`auto`: where that is expected to cost less."""


@dataclass(frozen=True, kw_only=True)
class BatchSpec:
    """A batch file without its points."""

    name: Annotated[str, MinLen(1)]
    job: Annotated[str, MinLen(1)]
    """The job file, relative to the batch file."""
    objective: BatchObjective = field(default_factory=BatchObjective)
    limits: BatchLimits = field(default_factory=BatchLimits)
    early_stop: EarlyStop | None = None
    """None: every run goes on to its end."""
    reuse: Sharing = "never"
    """A machine takes several points, one after the other."""
    pack: Sharing = "never"
    """A machine with several GPUs takes several points at once."""

    @property
    def holds_machines(self) -> bool:
        """Return whether its points may share machines."""
        return "auto" in (self.reuse, self.pack)

    @property
    def early_goal(self) -> Goal:
        """Return which end of the early stop's metric is best."""
        rule = self.early_stop
        if rule is not None and rule.goal is not None:
            return rule.goal
        return self.objective.goal if rule and rule.metric == self.objective.metric else "min"


def sweep_name(job: str) -> str:
    """Return the name of a sweep that was given none: each job has a batch of its own."""
    return f"{job[:_LONGEST_JOB_NAME]}-sweep"


@dataclass(frozen=True, kw_only=True)
class Dimension:
    """A key of a search, and what it may be."""

    key: str
    kind: Literal["log", "range", "int", "choice"]
    among: tuple[Any, ...]
    """The two ends, the lower one first; of `choice`, all that there is."""


@dataclass(frozen=True, kw_only=True)
class Search:
    """A search whose next points are asked for while its batch runs, by what the others came to."""

    samples: int
    """How many points in all."""
    seed: int
    space: tuple[Dimension, ...]
    job_text: str
    """The job file, of which each point is a variation."""
    job_name: str
    base_dir: str
    """Where its paths are anchored."""
    now: str | None = None
    """When it was submitted, with its zone: a deadline of 18:00 is the next one after that."""
    share_usd: float | None = None
    """The most that each run may cost; None: as the job says."""


@dataclass(frozen=True, kw_only=True)
class Budget:
    """A sum that the runs it counts may not pass together, reservations included."""

    name: str
    """In words, as in "batch lr-width"."""
    usd: float
    batch: str = ""
    """It counts this batch's runs; empty: all runs of the ledger."""
    since: float | None = None
    """It counts runs that were begun then or later, epoch seconds, and those that are open; None: all."""
    hint: str = ""
    """How to raise it; USD in it stands for the sum that would do."""


@dataclass(frozen=True, kw_only=True)
class BudgetUse:
    """How much of a budget its runs hold."""

    budget: Budget
    spent_usd: float
    """What they cost so far."""
    reserved_usd: float
    """What the open ones may still cost."""

    @property
    def held_usd(self) -> float:
        """Return what is spent and reserved."""
        return self.spent_usd + self.reserved_usd

    @property
    def left_usd(self) -> float:
        """Return what further runs may cost; infinite where there is no limit."""
        return max(0.0, self.budget.usd - self.held_usd)


@dataclass(frozen=True, kw_only=True)
class BatchPoint:
    """One set of values, and the job that it makes of the batch's."""

    id: str
    """A hash of its values and of the job: the same wherever it stands in the file."""
    values: Mapping[str, Any]
    """By key, in the order of the file."""
    spec_json: str = field(metadata=HIDDEN)
    """The whole JobSpec as validated."""
    number: int = 0
    """Counted in the ledger, from 1; never given twice within a batch."""
    wanted: bool = True
    """The newest file of the batch has it; one that is not wanted is not started any more."""
    starts: int = 1
    """How often it is to be started; more than once where its user asked for it again."""


@dataclass(frozen=True, kw_only=True)
class Batch:
    """A batch in the ledger. A file of the same name adds its points to it."""

    name: str
    spec: BatchSpec
    provider: str
    folder: str
    """Where the folders of its runs' outputs lie."""
    created_at: float
    opened_at: float
    """When it was last submitted or resumed: what ended it before no longer counts."""
    request: UserRequest = UserRequest.NONE
    """What its user asked for; STOP: nothing new is started, and what runs is stopped."""
    reason: str = ""
    """Why it ended before its last point; empty while it goes on, or when all have ended."""
    search: Search | None = None
    """None: its file gives all of its points."""
    revision: int = 0
    """Counts what was changed about its points: whoever drives it reads them again."""
    computer: str = ""
    """The computer that its folder is on, as `Run.computer`."""
    home: str = ""
    """The computer on which its newest file was read, as `Run.home`."""
