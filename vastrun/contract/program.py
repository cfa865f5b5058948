"""Program: how a job's program is started and watched on its machine. Standard library only.

The launcher writes it into `job.json`. The machine's part reads nothing else of what the program is.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Literal

from vastrun.contract.stages import StageSpan


@dataclass(frozen=True, kw_only=True)
class PrepareStep:
    """A module that runs once on each machine before the ranks start."""

    name: str
    """`40-data`: the number is its place among the steps of a box; without one only a rehearsal runs it."""
    module: str
    arguments: tuple[str, ...] = ()
    cause: str = "setup"
    """Cause of a run that ends in it."""


@dataclass(frozen=True, kw_only=True)
class ProgramSpec:
    """The program of a job, as plain data."""

    kind: str
    """Section of the job file that describes it; `hold`: a machine that is held has none."""
    argv: tuple[str, ...] = ()
    """Command line of a rank; empty: `module`."""
    module: str = ""
    """Module that a rank runs with the machine's Python; it finds modules of the user's code."""
    package: str = ""
    """Package that has the module, and may have a `requirements.txt` with hashes; empty: none is shipped."""
    config: Mapping[str, Any] | None = None
    """Options that only the program itself reads."""
    env: Mapping[str, str] = field(default_factory=dict)
    """Variables of the ranks that the job's `env:` overrides."""
    prepare: tuple[PrepareStep, ...] = ()
    preload: tuple[str, ...] = ()
    """Modules that the ranks need, imported once before they start: each rank is then a fork."""
    torch: tuple[str, str] | None = None
    """Oldest torch for it, and the first that is too new, as `2.11`; None: it may need none."""
    python: str = ""
    """Oldest Python for it; empty: any."""
    keeps_records: bool = False
    """Every rank writes a heartbeat and its end, rank 0 checkpoints, metrics, scores and its trackers' runs,
    as `docs/box.md` says. False: what it writes is looked for."""
    uses_gloo: bool = False
    """Its ranks talk by gloo, with GPUs too."""
    stages: tuple[StageSpan, ...] = ()
    """Its steps, in stages; empty: it has no known end."""
    activity_timeouts_s: Mapping[str, float] = field(default_factory=dict)
    """Maximum seconds without progress in single activities."""
    max_restarts: Mapping[str, int] = field(default_factory=dict)
    """Maximum restarts of its ranks by cause, where the job has no `restarts:`; a missing cause means 0."""
    global_batch_size: int | None = None
    """Fewer ranks, one for each GPU, may go on if their number divides it; None: their number is fixed."""
    out_of_memory: Literal["again", "halve", "fail"] = "again"
    """Restart after out-of-memory: as before; with half of the micro-batch, in VASTRUN_MICRO_BATCH; none."""
    wandb_closer: str | None = None
    """Module that ends the W&B run which a killed rank left open."""

    @property
    def total_steps(self) -> int:
        """Return the steps of all stages; 0: unknown."""
        return self.stages[-1].end_step if self.stages else 0

    @property
    def folder(self) -> Path | None:
        """Return the folder of its package here; None: it has none."""
        return package_folder(self.package)


def package_folder(package: str) -> Path | None:
    """Return the folder of a package; None: there is none of that name here."""
    found = find_spec(package) if package else None
    return Path(found.origin).parent if found and found.origin else None
