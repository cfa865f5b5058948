"""`vastrun why`: how a run ended, and the proofs."""

from __future__ import annotations

import click

from launcher.cli.options import json_option, run_argument, the_run
from launcher.cli.output import show, width
from launcher.commands.queries import explain
from launcher.ui.render.documents import explanation_document
from launcher.ui.render.why import explanation_text
from launcher.wiring import Wiring


@click.command("why")
@run_argument
@json_option
@click.pass_obj
def command(wiring: Wiring, run_name: str, as_json: bool) -> None:
    """Explain why RUN ended: cause, proofs, first failing rank, stacks of a hang, what to try next."""
    explanation = explain(wiring.ledger(), the_run(wiring, run_name), wiring.now())
    show(explanation_document(explanation), explanation_text(explanation, width()), as_json=as_json)
