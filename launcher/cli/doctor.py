"""`vastrun doctor`: is everything ready for a launch?"""

from __future__ import annotations

import click

from launcher.cli.options import json_option, provider_anyway_option
from launcher.cli.output import say
from launcher.commands.doctor import Health, Patient, examine
from launcher.providers import provider_class
from launcher.ui.render.doctor import finding_text, findings_document
from launcher.ui.render.documents import to_text
from launcher.wiring import Wiring


@click.command("doctor")
@provider_anyway_option
@json_option
@click.pass_context
def command(ctx: click.Context, provider: str, as_json: bool) -> None:
    """Examine this computer and every provider: ok, warn or fail, and what to do. Changes nothing.

    A provider that is not set up, and is not the chosen one, is a warning. Exit code 0 when nothing fails.
    """
    wiring: Wiring = ctx.obj
    provider_class(provider)  # an unknown one is a mistake in typing, not a finding
    patient = Patient(
        state=wiring.state,
        python=wiring.python,
        ledger=wiring.ledger,
        provider=wiring.provider,
        chosen=provider,
        now=wiring.now,
    )
    findings = []
    for finding in examine(patient):
        findings.append(finding)
        if not as_json:
            say(finding_text(finding))
    if as_json:
        say(to_text(findings_document(findings)))
    if any(finding.health is Health.FAIL for finding in findings):
        ctx.exit(1)
