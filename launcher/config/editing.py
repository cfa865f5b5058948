"""Editing a YAML file as text: one value is set or taken out, and everything else stays as it was written."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import yaml
from yaml.nodes import MappingNode, Node, ScalarNode

from launcher.config.reading import plain
from launcher.config.source import STR, SyntaxFault, parse

_Data = dict[str, Any]
_WORD = re.compile(r"[A-Za-z][A-Za-z0-9_.-]*")
"""Needs no quotes, unless it is `true` and the like."""


@dataclass(frozen=True, kw_only=True)
class Edited:
    """A file's text after the edit."""

    text: str
    is_rewritten: bool = False
    """It could only be written anew: its comments and its order of lines are lost."""


def with_value(text: str, name: str, key: str, value: str) -> Edited:
    """Return the text in which the dotted key has that value, given as YAML. Raises SyntaxFault."""
    node = parse(value, key)
    path = key.split(".")
    wanted = _data(text, name)
    section = wanted
    for part in path[:-1]:
        if not isinstance(section.get(part), dict):
            section[part] = {}
        section = section[part]
    section[path[-1]] = plain(node)
    return _checked(text, name, wanted, lambda root: _set(text, root, path, _written(node)))


def without_value(text: str, name: str, key: str) -> Edited:
    """Return the text in which the dotted key is not set; so is a section that would be left empty.

    Raises SyntaxFault, KeyError when the file does not set it.
    """
    *above, last = key.split(".")
    wanted = _data(text, name)
    sections = [wanted]
    for part in above:
        if not isinstance(sections[-1][part], dict):
            raise KeyError(key)
        sections.append(sections[-1][part])
    del sections[-1][last]
    path = [*above, last]
    while len(path) > 1 and not sections[-1]:
        path.pop()
        sections.pop()
        del sections[-1][path[-1]]
    return _checked(text, name, wanted, lambda root: _cut(text, root, path))


def _checked(text: str, name: str, wanted: _Data, edit: Callable[[Node], str]) -> Edited:
    """Return the edited text where it says what it should; else a file that is written anew."""
    with suppress(SyntaxFault):
        edited = edit(parse(text, name))
        if _data(edited, name) == wanted:
            return Edited(text=edited)
    return Edited(text=yaml.safe_dump(wanted, sort_keys=False) if wanted else "", is_rewritten=True)


def _data(text: str, name: str) -> _Data:
    data = plain(parse(text, name))
    return data if isinstance(data, dict) else {}


def _written(value: Node) -> str:
    """Return a value as it may stand in a file: what is text stays text."""
    if not isinstance(value, ScalarNode):
        return json.dumps(plain(value))
    is_plain = value.tag != STR or (_WORD.fullmatch(value.value) and parse(value.value, "").tag == STR)
    return value.value if is_plain else json.dumps(value.value)


def _set(text: str, root: Node, path: list[str], value: str) -> str:
    node, rest = root, path
    while rest and isinstance(node, MappingNode) and node.value:
        found = _entry(node, rest[0])
        if found is None:
            return _inserted(text, node, rest, value)
        node, rest = found[1], rest[1:]
    if node is root:
        return _appended(text, rest, value)
    start, end = node.start_mark.index, node.end_mark.index
    gap = " " if text[start - 1 : start] == ":" else ""
    return text[:start] + gap + _nested(rest, value) + text[end:]


def _inserted(text: str, section: MappingNode, path: list[str], value: str) -> str:
    """Return the text with a new entry at the end of a section; of one in braces, at its beginning."""
    if section.flow_style:
        start = section.start_mark.index + 1
        return f"{text[:start]}{path[0]}: {_nested(path[1:], value)}, {text[start:]}"
    column = section.start_mark.column
    if column == 0:
        return _appended(text, path, value)
    at = _line_end(text, _end(section))
    head = text[:at] if text[:at].endswith("\n") else text[:at] + "\n"
    return f"{head}{' ' * column}{path[0]}: {_nested(path[1:], value)}\n{text[at:]}"


def _appended(text: str, path: list[str], value: str) -> str:
    lines = [f"{'  ' * depth}{part}:" for depth, part in enumerate(path)]
    head = text if not text or text.endswith("\n") else text + "\n"
    return head + "\n".join(lines) + f" {value}\n"


def _cut(text: str, root: Node, path: list[str]) -> str:
    section = root
    for part in path[:-1]:
        found = _entry(section, part)
        assert found is not None
        section = found[1]
    assert isinstance(section, MappingNode)
    number = next(n for n, (key, _) in enumerate(section.value) if key.value == path[-1])
    key, value = section.value[number]
    start, end = key.start_mark.index, _end(value)
    if not section.flow_style:
        return text[: text.rfind("\n", 0, start) + 1] + text[_line_end(text, end) :]
    if number + 1 < len(section.value):
        return text[:start] + text[section.value[number + 1][0].start_mark.index :]
    return text[: section.value[number - 1][1].end_mark.index if number else start] + text[end:]


def _entry(node: Node, name: str) -> tuple[Node, Node] | None:
    assert isinstance(node, MappingNode)
    return next(((key, value) for key, value in node.value if key.value == name), None)


def _end(node: Node) -> int:
    """Return where the node's text ends; a section's own mark is behind the empty lines that follow it."""
    while isinstance(node, MappingNode) and node.value and not node.flow_style:
        node = node.value[-1][1]
    index: int = node.end_mark.index
    return index


def _nested(path: list[str], value: str) -> str:
    for part in reversed(path):
        value = f"{{{part}: {value}}}"
    return value


def _line_end(text: str, index: int) -> int:
    """Return where the next line begins."""
    end = text.find("\n", index)
    return len(text) if end < 0 else end + 1
