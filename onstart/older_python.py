"""Older Python: support in Python 3.9 for the dataclass features of the records.

`dataclass` accepts `kw_only=True`, and a field may have the type `A | B`. It affects vastrun's processes
only: the user's program imports nothing of the trainer.
"""

from __future__ import annotations

import ast
import dataclasses
import sys
import typing
from typing import Any


def patch_dataclass() -> None:
    """Replace `dataclasses.dataclass` by a version with the options of Python 3.10."""
    dataclasses.dataclass = with_keywords(dataclasses.dataclass)


def with_keywords(original: Any) -> Any:
    """Add the option `kw_only` to the decorator `original`; other calls behave as before."""

    def dataclass(cls: Any = None, /, *, kw_only: bool = False, **options: Any) -> Any:
        if not kw_only:
            return original(cls, **options)
        return lambda cls: original(**options)(_prepared(cls))

    return dataclass


def _prepared(cls: Any) -> Any:
    """Rewrite the annotations of a class for Python 3.9, fields without a default first."""
    hints = vars(cls).get("__annotations__", {})
    # All callers use keywords, so that the order is free.
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
    missing = dataclasses.MISSING
    value = vars(cls).get(name, missing)
    if isinstance(value, dataclasses.Field):
        return value.default is not missing or value.default_factory is not missing
    return value is not missing
