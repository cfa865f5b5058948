"""Prints what pyproject.toml asks for: `python tests/bounds.py lowest launcher tpe`, or `newest`.

lowest: each package in the oldest version that is allowed. torch is left out: `make torch` tries it.
"""

import re
import sys
import tomllib
from collections.abc import Iterator, Sequence
from pathlib import Path

_PROJECT = Path(__file__).parent.parent / "pyproject.toml"


def bounds(which: str, groups: Sequence[str]) -> Iterator[str]:
    """Yield one requirement for each package of these extras, such as `click==8.2` for `click>=8.2,<9`.

    `launcher` is no extra, but what the launcher itself needs.
    """
    project = tomllib.loads(_PROJECT.read_text())["project"]
    needed = {**project["optional-dependencies"], "launcher": project["dependencies"]}
    for line in (line for group in groups for line in needed[group]):
        if not line.startswith("torch>"):
            yield re.sub(r">=([^,;]+)[^;]*", r"==\1", line) if which == "lowest" else line


if __name__ == "__main__":
    print(*bounds(sys.argv[1], sys.argv[2:]), sep="\n")
