"""Compares what git has of each part with budget.toml; `python -m tests.budget --lower` lowers the maxima."""

import ast
import math
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

FILE = "budget.toml"
NUMBER = re.compile(r"[-+*/<()_.e \d]+")
Budget = dict[str, dict[str, dict[str, Any]]]


def texts(root: Path, paths: Sequence[str]) -> list[str]:
    """Return what the files of these paths hold that git knows, or would add."""
    listed = _git(root, "ls-files", "-z", "--cached", "--others", "--exclude-standard", "--", *paths)
    return [path.read_text("utf-8") for name in listed.split("\0") if (path := root / name).is_file()]


def counts(root: Path, budget: Budget) -> dict[str, float]:
    """Return the count of each row."""
    found: dict[str, float] = {}
    for name, row in {**budget["product"], **budget["lines"]}.items():
        found[name] = sum(text.count("\n") for text in texts(root, row["paths"]))
    for name, row in budget["files"].items():
        found[name] = sum(text.count("\n") > 5 for text in texts(root, row["paths"]))
    product = sum(found[part] for part in budget["product"])
    for name, row in budget["percent"].items():
        found[name] = math.ceil(1000 * found[row["lines"]] / product) / 10
    return found


def raised(budget: Budget, before: Budget) -> Iterator[str]:
    """Yield the rows that allow more than before.

    Lines may move between the parts of the product, and from there to tests and tools, which nobody installs:
    that raises a ratio to the product, too.
    """
    now, then = _maxima(budget), _maxima(before)
    product, everything = budget["product"], {**budget["product"], **budget["lines"]}
    falls = all(sum(now[one] - then.get(one, 0) for one in rows) <= 0 for rows in (product, everything))
    for name, limit in then.items():
        may_rise = falls and (name in everything or name in budget["percent"])
        if name not in now or (now[name] > limit and not may_rise):
            yield f"{name}: its maximum was {limit:g} in the last commit, and only falls"


def density(root: Path, budget: Budget) -> str:
    """Return how many functions and named numbers 1,000 lines of the product have."""
    product = [text for row in budget["product"].values() for text in texts(root, row["paths"])]
    nodes = [node for text in product for node in ast.walk(ast.parse(text))]
    functions = sum(isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) for node in nodes)
    numbers = sum(_is_named_number(node) for node in nodes)
    thousands = sum(text.count("\n") for text in product) / 1000
    return f"{functions / thousands:.1f} functions, {numbers / thousands:.1f} named numbers per 1,000 lines"


def _is_named_number(node: ast.AST) -> bool:
    if not isinstance(node, ast.Assign | ast.AnnAssign) or node.value is None:
        return False
    target = node.targets[0] if isinstance(node, ast.Assign) else node.target
    return ast.unparse(target).isupper() and bool(NUMBER.fullmatch(ast.unparse(node.value)))


def _maxima(budget: Budget) -> dict[str, float]:
    return {name: row["max"] for table in budget.values() for name, row in table.items()}


def _git(root: Path, *arguments: str) -> str:
    return subprocess.run(["git", *arguments], cwd=root, capture_output=True, text=True, check=False).stdout


def main(root: Path, *, lower: bool = False) -> int:
    """Print the counts and what is wrong with them; return the exit code."""
    if not _git(root, "rev-parse", "--git-dir"):
        print("this is no checkout of git: its lines are not counted")
        return 0
    text = (root / FILE).read_text(encoding="utf-8")
    found = counts(root, budget := tomllib.loads(text))
    if lower:
        for name in (*budget["product"], *budget["lines"], *budget["files"]):
            limit = min(found[name], _maxima(budget)[name])
            text = re.sub(rf"(?m)^({name} = {{ max = )\d+", rf"\g<1>{limit}", text)
        (root / FILE).write_text(text, encoding="utf-8")
    limits = _maxima(budget := tomllib.loads(text))
    faults = [
        f"{name}: {found[name]:g} is above {limits[name]:g}" for name in limits if found[name] > limits[name]
    ]
    # A clone of one commit has none before it: only what is not committed yet is compared.
    for before in filter(None, (_git(root, "show", f"{commit}:{FILE}") for commit in ("HEAD", "HEAD~1"))):
        faults += raised(budget, tomllib.loads(before))
    print(", ".join(f"{name} {count:g}" for name, count in found.items()), density(root, budget), sep="\n")
    print(*faults, sep="\n", file=sys.stderr)
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main(Path(__file__).parents[1], lower="--lower" in sys.argv))
