"""Records: read JSON into dataclasses and check each value's type, range and encoding; write it atomically.

A record may come from an untrusted computer, or from a checkpoint of one. Standard library only.
"""

from __future__ import annotations

import json
import math
import os
import re
import sys
import types
import typing
from collections.abc import Callable, Mapping, Sequence
from dataclasses import MISSING, dataclass, fields, is_dataclass
from functools import cache, partial
from pathlib import Path
from typing import Any, Literal, NoReturn, TypeVar

_MAX_INTEGER = 2**53
"""Integers up to this value are exact for every JSON parser, and fit into any database."""
_MAX_VALUES = 500_000
"""Maximum values in one text: an empty list takes two bytes in the text and 64 in memory."""
_MAX_SHOWN_CHARS = 40
_UNIONS = (typing.Union, types.UnionType)
"""`Union[A, B]` and `A | B`."""

_T = TypeVar("_T")
Reader = Callable[[Any], Any]
_Limit = tuple[str, Callable[[Any, Any], bool], str]


class RecordError(ValueError):
    """A value does not fit its field: `ranks[3].exit_code: expected a whole number, not "x"`."""

    def __init__(self, fault: str, at: str = "") -> None:
        super().__init__(f"{at}: {fault}" if at else fault)
        self.fault, self.at = fault, at

    def prefixed(self, key: str) -> RecordError:
        """Return the same fault with `key` before its path, for the record that contains the value."""
        joint = "" if not self.at or self.at.startswith("[") else "."
        return RecordError(self.fault, f"{key}{joint}{self.at}")


@dataclass(frozen=True)
class Range:
    """A constraint in `Annotated`: minimum and maximum of a number, both inclusive."""

    ge: float
    le: float


@dataclass(frozen=True)
class MaxLength:
    """A constraint in `Annotated`: maximum members of a list or a mapping, or characters of a string."""

    max_length: int


@dataclass(frozen=True)
class Pattern:
    """A constraint in `Annotated[str, ...]`: a regular expression that the whole string must match."""

    pattern: str


@dataclass(frozen=True)
class Text:
    """A constraint in `Annotated[str, ...]`: a text for people to read. Lone surrogates are replaced.

    Of more than `max_chars` characters the middle is cut out: the end of a traceback has its error.
    """

    max_chars: int
    lines: bool = False
    """True: line breaks are allowed. False: each becomes a space."""


@dataclass(frozen=True)
class FileName:
    """A constraint in `Annotated[str, ...]`: a file name, decoded by `os.fsdecode` where it is not UTF-8."""


def read_json(kind: type[_T], text: str | bytes) -> _T:
    """Parse `text` as JSON and convert it to `kind`. Raises RecordError."""
    found: _T = read_as(kind, parse_json(text))
    return found


def as_json(record: Any) -> str:
    """Serialize a record (a dataclass of JSON values and records), or a list of records, for `read_json`."""
    return json.dumps(record, default=vars)


def parse_json(text: str | bytes) -> Any:
    """Parse untrusted JSON; reject NaN, endless nesting and more values than fit into memory.

    Raises RecordError. The caller bounds the length of `text`: see `launcher/gate/caps.py`.
    """
    # Counted before parsing, since the parser itself would fill the memory. Marks within strings count, too.
    marks: tuple[Any, ...] = (",", "[", "{") if isinstance(text, str) else (b",", b"[", b"{")
    if sum(map(text.count, marks)) > _MAX_VALUES:
        raise RecordError(f"more than {_MAX_VALUES} values")
    try:
        return json.loads(text, parse_constant=_refuse_constant)
    except RecordError:
        raise
    except (ValueError, RecursionError) as error:
        raise RecordError(f"not JSON ({type(error).__name__}: {str(error)[:80]})") from error


def read_as(kind: Any, value: Any) -> Any:
    """Convert `value`, as parsed from JSON, to `kind`: a dataclass or the type of a field.

    Unknown keys are ignored, so that an older reader accepts a newer file. Where a list is expected, a single
    object is read as a list of one. Raises RecordError.
    """
    return _reader_of(kind)(value)


@cache
def _reader_of(kind: Any) -> Reader:
    """Return the function that converts a value to `kind`.

    Cached: a supervisor reads records many times a second, and each type is inspected only once.
    """
    origin, args = typing.get_origin(kind), typing.get_args(kind)
    if is_dataclass(kind):
        return _record_reader(kind)
    if origin is typing.Annotated:
        return _annotated_reader(args[0], kind.__metadata__)
    if origin in _UNIONS:
        words = [word for arg in args if typing.get_origin(arg) is Literal for word in typing.get_args(arg)]
        return partial(_or_word, [*words, None] if type(None) in args else words, _reader_of(args[0]))
    if origin is Literal:
        return partial(_one_of, args)
    if origin is tuple:
        return partial(_list, _reader_of(args[0]))
    if origin is not None and issubclass(origin, Mapping):
        return partial(_mapping, _reader_of(args[0]), _reader_of(args[1]))
    return _PLAIN[kind]


def _record_reader(kind: Any) -> Reader:
    hints = typing.get_type_hints(kind, include_extras=True)
    readers = {field.name: _reader_of(hints[field.name]) for field in fields(kind)}
    needed = [f.name for f in fields(kind) if f.default is MISSING and f.default_factory is MISSING]

    def read(value: Any) -> Any:
        if not isinstance(value, dict):
            raise _expected("an object", value)
        for name in needed:
            if name not in value:
                raise RecordError("is missing", name)
        found = {}
        for name, read_field in readers.items():
            if name in value:
                try:
                    found[name] = read_field(value[name])
                except RecordError as error:
                    raise error.prefixed(name) from None
        return kind(**found)

    return read


def _annotated_reader(kind: Any, limits: tuple[Any, ...]) -> Reader:
    # These two replace the reader of a string: both accept characters that `_string` rejects.
    for limit in limits:
        if isinstance(limit, Text):
            return partial(_text, limit)
        if isinstance(limit, FileName):
            return _file_name
    read = _reader_of(kind)
    checks = [
        (says.format(getattr(limit, name)), partial(holds, getattr(limit, name)))
        for limit in limits
        for name, holds, says in _LIMITS
        if getattr(limit, name, None) is not None
    ]

    max_length = min((limit.max_length for limit in limits if isinstance(limit, MaxLength)), default=math.inf)

    def within(value: Any) -> Any:
        if isinstance(value, (list, dict, str)) and len(value) > max_length:  # before each member is read
            raise _expected(f"a length of at most {max_length}", value)
        found = read(value)
        for says, holds in checks:
            if not holds(found):
                raise _expected(says, value)
        return found

    return within


_LIMITS: tuple[_Limit, ...] = (
    ("ge", lambda limit, value: value >= limit, "at least {}"),
    ("gt", lambda limit, value: value > limit, "more than {}"),
    ("le", lambda limit, value: value <= limit, "at most {}"),
    ("lt", lambda limit, value: value < limit, "less than {}"),
    ("min_length", lambda limit, value: len(value) >= limit, "a length of at least {}"),
    ("max_length", lambda limit, value: len(value) <= limit, "a length of at most {}"),
    ("pattern", lambda limit, value: re.fullmatch(limit, value, re.ASCII) is not None, "a text like {}"),
)
"""The limits of a constraint in `Annotated`: its attribute, test, text of the fault.

The names are those of annotated_types, so that its constraints work here without importing it.
"""


def _or_word(words: Sequence[str | None], read: Reader, value: Any) -> Any:
    return value if value in words else read(value)


def _one_of(known: tuple[Any, ...], value: Any) -> Any:
    for one in known:
        if type(value) is type(one) and value == one:  # 0 and False are equal, and not the same
            return value
    raise _expected("one of " + ", ".join(map(str, known)), value)


def _list(read: Reader, value: Any) -> tuple[Any, ...]:
    values = [value] if isinstance(value, dict) else value
    if not isinstance(values, list):
        raise _expected("a list", value)
    found: list[Any] = []
    try:
        for each in values:
            found.append(read(each))
    except RecordError as error:
        raise error.prefixed(f"[{len(found)}]") from None
    return tuple(found)


def _mapping(read_key: Reader, read: Reader, value: Any) -> dict[Any, Any]:
    if not isinstance(value, dict):
        raise _expected("an object", value)
    found = {}
    for key, each in value.items():
        name = read_key(key)
        try:
            found[name] = read(each)
        except RecordError as error:
            raise error.prefixed(key[:_MAX_SHOWN_CHARS]) from None
    return found


def _whole_number(value: Any) -> int:
    if type(value) is not int or abs(value) > _MAX_INTEGER:
        raise _expected("a whole number", value)
    return value


def _number(value: Any) -> float:
    # Not isfinite: that fails for a whole number which no float can hold.
    if type(value) not in (int, float) or not abs(value) <= sys.float_info.max:
        raise _expected("a number", value)
    return float(value)


def _boolean(value: Any) -> bool:
    if type(value) is not bool:
        raise _expected("true or false", value)
    return value


def _string(value: Any) -> str:
    # A lone surrogate can be neither stored nor printed.
    if not isinstance(value, str) or (not value.isascii() and any("\ud800" <= c <= "\udfff" for c in value)):
        raise _expected("a string", value)
    return value


def _text(limit: Text, value: Any) -> str:
    if not isinstance(value, str):
        raise _expected("a string", value)
    half = limit.max_chars // 2
    text = replace_surrogates(value if len(value) <= limit.max_chars else f"{value[:half]}…{value[-half:]}")
    return text if limit.lines else text.replace("\n", " ")


def _file_name(value: Any) -> str:
    try:
        if isinstance(value, str) and os.fsencode(value):
            return value
    except UnicodeEncodeError:
        pass
    raise _expected("the name of a file", value)


_PLAIN: Mapping[Any, Reader] = {
    int: _whole_number,
    float: _number,
    bool: _boolean,
    str: _string,
    Any: lambda value: value,
}


def replace_surrogates(text: str) -> str:
    """Replace each lone surrogate by a question mark: it can be neither stored nor printed."""
    return text.encode("utf-8", "replace").decode("utf-8")


def _expected(what: str, value: Any) -> RecordError:
    return RecordError(f"expected {what}, not {_shown(value)}")


def _shown(value: Any) -> str:
    """Return a value for the text of an error, short and in ASCII: it is untrusted and unchecked."""
    if isinstance(value, (list, dict)):
        return "a list" if isinstance(value, list) else "an object"
    try:
        text = json.dumps(value)
    except ValueError:  # a whole number of thousands of digits
        text = "a very large number"
    return text if len(text) <= _MAX_SHOWN_CHARS else text[: _MAX_SHOWN_CHARS - 3] + "..."


def _refuse_constant(name: str) -> NoReturn:
    raise RecordError(f"{name} is not a JSON number")


def read_small(path: str | os.PathLike[str], max_bytes: int) -> bytes:
    """Read the first `max_bytes` bytes of a file. Raises OSError.

    Without Python's file objects: frequent polls must not take CPU time from a training.
    """
    fd = os.open(path, os.O_RDONLY)
    try:
        return os.read(fd, max_bytes)
    finally:
        os.close(fd)


def write_atomically(path: Path, *texts: str, durable: bool = True, mode: int | None = None) -> None:
    """Write texts to `path` so that a reader sees the old file or the new one, never a part of it.

    Creates the folder if it is missing. With `durable` it returns only when they are on the disk, which
    can take seconds on a busy one. `mode`: the permissions; None: the usual ones. Raises OSError, after which
    the old file is unchanged.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    # A manifest skips `.NAME.part`: a writer that is killed cannot remove it.
    part = path.with_name(f".{path.name}.{os.getpid()}.part")
    try:
        with part.open("w", encoding="utf-8") as file:
            if mode is not None:
                part.chmod(mode)
            file.writelines(texts)
            if durable:
                file.flush()
                os.fsync(file.fileno())
        part.replace(path)
    finally:
        part.unlink(missing_ok=True)


def write_json(path: Path, value: Any, *, durable: bool = True) -> None:
    """Write a JSON value and a line break with `write_atomically`. Raises ValueError for NaN; OSError."""
    write_atomically(path, json.dumps(value, allow_nan=False), "\n", durable=durable)
