"""Spending: cost of one run, how much of it was training, and a slot's share of its machine's bill. Pure."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from vastrun.launcher.core import Cost, Event, Phase, Run, Verdict
from vastrun.launcher.core.bills import cost_of, counted_of, gpu_seconds, rented_seconds, runs_by_machine
from vastrun.launcher.core.phases import BEFORE_TRAINING
from vastrun.launcher.decisions.holders import holder_of, is_holder


@dataclass(frozen=True, kw_only=True)
class Spending:
    """Cost of one run, or of a part of its time."""

    run: Run
    since: float
    until: float
    """Epoch seconds: from its first machine to the end of its last one, or now."""
    cost: Cost
    idle_usd: float
    """USD of the time in which it did not train: see `idle_usd`."""
    hours: float
    """Hours for which its machines were rented."""
    gpu_hours: float
    """GPU hours that were charged."""
    steps: float
    """Steps done beyond those of the runs that it continues."""
    has_end: bool = True
    """True if the end of the run is in this span."""
    is_held: bool = False
    """True if it held a machine for others, so that its end is neither success nor failure."""

    @property
    def failed(self) -> bool:
        """True if the run ended with any verdict but success."""
        return not self.is_held and self.run.verdict not in (None, Verdict.SUCCEEDED)

    @property
    def finished(self) -> bool:
        """True if the run succeeded in this span."""
        return not self.is_held and self.run.verdict is Verdict.SUCCEEDED and self.has_end

    def within(self, since: float, until: float) -> Spending | None:
        """Return the part in that span, by its share of the hours; None: there is none."""
        begin, end = max(since, self.since), min(until, self.until)
        length_s = self.until - self.since
        if length_s <= 0:
            return self if since <= self.since < until else None
        if end <= begin:
            return None
        share = (end - begin) / length_s
        cost = Cost(
            gpu_usd=self.cost.gpu_usd * share,
            storage_usd=self.cost.storage_usd * share,
            traffic_usd=self.cost.traffic_usd * share,
        )
        return replace(
            self,
            since=begin,
            until=end,
            cost=cost,
            idle_usd=self.idle_usd * share,
            hours=self.hours * share,
            gpu_hours=self.gpu_hours * share,
            steps=self.steps * share,
            has_end=self.has_end and end == self.until,
        )


def spending_of(
    run: Run, now: float, events: Sequence[Event] = (), runs: Mapping[str, Run] | None = None
) -> Spending:
    """Return the spending of the run so far. `events`: its diary. `runs`: those it may continue, by id."""
    rented = runs_by_machine(run)
    cost, counted_usd = cost_of(run, now), counted_of(run, now).usd
    gpus = run.offer.gpus if run.offer else 0
    return Spending(
        run=run,
        since=min((machine.rented_at or now for machine in rented), default=run.created_at),
        until=max((machine.released_at or now for machine in rented), default=run.created_at),
        cost=cost,
        idle_usd=idle_usd(run, counted_usd, events) * (cost.usd / counted_usd if counted_usd else 0.0),
        hours=sum(rented_seconds(machine, now) for machine in rented) / 3600,
        gpu_hours=sum(gpu_seconds(machine, now) for machine in rented) / 3600 * gpus,
        steps=0.0 if run.leader else float(steps_of(run, runs or {})),  # they are those of node 0
    )


def idle_usd(run: Run, usd: float, events: Iterable[Event]) -> float:
    """Return the part of the run's USD for which it did not train, by its diary.

    Each event has the cost so far. Training is the cost from the last event before the phase `train` to
    the last one in it: the job's own set-up, restarts, evaluation and waiting for a launcher are part of
    it. Idle is the rest: loading, boot, upload, download, the end, and any further machine.
    """
    began_usd = ended_usd = 0.0
    for event in events:
        if event.told:  # notifications are about all nodes of a run
            continue
        if event.phase in BEFORE_TRAINING:
            began_usd = event.usd
        elif event.phase is Phase.TRAIN:
            ended_usd = event.usd
    if run.phase is Phase.TRAIN:
        ended_usd = usd
    return usd - min(max(0.0, ended_usd - began_usd), usd)


def steps_of(run: Run, runs: Mapping[str, Run]) -> int:
    """Return the steps done beyond those of the runs of the same job that it continues."""
    furthest, seen = 0, {run.id}
    parent = runs.get(run.parent or "")
    while parent is not None and parent.id not in seen:
        seen.add(parent.id)
        if parent.job == run.job:
            furthest = max(furthest, parent.step)
        parent = runs.get(parent.parent or "")
    return max(0, run.step - furthest)


def counted_in_total(runs: Sequence[Run]) -> frozenset[str]:
    """Return the ids of the runs whose cost makes up the total.

    The share of a run on a slot is part of its holder's bill. Where the holder is not among these runs,
    the share itself counts.
    """
    known = {run.id for run in runs}
    return frozenset(run.id for run in runs if holder_of(run) not in known)


def net_of_shares(spendings: Sequence[Spending]) -> list[Spending]:
    """Return the spendings, with the shares of runs on slots subtracted from the bills of their holders.

    The rest of such a bill is idle cost: loading, waiting, traffic. A run whose holder is not among these
    keeps its own share.
    """
    holders = {one.run.id: one for one in spendings if is_holder(one.run)}
    on: dict[str, list[Spending]] = defaultdict(list)
    for one in spendings:
        if (holder := holder_of(one.run)) in holders and holder is not None:
            on[holder].append(one)
    found = {one.run.id: one for one in spendings}
    for run_id, holder_spending in holders.items():
        found |= {one.run.id: one for one in _split_spending(holder_spending, on[run_id])}
    return [found[one.run.id] for one in spendings]


def _split_spending(holder: Spending, users: Sequence[Spending]) -> list[Spending]:
    """Return the holder with the rest of its bill, and the runs on its slots with their parts of it."""
    time_usd = holder.cost.gpu_usd + holder.cost.storage_usd
    shown_usd = sum(user.cost.usd for user in users)
    factor = min(1.0, time_usd / shown_usd) if shown_usd else 1.0
    storage_part = holder.cost.storage_usd / time_usd if time_usd else 0.0
    used = factor * shown_usd / time_usd if time_usd else 0.0
    left = Cost(
        gpu_usd=holder.cost.gpu_usd * (1 - used),
        storage_usd=holder.cost.storage_usd * (1 - used),
        traffic_usd=holder.cost.traffic_usd,
    )
    idle = replace(
        holder,
        cost=left,
        idle_usd=left.usd,
        hours=holder.hours * (1 - used),
        gpu_hours=holder.gpu_hours * (1 - used),
        is_held=True,
    )
    shares = []
    for user in users:
        usd = user.cost.usd * factor
        cost = Cost(gpu_usd=usd * (1 - storage_part), storage_usd=usd * storage_part)
        shares.append(replace(user, cost=cost, idle_usd=user.idle_usd * factor))
    return [idle, *shares]
