"""Source: parses YAML text into nodes with lines, faults that refer to them, and keys added to it."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import yaml
from yaml.composer import ComposerError
from yaml.events import AliasEvent
from yaml.nodes import MappingNode, Node, ScalarNode, SequenceNode

NULL, BOOL, INT, FLOAT, STR = (f"tag:yaml.org,2002:{tag}" for tag in ("null", "bool", "int", "float", "str"))
SET = "--set"

_MAX_VALUES = 200_000
"""Maximum keys and values of one file: of 10,000 points with nine keys each. PyYAML takes 1 kB for each."""
KeyPath = tuple[str | int, ...]
"""Path of a value: keys, and indices of lists."""

_EXPLAINED = {
    "found character '\\t' that cannot start any token": "a tab; indent with spaces",
    "mapping values are not allowed here": (
        "an unexpected ':'; indent keys of one section alike, quote text that holds ': '"
    ),
    "expected <block end>, but found '<block mapping start>'": (
        "indented differently from the lines before it; indent keys of one section alike"
    ),
    "could not find expected ':'": "a key without its ':'",
    "expected ',' or ']', but got '<stream end>'": "a list '[' that is never closed by ']'",
    "expected ',' or '}', but got '<stream end>'": "a section '{' that is never closed by '}'",
    "found unexpected end of stream": "a quote that is never closed",
    "but found another document": "a second document '---'; a job file holds one job",
}


@dataclass(frozen=True, order=True)
class Fault:
    """A fault with its place. Sorts by line, --set last."""

    on_command_line: bool
    line: int
    key: str
    text: str
    source: str

    def __str__(self) -> str:
        place = SET if self.on_command_line else f"{self.source}:{self.line}:"
        return f"{place} {self.key}: {self.text}" if self.key else f"{place} {self.text}"


def fault_at(node: Node, key: str, text: str) -> Fault:
    """Make a fault in the line where `node` begins."""
    mark = node.start_mark
    return _fault(mark.name, mark.line + 1, key, text)


def _fault(source: str, line: int, key: str, text: str) -> Fault:
    on_command_line = source == SET
    return Fault(on_command_line, 0 if on_command_line else line, key, text, source)


class SyntaxFault(Exception):
    """The text is not YAML."""

    def __init__(self, fault: Fault) -> None:
        super().__init__(str(fault))
        self.fault = fault


class _Loader(yaml.SafeLoader):
    """The core schema of YAML 1.2: `NO` is Norway, `1e-3` is a number, `12:30` is text."""

    yaml_implicit_resolvers = {}  # noqa: RUF012 (the name is PyYAML's)

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self._sizes: dict[int, int] = {}
        """Number of values in each node, aliases written out, by the node's identity."""

    def compose_node(self, parent: Node | None, index: int) -> Node | None:
        """Compose a node. Raises ComposerError where it is too large, with what its aliases stand for."""
        is_alias = self.check_event(AliasEvent)
        node = super().compose_node(parent, index)
        if not is_alias:
            self._sizes[id(node)] = 1 + sum(self._sizes[id(each)] for each in _children(node))
        if self._sizes.get(id(node), math.inf) > _MAX_VALUES:  # a node within itself has no size yet
            problem = f"more than {_MAX_VALUES:,} values, with what each alias * stands for"
            raise ComposerError(None, None, problem, None if node is None else node.start_mark)
        return node


for _tag, _pattern in {
    NULL: r"~|null|Null|NULL|",
    BOOL: r"true|True|TRUE|false|False|FALSE",
    INT: r"[-+]?[0-9]+|0o[0-7]+|0x[0-9a-fA-F]+",
    FLOAT: r"[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?",
}.items():
    _Loader.add_implicit_resolver(_tag, re.compile(rf"(?:{_pattern})\Z"), None)


def _children(node: Node | None) -> list[Node]:
    if isinstance(node, MappingNode):
        return [each for pair in node.value for each in pair]
    return node.value if isinstance(node, SequenceNode) else []


def parse(text: str, source: str, key: str = "") -> Node:
    """Parse the text into one node; an empty text is an empty scalar. Raises SyntaxFault."""
    try:
        loader = _Loader(text)
        loader.name = source
        start = loader.get_mark()
        node = loader.get_single_node()
    # A few kilobytes of `[` suffice for this: a job file must not end in a traceback.
    except RecursionError as error:
        explained = "not valid YAML: lists or sections are nested too deeply"
        raise SyntaxFault(_fault(source, 1, key, explained)) from error
    except yaml.YAMLError as error:
        line, problem = _explain(error, text)
        explained = f"not valid YAML: {problem}"
        raise SyntaxFault(_fault(source, line, key, explained)) from error
    return node or ScalarNode(NULL, "", start, start)


def parse_value(text: str, source: str, key: str) -> Node:
    """Parse a value that stands alone. Raises SyntaxFault.

    It is text where YAML would drop a part of it, as in `C # notes`, or fold its lines.
    """
    node, whole = parse(text, source, key), text.strip()
    is_cut = bool(text[node.end_mark.index :].strip())
    if isinstance(node, ScalarNode) and node.style is None and not whole.startswith("!"):
        is_cut = is_cut or node.value != whole
    return ScalarNode(STR, whole, node.start_mark, node.end_mark) if is_cut else node


def _explain(error: yaml.YAMLError, text: str) -> tuple[int, str]:
    if isinstance(error, yaml.MarkedYAMLError):
        mark = error.problem_mark or error.context_mark
        problem = error.problem or error.context or "cannot be read"
        return (mark.line + 1 if mark else 1), _EXPLAINED.get(problem, problem)
    if isinstance(error, yaml.reader.ReaderError):
        character = error.character if isinstance(error.character, int) else ord(error.character)
        return text.count("\n", 0, error.position) + 1, f"the character U+{character:04X} is not allowed"
    return 1, str(error)


def grafted(root: Node, dotted: str, value: Node) -> Node:
    """Return a copy of `root` with `value` at the key `dotted`. Raises SyntaxFault where that is not a
    key."""
    return _grafted(root, dotted.split("."), value, dotted)


def _grafted(node: Node, keys: list[str], value: Node, dotted: str) -> Node:
    if not keys:
        return value
    if isinstance(node, SequenceNode):
        inside = dotted.removesuffix("." + ".".join(keys))
        raise SyntaxFault(fault_at(value, dotted, f"{inside} is a list; give it whole, as {inside}=[a, b]"))
    mark = value.start_mark
    pairs = node.value if isinstance(node, MappingNode) else _spelled_out(node, keys, dotted)
    old = [child for key, child in pairs if key.value == keys[0]]
    child = _grafted(old[-1] if old else ScalarNode(NULL, "", mark, mark), keys[1:], value, dotted)
    key = ScalarNode(STR, keys[0], mark, mark)
    if len(keys) > 1:  # the section stays where it was: only what is set has its place on the command line
        key = next((k for k, _ in pairs if k.value == keys[0]), key)
    kept = [(k, c) for k, c in pairs if k.value != keys[0]]
    return MappingNode("tag:yaml.org,2002:map", [*kept, (key, child)], node.start_mark, node.end_mark)


def _spelled_out(node: Node, keys: list[str], dotted: str) -> list[tuple[ScalarNode, ScalarNode]]:
    """Return the key and value that the string at `checkpoints` stands for."""
    if not isinstance(node, ScalarNode) or node.tag != STR or dotted != f"checkpoints.{'.'.join(keys)}":
        return []
    return [(ScalarNode(STR, "files", node.start_mark, node.end_mark), node)]


def with_keys(text: str, source: str, keys: Mapping[str, str | Sequence[str]]) -> str:
    """Return the text with these keys, which are missing there. Raises SyntaxFault.

    `section.key` is put into the section, and where that is missing it is written in its short form.
    """
    for key, value in keys.items():
        node, path = parse(text, source), key.split(".")
        is_inner = False
        for name, child in node.value if isinstance(node, MappingNode) else ():
            if name.value == path[0] and isinstance(child, MappingNode):
                node, is_inner = child, True
        written = f"{path[-1 if is_inner else 0]}: {json.dumps(value, ensure_ascii=False)}"
        if not isinstance(node, MappingNode) or not (is_inner or node.flow_style):
            text += ("" if text.endswith("\n") else "\n") + f"{written}\n"
        elif node.value:  # before its first key, in the same form
            at = node.value[0][0].start_mark
            joint = ", " if node.flow_style else "\n" + " " * at.column
            text = text[: at.index] + written + joint + text[at.index :]
    return text
