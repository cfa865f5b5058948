"""Phase result: how a step ended and why."""

from __future__ import annotations

from dataclasses import dataclass

from vastrun.launcher.core import Cause, MachineEnd, Run
from vastrun.launcher.core.phases import Phase, Result


@dataclass(frozen=True, kw_only=True)
class PhaseResult:
    """Result of a step, with its cause."""

    result: Result
    cause: Cause | None = None
    detail: str = ""
    node: int | None = None
    """The node that failed, where the run has several; None: the node that ran the step."""
    noted: bool = False
    """True if `detail` names that node already: it comes from the node's own row."""
    failed_in: Phase | None = None
    """The phase in which that node failed; None: the current one."""


class RunStopped(Exception):
    """Stops all requests to the box: the user requested its end, a limit was passed, or another node
    failed."""

    def __init__(self, end: PhaseResult) -> None:
        super().__init__(end.detail)
        self.end = end


def provider_terminated(end: MachineEnd) -> PhaseResult:
    """Return the result of a step whose machine the provider has ended, in its words."""
    return PhaseResult(result=Result.LOST, cause=end.cause, detail=end.text, node=end.node)


def machine_lost(when: str) -> PhaseResult:
    """Return the result of a phase in which the machine disappeared; `when`: `in phase boot`."""
    return PhaseResult(result=Result.LOST, cause=Cause.LOST, detail=f"the machine disappeared {when}")


def failed_by_node(other: Run) -> PhaseResult:
    """Return the result of a step that ends because another node of the run has failed."""
    return PhaseResult(
        result=Result.FAILED,
        cause=other.cause,
        detail=other.detail,
        node=other.node if other.failed_node is None else other.failed_node,
        noted=True,
        failed_in=other.failed_in,
    )
