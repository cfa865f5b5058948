"""JSON Schema (draft-07) of job and batch files, from the types: by it an editor completes and checks them.

The schema and the loader agree on what a key may hold; what must hold between keys, the loader alone knows.
"""

from __future__ import annotations

import inspect
import typing
from collections.abc import Mapping
from dataclasses import MISSING, astuple, dataclass, is_dataclass
from typing import Any, Literal

from annotated_types import Ge, Gt, Le, Lt, MaxLen, MinLen

from launcher.config.points import METHODS
from launcher.config.reading import AS_WRITTEN, SHORT
from launcher.config.rules import NAME
from launcher.config.schema import bare, default, given, is_mapping, limits_of, optional, words_of
from launcher.core.batch import MOST_POINTS, BatchSpec
from launcher.core.job import JobSpec

Schema = dict[str, Any]

_DRAFT = "http://json-schema.org/draft-07/schema#"
_SCALARS: dict[Any, str] = {int: "integer", float: "number", str: "string", bool: "boolean"}
_TEXT: Schema = {"type": "string", "minLength": 1}
_METHODS: Schema = {"enum": list(METHODS)}
_BOUNDS: dict[Any, str] = {
    Ge: "minimum",
    Le: "maximum",
    Gt: "exclusiveMinimum",
    Lt: "exclusiveMaximum",
    MinLen: "minLength",
    MaxLen: "maxLength",
}
_ANY_SCALAR = {"type": ["string", "number", "boolean"]}
"""What YAML reads as a number or a boolean, where we take it as it is written."""


def job_schema(meanings: Mapping[str, str]) -> Schema:
    """Return the schema of a job file. `meanings`: what each key means, by its dotted name."""
    return {**_file("vastrun job file", JobSpec, meanings), **_job_rules()}


def batch_schema(meanings: Mapping[str, str]) -> Schema:
    """Return the schema of a batch file, as `job_schema`."""
    schema = _file("vastrun batch file", BatchSpec, meanings)
    kinds = _kinds_of_points()
    schema["properties"].update(kinds)
    return {**schema, "oneOf": [{"required": [kind]} for kind in kinds]}


def _file(title: str, kind: Any, meanings: Mapping[str, str]) -> Schema:
    schema = _Writer(meanings).section(kind, "")
    schema["properties"]["name"]["pattern"] = f"^(?:{NAME.pattern})$"
    return {"$schema": _DRAFT, "title": title, **schema, "type": "object"}


def _job_rules() -> Schema:
    """Return what of the rules between keys a schema can say without hiding the other faults."""
    return {
        "anyOf": [{"required": ["train"]}, {"required": ["command"]}],
        "dependencies": {"command": ["success"], "success": ["command"]},
    }


def _kinds_of_points() -> dict[str, Schema]:
    values = {"type": "object", "additionalProperties": {"type": "array", "minItems": 1}, "minProperties": 1}
    points = {"type": "array", "items": {"type": "object"}, "minItems": 1}
    return {
        "grid": _about("Every combination of the values that a list gives for each key", values),
        "list": _about("The points as written, each a section of keys and values", points),
        "csv": _about("A file with the keys in its first line, and a point in each line after it", _TEXT),
        "search": _about(
            "Samples of a space; exactly one of grid, list, csv and search is needed", _search()
        ),
    }


def _search() -> Schema:
    count = {"type": "integer", "minimum": 1, "maximum": MOST_POINTS}
    space = {"type": "object", "additionalProperties": _axis(), "minProperties": 1}
    return {
        "type": "object",
        "properties": {
            "samples": _about("How many points", count),
            "seed": _about("The same seed draws the same points", {"type": "integer", "minimum": 0}),
            "method": _about("How points are drawn: evenly, at random, or by what came before", _METHODS),
            "space": _about("The range of each key", space),
        },
        "required": ["samples", "space"],
        "additionalProperties": False,
    }


def _axis() -> Schema:
    def pair(item: Schema) -> Schema:
        return {"type": "array", "items": item, "minItems": 2, "maxItems": 2}

    kinds = {
        "range": _about("[low, high], each number as likely", pair({"type": "number"})),
        "log": _about("[low, high], each power as likely", pair({"type": "number", "exclusiveMinimum": 0})),
        "int": _about("[low, high], whole numbers, both ends included", pair({"type": "integer"})),
        "choice": _about("One of these", {"type": "array", "minItems": 1}),
    }
    closed = {"type": "object", "properties": kinds, "additionalProperties": False}
    return {**closed, "minProperties": 1, "maxProperties": 1}


def _about(meaning: str, schema: Schema) -> Schema:
    return {"description": meaning, **schema}


@dataclass(frozen=True)
class _Writer:
    """Writes the schema of each key with its meaning."""

    meanings: Mapping[str, str]

    def section(self, kind: Any, prefix: str) -> Schema:
        """Return the schema of a noun's section: closed, so that a key that is not known is an error."""
        hints = typing.get_type_hints(kind, include_extras=True)
        fields = list(given(kind))
        properties = {field.name: self._key(hints[field.name], field, prefix) for field in fields}
        needed = [field.name for field in fields if default(field) is MISSING]
        # An empty section, or one whose keys are all commented out, has the defaults.
        schema: Schema = {"type": ["object", "null"], "properties": properties, "additionalProperties": False}
        return {**schema, "type": "object", "required": needed} if needed else schema

    def _key(self, hint: Any, field: Any, prefix: str) -> Schema:
        key = prefix + field.name
        meaning = _subject(bare(hint)) if is_dataclass(bare(hint)) else self.meanings[key]
        schema = {"description": meaning, **self._value(hint, key)}
        value = default(field)
        if isinstance(value, str | int | float):
            schema["default"] = value
        return schema

    def _value(self, hint: Any, key: str) -> Schema:
        inner = bare(hint)
        if key == "command":
            words = {"type": "array", "items": _ANY_SCALAR, "minItems": 1}
            return {"anyOf": [{"type": "string", "pattern": r"\S"}, words, {"type": "null"}]}
        if is_dataclass(inner):
            section = _nullable(self.section(inner, f"{key}."))
            return {"anyOf": [section, _TEXT]} if inner in SHORT else section
        if typing.get_origin(inner) is tuple:
            return self._list(hint, inner, key)
        if is_mapping(inner):
            return self._mapping(inner, key)
        schema = _scalar(inner, hint)
        if instead := words_of(hint):
            return {"anyOf": [schema, {"enum": list(instead)}]}
        return _nullable(schema) if optional(hint) else schema

    def _list(self, hint: Any, inner: Any, key: str) -> Schema:
        args = typing.get_args(inner)
        if args[-1] is not ...:
            each = [_scalar(bare(arg), arg) for arg in args]
            return {"type": ["array", "null"], "items": each, "minItems": len(args), "maxItems": len(args)}
        item = self._item(args[0], key)
        many: Schema = {"type": ["array", "null"], "items": item}
        if MinLen(1) in limits_of(hint):
            many["minItems"] = 1
        # One entry may stand without its list.
        if args[0] in SHORT:
            return {"anyOf": [many, _TEXT]}
        return {"anyOf": [many, item]} if bare(args[0]) is str or is_dataclass(args[0]) else many

    def _item(self, kind: Any, key: str) -> Schema:
        if not is_dataclass(kind):
            return _scalar(bare(kind), kind)
        section = self.section(kind, f"{key}[].")
        return {"anyOf": [section, _TEXT]} if kind in SHORT else section

    def _mapping(self, inner: Any, key: str) -> Schema:
        keys, values = typing.get_args(inner)
        schema = dict(_ANY_SCALAR) if key in AS_WRITTEN else _scalar(bare(values), values)
        if typing.get_origin(keys) is not Literal:
            return {"type": ["object", "null"], "additionalProperties": schema}
        known = {name: _about(f"After {name}", schema) for name in typing.get_args(keys)}
        return {"type": ["object", "null"], "properties": known, "additionalProperties": False}


def _scalar(inner: Any, hint: Any) -> Schema:
    if typing.get_origin(inner) is Literal:
        return {"enum": list(typing.get_args(inner))}
    return {"type": _SCALARS[inner], **{_BOUNDS[type(limit)]: astuple(limit)[0] for limit in limits_of(hint)}}


def _subject(kind: Any) -> str:
    """Return what a section is about: the first line of its noun."""
    return (inspect.getdoc(kind) or "").splitlines()[0]


def _nullable(schema: Schema) -> Schema:
    """Return the schema of the same, or nothing: the option is off, or the section has its defaults."""
    if "enum" in schema:
        return {**schema, "enum": [*schema["enum"], None]}
    kinds = schema["type"]
    if isinstance(kinds, list):
        return schema
    return {**schema, "type": [kinds, "null"]}
