"""JSON Schemas (draft-07) of job and batch files, by which an editor completes and checks them.

Pydantic makes them of the types that the loader checks files with, and the pages say what each key means.
What must hold between keys, the loader alone knows.
"""

from __future__ import annotations

import inspect
import json
import re
import typing
from collections.abc import Mapping
from dataclasses import is_dataclass
from typing import Any

from pydantic import ConfigDict, TypeAdapter
from pydantic.json_schema import GenerateJsonSchema
from pydantic_core import core_schema

from vastrun.launcher.config.points import Method
from vastrun.launcher.config.program_kinds import all_kinds, any_job_type
from vastrun.launcher.config.rules import NAME
from vastrun.launcher.config.schema import bare, job_fields, options
from vastrun.launcher.config.yaml_reader import AS_WRITTEN, SHORTHAND_KEYS
from vastrun.launcher.core.batch import MAX_POINTS, BatchSpec
from vastrun.launcher.core.job import JobSpec

Schema = dict[str, Any]

PAGES: Mapping[str, str] = {"job": "job-file.md", "batch": "batch.md"}
"""Kinds of files, with the pages in docs/ that say what their keys mean."""
REFERENCES = "#/definitions/{model}"
_DRAFT = "http://json-schema.org/draft-07/schema#"

_TEXT: Schema = {"type": "string", "minLength": 1}
_ANY_SCALAR: Schema = {"type": ["string", "number", "boolean"]}
"""Values that YAML reads as numbers or booleans, where they are taken as they are written."""
_COMMAND: Schema = {
    "anyOf": [
        {"type": "string", "pattern": r"\S"},
        {"type": "array", "items": _ANY_SCALAR, "minItems": 1},
        {"type": "null"},
    ]
}
_JOB_RULES: Schema = {"dependencies": {"command": ["success"], "success": ["command"]}}
"""Rules between keys that a schema can express without hiding the other faults."""


def file_schema(kind: str, page: str) -> Schema:
    """Return the schema of a kind of files. `page`: the text of the page about its keys."""
    # An editor does not follow the links of Markdown.
    text = re.sub(r"\[([^][]+)\]\([^()]+\)", r"\1", page)
    rows = [line[2:-2].split(" | ") for line in text.splitlines() if line.startswith("| `")]
    meanings = {row[0].strip("`"): row[-1] for row in rows}
    if kind == "job":
        about = "Job file of vastrun, which trains on rented GPU machines"
        one_of = {"anyOf": [{"required": [each.key]} for each in all_kinds()]}
        schema = _file("vastrun job file", any_job_type(), meanings)
        return {**schema, "description": about, **one_of, **_JOB_RULES}
    schema = _file("vastrun batch file", BatchSpec, meanings)
    schema["properties"].update(_KINDS_OF_POINTS)
    about = "Batch file of vastrun: many runs of a job under one budget"
    return {**schema, "description": about, "oneOf": [{"required": [points]} for points in _KINDS_OF_POINTS]}


def to_text(schema: Schema) -> str:
    """Return a schema as it is written into a file."""
    return json.dumps(schema, indent=1, ensure_ascii=False) + "\n"


def whole(title: str, found: Schema) -> Schema:
    """Return a schema from that of a list of it, with the classes that it refers to."""
    top, definitions = found["items"], found["$defs"]
    for each in definitions.values():
        each.pop("title", None)
    if "$ref" in top:
        top = definitions.pop(top["$ref"].rpartition("/")[2])
    about = {} if "description" in top else {"description": f"One document of: {title}"}
    return {"$schema": _DRAFT, "title": title, **about, **top, "definitions": definitions}


class Draft7(GenerateJsonSchema):
    """Writes closed objects, tuples as draft-07 does, and no titles that repeat a name."""

    def dataclass_schema(self, schema: core_schema.DataclassSchema) -> Schema:
        """Close the object, and describe it, which early versions of pydantic leave out."""
        if schema["cls"] is JobSpec:  # with the section of each kind of programs
            whole: Any = TypeAdapter(any_job_type()).core_schema
            for part in whole.get("definitions", ()):
                self.generate_inner(part)
            schema = whole.get("schema", whole)
        about = {"additionalProperties": False, "description": inspect.getdoc(schema["cls"])}
        return {**super().dataclass_schema(schema), **about}

    def tuple_schema(self, schema: core_schema.TupleSchema) -> Schema:
        """Write the types of a tuple."""
        found = super().tuple_schema(schema)
        return {"items" if key == "prefixItems" else key: value for key, value in found.items()}

    def field_title_should_be_set(self, schema: Any) -> bool:  # noqa: ARG002
        """Leave titles out."""
        return False


def _file(title: str, kind: type, meanings: Mapping[str, str]) -> Schema:
    about = {
        (each.section, each.name): (
            (inspect.getdoc(hint) or "").splitlines()[0] if is_dataclass(hint) else meanings[each.key],
            hint,
        )
        for each in options(kind)
        for hint in [bare(each.hint)]
    }

    class OfThisFile(_FileKeys):
        keys = about

    adapter = TypeAdapter(list[kind], config=ConfigDict(extra="forbid"))  # type: ignore[valid-type]
    schema = whole(title, adapter.json_schema(schema_generator=OfThisFile, ref_template=REFERENCES))
    schema["properties"]["name"]["pattern"] = f"^(?:{NAME.pattern})$"
    return schema


class _FileKeys(Draft7):
    """Writes what a file may hold where the reader takes more than the type says."""

    keys: Mapping[tuple[type, str], tuple[str, Any]]
    """Meaning and type of each key, by its section."""

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


_PAIR: Schema = {"type": "array", "items": {"type": "number"}, "minItems": 2, "maxItems": 2}
_POSITIVE: Schema = {"type": "number", "exclusiveMinimum": 0}
_AXIS: Schema = {
    "type": "object",
    "properties": {
        "range": {"description": "[low, high], each number as likely", **_PAIR},
        "log": {"description": "[low, high], each power as likely", **_PAIR, "items": _POSITIVE},
        "int": {
            "description": "[low, high], whole numbers, both included",
            **_PAIR,
            "items": {"type": "integer"},
        },
        "choice": {"description": "One of these", "type": "array", "minItems": 1},
    },
    "additionalProperties": False,
    "minProperties": 1,
    "maxProperties": 1,
}
_SEARCH: Schema = {
    "samples": {"description": "Number of points", "type": "integer", "minimum": 1, "maximum": MAX_POINTS},
    "seed": {"description": "The same seed draws the same points", "type": "integer", "minimum": 0},
    "method": {
        "description": "How points are drawn: evenly, at random, or by what came before",
        "enum": list(typing.get_args(Method)),
    },
    "space": {
        "description": "The range of each key",
        "type": "object",
        "additionalProperties": _AXIS,
        "minProperties": 1,
    },
}
_KINDS_OF_POINTS: Mapping[str, Schema] = {
    "grid": {
        "description": "Every combination of the values that a list gives for each key",
        "type": "object",
        "additionalProperties": {"type": "array", "minItems": 1},
        "minProperties": 1,
    },
    "list": {
        "description": "The points as written, each a section of keys and values",
        "type": "array",
        "items": {"type": "object"},
        "minItems": 1,
    },
    "csv": {
        "description": "A file with the keys in its first line, and a point in each line after it",
        **_TEXT,
    },
    "search": {
        "description": "Samples of a space; exactly one of grid, list, csv and search is needed",
        "type": "object",
        "properties": _SEARCH,
        "additionalProperties": False,
        "required": ["samples", "space"],
    },
}
