"""`vastrun rehearse`: run a job's steps one by one on this computer, before anything is rented."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import click

from vastrun.contract import layout
from vastrun.contract.gpus import PEAKS
from vastrun.contract.program_kind import Program
from vastrun.contract.texts import how_many
from vastrun.launcher.app import App
from vastrun.launcher.cli.job_files import print_warnings, read_job_file, resolve_auto
from vastrun.launcher.cli.options import PATH, job_argument, json_option, set_option
from vastrun.launcher.cli.output import exit_with, note, show
from vastrun.launcher.commands.explanation import missing_file
from vastrun.launcher.commands.machine_loss import EVERY_S, SNAPSHOT_S, MachineLoss
from vastrun.launcher.commands.rehearse import (
    CONFIG,
    FIT,
    KILL,
    REPORT,
    RESUME,
    STOP,
    TRAIN,
    UNPACK,
    Rehearsal,
    rehearsal_folder,
    select_steps,
)
from vastrun.launcher.config import dump_job, program_of
from vastrun.launcher.core import NOTHING, LeftOutFiles, Origin, Phase, Run, StepEnd, Verdict
from vastrun.launcher.core.errors import NoOfferError, UsageError
from vastrun.launcher.core.gpus import nearest_names
from vastrun.launcher.core.job import JobSpec
from vastrun.launcher.core.left_out import bytes_text
from vastrun.launcher.core.verdict import EXIT_CODE_OF, VERDICT_OF, RunAssessment
from vastrun.launcher.decisions.advice import AFTER_SUCCESS, advice_for_rehearsal
from vastrun.launcher.decisions.resumption import GOOD, Answer, Resumption, outputs_of
from vastrun.launcher.decisions.workload import Fit, efficiency_of, fit_of
from vastrun.launcher.gate.manifest import Listing
from vastrun.launcher.gate.text import one_line
from vastrun.launcher.outputs.folder import OWN, name_of
from vastrun.launcher.ui.document import Document
from vastrun.launcher.ui.render.amounts import facts, left_out_lines, table
from vastrun.launcher.ui.render.fit import fit_text
from vastrun.launcher.ui.render.verdict import proof_lines

_HERE = "local"
_STARTS = (TRAIN, RESUME)
_ADVICE: Mapping[Answer, str] = {
    "started_over": "let the program load its newest file when it starts; or let it take the path of one, "
    "with command: ... {{resume:--resume}} and checkpoints: {pattern}",
    "no_snapshot": "let the program save earlier for the rehearsal, with --set; or run it to its end, with "
    "vastrun rehearse {job} unpack train report",
}


@click.command("rehearse")
@job_argument
@click.argument("steps", nargs=-1, metavar="[STEP]...")
@set_option
@click.option("--box", metavar="DIR", type=PATH, help="Folder to run in; it is kept [in the cache folder].")
@click.option(
    "--gpu", "gpus", metavar="NAME", multiple=True, help="fit: only this GPU, for example 'RTX 4090'."
)
@click.option("--write", is_flag=True, help="Add checkpoints and outputs to the job file, as they were seen.")
@json_option
@click.pass_obj
def command(
    app: App,
    job_file: Path,
    steps: tuple[str, ...],
    sets: tuple[str, ...],
    box: Path | None,
    gpus: tuple[str, ...],
    write: bool,
    as_json: bool,
) -> None:
    """Run the steps of a job one by one on this computer, or only the named ones. Costs nothing.

    First comes config, which checks the job file. Then the steps of a machine: check-gpu, check-comm,
    check-nodes (does nothing here), packages, unpack, download, fetch, train; for `train:` also
    check-model, data and check-data, and evaluate, which scores the newest checkpoint. Then report, which
    shows the verdict and its proofs. The first step that fails is the last, except that report follows a
    failed train. The folder is kept, so that a step finds the files of the steps before it.

    A `command:` loses its machine once: train kills it after its first saves, and resume starts it again
    in an empty folder with that snapshot, as another machine would. Shown is what it wrote, and whether it
    continued; after a minute it is stopped. Named alone, resume does unpack and train, too, and stops as soon
    as it is known. Without resume, train runs the program to its end.

    The step fit runs only when named. Without a GPU, it estimates the memory and time that a training step
    of the onboard trainer needs on each rank, and shows which GPUs have room. It needs torch.

    \b
      vastrun rehearse job.yaml --set train.steps=20
      vastrun rehearse job.yaml data check-data
      vastrun rehearse job.yaml resume --write
      vastrun rehearse job.yaml unpack train report
      vastrun rehearse job.yaml fit --gpu 'RTX 4090' --set resources.gpus=8

    A GPU job on a computer without GPUs:

    \b
      vastrun rehearse job.yaml --set 'resources={gpus: 0}' --set ranks=1
    """
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
    loss = None
    if RESUME in here:
        loss = MachineLoss(box=folder, now=app.now, to_end=REPORT in requested, named=spec.checkpoints.files)
    if performed[-1].exit_code == 0:
        performed += _perform(app, rehearsal, spec, here, loss)
    assessment, advice = None, None
    has_ended = loss is None or loss.has_ended
    if REPORT in requested and has_ended and (performed[-1].exit_code == 0 or performed[-1].step in _STARTS):
        assessment = rehearsal.assessment(spec)
        ended = replace(_run(app, spec), cause=assessment.cause, detail=assessment.detail)
        advice = advice_for_rehearsal(ended, not_shipped=missing_file(ended)) or None
        code = EXIT_CODE_OF[VERDICT_OF[assessment.cause]]
        performed.append(StepEnd(step=REPORT, exit_code=code, seconds=0.0))
    listing, resumed = None, None
    if spec.command is not None and TRAIN in {each.step for each in performed}:
        listing = rehearsal.list_outputs() if has_ended else None
        resumed = None if loss is None else loss.result()
    if resumed is not None and resumed.answer in _ADVICE:
        pattern = spec.checkpoints.files or resumed.checkpoints or "PATTERN"
        advice = _ADVICE[resumed.answer].format(pattern=pattern, job=job_file)
    written = _write(job_file, spec, resumed, listing if assessment else None) if write else ()
    shown = RehearsalDocument(
        steps=performed,
        verdict=None if assessment is None else VERDICT_OF[assessment.cause],
        assessment=assessment,
        scores=rehearsal.scores() if assessment else {},
        folder=str(folder),
        fit=fit,
        left_out=None if listing is None else listing.left_out,
        resume=resumed,
        written=written,
        next=advice,
    )
    show(shown, rehearsal_text(shown, program_of(spec), listing), as_json=as_json)
    if performed[-1].step == "check-gpu" and performed[-1].exit_code and spec.resources.gpus:
        note(f"try:   vastrun rehearse {job_file} --set 'resources={{gpus: 0}}' --set ranks=1")
    exit_with(_exit_code(performed))


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


def _perform(
    app: App, rehearsal: Rehearsal, spec: JobSpec, steps: Sequence[str], loss: MachineLoss | None
) -> list[StepEnd]:
    """Run the steps until one fails; return how each ended."""
    if not steps:
        return []
    if loss is not None:
        spec = replace(spec, checkpoints=replace(spec.checkpoints, every_s=EVERY_S))
    screen, packer = app.plain_screen(), app.packer(NOTHING)
    performed: list[StepEnd] = []
    try:
        rehearsal.prepare(packer.pack(_run(app, spec), spec), spec, fresh=TRAIN in steps)
        secrets = packer.secrets(spec)

        def run(step: str) -> int:
            if step == RESUME and loss is not None:
                return _resume(app, rehearsal, spec, loss, run)
            if step != TRAIN or loss is None:
                return rehearsal.run_step(spec, step, secrets, screen.log)
            loss.begin()
            is_over, end = (loss.should_stop, STOP) if loss.is_again else (loss.should_kill, KILL)
            code = rehearsal.run_step(spec, step, secrets, screen.log, is_over=is_over, end=end)
            if not code or not loss.has_ended:
                return 0
            loss.failure = rehearsal.assessment(spec).detail
            return code

        for step in steps:
            if step == RESUME and loss is not None and loss.to_end and not loss.was_killed:
                continue  # its end is its verdict
            began = app.now()
            code = run(step)
            performed.append(StepEnd(step=step, exit_code=code, seconds=app.now() - began))
            was_killed = step == TRAIN and loss is not None and loss.was_killed
            good = "killed, as on a machine that is lost" if was_killed else "ok"
            screen.step(step, good if code == 0 else f"exit code {code}")
            if code:
                break
    finally:
        screen.close()
    return performed


def _resume(
    app: App, rehearsal: Rehearsal, spec: JobSpec, loss: MachineLoss, run: Callable[[str], int]
) -> int:
    """Start the program again as another machine would; return 1 where its work would be lost."""
    if loss.was_killed and loss.can_resume:
        packer = app.packer(Origin(folder=loss.box / layout.CHECKPOINTS))
        # A snapshot reads all files: it must not come before it is known which the program reads.
        spec = replace(spec, checkpoints=replace(spec.checkpoints, every_s=SNAPSHOT_S))
        rehearsal.prepare(packer.pack(_run(app, spec), spec), spec, fresh=True)
        if code := run(UNPACK):
            loss.failure = f"{UNPACK} failed with exit code {code}"
        elif code := run(TRAIN):
            return code
    return int(loss.result().answer not in GOOD)


def _write(
    job_file: Path, spec: JobSpec, resumed: Resumption | None, listing: Listing | None
) -> tuple[str, ...]:
    """Add to the job file what it does not say of checkpoints and outputs; return the added keys.

    `listing`: the files of a program that ran to its end. Raises UsageError.
    """
    from vastrun.launcher.config.job_loader import load_job  # slow to import: pydantic, yaml
    from vastrun.launcher.config.source import with_keys

    keys: dict[str, str | list[str]] = {}
    if resumed is not None and resumed.checkpoints and spec.checkpoints.files is None:
        keys["checkpoints.files"] = resumed.checkpoints
    if listing is not None and not spec.outputs:
        keys["outputs"] = outputs_of((file.path for file in listing.files), resumed and resumed.checkpoints)
    keys = {key: value for key, value in keys.items() if value}
    try:
        text = with_keys(job_file.read_bytes().decode(), str(job_file), keys)
        load_job(text, str(job_file), (), str(job_file.resolve().parent))
        if keys:
            job_file.write_bytes(text.encode())
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"cannot add {', '.join(keys)} to {job_file}: {error}") from error
    return tuple(f"{key}: {value}" for key, value in keys.items())


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


def _exit_code(performed: Sequence[StepEnd]) -> int:
    """Return the exit code of the verdict or of fit; without these, that of a failed run if a step failed."""
    last = performed[-1]
    is_lost = any(each.exit_code for each in performed if each.step == RESUME)
    if last.step in (FIT, REPORT) and (last.exit_code or not is_lost):
        return last.exit_code
    return EXIT_CODE_OF[Verdict.FAILED] if last.exit_code or is_lost else 0


class RehearsalDocument(Document):
    """A rehearsal of the steps of a job on this computer."""

    steps: Sequence[StepEnd]
    verdict: Verdict | None
    assessment: RunAssessment | None
    scores: Mapping[str, float]
    folder: str
    fit: Fit | None
    """Fit of the job on GPUs; null if not requested."""
    left_out: LeftOutFiles | None
    """Files of its program that would not be downloaded; null if it did not run, or was stopped."""
    resume: Resumption | None
    """Behaviour of its program on another machine with its snapshot; null if that was not tried."""
    written: Sequence[str]
    """Keys that were added to the job file."""
    next: str | None
    """Next step to take; null without a verdict, and where the log says it."""


def rehearsal_text(shown: RehearsalDocument, program: Program[Any], listing: Listing | None = None) -> str:
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
            ("score", "\n".join(program.score_lines(shown.scores))),
            *pairs,
        ]
    files = []
    if listing is not None:
        own = [file for file in listing.files if name_of(file.path).parts[0] in (OWN, "checkpoints")]
        size = bytes_text(sum(file.size for file in own))
        files = [
            ("download", f"{how_many(len(own), 'file')} of the program, {size}"),
            ("left out", left_out_lines(listing.left_out)),
        ]
    if shown.resume is not None:
        written = [(one_line(row.name), str(row.count), bytes_text(row.size)) for row in shown.resume.files]
        parts += [table(("WRITTEN", "FILES", "SIZE"), written, right=(1, 2))] if written else []
        files = [("resume", _resume_text(shown.resume)), *files, ("job file", "\n".join(shown.written))]
    advice = [] if shown.next in (None, AFTER_SUCCESS) else [("next", shown.next)]
    return "\n\n".join(filter(None, [*parts, facts([*pairs, *files, *advice])]))


def _resume_text(resumed: Resumption) -> str:
    """Write where the program was killed, and what it did then."""
    at = "" if resumed.killed_at is None else f" at step {resumed.killed_at}"
    of = "" if resumed.snapshot_step is None else f" of step {resumed.snapshot_step} or later"
    was_tried = resumed.files and resumed.answer != "too_short"
    lines = [f"killed{at}, then started again with its snapshot{of}"] if was_tried else []
    return "\n".join([*lines, one_line(resumed.detail)])
