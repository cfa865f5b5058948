"""The config file: parses YAML into Settings, reports all faults with lines, and changes single values."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import is_dataclass
from difflib import get_close_matches
from io import StringIO
from typing import Any

from ruamel.yaml import YAML
from ruamel.yaml.comments import CommentedMap, CommentedSeq
from ruamel.yaml.error import CommentMark, YAMLError
from ruamel.yaml.tokens import CommentToken
from yaml.nodes import MappingNode, Node, ScalarNode

from vastrun.launcher.config.job_loader import checked
from vastrun.launcher.config.schema import bare, options
from vastrun.launcher.config.source import NULL, SyntaxFault, fault_at, parse, parse_value
from vastrun.launcher.config.yaml_reader import YamlReader, plain
from vastrun.launcher.core.errors import UsageError
from vastrun.launcher.core.settings import LoadedSettings, Settings

KEYS = tuple(option.key for option in options(Settings) if not is_dataclass(bare(option.default)))
"""Dotted keys, as `vastrun config set` takes them."""


def load_settings(
    text: str, name: str, providers: Sequence[str], plugins: Callable[[], Sequence[str]] = tuple
) -> LoadedSettings:
    """Parse the text of the config file.

    `providers`: names of the built-in ones; `plugins`: lists those of packages, and is slow.
    """
    try:
        root = parse(text, name)
    except SyntaxFault as error:
        return LoadedSettings(faults=(str(error.fault),))
    reading = YamlReader(root, Settings)
    settings = checked(reading, Settings) or Settings()
    if settings.provider is not None and settings.provider not in providers:
        providers = (*providers, *plugins())
    if settings.provider is not None and settings.provider not in providers:
        near = get_close_matches(settings.provider, providers, n=1)
        meant = f"; did you mean {near[0]}?" if near else ""
        reading.fault(
            ("provider",), f"expected one of {', '.join(providers)}, got {settings.provider!r}{meant}"
        )
        settings = dataclasses.replace(settings, provider=None)
    lines = {key: line for key, line in _lines(root, "") if key in KEYS}
    return LoadedSettings(
        settings=settings, faults=tuple(str(fault) for fault in sorted(reading.faults)), lines=lines
    )


def value_of(settings: Settings, key: str) -> Any:
    """Return the value of a dotted key; None where it is not set. Raises UsageError for an unknown key."""
    if key not in KEYS:
        near = get_close_matches(key, KEYS, n=1) or [k for k in KEYS if k.endswith(f".{key}")]
        meant = f"; did you mean {near[0]}?" if near else ""
        raise UsageError(f"{key}: unknown key{meant}", hint=f"the keys are {', '.join(KEYS)}")
    value: Any = settings
    for part in key.split("."):
        value = getattr(value, part)
    return value


def _lines(node: Node, prefix: str) -> Iterator[tuple[str, int]]:
    if not isinstance(node, MappingNode):
        return
    for key, value in node.value:
        name = f"{prefix}{key.value}"
        if not (isinstance(value, ScalarNode) and value.tag == NULL):
            yield name, key.start_mark.line + 1
        yield from _lines(value, f"{name}.")


def with_value(text: str, name: str, key: str, value: str) -> str:
    """Return the text with the dotted key set to that value, given as YAML. Raises SyntaxFault."""
    new = plain(parse_value(value, key, key))
    if isinstance(new, list):
        new = CommentedSeq(new)
        new.fa.set_flow_style()  # in brackets, on the key's line
    root = section = _load(text, name)
    *above, last = key.split(".")
    for part in above:
        if not isinstance(section.get(part), CommentedMap):
            _set(section, part, CommentedMap())
        section = section[part]
    _set(section, last, new)
    written = StringIO()
    _yaml(text).dump(root, written)
    head = _head(text)
    return head + ("\n" if head and not head.endswith("\n") else "") + written.getvalue()


def _load(text: str, name: str) -> CommentedMap:
    """Return the file's keys and values, each with its comments. Raises SyntaxFault."""
    node = parse(text, name)  # says what is wrong better than ruamel
    if not isinstance(node, MappingNode):
        if node.tag != NULL:
            raise SyntaxFault(fault_at(node, "", "expected `key: value` lines"))
        return CommentedMap()
    try:
        return _yaml(text).load(text[len(_head(text)) :]) or CommentedMap()
    except YAMLError as error:
        problem = getattr(error, "problem", None) or "vastrun cannot edit this file"
        raise SyntaxFault(fault_at(node, "", f"{problem}; edit it by hand")) from error


def _head(text: str) -> str:
    """Return the comments and the `---` above the first key; of a file without keys, all but its `...`."""
    node = parse(text, "")
    if isinstance(node, MappingNode):
        return text[: text.rfind("\n", 0, node.start_mark.index) + 1]
    return re.sub(r"^\.\.\.(?=\s|$)[ \t]*\n?", "", text, flags=re.MULTILINE)


def _set(section: CommentedMap, key: str, value: Any) -> None:
    """Set a value; the comment lines below it, or below the section, stay below."""
    above = key if key in section else next(reversed(section), None)
    below = "" if above is None else _cut_comment_below(section, above)
    section[key] = value
    if below:
        tokens = section.ca.items.setdefault(key, [None] * 4)
        own_line = "" if tokens[2] is None else tokens[2].value.rstrip("\n")
        tokens[2] = CommentToken(own_line + below, tokens[2].start_mark if tokens[2] else CommentMark(0))


def _cut_comment_below(section: Any, key: Any) -> str:
    """Remove the comment lines below a value; ruamel keeps them at its last line, however deep that is."""
    value = section[key]
    while isinstance(value, CommentedMap | CommentedSeq) and value and not value.fa.flow_style():
        section, key = value, len(value) - 1 if isinstance(value, CommentedSeq) else next(reversed(value))
        value = section[key]
    tokens = section.ca.items.get(key) or [None] * 4
    token = tokens[0] or tokens[2]
    if token is None:
        return ""
    own_line, newline, below = token.value.partition("\n")
    token.value = own_line + newline
    return newline + below if below else ""


def _yaml(text: str) -> YAML:
    """Return what reads and writes the file, with the indentation that it has."""
    yaml = YAML()
    yaml.preserve_quotes, yaml.width = True, 1_000_000
    indent = re.search(r"^( +)[\w'\"]", text, re.MULTILINE)
    dash = re.search(r"^( *)[\w'\"].*:[ \t]*(?:#.*)?\n\1( *)- ", text, re.MULTILINE)
    offset = len(dash[2]) if dash else 0
    yaml.indent(mapping=len(indent[1]) if indent else 2, sequence=offset + 2, offset=offset)
    return yaml
