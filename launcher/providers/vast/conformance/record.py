"""Record of a conformance run: a file without secrets that may be attached to an issue."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any

from vastrun.launcher.core import Cost
from vastrun.launcher.core.errors import StorageError, UsageError
from vastrun.launcher.providers.vast.conformance.assumption import Value
from vastrun.launcher.providers.vast.conformance.assumptions import ASSUMPTIONS

KIND, VERSION = "vastrun conformance", 1
_MAX_BYTES = 1 << 20
_MAX_TEXT = 200
_MAX_NUMBER = 1e12
_MAX_TRIALS = 20


@dataclass(frozen=True, kw_only=True)
class Record:
    """Content of a record file. Amounts are in USD, times in epoch seconds."""

    began_at: float
    ended_at: float
    run: str = ""
    """Id of the offer; empty when none fitted."""
    instance: str = ""
    """Id of the machine; empty when none was rented."""
    machine: str = ""
    """GPU's name in the offer."""
    verdict: str = ""
    """Cause of the run's end; empty while it is open."""
    exit_code: int = 0
    """Exit code of the run, as of `vastrun launch`."""
    counted: Cost = field(default_factory=Cost)
    """Cost of that machine by the ledger."""
    run_usd: float = 0.0
    """Cost of all machines of the run, in USD."""
    billed_usd: float | None = None
    """USD charged for that machine; None before anything is settled."""
    seen: Mapping[str, Value] = field(default_factory=dict)
    """Observations by assumption."""
    trials: Mapping[str, str] = field(default_factory=dict)
    """`digest` or `bid`, by the id of the machine that was rented for it."""
    trials_billed_usd: float | None = None
    """USD charged for the trial machines; None before anything is settled."""


def write_record(path: Path, record: Record) -> None:
    """Write the file atomically. Raises StorageError."""
    text = json.dumps({"kind": KIND, "schema_version": VERSION, **asdict(record)}, indent=2)
    part = path.with_name(f".{path.name}.part")
    try:
        part.write_text(text + "\n", encoding="utf-8")
        part.replace(path)
    except OSError as error:
        raise StorageError(
            f"cannot write {path}: {error.strerror or error}", hint="--file elsewhere"
        ) from error


def read_record(path: Path) -> Record:
    """Parse an untrusted file. Raises UsageError with the file and the invalid key."""
    try:
        with path.open("rb") as file:
            content = file.read(_MAX_BYTES + 1)
        if len(content) > _MAX_BYTES:
            raise ValueError(f"larger than {_MAX_BYTES} bytes")
        document = json.loads(content)
        if not isinstance(document, dict) or document.get("kind") != KIND:
            raise ValueError(f'expected an object with "kind": "{KIND}"')
        if document.get("schema_version") != VERSION:
            raise ValueError(f"schema_version: expected {VERSION}, got {document.get('schema_version')!r}")
        return _record_of(document)
    except OSError as error:
        raise UsageError(f"cannot read {path}: {error.strerror or error}") from error
    except (ValueError, RecursionError) as error:
        hint = "a file that `vastrun doctor --rent` has written"
        raise UsageError(f"{path}: {error}", hint=hint) from error


def _record_of(document: Mapping[str, Any]) -> Record:
    counted = document.get("counted")
    if not isinstance(counted, dict):
        raise ValueError(f"counted: expected an object, got {counted!r}"[:_MAX_TEXT])
    texts = {name: _text(document, name) for name in ("run", "instance", "machine", "verdict")}
    numbers = {name: _number(document, name) for name in ("began_at", "ended_at", "run_usd")}
    return Record(
        **texts,  # type: ignore[arg-type]
        **numbers,  # type: ignore[arg-type]
        exit_code=int(_number(document, "exit_code")),
        counted=Cost(**{one.name: _number(counted, one.name) for one in fields(Cost)}),
        billed_usd=_optional(document, "billed_usd"),
        seen=_seen(document.get("seen")),
        trials=_trials(document.get("trials", {})),
        trials_billed_usd=_optional(document, "trials_billed_usd"),
    )


def _seen(raw: Any) -> dict[str, Value]:
    """Rows that this version does not know are left out: the file may be older or newer."""
    if not isinstance(raw, dict):
        raise ValueError("seen: expected an object")
    seen: dict[str, Value] = {}
    for name in (name for name in ASSUMPTIONS if name in raw):
        try:
            seen[name] = ASSUMPTIONS[name].assumed.read(raw[name])
        except ValueError as error:
            raise ValueError(f"seen: {name}: {error}") from error
    return seen


def _trials(raw: Any) -> dict[str, str]:
    if not isinstance(raw, dict) or len(raw) > _MAX_TRIALS:
        raise ValueError("trials: expected an object")
    return {name: _text(raw, name) for name in raw if name.isdecimal()}


def _optional(document: Mapping[str, Any], key: str) -> float | None:
    return None if document.get(key) is None else _number(document, key)


def _text(document: Mapping[str, Any], key: str) -> str:
    value = document.get(key)
    if not isinstance(value, str) or len(value) > _MAX_TEXT or not value.isprintable():
        raise ValueError(f"{key}: expected a short text, got {str(value)[:_MAX_TEXT]!r}")
    return value


def _number(document: Mapping[str, Any], key: str) -> float:
    value = document.get(key)
    if isinstance(value, bool) or not isinstance(value, int | float) or not abs(value) <= _MAX_NUMBER:
        raise ValueError(f"{key}: expected a number, got {str(value)[:_MAX_TEXT]!r}")
    return float(value)
