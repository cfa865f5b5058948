"""Shell: a `command:` that is one string is a script, as `run:` of GitHub Actions is."""

from __future__ import annotations

import re
import shlex

from vastrun.contract.resume_command import PLACEHOLDER

BASH = ("bash", "--noprofile", "--norc", "-eo", "pipefail", "-c")
_ON_STOP = "trap 'exit 143' TERM; "
"""Prefix of a script that ends it on SIGTERM, after its current command was stopped."""
_QUOTED = re.compile(r"'[^']*'|\"[^\"$`\\]*\"")
_FOR_A_SHELL = re.compile(r"[\n;&|<>$`*?~#(){}!\\\[\]]|^\w+=")


def program_of(script: str) -> tuple[str, ...]:
    """Split a simple command into its words; give any other script to bash.

    Raises ValueError when a quote is never closed.
    """
    script = script.strip()
    if _FOR_A_SHELL.search(_QUOTED.sub("q", PLACEHOLDER.sub("r", script))):
        return (*BASH, _ON_STOP + script)
    return tuple(shlex.split(script))


def script_of(program: tuple[str, ...]) -> str | None:
    """Return the script that bash was given; None for a program without one."""
    if program[:-1] == BASH and program[-1].startswith(_ON_STOP):
        return program[-1].removeprefix(_ON_STOP)
    return None
