"""JSON Schemas (draft-07) of job and batch files, by which an editor completes and checks them.

Pydantic makes them of the types that the loader checks files with, and the pages say what each key means.
What must hold between keys, the loader alone knows.
"""

from __future__ import annotations

import inspect
import typing
from collections.abc import Mapping
from dataclasses import is_dataclass
from typing import Any

from pydantic import ConfigDict, TypeAdapter
from pydantic_core import core_schema

from tests.document_schemas import REFERENCES, Draft7, Schema, whole
from vastrun.launcher.config.points import Method
from vastrun.launcher.config.rules import NAME
from vastrun.launcher.config.schema import bare, job_fields, options
from vastrun.launcher.config.yaml_reader import AS_WRITTEN, SHORTHAND_KEYS
from vastrun.launcher.core.batch import MAX_POINTS, BatchSpec
from vastrun.launcher.core.job import JobSpec

_STORE = "https://www.schemastore.org"
JOB_URL, BATCH_URL = f"{_STORE}/vastrun-job.json", f"{_STORE}/vastrun-batch.json"
"""Addresses that SchemaStore gives the files src/schemas/json/vastrun-job.json and vastrun-batch.json."""
_JOB = "Job file of vastrun, which trains on rented GPU machines"
_BATCH = "Batch file of vastrun: many runs of a job under one budget"

_TEXT: Schema = {"type": "string", "minLength": 1}
_ANY_SCALAR: Schema = {"type": ["string", "number", "boolean"]}
"""What YAML reads as a number or a boolean, where we take it as it is written."""
_COMMAND: Schema = {
    "anyOf": [
        {"type": "string", "pattern": r"\S"},
        {"type": "array", "items": _ANY_SCALAR, "minItems": 1},
        {"type": "null"},
    ]
}
_JOB_RULES: Schema = {
    "anyOf": [{"required": ["train"]}, {"required": ["command"]}],
    "dependencies": {"command": ["success"], "success": ["command"]},
}
"""What of the rules between keys a schema can say without hiding the other faults."""


def job_schema(meanings: Mapping[str, str]) -> Schema:
    """Return the schema of a job file. `meanings`: what each key means, by its dotted name."""
    schema = _file("vastrun job file", JobSpec, meanings)
    return {"$schema": schema["$schema"], "$id": JOB_URL, **schema, "description": _JOB, **_JOB_RULES}


def batch_schema(meanings: Mapping[str, str]) -> Schema:
    """Return the schema of a batch file, as `job_schema`."""
    schema = _file("vastrun batch file", BatchSpec, meanings)
    schema["properties"].update(_KINDS_OF_POINTS)
    kinds = [{"required": [kind]} for kind in _KINDS_OF_POINTS]
    return {"$schema": schema["$schema"], "$id": BATCH_URL, **schema, "description": _BATCH, "oneOf": kinds}


def catalog() -> Schema:
    """Return the entries of these schemas in SchemaStore's catalog, in the form of that file.

    A pattern applies to every file on a user's computer, so `*.yaml` and `job.yaml` are too general.
    """
    job = {
        "name": "vastrun job",
        "description": _JOB,
        "fileMatch": ["*.vastrun.yaml", "*.vastrun.yml"],
        "url": JOB_URL,
    }
    batch = {
        "name": "vastrun batch",
        "description": _BATCH,
        "fileMatch": ["*.vastrun-batch.yaml", "*.vastrun-batch.yml"],
        "url": BATCH_URL,
    }
    return {
        "$schema": "https://www.schemastore.org/schema-catalog.json",
        "version": 1,
        "schemas": [batch, job],
    }


def _file(title: str, kind: type, meanings: Mapping[str, str]) -> Schema:
    about = {
        (each.section, each.name): (_subject(hint) if is_dataclass(hint) else meanings[each.key], hint)
        for each in options(kind)
        for hint in [bare(each.hint)]
    }

    class OfThisFile(_FileKeys):
        keys = about

    adapter = TypeAdapter(list[kind], config=ConfigDict(extra="forbid"))  # type: ignore[valid-type]
    schema = whole(title, adapter.json_schema(schema_generator=OfThisFile, ref_template=REFERENCES))
    schema["properties"]["name"]["pattern"] = f"^(?:{NAME.pattern})$"
    return schema


def _subject(kind: Any) -> str:
    return (inspect.getdoc(kind) or "").splitlines()[0]


class _FileKeys(Draft7):
    """Writes what a file may hold where the reader takes more than the type says."""

    keys: Mapping[tuple[type, str], tuple[str, Any]]
    """What each key of a section means, and its type."""

    def dataclass_schema(self, schema: core_schema.DataclassSchema) -> Schema:
        """Describe the keys that a file may give; an empty section has the defaults."""
        found, section = super().dataclass_schema(schema), schema["cls"]
        properties = {}
        for key in (field.name for field in job_fields(section)):
            meaning, hint = self.keys.get((section, key), ("", None))
            properties[key] = {"description": meaning, **_as_read(key, hint, found["properties"][key])}
        found["properties"] = properties
        if "required" not in found:
            found["type"] = ["object", "null"]
        return {"anyOf": [found, _TEXT]} if section in SHORTHAND_KEYS else found


def _as_read(key: str, hint: Any, schema: Schema) -> Schema:
    """Return what the reader takes for a key: nothing for a list or section, one entry for a list of it."""
    if schema.get("default") in (None, []):
        schema = {name: value for name, value in schema.items() if name != "default"}
    if key == "command":
        return _COMMAND
    if schema.get("type") == "object":
        if key in AS_WRITTEN:
            schema = {**schema, "additionalProperties": _ANY_SCALAR}
        return {**_named(schema), "type": ["object", "null"]}
    if "anyOf" in schema:
        return {**schema, "anyOf": [_named(each) for each in schema["anyOf"]]}
    if schema.get("type") != "array":
        return schema
    many, item = {**schema, "type": ["array", "null"]}, typing.get_args(hint)[0]
    if item in SHORTHAND_KEYS:
        return {"anyOf": [many, _TEXT]}
    return {"anyOf": [many, schema["items"]]} if bare(item) is str or is_dataclass(item) else many


def _named(schema: Schema) -> Schema:
    """Return a mapping's schema with the names that its keys may have, which an editor completes."""
    if "propertyNames" not in schema:
        return schema
    each = schema["additionalProperties"]
    known = {name: {"description": f"After {name}", **each} for name in schema["propertyNames"]["enum"]}
    return {"type": "object", "properties": known, "additionalProperties": False}


def _about(meaning: str, schema: Schema) -> Schema:
    return {"description": meaning, **schema}


def _pair(item: Schema) -> Schema:
    return {"type": "array", "items": item, "minItems": 2, "maxItems": 2}


def _closed(properties: Schema, **more: Any) -> Schema:
    return {"type": "object", "properties": properties, "additionalProperties": False, **more}


def _mapping_to(values: Schema) -> Schema:
    return {"type": "object", "additionalProperties": values, "minProperties": 1}


_AXIS = _closed(
    {
        "range": _about("[low, high], each number as likely", _pair({"type": "number"})),
        "log": _about("[low, high], each power as likely", _pair({"type": "number", "exclusiveMinimum": 0})),
        "int": _about("[low, high], whole numbers, both ends included", _pair({"type": "integer"})),
        "choice": _about("One of these", {"type": "array", "minItems": 1}),
    },
    minProperties=1,
    maxProperties=1,
)
_SEARCH = _closed(
    {
        "samples": _about("How many points", {"type": "integer", "minimum": 1, "maximum": MAX_POINTS}),
        "seed": _about("The same seed draws the same points", {"type": "integer", "minimum": 0}),
        "method": _about(
            "How points are drawn: evenly, at random, or by what came before",
            {"enum": list(typing.get_args(Method))},
        ),
        "space": _about("The range of each key", _mapping_to(_AXIS)),
    },
    required=["samples", "space"],
)
_KINDS_OF_POINTS: Mapping[str, Schema] = {
    "grid": _about(
        "Every combination of the values that a list gives for each key",
        _mapping_to({"type": "array", "minItems": 1}),
    ),
    "list": _about(
        "The points as written, each a section of keys and values",
        {"type": "array", "items": {"type": "object"}, "minItems": 1},
    ),
    "csv": _about("A file with the keys in its first line, and a point in each line after it", _TEXT),
    "search": _about("Samples of a space; exactly one of grid, list, csv and search is needed", _SEARCH),
}
