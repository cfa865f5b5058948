"""`vastrun why`: explain how a run or a batch ended."""

from __future__ import annotations

import click

from vastrun.launcher.app_context import AppContext
from vastrun.launcher.batch.results import states_in
from vastrun.launcher.cli.options import json_option, run_argument, the_run
from vastrun.launcher.cli.output import show, width
from vastrun.launcher.commands.queries import explain
from vastrun.launcher.core.errors import NoSuchRunError
from vastrun.launcher.ui.documents.runs import ExplanationDocument
from vastrun.launcher.ui.render.why import BatchExplanation, batch_why_text, explanation_text


@click.command("why")
@run_argument
@json_option
@click.pass_obj
def command(app: AppContext, run_name: str, as_json: bool) -> None:
    """Explain why RUN ended: cause, proofs, first failing rank, stacks of a hang, what to try next.

    For the name of a batch, show the causes of its failed points, with a run for each.
    """
    ledger = app.ledger()
    try:
        run = the_run(app, run_name)
    except NoSuchRunError:
        if all(batch.name != run_name for batch in ledger.batches.all()):
            raise
        batch, states = ledger.batches.get(run_name), states_in(ledger, run_name)
        show(BatchExplanation.of(batch, states), batch_why_text(batch, states), as_json=as_json)
        return
    explanation = explain(ledger, run, app.now())
    show(ExplanationDocument.of(explanation), explanation_text(explanation, width()), as_json=as_json)
