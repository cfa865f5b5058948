"""`vastrun stop`: end a run before its time."""

from __future__ import annotations

import click

from launcher.cli.driving import drive_to_end
from launcher.cli.options import json_option, run_argument, the_run
from launcher.core import Event, Phase, Run, UserRequest
from launcher.core.bills import cost_usd
from launcher.core.errors import UsageError
from launcher.core.verdict import EXIT_TEARDOWN_NOT_CONFIRMED
from launcher.wiring import Wiring


@click.command("stop")
@run_argument
@click.option("--now", "at_once", is_flag=True, help="Destroy its machine now, without its outputs.")
@click.option("--reason", default="", help="Recorded in the run's events.")
@json_option
@click.pass_context
def command(ctx: click.Context, run_name: str, at_once: bool, reason: str, as_json: bool) -> None:
    """Stop RUN: save a checkpoint, download the outputs, destroy the machine.

    Tells the launcher that drives the run, and waits; drives the run to its end when none does.
    """
    wiring: Wiring = ctx.obj
    run = the_run(wiring, run_name)
    if run.phase is Phase.ENDED:
        raise UsageError(f"{run.id} has ended already", hint=f"vastrun why {run.id}")
    _ask(wiring, run, UserRequest.DESTROY if at_once else UserRequest.STOP, reason)
    code = drive_to_end(
        wiring,
        lambda attempts: attempts.attend(run),
        began=run.created_at,
        as_json=as_json,
        first=UserRequest.DETACH,
    )
    ctx.exit(code if code == EXIT_TEARDOWN_NOT_CONFIRMED else 0)


def _ask(wiring: Wiring, run: Run, request: UserRequest, reason: str) -> None:
    now, ledger = wiring.now(), wiring.ledger()
    what = "its immediate destruction" if request is UserRequest.DESTROY else "a stop"
    text = f"the user asked for {what}" + (f": {reason}" if reason else "")
    ledger.tell(Event(run_id=run.id, at=now, phase=run.phase, text=text, usd=cost_usd(run, now)))
    ledger.ask(run.id, request)
