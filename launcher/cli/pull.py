"""`vastrun pull`: download a run's outputs, or a single file or folder of its program."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import click

from vastrun.launcher.app_context import AppContext
from vastrun.launcher.cli.options import json_option, run_argument, the_run
from vastrun.launcher.cli.output import show
from vastrun.launcher.commands.pull import pull, pull_path
from vastrun.launcher.core import CollectResult, LeftOutFiles, PullResult
from vastrun.launcher.run_services import services_for
from vastrun.launcher.ui.documents.document import Document
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
@click.option("--out", metavar="DIR", type=click.Path(path_type=Path), help="Download into another folder.")
@json_option
@click.pass_obj
def command(app: AppContext, run_name: str, path: str | None, out: Path | None, as_json: bool) -> None:
    """Download the outputs of RUN so far from its machine; files already here are kept.

    With PATH, download only that file or folder. It is relative to the code folder or to $VASTRUN_OUTPUTS,
    as in `vastrun why`. This works while the program runs, also for files that `outputs` does not list.
    """
    run = the_run(app, run_name)
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
    lines = [f"{got.files} files, {got.bytes / 1e6:.1f} MB in {folder}", damaged, left_out_lines(left_out)]
    lines += [
        f"{place} was saved as {name}, because another file has its name" for place, name in renamed.items()
    ]
    document = PullDocument.fill(
        got, run=run.id, folder=folder, damaged=not_intact, renamed=renamed, left_out=left_out
    )
    show(document, "\n".join(filter(None, lines)), as_json=as_json)
