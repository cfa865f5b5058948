"""The user's settings: what the config file of this computer's user holds for all jobs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Literal

from annotated_types import Ge, MinLen

Dollars = Annotated[float, Ge(0)]


@dataclass(frozen=True, kw_only=True)
class BudgetSettings:
    """What all runs of the ledger may cost together; 0: no machine that costs money is rented."""

    month_usd: Dollars | None = None
    """For the runs that were begun in this calendar month, by local time, and those that are open."""
    usd: Dollars | None = None
    """For all runs that there ever were."""


@dataclass(frozen=True, kw_only=True)
class SlurmSettings:
    """Which cluster the provider `slurm` uses, and what is to be known of it."""

    login: Annotated[str, MinLen(1)] | None = None
    """`USER@HOST` or `USER@HOST:PORT` of its login node; None: vastrun runs on one."""
    host_key: Annotated[str, MinLen(1)] | None = None
    """The fingerprint of that node's SSH host key, `SHA256:…`."""
    key: Annotated[str, MinLen(1)] = "~/.ssh/id_ed25519"
    """The user's SSH key for it, ed25519, without a passphrase."""
    folder: Annotated[str, MinLen(1)] | None = None
    """Where the boxes are: on a disk that the login node and all nodes share."""
    python: Annotated[str, MinLen(1)] | None = None
    """What trains there; None: over SSH `python3`, else the one that trains on this computer."""
    partitions: tuple[Annotated[str, MinLen(1)], ...] = ()
    """Those to use; empty: all."""
    usd_per_gpu_hour: Dollars = 0.0
    usd_per_node_hour: Dollars = 0.0
    sbatch: tuple[Annotated[str, MinLen(1)], ...] = ()
    """Further options, such as `--account=NAME`."""
    setup: tuple[Annotated[str, MinLen(1)], ...] = ()
    """Shell lines that a job runs first, such as `module load cuda`."""
    container: Literal["apptainer", "pyxis"] | None = None
    """What runs a job's image; None: jobs run in the user's own environment."""
    image: Annotated[str, MinLen(1)] | None = None
    """Of jobs that name none: a file of the cluster's, or a name in a registry."""


@dataclass(frozen=True, kw_only=True)
class Settings:
    """The config file as a noun."""

    provider: Annotated[str, MinLen(1)] | None = None
    """What `--provider` is where it is not given."""
    budget: BudgetSettings = field(default_factory=BudgetSettings)
    slurm: SlurmSettings = field(default_factory=SlurmSettings)


@dataclass(frozen=True, kw_only=True)
class LoadedSettings:
    """The config file, as far as it can be understood."""

    settings: Settings = field(default_factory=Settings)
    """A value with a fault is left out of it."""
    faults: Sequence[str] = ()
    """One a line: `file:line: key: fault`. While there are any, nothing that costs money is begun."""
    lines: Mapping[str, int] = field(default_factory=dict)
    """By the dotted key of each value that the file sets, where it stands, from 1."""
