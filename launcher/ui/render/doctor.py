"""The doctor's findings in text and for programs."""

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
    """Show a finding on a line, with what to do on another."""
    line = f"{finding.health:<{_HEALTH}}  {finding.name:<{_NAME}}  {finding.text}"
    fix = f"\n{'':<{_HEALTH}}  {'':<{_NAME}}  try: {finding.fix}" if finding.fix else ""
    return line + fix
