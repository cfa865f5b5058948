"""`vastrun plan`: what a job could run on, and what it may cost."""

from __future__ import annotations

from pathlib import Path

import click

from launcher.actions.queries import plan_of
from launcher.cli.options import (
    job_argument,
    json_option,
    name_option,
    provider_option,
    read_job_file,
    set_option,
    show,
)
from launcher.render.documents import plan_document
from launcher.render.plan import plan_text
from launcher.wiring import Wiring


@click.command("plan")
@job_argument
@set_option
@name_option
@provider_option
@json_option
@click.pass_obj
def command(
    wiring: Wiring, job_file: Path, sets: tuple[str, ...], name: str | None, provider: str, as_json: bool
) -> None:
    """Show the offers for a job, best first, and what it may cost at most. Costs nothing."""
    plan = plan_of(
        read_job_file(job_file, sets, name), wiring.provider(provider), wiring.ledger(), wiring.now()
    )
    show(plan_document(plan), plan_text(plan), as_json=as_json)
