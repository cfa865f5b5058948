"""Documents: dataclasses that `--json` prints as they are. Their schemas are made by `tests/schemas.py`."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any, ClassVar, Self, dataclass_transform

from vastrun.launcher.core.hidden import HIDDEN

SCHEMA_VERSION = 1


@dataclass_transform(frozen_default=True, kw_only_default=True)
class Document:
    """Base of what is printed. One that shows a noun with more keys is a subclass of that noun, too."""

    printed_properties: ClassVar[tuple[str, ...]] = ()
    """Properties that are printed like fields; other dataclasses may have this as well."""

    def __init_subclass__(cls) -> None:
        dataclass(frozen=True, kw_only=True)(cls)

    @classmethod
    def fill(cls, *sources: Any, **values: Any) -> Self:
        """Make a document of `values`, and for other fields of the first source with such an attribute."""
        for field in fields(cls):  # type: ignore[arg-type]
            if field.name not in values:
                values[field.name] = next(getattr(s, field.name) for s in sources if hasattr(s, field.name))
        return cls(**values)


def to_text(document: Any) -> str:
    """Write a document as it goes to stdout, with the version of its form."""
    return json.dumps({"schema_version": SCHEMA_VERSION, **keys_of(document)}, indent=2, default=keys_of)


def keys_of(value: Any) -> Mapping[str, Any]:
    """Return what is printed of a dataclass or mapping, not of what lies within."""
    if isinstance(value, Mapping):
        return dict(value)
    shown = [field.name for field in fields(value) if field.metadata != HIDDEN]
    return {name: getattr(value, name) for name in (*shown, *getattr(value, "printed_properties", ()))}
