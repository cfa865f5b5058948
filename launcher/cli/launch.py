"""`vastrun launch`: rent, train and download; follow the run to its end and show how it ended.

Signals become requests, the verdict becomes the exit code.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import click
from click.core import ParameterSource

from vastrun.launcher.api.jobs import check_upload
from vastrun.launcher.api.runs import start_run
from vastrun.launcher.app import App
from vastrun.launcher.cli import job_files, options
from vastrun.launcher.cli.background import hand_over_run
from vastrun.launcher.cli.output import note, set_error_run, show, width
from vastrun.launcher.commands.attempts import Attempts
from vastrun.launcher.commands.chains import lineage_of
from vastrun.launcher.commands.explanation import Explanation, explain
from vastrun.launcher.commands.plan import LaunchPlan, plan_of
from vastrun.launcher.commands.queries import RunRow, row_of
from vastrun.launcher.config import program_of, read_job
from vastrun.launcher.core import NOTHING, Phase, Run, UserRequest
from vastrun.launcher.core.job import JobSpec
from vastrun.launcher.core.verdict import EXIT_TIMED_OUT
from vastrun.launcher.decisions.estimates import offer_text
from vastrun.launcher.ledger.run_ids import find_run
from vastrun.launcher.run_services import attempts_for, settle_bills
from vastrun.launcher.ui.interrupts import Interrupts
from vastrun.launcher.ui.render.amounts import duration, facts, moment, usd, usd_sum
from vastrun.launcher.ui.render.plan import PlanDocument, plan_text, upload_text
from vastrun.launcher.ui.render.runs import RunEndDocument
from vastrun.launcher.ui.render.verdict import cost_text, on_machines, proof_lines, stage_lines, verdict_line


def drive_to_end(
    app: App, interrupts: Interrupts, work: Callable[[Attempts], Run], *, began: float, as_json: bool
) -> int:
    """Do `work` while signals become requests, show how the run ended, and return its exit code.

    Earlier runs are settled too, because their provider has just been reached. A run that its user detached
    continues in the background.
    """
    with interrupts.listening(), attempts_for(app, interrupts, began=began) as attempts:
        run = work(attempts)
        if run.phase is Phase.ENDED:
            settle_bills(app, run.provider)
    set_error_run(run)
    is_detached = interrupts.current() in (UserRequest.DETACH, UserRequest.DETACH_ONCE_TRAINING)
    is_detached = is_detached and run.phase is not Phase.ENDED
    notice = hand_over_run(app, run) if is_detached else ""
    show_end(app, run, as_json=as_json)
    if notice:
        note(f"\n{notice}")
    if is_detached:
        return EXIT_TIMED_OUT if interrupts.timed_out else 0
    return run.exit_code(interrupted=interrupts.interrupted)


def show_end(app: App, run: Run, *, as_json: bool) -> None:
    """Print the summary of an ended run, or the state of a run that continues without this launcher."""
    now, ledger = app.now(), app.ledger()
    found, attempts = explain(ledger, run, now), [row_of(ledger, one, now) for one in lineage_of(ledger, run)]
    show(RunEndDocument.of(found, attempts), summary(found, attempts, now), as_json=as_json)


@click.command("launch")
@options.maybe_job_argument
@options.set_option
@options.by_option
@options.tag_option
@options.provider_option
@click.option("--out", metavar="DIR", type=options.PATH, help="Folder for the outputs [runs/RUN].")
@click.option(
    "--from", "from_name", metavar="RUN", help="Continue from this run's checkpoint; JOB.yaml may be omitted."
)
@click.option("--from-url", metavar="URL", help="Continue from the checkpoints pushed to this URL.")
@click.option("--again", metavar="RUN", help="Repeat this run: the same code, values and image.")
@click.option("-d", "--detach", is_flag=True, help="Detach at once; a background driver continues.")
@click.option("--dry-run", is_flag=True, help="Show the plan and its costs; rent nothing.")
@options.yes_option
@options.plain_option
@options.json_option
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
    again: str | None,
    detach: bool,
    dry_run: bool,
    yes: bool,
    as_json: bool,
) -> None:
    """Train the job: rent a machine, upload, follow, download, destroy. The exit code is the verdict.

    Ctrl-C asks whether to stop, detach or continue. Without a terminal, Ctrl-C stops the run.
    """
    app: App = ctx.obj
    began = app.now()
    if from_url is not None:
        if from_name is not None:
            raise click.UsageError("--from and --from-url exclude each other")
        sets = (*sets, f"checkpoints.start_from={from_url}")
    ledger = app.ledger()  # opened first: an unwritable ledger must fail before an offer is chosen
    if again is not None:
        if job_file or from_name or sets or by:
            raise click.UsageError(
                "--again repeats a run as it was: without a job file, --set, --by and --from"
            )
        former = job_files.first_attempt_of(app.driver_ledger().get(find_run(ledger, again).id))
        parent = None if former.parent is None else app.driver_ledger().get(former.parent)
        spec = job_files.with_tags(_repeated(former), tags)
        if ctx.get_parameter_source("provider") is ParameterSource.DEFAULT:
            provider = former.provider
    else:
        parent = app.driver_ledger().get(find_run(ledger, from_name).id) if from_name else None
        spec = job_files.with_tags(_job(job_file, parent, sets, by), tags)
        spec = check_upload(app.packer(NOTHING), spec, job_file and job_file.resolve().parent, note)
    market = app.provider(provider)
    spec = job_files.resolve_auto(app, spec)
    if program_of(spec).own_model:
        from vastrun.launcher.commands.estimate import try_model

        try_model(app.estimator(), spec, free=market.free, note=note)
    plan = plan_of(spec, market, ledger, began, app.budgets(began), parent)
    job_files.print_warnings(spec, market, plan.offers)
    if dry_run:
        show(PlanDocument.of(plan), plan_text(plan, width()), as_json=as_json)
        return
    note((text := upload_text(plan)) and f"data: {text}")
    asked_at = app.now()
    agree(plan, free=market.free, yes=yes)
    began += app.now() - asked_at  # the user's thinking time does not count as run time

    def work(attempts: Attempts) -> Run:
        run = start_run(attempts, spec, provider=provider, run_id=app.new_id(), out=out, parent=parent)
        set_error_run(run)
        note(f"run {run.id}, outputs in {run.out_dir}")
        return attempts.drive_or_follow(run)

    request = UserRequest.DETACH if detach else UserRequest.NONE
    interrupts = app.interrupts(UserRequest.NONE, request=request)
    ctx.exit(drive_to_end(app, interrupts, work, began=began, as_json=as_json))


def agree(plan: LaunchPlan, *, free: bool, yes: bool) -> None:
    """Ask before money is spent. Raises the first refusal of the plan, or exits."""
    if plan.refusals:
        raise plan.refusals[0]
    if not free:
        deadline = f"; {plan.deadline}" if plan.deadline else ""
        options.confirm(f"rent {offer_text(plan.spec, plan.offers[0])}{deadline}", yes=yes)


def _job(job_file: Path | None, parent: Run | None, sets: tuple[str, ...], by: str | None) -> JobSpec:
    """Return the named job, else the job of the run to continue from."""
    if job_file is not None:
        note(f"reading {job_file}")
        return job_files.read_job_file(job_file, sets, by)
    if parent is None:
        raise click.MissingParameter(param_type="argument", param_hint="'JOB.yaml'")
    note(f"using the job of {parent.id}: {parent.job}")
    return job_files.job_of(parent, sets, by)


def _repeated(run: Run) -> JobSpec:
    """Return the job of a run with its code, values and image, and say what may differ."""
    spec = read_job(run.spec_json)
    differs = ["the machine and its driver"]
    differs += ["what setup: installs"] if spec.setup else []
    differs += ["data without a sha256"] if any(file.sha256 is None for file in spec.data) else []
    differs += ["limits.deadline, which is left out"] if spec.limits.deadline else []
    differs += ["the code, which was not kept then"] if spec.code and spec.code_digest is None else []
    differs += ["the image, which is not known by its digest"] if run.image and "@" not in run.image else []
    note(f"repeating {run.id}: the job of {run.job}; may differ: {', '.join(differs)}")
    limits = replace(spec.limits, deadline=None)
    return replace(spec, image=run.image or spec.image, limits=limits, slot_on=None)


def summary(found: Explanation, attempts: Sequence[RunRow], now: float) -> str:
    """Write the summary at the end of `launch`."""
    row, ends_at = found.row, found.lease_ends_at
    run, cost = row.run, cost_text(row, f" at {usd(row.usd_per_hour)}/h{on_machines(row)}")
    scores = program_of(read_job(run.spec_json)).score_lines(found.scores)
    if len(attempts) > 1:
        cost += f"; {usd_sum(a.usd for a in attempts)} for all {len(attempts)} attempts"
    return facts(
        [
            ("run", f"{run.id} ({run.job})"),
            ("verdict" if run.phase is Phase.ENDED else "state", verdict_line(row)),
            ("proofs", proof_lines(run.proofs)),
            ("stages", stage_lines(found.stages, run)),
            ("score", "\n".join(part for line in scores for part in line.split("; "))),
            ("duration", duration((run.ended_at or now) - run.created_at)),
            ("cost", cost),
            ("lease", f"ends the machine at {moment(ends_at)}" if ends_at else ""),
            ("outputs", run.out_dir),
            ("report", f"vastrun report {run.id} --open" if run.phase is Phase.ENDED else ""),
            ("next", "" if run.cause is None and run.phase is Phase.ENDED else found.advice),
        ]
    )
