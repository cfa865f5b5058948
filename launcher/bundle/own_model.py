"""Own model: check without torch that the code to ship has the model that `train.model.name` names.

The source is parsed and nothing of it is run. What only a run would show is accepted.
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator, Sequence
from difflib import get_close_matches

from vastrun.contract.config import MODEL_ARGUMENTS, ModelConfig
from vastrun.launcher.bundle.checkout import Worktree
from vastrun.launcher.core.errors import JobValueError

_KEY = "train.model.name"
_MAX_BYTES = 10**7
_CALL = 2
"""Positional arguments of a call, `fields` and `conditions`, besides `self`."""

Definition = ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef


def check_model(model: ModelConfig, tree: Worktree) -> None:
    """Check that the model is in the code, and takes the arguments that it is built and called with.

    Raises JobValueError, with the file and the line.
    """
    module, _, attribute = model.name.partition(":")
    file = _file_of(module, tree)
    names = _names(_parse(file, tree))
    if attribute not in names:
        if "*" in names or "__getattr__" in names:
            return
        near = get_close_matches(attribute, names, n=1)
        raise JobValueError(
            f"{_KEY}: expected a class {attribute}, an nn.Module, in {tree.root / file}, which has none",
            hint=f"{_KEY}: {module}:{near[0]}" if near else "",
        )
    definition = names[attribute]
    if isinstance(definition, Definition):
        _check_definition(model, definition, f"{tree.root / file}:{definition.lineno}")


def _file_of(module: str, tree: Worktree) -> str:
    """Return the file of a module among the files to ship. Raises JobValueError."""
    top = module.partition(".")[0]
    if top in sys.stdlib_module_names:
        raise JobValueError(f"{_KEY}: {top} is a module of Python itself", hint="rename the file")
    path = module.replace(".", "/")
    files = (f"{path}.py", f"{path}/__init__.py")
    found = next((file for file in files if file in tree.paths), None)
    if found is not None:
        return found
    unshipped = next((file for file in files if (tree.root / file).is_file()), None)
    if unshipped is not None:
        raise JobValueError(
            f"{_KEY}: {tree.root / unshipped} is not uploaded: git ignores it, or code.exclude names it",
            hint=f"code: {{include: [{unshipped}]}}",
        )
    modules = [file.removesuffix(".py").replace("/", ".") for file in tree.paths if file.endswith(".py")]
    near = get_close_matches(module, modules, n=1)
    raise JobValueError(
        f"{_KEY}: expected the module {module} in the job's code, and there is no {tree.root / files[0]}",
        hint=f"the module {near[0]}" if near else "set code.path to the folder that has the module",
    )


def _parse(file: str, tree: Worktree) -> ast.Module:
    path = tree.root / file
    try:
        if path.stat().st_size > _MAX_BYTES:
            return ast.Module(body=[], type_ignores=[])
        return ast.parse(path.read_bytes(), filename=str(path))
    except OSError as error:
        raise JobValueError(f"{_KEY}: cannot read {path}: {error.strerror}") from error
    except SyntaxError as error:
        raise JobValueError(f"{_KEY}: {path}:{error.lineno or 1}: {error.msg}") from error
    except (ValueError, RecursionError, MemoryError) as error:
        raise JobValueError(f"{_KEY}: {path} is not Python: {error}") from error


def _names(module: ast.Module) -> dict[str, ast.AST]:
    """Return the names that a module defines, assigns or imports, each with its last place."""
    return {name: node for statement in _statements(module.body) for name, node in _bound(statement)}


def _statements(body: Sequence[ast.stmt]) -> Iterator[ast.stmt]:
    """Yield the statements of a module, with those inside `if`, `try`, `with` and loops."""
    for statement in body:
        yield statement
        if isinstance(statement, Definition):
            continue
        for block in ("body", "orelse", "finalbody"):
            yield from _statements(getattr(statement, block, ()))
        for part in (*getattr(statement, "handlers", ()), *getattr(statement, "cases", ())):
            yield from _statements(part.body)


def _bound(statement: ast.stmt) -> Iterator[tuple[str, ast.AST]]:
    if isinstance(statement, Definition):
        yield statement.name, statement
    elif isinstance(statement, (ast.Import, ast.ImportFrom)):
        for alias in statement.names:
            yield alias.asname or alias.name.partition(".")[0], statement
    elif isinstance(statement, (ast.Assign, ast.AnnAssign)):
        targets = statement.targets if isinstance(statement, ast.Assign) else [statement.target]
        for target in targets:
            yield from ((node.id, statement) for node in ast.walk(target) if isinstance(node, ast.Name))


def _check_definition(model: ModelConfig, definition: Definition, place: str) -> None:
    # What a decorator makes of a class or a function, only a run shows.
    if definition.decorator_list:
        return
    if not isinstance(definition, ast.ClassDef):
        _check_arguments(model, definition.args, place)
        return
    maker, forward = (_method(definition, name) for name in ("__init__", "forward"))
    if forward is not None and not _takes_call(forward.args):
        raise JobValueError(
            f"{_KEY}: {place}: expected {definition.name}.forward to take (fields, conditions)",
            hint="the call is described in docs/own-model.md",
        )
    # Of a class without a constructor, its base decides.
    if maker is not None and not maker.decorator_list:
        _check_arguments(model, maker.args, place)


def _method(definition: ast.ClassDef, name: str) -> ast.FunctionDef | None:
    methods = [each for each in definition.body if isinstance(each, ast.FunctionDef) and each.name == name]
    return methods[-1] if methods else None


def _takes_call(takes: ast.arguments) -> bool:
    named = len(takes.posonlyargs) + len(takes.args) - 1
    needed = named - len(takes.defaults)
    keywords = [default for default in takes.kw_defaults if default is None]
    return needed <= _CALL and (named >= _CALL or takes.vararg is not None) and not keywords


def _check_arguments(model: ModelConfig, takes: ast.arguments, place: str) -> None:
    """Check that a constructor or function takes the arguments of the data and all of `model.options`."""
    named = [argument.arg for argument in (*takes.args, *takes.kwonlyargs)]
    unknown = [name for name in (*MODEL_ARGUMENTS, *model.options) if name not in named]
    if unknown and takes.kwarg is None:
        options = [name for name in unknown if name in model.options]
        key = f"train.model.options.{options[0]}" if unknown == options else _KEY
        near = get_close_matches(unknown[0], [name for name in named if name not in MODEL_ARGUMENTS], n=1)
        raise JobValueError(
            f"{key}: {place}: expected {model.name} to take the argument {unknown[0]}",
            hint=f"train.model.options.{near[0]}" if near and options else "",
        )
    # Arguments without a default that nothing gives; the first of a method is the object itself.
    first = 1 if named[:1] == ["self"] else 0
    positional = [argument.arg for argument in takes.args][first : len(takes.args) - len(takes.defaults)]
    keywords = [
        argument.arg
        for argument, default in zip(takes.kwonlyargs, takes.kw_defaults, strict=True)
        if default is None
    ]
    given = {*MODEL_ARGUMENTS, *model.options}
    missing = next((name for name in (*positional, *keywords) if name not in given), None)
    if missing is not None:
        raise JobValueError(
            f"train.model.options.{missing}: {place}: expected a value: {model.name} has no default for it",
            hint=f"train.model.options: {{{missing}: ...}}",
        )
