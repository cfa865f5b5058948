"""The section `program` of a box's job.json, as the launcher writes it."""

import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict
from typing import Any

from vastrun.contract.program import ProgramSpec
from vastrun.contract.program_kind import JobContext
from vastrun.contract.records import read_json
from vastrun.trainer.job.config import TrainConfig
from vastrun.trainer.job.program import TrainProgram


def training(
    options: Mapping[str, Any], *, gpus: int = 0, env: Mapping[str, str] | None = None
) -> dict[str, Any]:
    """That of `train:` with these options."""
    config: TrainConfig = read_json(TrainConfig, json.dumps(options))
    return _read(program_spec(config, gpus=gpus, variables=env or {}))


def program_spec(config: TrainConfig, *, gpus: int = 0, variables: Collection[str] = ()) -> ProgramSpec:
    """That of a training, as the machine's part reads it."""
    context = JobContext(
        world_size=max(1, gpus),
        gpus=gpus,
        disk_gb=40.0,
        code=None,
        variables=variables,
        tags=(),
        downloads_data=False,
    )
    return TrainProgram(config).spec(context)


def command(*argv: str) -> dict[str, Any]:
    """That of `command:`."""
    return _read(ProgramSpec(kind="command", argv=argv))


def described(job: Mapping[str, Any]) -> dict[str, Any]:
    """A job.json of one with a section `train` or `command` instead of `program`."""
    rest = {name: value for name, value in job.items() if name not in ("train", "command")}
    train, argv = job.get("train"), job.get("command")
    words: Sequence[str] = argv or ()
    program = (
        command(*words) if train is None else training(train, gpus=job.get("gpus", 0), env=job.get("env"))
    )
    return {**rest, "program": program}


def _read(program: ProgramSpec) -> dict[str, Any]:
    """The section as it is read from a file: with lists."""
    section: dict[str, Any] = json.loads(json.dumps(asdict(program)))
    return section
