"""Command of a job: a script of the shell, a point's values for the user's program, and what that imports."""

from __future__ import annotations

import ast
import re
import shlex
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path, PurePath
from typing import Any

from vastrun.contract.program import PLACEHOLDER as RESUME_PLACEHOLDER
from vastrun.launcher.core.errors import UsageError
from vastrun.launcher.core.job import JobSpec

_PREFIX = "VASTRUN_PARAM_"
BASH = ("bash", "--noprofile", "--norc", "-eo", "pipefail", "-c")
_ON_STOP = "trap 'exit 143' TERM; "
"""Prefix of a script that ends it on SIGTERM, after its current command was stopped."""
_QUOTED = re.compile(r"'[^']*'|\"[^\"$`\\]*\"")
_SHELLS = frozenset(("bash", "sh", "dash", "ash", "zsh", "ksh"))
_FLAG_BEFORE_SCRIPT = re.compile(r"-[abd-z]*c[a-z]*")
_FOR_A_SHELL = re.compile(r"[\n;&|<>$`*?~#(){}!\\\[\]]|^\w+=")
PLACEHOLDER = re.compile(
    r"(?<!\$)\{(?P<name>[A-Za-z_][A-Za-z0-9_-]*)(?::(?P<option>--?[A-Za-z][^\s{}'\"]*))?\}"
)
"""`{lr}` and `{amp:--amp}`, but not `${lr}`, which the shell expands."""
_SWITCHES = {"true": True, "on": True, "yes": True, "false": False, "off": False, "no": False, "": False}
"""Values with which an option stands alone, or not at all."""
_HERE_DOCUMENT = r"<<(?P<tabs>-?)[ \t]*(?P<raw>\\|['\"])?(?P<end>[A-Za-z_]\w*)['\"]?"
_COMMENT = r"(?<![^\s;&|()])#[^\n]*"
_OPENS = {"'": "'", "$'": "$'", '"': '"', "(": "(", "$(": "("}
_ESCAPED = {'"': r'[\\$`"]', "$'": r"[\\']", "<<": r"[\\$`]"}
"""Characters that need a backslash within double quotes, `$'…'` and a here-document."""
_MAX_PROGRAM_BYTES = 200_000
"""Bytes; Python needs 200 MB of memory to parse the oddest program of this size."""
_IMPORT_ERRORS = ("ImportError", "ModuleNotFoundError", "Exception")


def variable_of(name: str) -> str:
    """Return the environment variable that holds the value of that name."""
    return f"{_PREFIX}{name.upper().replace('-', '_')}"


def unmentioned(spec: JobSpec, names: Iterable[str]) -> set[str]:
    """Return the names that neither the command of the job nor its `env:` mentions.

    `{lr}` in the command mentions `lr`; so does `VASTRUN_PARAM_LR` in either.
    """
    command = "\n".join(spec.command or ())
    placeholders = {found["name"] for found in PLACEHOLDER.finditer(command)}
    text = "\n".join([command, *spec.env, *spec.env.values()])
    return {name for name in names if name not in placeholders and not is_read_in(text, name)}


def is_read_in(text: str, name: str) -> bool:
    """Return whether a text reads the value from the environment, by its name or by the common prefix."""
    variable = re.escape(variable_of(name))
    return re.search(rf"{variable}(?![A-Za-z0-9_])|{_PREFIX}(?![A-Za-z0-9])", text) is not None


def with_parameters(spec: JobSpec, values: Mapping[str, Any]) -> JobSpec:
    """Return the job with each `{name}` of its command replaced, and `VASTRUN_PARAM_NAME` in its environment.

    `{name:--option}` is the option and the value; for a switch, such as `on`, the option alone or nothing. In
    a script the value is quoted for the shell. A name in braces that is no parameter stays as it is.
    """
    if not values or spec.command is None:
        return spec
    texts = {key: _text(value) for key, value in values.items()}
    script = script_of(spec.command)
    if script is not None:
        command = program_of(with_values(script, texts))
    else:
        command = tuple(
            part
            for n, word in enumerate(spec.command)
            for part in ([with_values(word, texts)] if _is_script(spec.command, n) else _filled(word, texts))
        )
    env = {variable_of(key): text for key, text in texts.items()}
    return replace(spec, command=command, env={**spec.env, **env})


def _is_script(program: tuple[str, ...], n: int) -> bool:
    """Tell whether a shell reads this word: `timeout 5 bash -c SCRIPT NAME`."""
    is_after_flag = n > 1 and _FLAG_BEFORE_SCRIPT.fullmatch(program[n - 1]) is not None
    return is_after_flag and any(PurePath(word).name in _SHELLS for word in program[: n - 1])


def _filled(word: str, texts: Mapping[str, str]) -> Sequence[str]:
    """Return the words that a word stands for: a placeholder alone may be none or two."""
    whole = PLACEHOLDER.fullmatch(word)
    words = _words(whole, texts) if whole else None
    return [PLACEHOLDER.sub(lambda found: _replaced(found, texts), word)] if words is None else words


def _words(found: re.Match[str], texts: Mapping[str, str]) -> Sequence[str] | None:
    """Return the words for a placeholder; None where its name is no parameter."""
    text, option = texts.get(found["name"]), found["option"]
    if text is None or option is None:
        return None if text is None else [text]
    is_on = _SWITCHES.get(text.lower())
    if is_on is not None:
        return [option] if is_on else []
    return [option + text] if option.endswith("=") else [option, text]


def _replaced(found: re.Match[str], texts: Mapping[str, str], escape: Callable[[str], str] = str) -> str:
    """Return the text in the place of a placeholder, each word escaped; it stays if it is no parameter."""
    words = _words(found, texts)
    return found[0] if words is None else " ".join(map(escape, words))


def _text(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    return "" if value is None else str(value)


def program_of(script: str) -> tuple[str, ...]:
    """Split a simple command into its words; give any other script to bash.

    Raises ValueError when a quote is never closed.
    """
    script = script.strip()
    if _FOR_A_SHELL.search(_QUOTED.sub("q", RESUME_PLACEHOLDER.sub("r", script))):
        return (*BASH, _ON_STOP + script)
    return tuple(shlex.split(script))


def script_of(program: tuple[str, ...]) -> str | None:
    """Return the script that bash was given; None for a program without one."""
    if program[:-1] == BASH and program[-1].startswith(_ON_STOP):
        return program[-1].removeprefix(_ON_STOP)
    return None


def _tokens(*patterns: str) -> re.Pattern[str]:
    return re.compile("|".join((PLACEHOLDER.pattern, *patterns)), re.DOTALL)


_TOKENS = {
    "(": _tokens(r"\\.", r"\$?'", '"', r"[()\n]", _COMMENT, "<<<", _HERE_DOCUMENT),
    "'": _tokens("'"),
    "$'": _tokens(r"\\.", "'"),
    '"': _tokens(r"\\.", '"', r"\$\("),
}
"""Ends and beginnings within an open quote or parenthesis; the script itself counts as a parenthesis."""


def with_values(script: str, texts: Mapping[str, str]) -> str:
    """Return the script with each `{name}` replaced that has a text; comments stay as they are."""
    parts: list[str] = []
    inside, documents, at = ["("], list[re.Match[str]](), 0
    while found := _TOKENS[inside[-1]].search(script, at):
        token, within = found[0], inside[-1]
        parts += script[at : found.start()], _replaced(found, texts, partial(_escaped, within=within))
        at = found.end()
        if within == "(" and found["end"]:
            documents.append(found)
        elif token == {"(": ")", "'": "'", "$'": "'", '"': '"'}[within]:
            inside = inside[:-1] or inside
        elif token in _OPENS:
            inside.append(_OPENS[token])
        elif token == "\n":
            for document in documents:
                # Where no line ends it, the document has no body.
                tabs = r"\t*" if document["tabs"] else ""
                last = re.compile(rf"^{tabs}{document['end']}$", re.MULTILINE).search(script, at)
                end = at if last is None else last.start()
                parts.append(_filled_document(script[at:end], texts, is_raw=document["raw"] is not None))
                at = end
            documents.clear()
    return "".join([*parts, script[at:]])


def _filled_document(body: str, texts: Mapping[str, str], *, is_raw: bool) -> str:
    escape = str if is_raw else partial(_escaped, within="<<")
    return PLACEHOLDER.sub(lambda found: _replaced(found, texts, escape), body)


def _escaped(text: str, within: str) -> str:
    """Return the text as bash reads it there: within these quotes, or in a word without any."""
    if within == "'":
        return text.replace("'", "'\"'\"'")
    return re.sub(_ESCAPED[within], r"\\\g<0>", text) if within in _ESCAPED else shlex.quote(text)


@dataclass(frozen=True, kw_only=True)
class ProgramImports:
    """Modules that a program imports, dotted, at any depth of its code."""

    needed: frozenset[str]
    optional: frozenset[str]
    """Modules that it does without: each import of them is in a `try` that expects ImportError."""
    is_relative: bool
    """It imports from its own package, by `from .name`: Python runs it with -m."""

    def uses(self, *modules: str) -> bool:
        """Return whether it imports one of the modules, or what is in them."""
        names = self.needed | self.optional
        return any(name == each or name.startswith(f"{each}.") for name in names for each in modules)


def parse_program(path: Path) -> ast.Module:
    """Parse a Python program, which Python itself decodes. Raises UsageError, whose text names no path."""
    try:
        if path.exists() and not path.is_file():
            raise UsageError("is not a file")
        with path.open("rb") as file:
            content = file.read(_MAX_PROGRAM_BYTES + 1)
    except (OSError, ValueError) as error:
        raise UsageError(str(getattr(error, "strerror", error))) from error
    if len(content) > _MAX_PROGRAM_BYTES:
        raise UsageError(f"is larger than {_MAX_PROGRAM_BYTES // 1000} kB, too large for a program")
    try:
        return ast.parse(content)
    except SyntaxError as error:
        raise UsageError(f"is not a Python program: {error.msg} (line {error.lineno or 1})") from None
    except (ValueError, LookupError, RecursionError, MemoryError) as error:
        raise UsageError(f"is not a Python program: {str(error) or 'it is nested too deeply'}") from None


def imports_of(tree: ast.Module) -> ProgramImports:
    """Return what a program imports."""
    found = list(_imports(tree))
    needed = frozenset(name for name, is_optional in found if not is_optional)
    return ProgramImports(
        needed=needed - {""}, optional=frozenset(name for name, _ in found) - needed, is_relative="" in needed
    )


def _imports(tree: ast.Module) -> Iterator[tuple[str, bool]]:
    """Yield each imported module, empty for its own package, and whether the program does without it."""
    waiting: list[tuple[ast.AST, bool]] = [(tree, False)]
    while waiting:
        node, is_optional = waiting.pop()
        if isinstance(node, ast.Import):
            yield from ((alias.name, is_optional) for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.level:
            yield "", False
        elif isinstance(node, ast.ImportFrom) and node.module:
            # `from torch import distributed` imports torch.distributed.
            names = (node.module, *(f"{node.module}.{alias.name}" for alias in node.names))
            yield from ((name, is_optional) for name in names)
        tried = (
            node.body if isinstance(node, ast.Try) and any(map(_expects_import_error, node.handlers)) else ()
        )
        waiting += [(child, is_optional or child in tried) for child in ast.iter_child_nodes(node)]


def _expects_import_error(handler: ast.ExceptHandler) -> bool:
    if handler.type is None:
        return True
    kinds = handler.type.elts if isinstance(handler.type, ast.Tuple) else [handler.type]
    return any(isinstance(kind, ast.Name) and kind.id in _IMPORT_ERRORS for kind in kinds)
