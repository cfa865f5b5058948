"""Documents: dataclasses that `--json` prints; `cli/schema.py` makes their schemas."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any, ClassVar, Self, dataclass_transform

from vastrun.launcher.core.runs import HIDDEN

SCHEMA_VERSION = 1


@dataclass_transform(frozen_default=True, kw_only_default=True)
class Document:
    """Base class of documents. One that extends a record with more keys is also a subclass of the record."""

    printed_properties: ClassVar[tuple[str, ...]] = ()
    """Properties to print like fields; any dataclass may have this attribute."""

    def __init_subclass__(cls) -> None:
        dataclass(frozen=True, kw_only=True)(cls)

    @classmethod
    def fill(cls, *sources: Any, **values: Any) -> Self:
        """Make a document of `values`; other fields come from the first source that has the attribute."""
        for field in fields(cls):  # type: ignore[arg-type]
            if field.name not in values:
                values[field.name] = next(getattr(s, field.name) for s in sources if hasattr(s, field.name))
        return cls(**values)


def to_text(document: Any) -> str:
    """Serialize a document as JSON, with the schema version."""
    return json.dumps({"schema_version": SCHEMA_VERSION, **keys_of(document)}, indent=2, default=keys_of)


def keys_of(value: Any) -> Mapping[str, Any]:
    """Return the printed keys and values of a dataclass or mapping, without converting nested values."""
    if isinstance(value, Mapping):
        return dict(value)
    shown = [field.name for field in fields(value) if field.metadata != HIDDEN]
    return {name: getattr(value, name) for name in (*shown, *getattr(value, "printed_properties", ()))}
