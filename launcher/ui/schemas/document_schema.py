"""JSON Schema (draft-07) of what `--json` prints, from its shapes: objects are closed, every key is there."""

from __future__ import annotations

import ast
import inspect
import textwrap
import typing
from collections.abc import Mapping, Sequence
from dataclasses import is_dataclass
from enum import Enum
from functools import cache
from types import NoneType, UnionType
from typing import Any, Literal

from launcher.ui.render.documents import SCHEMA_VERSION
from launcher.ui.schemas.shape import JsonShape

Schema = dict[str, Any]

_DRAFT = "http://json-schema.org/draft-07/schema#"
_SCALARS: Mapping[Any, str] = {
    int: "integer",
    float: "number",
    str: "string",
    bool: "boolean",
    NoneType: "null",
}


def document_schema(title: str, shapes: Sequence[type[JsonShape]], *, has_version: bool = True) -> Schema:
    """Return the schema of a document that has one of these shapes. `has_version`: that of its form, too."""
    objects = [_versioned(_shape(shape)) if has_version else _shape(shape) for shape in shapes]
    about = {"$schema": _DRAFT, "title": title}
    return {**about, **objects[0]} if len(objects) == 1 else {**about, "anyOf": objects}


def _versioned(schema: Schema) -> Schema:
    version = {"description": "Of the form of this document", "const": SCHEMA_VERSION}
    properties = {"schema_version": version, **schema["properties"]}
    return {**schema, "properties": properties, "required": list(properties)}


def _shape(shape: type[JsonShape]) -> Schema:
    properties = {name.rstrip("_"): _key(name, hint, owner) for name, hint, owner in shape.printed()}
    schema = _closed(shape, properties)
    schema["required"] = [name for name in properties if name not in shape.optional]
    return schema


def _noun(kind: Any) -> Schema:
    hints = typing.get_type_hints(kind, include_extras=True)
    return _closed(kind, {name: _key(name, hints[name], kind) for name in kind.__dataclass_fields__})


def _closed(kind: Any, properties: Schema) -> Schema:
    about = (inspect.getdoc(kind) or "").splitlines()[:1]
    return {
        **({"description": about[0]} if about else {}),
        "type": "object",
        "properties": properties,
        "required": list(properties),
        "additionalProperties": False,
    }


def _key(name: str, hint: Any, owner: type) -> Schema:
    meaning = _meanings(owner).get(name)
    schema = _value(hint)
    return schema if meaning is None else {**schema, "description": meaning}


def _value(hint: Any) -> Schema:
    origin, args = typing.get_origin(hint), typing.get_args(hint)
    if hint is Any:
        return {}
    if hint in _SCALARS:
        return {"type": _SCALARS[hint]}
    if origin is typing.Annotated:
        return _value(args[0])
    if origin is Literal:
        return {"enum": list(args)}
    if origin in (typing.Union, UnionType):
        return _one_of([_value(arg) for arg in args])
    if isinstance(hint, type) and issubclass(hint, Enum):
        return {"enum": [each.value for each in hint]}
    if isinstance(hint, type) and issubclass(hint, JsonShape):
        return _shape(hint)
    return _noun(hint) if is_dataclass(hint) else _many(origin, args)


def _many(origin: Any, args: tuple[Any, ...]) -> Schema:
    if issubclass(origin, Mapping):
        return {"type": "object", "additionalProperties": _value(args[1])}
    if issubclass(origin, tuple) and args[-1] is not ...:
        return {
            "type": "array",
            "items": [_value(arg) for arg in args],
            "minItems": len(args),
            "maxItems": len(args),
        }
    return {"type": "array", "items": _value(args[0])}


def _one_of(choices: Sequence[Schema]) -> Schema:
    """One schema where each choice is a mere type, which reads better."""
    if all(list(choice) == ["type"] for choice in choices):
        return {"type": [choice["type"] for choice in choices]}
    return {"anyOf": list(choices)}


@cache
def _meanings(owner: type) -> Mapping[str, str]:
    """Return what the keys of a class mean: the texts that stand below their names."""
    found: dict[str, str] = {}
    for kind in reversed(owner.__mro__[:-1]):
        body = ast.parse(textwrap.dedent(inspect.getsource(kind))).body[0]
        assert isinstance(body, ast.ClassDef)
        for key, text in zip(body.body, body.body[1:], strict=False):
            if isinstance(key, ast.AnnAssign) and isinstance(key.target, ast.Name) and _is_text(text):
                found[key.target.id] = " ".join(ast.literal_eval(text.value).split())  # type: ignore[attr-defined]
    return found


def _is_text(node: ast.stmt) -> bool:
    return (
        isinstance(node, ast.Expr)
        and isinstance(node.value, ast.Constant)
        and isinstance(node.value.value, str)
    )
