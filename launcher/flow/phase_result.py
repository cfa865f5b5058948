"""The end of a step: its result and its cause."""

from __future__ import annotations

from dataclasses import dataclass

from vastrun.launcher.core import Cause, MachineEnd, Run
from vastrun.launcher.core.phases import Phase, Result


@dataclass(frozen=True, kw_only=True)
class PhaseResult:
    """How a step ended."""

    result: Result
    cause: Cause | None = None
    detail: str = ""
    node: int | None = None
    """The node that this is about, where the run has several; None: the one whose step it was."""
    noted: bool = False
    """`detail` names that node already: it was noted on the node's own row."""
    failed_in: Phase | None = None
    """The phase of that node; None: this one."""


class RunStopped(Exception):
    """Nothing more is done with the box: the user wants its machine ended, or a limit is passed."""

    def __init__(self, end: PhaseResult) -> None:
        super().__init__(end.detail)
        self.end = end


def provider_terminated(end: MachineEnd) -> PhaseResult:
    """Return the end of a step whose machine the provider has ended, in its words."""
    return PhaseResult(result=Result.LOST, cause=end.cause, detail=end.text, node=end.node)


def machine_lost(when: str) -> PhaseResult:
    """Return the end of a phase in which the machine disappeared; `when`, as in `in phase boot`."""
    return PhaseResult(result=Result.LOST, cause=Cause.LOST, detail=f"the machine disappeared {when}")


def failed_by_node(other: Run) -> PhaseResult:
    """Return the end of a step because another node of the run has failed."""
    return PhaseResult(
        result=Result.FAILED,
        cause=other.cause,
        detail=other.detail,
        node=other.node if other.failed_node is None else other.failed_node,
        noted=True,
        failed_in=other.failed_in,
    )
