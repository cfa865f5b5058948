"""`vastrun sweep`: a batch from the command line."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import click

from vastrun.launcher.api import jobs
from vastrun.launcher.cli.batch_submit import Submission, detach_option, dry_run_option, submit
from vastrun.launcher.cli.options import json_option, plain_option, provider_option, set_option, yes_option
from vastrun.launcher.cli.output import note, say, set_error_job_file
from vastrun.launcher.config import read_job
from vastrun.launcher.core.batch import (
    MAX_PARALLEL,
    MAX_POINTS,
    BatchLimits,
    BatchObjective,
    BatchSpec,
    EarlyStop,
    Sharing,
    sweep_name,
)

if TYPE_CHECKING:
    from vastrun.launcher.config.batch_file import LoadedBatch

_UNNAMED = "sweep"
reuse_option = click.option(
    "--reuse",
    type=click.Choice(("auto", "never")),
    default="never",
    show_default=True,
    help="Run several points on one machine, one after the other.",
)


@click.command("sweep")
@click.argument("job_file", metavar="JOB.yaml", type=click.Path(path_type=Path))
@click.argument("axes", metavar="KEY=A,B|KEY=LOW..HIGH...", nargs=-1, required=True)
@provider_option
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
@set_option
@reuse_option
@click.option("--name", help="Name of the batch [JOB-sweep].")
@click.option(
    "--out", metavar="DIR", type=click.Path(path_type=Path), help="Folder for the outputs [batches/NAME]."
)
@detach_option
@dry_run_option
@yes_option
@plain_option
@json_option
@click.pass_context
def command(
    ctx: click.Context,
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

    train.optim.lr=1e-3,3e-3 tries each value; train.optim.lr=1e-4..1e-2 tries evenly spread samples.
    Repeating the command runs only new points. For more options, write a batch file: vastrun batch.
    """
    say(f"reading {job_file}", err=True)
    from vastrun.launcher.config.batch_file import load_sweep  # slow to import: pydantic, yaml

    job_file = jobs.file_or_example(job_file, note)
    set_error_job_file(job_file)
    spec = BatchSpec(
        name=name or _UNNAMED,
        job=str(job_file),
        objective=BatchObjective(metric=metric, goal="max" if goal == "max" else "min"),
        limits=BatchLimits(usd=usd, parallel=parallel),
        early_stop=None if early_stop is None else EarlyStop(min_steps=early_stop),
        reuse=reuse,
    )
    text = jobs.read_source(job_file)
    loaded = load_sweep(spec, text, axes, str(job_file.resolve().parent), samples, ctx.obj.local_now(), sets)
    if name is None:
        loaded = _named_after_its_job(loaded)
    submission = Submission(
        provider=provider, out=out, dry_run=dry_run, yes=yes, as_json=as_json, detach=detach, sweeps=True
    )
    ctx.exit(submit(ctx.obj, loaded, job_file, submission))


def _named_after_its_job(loaded: LoadedBatch) -> LoadedBatch:
    """Name the batch after its job, not its file: most are called job.yaml, and would share one batch."""
    name = sweep_name(read_job(loaded.points[0].spec_json).name)
    return replace(loaded, spec=replace(loaded.spec, name=name))
