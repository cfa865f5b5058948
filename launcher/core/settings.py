"""Settings: the user's config file, for all jobs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Literal

from annotated_types import Ge, MinLen

Dollars = Annotated[float, Ge(0)]


@dataclass(frozen=True, kw_only=True)
class BudgetSettings:
    """Budgets for all runs of the ledger together; 0: no machine that costs money is rented."""

    month_usd: Dollars | None = None
    """USD for the runs that were started in this calendar month, by local time, and open ones."""
    usd: Dollars | None = None
    """USD for all runs ever."""


@dataclass(frozen=True, kw_only=True)
class SlurmSettings:
    """The cluster of the provider `slurm`."""

    login: Annotated[str, MinLen(1)] | None = None
    """`USER@HOST` or `USER@HOST:PORT` of its login node; None: vastrun runs on one."""
    host_key: Annotated[str, MinLen(1)] | None = None
    """The fingerprint of that node's SSH host key, `SHA256:…`."""
    key: Annotated[str, MinLen(1)] = "~/.ssh/id_ed25519"
    """The user's SSH key for it, ed25519, without a passphrase."""
    folder: Annotated[str, MinLen(1)] | None = None
    """Folder of the boxes, on a disk that the login node and all nodes share."""
    python: Annotated[str, MinLen(1)] | None = None
    """Python for trainings; None: `python3` over SSH, else this computer's."""
    partitions: tuple[Annotated[str, MinLen(1)], ...] = ()
    """Partitions to use; empty: all."""
    usd_per_gpu_hour: Dollars = 0.0
    usd_per_node_hour: Dollars = 0.0
    sbatch: tuple[Annotated[str, MinLen(1)], ...] = ()
    """Further options, like `--account=NAME`."""
    setup: tuple[Annotated[str, MinLen(1)], ...] = ()
    """Shell lines that a job runs first, like `module load cuda`."""
    container: Literal["apptainer", "pyxis"] | None = None
    """Container runtime for a job's image; None: jobs run in the user's own environment."""
    image: Annotated[str, MinLen(1)] | None = None
    """Image of jobs that have none: a file on the cluster, or a name in a registry."""


@dataclass(frozen=True, kw_only=True)
class Settings:
    """Values of the config file."""

    provider: Annotated[str, MinLen(1)] | None = None
    """Default of `--provider`."""
    budget: BudgetSettings = field(default_factory=BudgetSettings)
    slurm: SlurmSettings = field(default_factory=SlurmSettings)


@dataclass(frozen=True, kw_only=True)
class LoadedSettings:
    """Values and faults of the config file."""

    settings: Settings = field(default_factory=Settings)
    """Valid values; one with a fault is left out."""
    faults: Sequence[str] = ()
    """Faults: `file:line: key: fault`. While there are any, nothing that costs money is started."""
    lines: Mapping[str, int] = field(default_factory=dict)
    """Line of each value in the file, from 1, by dotted key."""
