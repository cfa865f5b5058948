"""`vastrun bugreport`: write one file about a run for a bug report, without what is private."""

from __future__ import annotations

import json
import platform
import re
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import click

from vastrun.launcher.app import App
from vastrun.launcher.bundle.archive import Archive
from vastrun.launcher.cli.doctor import findings_of
from vastrun.launcher.cli.options import FILE, json_option, run_argument, the_run
from vastrun.launcher.cli.output import show
from vastrun.launcher.commands.explanation import explain
from vastrun.launcher.config import read_job
from vastrun.launcher.core import NOTHING, Run
from vastrun.launcher.core.errors import VastrunError
from vastrun.launcher.core.labels import member_folder
from vastrun.launcher.core.secrets import Mask, job_secrets, public_job, values_in
from vastrun.launcher.outputs.disk import disk_errors
from vastrun.launcher.outputs.folder import TRANSCRIPT, GrowingFile, Outputs
from vastrun.launcher.transcript import MAX_BYTES, row_of, to_jsonable
from vastrun.launcher.ui.document import Document
from vastrun.launcher.ui.render.amounts import table

_LOG_LINES = 300
_CONTENTS: Mapping[str, str] = {
    TRANSCRIPT: "each call to the provider and the machine",
    "run.json": "the run's row: phase, cause, proofs, verdict, cost",
    "events.jsonl": "its events",
    "job.json": "the job, without values that are secret",
    "outcome.json": "the evidence that its box wrote",
    "log.txt": f"the last {_LOG_LINES} lines of its log",
    "doctor.txt": "the findings of vastrun doctor about this computer",
    "versions.json": "versions of vastrun, Python and this system",
}
"""Files that a report may contain, with a description each."""


class BugReport(Document):
    """The bug report that was written."""

    file: str
    parts: Sequence[ReportPart]


@click.command("bugreport")
@run_argument
@click.option("--output", metavar="FILE", type=FILE, help="File to write [bugreport-RUN.tar.gz].")
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
    parts = write_report(app, run, file)
    rows = [(part.name, f"{part.bytes:,}", part.what) for part in parts]
    listed = table(("FILE", "BYTES", "WHAT"), rows, right=(1,))
    show(BugReport(file=str(file), parts=parts), f"{file}\n\n{listed}", as_json=as_json)


def _private(app: App, run: Run) -> PrivateData:
    spec, knows = read_job(run.spec_json), False
    mask = Mask([*app.secrets(), *job_secrets(spec)])
    with suppress(VastrunError):
        mask.learn(values_in(app.packer(NOTHING).secrets(spec, run)))
        knows = True
    words = {run.out_dir: "<outputs>", str(Path.cwd()): "<here>", **app.private_words()}
    return PrivateData(mask=mask, words=words, knows_secrets=knows)


@dataclass(frozen=True, kw_only=True)
class ReportPart:
    """One file of a report."""

    name: str
    what: str
    bytes: int


@dataclass(frozen=True, kw_only=True)
class PrivateData:
    """Secrets and names that must not appear in a report."""

    mask: Mask
    words: Mapping[str, str]
    """Names of this computer, its user and their folders, each with what stands in its place."""
    knows_secrets: bool
    """False: the job's secrets cannot be read any more, so that none can be found in a text."""

    def hide(self, text: str) -> str:
        """Return the text without them."""
        text = self.mask.hide(text)
        # The longest first: a folder may lie in another. A short one, such as `/`, is in every text.
        known = sorted((word for word in self.words if len(word) > 3), key=len, reverse=True)
        for word in known:
            for written in {word, json.dumps(word)[1:-1]}:
                # Not within another word: a short name of a user is a part of many.
                parts = (
                    re.split(rf"(?<![\w-]){re.escape(written)}(?![\w-])", text) if written in text else [text]
                )
                text = self.words[word].join(parts)
        return text


def write_report(app: App, run: Run, file: Path) -> Sequence[ReportPart]:
    """Write the archive, and return what is in it. Raises StorageError."""
    private = _private(app, run)
    texts = _texts(app, run, private)
    hidden = {name: private.hide(text).encode(errors="replace") for name, text in texts.items() if text}
    parts = [
        ReportPart(name=name, what=_CONTENTS.get(name, "the calls of a further node"), bytes=len(content))
        for name, content in hidden.items()
    ]
    with disk_errors(file.parent):
        file.parent.mkdir(parents=True, exist_ok=True)
        with Archive(file) as archive:
            for name, content in hidden.items():
                archive.add_bytes(f"bugreport-{run.id}/{name}", content)
    return parts


def _texts(app: App, run: Run, private: PrivateData) -> Mapping[str, str]:
    ledger, outputs = app.ledger(), Outputs(run)
    explained = explain(ledger, run, app.now())
    versions = {"python": sys.version.split()[0], "system": platform.platform()}
    for package in ("vastrun", "click", "pydantic", "paramiko", "vastai", "docker", "torch"):
        with suppress(PackageNotFoundError):
            versions[package] = version(package)
    # For a key only whether it is accepted, since the rest describes an account.
    findings = (
        f"{one.health:4} {one.name}: {'(left out)' if one.name.endswith(' key') else one.text}\n"
        for one in findings_of(app, run.provider)
    )
    nodes = {
        f"{member_folder(one.node)}.{TRANSCRIPT}": _transcript(Outputs(one))
        for one in ledger.runs(leader=run.id)
    }
    cost = {"verdict": run.verdict, "usd": explained.row.usd}
    outcome = explained.outcome
    return {
        TRANSCRIPT: _transcript(outputs),
        **nodes,
        "run.json": _json(private, {**row_of(run), **cost}),
        "events.jsonl": "".join(
            json.dumps(to_jsonable(event, private.mask)) + "\n" for event in ledger.events(run.id)
        ),
        "job.json": _json(private, public_job(read_job(run.spec_json))),
        "outcome.json": "" if outcome is None else _json(private, outcome),
        # What the transcript has of the log was masked when the secrets were known.
        "log.txt": GrowingFile(outputs.log, last_lines=_LOG_LINES).more() if private.knows_secrets else "",
        "versions.json": _json(private, versions),
        "doctor.txt": "".join(findings),
    }


def _transcript(outputs: Outputs) -> str:
    """Return the transcript: of the run, and of those before it that left it their folder."""
    try:
        with outputs.transcript.open("rb") as file:
            return file.read(MAX_BYTES).decode("ascii", "replace")
    except OSError:
        return ""


def _json(private: PrivateData, value: Any) -> str:
    return json.dumps(to_jsonable(value, private.mask), indent=1) + "\n"
