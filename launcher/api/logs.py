"""Lines of a run's log: those written so far, and new ones."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from vastrun.launcher.commands.logfeed import Feed
from vastrun.launcher.ui.render.loglines import lines_of

POLL_INTERVAL_S = 0.5
"""Seconds between two reads of a log that grows."""


def written_lines(feed: Feed) -> Iterator[str]:
    """Yield every line written so far."""
    while text := feed.more():
        yield from lines_of(text)


def new_lines(feed: Feed, sleep: Callable[[float], None]) -> Iterator[str]:
    """Yield new lines until the log is complete."""
    while not feed.is_finished:
        sleep(POLL_INTERVAL_S)
        yield from lines_of(feed.more())
