"""Job loader: parses a job file's text into a JobSpec, applies --set, and checks values and their
combinations."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from dataclasses import replace
from datetime import datetime, timedelta
from functools import cache
from pathlib import PurePosixPath
from typing import Any, TypeVar

from pydantic import TypeAdapter, ValidationError
from yaml.nodes import MappingNode, Node

from vastrun.launcher.config.program_kinds import Command, any_job_type, job_type
from vastrun.launcher.config.rules import conflicts
from vastrun.launcher.config.source import SET, Fault, KeyPath, SyntaxFault, grafted, parse, parse_value
from vastrun.launcher.config.yaml_reader import YamlReader
from vastrun.launcher.core.errors import JobFileError
from vastrun.launcher.core.job import JobSpec

_Noun = TypeVar("_Noun")


class JobFaults(Exception):
    """A job has faults, each with its place."""

    def __init__(self, faults: Iterable[Fault]) -> None:
        super().__init__()
        self.faults = tuple(sorted(faults))


def load_job(
    text: str, name: str, overrides: Iterable[str] = (), base_dir: str = ".", now: datetime | None = None
) -> JobSpec:
    """Return the job in a file's text. `overrides` are `key=value`, as given to --set.

    Paths in the job are relative to `base_dir`, the folder of the file. A deadline of 18:00 is the next
    one after `now`, in its zone; None: a deadline needs date and zone. Raises JobFileError with every
    fault.
    """
    faults: list[Fault] = []
    try:
        root, faults = with_overrides(parse(text, name), overrides)
        spec = load_node(root, base_dir, now)
    except SyntaxFault as error:
        raise JobFileError((str(error.fault),)) from error
    except JobFaults as error:
        faults += error.faults
    if faults:
        raise JobFileError(tuple(map(str, sorted(faults))))
    return spec


def load_node(root: Node, base_dir: str, now: datetime | None = None) -> JobSpec:
    """Return the job in a node, its paths anchored at `base_dir`, its deadline the next one after `now`.

    Raises JobFaults with every fault.
    """
    keys = [key.value for key, _ in root.value] if isinstance(root, MappingNode) else []
    kind = job_type(key for key in keys if isinstance(key, str))
    if kind is JobSpec and Command.key not in keys:
        kind = any_job_type()  # which kind was meant, a message may say
    reading = YamlReader(root, kind)
    spec = checked(reading, kind)
    if spec is not None:
        # A clash with a value that is wrong by itself would be reported twice, once misleadingly.
        meant = [conflict for conflict in conflicts(spec) if reading.is_valid(*conflict.about)]
        for conflict in meant:
            reading.fault(conflict.path, conflict.text)
        spec = _dated(spec, now, reading)
    if reading.faults or spec is None:
        raise JobFaults(reading.faults)
    # With absolute paths the job's file is not needed any more.
    base = PurePosixPath(base_dir)
    code = spec.code and replace(spec.code, path=_under(base, spec.code.path))
    secrets = tuple(
        replace(
            secret,
            file=secret.file and _under(base, secret.file),
            env_file=secret.env_file and _under(base, secret.env_file),
            folder=secret.command and _under(base, secret.folder or "."),
        )
        for secret in spec.secrets
    )
    data = tuple(one if one.url else replace(one, path=_under(base, one.path or "")) for one in spec.data)
    return replace(spec, code=code, secrets=secrets, data=data)


def _dated(spec: JobSpec, now: datetime | None, reading: YamlReader) -> JobSpec:
    """Return the job with its deadline as one moment, so that a run that is resumed keeps it."""
    if spec.limits.deadline is None:
        return spec
    try:
        deadline = absolute(spec.limits.deadline, now)
    except ValueError as error:
        reading.fault(("limits", "deadline"), str(error))
        return spec
    return replace(spec, limits=replace(spec.limits, deadline=deadline))


def with_overrides(root: Node, overrides: Iterable[str]) -> tuple[Node, list[Fault]]:
    """Return a copy of the job with each `key=value` set; anything else is a fault."""
    faults = []
    for override in overrides:
        key, equals, value = override.partition("=")
        try:
            if not equals or not key:
                fault = Fault(True, 0, override, "expected key=value, as in limits.usd=5", SET)
                raise SyntaxFault(fault)
            root = grafted(root, key, parse_value(value, SET, key))
        except SyntaxFault as error:
            faults.append(error.fault)
    return root, faults


def checked(reading: YamlReader, kind: type[_Noun]) -> _Noun | None:
    """Validate the data as a `kind`; invalid values are added to the faults and replaced by their
    defaults.

    None where it is invalid even then: a required key is missing.
    """
    noun: _Noun
    try:
        noun = _validated(kind, reading.data)
        return noun
    except ValidationError as error:
        data = reading.data
        for entry in error.errors(include_url=False):
            path: KeyPath = tuple(part for part in entry["loc"] if part != "[key]")
            if entry["type"] == "missing":
                reading.fault(path, "missing")
            # Of a list with a wrong entry pydantic says that it is too short, too.
            elif reading.is_valid(path):
                reading.unexpected(path)
            _drop(data, path)
    try:
        noun = _validated(kind, {"name": "unnamed", **data})
        return noun
    except ValidationError:
        return None


@cache
def _adapter(kind: Any) -> TypeAdapter[Any]:
    return TypeAdapter(kind)


def _validated(kind: Any, data: Any) -> Any:
    # As strict JSON: no "12" for 12 and no 1 for true, but lists for tuples.
    return _adapter(kind).validate_json(json.dumps(data), strict=True)


def _drop(data: Any, path: KeyPath) -> None:
    """Remove the value at `path` from `data`; for an item of a list, the whole list."""
    for part in path[:-1]:
        if not isinstance(data, dict) or not isinstance(data.get(part), dict):
            break
        data, path = data[part], path[1:]
    if isinstance(data, dict):
        data.pop(path[0], None)


def _under(base: PurePosixPath, path: str) -> str:
    """Return the path from `base`; one in a home folder stays, since the home is not known here."""
    return path if path.startswith("~") else str(base / path)


_MOMENT = re.compile(
    r"(?:(\d{4}-\d\d-\d\d)(?:[Tt]|\s+))?(\d{1,2}):(\d\d)(?::(\d\d))?\s*([Zz]|[+-]\d\d:?\d\d)?", re.ASCII
)
_EXAMPLES = "18:00, 2030-11-25 08:00 or 2030-11-25T08:00:00+01:00"


def absolute(text: str, now: datetime | None) -> str:
    """Return the time in ISO form, with its zone, which is that of `now` where the text has none.

    A time of day means the next one. `now` None: only a full date with its zone is accepted. Raises
    ValueError with the expected form.
    """
    match = _MOMENT.fullmatch(text.strip())
    if match is None:
        raise ValueError(f"expected a time like {_EXAMPLES}, got {text!r}")
    date, hour, minute, second, zone = match.groups()
    if now is None and not (date and zone):
        raise ValueError(f"expected a date, a time and a zone, as in 2030-11-25T08:00:00+01:00, got {text!r}")
    today = "0001-01-01" if now is None else now.date().isoformat()
    try:
        at = datetime.fromisoformat(f"{date or today}T{int(hour):02}:{minute}:{second or '00'}{zone or ''}")
    except ValueError as error:
        raise ValueError(f"expected a time like {_EXAMPLES}, got {text!r}: {error}") from None
    if now is None:
        return at.isoformat()
    at = at if zone else at.replace(tzinfo=now.tzinfo)
    if at > now:
        return at.isoformat()
    if date:
        raise ValueError(f"{at:%Y-%m-%d %H:%M} is in the past: it is {now:%Y-%m-%d %H:%M} now")
    return (at + timedelta(days=1)).isoformat()
