"""`vastrun rehearse`: run a job's steps one by one on this computer, before anything is rented."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import click

from vastrun.contract.gpus import PEAKS
from vastrun.contract.scores import score_lines
from vastrun.launcher.app import App
from vastrun.launcher.cli.job_files import print_warnings, read_job_file, resolve_auto
from vastrun.launcher.cli.options import job_argument, json_option, set_option
from vastrun.launcher.cli.output import say, show
from vastrun.launcher.commands.queries import missing_file
from vastrun.launcher.commands.rehearse import (
    CONFIG,
    FIT,
    REPORT,
    TRAIN,
    Rehearsal,
    rehearsal_folder,
    select_steps,
)
from vastrun.launcher.config import dump_job
from vastrun.launcher.core import NOTHING, LeftOutFiles, Phase, Run, StepEnd, Verdict
from vastrun.launcher.core import Verdict as RunVerdict
from vastrun.launcher.core.errors import NoOfferError, UsageError
from vastrun.launcher.core.gpus import nearest_names
from vastrun.launcher.core.job import JobSpec
from vastrun.launcher.core.left_out import bytes_text
from vastrun.launcher.core.verdict import EXIT_CODE_OF, VERDICT_OF, RunAssessment
from vastrun.launcher.decisions.advice import AFTER_SUCCESS, advice_for_rehearsal
from vastrun.launcher.decisions.workload import Fit, efficiency_of, fit_of
from vastrun.launcher.gate.manifest import Listing
from vastrun.launcher.outputs.folder import OWN, name_of
from vastrun.launcher.ui.document import Document
from vastrun.launcher.ui.render.amounts import left_out_lines
from vastrun.launcher.ui.render.fit import fit_text
from vastrun.launcher.ui.render.table import facts, table
from vastrun.launcher.ui.render.verdict import proof_lines

_HERE = "local"
_ON_THE_CPU = "--set 'resources={gpus: 0}' --set ranks=1"
_OF_PROGRAM = (OWN, "checkpoints")


@click.command("rehearse")
@job_argument
@click.argument("steps", nargs=-1, metavar="[STEP]...")
@set_option
@click.option(
    "--box",
    metavar="DIR",
    type=click.Path(path_type=Path),
    help="Folder to run in; it is kept [in the cache folder].",
)
@click.option(
    "--gpu", "gpus", metavar="NAME", multiple=True, help="fit: only this GPU, for example 'RTX 4090'."
)
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
    """Run the steps of a job one by one on this computer, or only the named ones. Costs nothing.

    First comes config, which checks the job file. Then the steps of a machine: check-gpu, check-comm,
    check-nodes (does nothing here), packages, unpack, download, fetch, train; for `train:` also
    check-model, data and check-data, and evaluate, which scores the newest checkpoint. Then report, which
    shows the verdict and its proofs. The first step that fails is the last, except that report follows a
    failed train. The folder is kept, so that a step finds the files of the steps before it.

    The step fit runs only when named. Without a GPU, it estimates the memory and time that a training step
    of the onboard trainer needs on each rank, and shows which GPUs have room. It needs torch.

    \b
      vastrun rehearse job.yaml --set train.steps=20
      vastrun rehearse job.yaml data check-data
      vastrun rehearse job.yaml fit --gpu 'RTX 4090' --set resources.gpus=8

    A GPU job on a computer without GPUs:

    \b
      vastrun rehearse job.yaml --set 'resources={gpus: 0}' --set ranks=1
    """
    app: App = ctx.obj
    began = app.now()
    spec = read_job_file(job_file, sets)
    requested = select_steps(steps, spec)
    here = [step for step in requested if step not in (CONFIG, FIT, REPORT)]
    if spec.nodes > 1 and here:
        raise UsageError(f"the job needs {spec.nodes} machines; this is one", hint="--set nodes=1")
    folder = (box or rehearsal_folder(app.cache, spec)).resolve()
    rehearsal = app.rehearsal(folder)
    print_warnings(spec, app.provider(_HERE), ())
    performed = [StepEnd(step=CONFIG, exit_code=0, seconds=app.now() - began)]
    if here or FIT in requested:
        spec = resolve_auto(app, spec)
    fit = None
    if FIT in requested:
        began = app.now()
        fit = _fit(app, spec, gpus)
        code = 0 if fit.holds else NoOfferError.exit_code
        performed.append(StepEnd(step=FIT, exit_code=code, seconds=app.now() - began))
    if performed[-1].exit_code == 0:
        performed += _perform(app, rehearsal, spec, here)
    assessment, advice = None, None
    if REPORT in requested and (performed[-1].exit_code == 0 or performed[-1].step == TRAIN):
        assessment = rehearsal.assessment(spec)
        ended = replace(_run(app, spec), cause=assessment.cause, detail=assessment.detail)
        advice = advice_for_rehearsal(ended, not_shipped=missing_file(ended)) or None
        code = EXIT_CODE_OF[VERDICT_OF[assessment.cause]]
        performed.append(StepEnd(step=REPORT, exit_code=code, seconds=0.0))
    listing = None
    if spec.command is not None and TRAIN in {each.step for each in performed}:
        listing = rehearsal.list_outputs()
    shown = RehearsalDocument(
        steps=performed,
        verdict=None if assessment is None else VERDICT_OF[assessment.cause],
        assessment=assessment,
        scores=rehearsal.scores() if assessment else {},
        folder=str(folder),
        fit=fit,
        left_out=None if listing is None else listing.left_out,
        next=advice,
    )
    show(shown, rehearsal_text(shown, listing), as_json=as_json)
    if performed[-1].step == "check-gpu" and performed[-1].exit_code and spec.resources.gpus:
        say(f"try:   vastrun rehearse {job_file} {_ON_THE_CPU}", err=True)
    ctx.exit(_exit_code(performed[-1]))


def _fit(app: App, spec: JobSpec, gpus: Sequence[str]) -> Fit:
    """Estimate the needs of a step on each GPU. Raises UsageError, EstimateError."""
    if spec.resources.gpus == 0:
        raise UsageError("fit: the job uses no GPU", hint="--set resources.gpus=1")
    estimator = app.estimator()
    workloads = estimator.workloads(spec)
    if workloads is None:
        raise UsageError("fit works for the onboard trainer only; this job has its own command")
    try:
        return fit_of(workloads, spec, gpus, efficiency_of(app.ledger().measured(), estimator.known))
    except KeyError as error:
        near = " or ".join(nearest_names(error.args[0], PEAKS))
        meant = f"did you mean {near}?" if near else "its speed and memory are not in the table"
        hint = f"one of {', '.join(PEAKS)}"
        raise UsageError(f"--gpu: unknown GPU {error.args[0]!r}: {meant}", hint=hint) from error


def _perform(app: App, rehearsal: Rehearsal, spec: JobSpec, steps: Sequence[str]) -> list[StepEnd]:
    """Run the steps until one fails; return how each ended."""
    if not steps:
        return []
    screen, packer = app.plain_screen(), app.packer(NOTHING)
    performed: list[StepEnd] = []
    try:
        rehearsal.prepare(packer.pack(_run(app, spec), spec), fresh=TRAIN in steps)
        secrets = packer.secrets(spec)
        for step in steps:
            began = app.now()
            code = rehearsal.run_step(spec, step, secrets, screen.log)
            performed.append(StepEnd(step=step, exit_code=code, seconds=app.now() - began))
            screen.step(step, "ok" if code == 0 else f"exit code {code}")
            if code:
                break
    finally:
        screen.close()
    return performed


def _run(app: App, spec: JobSpec) -> Run:
    """Return the run as its machine will see it."""
    now = app.now()
    return Run(
        id=app.new_id(),
        job=spec.name,
        spec_json=dump_job(spec),
        provider=_HERE,
        phase=Phase.TRAIN,
        out_dir="",
        created_at=now,
        phase_at=now,
    )


def _exit_code(last: StepEnd) -> int:
    """Return the exit code of the verdict or of fit; without these, that of a failed run if a step failed."""
    if last.step in (FIT, REPORT):
        return last.exit_code
    return EXIT_CODE_OF[Verdict.FAILED] if last.exit_code else 0


class RehearsalDocument(Document):
    """A rehearsal of the steps of a job on this computer."""

    steps: Sequence[StepEnd]
    verdict: RunVerdict | None
    assessment: RunAssessment | None
    scores: Mapping[str, float]
    folder: str
    fit: Fit | None
    """Fit of the job on GPUs; null if not requested."""
    left_out: LeftOutFiles | None
    """Files of its program that would not be downloaded; null if it did not run."""
    next: str | None
    """Next step to take; null without a verdict, and where the log says it."""


def rehearsal_text(shown: RehearsalDocument, listing: Listing | None = None) -> str:
    """Write a line for each step, the fit on GPUs, and the verdict."""
    rows = [(each.step, str(each.exit_code), f"{each.seconds:.1f}") for each in shown.steps]
    parts = [
        table(("STEP", "EXIT CODE", "SECONDS"), rows, right=(1, 2)),
        *([] if shown.fit is None else [fit_text(shown.fit)]),
    ]
    pairs = [("folder", shown.folder)] if {each.step for each in shown.steps} - {CONFIG, FIT} else []
    if shown.assessment is not None:
        verdict = ", ".join(filter(None, (shown.verdict, shown.assessment.detail)))
        pairs = [
            ("verdict", verdict),
            ("proofs", proof_lines(shown.assessment.proofs)),
            ("score", "\n".join(score_lines(dict(shown.scores)))),
            *pairs,
        ]
    files = []
    if listing is not None:
        files = [("download", _downloads(listing)), ("left out", left_out_lines(listing.left_out))]
    advice = [] if shown.next in (None, AFTER_SUCCESS) else [("next", shown.next)]
    return "\n\n".join(filter(None, [*parts, facts([*pairs, *files, *advice])]))


def _downloads(listing: Listing) -> str:
    """Write the number and size of the program's files that would be downloaded."""
    files = [file for file in listing.files if name_of(file.path).parts[0] in _OF_PROGRAM]
    count = "1 file" if len(files) == 1 else f"{len(files)} files"
    return f"{count} of the program, {bytes_text(sum(file.size for file in files))}"
