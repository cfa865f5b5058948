"""Record of a conformance run: a file without secrets that may be attached to an issue."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Annotated, Any

from vastrun.contract.records import MaxLength, Pattern, Range, parse_json, read_as, write_atomically
from vastrun.launcher.core import Cost
from vastrun.launcher.core.errors import StorageError, UsageError
from vastrun.launcher.providers.vast.conformance.assumption import Value
from vastrun.launcher.providers.vast.conformance.assumptions import ASSUMPTIONS

KIND, VERSION = "vastrun conformance", 1
_MAX_BYTES = 1 << 20
_Short = Annotated[str, Pattern(r"[^\x00-\x1f\x7f-\x9f\u2028\u2029]{0,200}")]
_Number = Annotated[float, Range(-1e12, 1e12)]


@dataclass(frozen=True, kw_only=True)
class Record:
    """Content of a record file. Amounts are in USD, times in epoch seconds."""

    began_at: _Number
    ended_at: _Number
    run: _Short = ""
    """Id of the offer; empty when none fitted."""
    instance: _Short = ""
    """Id of the machine; empty when none was rented."""
    machine: _Short = ""
    """GPU's name in the offer."""
    verdict: _Short = ""
    """Cause of the run's end; empty while it is open."""
    exit_code: Annotated[int, Range(0, 255)] = 0
    """Exit code of the run, as of `vastrun launch`."""
    counted: Cost = field(default_factory=Cost)
    """Cost of that machine by the ledger."""
    tail_usd: _Number = 0.0
    """Max. of what may be charged for it after its end, in USD."""
    run_usd: _Number = 0.0
    """Cost of all machines of the run, in USD."""
    billed_usd: _Number | None = None
    """USD charged for that machine; None before anything is settled."""
    seen: Mapping[str, Value] = field(default_factory=dict)
    """Observations by assumption."""
    trials: Annotated[Mapping[_Short, _Short], MaxLength(20)] = field(default_factory=dict)
    """`bid`, by the id of the machine that was rented for it."""
    trials_billed_usd: _Number | None = None
    """USD charged for the trial machines; None before anything is settled."""


def write_record(path: Path, record: Record) -> None:
    """Write the file atomically. Raises StorageError."""
    text = json.dumps({"kind": KIND, "schema_version": VERSION, **asdict(record)}, indent=2)
    try:
        write_atomically(path, text + "\n")
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
        document = parse_json(content)
        if not isinstance(document, dict) or document.get("kind") != KIND:
            raise ValueError(f'expected an object with "kind": "{KIND}"')
        if document.get("schema_version") != VERSION:
            raise ValueError(f"schema_version: expected {VERSION}, got {document.get('schema_version')!r}")
        seen = _seen(document.get("seen"))  # its values are of several types, which the table reads
        record: Record = read_as(Record, {**document, "seen": {}})
        return replace(record, seen=seen)
    except OSError as error:
        raise UsageError(f"cannot read {path}: {error.strerror or error}") from error
    except ValueError as error:
        hint = "a file that `vastrun doctor --rent` has written"
        raise UsageError(f"{path}: {error}", hint=hint) from error


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
