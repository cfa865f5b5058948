"""`vastrun attach`, `wait`, `stop`, `resume`: drive or follow a run that was started before."""

from __future__ import annotations

from pathlib import Path

import click

from vastrun.launcher.api.runs import request_end
from vastrun.launcher.app import App
from vastrun.launcher.cli.background import hand_over_run
from vastrun.launcher.cli.job_files import note_changed_code
from vastrun.launcher.cli.launch import drive_to_end, show_end
from vastrun.launcher.cli.options import PATH, json_option, plain_option, run_argument, seconds, the_run
from vastrun.launcher.cli.output import exit_with, note
from vastrun.launcher.core import Phase, Run, UserRequest
from vastrun.launcher.core.verdict import EXIT_TEARDOWN_NOT_CONFIRMED
from vastrun.launcher.ui.interrupts import Interrupts, answer_text


@click.command("attach")
@run_argument
@plain_option
@json_option
@click.pass_obj
def attach_command(app: App, run_name: str, as_json: bool) -> None:
    """Follow RUN to its end, and drive it if no launcher does. Ctrl-C asks to stop, detach or continue."""
    run = the_run(app, run_name)
    if run.phase is not Phase.ENDED:
        note_changed_code(app, run.id, run.spec_json)
    exit_with(_drive_or_follow(app, app.interrupts(UserRequest.NONE, views=True), run, as_json=as_json))


def _drive_or_follow(app: App, interrupts: Interrupts, run: Run, *, as_json: bool) -> int:
    """Follow the run to its end, or drive it; return the exit code."""
    began = run.created_at
    return drive_to_end(app, interrupts, lambda a: a.drive_or_follow(run), began=began, as_json=as_json)


@click.command("wait")
@run_argument
@click.option(
    "--timeout",
    type=seconds,
    metavar="TIME",
    help="Give up after this time (90s, 10m, 2h), with exit code 124.",
)
@json_option
@click.pass_obj
def wait_command(app: App, run_name: str, timeout: float | None, as_json: bool) -> None:
    """Wait until RUN ends; its verdict is the exit code. Drives it if no launcher does. Ctrl-C detaches."""
    run = the_run(app, run_name)
    until = None if timeout is None else app.now() + timeout
    interrupts = app.interrupts(UserRequest.DETACH, until=until, views=True)
    exit_with(_drive_or_follow(app, interrupts, run, as_json=as_json))


@click.command("stop")
@run_argument
@click.option(
    "--now", "at_once", is_flag=True, help="Destroy its machine now, without downloading the outputs."
)
@click.option("--reason", default="", help="Reason to record in the run's events.")
@json_option
@click.pass_obj
def stop_command(app: App, run_name: str, at_once: bool, reason: str, as_json: bool) -> None:
    """Stop RUN: save a checkpoint, download the outputs, destroy the machine.

    Asks the launcher of the run to do so, and waits; without one, this command does so.
    """
    run = the_run(app, run_name)
    request_end(app.ledger(), run, app.now(), at_once=at_once, reason=reason)
    note(answer_text(UserRequest.DESTROY if at_once else UserRequest.STOP, run.phase))
    interrupts = app.interrupts(UserRequest.DETACH, views=True)
    code = _drive_or_follow(app, interrupts, run, as_json=as_json)
    exit_with(code if code == EXIT_TEARDOWN_NOT_CONFIRMED else 0)


@click.command("resume")
@run_argument
@click.option("--out", metavar="DIR", type=PATH, help="Download its outputs into another folder.")
@click.option("-d", "--detach", is_flag=True, help="Detach at once; a background driver continues.")
@plain_option
@json_option
@click.pass_obj
def resume_command(app: App, run_name: str, out: Path | None, detach: bool, as_json: bool) -> None:
    """Continue RUN after its launcher was killed or detached, also between two attempts.

    Fails while another launcher drives it.
    """
    run = the_run(app, run_name)
    note_changed_code(app, run.id, run.spec_json)
    if detach:
        if out is not None:
            raise click.UsageError("--out and --detach exclude each other")
        if notice := hand_over_run(app, run):
            show_end(app, run, as_json=as_json)
            note(f"\n{notice}")
            return
    folder, began = None if out is None else str(out.resolve()), run.created_at
    interrupts = app.interrupts(UserRequest.NONE)
    exit_with(drive_to_end(app, interrupts, lambda a: a.resume(run, folder), began=began, as_json=as_json))
