"""Together: what a node waits for before it goes on, and what becomes of it when another one failed.

A run with one node waits for nobody. All is decided by the rows: it holds after a kill, too.
"""

from __future__ import annotations

import shlex
from collections.abc import Callable, Sequence
from dataclasses import replace

from vastrun.contract import layout
from vastrun.launcher.core import Cause, Phase, Run
from vastrun.launcher.core.errors import AuthError, ProviderError, UnreachableError
from vastrun.launcher.core.phases import Result
from vastrun.launcher.decisions.nodes import (
    MAX_EXPLAIN_S,
    have_reached,
    is_replacement,
    may_rent,
    needs_node_0,
)
from vastrun.launcher.decisions.policy import DESTROY_TRIES, link_mbps
from vastrun.launcher.flow.context import RunContext
from vastrun.launcher.flow.phase_result import PhaseResult
from vastrun.launcher.gate.rendezvous import parse_rendezvous
from vastrun.launcher.ports import Remote

_POLL_INTERVAL_S = 0.5
_MAX_UNDRIVEN_S = 30.0
"""So long a node may have no driver: its launcher may just be about to begin."""


def wait_for_leader(context: RunContext) -> PhaseResult | None:
    """Return once node 0 found nothing wrong with the job, or with why the run ends before."""
    return (
        _wait_for_nodes(context, lambda others: have_reached(others[:1], Phase.RENT))
        if context.run.leader
        else None
    )


def wait_for_turn_to_rent(context: RunContext) -> PhaseResult | None:
    """Return once it is this node's turn, or with why the run ends before: one after the other rents."""
    return _wait_for_nodes(context, lambda others: may_rent(context.run, others))


def must_wait_for_nodes(context: RunContext) -> bool:
    """Tell whether another node is not ready to train yet. Who joins a training waits for none."""
    return not context.nodes.replaces and not have_reached(context.nodes.other_rows(), Phase.TRAIN)


def with_failed_node(context: RunContext, end: PhaseResult) -> PhaseResult:
    """Return how the training ended here, or on the node that failed first: that one says why.

    A node that lost its peers knows no more than that. What became of them is seen from here, soon.
    """
    if context.nodes.is_alone or end.cause is None:
        return end
    until = context.now() + (MAX_EXPLAIN_S if end.cause is Cause.COMMUNICATION else 0.0)
    while (other := context.nodes.end(fresh=True)) is None or other.cause is Cause.COMMUNICATION:
        if context.now() >= until:
            return end
        context.wait(_POLL_INTERVAL_S)
    return other


def first_cause(context: RunContext, end: PhaseResult) -> PhaseResult:
    """Return why the run ends: as here, or as another node has noted before this one.

    Ranks are put in order on the machines, where all clocks are compared. What the launcher alone sees, such
    as that a machine is gone, is in the order in which it was seen: by the rows, and so by no clock at all.
    """
    other = context.nodes.end(fresh=True)
    if other is None or (other.cause is Cause.COMMUNICATION and end.cause is not Cause.COMMUNICATION):
        return end
    return other


def check_network(context: RunContext, remote: Remote) -> None:
    """Check that this node's machine is on the network of its run, where its provider makes one.

    Raises BoxError when it is not; UnreachableError.
    """
    networks = context.services.provider.abilities.networks
    if networks is not None and not context.nodes.is_alone:
        networks.rendezvous(context.nodes.labels[0], remote)


def remove_network(context: RunContext) -> None:
    """Remove the network of the run, whose machines are gone. One that stays costs nothing: it is told."""
    networks = context.services.provider.abilities.networks
    if networks is None or context.nodes.is_alone or context.run.leader:
        return
    try:
        networks.remove_network(context.run.label)
    except (AuthError, ProviderError) as error:
        context.report(f"the run's network is left: {error}; `vastrun reap` removes it")


def send_node_env(context: RunContext, remote: Remote) -> None:
    """Tell the box which node it is, and where it meets the others. Raises ProviderError."""
    if context.nodes.is_alone:
        return
    first = context.run if not context.run.leader else context.services.ledger.get(context.run.leader)
    place = {"VASTRUN_NODE": str(context.run.node), "VASTRUN_RENDEZVOUS": _rendezvous(context, first, remote)}
    if context.nodes.replaces:  # nobody is there to measure the link with: the others train
        place["VASTRUN_JOINS"] = "1"
    elif min_mbps := link_mbps(context.spec, free=context.services.provider.free):
        place["VASTRUN_LINK_MBPS"] = f"{min_mbps:g}"
    text = "".join(f"{name}={shlex.quote(value)}\n" for name, value in place.items())
    remote.write(layout.NODE_ENV, text.encode())


def finish_nodes(context: RunContext) -> PhaseResult | None:
    """Return None once no other node has a machine, and node 0 has the cause of all; else what is left."""
    if context.nodes.is_alone or context.run.leader:
        return None
    since: dict[str, float] = {}
    while left := [other for other in context.nodes.other_rows(fresh=True) if other.phase is not Phase.ENDED]:
        for other in left:
            if context.services.ledger.driver(other.id) is not None:
                since.pop(other.id, None)
            elif (
                _could_not_destroy(other)
                or context.now() - since.setdefault(other.id, context.now()) > _MAX_UNDRIVEN_S
            ):
                detail = f"node {other.node}: its machine still exists"
                return PhaseResult(result=Result.FAILED, detail=detail)
        context.wait(_POLL_INTERVAL_S)
    end = context.nodes.end(fresh=True)
    if context.run.cause is None and end is not None:
        context.report(f"{end.result}: {end.detail}")
        context.save(cause=end.cause, detail=end.detail, failed_in=end.failed_in, failed_node=end.node)
    if needs_node_0(context.run, context.spec):
        context.report(
            "all nodes ended with node 0: they meet on it, and the checkpoints that come home are its own; "
            f"`retry: {{{context.run.cause}: 1}}` begins anew from the newest"
        )
    for other in context.nodes.other_rows() if context.run.cause is None else ():
        if other.cause is not None:
            which = "another machine of " if is_replacement(other) else ""
            context.report(
                f"the others went on without {which}node {other.node}: {other.cause}: {other.detail}"
            )
    return None


def _could_not_destroy(other: Run) -> bool:
    return other.phase is Phase.DESTROY and other.destroy_tries >= DESTROY_TRIES


def _wait_for_nodes(context: RunContext, is_due: Callable[[Sequence[Run]], bool]) -> PhaseResult | None:
    """Return None once that is so of the other nodes, or with the end of the run."""
    while not is_due(context.nodes.other_rows(fresh=True)):
        if context.is_stopping():
            return context.stopped("before all nodes were ready")
        if (end := context.nodes.end()) is not None:
            return end
        context.wait(_POLL_INTERVAL_S)
    return context.nodes.end()


def _rendezvous(context: RunContext, first: Run, remote: Remote) -> str:
    """Where node 0 is reached, as its provider says now, or as its box does. `remote`: of this node.

    Of a machine that is gone or has ended nobody says it, and node 0's own thread finds out why: that is the
    cause, so this node only waits. Raises UnreachableError, ProviderError.
    """
    machine = None
    if first.instance_id is not None:
        machine = context.services.provider.machine(first.instance_id)
    networks = context.services.provider.abilities.networks
    if machine is None or (networks is None and not machine.rendezvous and machine.state != "running"):
        raise UnreachableError("node 0 has no machine now on which the nodes could meet")
    if networks is None:
        return parse_rendezvous(machine)
    machine = replace(machine, label=first.label)  # the user may have given it another one
    remote_0 = remote if first.id == context.run.id else context.open_shell(machine)
    try:
        place = networks.rendezvous(first.label, remote_0)
    finally:
        if remote_0 is not remote:
            remote_0.close()
    return parse_rendezvous(replace(machine, rendezvous=place))
