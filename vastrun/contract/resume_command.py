"""Resume command: replaces `{resume}` and `{resume:--option}` in a command by the checkpoint's path.

Standard library only.
"""

from __future__ import annotations

import re
from pathlib import PurePath

RESUME = "VASTRUN_RESUME"
"""Environment variable with the path of the restored checkpoint; empty on a fresh start."""
PLACEHOLDER = re.compile(r"(?<!\$)\{resume(?::([^\s{}'\"]+))?\}")
"""Matches `{resume:--resume-from}`, but not `${resume}`, which the shell expands."""
_SHELLS = ("bash", "sh", "dash", "ash", "zsh", "ksh")


def with_resume(program: tuple[str, ...], path: str) -> tuple[str, ...]:
    """Return the command line with its placeholders replaced; `path` is empty on a fresh start.

    A word that is a placeholder alone disappears on a fresh start. A script for a shell reads the variable
    itself, which leaves the quoting to the shell.
    """
    if is_script(program):
        return (*program[:-1], PLACEHOLDER.sub(_for_a_shell, program[-1]))
    return tuple(part for word in program for part in _filled(word, path))


def is_script(program: tuple[str, ...]) -> bool:
    """Tell whether a shell runs the last word: `bash -c SCRIPT`."""
    if len(program) < 3 or PurePath(program[0]).name not in _SHELLS:
        return False
    flags = program[-2]
    return flags.startswith("-") and not flags.startswith("--") and flags.endswith("c")


def _for_a_shell(found: re.Match[str]) -> str:
    option = f"{found[1]} " if found[1] else ""
    return f'${{{RESUME}:+{option}"${RESUME}"}}'


def _filled(word: str, path: str) -> tuple[str, ...]:
    whole = PLACEHOLDER.fullmatch(word)
    if whole is None:
        return (PLACEHOLDER.sub(lambda found: _in_a_word(found, path), word),)
    if not path:
        return ()
    return (path,) if whole[1] is None else (whole[1], path)


def _in_a_word(found: re.Match[str], path: str) -> str:
    """Return the replacement within a longer word: `--from={resume}`."""
    return f"{found[1]} {path}" if found[1] and path else path
