"""Every string that a user may see, one a line: `make messages` prints them, to be read from top to bottom.

Literals of two words or more in the launcher, the trainer and the shell scripts; docstrings only of `--help`.
"""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[1]
SAYS = re.compile(r"\b(?:say|echo|printf|fail|note|warn)\b")
QUOTED = re.compile(r"\"((?:[^\"\\]|\\.)*)\"|'([^']*)'")


def messages() -> Iterator[tuple[str, int, str]]:
    """File, line and text of each."""
    for folder in ("launcher", "onstart", "trainer", "vastrun"):
        for path in sorted((ROOT / folder).rglob("*.py")):
            yield from ((str(path.relative_to(ROOT)), line, text) for line, text in _of_python(path))
    for path in sorted([*ROOT.glob("onstart/**/*.sh"), *ROOT.glob("launcher/**/*.sh")]):
        yield from ((str(path.relative_to(ROOT)), line, text) for line, text in _of_shell(path))


def _of_python(path: Path) -> Iterator[tuple[int, str]]:
    tree = ast.parse(path.read_text())
    silent = {id(node) for node in _docstrings(tree, helpful=path.parent.name == "cli")}
    parts = {
        id(value) for node in ast.walk(tree) if isinstance(node, ast.JoinedStr) for value in ast.walk(node)
    } - {id(node) for node in ast.walk(tree) if isinstance(node, ast.JoinedStr)}
    for node in ast.walk(tree):
        if id(node) in silent | parts or not isinstance(node, ast.Constant | ast.JoinedStr):
            continue
        text = _text(node)
        if _is_said(text):
            yield node.lineno, " ".join(text.split())


def _docstrings(tree: ast.AST, *, helpful: bool) -> Iterator[ast.Constant]:
    """Those that no user reads."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef):
            shown = helpful and isinstance(node, ast.FunctionDef) and node.decorator_list
            yield from (
                ()
                if shown
                else (
                    each.value
                    for each in node.body
                    if isinstance(each, ast.Expr) and isinstance(each.value, ast.Constant)
                )
            )


def _text(node: ast.Constant | ast.JoinedStr) -> str:
    if isinstance(node, ast.Constant):
        return node.value if isinstance(node.value, str) else ""
    return "".join(
        str(part.value) if isinstance(part, ast.Constant) else ast.unparse(part) for part in node.values
    )


def _of_shell(path: Path) -> Iterator[tuple[int, str]]:
    for number, line in enumerate(path.read_text().splitlines(), start=1):
        if SAYS.search(line):
            for quoted in QUOTED.finditer(line):
                text = quoted[1] or quoted[2] or ""
                if _is_said(text):
                    yield number, text


def _is_said(text: str) -> bool:
    return " " in text.strip() and len(re.findall(r"[^\W\d_]{2,}", text)) > 1


if __name__ == "__main__":
    sys.stdout.writelines(f"{file}:{line}: {text}\n" for file, line, text in messages())
