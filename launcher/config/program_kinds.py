"""Program kinds: what a job may run. The only module of the launcher that names the trainer."""

from __future__ import annotations

import shlex
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass, field, fields, make_dataclass
from functools import cache
from importlib import import_module
from typing import Any, cast

from vastrun.contract.program import ProgramSpec
from vastrun.contract.program_kind import JobContext, Program
from vastrun.launcher.config.command import script_of
from vastrun.launcher.core.errors import UsageError
from vastrun.launcher.core.job import JobSpec

GROUP = "vastrun.program_kinds"
"""Entry points of further kinds."""
_BUILT_IN = {"train": "vastrun.trainer.job.program:TrainProgram"}
TRAINER = "vastrun.trainer"
"""Package that is always shipped to a machine that is held: its slots may need it."""
_JOB_KEYS = frozenset(each.name for each in fields(JobSpec))


@dataclass(frozen=True)
class Command(Program[tuple[str, ...]]):
    """The user's own program."""

    key = "command"
    title = "your own program"

    def spec(self, context: JobContext) -> ProgramSpec:  # noqa: ARG002
        """Return how it is started."""
        return ProgramSpec(kind=self.key, argv=self.config)

    @property
    def summary(self) -> str:
        """Return the first line of the command."""
        lines = (script_of(self.config) or shlex.join(self.config)).splitlines()
        return lines[0] + (" …" if len(lines) > 1 else "")


def kind_of(key: str) -> type[Program[Any]] | None:
    """Return the kind of programs that a section describes; None: no kind, or of a missing package."""
    return Command if key == Command.key else None if key in _JOB_KEYS else _load(key)


@cache
def _load(key: str) -> type[Program[Any]] | None:
    """Import a kind. Raises UsageError for one of another package that is none."""
    if key in _BUILT_IN:
        module, _, name = _BUILT_IN[key].partition(":")
        return cast("type[Program[Any]]", getattr(import_module(module), name))
    point = next((point for point in _entry_points() if point.name == key), None)
    try:
        kind = None if point is None else point.load()
    except (Exception, SystemExit) as error:  # whatever another package's module raises
        raise _wrong(key, f"cannot be imported: {type(error).__name__}: {error}") from error
    if kind is not None and not (isinstance(kind, type) and issubclass(kind, Program) and kind.key == key):
        raise _wrong(key, f"is no subclass of Program with {key!r} as its key")
    return kind


def _wrong(key: str, text: str) -> UsageError:
    return UsageError(
        f"{key}: its kind of programs {text}", hint="update or uninstall the package that adds it"
    )


@cache
def _entry_points() -> Iterable[Any]:
    from importlib.metadata import entry_points  # slow: it reads every installed package

    return entry_points(group=GROUP)


def all_kinds() -> tuple[type[Program[Any]], ...]:
    """Return all kinds, the built-in ones first, without those that do not load."""
    found: list[type[Program[Any]] | None] = []
    for name in (*_BUILT_IN, Command.key, *sorted({point.name for point in _entry_points()} - {*_BUILT_IN})):
        with suppress(UsageError):  # said where a job has its section
            found.append(kind_of(name))
    return tuple(kind for kind in found if kind is not None)


def job_type(keys: Iterable[str]) -> type[JobSpec]:
    """Return the type of a job file with these keys: a section for each kind of program among them."""
    return _job_type(tuple(sorted(key for key in keys if key != Command.key and kind_of(key) is not None)))


def any_job_type() -> type[JobSpec]:
    """Return the type of a job file with a section for each kind."""
    return job_type(kind.key for kind in all_kinds())


@cache
def _job_type(keys: tuple[str, ...]) -> type[JobSpec]:
    if not keys:
        return JobSpec
    kinds = [kind for key in keys if (kind := kind_of(key)) is not None]
    sections = [(kind.key, kind.config_type | None, field(default=None)) for kind in kinds]
    return make_dataclass(
        "JobSpec",
        sections,
        bases=(JobSpec,),
        frozen=True,
        kw_only=True,
        # Where types are looked up by name.
        namespace={"__module__": JobSpec.__module__, "__doc__": JobSpec.__doc__},
    )


def kinds_in(job: type[JobSpec]) -> list[type[Program[Any]]]:
    """Return the kinds that have a section in this type of a job, `command` aside."""
    names = (each.name for each in fields(job) if each.name not in _JOB_KEYS)
    return [kind for name in names if (kind := kind_of(name)) is not None]


def programs_of(spec: JobSpec) -> list[Program[Any]]:
    """Return the programs of a job, which may have only one."""
    kinds: list[type[Program[Any]]] = [*kinds_in(type(spec)), Command]
    return [kind(config) for kind in kinds if (config := getattr(spec, kind.key)) is not None]


def context_of(spec: JobSpec) -> JobContext:
    """Return what a program may know of its job."""
    return JobContext(
        world_size=spec.world_size,
        gpus=spec.resources.gpus,
        disk_gb=spec.resources.disk_gb,
        code=None if spec.code is None else spec.code.path,
        variables={*spec.env, *(secret.name for secret in spec.secrets)},
        tags=spec.tags,
        downloads_data=bool(spec.data),
    )


def program_spec(spec: JobSpec) -> ProgramSpec:
    """Return what the machine's part reads of the job's program. Raises UsageError."""
    if spec.hold is not None:
        # The trainings of its slots need the packages that the trainer pins.
        return ProgramSpec(kind="hold", package=TRAINER)
    found = programs_of(spec)
    if not found:
        raise UsageError(f"{spec.name} has no program: the package of its kind is not installed")
    return found[0].spec(context_of(spec))
