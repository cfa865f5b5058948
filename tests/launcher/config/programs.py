"""Programs as texts, and what `vastrun init` reports of them."""

from __future__ import annotations

import ast
import textwrap

from vastrun.launcher.config.program_report import ProgramReport, report_of


def report(*texts: str) -> ProgramReport:
    """Return the report of a program and its modules."""
    names = ["train.py", *(f"module{n}.py" for n in range(1, len(texts)))]
    return report_of(
        {name: ast.parse(textwrap.dedent(text)) for name, text in zip(names, texts, strict=True)}
    )


def checkpoint(found: ProgramReport) -> str | None:
    return found.written.checkpoint.pattern if found.written.checkpoint else None
