"""The page of the Python API: signatures and docstrings, as they stand in the code."""

import ast
import importlib
import inspect
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from enum import Enum
from functools import cache
from pathlib import Path
from typing import Any

from tests.docs.markdown import ROOT
from vastrun.launcher.api import public

_HERE: Mapping[str, Sequence[str]] = {
    "Functions": ("launch", "plan", "run", "runs", "batch", "sweep", "find_batch", "batches"),
    "Runs": ("RunHandle", "RunStatus", "RunResult", "LogLine"),
    "Batches": ("BatchHandle", "BatchStatus", "PointRow", "BatchResults"),
    "Jobs and plans": ("JobSpec", "LaunchPlan"),
    "How a run ends": ("Verdict", "Cause", "Phase", "MachineState"),
}
"""What `vastrun.launcher.api.public` offers, under the headings of the page."""
_ON_A_BOX: Mapping[str, tuple[str, str]] = {
    "vastrun": ("vastrun/__init__.py", "beat"),
    "vastrun.sampler": ("vastrun/sampler.py", "EpochSampler"),
}
"""Read and not imported: they may need torch, which a computer that builds these pages need not have."""
_ERRORS = "vastrun.errors"

_Function = ast.FunctionDef | ast.AsyncFunctionDef


def python_reference() -> str:
    """Return the page: what a program on your computer may call, what one on a box may, and the errors."""
    parts = [
        "# Every name of the Python API",
        "Made from the code. [From Python](python-api.md) explains it.",
    ]
    for heading, names in _HERE.items():
        parts += [f"## {heading}"]
        for name in names:
            parts += _entry(f"vastrun.{name}", getattr(public, name))
    parts += ["## In a training program", "These are there on every box, and need no launcher."]
    for module, (file, name) in _ON_A_BOX.items():
        parts += _told(f"{module}.{name}", _named(ROOT / file, name))
    parts += ["## Errors", "Each has `hint`, `cause` and `exit_code`."]
    errors = importlib.import_module(_ERRORS)
    for name in errors.__all__:
        parts += _entry(f"{_ERRORS}.{name}", getattr(errors, name))
    return "\n\n".join(parts) + "\n"


def left_out() -> set[str]:
    """Return the names of the Python API that the page has not."""
    return set(public.__all__) - {name for names in _HERE.values() for name in names}


def _entry(name: str, thing: Any) -> Iterator[str]:
    if name == "vastrun.JobSpec":
        yield f"### {name}"
        yield "A job with its defaults filled in: the keys of [the job file](job-file.md), as attributes."
    elif inspect.isclass(thing) and issubclass(thing, Enum):
        yield f"### {name}"
        yield _docstring(_node(thing))
        yield ", ".join(f"`{member.name}`" for member in thing)
    else:
        yield from _told(name, _node(thing))


def _told(name: str, node: ast.stmt) -> Iterator[str]:
    if not isinstance(node, ast.ClassDef):
        yield from _function(name, node)
        return
    yield f"### {name}"
    yield _docstring(node)
    rows = list(_fields(node))
    if rows:
        yield "| | type | |\n|---|---|---|\n" + "\n".join(rows)
    for inner in node.body:
        if isinstance(inner, _Function) and (not inner.name.startswith("_") or inner.name == "__init__"):
            owner = name.rpartition(".")[2]
            if not _is_property(inner) and ast.get_docstring(inner):
                yield from _function(owner if inner.name == "__init__" else f"{owner}.{inner.name}", inner)


def _fields(node: ast.ClassDef) -> Iterator[str]:
    """Yield a row for each field and each property, with the string that stands below it."""
    after = [*node.body[1:], None]
    for inner, following in zip(node.body, after, strict=True):
        if isinstance(inner, ast.AnnAssign) and isinstance(inner.target, ast.Name):
            text = following.value.value if _is_text(following) else ""
            yield _row(inner.target.id, ast.unparse(inner.annotation), text)
        elif isinstance(inner, _Function) and _is_property(inner) and not inner.name.startswith("_"):
            yield _row(inner.name, ast.unparse(inner.returns) if inner.returns else "", _docstring(inner))


def _row(name: str, kind: str, text: str) -> str:
    cell = kind.replace("|", "\\|")
    return f"| `{name}` | `{cell}` | {' '.join(text.split())} |"


def _function(name: str, node: ast.stmt) -> Iterator[str]:
    assert isinstance(node, _Function)
    short = name.removeprefix("vastrun.") if node.name in _HERE["Functions"] else name
    yield f"### {name}" if "." in name and name.startswith("vastrun") else f"#### {name}"
    yield f"```python\n{_signature(short, node)}\n```"
    yield _docstring(node)


def _signature(name: str, node: _Function) -> str:
    """Return the signature as it is called: a line where it fits, else one for each argument."""
    given = [_spaced(argument) for argument in _split(ast.unparse(_without_self(node.args)))]
    returns = f" -> {ast.unparse(node.returns)}" if node.returns and node.name != "__init__" else ""
    line = f"{name}({', '.join(given)}){returns}"
    if len(line) <= 80:
        return line
    arguments = textwrap.indent(",\n".join(given), "    ")
    return f"{name}(\n{arguments},\n){returns}"


def _without_self(arguments: ast.arguments) -> ast.arguments:
    if arguments.args and arguments.args[0].arg in ("self", "cls"):
        return ast.arguments(**{**dict(ast.iter_fields(arguments)), "args": arguments.args[1:]})
    return arguments


def _split(arguments: str) -> list[str]:
    """Split at the commas that stand within no brackets."""
    parts, depth = [""], 0
    for letter in arguments:
        depth += (letter in "([{") - (letter in ")]}")
        if letter == "," and depth == 0:
            parts.append("")
        else:
            parts[-1] += letter
    return [part.strip() for part in parts]


def _spaced(argument: str) -> str:
    """Return `name: kind=value` as people write it."""
    given, is_there, value = argument.rpartition("=")
    return f"{given} = {value}" if is_there and ":" in given else argument


def _docstring(node: ast.stmt) -> str:
    assert isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef)
    return ast.get_docstring(node) or ""


def _is_property(node: _Function) -> bool:
    return any(
        ast.unparse(each).rpartition(".")[2] in ("property", "cached_property")
        for each in node.decorator_list
    )


def _is_text(node: ast.stmt | None) -> bool:
    return (
        isinstance(node, ast.Expr)
        and isinstance(node.value, ast.Constant)
        and isinstance(node.value.value, str)
    )


def _node(thing: Any) -> ast.stmt:
    """Return what the source has of a class, a function or a method."""
    source = inspect.getsourcefile(thing)
    assert source is not None
    return _named(Path(source), thing.__qualname__)


def _named(source: Path, name: str) -> ast.stmt:
    body = _parsed(source).body
    for part in name.split("."):
        found = next(node for node in body if getattr(node, "name", None) == part)
        body = getattr(found, "body", [])
    return found


@cache
def _parsed(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"))
