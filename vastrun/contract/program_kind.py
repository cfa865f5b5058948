"""Program kind: what the launcher asks of a kind of program. Standard library only.

A package adds a kind by an entry point of the group `vastrun.program_kinds`: its name is the kind's section
in a job file, its value a subclass of `Program`.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Generic, TypeVar

from vastrun.contract.outcome import Outcome
from vastrun.contract.program import PrepareStep, ProgramSpec, StageSpan
from vastrun.contract.workload import Workloads

Config = TypeVar("Config")


@dataclass(frozen=True, kw_only=True)
class JobContext:
    """The rest of a job, as far as its program may know it."""

    world_size: int
    gpus: int
    """GPUs of each machine."""
    disk_gb: float
    code: str | None
    """Folder of the user's code on this computer; None: the job uploads none."""
    variables: Collection[str]
    """Names in `env:` and of the secrets."""
    tags: tuple[str, ...]
    downloads_data: bool


@dataclass(frozen=True, kw_only=True)
class ProgramFault:
    """A value of the section that the job may not have."""

    key: str
    """Within the section: `data[1].task`."""
    text: str
    about: tuple[str, ...] = ()
    """Keys of the job on which it depends: `resources.gpus`."""


@dataclass(frozen=True, kw_only=True)
class Proof:
    """One piece of evidence for a success. `holds` is None when the evidence is missing."""

    name: str
    holds: bool | None
    text: str


@dataclass(frozen=True)
class Program(Generic[Config]):
    """A program with its section of a job. A kind overrides what is true of it."""

    config: Config

    key: ClassVar[str] = ""
    """The kind's section in a job file."""
    config_type: ClassVar[Any] = None
    """Frozen dataclass of the section: fields are the keys, with defaults and limits."""
    title: ClassVar[str] = "no program"
    template: ClassVar[str] = ""
    """First section of this kind, for `vastrun init`."""
    package: ClassVar[str] = ""
    """Package to ship to the machine; empty: none."""
    prepare: ClassVar[tuple[PrepareStep, ...]] = ()
    reports_steps: ClassVar[bool] = False
    """True: every rank writes a heartbeat."""
    estimate_module: ClassVar[str] = ""
    """Module that reads `workload_query` as JSON from its standard input and writes `Workloads`, in a Python
    that has torch; empty: none."""
    export_module: ClassVar[str] = ""
    """Module that writes a checkpoint as one file; empty: none."""
    advice: ClassVar[Mapping[str, str]] = {}
    """Advice by cause of failure, as `decisions/advice.py` writes it."""
    unlike_work: ClassVar[Collection[str]] = ()
    """Keys whose values may differ between two programs whose steps are the same work."""

    @classmethod
    def upgrade(cls, section: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return a stored section of an earlier version as this one reads it."""
        return section

    def validate(self, context: JobContext) -> Iterator[ProgramFault]:  # noqa: ARG002
        """Yield what is wrong with the section."""
        yield from ()

    def spec(self, context: JobContext) -> ProgramSpec:  # noqa: ARG002
        """Return how it is started and watched."""
        return ProgramSpec(kind=self.key)

    @property
    def stages(self) -> tuple[StageSpan, ...]:
        """Return its steps, in stages; empty: it has no known end."""
        return ()

    @property
    def total_steps(self) -> int:
        """Return the steps of all stages; 0: unknown."""
        return self.stages[-1].end_step if self.stages else 0

    def work_done(self, step: float) -> float:
        """Return the work of the first `step` steps, in steps of mean work."""
        return step

    @property
    def work(self) -> object:
        """Return a value whose repr is equal for programs whose steps take equally long."""
        return self.config

    @property
    def checkpoint_every(self) -> int | None:
        """Return the steps between two checkpoints; None: it saves none."""
        return None

    @property
    def needs_checkpoint(self) -> str:
        """Return the key that makes it start from a checkpoint of another run; empty: none does."""
        return ""

    @property
    def own_model(self) -> str:
        """Return the model of the user's code that the estimate tries; empty: it has none."""
        return ""

    def workload_query(self, context: JobContext) -> Mapping[str, Any] | None:  # noqa: ARG002
        """Return the query for the workload of a step; None: it is unknown."""
        return None

    def strategy(self, workloads: Workloads, world_size: int, gpu_bytes: int | None) -> str:  # noqa: ARG002
        """Return the strategy that it chooses on GPUs of that size; None: it has none."""
        return workloads.workloads[0].strategy

    @property
    def precision(self) -> str:
        """Return the precision of its arithmetic: `fp32`, `tf32`, `bf16` or `fp16`."""
        return "fp32"

    def fits_micro_batch(self) -> bool:
        """Return whether it makes its micro-batches smaller where memory is short."""
        return False

    def proofs(self, outcome: Outcome) -> Iterator[Proof]:  # noqa: ARG002
        """Yield the evidence for its success besides exit codes and downloads."""
        yield from ()

    def score_lines(self, scores: Mapping[str, float]) -> list[str]:
        """Format its scores at its end, or at that of a stage, in lines."""
        return [", ".join(f"{name} {value:.4g}" for name, value in sorted(scores.items()))] if scores else []

    @property
    def summary(self) -> str:
        """Describe it in one line."""
        return self.title


NO_PROGRAM = Program[None](None)
"""Stands where a job has none: of a machine that is held."""
