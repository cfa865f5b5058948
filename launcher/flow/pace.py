"""Pace: how fast a training goes and how long it still takes, by the steps that were seen."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field

from vastrun.launcher.config import program_of
from vastrun.launcher.core.job import JobSpec
from vastrun.launcher.decisions import policy
from vastrun.launcher.decisions.history import SpeedHistory, kind_of, kind_text, speed_history_of
from vastrun.launcher.decisions.job_shape import span_at
from vastrun.launcher.decisions.slow_training import SLOW_MACHINE, slow_machine_text
from vastrun.launcher.flow.context import RunContext

MIN_SEEN_S = 20.0
"""Min. seconds of observation: a shorter one measures the looks, not the training."""
_WINDOW_S = 180.0
"""Seconds of the last steps by which the remaining time is estimated."""


@dataclass
class Pace:
    """The first step seen and the last, by the launcher's clock.

    Of a job with several stages the steps are those of mean work (`Program.work_done`): neither the remaining
    time nor the pace jumps where a slower stage begins. The start of a stage is a pause, in which nothing is
    trained.
    """

    began_at: float = 0.0
    first: float = 0
    """First step that was seen; 0: none."""
    moved_at: float = 0.0
    last: float = 0
    pause_s: float = 0.0
    """Seconds of the last change of the stage."""
    known_speeds: SpeedHistory | None = None
    """Speeds of its kind of machine on other hosts; None before the first look."""
    is_slow_reported: bool = False
    _stages_left: int = 0
    _recent: deque[tuple[float, float]] = field(default_factory=lambda: deque(maxlen=1000))
    """Moments with the steps that were reached then."""

    def observe(self, step: float, now: float, stages_left: int = 0) -> None:
        """Record a step. Counts from the first one seen: loading and compiling come before it.

        `stages_left`: number of stages after that of the step.
        """
        if stages_left < self._stages_left and step > self.last:
            self._skip_pause(step, now)
        self._stages_left = stages_left
        # Ranks that were restarted continue from a checkpoint: the steps in between are done twice.
        if self.first == 0 or step < self.last:
            self.began_at, self.first = now, step
            self._recent.clear()
        if step != self.last:
            self.moved_at, self.last = now, step
            self._recent.append((now, step))
        while len(self._recent) > 2 and self._recent[1][0] < now - _WINDOW_S:
            self._recent.popleft()

    def _skip_pause(self, step: float, now: float) -> None:
        """Move what was seen of the stages before to the moment when this one began."""
        step_s = self._recent_step_s()
        if step_s is None:
            return
        self.pause_s = pause_s = max(0.0, now - self.moved_at - (step - self.last) * step_s)
        self.began_at += pause_s
        self.moved_at += pause_s
        moved = [(at + pause_s, seen) for at, seen in self._recent]
        self._recent.clear()
        self._recent.extend(moved)

    @property
    def seen_s(self) -> float:
        """Seconds from the first step that was seen to the last."""
        return self.moved_at - self.began_at

    @property
    def seen_steps(self) -> float:
        """Number of steps that were observed."""
        return self.last - self.first if self.first > 0 else 0.0

    @property
    def steps_per_s(self) -> float | None:
        """Mean steps per second since the first one seen; None while too little was seen."""
        return self.seen_steps / self.seen_s if self.first > 0 and self.seen_s >= MIN_SEEN_S else None

    @property
    def best_steps_per_s(self) -> float | None:
        """Steps per second overall or in the last minutes, whichever is faster; None while unknown."""
        steps_per_s = self.steps_per_s
        if steps_per_s is None or len(self._recent) < 2:
            return steps_per_s
        (began_at, first), (moved_at, last) = self._recent[0], self._recent[-1]
        if moved_at - began_at < MIN_SEEN_S:
            return steps_per_s
        return max(steps_per_s, (last - first) / (moved_at - began_at))

    def left_s(self, steps: float, now: float, stages_left: int = 0) -> float | None:
        """Estimate the seconds until `steps` are done, by the last minutes; None while unknown.

        The next step always counts as still to come, so that the rest of a stuck training does not reach
        0. Each of the `stages_left` begins with a pause like the last one.
        """
        step_s = self._recent_step_s()
        if step_s is None or self.last >= steps:
            return None
        left = steps - self.last
        return max(left * step_s - (now - self.moved_at), (left - 1) * step_s) + stages_left * self.pause_s

    def _recent_step_s(self) -> float | None:
        """Return the seconds of a step in the last minutes; None while too little was seen."""
        if len(self._recent) < 2:
            return None
        (began_at, first), (moved_at, last) = self._recent[0], self._recent[-1]
        if first <= 0 or moved_at - began_at < 5.0:
            return None
        return (moved_at - began_at) / (last - first)


def stages_left(spec: JobSpec, step: int) -> int:
    """Return the number of stages after the one of that step."""
    spans = program_of(spec).stages
    return spans[-1].number - span_at(spans, step).number if spans else 0


def report_slow_machine(context: RunContext, pace: Pace) -> None:
    """Report a slow machine, once: a launcher that resumes the run finds the line in the diary."""
    offer, steps_per_s = context.run.offer, pace.best_steps_per_s
    if pace.is_slow_reported or offer is None or context.spec.resources.gpus == 0 or steps_per_s is None:
        return
    if pace.seen_s < policy.SLOW_SEEN_S or pace.seen_steps < policy.SLOW_SEEN_STEPS:
        return
    if pace.known_speeds is None:
        runs, provider = context.services.ledger.measured(), context.services.provider.name
        pace.known_speeds = speed_history_of(runs, provider, context.spec, excluded_host=context.run.host)
    kind = kind_of(offer)
    text = slow_machine_text(kind_text(kind), steps_per_s, pace.known_speeds.speeds.get(kind))
    if text:
        pace.is_slow_reported = True
        diary = context.services.ledger.events(context.run.id)
        if not any(event.text.startswith(SLOW_MACHINE) for event in diary):
            context.report(text)
