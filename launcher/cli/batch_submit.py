"""Batches for `batch` and `sweep`: submit one after confirmation, drive it to its end, show its results."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import click

from vastrun.contract.texts import how_many
from vastrun.launcher.api import jobs
from vastrun.launcher.api.batches import has_held_machines, plan_batch
from vastrun.launcher.app import App
from vastrun.launcher.batch.plan import check_can_start, submit_plan
from vastrun.launcher.batch.results import metric_of, results_of, same_results, states_in
from vastrun.launcher.batch.schedule import PointState
from vastrun.launcher.cli import options
from vastrun.launcher.cli.background import hand_over_batch
from vastrun.launcher.cli.job_files import listed_files, note_changed_code
from vastrun.launcher.cli.output import exit_with, note, set_error_job_file, show, width
from vastrun.launcher.commands.queries import with_cost
from vastrun.launcher.config import read_job
from vastrun.launcher.core import NOTHING, UserRequest, Verdict
from vastrun.launcher.core.batch import (
    MAX_PARALLEL,
    MAX_POINTS,
    Batch,
    BatchLimits,
    BatchObjective,
    BatchProgress,
    BatchSpec,
    EarlyStop,
    Sharing,
    sweep_name,
)
from vastrun.launcher.core.errors import HeldError, VastrunError
from vastrun.launcher.core.secrets import public_values
from vastrun.launcher.core.verdict import EXIT_CODE_OF, EXIT_TEARDOWN_NOT_CONFIRMED
from vastrun.launcher.decisions.estimates import usd
from vastrun.launcher.run_services import batch_services
from vastrun.launcher.ui.render.batch import (
    BatchPlanDocument,
    Results,
    ended_text,
    open_runs_lines,
    plan_text,
    progress_line,
)
from vastrun.launcher.ui.render.batch_results import results_text
from vastrun.launcher.ui.screen import StreamScreen

if TYPE_CHECKING:
    from vastrun.launcher.config.batch_file import LoadedBatch


dry_run_option = click.option(
    "--dry-run", is_flag=True, help="Show the points and their costs; rent nothing."
)
detach_option = click.option(
    "-d", "--detach", is_flag=True, help="Detach at once; a background driver continues."
)
early_stop_option = click.option("--no-early-stop", is_flag=True, help="Run every point to its end.")
_SET = re.compile(r"--set ([\w.]+)=([^\s,]+)(?:, or (?:set )?[\w. ]+ in the job file)?")
_USD = re.compile(r"limits: \{usd: ([\w.]+)\}( or more)? in the batch file, or --usd(?: USD)?")


@click.command("submit")
@click.argument("batch_file", metavar="BATCH.yaml", type=options.PATH)
@options.provider_option
@click.option("--out", metavar="DIR", type=options.PATH, help="Folder for the outputs [batches/BATCH].")
@early_stop_option
@detach_option
@dry_run_option
@options.yes_option
@options.plain_option
@options.json_option
@click.pass_obj
def submit_command(
    app: App,
    batch_file: Path,
    provider: str,
    out: Path | None,
    no_early_stop: bool,
    detach: bool,
    dry_run: bool,
    yes: bool,
    as_json: bool,
) -> None:
    """Run the new points of a batch file, and follow them to their end.

    Points that ran before are not run again. Ctrl-C asks whether to stop, detach or continue; without a
    terminal it stops the batch.
    """
    from vastrun.launcher.config.batch_file import load_batch  # slow to import: pydantic, yaml

    note(f"reading {batch_file}")
    set_error_job_file(batch_file)
    folder = batch_file.resolve().parent
    loaded = load_batch(
        jobs.read_source(batch_file),
        str(batch_file),
        lambda name: jobs.read_source(folder / name, batch_file.name),
        str(folder),
        app.local_now(),
    )
    if no_early_stop:
        loaded = replace(loaded, spec=replace(loaded.spec, early_stop=None))
    with _hints(hint_for_batch):
        name = _submit(app, loaded, folder, provider, out, dry_run=dry_run, yes=yes, as_json=as_json)
    exit_with(0 if name is None else drive(app, name, as_json=as_json, detach=detach))


@contextmanager
def _hints(rewritten: Callable[[str], str]) -> Iterator[None]:
    try:
        yield
    except VastrunError as error:
        error.hint = rewritten(error.hint)
        raise


def _submit(
    app: App,
    loaded: LoadedBatch,
    job_folder: Path,
    provider: str,
    out: Path | None,
    *,
    dry_run: bool,
    yes: bool,
    as_json: bool,
) -> str | None:
    """Price the batch, ask for confirmation, and write it into the ledger; return its name.

    None after a dry run.
    """
    ledger = app.ledger()
    plan = plan_batch(app, loaded, job_folder, provider, note)
    if dry_run:
        show(BatchPlanDocument.of(plan), plan_text(plan), as_json=as_json)
        return None
    folder = (out or Path("batches") / plan.spec.name).resolve()
    check_can_start(ledger, plan, folder)
    if not app.shared_provider(provider).free:
        count, max_usd = how_many(plan.count, "point"), usd(plan.spec.limits.usd or 0.0)
        options.confirm(f"run {count} on {plan.provider} for at most {max_usd}", yes=yes)
    before = ledger.batches.points(plan.spec.name)
    former = read_job(before[-1].spec_json).code_digest if before else None
    batch, new = submit_plan(app.driver_ledger(), plan, folder, app.now(), app.computer())
    what = f"a search of {plan.count} points" if plan.search else f"{new} of {plan.count} points are new"
    note(f"batch {batch.name}: {what}, outputs in {batch.folder}")
    job = read_job(plan.points[0].spec_json)
    if former is not None and (changed := app.packer(NOTHING).changed_code(replace(job, code_digest=former))):
        note(f"the code has changed since the last submit: {listed_files(changed)}")
    return batch.name


def drive(app: App, name: str, *, as_json: bool, prunes: bool = True, detach: bool = False) -> int:
    """Drive the batch to its end and print its results; return the exit code.

    `detach`: start a background driver instead.
    """
    points = app.ledger().batches.points(name)
    if points:
        note_changed_code(app, f"batch {name}", points[-1].spec_json)
    if detach:
        if notice := hand_over_batch(app, name):
            note(notice)
            show_results(app, app.ledger().batches.get(name), states_in(app.ledger(), name), as_json=as_json)
            return 0
        raise HeldError(f"batch {name} is driven by another launcher", hint=f"vastrun batch watch {name}")
    from vastrun.launcher.batch.driver import BatchDriver  # when a batch is driven

    interrupts = app.interrupts(UserRequest.NONE)
    interrupts.subject = f"the runs of {name}"
    screen = app.screens.of_many(app.now(), lambda: open_runs_of(app, name))
    served = batch_services(app, name, interrupts, BatchLines(screen), prunes=prunes)
    with closing(screen), interrupts.listening(), served as services:
        BatchDriver(name, services).drive()
    ledger = app.ledger()
    states = states_in(ledger, name)
    batch, is_held = ledger.batches.get(name), has_held_machines(ledger, name)
    show_results(app, batch, states, as_json=as_json)
    if interrupts.current() is UserRequest.DETACH and (notice := hand_over_batch(app, name)):
        note(notice)
    elif rest := _what_is_left(batch, states, interrupts.current(), is_held=is_held):
        note(f"{rest}\ntry:   {batch.resume_command}" if batch.resume_command else rest)
    return exit_code(batch, states, interrupts.current(), is_held=is_held)


def _what_is_left(batch: Batch, states: Sequence[PointState], request: UserRequest, *, is_held: bool) -> str:
    """Say what was not started, or continues without this launcher; empty if nothing is left to do."""
    if request is UserRequest.DETACH:
        return "the runs continue without this launcher; their leases limit how long"
    if still := sum(state.is_open for state in states):
        return f"{still} of {len(states)} points have open runs: a machine may still be rented"
    if is_held:
        return "a machine held for the batch is not destroyed: it may still be rented"
    waiting = sum(state.is_waiting for state in states)
    if not waiting:
        return ""
    return f"{waiting} of {len(states)} points were not started: {batch.reason or 'stopped'}"


def show_results(app: App, batch: Batch, states: Sequence[PointState], *, as_json: bool) -> None:
    """Print the result of each point, the best first."""
    rows = results_of(states, batch.spec.objective, app.now())
    same = same_results(rows, batch.spec.objective)
    show(Results.of(rows, batch, same), results_text(rows, batch.spec, width(), same), as_json=as_json)


def exit_code(
    batch: Batch, states: Sequence[PointState], request: UserRequest, *, is_held: bool = False
) -> int:
    """Return 0 if every point succeeded or was pruned; else 3 (stopped), 9 (a limit) or 5 (a point failed).

    11, whatever the points' results, if a machine that should be destroyed may still be rented; `is_held`:
    a machine held for them.
    """
    requested = [state for state in states if state.point.wanted]
    if request is UserRequest.DETACH:
        return 0
    if is_held or any(state.is_open for state in states):
        return EXIT_TEARDOWN_NOT_CONFIRMED
    if all(state.verdict in (Verdict.SUCCEEDED, Verdict.PRUNED) for state in requested):
        return 0
    if UserRequest.STOP.strength <= max(request.strength, batch.request.strength):
        return EXIT_CODE_OF[Verdict.STOPPED]
    return EXIT_CODE_OF[Verdict.LIMIT if batch.reason else Verdict.FAILED]


def open_runs_of(app: App, name: str) -> Sequence[str]:
    """Return a header and a line for each open run of the batch; empty if there is none."""
    ledger, now = app.ledger(), app.now()
    runs = [run for run in ledger.runs(open_only=True, batch=name) if run.point]
    values = {run.point: public_values(ledger.batches.values_of(name, run.point)) for run in runs}
    rows = [with_cost(run, ledger.runs(leader=run.id), now) for run in runs]
    return open_runs_lines(rows, values, now, width())


class BatchLines:
    """The screen of a batch: a line for each ended point, and a progress line that is overwritten."""

    def __init__(self, screen: StreamScreen) -> None:
        self._screen = screen

    def ended(self, state: PointState, batch: Batch) -> None:
        """Print the end of a point."""
        metric = batch.spec.objective.metric
        value = None if state.last is None else metric_of(state.last, metric)
        self._screen.step("point", ended_text(state, metric, value))

    def progress(self, progress: BatchProgress, batch: Batch) -> None:
        """Print the progress of the batch."""
        self._screen.gauge(progress_line(progress, batch.spec.limits.usd))

    def note(self, text: str) -> None:
        """Print a line."""
        self._screen.note(text)


def hint_for_batch(hint: str) -> str:
    """Rewrite a hint for `batch submit`, which has neither --set nor --usd: name the file to change."""
    in_file = _USD.sub(r"limits: {usd: \1}\2 in the batch file", hint)
    return _SET.sub(r"\1: \2 in the job file", in_file)


def hint_for_sweep(hint: str) -> str:
    """Rewrite a hint for `sweep`, which has --set, --usd and --name, and no batch file."""
    as_option = _USD.sub(r"--usd \1\2", hint)
    return as_option.replace("another name: in the batch file", "another --name").replace(
        "another name:", "another --name"
    )


@click.command("sweep")
@click.argument("job_file", metavar="JOB.yaml", type=options.PATH)
@click.argument("axes", metavar="KEY=A,B|KEY=LOW..HIGH...", nargs=-1, required=True)
@options.provider_option
@click.option("--usd", type=click.FloatRange(0, min_open=True), help="Budget of all runs together.")
@click.option(
    "--parallel",
    type=click.IntRange(1, MAX_PARALLEL),
    default=4,
    show_default=True,
    help="Number of concurrent runs.",
)
@click.option(
    "--samples",
    type=click.IntRange(1, MAX_POINTS),
    default=8,
    show_default=True,
    help="Number of values between LOW and HIGH.",
)
@click.option("--metric", default="loss", show_default=True, help="Metric to compare the runs by.")
@click.option(
    "--goal",
    type=click.Choice(("min", "max")),
    default="min",
    show_default=True,
    help="Minimize or maximize the metric.",
)
@click.option(
    "--early-stop", metavar="STEPS", type=click.IntRange(min=1), help="Prune lagging runs after this step."
)
@options.set_option
@click.option(
    "--reuse",
    type=click.Choice(("auto", "never")),
    default="never",
    show_default=True,
    help="Run several points on one machine, one after the other.",
)
@click.option("--name", help="Name of the batch [JOB-sweep].")
@click.option("--out", metavar="DIR", type=options.PATH, help="Folder for the outputs [batches/NAME].")
@detach_option
@dry_run_option
@options.yes_option
@options.plain_option
@options.json_option
@click.pass_obj
def sweep_command(
    app: App,
    job_file: Path,
    axes: tuple[str, ...],
    provider: str,
    usd: float | None,
    parallel: int,
    samples: int,
    metric: str,
    goal: str,
    early_stop: int | None,
    sets: tuple[str, ...],
    reuse: Sharing,
    name: str | None,
    out: Path | None,
    detach: bool,
    dry_run: bool,
    yes: bool,
    as_json: bool,
) -> None:
    """Run a job with each combination of values, and show which is best.

    train.optim.lr=1e-3,3e-3 tries each value; train.optim.lr=1e-4..1e-2 tries evenly spread samples;
    amp=on,off with {amp:--amp} in the command tries a flag.
    Repeating the command runs only new points. For more options, write a batch file: vastrun batch.
    """
    note(f"reading {job_file}")
    from vastrun.launcher.config.batch_file import load_sweep  # slow to import: pydantic, yaml

    job_file = jobs.file_or_example(job_file, note)
    set_error_job_file(job_file)
    spec = BatchSpec(
        name=name or "sweep",
        job=str(job_file),
        objective=BatchObjective(metric=metric, goal="max" if goal == "max" else "min"),
        limits=BatchLimits(usd=usd, parallel=parallel),
        early_stop=None if early_stop is None else EarlyStop(min_steps=early_stop),
        reuse=reuse,
    )
    text = jobs.read_source(job_file)
    loaded = load_sweep(spec, text, axes, str(job_file.resolve().parent), samples, app.local_now(), sets)
    if name is None:
        # After its job, not its file: most are called job.yaml, and would share one batch.
        name = sweep_name(read_job(loaded.points[0].spec_json).name)
        loaded = replace(loaded, spec=replace(loaded.spec, name=name))
    folder = job_file.resolve().parent
    with _hints(hint_for_sweep):
        submitted = _submit(app, loaded, folder, provider, out, dry_run=dry_run, yes=yes, as_json=as_json)
    exit_with(0 if submitted is None else drive(app, submitted, as_json=as_json, detach=detach))
