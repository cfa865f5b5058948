"""`vastrun sweep`: a batch in one line."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import click

from vastrun.launcher.api import jobs
from vastrun.launcher.cli.batch import detach_option, dry_run_option
from vastrun.launcher.cli.batching import Submission, submit
from vastrun.launcher.cli.failures import reads
from vastrun.launcher.cli.job_files import example_or
from vastrun.launcher.cli.options import json_option, plain_option, provider_option, set_option, yes_option
from vastrun.launcher.cli.output import say
from vastrun.launcher.config import load_sweep, read_job
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
    help="Machines take points in turn.",
)


@click.command("sweep")
@click.argument("job_file", metavar="JOB.yaml", type=click.Path(path_type=Path))
@click.argument("axes", metavar="KEY=A,B|KEY=LOW..HIGH...", nargs=-1, required=True)
@provider_option
@click.option("--usd", type=click.FloatRange(0, min_open=True), help="What all runs together may cost.")
@click.option(
    "--parallel", type=click.IntRange(1, MAX_PARALLEL), default=4, show_default=True, help="Runs at once."
)
@click.option(
    "--samples", type=click.IntRange(1, MAX_POINTS), default=8, show_default=True, help="Of LOW..HIGH."
)
@click.option("--metric", default="loss", show_default=True, help="What the runs are compared by.")
@click.option("--goal", type=click.Choice(("min", "max")), default="min", show_default=True)
@click.option(
    "--early-stop", metavar="STEPS", type=click.IntRange(min=1), help="Prune what is behind from there on."
)
@set_option
@reuse_option
@click.option("--name", help="The batch's name [that of the job, with -sweep].")
@click.option("--out", metavar="DIR", type=click.Path(path_type=Path), help="For the outputs [batches/NAME].")
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
    """Run a job with each combination of values, and show which did best.

    train.optim.lr=1e-3,3e-3 takes each value; train.optim.lr=1e-4..1e-2 takes samples between, evenly
    spread. The same line again runs only what is new. For more, write a file: vastrun batch.
    """
    say(f"reading {job_file}", err=True)
    job_file = example_or(job_file)
    reads(job_file)
    spec = BatchSpec(
        name=name or _UNNAMED,
        job=str(job_file),
        objective=BatchObjective(metric=metric, goal="max" if goal == "max" else "min"),
        limits=BatchLimits(usd=usd, parallel=parallel),
        early_stop=None if early_stop is None else EarlyStop(min_steps=early_stop),
        reuse=reuse,
    )
    text = jobs.text_in(job_file)
    loaded = load_sweep(spec, text, axes, str(job_file.resolve().parent), samples, ctx.obj.local_now(), sets)
    if name is None:
        loaded = _named_after_its_job(loaded)
    submission = Submission(
        provider=provider, out=out, dry_run=dry_run, yes=yes, as_json=as_json, detach=detach, sweeps=True
    )
    ctx.exit(submit(ctx.obj, loaded, job_file, submission))


def _named_after_its_job(loaded: LoadedBatch) -> LoadedBatch:
    """Not after its file: that of most programs is job.yaml, and their points would come into one batch."""
    name = sweep_name(read_job(loaded.points[0].spec_json).name)
    return replace(loaded, spec=replace(loaded.spec, name=name))
