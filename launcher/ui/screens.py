"""Where somebody sits at a terminal, a live view and a question at Ctrl-C; else plain lines, and none."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, TextIO

from vastrun.launcher.core import Run, UserRequest
from vastrun.launcher.ui.interrupts import Interrupts, say_on
from vastrun.launcher.ui.question import HeldStream, ask_at
from vastrun.launcher.ui.screen import StreamScreen, TerminalCapabilities

if TYPE_CHECKING:
    from vastrun.launcher.ui.live import Listed
    from vastrun.launcher.ui.render.live import LearningCurve

_STDERR = 2


class PlainScreens:
    """Makes what shows runs, in plain lines."""

    def __init__(self, plain: Callable[[float], StreamScreen]) -> None:
        """`plain` makes a screen whose elapsed time counts from that moment."""
        self.plain = plain

    def of_run(self, began: float) -> StreamScreen:
        """Return what shows a run."""
        return self.plain(began)

    def of_many(self, began: float, listed: Listed) -> StreamScreen:  # noqa: ARG002 - of a live one
        """Return what shows many runs at once; `listed`: those that go on."""
        return self.plain(began)

    def of_replay(self, began: float, now: Callable[[], float]) -> StreamScreen:
        """Return what shows a transcript again, on stdout; `now` is its moment."""
        return StreamScreen(sys.stdout, TerminalCapabilities(live=False, color=False), began=began, now=now)


class LiveScreens(PlainScreens):
    """Makes live views where somebody looks at a terminal, else screens of plain lines on stderr."""

    def __init__(self, output: HeldStream, environ: Mapping[str, str], now: Callable[[], float]) -> None:
        """`output` writes to stderr."""
        self._output, self._environ, self._now = output, environ, now

        def plain(began: float) -> StreamScreen:
            return StreamScreen(output, TerminalCapabilities.of(sys.stderr, environ), began=began, now=now)

        super().__init__(plain)

    def of_run(self, began: float) -> StreamScreen:
        from vastrun.launcher.ui import live

        if not live.is_wanted(sys.stderr, self._environ):
            return self.plain(began)
        return live.LiveScreen(self._output, began=began, now=self._now, curve_of=curves_at_home())

    def of_many(self, began: float, listed: Listed) -> StreamScreen:
        from vastrun.launcher.ui import live

        if not live.is_wanted(sys.stderr, self._environ):
            return self.plain(began)
        return live.ListScreen(self._output, listed, began=began, now=self._now)

    def of_replay(self, began: float, now: Callable[[], float]) -> StreamScreen:
        from vastrun.launcher.ui import live

        if live.is_wanted(sys.stdout, self._environ):
            return live.LiveScreen(HeldStream(lambda: sys.stdout), began=began, now=now)
        return StreamScreen(
            sys.stdout, TerminalCapabilities.of(sys.stdout, self._environ), began=began, now=now
        )


def interrupts_on(
    output: HeldStream,
    environ: Mapping[str, str],
    now: Callable[[], float],
    first: UserRequest = UserRequest.STOP,
    request: UserRequest = UserRequest.NONE,
    until: float | None = None,
    views: bool = False,
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
    from vastrun.launcher.outputs.folder import Outputs
    from vastrun.launcher.ui.render.live import LearningCurve

    folders: dict[str, Outputs] = {}

    def curve_of(run: Run) -> LearningCurve:
        outputs = folders.setdefault(run.id, Outputs(run))
        losses = [value for _, value in outputs.curve("loss")]
        return LearningCurve(losses=losses, figures=outputs.newest_metrics())

    return curve_of
