"""`vastrun hold`: keep a machine on which further runs start without booting."""

from __future__ import annotations

from pathlib import Path

import click

from vastrun.launcher.api.jobs import check_upload
from vastrun.launcher.app import App
from vastrun.launcher.cli.job_files import read_job_file, resolve_auto
from vastrun.launcher.cli.launch import drive_to_end
from vastrun.launcher.cli.options import (
    confirm,
    job_argument,
    json_option,
    provider_option,
    seconds,
    set_option,
    yes_option,
)
from vastrun.launcher.cli.output import note, say, set_error_run
from vastrun.launcher.commands.attempts import Attempts
from vastrun.launcher.commands.plan import plan_of
from vastrun.launcher.core import NOTHING, Run, UserRequest
from vastrun.launcher.core.errors import NoOfferError
from vastrun.launcher.core.job import JobSpec
from vastrun.launcher.decisions.advice import resources_of_slots
from vastrun.launcher.decisions.estimates import offer_text
from vastrun.launcher.pool.held_machines import hold_spec


@click.command("hold")
@job_argument
@set_option
@provider_option
@click.option(
    "--slots", type=click.IntRange(1, 64), default=1, show_default=True, help="Number of concurrent runs."
)
@click.option(
    "--idle",
    type=seconds,
    default="10m",
    show_default=True,
    metavar="TIME",
    help="Release the machine after this idle time.",
)
@click.option("--out", metavar="DIR", type=click.Path(path_type=Path), help="Folder for its log [runs/RUN].")
@click.option("-d", "--detach", is_flag=True, help="Detach once the machine is held.")
@yes_option
@json_option
@click.pass_context
def command(
    ctx: click.Context,
    job_file: Path,
    sets: tuple[str, ...],
    provider: str,
    slots: int,
    idle: float,
    out: Path | None,
    detach: bool,
    yes: bool,
    as_json: bool,
) -> None:
    """Keep a machine on which runs of this job start without booting.

    Start them with: vastrun launch JOB.yaml --provider pool. The machine is released when the job's
    limits.hours or limits.usd is reached, when it has been idle for --idle, or by vastrun stop.
    """
    app: App = ctx.obj
    began = app.now()
    say(f"reading {job_file}", err=True)
    job = read_job_file(job_file, sets)
    check_upload(app.packer(NOTHING), job, job_file.resolve().parent, note)
    job = resolve_auto(app, job, app.provider(provider))
    spec = hold_spec(job, slots=slots, hours=job.limits.hours, usd=job.limits.usd, idle_s=idle)
    _agree(app, spec, provider, slots, began, yes=yes)
    run_id = app.new_id()
    folder = str((out or Path("runs") / run_id).resolve())

    def work(attempts: Attempts) -> Run:
        run = attempts.start(spec, provider=provider, run_id=run_id, out_dir=folder)
        set_error_run(run)
        concurrency = "" if slots == 1 else f", up to {slots} at once"
        say(
            f"run {run.id} holds a machine; then: vastrun launch {job_file} --provider pool{concurrency}",
            err=True,
        )
        return attempts.drive_or_follow(run)

    user_request = UserRequest.DETACH_ONCE_TRAINING if detach else UserRequest.NONE
    ctx.exit(drive_to_end(app, work, began=began, as_json=as_json, request=user_request))


def _agree(app: App, spec: JobSpec, provider: str, slots: int, began: float, *, yes: bool) -> None:
    """Ask before money is spent. Raises the first refusal of the plan, or Abort."""
    market = app.provider(provider)
    try:
        plan = plan_of(spec, market, app.ledger(), began, app.budgets(began))
    except NoOfferError as error:
        if slots > 1:
            needs = resources_of_slots(spec)
            error.hint = f"one machine must have the resources of {slots} slots, {needs}: fewer --slots"
        raise
    if plan.refusals:
        raise plan.refusals[0]
    if not market.free:
        confirm(f"rent {offer_text(plan.spec, plan.offers[0])}", yes=yes)
