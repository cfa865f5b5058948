"""Lines of a run's log, as it was written so far and as it grows."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from vastrun.launcher.commands.logfeed import Feed
from vastrun.launcher.ui.render.loglines import lines_of

LOOK_S = 0.5
"""Between two looks at a log that grows."""


def written(feed: Feed) -> Iterator[str]:
    """Yield every line so far."""
    while text := feed.more():
        yield from lines_of(text)


def growing(feed: Feed, sleep: Callable[[float], None]) -> Iterator[str]:
    """Yield lines as they come, until no more will."""
    while not feed.is_finished:
        sleep(LOOK_S)
        yield from lines_of(feed.more())
