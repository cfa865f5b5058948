"""Slow machine: reports a machine that trains far below earlier runs on its kind."""

from __future__ import annotations

from dataclasses import dataclass

from vastrun.launcher.decisions import policy
from vastrun.launcher.decisions.history import SpeedHistory, kind_of, kind_text, speed_history_of
from vastrun.launcher.decisions.slow_machine import BEGINS, slow_machine_text
from vastrun.launcher.flow.context import RunContext
from vastrun.launcher.flow.pace import Pace


@dataclass
class SpeedWatch:
    """State of the comparison of a machine's speed with its kind's."""

    known_speeds: SpeedHistory | None = None
    """Speeds of the same kind on other hosts; None before the first look."""
    is_reported: bool = False


def report_slow_machine(context: RunContext, watch: SpeedWatch, pace: Pace) -> None:
    """Report a slow machine, once: a launcher that resumes the run finds the line in the diary."""
    offer, steps_per_s = context.run.offer, pace.best_steps_per_s
    if watch.is_reported or offer is None or context.spec.resources.gpus == 0 or steps_per_s is None:
        return
    if pace.seen_s < policy.SLOW_SEEN_S or pace.seen_steps < policy.SLOW_SEEN_STEPS:
        return
    if watch.known_speeds is None:
        runs, provider = context.services.ledger.measured(), context.services.provider.name
        watch.known_speeds = speed_history_of(runs, provider, context.spec, excluded_host=context.run.host)
    kind = kind_of(offer)
    text = slow_machine_text(kind_text(kind), steps_per_s, watch.known_speeds.speeds.get(kind))
    if text:
        watch.is_reported = True
        diary = context.services.ledger.events(context.run.id)
        if not any(event.text.startswith(BEGINS) for event in diary):
            context.report(text)
