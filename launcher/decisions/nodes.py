"""Nodes of a run: which are waited for, whose end ends them all, and which are replaced. Pure functions.

Decided by the rows of the ledger alone, so that a later launcher decides the same.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from vastrun.launcher.core import Cause, Event, Offer, Phase, Run
from vastrun.launcher.core.bills import cost_usd
from vastrun.launcher.core.errors import NoOfferError, UsageError
from vastrun.launcher.decisions import policy
from vastrun.launcher.decisions.estimates import usd

if TYPE_CHECKING:
    from vastrun.launcher.core.job import JobSpec

STOP_S = 30.0
"""Max. seconds for a node to stop when another has failed, which its own supervisor notices."""
MAX_EXPLAIN_S = 15.0
"""Max. seconds that a node that lost its peers waits for the launcher to find out why."""
_ORDER: Mapping[Phase, int] = {phase: number for number, phase in enumerate(Phase)}
_SHARED_CAUSES = (Cause.STOPPED, Cause.PRUNED, Cause.TIME_LIMIT, Cause.MONEY_LIMIT)
"""Causes that all nodes share, so that no node is named."""
REPLACEABLE_CAUSES: frozenset[Cause] = frozenset(
    (Cause.LOST, Cause.PREEMPTED, Cause.HOST, Cause.SIGNAL, Cause.COMMUNICATION, Cause.HANG)
)
"""Causes that another machine may cure, unlike an error of the program or a full disk."""
_HOUR_S = 3600.0
_MIN_USD = 0.01


def have_reached(runs: Iterable[Run], phase: Phase) -> bool:
    """Return whether all runs are in that phase or a later one."""
    return all(_ORDER[run.phase] >= _ORDER[phase] for run in runs)


def may_rent(run: Run, other_rows: Sequence[Run]) -> bool:
    """Return whether this node may rent: all are planned, and earlier ones have their machines."""
    before = (other for other in other_rows if other.node < run.node)
    return have_reached(other_rows, Phase.RENT) and have_reached(before, Phase.BOOT)


def network_of(run: Run, other_rows: Sequence[Run]) -> str:
    """Return the market's network that earlier nodes chose; empty: none, or any."""
    before = [other for other in other_rows if other.node < run.node and other.offer is not None]
    first = min(before, key=lambda other: other.node, default=None)
    return first.offer.network if first is not None and first.offer is not None else ""


def check_node_count(spec: JobSpec, provider: str, max_nodes: int, why_one_node: str) -> None:
    """Raise UsageError when the job asks for more machines than one run can have on the provider."""
    if spec.nodes > max_nodes:
        raise UsageError(
            f"nodes: the job asks for {spec.nodes} machines; {provider} rents at most {max_nodes}"
            + (f": {why_one_node}" if why_one_node else ""),
            hint="--set nodes=1 with more GPUs on it, or another provider: docs/nodes.md",
        )


def offers_on_one_network(
    spec: JobSpec, offers: Sequence[Offer], network: str, provider: str, why_one_node: str
) -> list[Offer]:
    """Return the offers, in their order, whose machines reach each other: those on `network`.

    `network` empty: on any network with enough hosts for all nodes. Where the market has no networks, all
    machines reach each other. Raises NoOfferError when no network has enough machines.
    """
    left = _on_one_network(offers, spec.nodes, network)
    if left:
        return left
    where = f"the network of the run's other nodes, {network}, has" if network else "no network of it has"
    requested = "another machine that fits" if network else f"{spec.nodes} machines that fit"
    raise NoOfferError(
        f"nodes: {len(offers)} offers of {provider} fit, but {where} {requested}: {why_one_node}",
        hint=alternative_to_nodes(spec),
    )


def _on_one_network(offers: Sequence[Offer], nodes: int, network: str) -> list[Offer]:
    if nodes == 1 or not any(offer.network for offer in offers):
        return list(offers)
    hosts: defaultdict[str, set[str]] = defaultdict(set)
    for offer in offers:
        hosts[offer.network].add(offer.host)
    enough = {name for name, members in hosts.items() if len(members) >= nodes}
    return [offer for offer in offers if offer.network in ({network} if network else enough - {""})]


def alternative_to_nodes(spec: JobSpec) -> str:
    """Describe the alternative to several nodes on a market without a network for them."""
    gpus = f" --set resources.gpus={spec.nodes * spec.resources.gpus}" if spec.resources.gpus else ""
    ranks = f" --set ranks={spec.world_size}" if spec.ranks else ""
    return f"one machine with more on it: --set nodes=1{gpus}{ranks}; or --provider slurm or docker"


def first_failed(other_rows: Sequence[Run]) -> Run | None:
    """Return the row with the cause for which all nodes end; None: none failed.

    A node that lost another one knows less than that one's row.
    """
    failed = [other for other in other_rows if other.cause is not None]
    return min(failed, key=lambda other: (other.cause is Cause.COMMUNICATION, other.node), default=None)


def required_nodes(other_rows: Sequence[Run], min_nodes: int) -> list[Run]:
    """Return the rows of the other nodes without which this one cannot continue.

    Nodes that train apart continue without one that has trained and left, while `min_nodes` of them
    remain. Node 0, which hosts the rendezvous, is always required. A replacement counts once it trains.
    """
    nodes = list(_by_node(other_rows).values())
    still_there = [other for other in nodes if not _has_left(other)]
    return still_there if 1 + len(still_there) >= min_nodes else nodes


def needs_node_0(run: Run, spec: JobSpec) -> bool:
    """Return whether the run ended with its node 0, where it could have continued without another node."""
    left = run.cause is not None and run.cause not in _SHARED_CAUSES and run.failed_node == 0 and run.step > 0
    return left and spec.min_nodes < spec.nodes


def _by_node(rows: Iterable[Run]) -> Mapping[int, Run]:
    """Return the row of each node: that of its last machine that trained."""
    found: dict[int, Run] = {}
    for row in sorted(rows, key=lambda row: row.created_at):
        if row.step > 0 or not is_replacement(row):
            found[row.node] = row
    return found


def is_replacement(row: Run) -> bool:
    """Return whether the machine was rented to replace one that left, whose row is its parent."""
    return bool(row.leader and row.parent)


def current_machines(rows: Iterable[Run]) -> list[Run]:
    """Return the rows without those of machines that were replaced."""
    rows = list(rows)
    replaced = {row.parent for row in rows if is_replacement(row)}
    return [row for row in rows if row.id not in replaced]


def _has_left(row: Run) -> bool:
    if row.node == 0 or row.cause is None:
        return False
    return is_replacement(row) or (row.cause not in _SHARED_CAUSES and row.step > 0)


def with_node_name(detail: str, cause: Cause | None, node: int | None) -> str:
    """Return the detail with the node's number; `node` is None where the run has one node."""
    return detail if node is None or cause in _SHARED_CAUSES or not detail else f"node {node}: {detail}"


def total_usd(runs: Iterable[Run], now: float) -> float:
    """Return the cost so far of the machines of all these rows, in USD."""
    return sum(cost_usd(run, now) for run in runs)


def at_total_price(run: Run, other_rows: Sequence[Run]) -> Run:
    """Return the run at the price of all of its machines together, for display."""
    if not other_rows:
        return run
    return replace(run, usd_per_hour=sum(one.usd_per_hour for one in current_machines((run, *other_rows))))


def joint_diary(events: Sequence[Event], other_rows: Iterable[Sequence[Event]]) -> list[Event]:
    """Return the diary of node 0 with the cost of all nodes up to each event, as far as their diaries say.

    `others`: the diaries of the further nodes. Costs in notifications include all nodes already.
    """
    diaries = [([one.at for one in diary], [one.usd for one in diary]) for diary in other_rows]
    joint = []
    for event in events:
        places = [(usd, bisect_right(at, event.at)) for at, usd in diaries]
        elsewhere = 0.0 if event.told else sum(usd[place - 1] for usd, place in places if place)
        joint.append(replace(event, usd=event.usd + elsewhere))
    return joint


def replacement_job(
    spec: JobSpec, run: Run, other_rows: Sequence[Run], former: Run, now: float, *, free: bool
) -> JobSpec | str:
    """Return the job of a replacement, with the rest of its node's money and time.

    Otherwise returns the reason why there is none. For the runs see `is_replacement_due`. `free`: machines
    cost nothing, and are ready at once.
    """
    max_count = max_replacements(spec)
    if sum(map(is_replacement, other_rows)) >= max_count:
        return f"train.diloco.replacements allows {max_count} in all"
    if former.cause not in REPLACEABLE_CAUSES:
        return f"another one does not cure {former.cause}"
    min_s = 0.0 if free else policy.START_S + policy.MIN_TRAINING_S
    left_s = _left_s(spec, run, now)
    if left_s < min_s:
        return f"{max(0.0, left_s):.0f} s are left; a machine and one minute of training need {min_s:.0f} s"
    hours = spec.limits.hours - (now - (run.rented_at or now)) / _HOUR_S
    return _within_share(replace(spec, limits=replace(spec.limits, hours=hours)), other_rows, former, now)


def one_machine_job(spec: JobSpec) -> JobSpec:
    """Return the job of one of its machines, with its share of the money, to describe an offer."""
    return replace(spec, nodes=1, limits=replace(spec.limits, usd=policy.share_usd(spec)))


def max_replacements(spec: JobSpec) -> int:
    """Return the max. number of replacements of all nodes together."""
    return 0 if spec.train is None else spec.train.diloco.replacements


def is_replacement_due(spec: JobSpec, run: Run, other_rows: Sequence[Run], former: Run) -> bool:
    """Return whether the others continue without the node of `former`, whose machine is gone.

    `run`: node 0; `others`: the rows of all further nodes, `former` among them.
    """
    if any(row.parent == former.id for row in other_rows):
        return False
    trains = run.phase is Phase.TRAIN and run.cause is None and run.step > 0
    left = former.phase is Phase.ENDED and former.cause is not None
    return trains and left and first_failed(required_nodes(other_rows, spec.min_nodes)) is None


def _left_s(spec: JobSpec, run: Run, now: float) -> float:
    """Return the seconds until the last step at the run's pace, or until its hours or its deadline end."""
    ends = [(run.rented_at or now) + spec.limits.hours * _HOUR_S, policy.deadline_of(spec)]
    left = [end - now for end in ends if end is not None]
    if run.steps_per_s and run.steps:
        left.append((run.steps - run.step) / run.steps_per_s)
    return min(left)


def _within_share(spec: JobSpec, other_rows: Iterable[Run], former: Run, now: float) -> JobSpec | str:
    """Return the job with the rest of its node's share of the money, or the reason why that is too little."""
    share_usd = policy.share_usd(spec)
    if share_usd is None:
        return spec
    left_usd = share_usd - total_usd((row for row in other_rows if row.node == former.node), now)
    min_usd = _MIN_USD if former.offer is None else max(_MIN_USD, policy.min_usd(former.offer))
    if left_usd < min_usd:
        return (
            f"{usd(max(0.0, left_usd))} of the node's share of limits.usd is left; loading a machine and one "
            f"minute of training cost {usd(min_usd)}"
        )
    return replace(spec, limits=replace(spec.limits, usd=left_usd * spec.nodes))
