"""What is due to happen to instances, and when."""

import heapq
import itertools
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from tests.emulators.instance import Instance

Action = Callable[[Instance], None]


@dataclass(order=True)
class _Entry:
    at: float
    number: int
    generation: int | None = field(compare=False)
    instance: Any = field(compare=False)
    action: Callable[[Any], None] = field(compare=False)


class EventQueue:
    """Entries in the order of time. `moment` is the time that is being lived through."""

    def __init__(self, now: float) -> None:
        self.moment = now
        self._entries: list[_Entry] = []
        self._numbers = itertools.count()

    def after(self, instance: Instance, delay_s: float, action: Action, *, lasting: bool = False) -> None:
        """Let the action come after so long. A start or a stop of the instance cancels it, unless lasting."""
        generation = None if lasting else instance.generation
        entry = _Entry(self.moment + max(delay_s, 0.0), next(self._numbers), generation, instance, action)
        heapq.heappush(self._entries, entry)

    def later(self, delay_s: float, deed: Callable[[], None]) -> None:
        """Something that is about no instance comes after so long."""
        at = self.moment + max(delay_s, 0.0)
        heapq.heappush(self._entries, _Entry(at, next(self._numbers), None, None, lambda _: deed()))

    @property
    def next_at(self) -> float:
        """When something is due next."""
        return self._entries[0].at if self._entries else float("inf")

    def happen(self) -> None:
        """What is due next happens, if it still holds."""
        entry = heapq.heappop(self._entries)
        if entry.generation is None or entry.generation == entry.instance.generation:
            entry.action(entry.instance)
