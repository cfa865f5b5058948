"""What a function does is said first, as an order to the reader: `Return the seconds ...`, `Raise ...`.

Ruff's D401 knows the rule too, but lets a third of what breaks it pass: `How ...`, `Why ...`, `Whether ...`,
a parameter's name. Properties are nouns, and their docstrings say what they are.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

import pytest

from tests.sources import PACKAGES, sources

NO_VERBS = re.compile(
    r"a|about|above|after|all|also|always|an|and|any|as|at|because|before|below|besides|between|both|by|dollars"
    r"|each|either|epoch|every|everybody|everything|false|few|for|from|how|if|in|it|its|last|less|many|more|most"
    r"|neither|never|next|no|nobody|none|nothing|of|on|once|one|only|or|others?|our|over|own|so|some|that|the"
    r"|their|them|then|there|these|they|this|those|time|to|true|two|under|until|up|what|whatever|when|where"
    r"|whether|which|while|who|whole|whose|why|with|within|without|you|your"
    r"|\w+ing|\w+ed|\w*[^s]s"  # running, built by -ed, returns
)
LIKE_THESE = re.compile(r"bring|embed|feed|focus|need|proceed|seed|shed|speed|string|\w+us")
"""Verbs that look like such forms. Another one is added here."""

Function = ast.FunctionDef | ast.AsyncFunctionDef


def is_order(docstring: str) -> bool:
    """Return whether the first word may be a verb that tells the reader what to do."""
    first = docstring.split()[0]
    word = first.strip(".,:;()").lower()
    if not word.isalpha() or not first[0].isupper():
        return False
    return bool(LIKE_THESE.fullmatch(word)) or not NO_VERBS.fullmatch(word)


def is_property(function: Function) -> bool:
    names = {ast.unparse(decorator).rpartition(".")[2] for decorator in function.decorator_list}
    return bool(names & {"property", "cached_property"})


def public(body: list[ast.stmt], of: str = "") -> Iterator[tuple[str, Function]]:
    """Yield the functions and methods that others may call, by name."""
    for node in body:
        if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
            yield from public(node.body, f"{node.name}.")
        elif isinstance(node, Function) and not node.name.startswith("_") and not is_property(node):
            yield of + node.name, node


def faults(path: str, tree: ast.Module) -> Iterator[str]:
    """Yield what a module leaves unsaid, or says otherwise."""
    if tree.body and ast.get_docstring(tree) is None:
        yield f"{path}: no docstring"
    for name, function in public(tree.body):
        docstring = ast.get_docstring(function)
        # A method may be one of a port or of a base class, which says what it promises.
        if docstring is None and "." not in name:
            yield f"{path}:{function.lineno}: {name} has no docstring"
        if docstring is not None and not is_order(docstring):
            yield f"{path}:{function.lineno}: {name}: {docstring.splitlines()[0]}"


@pytest.mark.parametrize("package", PACKAGES)
def test_what_others_may_call_says_what_it_does(package: str) -> None:
    of_package = [source for source in sources() if source.path.startswith(f"{package}/")]
    assert of_package
    assert [fault for source in of_package for fault in faults(source.path, source.tree)] == []


@pytest.mark.parametrize(
    ("docstring", "order"),
    [
        ("Return the seconds for which the GPUs are billed.", True),
        ("Pass the signal on.", True),
        ("Bring it home.", True),
        ("The seconds for which the GPUs are billed.", False),
        ("Returns the seconds.", False),
        ("How long the GPUs are billed.", False),
        ("True when it is whole.", False),
        ("`now` counts as well.", False),
        ("Running programs.", False),
    ],
)
def test_an_order_is_told_from_what_is_none(docstring: str, order: bool) -> None:
    assert is_order(docstring) is order
