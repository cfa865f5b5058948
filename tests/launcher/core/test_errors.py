"""The tree of errors at the top of errors.py is the tree of its classes, with their exit codes."""

from __future__ import annotations

import re
from collections.abc import Iterator

from vastrun.launcher.core import Cause, errors
from vastrun.launcher.core.errors import VastrunError

LINE = re.compile(r"^([│├└─ ]*)([A-Z]\w+Error)\b(?:.*\bexit (\d+))?", re.MULTILINE)


def drawn() -> dict[str, tuple[str, int | None]]:
    """By name, the class above it and the exit code, as the tree says them."""
    above: list[str] = []
    tree: dict[str, tuple[str, int | None]] = {}
    for indent, name, code in LINE.findall(errors.__doc__ or ""):
        depth = len(indent) // 4
        above[depth:] = [name]
        tree[name] = (above[depth - 1] if depth else "Exception", int(code) if code else None)
    return tree


def below(kind: type[VastrunError]) -> Iterator[type[VastrunError]]:
    """The class and all that inherit from it, of this file."""
    yield kind
    for each in kind.__subclasses__():
        if each.__module__ == errors.__name__:
            yield from below(each)


def test_the_tree_names_every_class_below_its_own() -> None:
    classes = {kind.__name__: kind.__mro__[1].__name__ for kind in below(VastrunError)}
    assert {name: parent for name, (parent, _) in drawn().items()} == classes


def test_the_tree_says_their_exit_codes() -> None:
    for kind in below(VastrunError):
        code = drawn()[kind.__name__][1]
        assert code in (None, kind.exit_code), kind


def test_every_class_has_a_cause() -> None:
    assert all(isinstance(kind.cause, Cause) for kind in below(VastrunError))
