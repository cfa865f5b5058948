"""Findings of the doctor, as text and as a document."""

from __future__ import annotations

from collections.abc import Sequence

from vastrun.launcher.commands.doctor import Finding
from vastrun.launcher.ui.documents.document import Document

_NAME, _HEALTH = 16, 4


class Findings(Document):
    """Findings about this computer and its providers."""

    healthy: bool
    findings: Sequence[Finding]


def finding_text(finding: Finding) -> str:
    """Write a finding on one line, and its advice on another."""
    line = f"{finding.health:<{_HEALTH}}  {finding.name:<{_NAME}}  {finding.text}"
    fix = f"\n{'':<{_HEALTH}}  {'':<{_NAME}}  try: {finding.fix}" if finding.fix else ""
    return line + fix
