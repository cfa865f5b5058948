"""JSON records become nouns here. Standard library only."""

from __future__ import annotations

import json
import os
import types
import typing
from dataclasses import fields, is_dataclass
from functools import cache
from pathlib import Path
from typing import Any


def read_as(kind: Any, value: Any) -> Any:
    """`value`, as parsed from JSON, as an instance of `kind`: a dataclass, a tuple of one, or a plain type.

    Keys that `kind` does not know are ignored, so that an older reader accepts a newer file. An object may
    stand for a list of one.
    """
    if is_dataclass(kind):
        known = _types_of(kind)  # type: ignore[arg-type]
        return kind(**{name: read_as(known[name], v) for name, v in value.items() if name in known})  # type: ignore[operator]
    origin, args = typing.get_origin(kind), typing.get_args(kind)
    if origin is typing.Annotated:
        return read_as(args[0], value)
    if origin in (typing.Union, types.UnionType):
        return None if value is None else read_as(args[0], value)
    if origin is tuple:
        return tuple(read_as(args[0], v) for v in ([value] if isinstance(value, dict) else value))
    return value


@cache
def _types_of(kind: Any) -> dict[str, Any]:
    """Field -> type; a supervisor reads records many times a second."""
    hints = typing.get_type_hints(kind)
    return {field.name: hints[field.name] for field in fields(kind)}


def write_atomically(path: Path, text: str, *, durable: bool = True) -> None:
    """`path` holds `text`, whole: a reader sees the old file or the new one, never a part.

    When `durable`, it is on disk too, which a busy disk may take seconds for.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_name(f".{path.name}.{os.getpid()}.part")
    try:
        with part.open("w", encoding="utf-8") as file:
            file.write(text)
            if durable:
                file.flush()
                os.fsync(file.fileno())
        part.replace(path)
    finally:
        part.unlink(missing_ok=True)


def write_json(path: Path, value: Any, *, durable: bool = True) -> None:
    """As `write_atomically`, from a JSON value."""
    write_atomically(path, json.dumps(value, allow_nan=False) + "\n", durable=durable)
