"""Comparison: differences between two runs in jobs, images, hosts, ends and metrics. Pure."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, ClassVar, Literal

from vastrun.launcher.config.program_kinds import kinds_in
from vastrun.launcher.core import Cost, Run
from vastrun.launcher.core.job import JobSpec
from vastrun.launcher.core.runs import CodeRecord
from vastrun.launcher.core.secrets import public_job

Section = Literal["code", "job", "image", "packages", "host", "end", "metrics"]
Value = str | int | float | bool | None


@dataclass(frozen=True, kw_only=True)
class ComparedRun:
    """A run with the values by which it is compared."""

    run: Run
    spec: JobSpec
    cost: Cost
    """Cost of all its machines together; the price is, too."""
    usd_per_hour: float
    seconds: float
    """Seconds from its start to its end, or until now."""
    metrics: Mapping[str, Value]
    """Scores, and the last value of each metric, by name; `nan`: it is no finite number."""
    code: CodeRecord | None = None
    packages: Mapping[str, str] = field(default_factory=dict)
    """Versions of the machine's Python and of its packages."""


@dataclass(frozen=True, kw_only=True)
class Difference:
    """A difference between two runs. A value is None where one of them has none."""

    printed_properties: ClassVar = ("change",)

    section: Section
    key: str
    one: Value
    other: Value

    @property
    def change(self) -> float | None:
        """Relative change from the first number to the other; None where that says nothing."""
        values = (self.one, self.other)
        numbers = [n for n in values if isinstance(n, int | float) and not isinstance(n, bool)]
        return (numbers[1] - numbers[0]) / abs(numbers[0]) if len(numbers) == 2 and numbers[0] else None


def differences(one: ComparedRun, other: ComparedRun) -> list[Difference]:
    """Return the differences between two runs, section by section."""
    return [
        *_differences("code", _code(one.code), _code(other.code)),
        *job_differences(one.spec, other.spec),
        *_differences("image", {"image": one.run.image}, {"image": other.run.image}),
        *_differences("packages", one.packages, other.packages),
        *_differences("host", _host(one), _host(other)),
        *_differences("end", _end(one), _end(other)),
        *_differences("metrics", one.metrics, other.metrics),
    ]


def _code(record: CodeRecord | None) -> dict[str, Value]:
    """Return the commit, and a digest of each file by its name."""
    if record is None:
        return {}
    digests = {name: file.target or file.sha256[:12] for name, file in record.files.items()}
    return {"commit": record.origin.commit, **digests}


def job_differences(one: JobSpec, other: JobSpec) -> list[Difference]:
    """Return the differences between the options of two jobs, by the key that `--set` takes."""
    return list(_differences("job", job_values(one), job_values(other)))


def job_values(spec: JobSpec) -> dict[str, Value]:
    """Return every option of a job that has a value, by the key that `--set` takes, without secrets."""
    values = asdict(public_job(spec))
    del values["job_file"], values["code_digest"]  # what differs in the code is shown file by file
    return dict(_flat("", values))


def chosen_values(spec: JobSpec) -> dict[str, Value]:
    """Return the options of a job that differ from their defaults."""
    # Of a job with the same sections and only default values.
    sections = {kind.key: kind.config_type() for kind in kinds_in(type(spec))}
    defaults = job_values(type(spec)(name="", **sections))
    return {
        key: value for key, value in job_values(spec).items() if key == "name" or defaults.get(key) != value
    }


def _flat(prefix: str, value: Any) -> Iterator[tuple[str, Value]]:
    if isinstance(value, Mapping) and value:
        for key, inner in value.items():
            yield from _flat(f"{prefix}.{key}" if prefix else str(key), inner)
    elif isinstance(value, list | tuple) and value:
        yield prefix, value[0] if len(value) == 1 and isinstance(value[0], str) else json.dumps(value)
    elif isinstance(value, str | int | float):
        yield prefix, value


def _host(compared: ComparedRun) -> dict[str, Value]:
    run, facts = compared.run, dict[str, Value]()
    if (offer := run.offer) is not None:
        facts = {"gpu": offer.gpu_name, "gpus": offer.gpus, "gpu_memory_gb": offer.gpu_memory_gb}
        facts["cuda"] = offer.cuda or None
    usd_per_hour = compared.usd_per_hour
    return {"provider": run.provider, "host": run.host or None, **facts, "usd_per_hour": usd_per_hour}


def _end(compared: ComparedRun) -> dict[str, Value]:
    run = compared.run
    return {
        "verdict": None if run.verdict is None else str(run.verdict),
        "cause": None if run.cause is None else str(run.cause),
        "step": run.step,
        "seconds": round(compared.seconds, 1),
        "boot_s": None if run.boot_s is None else round(run.boot_s, 1),
        "usd": compared.cost.usd,
    }


def _differences(
    section: Section, one: Mapping[str, Value], other: Mapping[str, Value]
) -> Iterator[Difference]:
    for key in dict.fromkeys((*one, *other)):
        if one.get(key) != other.get(key):
            yield Difference(section=section, key=key, one=one.get(key), other=other.get(key))
