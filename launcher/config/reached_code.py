"""Reached code: the parts of a program's own modules that a run of the program can reach."""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Iterator, Mapping

from vastrun.launcher.config.program_index import dotted


def reached_code(modules: Mapping[str, ast.Module]) -> dict[str, ast.Module]:
    """Return the program, which comes first, whole, and its modules without what only others use.

    Left out are the statements under `if __name__ == "__main__"` and functions
    that nothing mentions, by name or as a string. Classes and functions with a
    decorator stay: a framework may look them up. A command of click is called.
    """
    program, *imported = modules
    unused: dict[str, dict[str, ast.stmt]] = defaultdict(dict)
    waiting: list[tuple[str, ast.AST]] = [(program, modules[program])]
    for path in imported:
        for statement in modules[path].body:
            if isinstance(statement, ast.FunctionDef | ast.AsyncFunctionDef) and not _is_looked_up(statement):
                unused[statement.name][path] = statement
            elif not _is_for_a_program(statement):
                waiting.append((path, statement))
    own = {path: {getattr(each, "name", "") for each in tree.body} for path, tree in modules.items()}
    while waiting:
        path, node = waiting.pop()
        for name, is_bare in _mentioned(node):
            # A bare name is the module's own function, whatever other modules call theirs.
            places = [path] if is_bare and name in own[path] else list(unused.get(name, ()))
            waiting += [(place, unused[name].pop(place)) for place in places if place in unused.get(name, ())]
    left_out = {statement for statements in unused.values() for statement in statements.values()}
    reached = {program: modules[program]}
    for path in imported:
        body = [each for each in modules[path].body if each not in left_out and not _is_for_a_program(each)]
        reached[path] = ast.Module(body=body, type_ignores=[])
    return reached


def _is_looked_up(function: ast.FunctionDef | ast.AsyncFunctionDef) -> bool:
    decorators = [each.func if isinstance(each, ast.Call) else each for each in function.decorator_list]
    return bool(decorators) and not any(dotted(each) == "click.command" for each in decorators)


def _is_for_a_program(statement: ast.stmt) -> bool:
    """Tell whether a statement is skipped in a module that is imported."""
    return (
        isinstance(statement, ast.If)
        and isinstance(statement.test, ast.Compare)
        and isinstance(statement.test.left, ast.Name)
        and statement.test.left.id == "__name__"
        and not statement.orelse
    )


def mentioned(node: ast.AST) -> Iterator[str]:
    """Yield the names, attributes, imported names and strings below a node."""
    return (name for name, _ in _mentioned(node))


def _mentioned(node: ast.AST) -> Iterator[tuple[str, bool]]:
    """Yield what a node mentions, and whether it is a bare name."""
    for each in ast.walk(node):
        match each:
            case ast.Name(id=name):
                yield name, True
            case ast.Attribute(attr=name) | ast.alias(name=name) | ast.Constant(value=str(name)):
                yield name, False
