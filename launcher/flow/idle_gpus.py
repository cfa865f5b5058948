"""Idle GPUs: reports once per reason that the GPUs of a run work less than half of the time."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from vastrun.contract.outcome import IdleGpus, WaitsFor
from vastrun.launcher.core import BoxStatus
from vastrun.launcher.decisions.idle_gpus import BEGINS, idle_gpus_text, waits_text

if TYPE_CHECKING:
    from vastrun.launcher.flow.context import RunContext


@dataclass
class IdleGpuReport:
    """Reports on the GPUs of one run, from poll to poll."""

    _reported: set[WaitsFor] = field(default_factory=set)

    def show(self, context: RunContext, box_status: BoxStatus) -> None:
        """Report a new reason; a launcher that resumes the run finds earlier ones among its events."""
        idle = box_status.idle_gpus
        if idle is None or idle.waits_for in self._reported:
            return
        self._reported.add(idle.waits_for)
        if not _was_reported(context, idle):
            context.report(idle_gpus_text(idle))


def _was_reported(context: RunContext, idle: IdleGpus) -> bool:
    reason = waits_text(idle).split()[:4]
    events = context.services.ledger.events(context.run.id)
    texts = (event.text for event in events if event.text.startswith(BEGINS))
    return any(text.partition("; ")[2].split()[:4] == reason for text in texts)
