"""Program index: assignments, calls and options of a Python program, from its syntax tree."""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

MAX_NODES = 400_000
"""Max. nodes of a syntax tree that are read; the rest of a longer program is ignored."""
_MAX_ITEMS = 20
"""Max. items of a list that a loop variable gets."""
_OPTION_CALLS = ("add_argument", "option", "add_option")
"""Functions of argparse, click and similar parsers that define an option."""
_SWITCHES = ("store_true", "store_false", "store_const", "count", "version", "help")

Function = ast.FunctionDef | ast.AsyncFunctionDef
Scope = Function | ast.Module
"""The function, or else the file, in which an expression stands."""


@dataclass(frozen=True, kw_only=True)
class Call:
    """A call in the program, and where it stands."""

    node: ast.Call
    scope: Scope
    file: str
    """The path of its file from the folder of the job file."""
    name: str
    """Dotted, as in `torch.save`; what comes before a call or an index is left out: `.save`."""

    @property
    def last(self) -> str:
        """Return the name without what it belongs to."""
        return self.name.rpartition(".")[2]

    def argument(self, place: int, *keywords: str) -> ast.expr | None:
        """Return the argument with one of the keywords, or at the place; None: it has none."""
        named = (word.value for word in self.node.keywords if word.arg in keywords)
        positional = self.node.args
        at_place = positional[place] if 0 <= place < len(positional) else None
        return next(named, None if isinstance(at_place, ast.Starred) else at_place)


@dataclass(frozen=True, kw_only=True)
class ProgramOption:
    """An option of the program's command line."""

    flag: str
    """Option as typed, like `--output-dir`; the name of a positional argument."""
    name: str
    """The attribute that holds its value."""
    default: ast.expr | None
    is_switch: bool
    is_required: bool
    turns_on: bool = False
    """True for a switch whose value is false without it."""


@dataclass(kw_only=True)
class ProgramIndex:
    """Calls, assignments and options of a program, by name."""

    calls: list[Call] = field(default_factory=list)
    assigned: dict[tuple[Scope, str], list[ast.expr]] = field(default_factory=lambda: defaultdict(list))
    attributes: dict[str, list[tuple[ast.expr, Scope]]] = field(default_factory=lambda: defaultdict(list))
    """Values of `self.x`, of fields of classes and of keys of dicts, by name alone."""
    globals: dict[str, list[tuple[ast.expr, Scope]]] = field(default_factory=lambda: defaultdict(list))
    """Values that the files assign outside of functions, for files that import them."""
    functions: dict[Function, str] = field(default_factory=dict)
    """Name by which each is called; for an `__init__` the name of its class."""
    outer: dict[Function, Scope] = field(default_factory=dict)
    """The function in which another one is defined, or the file."""
    files: dict[ast.Module, str] = field(default_factory=dict)
    """Paths from the folder of the job file; the program itself comes first."""
    options: list[ProgramOption] = field(default_factory=list)
    called: dict[str, list[Call]] = field(default_factory=lambda: defaultdict(list))
    """The calls, by the last part of their name."""
    loops: list[tuple[str, ast.expr, Scope]] = field(default_factory=list)
    """Variables of `for` loops, with what they take their values from."""
    forwarding: dict[str, str] = field(default_factory=dict)
    """Functions that pass all their arguments to another one, and its name."""
    required_fields: list[str] = field(default_factory=list)
    """Fields of classes without a default."""
    imports: set[str] = field(default_factory=set)
    """Every module that the program imports, dotted."""
    names: set[str] = field(default_factory=set)
    """Every name and attribute that the program mentions."""
    texts: set[str] = field(default_factory=set)
    """Every string in it."""


def index_program(trees: Mapping[str, ast.Module], max_nodes: int = MAX_NODES) -> ProgramIndex:
    """Read the syntax trees of a program and its modules, by path, once."""
    index = ProgramIndex()
    # A list instead of recursion: a program may be nested deeper than Python's stack.
    waiting: list[tuple[ast.AST, Scope, str | None]] = []
    waiting.extend((tree, tree, None) for tree in reversed(list(trees.values())))
    index.files.update((tree, path) for path, tree in trees.items())
    file = ""
    for _ in range(max_nodes):
        if not waiting:
            break
        node, scope, owner = waiting.pop()
        if isinstance(node, ast.Module):
            file = index.files[node]
        _note(index, node, scope, owner, file)
        if isinstance(node, Function):
            index.outer[node] = scope
            scope, owner = node, None
        elif isinstance(node, ast.ClassDef):
            owner = node.name
        waiting.extend((child, scope, owner) for child in reversed(list(ast.iter_child_nodes(node))))
    _assign_loop_variables(index)
    for function, name in list(index.functions.items()):
        if _is_typer_command(index, function, name):
            index.options += _parameters_as_options(function)
    return index


def _forwards(call: Call, function: Function) -> bool:
    """Tell whether a call passes all that its function gets: `def save(*args): torch.save(*args)`."""
    match call.node.args, function.args.vararg:
        case [ast.Starred(value=ast.Name(id=name))], ast.arg(arg=all_arguments):
            return name == all_arguments
    return False


def _assign_loop_variables(index: ProgramIndex) -> None:
    """Assign to the variables of loops the items of a list that is in the text, or is appended to."""
    appended: dict[tuple[Scope, str], list[ast.expr]] = defaultdict(list)
    for call in index.called.get("append", []):
        appended[call.scope, call.name.removesuffix(".append")] += call.node.args
    for name, values, scope in index.loops:
        lists = [values]
        if isinstance(values, ast.Name):
            lists = index.assigned.get((scope, values.id), [])[:_MAX_ITEMS]
        items = [
            item
            for each in lists
            if isinstance(each, ast.List | ast.Tuple)
            for item in each.elts[:_MAX_ITEMS]
        ]
        if items and isinstance(values, ast.Name):
            items += appended[scope, values.id][:_MAX_ITEMS]
        index.assigned[scope, name] += items[:_MAX_ITEMS]


def _is_typer_command(index: ProgramIndex, function: Function, name: str) -> bool:
    if not any(module.partition(".")[0] == "typer" for module in index.imports):
        return False
    run = [dotted(call.node.args[0]) for call in index.called.get("run", []) if call.node.args]
    decorators = [each.func if isinstance(each, ast.Call) else each for each in function.decorator_list]
    return name in run or any(dotted(each).endswith(".command") for each in decorators)


def _parameters_as_options(function: Function) -> Iterator[ProgramOption]:
    places, defaults = function.args.args, function.args.defaults
    without: list[ast.expr | None] = [None] * (len(places) - len(defaults))
    for parameter, default in zip(places, [*without, *defaults], strict=True):
        flag = parameter.arg if default is None else "--" + parameter.arg.replace("_", "-")
        if isinstance(default, ast.Call):  # typer.Option("results")
            default = default.args[0] if default.args else None
        is_switch = isinstance(parameter.annotation, ast.Name) and parameter.annotation.id == "bool"
        yield ProgramOption(
            flag=flag,
            name=parameter.arg,
            default=default,
            is_switch=is_switch,
            is_required=not flag.startswith("--"),
            turns_on=is_switch and isinstance(default, ast.Constant) and default.value is False,
        )


def _note(index: ProgramIndex, node: ast.AST, scope: Scope, owner: str | None, file: str) -> None:
    match node:
        case ast.Call():
            _note_call(index, Call(node=node, scope=scope, file=file, name=dotted(node.func)))
        case ast.FunctionDef() | ast.AsyncFunctionDef():
            index.functions[node] = owner if owner and node.name == "__init__" else node.name
        case ast.Name(id=name) | ast.Attribute(attr=name):
            index.names.add(name)
        case ast.Constant(value=str(text)):
            index.texts.add(text)
        case ast.Import() | ast.ImportFrom():
            index.imports.update(_imported(node))
        case ast.Dict():
            for key, value in zip(node.keys, node.values, strict=True):
                if isinstance(key, ast.Constant) and isinstance(key.value, str):
                    index.attributes[key.value].append((value, scope))
        case _:
            _note_assignment(index, node, scope, owner)


def _note_call(index: ProgramIndex, call: Call) -> None:
    index.calls.append(call)
    index.called[call.last].append(call)
    if isinstance(call.scope, Function) and _forwards(call, call.scope):
        index.forwarding[index.functions[call.scope]] = call.name
    if call.last in _OPTION_CALLS and (option := _option(call)):
        index.options.append(option)


def _imported(node: ast.Import | ast.ImportFrom) -> Iterator[str]:
    if isinstance(node, ast.Import):
        yield from (alias.name for alias in node.names)
    elif node.module and not node.level:
        # `from torch import distributed` imports torch.distributed.
        yield from (node.module, *(f"{node.module}.{alias.name}" for alias in node.names))


def _note_assignment(index: ProgramIndex, node: ast.AST, scope: Scope, owner: str | None) -> None:
    match node:
        case ast.Assign(targets=targets, value=value):
            for target in targets:
                for name, single in _pairs(target, value):
                    _assign(index, name, single, scope, owner)
        case (
            ast.AnnAssign(target=target, value=ast.expr() as value)
            | ast.NamedExpr(target=target, value=value)
        ):
            default = _field_default(value)
            if default is not None:
                _assign(index, target, default, scope, owner)
            elif isinstance(target, ast.Name):
                index.required_fields.append(target.id)
        case ast.AnnAssign(target=ast.Name(id=name), value=None) if owner and isinstance(scope, ast.Module):
            index.required_fields.append(name)
        case ast.For(target=ast.Name(id=name), iter=value):
            index.loops.append((name, value, scope))
        case ast.withitem(context_expr=value, optional_vars=ast.expr() as target):
            _assign(index, target, value, scope, None)


def _pairs(target: ast.expr, value: ast.expr) -> Iterator[tuple[ast.expr, ast.expr]]:
    """Yield targets with their values, of `a, b = 1, 2` too."""
    if isinstance(target, ast.Tuple) and isinstance(value, ast.Tuple) and len(target.elts) == len(value.elts):
        yield from zip(target.elts, value.elts, strict=True)
    else:
        yield target, value


def _assign(index: ProgramIndex, target: ast.expr, value: ast.expr, scope: Scope, owner: str | None) -> None:
    if isinstance(target, ast.Attribute):
        index.attributes[target.attr].append((value, scope))
    elif isinstance(target, ast.Name) and owner and isinstance(scope, ast.Module):
        index.attributes[target.id].append((value, scope))
    elif isinstance(target, ast.Name):
        index.assigned[scope, target.id].append(value)
        if isinstance(scope, ast.Module):
            index.globals[target.id].append((value, scope))


def _field_default(value: ast.expr) -> ast.expr | None:
    """Return the default of `field(default=...)`, None where it has none; of any other value the value."""
    if isinstance(value, ast.Call) and dotted(value.func).rpartition(".")[2] in ("field", "Field"):
        named = {word.arg: word.value for word in value.keywords}
        return named.get("default", named.get("default_factory"))
    return value


def _option(call: Call) -> ProgramOption | None:
    flags = [
        arg.value for arg in call.node.args if isinstance(arg, ast.Constant) and isinstance(arg.value, str)
    ]
    named = {word.arg: word.value for word in call.node.keywords}
    long = next((flag for flag in flags if flag.startswith("--")), flags[0] if flags else "")
    if not long or any(character.isspace() for character in long):
        return None
    # click: `--use/--no-use` is a switch.
    action = _text(named.get("action")) or ""
    switch = (
        action in _SWITCHES
        or "is_flag" in named
        or "/" in long
        or "BooleanOptional" in dotted(named.get("action", call.node.func))
    )
    dest = _text(named.get("dest")) or long.lstrip("-").replace("-", "_")
    positional = not long.startswith("-")
    optional = _text(named.get("nargs")) in ("?", "*") or "default" in named
    return ProgramOption(
        flag=long,
        name=dest,
        default=named.get("default"),
        is_switch=switch or _name(named.get("type")) == "bool",
        is_required=_is_true(named.get("required")) or (positional and not optional),
        turns_on=(action == "store_true" or "is_flag" in named) and not _is_true(named.get("default")),
    )


def _text(node: ast.expr | None) -> str | None:
    return node.value if isinstance(node, ast.Constant) and isinstance(node.value, str) else None


def _name(node: ast.expr | None) -> str | None:
    return node.id if isinstance(node, ast.Name) else None


def _is_true(node: ast.expr | None) -> bool:
    return isinstance(node, ast.Constant) and node.value is True


def dotted(node: ast.expr) -> str:
    """Return `a.b.c` for such an expression; `.c` where it begins with something else than a name."""
    parts: list[str] = []
    while isinstance(node, ast.Attribute):
        parts.append(node.attr)
        node = node.value
    parts.append(node.id if isinstance(node, ast.Name) else "")
    return ".".join(reversed(parts))
