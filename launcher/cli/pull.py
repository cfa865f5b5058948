"""`vastrun pull`: fetch a run's outputs again."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path

import click

from launcher.cli.options import json_option, run_argument, the_run
from launcher.cli.output import show
from launcher.commands.pulling import pull
from launcher.ui.render.left_out import left_out_lines
from launcher.wiring import Wiring


@click.command("pull")
@run_argument
@click.option("--out", metavar="DIR", type=click.Path(path_type=Path), help="Download into another folder.")
@json_option
@click.pass_obj
def command(wiring: Wiring, run_name: str, out: Path | None, as_json: bool) -> None:
    """Download what RUN has written so far from its running machine; files already here are kept."""
    run = the_run(wiring, run_name)
    folder = run.out_dir if out is None else str(out.resolve())
    got = pull(run, wiring.services_for(run.provider, run.created_at), folder=folder)
    not_intact = got.evidence.damaged or ()
    counts = {"files": got.files, "bytes": got.bytes, "damaged": not_intact, "renamed": dict(got.renamed)}
    damaged = f"\nnot intact: {', '.join(not_intact)}" if not_intact else ""
    left_out = left_out_lines(got.evidence.left_out)
    text = f"{got.files} files, {got.bytes / 1e6:.1f} MB in {folder}{damaged}"
    text += f"\n{left_out}" if left_out else ""
    text += "".join(
        f"\n{path} was saved as {name}: another file has its name" for path, name in got.renamed.items()
    )
    document = {"run": run.id, "folder": folder, **counts, "left_out": asdict(got.evidence.left_out)}
    show(document, text, as_json=as_json)
