"""Path values: globs of the files that an expression of a Python program may name, without running it."""

from __future__ import annotations

import ast
import itertools
import posixpath
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from vastrun.launcher.config.program_index import Call, Function, ProgramIndex, ProgramOption, Scope, dotted

UNKNOWN = "\0"
"""Placeholder for values that only a run of the program shows; becomes `*`."""
OUTPUTS = "$VASTRUN_OUTPUTS"
_MAX_VALUES = 4
_MAX_DEPTH = 16
_MAX_CALLS = 20
"""Max. calls of a function that are inspected for the value of its parameter."""
_MAX_LOOKUPS = 20_000
"""Max. expressions that are evaluated for one program."""
_MAX_LENGTH = 500
_SAME = (
    "str",
    "fspath",
    "abspath",
    "realpath",
    "expanduser",
    "normpath",
    "open",
)
"""Functions whose first argument names the same file."""
_SAME_METHODS = ("absolute", "resolve", "expanduser", "as_posix", "strip", "rstrip", "open")
_FORMAT = re.compile(r"\{[^{}]*\}|%[-#0 +]*\d*(?:\.\d+)?[sdifgreux]")


@dataclass(kw_only=True)
class PathReader:
    """Evaluates expressions that name files."""

    index: ProgramIndex
    option_values: Mapping[str, str] = field(default_factory=dict)
    """Values of options that the command sets, by the option's attribute."""
    _open: set[int] = field(default_factory=set)
    _lookups: int = 0

    def paths(self, node: ast.expr | None, scope: Scope) -> list[str]:
        """Return the values of an expression, with UNKNOWN for unknown parts; empty: it is None."""
        self._lookups += 1
        if node is None or (isinstance(node, ast.Constant) and node.value is None):
            return []
        if id(node) in self._open:
            return []  # x = x + ...
        if self._lookups > _MAX_LOOKUPS or len(self._open) >= _MAX_DEPTH:
            return [UNKNOWN]
        self._open.add(id(node))
        try:
            found = dict.fromkeys(value[:_MAX_LENGTH] for value in self._values(node, scope))
        finally:
            self._open.discard(id(node))
        return list(itertools.islice(found, _MAX_VALUES))

    def defaults(self, option: ProgramOption) -> list[str]:
        """Return the values of an option that the command does not set."""
        return self.paths(option.default, self._any_file)

    def globs(self, node: ast.expr | None, scope: Scope) -> set[str]:
        """Return the globs of the known values of an expression."""
        return {glob for value in self.paths(node, scope) if (glob := glob_of(value))}

    def _values(self, node: ast.expr, scope: Scope) -> Iterable[str]:
        match node:
            case ast.Constant(value=str(value)):
                return [value]
            case ast.JoinedStr(values=parts):
                return self._product(parts, scope, "".join)
            case ast.FormattedValue(value=value) | ast.NamedExpr(value=value):
                return self.paths(value, scope) or [UNKNOWN]
            case ast.BinOp():
                return self._operation(node, scope)
            case ast.IfExp(body=one, orelse=other) | ast.BoolOp(op=ast.Or(), values=[one, other]):
                return [*self.paths(one, scope), *self.paths(other, scope)]
            case ast.Call():
                return self._call(Call(node=node, scope=scope, file="", name=dotted(node.func)))
        return self._named(node, scope)

    def _operation(self, node: ast.BinOp, scope: Scope) -> Iterable[str]:
        sides = [node.left, node.right]
        match node.op:
            case ast.Add():
                return self._product(sides, scope, "".join)
            case ast.Div():
                return self._product(sides, scope, _join)
            case ast.Mod():
                return [_FORMAT.sub(UNKNOWN, value) for value in self.paths(node.left, scope)]
        return [UNKNOWN]

    def _named(self, node: ast.expr, scope: Scope) -> Iterable[str]:
        match node:
            case ast.Name(id="__file__"):
                return [self.index.files[self._file(scope)]]
            case ast.Name():
                return self._variable(node, scope)
            case ast.Attribute(value=value, attr="parent"):
                return [posixpath.dirname(path) for path in self.paths(value, scope)]
            case ast.Attribute(attr=name):
                return self._attribute(name)
            case ast.Subscript(value=value, slice=ast.Constant(value=str(key))):
                return _environment(key) if _is_environment(value) else self._attribute(key)
        return [UNKNOWN]

    def _product(
        self, nodes: Iterable[ast.expr], scope: Scope, join: Callable[[Iterable[str]], str]
    ) -> Iterator[str]:
        """Yield the combinations of the values of several expressions."""
        parts = [self.paths(node, scope) or [UNKNOWN] for node in nodes]
        yield from itertools.islice(map(join, itertools.product(*parts)), _MAX_VALUES)

    def _variable(self, node: ast.Name, scope: Scope) -> Iterable[str]:
        """Return the values of a name, from its function or an outer scope."""
        name, here = node.id, scope
        while True:
            function = None if isinstance(scope, ast.Module) else scope
            is_parameter = function is not None and name in _parameters(function)
            assigned = self.index.assigned.get((scope, name), [])
            if scope is here:
                before = [value for value in assigned if _ends_before(value, node)]
                assigned = before if before or is_parameter else assigned
            if assigned:
                found = [self.paths(value, scope) for value in assigned]
                return [value for values in found for value in values]
            if function is None:
                return self._known(self.index.globals.get(name, []))
            if is_parameter:
                return self._parameter(name, function)
            scope = self.index.outer[function]

    def _file(self, scope: Scope) -> ast.Module:
        while not isinstance(scope, ast.Module):
            scope = self.index.outer[scope]
        return scope

    def _known(self, expressions: Sequence[tuple[ast.expr | None, Scope]]) -> Iterator[str]:
        if not expressions:
            yield UNKNOWN
        for value, scope in expressions[:_MAX_CALLS]:
            yield from self.paths(value, scope)

    def _parameter(self, name: str, function: Function) -> Iterator[str]:
        """Yield what the calls of the function pass, and else its default."""
        spec = function.args
        place = [each.arg for each in (*spec.posonlyargs, *spec.args)]
        at = place.index(name) if name in place else -1
        if place[:1] in (["self"], ["cls"]):
            at -= 1
        calls = self.index.called.get(self.index.functions.get(function, ""), [])[:_MAX_CALLS]
        arguments = [(call.argument(at, name), call.scope) for call in calls]
        values = [value for node, scope in arguments if node is not None for value in self.paths(node, scope)]
        if values:
            yield from values
        elif (default := _default(function, name)) is None:
            yield from self._option(name) or [UNKNOWN]  # of click
        elif isinstance(default, ast.Call):  # typer.Option("results")
            yield from self.paths(default.args[0] if default.args else None, function)
        else:
            yield from self.paths(default, self.index.outer[function])

    def _attribute(self, name: str) -> list[str]:
        known = self.index.attributes.get(name) or self.index.globals.get(name, [])
        options = self._option(name)
        if name in self.option_values or (options and not self.index.attributes.get(name)):
            return options
        return [*options, *self._known(known)]

    def _option(self, name: str) -> list[str]:
        """Return the values of the option with this attribute."""
        if name in self.option_values:
            return [self.option_values[name]]
        options = [option for option in self.index.options if option.name == name]
        return [value for option in options for value in self.defaults(option)]

    @property
    def _any_file(self) -> ast.Module:
        return next(iter(self.index.files))

    def _call(self, call: Call) -> Iterable[str]:
        arguments, scope = call.node.args, call.scope
        owner = call.node.func.value if isinstance(call.node.func, ast.Attribute) else None
        first = call.argument(0)
        if call.name.endswith("path.join") or (call.last.endswith("Path") and arguments):
            return self._product(arguments, scope, _join)
        if call.last in ("getenv", "get"):
            return self._from_environment(call)
        if call.last in ("getcwd", "cwd"):
            return ["."]
        if call.last == "dirname":
            return [posixpath.dirname(path) for path in self.paths(first, scope)]
        if owner is not None and not _is_module(owner):
            return self._method(call, owner)
        return self.paths(first, scope) if call.last in _SAME and first is not None else [UNKNOWN]

    def _method(self, call: Call, owner: ast.expr) -> Iterable[str]:
        if call.last == "joinpath":
            return self._product([owner, *call.node.args], call.scope, _join)
        if call.last == "format":
            return [_FORMAT.sub(UNKNOWN, value) for value in self.paths(owner, call.scope)]
        return self.paths(owner, call.scope) if call.last in _SAME_METHODS else [UNKNOWN]

    def _from_environment(self, call: Call) -> Iterable[str]:
        owner = call.node.func.value if isinstance(call.node.func, ast.Attribute) else call.node.func
        key = call.argument(0)
        if not isinstance(key, ast.Constant) or not _is_environment(owner):
            return [UNKNOWN]
        default = self.paths(call.argument(1, "default"), call.scope)
        return _environment(key.value) if key.value == "VASTRUN_OUTPUTS" else default or [UNKNOWN]


def glob_of(value: str, below: str = "") -> str:
    """Return the glob of a path, in its shortest form; empty if only a run shows it."""
    odd = {character for character in value if not character.isprintable() or character in "[]?*"}
    text = "".join("?" if character in odd - {UNKNOWN} else character for character in value.strip())
    text = re.sub(f"{UNKNOWN}+", "*", text)
    if text.startswith("$") and text.partition("/")[0] != OUTPUTS:
        text = f"?{text[1:]}"  # a job file reads it as a variable
    parts: list[str] = []
    for part in text.split("/"):
        if part == ".." and parts and parts[-1] != "..":
            parts.pop()
        elif part not in ("", "."):
            parts.append(part)
    is_known = any(character.isalnum() for part in parts for character in part)
    if parts[:1] == ["*"] or (parts and not is_known) or not (parts or below):
        return ""
    joined = "/".join((*parts, below) if below else parts)
    return f"/{joined}" if text.startswith("/") else joined


def _join(parts: Iterable[str]) -> str:
    return posixpath.join(*parts)


def _is_module(node: ast.expr) -> bool:
    return dotted(node) in ("os", "os.path", "io", "gzip", "codecs", "pathlib")


def _is_environment(node: ast.expr) -> bool:
    return dotted(node) in ("os.environ", "environ", "os", "getenv")


def _environment(key: object) -> list[str]:
    return [OUTPUTS] if key == "VASTRUN_OUTPUTS" else [UNKNOWN]


def _ends_before(value: ast.expr, use: ast.expr) -> bool:
    """Tell whether a value is assigned in the text before a use of its name in the same function."""
    return (value.end_lineno or 0, value.end_col_offset or 0) <= (use.lineno, use.col_offset)


def _parameters(function: Function) -> set[str]:
    spec = function.args
    return {each.arg for each in (*spec.posonlyargs, *spec.args, *spec.kwonlyargs)}


def _default(function: Function, name: str) -> ast.expr | None:
    spec = function.args
    places = [each.arg for each in (*spec.posonlyargs, *spec.args)]
    with_default = dict(zip(reversed(places), reversed(spec.defaults), strict=False))
    named = {each.arg: value for each, value in zip(spec.kwonlyargs, spec.kw_defaults, strict=True)}
    return with_default.get(name) or named.get(name)
