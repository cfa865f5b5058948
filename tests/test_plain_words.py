"""Names, docstrings and messages use the words that a stranger expects: those of the field, or plain ones.

A banned word has a plain one next to it. A name that must stay, since a file format or an option has it,
is in `ALLOWED`.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import cache
from typing import NamedTuple

import pytest

from tests.sources import Source, sources

NAMES = {
    **dict.fromkeys(("told", "tell", "tells", "telling", "said"), "reported, written, shown"),
    **dict.fromkeys(("foretell", "foretold", "foreteller", "foretelling"), "estimate"),
    "most": "max",
    "least": "min",
    "heed": "watch",
    "bury": "finalize",
    "spoken": "display_name",
    "anew": "again",
    "nobody": "the condition",
    "unheard": "null",
    "unsaved": "null",
    "stood": "snapshot",
    "happened": "event",
    "merit": "score",
    "lull": "pause",
    "bell": "signal",
    "caretaker": "server",
    "tape": "recording",
    "clash": "conflict",
    "wish": "request",
    "begun": "started",
    "thoroughness": "level",
    "plainly": "plain",
    "vault": "secret store",
    "theirs": "the owner",
    "ours": "the owner",
}
"""Parts of a name, each with what says it plainly."""

FRAGMENTS = re.compile(r"(Of|So|As|By|None|Those|Such|What|Whose|Whether|Since)\b")
"""First words of a docstring that is no sentence: it begins with a verb or a noun."""

PHRASES = "|".join(
    (
        r"\bnobody\b",
        r"\banew\b",
        r"\bis no more\b",
        r"\b(is|are|was|were) told\b",
        r"\bforet(ell|old)",
        r"\b(comes?|came|coming|brings?|brought) home\b",
        r"\bwhoever\b",
        r"\bsomebody\b",
        r"\bof (ours|theirs)\b",
        r"\bto be had\b",
        r"\bupon\b",
    )
)
"""Turns of phrase that no message and no docstring has."""

ALLOWED = {
    "at_most_usd": "a field of plan --json",
    "at_most_usd_per_run": "a field of batch plan --json",
    "least_budget_usd": "a field of batch plan --json",
    "seconds_at_least": "a field of batch plan --json",
    "not_foretold": "a field of plan --json",
    "told": "a column of the ledger",
}
"""Names that keep a banned word, since files or --json have it."""

_WORD = re.compile(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])")


class Place(NamedTuple):
    """A name, docstring or message, and where it is."""

    text: str
    file: str
    line: int

    def __str__(self) -> str:
        return f"{self.file}:{self.line}: {self.text}"


def docstrings(source: Source) -> Iterator[ast.Constant]:
    """Yield the docstrings of the module, its classes and functions, and those below attributes."""
    for node in source.nodes:
        if (
            isinstance(node, ast.Expr)
            and isinstance(node.value, ast.Constant)
            and isinstance(node.value.value, str)
        ):
            yield node.value


def names(source: Source) -> Iterator[tuple[str, int]]:
    """Yield what a module names: classes, functions, parameters, variables."""
    for node in source.nodes:
        if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            yield node.name, node.lineno
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            yield node.id, node.lineno
        elif isinstance(node, ast.arg):
            yield node.arg, node.lineno


@cache
def words_of(name: str) -> frozenset[str]:
    """Return the words of an identifier, in lower case."""
    return frozenset(word.lower() for part in name.split("_") for word in _WORD.findall(part))


def messages(source: Source) -> Iterator[tuple[str, int]]:
    """Yield the strings of two words or more that are no docstrings."""
    silent = {id(node) for node in docstrings(source)}
    for node in source.nodes:
        is_text = isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in silent
        if is_text and " " in node.value.strip():
            yield node.value, node.lineno


def test_names_have_plain_words() -> None:
    found = [
        Place(f"{name}: better {', '.join(sorted(NAMES[word] for word in banned))}", source.path, line)
        for source in sources()
        for name, line in names(source)
        if name not in ALLOWED and (banned := words_of(name) & NAMES.keys())
    ]
    assert [str(place) for place in found] == []


def test_docstrings_begin_with_a_verb_or_a_noun() -> None:
    found = [
        Place(node.value.splitlines()[0], source.path, node.lineno)
        for source in sources()
        for node in docstrings(source)
        if isinstance(node.value, str) and FRAGMENTS.match(node.value)
    ]
    assert [str(place) for place in found] == []


def test_messages_and_docstrings_have_plain_phrases() -> None:
    found = [
        Place(text, source.path, line)
        for source in sources()
        for text, line in (
            *messages(source),
            *((str(node.value), node.lineno) for node in docstrings(source)),
        )
        if re.search(PHRASES, text)
    ]
    assert [str(place) for place in found] == []


@pytest.mark.parametrize(
    ("name", "words"), [("MOST_BYTES", {"most", "bytes"}), ("toldByAll", {"told", "by", "all"})]
)
def test_a_name_is_taken_apart(name: str, words: set[str]) -> None:
    assert words_of(name) == words
