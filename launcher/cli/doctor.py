"""`vastrun doctor`: check that launches will work."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import click

from vastrun.launcher.app import App
from vastrun.launcher.cli.options import json_option, lenient_provider_option
from vastrun.launcher.cli.output import exit_with, say
from vastrun.launcher.commands.doctor import CheckedSetup, Finding, Health, examine
from vastrun.launcher.providers import provider_class
from vastrun.launcher.ui.document import Document, to_text

_NAME, _HEALTH = 16, 4


@click.command("doctor")
@lenient_provider_option
@json_option
@click.pass_obj
def command(app: App, provider: str, as_json: bool) -> None:
    """Check this computer and every provider: ok, warn or fail, with advice. Changes nothing.

    A provider that is not set up is a warning, unless it is the chosen one. Exit code 0 if nothing fails.
    With a key for Vast, its search is checked too, free of charge.
    """
    provider_class(provider)  # an unknown name is a usage error, not a finding
    findings = []
    for finding in findings_of(app, provider):
        findings.append(finding)
        if not as_json:
            line = f"{finding.health:<{_HEALTH}}  {finding.name:<{_NAME}}  {finding.text}"
            fix = f"\n{'':<{_HEALTH}}  {'':<{_NAME}}  try: {finding.fix}" if finding.fix else ""
            say(line + fix)
    healthy = all(finding.health is not Health.FAIL for finding in findings)
    if as_json:
        say(to_text(Findings(healthy=healthy, findings=findings)))
    exit_with(int(not healthy))


def findings_of(app: App, provider: str) -> Iterator[Finding]:
    """Yield the findings about this computer and its providers, of which this one must work."""
    return examine(
        CheckedSetup(
            state=app.state,
            python=app.python,
            ledger=app.ledger,
            provider=app.provider,
            chosen=provider,
            now=app.now,
        )
    )


class Findings(Document):
    """Findings about this computer and its providers."""

    healthy: bool
    findings: Sequence[Finding]
