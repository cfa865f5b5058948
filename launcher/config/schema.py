"""Schema: the keys of a job file with their types and defaults, from the types of its dataclasses."""

from __future__ import annotations

import typing
from collections.abc import Iterator, Mapping
from dataclasses import MISSING, Field, dataclass, fields, is_dataclass
from types import UnionType
from typing import Any, Literal

from annotated_types import Ge, Gt, Le, Lt, MaxLen, MinLen

from vastrun.launcher.config.program_kinds import any_job_type
from vastrun.launcher.core.job import INTERNAL, NotifyUrl, Secret

_NOUNS = {
    int: ("a whole number", "whole numbers"),
    float: ("a number", "numbers"),
    str: ("a string", "strings"),
    bool: ("true or false", "true or false"),
}

_SECTIONS: dict[Any, str] = {NotifyUrl: "a list of URLs or sections", Secret: "a list of names or sections"}


NAME = "NAME"
"""Stands in an option's key for the names of a section that has sections of one kind, by name."""


@dataclass(frozen=True, kw_only=True)
class Option:
    """One key of the job file."""

    section: Any
    """Dataclass that has the key."""
    name: str
    key: str
    """Dotted, as --set takes it."""
    hint: Any
    default: Any
    """Default value; MISSING when the key is required."""

    @property
    def expected(self) -> str:
        """Description of the expected value."""
        return expected(self.hint)


def options(kind: Any = None, prefix: str = "") -> Iterator[Option]:
    """Yield every key below `kind`, in the order of the types; None: of a job file."""
    kind = kind or any_job_type()
    hints = typing.get_type_hints(kind, include_extras=True)
    for field in job_fields(kind):
        hint, key = hints[field.name], prefix + field.name
        default = field.default if field.default_factory is MISSING else field.default_factory()
        yield Option(section=kind, name=field.name, key=key, hint=hint, default=default)
        inner = bare(hint)
        items = typing.get_args(inner)
        if is_dataclass(inner):
            yield from options(inner, f"{key}.")
        elif items and is_dataclass(items[0]):
            yield from options(items[0], f"{key}[].")
        elif is_mapping(inner) and is_dataclass(items[1]):
            yield from options(items[1], f"{key}.{NAME}.")


def job_fields(kind: Any) -> Iterator[Field[Any]]:
    """Return the fields that a job file may give."""
    return (field for field in fields(kind) if field.metadata != INTERNAL)


def bare(kind: Any) -> Any:
    """Return the type without its limits and without `| None`."""
    origin, args = typing.get_origin(kind), typing.get_args(kind)
    if origin is typing.Annotated:
        return bare(args[0])
    if origin in (typing.Union, UnionType):
        return bare(args[0])
    return kind


def optional(kind: Any) -> bool:
    """Return whether None is a value of `kind`."""
    return type(None) in typing.get_args(kind)


def expected(kind: Any) -> str:
    """Describe the values of `kind`, like "a number above 0"."""
    inner = bare(kind)
    origin, args = typing.get_origin(inner), typing.get_args(inner)
    if is_dataclass(inner):
        return "a section"
    if origin is Literal:
        return f"one of {', '.join(map(str, args))}" if len(args) > 1 else str(args[0])
    if is_mapping(inner) and is_dataclass(args[1]):
        return f"a section for each of {', '.join(map(str, typing.get_args(args[0])))}"
    if is_mapping(inner):
        return "a section of `name: value` lines"
    if inner is Any:
        return "a value"
    if origin is tuple:
        if is_dataclass(args[0]):
            return _SECTIONS.get(args[0], "a section, or a list of sections")
        if typing.get_origin(args[0]) is Literal:
            return f"a list of {', '.join(map(str, typing.get_args(args[0])))}"
        things = _NOUNS[bare(args[0])][1] + _bounds(limits_of(args[0]))
        if args[-1] is not ...:
            return f"a list of {len(args)} {things}"
        return f"a non-empty list of {things}" if MinLen(1) in limits_of(kind) else f"a list of {things}"
    limits = limits_of(kind)
    noun = ", or ".join([_NOUNS[inner][0] + _bounds(limits), *words_of(kind)])
    return noun.replace("a ", "a non-empty ", 1) if MinLen(1) in limits else noun


def words_of(kind: Any) -> tuple[str, ...]:
    """Return the words that may replace a value, like `auto`."""
    if typing.get_origin(kind) not in (typing.Union, UnionType):
        return ()
    others = typing.get_args(kind)[1:]
    return tuple(word for arg in others if typing.get_origin(arg) is Literal for word in typing.get_args(arg))


def is_mapping(kind: Any) -> bool:
    """Return whether `kind` is a mapping type like `Mapping[str, str]`."""
    origin = typing.get_origin(kind)
    return isinstance(origin, type) and issubclass(origin, Mapping)


def limits_of(kind: Any) -> list[Any]:
    """Return the limits of a type, also those inside `X | None`."""
    origin, args = typing.get_origin(kind), typing.get_args(kind)
    if origin is typing.Annotated:
        return [*limits_of(args[0]), *args[1:]]
    if origin in (typing.Union, UnionType):
        return limits_of(args[0])
    return []


def _bounds(limits: list[Any]) -> str:
    low = next((x.ge for x in limits if isinstance(x, Ge)), None)
    high = next((x.le for x in limits if isinstance(x, Le)), None)
    above = next((x.gt for x in limits if isinstance(x, Gt)), None)
    below = next((x.lt for x in limits if isinstance(x, Lt)), None)
    length = next((x.max_length for x in limits if isinstance(x, MaxLen)), None)
    if above is not None:
        highest = f" and at most {high}" if high is not None else ""
        return f" above {above}" + (f" and below {below}" if below is not None else highest)
    if high is not None:
        return f" from {low} to {high}"
    if low is not None:
        return f" of at least {low}" + (f" and below {below}" if below is not None else "")
    return f" of {length} letters" if length else ""
