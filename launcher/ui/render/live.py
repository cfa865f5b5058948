"""The live view of a run as lines of styled text: phases, progress, loss, GPUs, cost."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

from vastrun.contract.reports import TASK_LOSS_PREFIX
from vastrun.launcher.core import Phase, Progress
from vastrun.launcher.ui.render.amounts import cells, duration, rough, short, usd

Span = tuple[str, str]
"""Text with its style: bold, dim, done, now, or empty."""
Line = tuple[Span, ...]

_PHASES = tuple(phase for phase in Phase if phase is not Phase.ENDED)
_BLOCKS = "▁▂▃▄▅▆▇█"
_MIN_BAR, _MAX_BAR = 10, 48
_GPU: Sequence[tuple[str, str, str]] = (
    ("load", "load {:.0%}", "{:4.0%}"),
    ("memory_mib", "memory {:,.0f} MiB", "{:7,.0f} MiB"),
    ("power_w", "{:,.0f} W", "{:4.0f} W"),
    ("temperature_c", "{:.0f} °C", "{:3.0f} °C"),
)
"""GPU metrics: name, format over all GPUs (mean, maximum, sum, maximum), format for one GPU."""
_GAP = "   "


@dataclass(frozen=True, kw_only=True)
class LearningCurve:
    """Downloaded metrics of a run."""

    losses: Sequence[float] = ()
    """Losses in the order of the steps."""
    figures: Mapping[str, float] = field(default_factory=dict)
    """Newest values, by name."""


@dataclass(frozen=True, kw_only=True)
class LiveView:
    """State of a run that the live view shows."""

    phase: Phase = Phase.PLAN
    began: Mapping[Phase, float] = field(default_factory=dict)
    """Start of each observed phase, epoch seconds."""
    now: float = 0.0
    progress: Progress = field(default_factory=Progress)
    curve: LearningCurve = field(default_factory=LearningCurve)
    usd: float = 0.0
    """USD spent so far, by all machines."""
    usd_per_hour: float = 0.0
    machines: int = 1
    """Number of machines of the run."""
    usd_limit: float | None = None
    """Maximum cost of the run in USD."""


def live_lines(view: LiveView, width: int) -> list[Line]:
    """Return the lines of the view, laid out for `width` columns of a terminal."""
    figures = view.curve.figures
    known = [text.format(figures[f"gpu_{name}"]) for name, text, _ in _GPU if f"gpu_{name}" in figures]
    lines = [
        _phases(view, width),
        _progress(view, width),
        _learning(view, width),
        _tasks(view),
        ((f"GPUs  {'  '.join(known)}", ""),) if known else (),
        *_each_gpu(view, width),
        _money(view),
    ]
    return [line for line in lines if line]


def _phases(view: LiveView, width: int) -> Line:
    """Return all phases, with the durations of past ones if there is room."""
    forms = [_phase_spans(view, elapsed=True), _phase_spans(view, elapsed=False)]
    narrow = _phase_spans(view, elapsed=False, dot=" ")
    return next((form for form in forms if width_of(form) <= width), narrow)


def _phase_spans(view: LiveView, *, elapsed: bool, dot: str = " · ") -> Line:
    spans: list[Span] = []
    for phase in _PHASES:
        style = "now" if phase is view.phase else "done" if phase in view.began else "dim"
        took = _took(view, phase) if elapsed or phase is view.phase else None
        spans += [(dot, "dim")] if spans else []
        spans.append((phase.value if took is None else f"{phase.value} {duration(took)}", style))
    return tuple(spans)


def _took(view: LiveView, phase: Phase) -> float | None:
    """Return the duration of a phase so far in seconds; None if it was not observed."""
    if phase not in view.began:
        return None
    later = [at for other, at in view.began.items() if _PHASES.index(other) > _PHASES.index(phase)]
    return max(0.0, min(later, default=view.now) - view.began[phase])


def _progress(view: LiveView, width: int) -> Line:
    progress = view.progress
    if not progress.step:
        return ((progress.activity, ""),) if progress.activity else ()
    of = f"/{progress.steps}" if progress.steps else ""
    share = min(1.0, progress.step / progress.steps) if progress.steps else None
    words = [
        f"step {progress.step}{of}",
        "" if share is None else f"{share:.0%}",
        progress.stage,
        progress.activity,
        "" if progress.left_s is None else f"ETA {rough(progress.left_s)}",
    ]
    text = "  ".join(filter(None, words))
    room = min(_MAX_BAR, width - len(text) - 2)
    if share is None or room < _MIN_BAR:
        return ((text, "bold"),)
    done = round(share * room)
    return (("━" * done, "done"), ("╌" * (room - done), "dim"), (f"  {text}", "bold"))


def _learning(view: LiveView, width: int) -> Line:
    loss, rate = view.progress.loss, view.curve.figures.get("samples_per_s")
    if loss is None and not view.curve.losses:
        return ()
    value = f"loss {view.curve.losses[-1] if loss is None else loss:.4g}"
    speed = "" if rate is None else f"  {rate:,.4g} samples/s"
    room = min(32, width - len(value) - len(speed) - 2)
    return ((value, ""), (f"  {sparkline(view.curve.losses, room)}", "now"), (speed, ""))


def _tasks(view: LiveView) -> Line:
    """Return the loss of each of several tasks, averaged since the metrics before."""
    figures = view.curve.figures
    tasks = [name for name in figures if name.startswith(TASK_LOSS_PREFIX)][:16]
    if len(tasks) < 2:
        return ()
    return (("  ".join(f"{name.removeprefix(TASK_LOSS_PREFIX)} {figures[name]:.4g}" for name in tasks), ""),)


def _each_gpu(view: LiveView, width: int) -> list[Line]:
    """Return the metrics of each of several GPUs, in as many columns as fit."""
    cells = [text for number in range(16) if (text := _gpu(view.curve.figures, number))]
    widest = max(map(len, cells), default=0)
    columns = max(1, (width + len(_GAP)) // (widest + len(_GAP)))
    rows = [cells[start : start + columns] for start in range(0, len(cells), columns)]
    return [((_GAP.join(text.ljust(widest) for text in row).rstrip(), ""),) for row in rows]


def _gpu(figures: Mapping[str, float], number: int) -> str:
    """Return the metrics of one GPU; empty if there are none."""
    known = [text.format(figures[key]) for name, _, text in _GPU if (key := f"gpu{number}_{name}") in figures]
    return f"{number:2}  {'  '.join(known)}" if known else ""


def _money(view: LiveView) -> Line:
    left_s = view.progress.left_s
    at_end = None if left_s is None else view.usd + view.usd_per_hour * left_s / 3600
    if not view.usd_per_hour and not view.usd:
        return (("costs nothing", "dim"),)
    on_machines = f" on {view.machines} machines" if view.machines > 1 else ""
    rest = [f"at {usd(view.usd_per_hour)}/h{on_machines}"]
    rest += [] if at_end is None else [f"about {usd(at_end)} in all"]
    if view.usd_limit is not None:
        rest.append(f"{usd(max(0.0, view.usd_limit - view.usd))} left of {usd(view.usd_limit)}")
    return ((usd(view.usd), "bold"), ("  " + "  ".join(rest), ""))


def sparkline(values: Sequence[float], width: int) -> str:
    """Draw at most `width` blocks of values, on a logarithmic scale if all are positive."""
    finite = [value for value in values if math.isfinite(value)]
    if width <= 0 or len(finite) < 2:
        return ""
    drawn = [math.log(value) for value in finite] if min(finite) > 0 else finite
    count = min(width, len(drawn))
    # Each block is a mean, so that an outlier does not hide the other values.
    edges = [round(n * len(drawn) / count) for n in range(count + 1)]
    means = [sum(drawn[a:b]) / (b - a) for a, b in pairwise(edges)]
    low, high = min(means), max(means)
    step = (high - low) or 1.0
    return "".join(_BLOCKS[round((mean - low) / step * (len(_BLOCKS) - 1))] for mean in means)


def cut(line: Line, width: int) -> Line:
    """Cut the line to `width` columns of a terminal."""
    if width_of(line) <= width:
        return line
    spans: list[Span] = []
    for text, style in line:
        if cells(text) >= width:
            return (*spans, (short(f"{text}…", width), style))
        spans.append((text, style))
        width -= cells(text)
    return tuple(spans)


def width_of(line: Line) -> int:
    """Return the number of columns that the line takes on a terminal."""
    return sum(cells(text) for text, _ in line)
