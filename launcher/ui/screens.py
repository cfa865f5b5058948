"""Where somebody sits at a terminal, a live view and a question at Ctrl-C; else plain lines, and none."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, TextIO

from launcher.core import Run, UserRequest
from launcher.ui.interrupts import Interrupts, say_on
from launcher.ui.question import HeldStream, ask_at
from launcher.ui.screen import StreamScreen, TerminalCapabilities

if TYPE_CHECKING:
    from launcher.ui.live import Listed
    from launcher.ui.render.live import LearningCurve

_STDERR = 2


def screen_on(
    output: HeldStream, environ: Mapping[str, str], *, began: float, now: Callable[[], float]
) -> StreamScreen:
    """Return what shows a run on stderr, through `output`; elapsed time counts from `began`."""
    from launcher.ui import live

    if not live.is_wanted(sys.stderr, environ):
        return plain_screen_on(output, environ, began=began, now=now)
    return live.LiveScreen(output, began=began, now=now, curve_of=curves_at_home())


def list_screen_on(
    output: HeldStream, environ: Mapping[str, str], listed: Listed, *, began: float, now: Callable[[], float]
) -> StreamScreen:
    """Return what shows many runs at once: with a list of those that go on, where somebody looks."""
    from launcher.ui import live

    if not live.is_wanted(sys.stderr, environ):
        return plain_screen_on(output, environ, began=began, now=now)
    return live.ListScreen(output, listed, began=began, now=now)


def plain_screen_on(
    output: HeldStream, environ: Mapping[str, str], *, began: float, now: Callable[[], float]
) -> StreamScreen:
    """Return what shows a run, or anything else, in plain lines."""
    return StreamScreen(output, TerminalCapabilities.of(sys.stderr, environ), began=began, now=now)


def replay_screen_on(environ: Mapping[str, str], *, began: float, now: Callable[[], float]) -> StreamScreen:
    """Return what shows a transcript again, on stdout; `now` is its moment."""
    from launcher.ui import live

    if live.is_wanted(sys.stdout, environ):
        return live.LiveScreen(HeldStream(lambda: sys.stdout), began=began, now=now)
    return StreamScreen(sys.stdout, TerminalCapabilities.of(sys.stdout, environ), began=began, now=now)


def plain_replay_screen(began: float, now: Callable[[], float]) -> StreamScreen:
    """Return the same, of plain lines."""
    return StreamScreen(sys.stdout, TerminalCapabilities(live=False, color=False), began=began, now=now)


def interrupts_on(
    output: HeldStream,
    environ: Mapping[str, str],
    now: Callable[[], float],
    first: UserRequest,
    request: UserRequest,
    until: float | None,
    views: bool,
) -> Interrupts:
    """Return what notes signals; at a terminal a Ctrl-C asks where `first` is NONE, else it stops."""
    say = say_on(_descriptor(sys.stderr))
    ask = None
    if first is UserRequest.NONE and sys.stdin.isatty() and sys.stderr.isatty():
        ask = ask_at(sys.stdin.fileno(), say, output, live=TerminalCapabilities.of(sys.stderr, environ).live)
    return Interrupts(
        say=say,
        ask=ask,
        first=UserRequest.STOP if first is UserRequest.NONE else first,
        request=request,
        until=until,
        views=views,
        now=now,
    )


def _descriptor(stream: TextIO | None) -> int:
    """Return the stream's descriptor; in a notebook, whose streams may have none, that of the process."""
    try:
        return _STDERR if stream is None else stream.fileno()
    except (OSError, ValueError):
        return _STDERR


def curves_at_home() -> Callable[[Run], LearningCurve]:
    """Return what tells what has come home of a run's metrics: each call reads only what is new."""
    from launcher.outputs.folder import Outputs
    from launcher.ui.render.live import LearningCurve

    folders: dict[str, Outputs] = {}

    def curve_of(run: Run) -> LearningCurve:
        outputs = folders.setdefault(run.id, Outputs(run))
        losses = [value for _, value in outputs.curve("loss")]
        return LearningCurve(losses=losses, figures=outputs.newest_metrics())

    return curve_of
