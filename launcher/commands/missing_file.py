"""A file that a program missed on its machine, and that is on this computer: why it was not uploaded."""

from __future__ import annotations

import re
from pathlib import PurePosixPath

from vastrun.contract import layout
from vastrun.launcher.config import read_job
from vastrun.launcher.core import Cause, Run

_MISSING = re.compile(
    r"No such file or directory: '([^'\0]{1,300})'|No such file or directory: \"([^\"\0]{1,300})\""
)


def missing_file(run: Run) -> str:
    """Say which file was not shipped and why: "conf/local.yaml is ignored by git, so it was not uploaded".

    Empty where the run failed for another reason. Its machine words the detail: the path is only looked for
    within the code folder.
    """
    found = _MISSING.search(run.detail) if run.cause is Cause.USER_ERROR else None
    if found is None:
        return ""
    code = read_job(run.spec_json).code
    from vastrun.launcher.bundle.checkout import why_not_shipped  # slow to import: all that packs

    path = _in_code(PurePosixPath(found[1] or found[2]))
    why = None if code is None else why_not_shipped(path, code.path, code.exclude, code.include)
    return f"{path} is {why}, so it was not uploaded" if why else ""


def _in_code(path: PurePosixPath) -> str:
    """Return the path from the code folder, of a path on the machine."""
    folder = f"/{layout.CODE}/"
    return str(path).partition(folder)[2] if path.is_absolute() and folder in str(path) else str(path)
