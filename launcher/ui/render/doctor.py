"""The doctor's findings in text and for programs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict

from launcher.commands.doctor import Finding, Health
from launcher.ui.render.documents import Document

_NAME, _HEALTH = 16, 4


def finding_text(finding: Finding) -> str:
    """Show a finding on a line, with what to do on another."""
    line = f"{finding.health:<{_HEALTH}}  {finding.name:<{_NAME}}  {finding.text}"
    fix = f"\n{'':<{_HEALTH}}  {'':<{_NAME}}  try: {finding.fix}" if finding.fix else ""
    return line + fix


def findings_document(findings: Sequence[Finding]) -> Document:
    """Describe the findings for `doctor --json`."""
    healthy = all(finding.health is not Health.FAIL for finding in findings)
    return {"healthy": healthy, "findings": [asdict(finding) for finding in findings]}
