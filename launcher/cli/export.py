"""`vastrun export`: write the weights of a checkpoint to one file."""

from __future__ import annotations

from pathlib import Path

import click

from vastrun.launcher.app_context import AppContext
from vastrun.launcher.cli.options import json_option, run_argument, the_run
from vastrun.launcher.cli.output import show
from vastrun.launcher.commands.export import ExportedCheckpoint
from vastrun.launcher.ui.documents.document import Document


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
@click.option(
    "--to",
    metavar="FILE",
    required=True,
    type=click.Path(path_type=Path),
    help="File to write: .pt or .safetensors.",
)
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
def command(
    app: AppContext, run_name: str, to: Path, checkpoint: str, everything: bool, force: bool, as_json: bool
) -> None:
    """Write the weights of RUN's checkpoint to one file, for torch.load or safetensors.

    The weights have the model's own names; if the training kept an average of them, the average is written.
    No code in the checkpoint is executed, because it comes from a stranger's machine.
    """
    run = the_run(app, run_name)
    written = app.make.exporter().export(run, to, which=checkpoint, everything=everything, force=force)
    kind = "tensors" if everything else "averaged weights" if written.averaged else "weights"
    text = f"{to}: {kind} of {written.checkpoint}, {written.tensors} tensors, {written.bytes / 1e6:.1f} MB"
    show(CheckpointExport.fill(written, run=run.id, file=str(to)), text, as_json=as_json)
