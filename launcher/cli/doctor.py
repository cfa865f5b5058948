"""`vastrun doctor`: check that launches will work, and that the live service behaves as assumed."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import click

from vastrun.launcher.app import App
from vastrun.launcher.cli.options import json_option, lenient_provider_option, set_option, yes_option
from vastrun.launcher.cli.output import say
from vastrun.launcher.commands.doctor import Finding
from vastrun.launcher.ui.document import Document

_NAME, _HEALTH = 16, 4


@click.command("doctor")
@lenient_provider_option
@click.option(
    "--rent", "rents", is_flag=True, help="Rent a machine on Vast, and check the assumptions about it."
)
@click.option(
    "--usd", type=click.FloatRange(0.01, 100), default=0.25, help="--rent: spend at most this amount [0.25]."
)
@set_option
@click.option(
    "--settle",
    "settle_file",
    metavar="FILE",
    type=click.Path(path_type=Path),
    help="Add the charges to FILE; available after 15 minutes.",
)
@yes_option
@json_option
@click.pass_context
def command(
    ctx: click.Context,
    provider: str,
    rents: bool,
    usd: float,
    sets: tuple[str, ...],
    settle_file: Path | None,
    yes: bool,
    as_json: bool,
) -> None:
    """Check this computer and every provider: ok, warn or fail, with advice. Changes nothing.

    A provider that is not set up is a warning, unless it is the chosen one. Exit code 0 if nothing fails.
    With a key for Vast, its search is checked too, free of charge.

    With --rent, a machine on Vast is rented for at most ten minutes and runs a job of 20 steps, and each
    assumption about Vast is compared with the observation. Exit code 0 if all agree, 12 if one
    deviates. --settle adds the bill.

    \b
      vastrun doctor --rent
      vastrun doctor --settle conformance-RUN.json
    """
    app: App = ctx.obj
    if rents and settle_file is not None:
        raise click.UsageError("--rent and --settle exclude each other")
    if settle_file is not None:
        from vastrun.launcher.cli.conformance import settle

        ctx.exit(settle(app, settle_file, as_json=as_json))
    if rents:
        from vastrun.launcher.cli.conformance import conformance_job, rent

        ctx.exit(rent(app, conformance_job(usd, sets, app.now()), yes=yes, as_json=as_json))
    ctx.exit(_examine(app, provider, as_json=as_json))


def _examine(app: App, provider: str, *, as_json: bool) -> int:
    """Show the findings; return 1 if one fails, else 0."""
    from vastrun.launcher.commands.doctor import CheckedSetup, Health, examine
    from vastrun.launcher.providers import provider_class
    from vastrun.launcher.ui.document import to_text

    provider_class(provider)  # an unknown name is a usage error, not a finding
    setup = CheckedSetup(
        state=app.state,
        python=app.python,
        ledger=app.ledger,
        provider=app.provider,
        chosen=provider,
        now=app.now,
    )
    findings = []
    for finding in examine(setup):
        findings.append(finding)
        if not as_json:
            line = f"{finding.health:<{_HEALTH}}  {finding.name:<{_NAME}}  {finding.text}"
            fix = f"\n{'':<{_HEALTH}}  {'':<{_NAME}}  try: {finding.fix}" if finding.fix else ""
            say(line + fix)
    healthy = all(finding.health is not Health.FAIL for finding in findings)
    if as_json:
        say(to_text(Findings(healthy=healthy, findings=findings)))
    return int(not healthy)


class Findings(Document):
    """Findings about this computer and its providers."""

    healthy: bool
    findings: Sequence[Finding]
