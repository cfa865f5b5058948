"""`vastrun pull`, `export`: outputs of a run that trains, its weights."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import closing, nullcontext
from dataclasses import replace
from pathlib import Path

import click

from vastrun.contract.texts import how_many
from vastrun.launcher.app import App
from vastrun.launcher.cli.options import PATH, json_option, run_argument, signed_run
from vastrun.launcher.cli.output import exit_with, show
from vastrun.launcher.commands.export import ExportedCheckpoint
from vastrun.launcher.commands.takeover import held
from vastrun.launcher.config import read_job
from vastrun.launcher.core import CollectResult, LeftOutFiles, Phase, PullResult, Run
from vastrun.launcher.core.errors import HeldError, UsageError
from vastrun.launcher.flow.machines import find_machines
from vastrun.launcher.flow.services import Services
from vastrun.launcher.run_services import services_for
from vastrun.launcher.ui.document import Document
from vastrun.launcher.ui.render.amounts import left_out_lines


class PullDocument(Document):
    """A download of a run's files."""

    run: str
    folder: str
    files: int
    bytes: int
    damaged: Sequence[str]
    renamed: Mapping[str, str]
    """New names of files whose paths this computer's disk cannot distinguish, by their paths on the box."""
    left_out: LeftOutFiles
    """Files of its program that were not downloaded."""


@click.command("pull")
@run_argument
@click.argument("path", required=False)
@click.option("--out", metavar="DIR", type=PATH, help="Download into another folder.")
@json_option
@click.pass_obj
def pull_command(app: App, run_name: str, path: str | None, out: Path | None, as_json: bool) -> None:
    """Download the outputs of RUN so far from its machine; files already here are kept.

    With PATH, download only that file or folder. It is relative to the code folder or to $VASTRUN_OUTPUTS,
    as in `vastrun why`. This works while the program runs, also for files that `outputs` does not list.

    The exit code is 1 when a file did not arrive intact.
    """
    run = signed_run(app, run_name)
    folder = run.out_dir if out is None else str(out.resolve())
    services = services_for(app, run.provider, run.created_at)
    got: CollectResult | PullResult
    if path is None:
        got = pull(run, services, folder=folder)
        not_intact, renamed, left_out = got.evidence.damaged or (), dict(got.renamed), got.evidence.left_out
    else:
        got = pull_path(run, services, path, folder=folder)
        not_intact, renamed, left_out = got.damaged, dict(got.renamed), got.left_out
    damaged = f"not intact: {', '.join(not_intact)}" if not_intact else ""
    count = how_many(got.files, "file")
    lines = [f"{count}, {got.bytes / 1e6:.1f} MB in {folder}", damaged, left_out_lines(left_out)]
    lines += [
        f"{place} was saved as {name}, because another file has its name" for place, name in renamed.items()
    ]
    if path is None and run.phase is Phase.TRAIN and read_job(run.spec_json).command is not None:
        lines.append(f"what the program has just written: vastrun pull {run.id} PATH --out {folder}")
    document = PullDocument.fill(
        got, run=run.id, folder=folder, damaged=not_intact, renamed=renamed, left_out=left_out
    )
    show(document, "\n".join(filter(None, lines)), as_json=as_json)
    exit_with(1 if not_intact else 0)


class CheckpointExport(Document, ExportedCheckpoint):
    """An exported checkpoint."""

    run: str
    file: str


def _which(_: click.Context, __: click.Parameter, value: str) -> str:
    if value not in ("latest", "best") and not (value.isascii() and value.isdecimal()):
        raise click.BadParameter(f"expected latest, best, or a step, got {value}")
    return value


@click.command("export")
@run_argument
@click.option("--to", metavar="FILE", required=True, type=PATH, help="File to write: .pt or .safetensors.")
@click.option(
    "--checkpoint",
    metavar="WHICH",
    default="latest",
    show_default=True,
    callback=_which,
    help="latest, best, or a step number.",
)
@click.option(
    "--all", "everything", is_flag=True, help="Also write the optimiser's state and both sets of weights."
)
@click.option("--force", is_flag=True, help="Replace the file if it exists.")
@json_option
@click.pass_obj
def export_command(
    app: App, run_name: str, to: Path, checkpoint: str, everything: bool, force: bool, as_json: bool
) -> None:
    """Write the weights of RUN's checkpoint to one file, for torch.load(…, weights_only=True) or safetensors.

    The weights have the model's own names; if the training kept an average of them, the average is written.
    No code in the checkpoint is executed, because it comes from a stranger's machine.
    """
    run = signed_run(app, run_name)
    written = app.exporter().export(run, to, which=checkpoint, everything=everything, force=force)
    kind = "tensors" if everything else "averaged weights" if written.averaged else "weights"
    text = f"{to}: {kind} of {written.checkpoint}, {written.tensors} tensors, {written.bytes / 1e6:.1f} MB"
    show(CheckpointExport.fill(written, run=run.id, file=str(to)), text, as_json=as_json)


def pull_path(run: Run, services: Services, path: str, *, folder: str) -> PullResult:
    """Download one file or folder that the program wrote, also while another launcher drives the run.

    Of several nodes each may have it; those of the further ones come to folders of their own.
    """
    got: list[PullResult] = []
    for node in (run, *services.ledger.runs(leader=run.id)):
        for machine in find_machines(node, services.provider)[:1]:
            target = replace(node, out_dir=folder + node.out_dir.removeprefix(run.out_dir))
            services.output_store.check(target)
            with closing(services.provider.connect(machine)) as remote:
                got.append(services.output_store.fetch(target, remote, path))
    if not got:
        raise UsageError(f"{run.id} no longer has a machine; its downloaded outputs are in {run.out_dir}")
    fetched = next((one for one in got if one.files or one.damaged), got[0])
    if not (fetched.files or fetched.damaged):
        why = fetched.left_out.files[0].why if fetched.left_out.files else "there is no file"
        raise UsageError(f"{path}: {why}", hint=f"vastrun why {run.id}")
    if len(got) == 1:
        return fetched
    return PullResult(
        files=sum(one.files for one in got),
        bytes=sum(one.bytes for one in got),
        damaged=tuple(name for one in got for name in one.damaged),
        left_out=fetched.left_out,
        renamed={name: place for one in got for name, place in one.renamed.items()},
    )


def pull(run: Run, services: Services, *, folder: str) -> CollectResult:
    """Fetch into `folder` what there is now. Raises HeldError when another launcher fills that folder."""
    machines = find_machines(run, services.provider)
    if not machines:
        raise UsageError(f"{run.id} no longer has a machine; its downloaded outputs are in {run.out_dir}")
    target, is_own = replace(run, out_dir=folder), folder == run.out_dir
    try:
        with held(run, services) if is_own else nullcontext():
            if not is_own:
                services.output_store.check(target)
            with closing(services.provider.connect(machines[0])) as remote:
                collected = services.output_store.collect(target, remote)
                services.output_store.describe(target, services.clock.now())
                return collected
    except HeldError as error:
        error.hint = f"vastrun pull {run.id} --out DIR"
        raise
