"""Batch: one job at many points, under one budget. Types of its file and of its rows in the ledger."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Annotated, Any, Literal

from annotated_types import Ge, Gt, Le, MinLen

from vastrun.launcher.core.runs import HIDDEN, PRUNING, Event, UserRequest
from vastrun.launcher.core.secrets import public_values

MAX_PARALLEL = 200
"""Max. concurrent runs: each is a thread of one launcher."""
MAX_POINTS = 10_000
"""Max. points of a batch: at one rented machine every 4.5 s, even these need half a day of rents."""
MAX_NAME = 63
"""Max. letters in the name of a batch."""
PRUNED_PREFIX = "pruned by its batch: "
"""Start of the event in the diary of a pruned run, before the reason."""

Goal = Literal["min", "max"]
"""Best end of a metric: its lowest or its highest value."""


@dataclass(frozen=True, kw_only=True)
class BatchObjective:
    """Metric by which the runs are compared."""

    metric: Annotated[str, MinLen(1)] = "loss"
    """`scores.NAME` of the final evaluation, or a name in `metrics.jsonl`, whose last value counts."""
    goal: Goal = "min"


@dataclass(frozen=True, kw_only=True)
class StopRules:
    """Conditions under which a batch ends before its last point."""

    same_cause: Annotated[int, Ge(1)] = 3
    """Number of points that failed with the same cause."""
    failed: Annotated[float, Gt(0), Le(1)] | None = None
    """Share of all points that failed, with any cause."""


@dataclass(frozen=True, kw_only=True)
class BatchLimits:
    """Limits of a batch on cost, time and concurrency."""

    usd: Annotated[float, Gt(0)] | None = None
    """USD for all of its runs together. Required where machines cost money."""
    hours: Annotated[float, Gt(0)] | None = None
    """Hours from its submit or resume after which nothing new is started."""
    parallel: Annotated[int, Ge(1), Le(MAX_PARALLEL)] = 4
    """Max. concurrent runs."""
    stop: StopRules = field(default_factory=StopRules)


@dataclass(frozen=True, kw_only=True)
class EarlyStop:
    """Rule by which runs of a batch are pruned."""

    rule: Literal["asha", "median"] = "asha"
    metric: Annotated[str, MinLen(1)] = "loss"
    """A name in `metrics.jsonl`."""
    min_steps: Annotated[int, Ge(1)]
    """Steps before which no run is pruned. With asha the first rung; the next are this times `factor`,
    `factor` squared, and so on."""
    factor: Annotated[int, Ge(2)] = 3
    """asha: one in `factor` of the runs that reached a rung continues."""
    goal: Goal | None = None
    """Best end of that metric; None: that of the objective if it is the same metric, else min."""


@dataclass(frozen=True, kw_only=True)
class Pruning:
    """A run to prune now."""

    run: str
    """Its id."""
    reason: str
    """Reason for its diary and its verdict."""


Sharing = Literal["auto", "never"]
"""Sharing of machines by points; `auto`: where that is expected to cost less."""


@dataclass(frozen=True, kw_only=True)
class BatchSpec:
    """A batch file without its points."""

    name: Annotated[str, MinLen(1)]
    job: Annotated[str, MinLen(1)]
    """The job file, relative to the batch file."""
    objective: BatchObjective = field(default_factory=BatchObjective)
    limits: BatchLimits = field(default_factory=BatchLimits)
    early_stop: EarlyStop | None = None
    """Early stop; None: every run continues to its end."""
    reuse: Sharing = "never"
    """Reuse of a machine for several points, one after the other."""
    pack: Sharing = "never"
    """Use of a machine with several GPUs for several points at once."""

    @property
    def may_share_machines(self) -> bool:
        """Return whether its points may share machines."""
        return "auto" in (self.reuse, self.pack)

    @property
    def early_goal(self) -> Goal:
        """Return the best end of the early stop's metric."""
        rule = self.early_stop
        if rule is not None and rule.goal is not None:
            return rule.goal
        return self.objective.goal if rule and rule.metric == self.objective.metric else "min"


def sweep_name(job: str) -> str:
    """Return the default name of a sweep: each job has its own batch."""
    return f"{job[: MAX_NAME - len('-sweep')]}-sweep"


@dataclass(frozen=True, kw_only=True)
class Dimension:
    """A key of a search, with its values."""

    key: str
    kind: Literal["log", "range", "int", "choice"]
    among: tuple[Any, ...]
    """The two ends, the lower one first; for `choice`, all values."""


@dataclass(frozen=True, kw_only=True)
class Search:
    """A search that suggests its next points while the batch runs, by the results so far."""

    samples: int
    """Total number of points."""
    seed: int
    space: tuple[Dimension, ...]
    job_text: str
    """Text of the job file, of which each point is a variation."""
    job_name: str
    base_dir: str
    """Folder to which its paths are relative."""
    now: str | None = None
    """Time of its submit, with its zone: a deadline of 18:00 is the next one after that."""
    share_usd: float | None = None
    """Max. USD of each run; None: the job's limit."""
    code_digest: str | None = None
    """Code of the job, as `JobSpec.code_digest`."""


@dataclass(frozen=True, kw_only=True)
class Budget:
    """Max. total cost of the runs that it counts, reservations included."""

    name: str
    """Name in messages, like "batch lr-width"."""
    usd: float
    batch: str = ""
    """Name of the batch whose runs it counts; empty: all runs of the ledger."""
    since: float | None = None
    """Epoch seconds from which started runs are counted, besides open ones; None: all."""
    hint: str = ""
    """Command to raise it; USD in it is replaced by the sum that is enough."""


@dataclass(frozen=True, kw_only=True)
class BudgetUse:
    """Use of a budget by its runs."""

    budget: Budget
    spent_usd: float
    """Cost of the runs so far."""
    reserved_usd: float
    """Max. further cost of the open runs."""

    @property
    def held_usd(self) -> float:
        """Return the sum of spent and reserved USD."""
        return self.spent_usd + self.reserved_usd

    @property
    def left_usd(self) -> float:
        """Return the USD left for further runs; infinite without a limit."""
        return max(0.0, self.budget.usd - self.held_usd)


@dataclass(frozen=True, kw_only=True)
class BatchPoint:
    """One set of values, with the job that results from it."""

    id: str
    """Hash of its values and of the job, independent of its place in the file."""
    values: Mapping[str, Any]
    """Values by key, in the order of the file."""
    spec_json: str = field(metadata=HIDDEN)
    """The validated JobSpec as JSON."""
    number: int = 0
    """Number in the ledger, from 1; unique within a batch."""
    wanted: bool = True
    """True if the newest file of the batch has it; other points are not started any more."""
    starts: int = 1
    """Number of requested starts; more than one after a retry by the user."""

    @cached_property
    def shown(self) -> dict[str, Any]:
        """Return the values with `<secret>` in the place of each secret."""
        return public_values(self.values)


@dataclass(frozen=True, kw_only=True)
class Batch:
    """A batch in the ledger. Another file of the same name adds its points to it."""

    name: str
    spec: BatchSpec
    provider: str
    folder: str
    """Folder that holds the output folders of its runs."""
    created_at: float
    opened_at: float
    """Time of its last submit or resume: earlier reasons to end it no longer count."""
    request: UserRequest = UserRequest.NONE
    """Request of its user; STOP: nothing new is started, and running runs are stopped."""
    reason: str = ""
    """Reason why it ended before its last point; empty while it continues, or when all have ended."""
    search: Search | None = None
    """Its search; None: its file has all of its points."""
    revision: int = 0
    """Number of changes to its points, after each of which the driver reads them again."""
    computer: str = ""
    """Computer that has its folder, as `Run.computer`."""
    home: str = ""
    """Computer on which its newest file was read, as `Run.home`."""

    @property
    def resume_command(self) -> str:
        """Return the command that continues it; empty where its own budget must be raised first."""
        return "" if self.reason.startswith(f"batch {self.name}: ") else f"vastrun batch resume {self.name}"


@dataclass(frozen=True, kw_only=True)
class BatchProgress:
    """Progress of a batch."""

    points: int
    waiting: int
    running: int
    succeeded: int
    pruned: int
    failed: int
    spent_usd: float
    reserved_usd: float
    """USD that the open runs may still cost, beyond what is spent."""
    usd_per_hour: float
    """USD per hour of all rented machines now."""
    forecast_usd: float | None
    """Expected total USD, if the rest costs what the ended points did; None: none has ended yet."""
    machines: int = 0
    """Number of machines that are held for its points, or will be."""
    idle_usd: float = 0.0
    """USD of held machines beyond the shares of the runs on them; part of what is spent."""

    @property
    def ended(self) -> int:
        """Number of points that have ended, with any verdict."""
        return self.points - self.waiting - self.running

    def budget_ends_in_s(self, budget_usd: float | None) -> float | None:
        """Return the seconds until the budget is spent at this rate; None where the points end before
        that."""
        if budget_usd is None or self.usd_per_hour <= 0:
            return None
        if self.forecast_usd is not None and self.forecast_usd <= budget_usd:
            return None
        return max(0.0, budget_usd - self.spent_usd) / self.usd_per_hour * 3600


def pruning_reason(events: Iterable[Event]) -> str:
    """Return the reason for the run's pruning, by its diary; empty when it is not pruned."""
    texts = [event.text for event in events if event.told == PRUNING]
    return texts[-1].removeprefix(PRUNED_PREFIX) if texts else ""
