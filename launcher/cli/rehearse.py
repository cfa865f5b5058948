"""`vastrun rehearse`: the steps of a job, one by one, here, before anything is rented."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import click

from vastrun.contract.gpus import PEAKS
from vastrun.launcher.cli.job_files import read_job_file, without_auto
from vastrun.launcher.cli.options import job_argument, json_option, set_option
from vastrun.launcher.cli.output import say, show
from vastrun.launcher.commands.rehearse import (
    CONFIG,
    FIT,
    REPORT,
    TRAIN,
    Rehearsal,
    chosen,
    rehearsal_folder,
)
from vastrun.launcher.config import dump_job
from vastrun.launcher.core import NOTHING, Phase, Run, StepEnd, Verdict
from vastrun.launcher.core.errors import NoOfferError, UsageError
from vastrun.launcher.core.job import JobSpec
from vastrun.launcher.core.verdict import EXIT_CODE_OF, VERDICT_OF
from vastrun.launcher.decisions.fit import Fit, fit_of
from vastrun.launcher.decisions.workload import efficiency_of
from vastrun.launcher.ui.render.rehearsal import Rehearsed, rehearsal_text
from vastrun.launcher.wiring import Wiring

_CHECK_GPU = "check-gpu"
_HERE = "local"
_ON_THE_CPU = "--set 'resources={gpus: 0}' --set ranks=1"


@click.command("rehearse")
@job_argument
@click.argument("steps", nargs=-1, metavar="[STEP]...")
@set_option
@click.option(
    "--box", metavar="DIR", type=click.Path(path_type=Path), help="Where; it stays [the cache folder]."
)
@click.option("--gpu", "gpus", metavar="NAME", multiple=True, help="fit: this GPU only, such as 'RTX 4090'.")
@json_option
@click.pass_context
def command(
    ctx: click.Context,
    job_file: Path,
    steps: tuple[str, ...],
    sets: tuple[str, ...],
    box: Path | None,
    gpus: tuple[str, ...],
    as_json: bool,
) -> None:
    """Run the steps of a job one by one on this computer, or only those named. Costs nothing.

    The first is config: the job file is checked, always. Then those of a box: check-gpu, check-comm,
    check-nodes (of several machines: nothing here), packages, unpack, data, check-data, fetch, train. Then
    evaluate, which scores the newest checkpoint alone, and report, which says what is proven. The first that
    fails is the last, but for the report on the training. The folder stays, so that a step finds what the
    ones before it left.

    The step fit is done where it is named: it foretells, without a GPU, what a step of the onboard trainer
    takes of each rank, and says which GPUs hold that, and how long a step should take there. It needs torch.

    \b
      vastrun rehearse job.yaml --set train.steps=20
      vastrun rehearse job.yaml data check-data
      vastrun rehearse job.yaml fit --gpu 'RTX 4090' --set resources.gpus=8

    A job for GPUs, on a computer without:

    \b
      vastrun rehearse job.yaml --set 'resources={gpus: 0}' --set ranks=1
    """
    wiring: Wiring = ctx.obj
    began = wiring.now()
    wanted = chosen(steps)
    spec = read_job_file(job_file, sets)
    here = [step for step in wanted if step not in (CONFIG, FIT, REPORT)]
    if spec.nodes > 1 and here:
        raise UsageError(f"the job asks for {spec.nodes} machines, this is one", hint="--set nodes=1")
    folder = (box or rehearsal_folder(wiring.cache, spec)).resolve()
    rehearsal = wiring.rehearsal(folder)
    performed = [StepEnd(step=CONFIG, exit_code=0, seconds=wiring.now() - began)]
    if here or FIT in wanted:
        spec = without_auto(wiring, spec, wiring.provider(_HERE))
    fit = None
    if FIT in wanted:
        began = wiring.now()
        fit = _fit(wiring, spec, gpus)
        code = 0 if fit.holds else NoOfferError.exit_code
        performed.append(StepEnd(step=FIT, exit_code=code, seconds=wiring.now() - began))
    if performed[-1].exit_code == 0:
        performed += _perform(wiring, rehearsal, spec, here)
    assessment = None
    if REPORT in wanted and (performed[-1].exit_code == 0 or performed[-1].step == TRAIN):
        assessment = rehearsal.assessment(spec)
        code = EXIT_CODE_OF[VERDICT_OF[assessment.cause]]
        performed.append(StepEnd(step=REPORT, exit_code=code, seconds=0.0))
    listing = None
    if spec.command is not None and TRAIN in {each.step for each in performed}:
        listing = rehearsal.list_outputs()
    shown = Rehearsed(
        steps=performed,
        verdict=None if assessment is None else VERDICT_OF[assessment.cause],
        assessment=assessment,
        scores=rehearsal.scores() if assessment else {},
        folder=str(folder),
        fit=fit,
        left_out=None if listing is None else listing.left_out,
    )
    show(shown, rehearsal_text(shown, listing), as_json=as_json)
    if performed[-1].step == _CHECK_GPU and performed[-1].exit_code and spec.resources.gpus:
        say(f"try:   vastrun rehearse {job_file} {_ON_THE_CPU}", err=True)
    ctx.exit(_exit_code(performed[-1]))


def _fit(wiring: Wiring, spec: JobSpec, gpus: Sequence[str]) -> Fit:
    """Foretell what a step takes. Raises UsageError, ForetellingError."""
    if spec.resources.gpus == 0:
        raise UsageError("fit: the job asks for no GPU", hint="--set resources.gpus=1")
    foreteller = wiring.foreteller()
    workloads = foreteller.workloads(spec)
    if workloads is None:
        raise UsageError("fit is foretold of the onboard trainer only, and the job has a command of its own")
    try:
        return fit_of(workloads, spec, gpus, efficiency_of(wiring.ledger().measured(), foreteller.known))
    except KeyError as error:
        raise UsageError(
            f"--gpu: nobody knows how fast {error.args[0]!r} is, and how much it holds",
            hint=f"one of {', '.join(PEAKS)}",
        ) from error


def _perform(wiring: Wiring, rehearsal: Rehearsal, spec: JobSpec, steps: Sequence[str]) -> list[StepEnd]:
    """Up to the first that fails."""
    if not steps:
        return []
    screen, packer = wiring.plain_screen(), wiring.packer(NOTHING)
    performed: list[StepEnd] = []
    try:
        rehearsal.lay_out(packer.pack(_run(wiring, spec), spec), afresh=TRAIN in steps)
        secrets = packer.secrets(spec)
        for step in steps:
            began = wiring.now()
            code = rehearsal.perform(step, secrets, screen.log)
            performed.append(StepEnd(step=step, exit_code=code, seconds=wiring.now() - began))
            screen.step(step, "ok" if code == 0 else f"exit code {code}")
            if code:
                break
    finally:
        screen.close()
    return performed


def _run(wiring: Wiring, spec: JobSpec) -> Run:
    """As a box is told of it."""
    now = wiring.now()
    return Run(
        id=wiring.new_id(),
        job=spec.name,
        spec_json=dump_job(spec),
        provider=_HERE,
        phase=Phase.TRAIN,
        out_dir="",
        created_at=now,
        phase_at=now,
    )


def _exit_code(last: StepEnd) -> int:
    """That of the verdict, or of the fit; without one, whether the last step failed."""
    if last.step in (FIT, REPORT):
        return last.exit_code
    return EXIT_CODE_OF[Verdict.FAILED] if last.exit_code else 0
