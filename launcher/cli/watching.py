"""Watching: a text that is shown anew in the same place, until Ctrl-C."""

from __future__ import annotations

import sys
from collections.abc import Callable
from contextlib import suppress

import click

from launcher.cli.output import width
from launcher.gate.text import printable
from launcher.ui.painter import Painter
from launcher.ui.question import HeldStream
from launcher.ui.render.live import cut
from launcher.wiring import Wiring


def show_again(wiring: Wiring, text: Callable[[], str], pause_s: float) -> None:
    """Show the text anew every `pause_s` seconds. Raises click's own error without a terminal."""
    if not sys.stdout.isatty():
        raise click.UsageError("--watch needs a terminal; programs read --json")
    painter, clock = Painter(HeldStream(lambda: sys.stdout)), wiring.clock()
    with suppress(KeyboardInterrupt):
        while True:
            newest = printable(text()).expandtabs().splitlines()
            painter.paint([cut(((line, ""),), (width() or 80) - 1) for line in newest])
            clock.sleep(pause_s)
    click.echo()
