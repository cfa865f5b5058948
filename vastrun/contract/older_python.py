"""Older Python: what the trainer's records use and Python 3.9 lacks.

With it, `dataclass` takes `kw_only=True`, and a field may be of type `A | B`. This is for our own processes:
the user's program imports nothing of the trainer.
"""

from __future__ import annotations

import ast
import dataclasses
import sys
import typing
from typing import Any


def support_records() -> None:
    """Replace `dataclasses.dataclass` by one that has the options of Python 3.10."""
    dataclasses.dataclass = with_keywords(dataclasses.dataclass)


def with_keywords(original: Any) -> Any:
    """Return the decorator `original` with the option `kw_only`. Without it, it does what it did before."""

    def dataclass(cls: Any = None, /, *, kw_only: bool = False, **options: Any) -> Any:
        if not kw_only:
            return original(cls, **options)
        return lambda cls: original(**options)(_prepared(cls))

    return dataclass


def _prepared(cls: Any) -> Any:
    """Return the class with its annotations as Python 3.9 reads them, fields without a default first."""
    hints = vars(cls).get("__annotations__", {})
    # Only keywords are used, so that the order is free.
    names = sorted(hints, key=lambda name: _has_default(cls, name))
    cls.__annotations__ = {name: with_unions(hints[name]) for name in names}
    vars(sys.modules[cls.__module__]).setdefault("Union", typing.Union)
    return cls


def with_unions(annotation: str) -> str:
    """Write each `A | B` of an annotation as `Union[A, B]`."""
    return ast.unparse(_Unions().visit(ast.parse(annotation, mode="eval")))


class _Unions(ast.NodeTransformer):
    def visit_BinOp(self, node: ast.BinOp) -> ast.AST:
        self.generic_visit(node)
        if not isinstance(node.op, ast.BitOr):
            return node
        both = ast.Tuple(elts=[node.left, node.right], ctx=ast.Load())
        return ast.Subscript(value=ast.Name(id="Union", ctx=ast.Load()), slice=both, ctx=ast.Load())


def _has_default(cls: Any, name: str) -> bool:
    if name not in vars(cls):
        return False
    value = vars(cls)[name]
    if not isinstance(value, dataclasses.Field):
        return True
    missing = dataclasses.MISSING
    return value.default is not missing or value.default_factory is not missing
