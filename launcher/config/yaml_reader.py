"""YAML reader: converts nodes to plain data for a dataclass, and collects faults with their lines."""

from __future__ import annotations

import math
import re
import typing
from collections.abc import Callable, Iterator, Mapping
from dataclasses import is_dataclass
from difflib import get_close_matches
from functools import cache
from typing import Any, Literal

from yaml.nodes import MappingNode, Node, ScalarNode, SequenceNode

from vastrun.contract.records import replace_surrogates
from vastrun.launcher.config import schema
from vastrun.launcher.config.command import program_of
from vastrun.launcher.config.source import BOOL, FLOAT, INT, NULL, STR, Fault, KeyPath, fault_at
from vastrun.launcher.core.job import Checkpoints, JobSpec, NotifyUrl, Secret

AS_WRITTEN = ("env", "command")
"""Sections whose numbers and booleans are read as text."""
SHORTHAND_KEYS: dict[Any, str] = {Secret: "name", NotifyUrl: "url", Checkpoints: "files"}
"""Sections that may be written as one string, with the key of that string."""
_YES_NO = {"yes": "true", "on": "true", "y": "true", "no": "false", "off": "false", "n": "false"}
_SKIP = object()
_SHOWN = 60
"""Max. characters of a value in a message."""


@cache
def _keys_of(kind: Any) -> Mapping[str, Any]:
    """Return the keys of a section with their types. Cached: it takes longer than reading a job."""
    hints = typing.get_type_hints(kind, include_extras=True)
    return {field.name: hints[field.name] for field in schema.job_fields(kind)}


class YamlReader:
    """Plain data read from a node, ready for pydantic, without invalid parts."""

    def __init__(self, root: Node, kind: Any = JobSpec) -> None:
        """`kind`: the dataclass of the file."""
        self._root, self._kind = root, kind
        self._nodes: dict[KeyPath, Node] = {}
        self._places: dict[KeyPath, Node] = {}
        self._kinds: dict[KeyPath, Any] = {}
        self._faulty: set[KeyPath] = set()
        self._alone: set[KeyPath] = set()
        """Lists that were written as a single entry."""
        self.faults: list[Fault] = []
        data = self._read(kind, root, ())
        self.data: dict[str, Any] = data if isinstance(data, dict) else {}

    def fault(self, path: KeyPath, text: str) -> None:
        """Add a fault, once per path, at the line of the nearest key."""
        if any(p in self._faulty for p in _upwards(path)):
            return
        self._faulty.add(path)
        place = next((self._places[p] for p in _upwards(path) if p in self._places), self._root)
        self.faults.append(fault_at(place, self._dotted(path), text))

    def is_valid(self, *paths: KeyPath) -> bool:
        """Return whether nothing at, above or below these paths has a fault."""
        return not any(
            faulty[: len(path)] == path or path[: len(faulty)] == faulty
            for faulty in self._faulty
            for path in paths
        )

    def unexpected(self, path: KeyPath) -> None:
        """Add the fault of a value that does not match its type."""
        path = next(p for p in _upwards(path) if p in self._nodes)
        kind, node = self._kinds[path], self._nodes[path]
        self.fault(path, f"expected {schema.expected(kind)}, got {_shown(node)}{_hint(kind, node)}")

    def _read(self, kind: Any, node: Node, path: KeyPath) -> Any:
        self._nodes[path], self._kinds[path] = node, kind
        inner = schema.bare(kind)
        if isinstance(node, ScalarNode) and (fault := _unreadable(node)):
            self.fault(path, fault)
            return _SKIP
        if _is_null(node) and (node.value or not is_dataclass(inner)) and schema.optional(kind):
            return None
        if inner is Any:
            return plain(node)
        if is_dataclass(inner):
            return self._section(inner, node, path)
        if typing.get_origin(inner) is tuple:
            return self._list(inner, node, path)
        if schema.is_mapping(inner):
            return self._mapping(inner, node, path)
        if not isinstance(node, ScalarNode):
            return self._misfit(path)
        if path[0] in AS_WRITTEN and node.tag in (INT, FLOAT, BOOL):
            return node.value
        if path == ("resources", "cuda") and re.fullmatch(r"\d+\.\d\d+", node.value):
            version = float(node.value)
            self.fault(path, f"expected one digit after the dot, got {node.value}, which means {version:g}")
            return _SKIP
        return _value(node)

    def _section(self, kind: Any, node: Node, path: KeyPath) -> Any:
        if kind in SHORTHAND_KEYS and isinstance(node, ScalarNode) and node.tag == STR:
            at = (*path, SHORTHAND_KEYS[kind])
            self._places[at] = node
            return {SHORTHAND_KEYS[kind]: self._read(str, node, at)}
        known = _keys_of(kind)
        return self._entries(node, path, lambda key: known.get(key), list(known))

    def _mapping(self, kind: Any, node: Node, path: KeyPath) -> Any:
        keys, values = typing.get_args(kind)
        if typing.get_origin(keys) is Literal:
            known = [str(key) for key in typing.get_args(keys)]
            return self._entries(node, path, lambda key: values if key in known else None, known)
        return self._entries(node, path, lambda _: values, [])

    def _entries(self, node: Node, path: KeyPath, kind_of: Callable[[str], Any], known: list[str]) -> Any:
        """Return the entries of a mapping node. An empty one is `{}`: a section whose keys are all
        commented out."""
        if _is_null(node):
            return {}
        if not isinstance(node, MappingNode):
            return self._misfit(path)
        data: dict[str, Any] = {}
        lines: dict[str, int] = {}
        for key_node, value_node in node.value:
            key = key_node.value if isinstance(key_node, ScalarNode) else _shown(key_node)
            at = (*path, key)
            self._places.setdefault(at, key_node)
            kind = kind_of(key)
            if kind is None:
                self._unknown(at, known, node)
            # YAML lets the last one win, silently: a user would train with a value that stands further up.
            elif key in lines:
                self.faults.append(
                    fault_at(key_node, self._dotted(at), f"given twice, first in line {lines[key]}")
                )
            elif (value := self._read(kind, value_node, at)) is not _SKIP:
                data[key] = value
            lines.setdefault(key, key_node.start_mark.line + 1)
        return data

    def _unknown(self, path: KeyPath, known: list[str], section: MappingNode) -> None:
        """Add the fault of an unknown key. The likely meant key is then not reported as missing."""
        *above, key = path
        known_keys = [
            o.key
            for o in schema.options(None if issubclass(self._kind, JobSpec) else self._kind)
            if f".{schema.NAME}." not in o.key
        ]
        elsewhere = [known_key for known_key in known_keys if known_key.endswith(f".{key}") and not above]
        near = _nearest(str(key), known)
        if elsewhere:
            self.fault(path, f"unknown key; did you mean {' or '.join(elsewhere)}?")
        elif near is None:
            self.fault(path, f"unknown key; the keys here are {', '.join(known)}")
        else:
            self.fault(path, f"unknown key; did you mean {near}?")
            if near not in [entry.value for entry, _ in section.value]:
                self._faulty.add((*above, near))

    def _list(self, kind: Any, node: Node, path: KeyPath) -> Any:
        items = typing.get_args(kind)
        if isinstance(node, SequenceNode):
            values = [
                self._item(items[0] if items[-1] is ... else items[min(i, len(items) - 1)], child, (*path, i))
                for i, child in enumerate(node.value)
            ]
            return _SKIP if _SKIP in values else values  # indices stay what they are in the file
        if _is_null(node):
            return _SKIP
        if (
            isinstance(node, ScalarNode)
            and node.tag == STR
            and schema.bare(items[0]) in (str, *SHORTHAND_KEYS)
        ):
            if path == ("command",):
                try:
                    return list(program_of(node.value))
                except ValueError as error:
                    self.fault(path, f"is not a shell script: {str(error).lower()}")
                    return _SKIP
            return [self._item(items[0], node, (*path, 0))]
        if isinstance(node, MappingNode) and is_dataclass(items[0]) and items[0] not in SHORTHAND_KEYS:
            self._alone.add(path)
            return [self._item(items[0], node, (*path, 0))]
        return self._misfit(path)

    def _item(self, kind: Any, node: Node, path: KeyPath) -> Any:
        self._places[path] = node
        return self._read(kind, node, path)

    def _dotted(self, path: KeyPath) -> str:
        """Return the path as `a.b[0]`, without the index of a list that was written as a single entry."""
        parts = [
            part if isinstance(part, str) else f"[{part}]"
            for n, part in enumerate(path)
            if path[:n] not in self._alone
        ]
        return ".".join(parts).replace(".[", "[")

    def _misfit(self, path: KeyPath) -> Any:
        self.unexpected(path)
        return _SKIP


def plain(node: Node) -> Any:
    """Return the node as plain data; the last of two equal keys counts."""
    if isinstance(node, MappingNode):
        return {str(plain(key)): plain(value) for key, value in node.value}
    if isinstance(node, SequenceNode):
        return [plain(item) for item in node.value]
    assert isinstance(node, ScalarNode)
    return _value(node)


def _unreadable(node: ScalarNode) -> str | None:
    """Return why the node has no valid value of any type; None: it may have."""
    if node.tag not in (NULL, BOOL, INT, FLOAT, STR):
        return f"the tag {node.tag} is not known here"
    if not node.value.isascii() and replace_surrogates(node.value) != node.value:
        return "contains a lone surrogate, like \\ud800"
    return "contains a NUL character" if "\0" in node.value else None


def _value(node: ScalarNode) -> Any:
    """Return the value of the node's tag, or its text where that does not match, as in `!!int abc`."""
    if node.tag == NULL:
        return None
    if node.tag == BOOL:
        return node.value.lower() == "true"
    try:
        if node.tag == INT and len(node.value) <= 30:
            return int(node.value, 0 if node.value[:2] in ("0x", "0o") else 10)
        if node.tag == FLOAT and math.isfinite(number := float(node.value)):
            return number
    except ValueError:
        pass
    return node.value


def _shown(node: Node) -> str:
    """Return the value as written in the file."""
    if isinstance(node, SequenceNode):
        return f"a list of {len(node.value)}" if node.value else "an empty list"
    if not isinstance(node, ScalarNode):
        return "a section"
    if node.tag == NULL:
        return "nothing"
    text = node.value if len(node.value) <= _SHOWN else f"{node.value[:_SHOWN]}…"
    return text if node.tag in (INT, FLOAT, BOOL) else repr(text)


def _hint(kind: Any, node: Node) -> str:
    """Return a hint for a correction; empty: none is known."""
    inner = schema.bare(kind)
    if isinstance(node, MappingNode) and inner is str:
        return "; quote text that holds ': '"
    if not isinstance(node, ScalarNode) or (node.tag == NULL and kind is not str):
        return ""
    text = node.value
    if inner is str:
        return "" if node.tag == STR else f'; write "{text}"'
    if inner is bool and text.lower() in _YES_NO:
        return f"; write {_YES_NO[text.lower()]}"
    if typing.get_origin(inner) is Literal:
        near = _nearest(text, [str(value) for value in typing.get_args(inner)])
        return f"; did you mean {near}?" if near else ""
    if near := _nearest(text, list(schema.words_of(kind))):
        return f"; did you mean {near}?"
    if inner in (int, float) and node.tag == STR:
        if re.fullmatch(r"[-+]?[0-9.]+", text):
            return "; leave out the quotes"
        if re.fullmatch(r"\$?\s*\d[0-9.]*\s*[a-zA-Z$€%]*", text):
            return "; write only the number: the unit is part of the key"
        return ""
    return ""


def _nearest(text: str, known: list[str]) -> str | None:
    """Return the known name that is closest to the text, ignoring case and hyphens."""
    of = {name.lower(): name for name in known}
    near = get_close_matches(text.lower().replace("-", "_"), of, n=1)
    return of[near[0]] if near else None


def _is_null(node: Node) -> bool:
    return isinstance(node, ScalarNode) and node.tag == NULL


def _upwards(path: KeyPath) -> Iterator[KeyPath]:
    """Yield the path, then each section that contains it."""
    return (path[:n] for n in range(len(path), -1, -1))
