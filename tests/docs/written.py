"""What of the pages is written from the code: rows of the tables of keys, and the advice for each cause."""

import re
from collections.abc import Callable, Mapping
from dataclasses import MISSING, is_dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

from tests.docs.markdown import DOCS
from vastrun.launcher.config.program_kinds import any_job_type
from vastrun.launcher.config.schema import Option, options
from vastrun.launcher.core import Cause
from vastrun.launcher.core.batch import BatchSpec
from vastrun.launcher.core.verdict import EXIT_CODE_OF, VERDICT_OF
from vastrun.launcher.decisions.advice import ADVICE

_ROW = re.compile(r"^\| `(?P<key>.+?)` \|.*\| (?P<meaning>.+?) \|$", re.MULTILINE)
_SECTION = re.compile(r"^## `(?P<cause>\w+)`\n\n(?:```text\n(?:.*\n)*?```\n\n)?", re.MULTILINE)


def with_rows(text: str, kind: Any) -> str:
    """Return the page with what each key expects and its default as the types say; its meaning stays."""
    known = {option.key: option for option in options(kind)}

    def row(found: re.Match[str]) -> str:
        option = known.get(found["key"])
        return found.group() if option is None else _row(option, found["meaning"])

    return _ROW.sub(row, text)


def _row(option: Option, meaning: str) -> str:
    return f"| `{option.key}` | {option.expected} | {shown(option.default)} | {meaning} |"


def shown(default: Any) -> str:
    """Return a default as the pages write it."""
    if default is MISSING:
        return "-"
    if default in (None, (), {}):
        return "none"
    if is_dataclass(default):
        return "the defaults below"
    if isinstance(default, tuple) and is_dataclass(default[0]):
        return shown(default[0])
    if isinstance(default, tuple):
        return f"[{', '.join(map(shown, default))}]"
    if isinstance(default, bool):
        return str(default).lower()
    return f"{default:g}" if isinstance(default, float) else str(default)


def with_advice(text: str) -> str:
    """Return the page with verdict, exit code and advice below the heading of each cause."""
    return _SECTION.sub(lambda found: _section(Cause(found["cause"])), text)


def _section(cause: Cause) -> str:
    verdict = VERDICT_OF[cause]
    advice = ADVICE[cause].format(
        run="RUN",
        again="vastrun launch --from RUN",
        edited="vastrun launch JOB.yaml --from RUN",
        where="",
        job_file=" JOB.yaml",
        resume="continue it",
    )
    return f"## `{cause}`\n\n```text\n{verdict}, exit code {EXIT_CODE_OF[verdict]}\ntry   {advice}\n```\n\n"


WRITTEN: Mapping[str, Callable[[str], str]] = {
    "job-file.md": lambda text: with_rows(text, any_job_type()),
    "batch.md": lambda text: with_rows(text, BatchSpec),
    "troubleshooting.md": with_advice,
    "evaluation.md": lambda text: import_module("benchmarks.equal_time").written(text),  # needs torch
}
"""By the path below `docs/`: what makes of a page the page as it should be."""


def write(folder: Path = DOCS) -> None:
    """Write the pages as they should be."""
    for name, complete in WRITTEN.items():
        page = folder / name
        page.write_text(complete(page.read_text(encoding="utf-8")), encoding="utf-8")
