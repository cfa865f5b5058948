"""The source files of the packages, parsed once for all tests that read them."""

import ast
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[1]
PACKAGES = ("launcher", "onstart", "trainer", "vastrun")


class Source(NamedTuple):
    """A file, its path from the root of the checkout, its tree, and each node of that."""

    path: str
    tree: ast.Module
    nodes: Sequence[ast.AST]


@cache
def sources() -> Sequence[Source]:
    """Return each file of the packages, sorted by package and path."""
    return [_parsed(path) for package in PACKAGES for path in sorted((ROOT / package).rglob("*.py"))]


def _parsed(path: Path) -> Source:
    tree = ast.parse(path.read_text(encoding="utf-8"))
    return Source(str(path.relative_to(ROOT)), tree, list(ast.walk(tree)))
