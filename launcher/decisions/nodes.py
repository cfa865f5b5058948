"""The nodes of a run with several: who is waited for, and whose end is the end of all. Pure.

All of it is read off the rows of the ledger, so that it holds for a launcher that comes later, too.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from vastrun.launcher.core import Cause, Event, Offer, Phase, Run
from vastrun.launcher.core.bills import cost_usd

if TYPE_CHECKING:
    from vastrun.launcher.core.job import JobSpec

STOP_S = 30.0
"""How long a node may take to stop when another has failed. Its supervisor has heard of that by itself."""
MAX_EXPLAIN_S = 15.0
"""How long a node that lost its peers waits for the launcher to see what became of them."""
_ORDER: Mapping[Phase, int] = {phase: number for number, phase in enumerate(Phase)}
_SHARED_CAUSES = (Cause.STOPPED, Cause.PRUNED, Cause.TIME_LIMIT, Cause.MONEY_LIMIT)
"""Causes that come to every node alike: there is none to be named."""


def have_reached(runs: Iterable[Run], phase: Phase) -> bool:
    """Tell whether all of them are in that phase, or beyond."""
    return all(_ORDER[run.phase] >= _ORDER[phase] for run in runs)


def may_rent(run: Run, others: Sequence[Run]) -> bool:
    """Tell whether this node may rent: all are planned, and those before it have their machine."""
    before = (other for other in others if other.node < run.node)
    return have_reached(others, Phase.RENT) and have_reached(before, Phase.BOOT)


def network_of(run: Run, others: Sequence[Run]) -> str:
    """Return the network of the market that the nodes before this one chose; empty: none, or it is free."""
    before = [other for other in others if other.node < run.node and other.offer is not None]
    first = min(before, key=lambda other: other.node, default=None)
    return first.offer.network if first is not None and first.offer is not None else ""


def offers_on_one_network(offers: Sequence[Offer], nodes: int, network: str = "") -> list[Offer]:
    """Return the offers, in their order, whose machines reach each other: those on that network.

    Empty: those on any network that has hosts enough for all nodes. Where the market has no networks of its
    own, all reach each other.
    """
    if nodes == 1 or not any(offer.network for offer in offers):
        return list(offers)
    hosts: defaultdict[str, set[str]] = defaultdict(set)
    for offer in offers:
        hosts[offer.network].add(offer.host)
    enough = {name for name, members in hosts.items() if len(members) >= nodes}
    return [offer for offer in offers if offer.network in ({network} if network else enough - {""})]


def alternative_to_nodes(spec: JobSpec) -> str:
    """Say what could be had instead of nodes on a market without a network for them."""
    gpus = f" --set resources.gpus={spec.nodes * spec.resources.gpus}" if spec.resources.gpus else ""
    ranks = f" --set ranks={spec.world_size}" if spec.ranks else ""
    return f"one machine with more on it: --set nodes=1{gpus}{ranks}; or --provider slurm or docker"


def first_failed(others: Sequence[Run]) -> Run | None:
    """Return the row that says why all have to end; None: none failed.

    A node that no longer hears another knows less than the row of that other one.
    """
    failed = [other for other in others if other.cause is not None]
    return min(failed, key=lambda other: (other.cause is Cause.COMMUNICATION, other.node), default=None)


def required_nodes(others: Sequence[Run], min_nodes: int) -> list[Run]:
    """Return the rows of the other nodes without which this one does not go on.

    Nodes that train apart go on without one that has trained and left, while `least` of them are there.
    Node 0, where they meet, is always needed. A machine in place of one that left counts once it trains.
    """
    nodes = list(_by_node(others).values())
    still_there = [other for other in nodes if not _has_left(other)]
    return still_there if 1 + len(still_there) >= min_nodes else nodes


def needs_node_0(run: Run, spec: JobSpec) -> bool:
    """Tell whether the run ended with its node 0, where another node could have left."""
    left = run.cause is not None and run.cause not in _SHARED_CAUSES and run.failed_node == 0 and run.step > 0
    return left and spec.min_nodes < spec.nodes


def _by_node(rows: Iterable[Run]) -> Mapping[int, Run]:
    """The row of each node: that of its last machine, of those that came to train."""
    found: dict[int, Run] = {}
    for row in sorted(rows, key=lambda row: row.created_at):
        if row.step > 0 or not is_replacement(row):
            found[row.node] = row
    return found


def is_replacement(row: Run) -> bool:
    """Tell whether its machine was rented in place of one that left, whose row is its parent."""
    return bool(row.leader and row.parent)


def current_machines(rows: Iterable[Run]) -> list[Run]:
    """Return the rows without those of machines in whose place others were rented."""
    rows = list(rows)
    replaced = {row.parent for row in rows if is_replacement(row)}
    return [row for row in rows if row.id not in replaced]


def _has_left(row: Run) -> bool:
    if row.node == 0 or row.cause is None:
        return False
    return is_replacement(row) or (row.cause not in _SHARED_CAUSES and row.step > 0)


def with_node_name(detail: str, cause: Cause | None, node: int | None) -> str:
    """Return the detail with the node that it is about; `node` is None where the run has one only."""
    return detail if node is None or cause in _SHARED_CAUSES or not detail else f"node {node}: {detail}"


def total_usd(runs: Iterable[Run], now: float) -> float:
    """Return what the machines of all these rows cost so far."""
    return sum(cost_usd(run, now) for run in runs)


def at_total_price(run: Run, others: Sequence[Run]) -> Run:
    """Return the run as it is shown: at the price of all of its machines together."""
    if not others:
        return run
    return replace(run, usd_per_hour=sum(one.usd_per_hour for one in current_machines((run, *others))))


def joint_diary(events: Sequence[Event], others: Iterable[Sequence[Event]]) -> list[Event]:
    """Return the diary of node 0 with what all nodes had cost by each line, as far as their diaries say.

    `others`: the diaries of the further nodes. Notifications to the user are of all of them already.
    """
    diaries = [([one.at for one in diary], [one.usd for one in diary]) for diary in others]
    joint = []
    for event in events:
        places = [(usd, bisect_right(at, event.at)) for at, usd in diaries]
        elsewhere = 0.0 if event.told else sum(usd[place - 1] for usd, place in places if place)
        joint.append(replace(event, usd=event.usd + elsewhere))
    return joint
