"""drive(run): the seven steps in order. Reaches the world through ports only."""

from __future__ import annotations

from dataclasses import dataclass

from launcher.job import JobSpec
from launcher.model import Run
from launcher.ports import Clock, Ledger, Packer, Provider, Screen, Shelf, Wishes


@dataclass(frozen=True, kw_only=True)
class Tools:
    """What a launcher drives with."""

    provider: Provider
    ledger: Ledger
    clock: Clock
    packer: Packer
    shelf: Shelf
    screen: Screen
    wishes: Wishes
    who: str
    """Names this launcher: `host:pid:started`."""


def begin(
    spec: JobSpec, spec_json: str, tools: Tools, *, run_id: str, out_dir: str, parent: str | None = None
) -> Run:
    """A new run, with its row, in phase `plan`. Nothing was asked of the provider yet."""
    raise NotImplementedError


def drive(run: Run, spec: JobSpec, tools: Tools) -> Run:
    """The run, driven until it ended, was detached (phase `train`) or could not be torn down (phase `destroy`).

    Raises StorageError and HeldError; the row then stands as it was.
    """
    raise NotImplementedError
