"""Own modules: the files of a folder that a Python program imports, read and never run."""

from __future__ import annotations

import ast
import tokenize
from collections.abc import Iterator
from pathlib import Path

_MAX_FILES = 30
_MAX_FILE_BYTES = 500_000
_MAX_BYTES = 3_000_000


def own_modules(folder: Path, program: str, tree: ast.Module) -> dict[str, ast.Module]:
    """Return the program and the modules of the folder that it imports, by path; at most 30 files.

    A module that cannot be read or parsed is left out.
    """
    root = folder.resolve()
    found = {program: tree}
    waiting, left = [program], _MAX_BYTES
    while waiting:
        path = waiting.pop(0)
        for module in _imported(root, path, found[path]):
            if len(found) >= _MAX_FILES or module in found:
                continue
            source = root / module
            try:
                size = source.stat().st_size
                if size > min(left, _MAX_FILE_BYTES):
                    continue
                with tokenize.open(source) as file:
                    found[module] = ast.parse(file.read())
            except (OSError, ValueError, SyntaxError, RecursionError, MemoryError):
                continue
            left -= size
            waiting.append(module)
    return found


def _imported(root: Path, path: str, tree: ast.Module) -> Iterator[str]:
    """Yield the paths of the modules of the folder that a file imports, from the folder."""
    here = (root / path).parent
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names, places = [alias.name for alias in node.names], [here, root]
        elif isinstance(node, ast.ImportFrom):
            module = node.module or ""
            names = [module, *(f"{module}.{alias.name}".strip(".") for alias in node.names)]
            places = [here, root] if not node.level else [here, *here.parents][node.level - 1 : node.level]
        else:
            continue
        for name in filter(None, names):
            yield from _files(root, places, name)


def _files(root: Path, places: list[Path], name: str) -> Iterator[str]:
    parts = name.split(".")
    for place in places:
        base = place.joinpath(*parts)
        for file in (base.with_name(f"{base.name}.py"), base / "__init__.py"):
            resolved = file.resolve()
            if resolved.is_file() and resolved.is_relative_to(root):
                yield resolved.relative_to(root).as_posix()
                return
