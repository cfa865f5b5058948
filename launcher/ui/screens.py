"""Choice of screens: a live view and questions on an interactive terminal, else plain lines."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from vastrun.launcher.core import Run, UserRequest
from vastrun.launcher.ui.interrupts import Interrupts, say_on
from vastrun.launcher.ui.question import HeldStream, ask_at
from vastrun.launcher.ui.screen import StreamScreen, TerminalCapabilities, supports_live_view

if TYPE_CHECKING:
    from vastrun.launcher.ui.live import Listed
    from vastrun.launcher.ui.render.live import LearningCurve

_STDERR = 2


class PlainScreens:
    """Factory of screens with plain lines."""

    def __init__(self, plain: Callable[..., StreamScreen]) -> None:
        """`plain` makes a screen; its option `began`: start of elapsed time, epoch seconds."""
        self.plain = plain

    def of_run(self, began: float) -> StreamScreen:
        """Return a screen for a run."""
        return self.plain(began=began)

    def of_many(self, began: float, listed: Listed) -> StreamScreen:  # noqa: ARG002 - for live screens
        """Return a screen for many runs; `listed` returns lines for the open ones."""
        return self.plain(began=began)


class LiveScreens(PlainScreens):
    """Factory of live views on an interactive terminal, else of plain lines on stderr."""

    def __init__(self, output: HeldStream, environ: Mapping[str, str], now: Callable[[], float]) -> None:
        """`output` writes to stderr."""
        self._output, self._environ, self._now = output, environ, now
        super().__init__(self._plain)

    def _plain(self, *, began: float) -> StreamScreen:
        terminal = TerminalCapabilities.of(sys.stderr, self._environ)
        return StreamScreen(self._output, terminal, began=began, now=self._now)

    def of_run(self, began: float) -> StreamScreen:
        if not supports_live_view(sys.stderr, self._environ):
            return self.plain(began=began)
        from vastrun.launcher.ui import live

        return live.LiveScreen(self._output, began=began, now=self._now, curve_of=downloaded_curves())

    def of_many(self, began: float, listed: Listed) -> StreamScreen:
        if not supports_live_view(sys.stderr, self._environ):
            return self.plain(began=began)
        from vastrun.launcher.ui import live

        return live.ListScreen(self._output, listed, began=began, now=self._now)


def interrupts_on(
    output: HeldStream,
    environ: Mapping[str, str],
    now: Callable[[], float],
    first: UserRequest = UserRequest.STOP,
    **options: Any,
) -> Interrupts:
    """Return the Interrupts of a command; with `first=NONE`, Ctrl-C asks at a terminal, else it stops.

    `options`: those of Interrupts.
    """
    try:
        say = say_on(sys.stderr.fileno())
    except (AttributeError, OSError, ValueError):  # streams of a notebook may have no descriptor
        say = say_on(_STDERR)
    ask = None
    if first is UserRequest.NONE and sys.stdin.isatty() and sys.stderr.isatty():
        ask = ask_at(sys.stdin.fileno(), say, output, live=TerminalCapabilities.of(sys.stderr, environ).live)
    first = UserRequest.STOP if first is UserRequest.NONE else first
    return Interrupts(say=say, ask=ask, first=first, now=now, **options)


def downloaded_curves() -> Callable[[Run], LearningCurve]:
    """Return a function that returns a run's downloaded metrics; each call reads only new lines."""
    from vastrun.launcher.outputs.folder import Outputs
    from vastrun.launcher.ui.render.live import LearningCurve

    folders: dict[str, Outputs] = {}

    def curve_of(run: Run) -> LearningCurve:
        outputs = folders.setdefault(run.id, Outputs(run))
        losses = [value for _, value in outputs.curve("loss")]
        return LearningCurve(losses=losses, figures=outputs.newest_metrics())

    return curve_of
