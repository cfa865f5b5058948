"""No regular expression that meets text from outside takes time with the square of its length."""

import ast
import importlib
import re
from collections.abc import Iterator, Mapping
from functools import cache
from typing import Any, NamedTuple

import pytest

from tests.pattern_cost import TooComplexError, is_superlinear
from tests.sources import Source, sources

FOLDERS = (
    "launcher/",
    "onstart/boot/",
    "trainer/distributed/",
    "onstart/supervision/",
    "onstart/transfer/",
    "vastrun/contract/",
)
FUNCTIONS = ("compile", "search", "match", "fullmatch", "split", "sub", "findall", "finditer")

SHORT: Mapping[str, str] = {
    "launcher/bundle/secret_values.py: _ENTRY": "a line that opens a quote closes the one before",
    "launcher/commands/rehearse.py: _NAMES_PACKAGES": "a name of a file, of 255 bytes at most",
    "launcher/config/batch_file.py: _BETWEEN": "an option of the command line",
    "launcher/config/rules.py: _RUNS_NOTEBOOK": "the job's own command",
    "launcher/config/settings_file.py: dash": "the user's settings",
    "launcher/config/source.py: re.compile": "PyYAML begins at the start of a scalar",
    "launcher/core/image_ref.py: _IMAGE": "a separator stands between two repeats of other characters",
    "launcher/ssh/keys.py: _KEY_LINE": "caps.KEY_LINE_CHARACTERS",
    "launcher/providers/slurm/offers.py: re.findall": "a GPU's name, of 100 characters at most",
    "onstart/supervision/native_stack.py: _FRAME": "a line, at whose end it always matches",
    "onstart/supervision/stacks.py: _FRAME": "a line, at whose end it always matches",
    "vastrun/contract/texts.py: _QUERY": "a ? or & stands before each name, which holds neither",
}
"""Patterns that are slow with long text: why their text is short, or the time linear all the same."""
COMPUTED: Mapping[str, str] = {
    "launcher/cli/bugreport.py: re.split": "a fixed text",
    "launcher/config/command.py: re.search": "a fixed text",
    "launcher/config/data_rules.py: re.fullmatch": "a fixed number of digits",
    "launcher/config/rules.py: re.compile": "the job's own pattern, which is only compiled",
    "launcher/config/command.py: re.compile": "fixed texts",
    "launcher/config/command.py: re.sub": "one character",
    "launcher/decisions/advice.py: re.search": "caps.DETAIL_CHARACTERS",
    "launcher/core/secrets.py: re.compile": "fixed texts",
    "launcher/image/daemon.py: re.search": "messages of Docker, by caps.EXCHANGES",
    "launcher/ledger/postgres.py: sql": "SQL of vastrun",
    "launcher/ledger/presence.py: found": "files of the kernel",
    "launcher/package_files.py: re.search": "a fixed text",
    "launcher/ssh/session.py: re.compile": "a token, then ten digits at most",
    "onstart/supervision/evidence.py: expression": "the job's own pattern",
    "onstart/supervision/wandb_runs.py: found": "a slash stands between two repeats of other characters",
    "vastrun/contract/records.py: re.fullmatch": "those of `Pattern`, which are checked here",
}
"""Patterns that are known only when the program runs: what they are, or what bounds their text."""


class Use(NamedTuple):
    """A pattern in the source, and how it is used."""

    place: str
    """File, and the name that its value has, else the function that is called."""
    pattern: re.Pattern[Any] | None
    """None: known only when the program runs."""
    methods: frozenset[str]


@cache
def uses() -> tuple[Use, ...]:
    chosen = (source for source in sources() if source.path.startswith(FOLDERS))
    return tuple(use for source in chosen for use in _uses_in(source))


def test_every_pattern_takes_linear_time_or_says_why_it_need_not() -> None:
    assert {use.place for use in uses() if use.pattern is not None and _is_slow(use)} == set(SHORT)


def test_every_pattern_is_known_or_says_what_it_is() -> None:
    assert {use.place for use in uses() if use.pattern is None} == set(COMPUTED)


@pytest.mark.parametrize(
    ("pattern", "method", "slow"),
    [
        (r'\w+="', "search", True),
        (r'\w{1,40}="', "search", False),
        (r'(?<!\w)\w+="', "search", False),
        (r'\b\w+="', "search", False),
        (r'\w+="', "match", False),
        (r'"[^"]*"', "search", False),
        (r"foo.*bar", "search", True),
        (r"(?m)^foo.*bar", "search", False),
        (r"(?m)^\s*x", "search", True),
        (r"(a+)+", "fullmatch", True),
        (r"(a|aa)*c", "match", True),
        (r"(ab)*c", "match", False),
        (r"(ab)*c", "search", True),
        (r"\s*x?\s*y", "match", True),
        (r"x*y*", "fullmatch", False),
        (r"\s+$", "search", True),
        (r"(?m)#.*$", "search", False),
        (r"\d+(?:\.\d+)?", "search", False),
    ],
)
def test_a_patterns_structure_says_whether_its_time_is_linear(pattern: str, method: str, slow: bool) -> None:
    assert _is_slow(Use("", re.compile(pattern), frozenset({method}))) is slow


def _is_slow(use: Use) -> bool:
    assert use.pattern is not None
    try:
        return any(
            is_superlinear(use.pattern, starts=method.endswith("match"), ends=method == "fullmatch")
            for method in use.methods
        )
    except TooComplexError:
        return True


def _uses_in(source: Source) -> Iterator[Use]:
    calls = [
        (node, called) for node in source.nodes if isinstance(node, ast.Call) and (called := _called(node))
    ]
    if not calls:
        return
    name = source.path.removesuffix(".py").removesuffix("/__init__").removeprefix("vastrun/")
    module = vars(importlib.import_module(f"vastrun.{name.replace('/', '.')}"))
    names = {
        id(node.value): node.targets[0].id
        for node in source.nodes
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name)
    }
    for node, function in calls:
        method, label = function.removeprefix("re."), names.get(id(node), "")
        pattern = _compiled(node, module, re.ASCII if method == "Pattern" else 0)
        methods = {
            "Pattern": frozenset({"fullmatch"}),
            "compile": _methods().get(label, frozenset({"search"})),
        }
        yield Use(f"{source.path}: {label or function}", pattern, methods.get(method, frozenset({method})))


def _compiled(call: ast.Call, module: dict[str, Any], flags: int) -> re.Pattern[Any] | None:
    """Return the pattern of a call; None when it needs more than the names of its module."""
    given = [*call.args[1:], *(keyword.value for keyword in call.keywords)]
    try:
        for argument in (one for one in given if re.search(r"\bre\.[A-Z]+\b", ast.unparse(one))):
            flags |= _value(argument, module)
        return re.compile(_value(call.args[0], module), flags)
    except NameError:
        return None


def _value(node: ast.expr, module: dict[str, Any]) -> Any:
    return eval(compile(ast.Expression(node), "pattern", "eval"), module)


@cache
def _methods() -> Mapping[str, frozenset[str]]:
    """Return how patterns are used, in any file, by their names."""
    found: dict[str, frozenset[str]] = {}
    for node in (node for source in sources() for node in source.nodes):
        if isinstance(node, ast.Attribute) and node.attr in FUNCTIONS:
            name = getattr(node.value, "id", None) or getattr(node.value, "attr", "")
            found[name] = found.get(name, frozenset()) | {node.attr}
    return found


def _called(node: ast.Call) -> str:
    """Return the function of `re`, or `Pattern`; empty for other calls."""
    function = node.func
    if isinstance(function, ast.Attribute) and function.attr in FUNCTIONS:
        return f"re.{function.attr}" if getattr(function.value, "id", "") == "re" else ""
    return "Pattern" if getattr(function, "id", "") == "Pattern" else ""
