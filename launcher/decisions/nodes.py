"""Nodes of a run: which are waited for, and whose end ends them all. Pure functions.

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

if TYPE_CHECKING:
    from vastrun.launcher.core.job import JobSpec

STOP_S = 30.0
"""Max. seconds for a node to stop when another has failed, which its own supervisor notices."""
MAX_EXPLAIN_S = 15.0
"""Seconds that a node that lost its peers waits for the launcher to find out why, between two looks."""
MAX_PROVIDER_WORD_S = 480.0
"""Max. seconds that it waits while a node is silent: with SlurmdTimeout=300, Slurm misses it after 400 s."""
_ORDER: Mapping[Phase, int] = {phase: number for number, phase in enumerate(Phase)}
_SHARED_CAUSES = (Cause.STOPPED, Cause.PRUNED, Cause.TIME_LIMIT, Cause.MONEY_LIMIT)
"""Causes that all nodes share, so that no node is named."""


def have_reached(runs: Iterable[Run], phase: Phase) -> bool:
    """Return whether all runs are in that phase or a later one."""
    return all(_ORDER[run.phase] >= _ORDER[phase] for run in runs)


def may_rent(run: Run, other_rows: Sequence[Run]) -> bool:
    """Return whether this node may rent: all are planned, and earlier ones have their machines."""
    before = (other for other in other_rows if other.node < run.node)
    return have_reached(other_rows, Phase.RENT) and have_reached(before, Phase.BOOT)


def network_of(run: Run, other_rows: Sequence[Run]) -> str:
    """Return the market's network that earlier nodes chose; empty: none, or any."""
    before = {other.node: other.offer for other in other_rows if other.node < run.node and other.offer}
    return before[min(before)].network if before else ""


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
    if spec.nodes == 1 or not any(offer.network for offer in offers):
        return list(offers)
    hosts: defaultdict[str, set[str]] = defaultdict(set)
    for offer in offers:
        hosts[offer.network].add(offer.host)
    enough = {name for name, members in hosts.items() if name and len(members) >= spec.nodes}
    if left := [offer for offer in offers if offer.network in ({network} if network else enough)]:
        return left
    where = f"the network of the run's other nodes, {network}, has" if network else "no network of it has"
    requested = "another machine that fits" if network else f"{spec.nodes} machines that fit"
    raise NoOfferError(
        f"nodes: {len(offers)} offers of {provider} fit, but {where} {requested}: {why_one_node}",
        hint=alternative_to_nodes(spec),
    )


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
    return replace(run, usd_per_hour=sum(one.usd_per_hour for one in (run, *other_rows)))


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
