"""One name for one thing: a class that is read in a message, a search or a stack is found in one place."""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Iterator

from tests.sources import sources


def classes() -> Iterator[tuple[str, str]]:
    """Yield the name of every class of the packages, those within others too, and where it is."""
    for source in sources():
        for node in source.nodes:
            if isinstance(node, ast.ClassDef):
                yield node.name, f"{source.path}:{node.lineno}"


def test_no_class_name_exists_twice() -> None:
    places = defaultdict(list)
    for name, place in classes():
        places[name].append(place)
    assert len(places) > 500
    assert {name: found for name, found in places.items() if len(found) > 1} == {}
