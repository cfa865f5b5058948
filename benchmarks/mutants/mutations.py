"""Find every place of a module that a mutant may change, and what it becomes there."""

from __future__ import annotations

import ast
import copy
from collections.abc import Iterator
from dataclasses import dataclass

_SWAPS: dict[type[ast.AST], type[ast.AST]] = {
    ast.Lt: ast.LtE,
    ast.LtE: ast.Lt,
    ast.Gt: ast.GtE,
    ast.GtE: ast.Gt,
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.Is: ast.IsNot,
    ast.IsNot: ast.Is,
    ast.In: ast.NotIn,
    ast.NotIn: ast.In,
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.Div,
    ast.FloorDiv: ast.Mult,
    ast.And: ast.Or,
    ast.Or: ast.And,
}
_SKIPPED = (ast.JoinedStr, ast.Assert, ast.Raise, ast.Import, ast.ImportFrom)
"""What holds texts for people, or what mypy and every test would notice."""


@dataclass(frozen=True, kw_only=True)
class Mutation:
    """One change of a module: the bytes from `start` to `end`, on `lines`, become `new`."""

    lines: range
    start: int
    end: int
    old: str
    new: str

    def apply(self, source: bytes) -> bytes:
        """Return the module with this change."""
        return source[: self.start] + self.new.encode() + source[self.end :]


def mutations_of(source: bytes) -> list[Mutation]:
    """Return all mutations of a module, in the order of its syntax tree."""
    starts = [0]
    for line in source.splitlines(keepends=True):
        starts.append(starts[-1] + len(line))
    found = []
    for node, mutant in _changes(ast.parse(source)):
        start = starts[node.lineno - 1] + node.col_offset
        end = starts[(node.end_lineno or node.lineno) - 1] + (node.end_col_offset or 0)
        old, new = source[start:end].decode(), ast.unparse(mutant)
        lines = range(node.lineno, (node.end_lineno or node.lineno) + 1)
        found.append(Mutation(lines=lines, start=start, end=end, old=old, new=new))
    return found


def _changes(tree: ast.AST) -> Iterator[tuple[ast.expr, ast.expr]]:
    """Yield each expression that may change, with what it becomes; annotations and decorators stay."""
    for name, value in ast.iter_fields(tree):
        if name in ("annotation", "returns", "decorator_list", "type_comment"):
            continue
        for node in value if isinstance(value, list) else [value]:
            if not isinstance(node, ast.AST) or isinstance(node, _SKIPPED):
                continue
            if isinstance(node, ast.expr):
                yield from ((node, mutant) for mutant in _mutants(node))
                yield from _by_place(tree, name, node)
            yield from _changes(node)


def _by_place(parent: ast.AST, name: str, node: ast.expr) -> Iterator[tuple[ast.expr, ast.expr]]:
    """Yield what an expression becomes because of where it stands: a condition, or what is returned."""
    exact = isinstance(node, ast.Compare) and not isinstance(node.ops[0], ast.Lt | ast.LtE | ast.Gt | ast.GtE)
    if name == "test" and not isinstance(node, ast.UnaryOp) and not exact:
        yield node, ast.UnaryOp(op=ast.Not(), operand=node)
    if isinstance(parent, ast.Return) and not isinstance(node, ast.Constant):
        yield node, ast.Constant(value=None)


def _mutants(node: ast.expr) -> Iterator[ast.expr]:
    match node:
        case ast.Compare():
            yield from _compared_otherwise(node)
        case ast.BinOp(left=left, op=op, right=right):
            if type(op) in _SWAPS and not (_is_sequence(left) or _is_sequence(right)):
                yield ast.BinOp(left=left, op=_SWAPS[type(op)](), right=right)  # type: ignore[arg-type]
        case ast.BoolOp(op=op, values=values):
            yield ast.BoolOp(op=_SWAPS[type(op)](), values=values)  # type: ignore[arg-type]
        case ast.UnaryOp(op=ast.Not(), operand=operand):
            yield operand
        case ast.Constant(value=bool(value)):
            yield ast.Constant(value=not value)
        case ast.Constant(value=int(value) | float(value)):
            yield ast.Constant(value=value + 1 if isinstance(value, int) else 2 * value + (value == 0))
        case ast.Call():
            yield from _without_keyword(node)


def _compared_otherwise(node: ast.Compare) -> Iterator[ast.expr]:
    for number, op in enumerate(node.ops):
        other = copy.copy(node)
        other.ops = [*node.ops[:number], _SWAPS[type(op)](), *node.ops[number + 1 :]]  # type: ignore[list-item]
        yield other


def _without_keyword(node: ast.Call) -> Iterator[ast.expr]:
    for number, keyword in enumerate(node.keywords):
        if keyword.arg is not None:
            rest = [*node.keywords[:number], *node.keywords[number + 1 :]]
            yield ast.Call(func=node.func, args=node.args, keywords=rest)


def _is_sequence(node: ast.expr) -> bool:
    """Tell whether it is no number for sure: only a TypeError would follow."""
    return isinstance(node, ast.JoinedStr | ast.List | ast.Tuple) or (
        isinstance(node, ast.Constant) and isinstance(node.value, str | bytes)
    )
