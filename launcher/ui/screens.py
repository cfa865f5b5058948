"""Which screen shows a run: a live view where somebody looks at a terminal, else plain lines."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping

from launcher.core import Run
from launcher.ui.list_screen import Listed
from launcher.ui.question import HeldStream
from launcher.ui.render.live import LearningCurve
from launcher.ui.screen import Look, StreamScreen


def screen_on(
    output: HeldStream, environ: Mapping[str, str], *, began: float, now: Callable[[], float]
) -> StreamScreen:
    """Return what shows a run on stderr, through `output`; elapsed time counts from `began`."""
    from launcher.ui import live

    if not live.is_wanted(sys.stderr, environ):
        return plain_screen_on(output, environ, began=began, now=now)
    return live.LiveScreen(output, began=began, now=now, curve_of=_curves())


def list_screen_on(
    output: HeldStream, environ: Mapping[str, str], listed: Listed, *, began: float, now: Callable[[], float]
) -> StreamScreen:
    """Return what shows many runs at once: with a list of those that go on, where somebody looks."""
    from launcher.ui import list_screen, live

    if not live.is_wanted(sys.stderr, environ):
        return plain_screen_on(output, environ, began=began, now=now)
    return list_screen.ListScreen(output, listed, began=began, now=now)


def plain_screen_on(
    output: HeldStream, environ: Mapping[str, str], *, began: float, now: Callable[[], float]
) -> StreamScreen:
    """Return what shows a run, or anything else, in plain lines."""
    return StreamScreen(output, Look.of(sys.stderr, environ), began=began, now=now)


def _curves() -> Callable[[Run], LearningCurve]:
    """What has come home of a run's metrics: each call reads only what is new."""
    from launcher.outputs.folder import Outputs

    folders: dict[str, Outputs] = {}

    def curve_of(run: Run) -> LearningCurve:
        outputs = folders.setdefault(run.id, Outputs(run))
        losses = [value for _, value in outputs.curve("loss")]
        return LearningCurve(losses=losses, figures=outputs.newest_metrics())

    return curve_of
