"""Node sync: what a node waits for before it continues, and how it ends when another one has failed.

A run with one node never waits. All is decided by the rows, so that it holds after a kill, too.
"""

from __future__ import annotations

import math
import shlex
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace

from vastrun.contract import layout
from vastrun.launcher.core import Cause, Phase, Run
from vastrun.launcher.core.errors import AuthError, EndedError, GoneError, ProviderError, UnreachableError
from vastrun.launcher.core.market import ENDED
from vastrun.launcher.decisions.nodes import MAX_EXPLAIN_S, MAX_PROVIDER_WORD_S, have_reached, may_rent
from vastrun.launcher.decisions.policy import DESTROY_TRIES, link_mbps
from vastrun.launcher.flow.context import RunContext
from vastrun.launcher.flow.lease_expiry import outputs_until
from vastrun.launcher.flow.run_state import PhaseResult, RunStopped, failed
from vastrun.launcher.gate.box_reader import fetch_status
from vastrun.launcher.gate.rendezvous import parse_rendezvous
from vastrun.launcher.ports import Remote

_POLL_INTERVAL_S = 0.5
_MAX_UNDRIVEN_S = 30.0
"""Max. seconds for which a node may have no driver: its launcher may be about to start."""


def wait_for_leader(context: RunContext) -> PhaseResult | None:
    """Return None once node 0 has planned the job, else the result with which the run ends before."""
    if not context.run.leader:
        return None
    return _wait_for_nodes(context, lambda others: have_reached(others[:1], Phase.RENT))


def wait_for_turn_to_rent(context: RunContext) -> PhaseResult | None:
    """Return None once it is this node's turn, else the result with which the run ends: nodes rent one by
    one."""
    return _wait_for_nodes(context, lambda others: may_rent(context.run, others))


def with_failed_node(context: RunContext, end: PhaseResult) -> PhaseResult:
    """Return the result of the training here, or of the node that failed first, which knows the cause.

    A node that lost its peers knows nothing else. What became of a silent one is its provider's word, which
    may take minutes: a controller has to miss the node first.
    """
    if context.nodes.is_alone or end.cause is None:
        return end
    until, asks_at = math.inf, context.now() + (MAX_EXPLAIN_S if end.cause is Cause.COMMUNICATION else 0.0)
    with suppress(RunStopped):
        while (other := context.nodes.end(fresh=True)) is None or other.cause is Cause.COMMUNICATION:
            if (now := context.now()) >= asks_at:
                silent = _silent_node(context) if end.cause is Cause.COMMUNICATION else None
                if silent is None:
                    return end
                if now >= until:
                    detail = f"it does not answer, and {context.services.provider.name} did not say why"
                    return replace(end, cause=Cause.HOST, detail=detail, node=silent)
                if until == math.inf:
                    # No longer than the outputs of this node wait for their download.
                    wait_s = min(MAX_PROVIDER_WORD_S, (outputs_until(context) - now) / 2)
                    until = now + wait_s
                    context.report(
                        f"waiting for the provider's word about node {silent}, which does not answer; "
                        f"{wait_s / 60:.0f} min at most"
                    )
                asks_at = now + MAX_EXPLAIN_S
            context.wait(_POLL_INTERVAL_S)
        return other
    return end


def _silent_node(context: RunContext) -> int | None:
    """Return a node that should train and does not answer; None: all do."""
    for other in context.nodes.other_rows(fresh=True):
        if other.phase is not Phase.TRAIN or other.instance_id is None:
            continue
        try:
            machine = context.services.provider.machine(other.instance_id)
            if machine is None or machine.state == ENDED:
                return other.node  # why, its own thread asks: files of an ended job may still be there
            remote = context.open_shell(replace(machine, label=other.label))
            try:
                fetch_status(remote)
            finally:
                remote.close()
        except (EndedError, GoneError, UnreachableError):
            return other.node
        except ProviderError:  # it answers, whatever it says
            continue
    return None


def check_network(context: RunContext, remote: Remote) -> None:
    """Check that this node's machine is on the run's network, where the provider creates one.

    Raises BoxError when it is not; UnreachableError.
    """
    networks = context.services.provider.abilities.networks
    if networks is not None and not context.nodes.is_alone:
        networks.rendezvous(context.nodes.labels[0], remote)


def remove_network(context: RunContext) -> None:
    """Remove the network of the run, whose machines are gone. A failure is reported: a network costs
    nothing."""
    networks = context.services.provider.abilities.networks
    if networks is None or context.nodes.is_alone or context.run.leader:
        return
    try:
        networks.remove_network(context.run.label)
    except (AuthError, ProviderError) as error:
        context.report(f"the run's network could not be removed: {error}; `vastrun reap` removes it")


def send_node_env(context: RunContext, remote: Remote) -> None:
    """Write the node's number and the rendezvous address to the box. Raises ProviderError."""
    if context.nodes.is_alone:
        return
    first = context.run if not context.run.leader else context.services.ledger.get(context.run.leader)
    place = {"VASTRUN_NODE": str(context.run.node), "VASTRUN_RENDEZVOUS": _rendezvous(context, first, remote)}
    if min_mbps := link_mbps(context.spec, free=context.services.provider.free):
        place["VASTRUN_LINK_MBPS"] = f"{min_mbps:g}"
    text = "".join(f"{name}={shlex.quote(value)}\n" for name, value in place.items())
    remote.write(layout.NODE_ENV, text.encode())


def finish_nodes(context: RunContext) -> PhaseResult | None:
    """Return None once no other node has a machine, with the cause of all in node 0's row; else a failed
    result."""
    if context.nodes.is_alone or context.run.leader:
        return None
    since: dict[str, float] = {}
    while left := [other for other in context.nodes.other_rows(fresh=True) if other.phase is not Phase.ENDED]:
        for other in left:
            if context.services.ledger.driver(other.id) is not None:
                since.pop(other.id, None)
            elif (
                other.phase is Phase.DESTROY and other.destroy_tries >= DESTROY_TRIES
            ) or context.now() - since.setdefault(other.id, context.now()) > _MAX_UNDRIVEN_S:
                return failed(None, f"node {other.node}: its machine still exists")
        context.wait(_POLL_INTERVAL_S)
    end = context.nodes.end()
    if context.run.cause is None and end is not None:
        context.report(f"{end.result}: {end.detail}")
        context.save(cause=end.cause, detail=end.detail, failed_in=end.failed_in, failed_node=end.node)
    return None


def _wait_for_nodes(context: RunContext, is_due: Callable[[Sequence[Run]], bool]) -> PhaseResult | None:
    """Return None once `is_due` is true of the other nodes' rows, else the result with which the run ends."""
    while not is_due(context.nodes.other_rows(fresh=True)):
        if (end := context.nodes.end()) is not None:
            return end
        context.wait(_POLL_INTERVAL_S)
    return context.nodes.end()


def _rendezvous(context: RunContext, first: Run, remote: Remote) -> str:
    """Return the address of node 0, as its provider or its box reports it now. `remote`: this node's.

    Raises UnreachableError where node 0's machine is gone: node 0's own thread finds the cause, so this
    node only waits. Raises ProviderError.
    """
    machine = None
    if first.instance_id is not None:
        machine = context.services.provider.machine(first.instance_id)
    networks = context.services.provider.abilities.networks
    if machine is None or (networks is None and not machine.rendezvous and machine.state != "running"):
        raise UnreachableError("node 0 has no machine now to host the rendezvous")
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
