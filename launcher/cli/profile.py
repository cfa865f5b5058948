"""`vastrun profile`: record a trace of a running training."""

from __future__ import annotations

import secrets

import click

from vastrun.contract.profiling import MAX_STEPS, ProfileRequest
from vastrun.launcher.app_context import AppContext
from vastrun.launcher.cli.options import json_option, run_argument, seconds, the_run
from vastrun.launcher.cli.output import say, show
from vastrun.launcher.commands.profile import profile
from vastrun.launcher.run_services import services_for
from vastrun.launcher.ui.documents.document import Document

VIEWER = "https://ui.perfetto.dev"


class ProfileDocument(Document):
    """The trace of some steps of a training."""

    run: str
    step: int
    """First recorded step, counted from 0."""
    steps: int
    trace: str
    """Path of the Chrome trace on this computer."""
    operations: str
    """Path of the table of its operations."""


@click.command("profile")
@run_argument
@click.option(
    "--steps",
    type=click.IntRange(1, MAX_STEPS),
    default=5,
    show_default=True,
    help="Number of steps to record.",
)
@click.option(
    "--timeout",
    type=seconds,
    default="10m",
    show_default=True,
    metavar="TIME",
    help="Give up after this time (90s, 10m, 2h).",
)
@json_option
@click.pass_obj
def command(app: AppContext, run_name: str, steps: int, timeout: float, as_json: bool) -> None:
    """Record the next steps of RUN with torch.profiler, and download the trace; the training continues."""
    run = the_run(app, run_name)
    if run.leader:  # rank 0 trains on node 0
        run = app.ledger().get(run.leader)
    say(f"requesting a profile of the next {steps} steps of {run.id}", err=True)
    request = ProfileRequest(id=secrets.token_hex(8), steps=steps)
    found = profile(run, services_for(app, run.provider, run.created_at), request, timeout_s=timeout)
    trace, operations = str(found.trace), str(found.operations)
    document = ProfileDocument(run=run.id, step=found.step, steps=steps, trace=trace, operations=operations)
    text = f"trace: {trace} (open it at {VIEWER})\noperations: {operations}"
    show(document, text, as_json=as_json)
