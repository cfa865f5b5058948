"""End of a run: its evidence becomes a cause, and the first cause is the run's."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace
from typing import Any

from vastrun.contract import layout
from vastrun.launcher.config import program_of
from vastrun.launcher.core import BoxStatus, Cause, Evidence, Phase, UserRequest
from vastrun.launcher.core.batch import pruning_reason
from vastrun.launcher.core.errors import VastrunError
from vastrun.launcher.core.phases import Result
from vastrun.launcher.core.verdict import RunAssessment
from vastrun.launcher.decisions.nodes import with_node_name
from vastrun.launcher.decisions.run_assessment import KILLED, assess_run
from vastrun.launcher.flow.context import RunContext
from vastrun.launcher.flow.lease_expiry import find_machine_end, with_outputs_lost
from vastrun.launcher.flow.node_sync import with_failed_node
from vastrun.launcher.flow.progress import last_step, reports_step
from vastrun.launcher.flow.run_state import PhaseResult
from vastrun.launcher.gate.box_reader import fetch_small_file, parse_evidence
from vastrun.launcher.ports import Remote


def end_of_training(context: RunContext, remote: Remote, box_status: BoxStatus) -> PhaseResult:
    """Return the result of a training that is over on the box, by its evidence; save the proofs.

    Raises SliceOverError when the evidence comes too slowly.
    """
    with context.time_slice(900.0):
        outcome, steps = (fetch_small_file(remote, path) for path in (layout.OUTCOME, layout.STEPS))
    evidence = parse_evidence(outcome, steps, box_status.exit_code)
    has_steps = program_of(context.spec).reports_steps or reports_step(box_status)
    planned = last_step(context.spec, box_status) if has_steps else 0
    # What the curves of a short program say may have come after the last status.
    step = max(box_status.step, evidence.outcome.steps_done if evidence.outcome else 0)
    assessment = assess(context, evidence, step=step, steps=planned)
    result = Result.OK if assessment.cause is None else Result.FAILED
    end = PhaseResult(result=result, cause=assessment.cause, detail=assessment.detail, node=assessment.node)
    return with_failed_node(context, _with_provider_cause(context, end, box_status))


def assess(context: RunContext, evidence: Evidence, **seen: int) -> RunAssessment:
    """Assess the evidence, without files that were downloaded by their paths since; save the proofs."""
    if evidence.left_out.count:
        evidence = replace(evidence, left_out=context.services.output_store.left_out(context.run))
    assessment = assess_run(evidence, context.spec, context.run.node)
    context.save(proofs=assessment.proofs, **seen)
    return assessment


def _with_provider_cause(context: RunContext, end: PhaseResult, box_status: BoxStatus) -> PhaseResult:
    """Return the result with the provider's reason where it took the machine back: the box cannot know it."""
    asked_for = context.user_request().cause
    if end.cause is Cause.PREEMPTED and asked_for is not None:  # a batch stops its slots with their machines
        return replace(end, cause=asked_for, detail="stopped at your request")
    if end.cause is not Cause.PREEMPTED and not (end.cause is Cause.HOST and box_status.exit_code == KILLED):
        return end
    provider_end = find_machine_end(context, wait_s=60.0)
    if provider_end is None:
        return end
    return replace(end, cause=provider_end.cause, detail=provider_end.text, node=provider_end.node)


def first_cause(context: RunContext, end: PhaseResult) -> tuple[PhaseResult, dict[str, Any]]:
    """Return a phase's result with its whole detail, and the columns of the row that say why the run ended.

    No columns where the row has a cause: the first one stays.
    """
    run = context.run
    if _is_own_act(context, end):
        end = replace(
            end, detail="the machine ended after those of the other nodes were destroyed", node=None
        )
    # How the clean-up goes says nothing of why the run ended.
    if run.cause is not None or end.cause is None or run.phase is Phase.DESTROY:
        return end, {}
    end = with_outputs_lost(context, _with_prune_reason(context, end))
    end = _with_node(context, _with_backups(context, end))
    first = _first_of_nodes(context, end)
    return end, {
        "cause": first.cause,
        "detail": first.detail,
        "failed_in": first.failed_in or run.phase,
        "failed_node": first.node,
    }


def _with_prune_reason(context: RunContext, end: PhaseResult) -> PhaseResult:
    """Return the result of a pruned run with the reason that its batch noted.

    The machine's word alone is not enough: a pruned run counts as no failure and is not looked at again.
    """
    if end.cause is not Cause.PRUNED:
        return end
    reason = pruning_reason(context.services.ledger.events(context.run.id))
    if reason:
        return replace(end, detail=f"{reason}; {end.detail}")
    if context.user_request() is UserRequest.PRUNE:
        return end
    detail = f"the machine reports a stop by its batch, which the batch did not request ({end.detail})"
    return replace(end, cause=Cause.CONTRADICTION, detail=detail)


def _with_backups(context: RunContext, end: PhaseResult) -> PhaseResult:
    """Return the result of a lost run with the backups that the provider made of its machine."""
    backups, machine_id = context.services.provider.abilities.backups, context.run.instance_id
    if end.cause not in (Cause.LOST, Cause.OUTPUTS_LOST) or backups is None or machine_id is None:
        return end
    with suppress(VastrunError):  # there is seldom one, and the run is lost all the same
        return replace(end, detail="; ".join([end.detail, *backups(machine_id)]))
    return end


def _with_node(context: RunContext, end: PhaseResult) -> PhaseResult:
    """Return the result with the name of its node in the detail, where the run has several."""
    if context.nodes.is_alone:
        return replace(end, node=None)
    if end.noted:
        return end
    node = context.run.node if end.node is None else end.node
    return replace(end, node=node, detail=with_node_name(end.detail, end.cause, node))


def _first_of_nodes(context: RunContext, end: PhaseResult) -> PhaseResult:
    """Return the first cause of the run's end: this node's, or what another node noted before.

    Ranks are put in order on the machines, where all clocks are compared. What the launcher alone sees, such
    as that a machine is gone, is in the order in which it was seen: by the rows, and so by no clock at all.
    """
    other = context.nodes.end(fresh=True)
    if other is None or _is_own_act(context, end):
        return other or end
    return end if other.cause is Cause.COMMUNICATION and end.cause is not Cause.COMMUNICATION else other


def _is_own_act(context: RunContext, end: PhaseResult) -> bool:
    """Return whether a lost machine was destroyed by this launcher: some providers end all with the first."""
    nodes = context.nodes.other_rows(fresh=True) if end.result is Result.LOST else ()
    return any(node.cause is not None and node.phase in (Phase.DESTROY, Phase.ENDED) for node in nodes)
