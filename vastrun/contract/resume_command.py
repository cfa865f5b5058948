"""Resume command: replaces `{resume}` and `{resume:--option}` in a command by the checkpoint's path.

Standard library only.
"""

from __future__ import annotations

import re

RESUME = "VASTRUN_RESUME"
"""Environment variable with the path of the restored checkpoint; empty on a fresh start."""
PLACEHOLDER = re.compile(r"(?<!\$)\{resume(?::([^\s{}'\"]+))?\}")
"""Matches `{resume:--resume-from}`, but not `${resume}`, which the shell expands."""
_NOT_PLAIN = re.compile(r"[^\w.,:+=@%^/-]|(?<![^/])-")
"""Characters that a shell may read as more than a part of a name: `$`, quotes, blanks, a dash in front."""
_OF_SCRIPTS = re.compile(r"[\s;&|<>()`$]")
"""Characters that no option has: a word with one of them may be a script, whatever program reads it."""


def plain_name(name: str) -> str:
    """Return the path with `_` for each character that a shell may read as more than a part of a name."""
    return _NOT_PLAIN.sub("_", name)


def with_resume(program: tuple[str, ...], path: str) -> tuple[str, ...]:
    """Return the command line with its placeholders replaced; `path` is empty on a fresh start.

    A word that is a placeholder alone disappears on a fresh start. In a script a plain path stands as text,
    which reads the same in every language and quote; any other path is left to the shell's variable.
    """
    return tuple(part for word in program for part in _filled(word, path))


def _filled(word: str, path: str) -> tuple[str, ...]:
    whole = PLACEHOLDER.fullmatch(word)
    if whole is None:
        is_expanded = plain_name(path) != path and _OF_SCRIPTS.search(PLACEHOLDER.sub("", word))

        def replacement(found: re.Match[str]) -> str:
            if is_expanded:
                return f'${{{RESUME}:+{_option(found)}"${RESUME}"}}'
            return f"{_option(found)}{path}" if path else ""

        return (PLACEHOLDER.sub(replacement, word),)
    if not path:
        return ()
    is_joined = whole[1] is None or whole[1].endswith("=")
    return (f"{_option(whole)}{path}",) if is_joined else (whole[1], path)


def _option(found: re.Match[str]) -> str:
    """Return the option with a blank after it; `{resume:--from=}` and `{resume:key=}` join without one."""
    return f"{found[1]}{'' if found[1].endswith('=') else ' '}" if found[1] else ""
