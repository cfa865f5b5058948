"""Documents: what `--json` printed, held to the schema that is published for the command."""

import json
from collections.abc import Sequence
from functools import cache
from typing import Any

from jsonschema import Draft7Validator

from vastrun.launcher.cli.schema import DOCUMENTS, WITHOUT_VERSION, document_schema


def hold_to_schema(arguments: Sequence[str], printed: str) -> None:
    """Fail where what a command line printed is not as its schema says. Without --json it is nothing."""
    if "--json" not in arguments or not printed:
        return
    name = name_of(arguments)
    for text in printed.splitlines() if name in WITHOUT_VERSION else [printed]:
        hold(name, json.loads(text, parse_constant=_no_number))


def hold(name: str, document: Any) -> None:
    """Fail where a document is not as the schema of that name says."""
    errors = [*_validator(name).iter_errors(document)]
    assert not errors, "\n".join(f"{name}: {_place(each)}: {each.message[:500]}" for each in _deepest(errors))


def name_of(arguments: Sequence[str]) -> str:
    """The name of the document that a command line prints."""
    words = [word for word in arguments if not word.startswith("-")]
    both = "-".join(words[:2])
    return both if both in DOCUMENTS else words[0]


def _deepest(errors: list[Any]) -> list[Any]:
    """Where no choice fits, what is wrong with the one that fits best."""
    return [min(each.context, key=lambda one: -len(one.path)) if each.context else each for each in errors]


def _place(error: Any) -> str:
    return ".".join(map(str, error.absolute_path)) or "the whole"


def _no_number(name: str) -> Any:
    raise AssertionError(f"{name} is no JSON")


@cache
def _validator(name: str) -> Draft7Validator:
    return Draft7Validator(document_schema(name))
