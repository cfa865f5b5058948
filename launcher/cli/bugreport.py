"""`vastrun bugreport`: write one file about a run for a bug report."""

from __future__ import annotations

import platform
import sys
from collections.abc import Sequence
from contextlib import suppress
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import click

from vastrun.launcher.app import App
from vastrun.launcher.cli.options import json_option, run_argument, the_run
from vastrun.launcher.cli.output import show
from vastrun.launcher.commands.bugreport import PrivateData, ReportPart, write_report
from vastrun.launcher.commands.doctor import CheckedSetup, Finding, examine
from vastrun.launcher.config import read_job
from vastrun.launcher.core import NOTHING, Run
from vastrun.launcher.core.errors import VastrunError
from vastrun.launcher.core.secrets import Mask, job_secrets, values_in
from vastrun.launcher.ui.document import Document
from vastrun.launcher.ui.render.table import table

_PACKAGES = ("vastrun", "click", "pydantic", "paramiko", "vastai", "docker", "torch")


class BugReport(Document):
    """The bug report that was written."""

    file: str
    parts: Sequence[ReportPart]


@click.command("bugreport")
@run_argument
@click.option(
    "--output",
    metavar="FILE",
    type=click.Path(path_type=Path, dir_okay=False),
    help="File to write [bugreport-RUN.tar.gz].",
)
@json_option
@click.pass_obj
def command(app: App, run_name: str, output: Path | None, as_json: bool) -> None:
    """Write an archive about RUN, and list its contents.

    It has the transcript, events, job, verdict, last log lines, the findings of vastrun doctor, and versions.
    Secrets, your name, your computer's name and your folders are masked. Look at it before you send it: a
    log contains whatever your program printed.
    """
    run = the_run(app, run_name)
    file = output or Path(f"bugreport-{run.id}.tar.gz")
    parts = write_report(
        file,
        run,
        app.ledger(),
        app.now(),
        private=_private(app, run),
        versions=_versions(),
        findings=_findings(app, run),
    )
    show(BugReport(file=str(file), parts=parts), f"{file}\n\n{_table(parts)}", as_json=as_json)


def _private(app: App, run: Run) -> PrivateData:
    spec, knows = read_job(run.spec_json), False
    mask = Mask([*app.secrets(), *job_secrets(spec)])
    with suppress(VastrunError):
        mask.learn(values_in(app.packer(NOTHING).secrets(spec, run)))
        knows = True
    words = {run.out_dir: "<outputs>", str(Path.cwd()): "<here>", **app.private_words()}
    return PrivateData(mask=mask, words=words, knows_secrets=knows)


def _findings(app: App, run: Run) -> list[Finding]:
    setup = CheckedSetup(
        state=app.state,
        python=app.python,
        ledger=app.ledger,
        provider=app.provider,
        chosen=run.provider,
        now=app.now,
    )
    return list(examine(setup))


def _versions() -> dict[str, str]:
    found = {"python": sys.version.split()[0], "system": platform.platform()}
    for package in _PACKAGES:
        with suppress(PackageNotFoundError):
            found[package] = version(package)
    return found


def _table(parts: Sequence[ReportPart]) -> str:
    rows = [(part.name, f"{part.bytes:,}", part.what) for part in parts]
    return table(("FILE", "BYTES", "WHAT"), rows, right=(1,))
