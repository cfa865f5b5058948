"""Overlays: networks of one's own on top of a physical cluster."""

import itertools
from collections.abc import Iterator
from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class Overlay:
    """A network. Who is on it, instances say."""

    id: int
    name: str
    cluster_id: int


class Overlays:
    """Those of the account."""

    def __init__(self, subnet: str) -> None:
        self.subnet = subnet
        self._ids = itertools.count(801)
        self._overlays: dict[int, Overlay] = {}

    def __iter__(self) -> Iterator[Overlay]:
        return iter(list(self._overlays.values()))

    def __len__(self) -> int:
        return len(self._overlays)

    def add(self, name: str, cluster_id: int) -> Overlay:
        """A new network."""
        made = Overlay(id=next(self._ids), name=name, cluster_id=cluster_id)
        self._overlays[made.id] = made
        return made

    def named(self, name: str) -> Overlay | None:
        """The network of that name."""
        return next((one for one in self if one.name == name), None)

    def remove(self, overlay: Overlay) -> None:
        """There is no such network any more."""
        self._overlays.pop(overlay.id, None)
