"""Imports of a Python program, from its text: nothing of it is run."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from vastrun.launcher.core.errors import UsageError

_MAX_PROGRAM_BYTES = 200_000
"""Bytes; Python needs 200 MB of memory to parse the oddest program of this size."""
_IMPORT_ERRORS = ("ImportError", "ModuleNotFoundError", "Exception")


@dataclass(frozen=True, kw_only=True)
class ProgramImports:
    """Modules that a program imports, dotted, at any depth of its code."""

    needed: frozenset[str]
    optional: frozenset[str]
    """Modules that it does without: each import of them is in a `try` that expects ImportError."""
    is_relative: bool
    """It imports from its own package, by `from .name`: Python runs it with -m."""

    def uses(self, *modules: str) -> bool:
        """Return whether it imports one of the modules, or what is in them."""
        names = self.needed | self.optional
        return any(name == each or name.startswith(f"{each}.") for name in names for each in modules)


def parse_program(path: Path) -> ast.Module:
    """Parse a Python program, which Python itself decodes. Raises UsageError, whose text names no path."""
    try:
        if path.exists() and not path.is_file():
            raise UsageError("is not a file")
        with path.open("rb") as file:
            content = file.read(_MAX_PROGRAM_BYTES + 1)
    except (OSError, ValueError) as error:
        raise UsageError(str(getattr(error, "strerror", error))) from error
    if len(content) > _MAX_PROGRAM_BYTES:
        raise UsageError(f"is larger than {_MAX_PROGRAM_BYTES // 1000} kB, too large for a program")
    try:
        return ast.parse(content)
    except SyntaxError as error:
        raise UsageError(f"is not a Python program: {error.msg} (line {error.lineno or 1})") from None
    except (ValueError, LookupError, RecursionError, MemoryError) as error:
        raise UsageError(f"is not a Python program: {str(error) or 'it is nested too deeply'}") from None


def imports_of(tree: ast.Module) -> ProgramImports:
    """Return what a program imports."""
    found = list(_imports(tree))
    needed = frozenset(name for name, is_optional in found if not is_optional)
    return ProgramImports(
        needed=needed - {""}, optional=frozenset(name for name, _ in found) - needed, is_relative="" in needed
    )


def _imports(tree: ast.Module) -> Iterator[tuple[str, bool]]:
    """Yield each imported module, empty for its own package, and whether the program does without it."""
    waiting: list[tuple[ast.AST, bool]] = [(tree, False)]
    while waiting:
        node, is_optional = waiting.pop()
        if isinstance(node, ast.Import):
            yield from ((alias.name, is_optional) for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.level:
            yield "", False
        elif isinstance(node, ast.ImportFrom) and node.module:
            # `from torch import distributed` imports torch.distributed.
            names = (node.module, *(f"{node.module}.{alias.name}" for alias in node.names))
            yield from ((name, is_optional) for name in names)
        tried = (
            node.body if isinstance(node, ast.Try) and any(map(_expects_import_error, node.handlers)) else ()
        )
        waiting += [(child, is_optional or child in tried) for child in ast.iter_child_nodes(node)]


def _expects_import_error(handler: ast.ExceptHandler) -> bool:
    if handler.type is None:
        return True
    kinds = handler.type.elts if isinstance(handler.type, ast.Tuple) else [handler.type]
    return any(isinstance(kind, ast.Name) and kind.id in _IMPORT_ERRORS for kind in kinds)
