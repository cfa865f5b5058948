"""Conflict: a value of a job that does not go with its others."""

from __future__ import annotations

from dataclasses import dataclass

from vastrun.launcher.config.source import KeyPath


@dataclass(frozen=True)
class Conflict:
    """A value that conflicts with others."""

    path: KeyPath
    text: str
    about: tuple[KeyPath, ...] = ()
    """Other values on which it depends: it is not reported when one of those is invalid."""
