"""Sweep values: check that the program of a batch uses the values that vary, before money is spent."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from pathlib import Path

from vastrun.launcher.bundle.checkout import worktree
from vastrun.launcher.config.parameters import is_read_in, variable_of
from vastrun.launcher.core.errors import JobValueError
from vastrun.launcher.core.job import JobSpec

_MAX_FILE_BYTES = 1 << 20
"""Maximum size of a searched file; larger ones are data or generated code."""
_MAX_TOTAL_BYTES = 64 << 20


def check_values_used(spec: JobSpec, names: Collection[str]) -> None:
    """Search the code for the variables of these values, which the command and `env:` do not mention.

    Raises JobValueError for values that the code does not read either: all points would do the same.
    """
    unused = set(names)
    for text in _code_of(spec) if unused else ():
        unused = {name for name in unused if not is_read_in(text, name)}
        if not unused:
            break
    if unused:
        first, all_of_them = min(unused), ", ".join(sorted(unused))
        raise JobValueError(
            f"the batch varies {all_of_them}, which neither the command, `env:` nor the code of the job uses",
            hint=f"write {{{first}}} in command:, or read {variable_of(first)} in the program",
        )


def _code_of(spec: JobSpec) -> Iterator[str]:
    """Yield the text of each file to upload, up to a limit."""
    if spec.code is None:
        return
    tree, left = worktree(spec.code.path, spec.code.exclude), _MAX_TOTAL_BYTES
    for path in tree.paths:
        content = _start_of(tree.root / path)
        left -= len(content)
        if left < 0:
            return
        yield content.decode("latin-1")


def _start_of(path: Path) -> bytes:
    """Return a file's content; empty if it is too large or cannot be read."""
    try:
        if not path.is_file() or path.stat().st_size > _MAX_FILE_BYTES:
            return b""
        return path.read_bytes()
    except OSError:
        return b""
