"""`vastrun launch`: one command from a job file to proven outputs."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import click

from vastrun.launcher.api.runs import begin
from vastrun.launcher.cli.driving import drive_to_end
from vastrun.launcher.cli.failures import concerns
from vastrun.launcher.cli.job_files import job_of, must_ship, read_job_file, warn, with_tags, without_auto
from vastrun.launcher.cli.options import (
    by_option,
    confirm,
    json_option,
    maybe_job_argument,
    plain_option,
    provider_option,
    set_option,
    tag_option,
    yes_option,
)
from vastrun.launcher.cli.output import say, show, width
from vastrun.launcher.commands.attempts import Attempts
from vastrun.launcher.commands.plan import LaunchPlan, plan_of
from vastrun.launcher.core import Run, UserRequest
from vastrun.launcher.core.job import JobSpec
from vastrun.launcher.decisions.estimates import offer_text
from vastrun.launcher.ledger.run_ids import find_run
from vastrun.launcher.ui.documents.market import ShownPlan
from vastrun.launcher.ui.render.plan import plan_text
from vastrun.launcher.wiring import Wiring


@click.command("launch")
@maybe_job_argument
@set_option
@by_option
@tag_option
@provider_option
@click.option("--out", metavar="DIR", type=click.Path(path_type=Path), help="For the outputs [runs/RUN].")
@click.option(
    "--from",
    "from_name",
    metavar="RUN",
    help="Continue from that run's checkpoint; JOB.yaml may be left out.",
)
@click.option("--from-url", metavar="URL", help="Continue from the checkpoints that were pushed there.")
@click.option(
    "-d", "--detach", is_flag=True, help="Return once it trains; a driver in the background continues."
)
@click.option("--dry-run", is_flag=True, help="Show what would be done and what it may cost. Costs nothing.")
@yes_option
@plain_option
@json_option
@click.pass_context
def command(
    ctx: click.Context,
    job_file: Path | None,
    sets: tuple[str, ...],
    by: str | None,
    tags: tuple[str, ...],
    provider: str,
    out: Path | None,
    from_name: str | None,
    from_url: str | None,
    detach: bool,
    dry_run: bool,
    yes: bool,
    as_json: bool,
) -> None:
    """Train the job: rent, ship, follow, collect, end the machine. The exit code is the verdict.

    Ctrl-C asks what to do: stop, detach or continue. Without a terminal, Ctrl-C stops the run.
    """
    wiring: Wiring = ctx.obj
    began = wiring.now()
    if from_url is not None:
        if from_name is not None:
            raise click.UsageError("--from and --from-url exclude each other")
        sets = (*sets, f"checkpoints.start_from={from_url}")
    ledger = wiring.ledger()  # knows which hosts to avoid; found unwritable now, not after one was chosen
    parent = find_run(ledger, from_name) if from_name else None
    spec = with_tags(_job(job_file, parent, sets, by), tags)
    must_ship(wiring, spec, job_file)
    market = wiring.provider(provider)
    spec = without_auto(wiring, spec, market, parent)
    plan = plan_of(spec, market, ledger, began, wiring.budgets(began), parent)
    warn(spec, market, plan.offers)
    if dry_run:
        show(ShownPlan.of(plan), plan_text(plan, width()), as_json=as_json)
        return
    asked_at = wiring.now()
    _must_be_agreed(plan, free=market.free, yes=yes)
    began += wiring.now() - asked_at  # the user's time to think is none of the run's
    work = _work(wiring, spec, provider=provider, out=out, parent=parent)
    request = UserRequest.DETACH_ONCE_TRAINING if detach else UserRequest.NONE
    ctx.exit(drive_to_end(wiring, work, began=began, as_json=as_json, request=request))


def _job(job_file: Path | None, parent: Run | None, sets: tuple[str, ...], by: str | None) -> JobSpec:
    """The job that is named, else that of the run that is continued."""
    if job_file is not None:
        say(f"reading {job_file}", err=True)
        return read_job_file(job_file, sets, by)
    if parent is None:
        raise click.MissingParameter(param_type="argument", param_hint="'JOB.yaml'")
    say(f"the job of {parent.id} again: {parent.job}", err=True)
    return job_of(parent, sets, by)


def _must_be_agreed(plan: LaunchPlan, *, free: bool, yes: bool) -> None:
    """Return when the budgets have room for the run, and the user agrees to what it may cost."""
    if plan.refusals:
        raise plan.refusals[0]
    if not free:
        in_time = f"; {plan.deadline}" if plan.deadline else ""
        confirm(f"rent {offer_text(plan.spec, plan.offers[0])}{in_time}", yes=yes)


def _work(
    wiring: Wiring, spec: JobSpec, *, provider: str, out: Path | None, parent: Run | None
) -> Callable[[Attempts], Run]:
    """Starts the run and stays with it."""
    run_id = wiring.new_id()

    def work(attempts: Attempts) -> Run:
        run = begin(attempts, spec, provider=provider, run_id=run_id, out=out, parent=parent)
        concerns(run)
        say(f"run {run.id}, outputs in {run.out_dir}", err=True)
        return attempts.attend(run)

    return work
