"""W&B runs: finds the runs that a user's program recorded, and ends those that it left open.

A program that was killed, or left by `os._exit`, never told W&B of its end: W&B shows its run as crashed
some minutes later, whatever became of it. Standard library only; another process ends the run.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Literal
from urllib.parse import unquote

from vastrun.contract import layout
from vastrun.contract.job import Job
from vastrun.contract.outcome import WandbRun
from vastrun.contract.records import read_json, read_small
from vastrun.onstart.run_module import module_command
from vastrun.onstart.supervision.curve_file import BYTES, CurvePoint, fields, first_integer
from vastrun.onstart.supervision.curve_formats import WandbFile
from vastrun.onstart.supervision.environment import wandb_id
from vastrun.onstart.supervision.logged_curves import wandb_files
from vastrun.onstart.supervision.processes import start_logged

WANDB_LOG = f"{layout.RAW_LOGS}/wandb.log"
TIMEOUT_S = 60.0
"""Timeout of the process that ends the runs: the machine costs money meanwhile."""
_MAX_NAME = 128


@dataclass
class ProgramWandbRun(WandbFile):
    """A run as its file on this machine has it."""

    entity: str = ""
    project: str = ""
    exit_code: int | None = None
    """Exit code with which the program ended it; None: it did not."""
    url: str = ""
    modified: float = 0.0
    """Epoch seconds of the last change."""

    @property
    def id(self) -> str:
        """Id of the run, by the name of its file: W&B writes its first record 32 KiB late."""
        return self.path.name[len("run-") : -len(".wandb")]

    @property
    def is_offline(self) -> bool:
        return self.path.parent.name.startswith("offline-")

    def _points_of(self, record: bytes) -> Iterator[CurvePoint]:
        for kind, _, content in fields(record):
            if kind == (17, BYTES):
                texts = {kind: text.decode("utf-8", "replace") for kind, _, text in fields(content)}
                self.entity, self.project = (texts.get((n, BYTES), "")[:_MAX_NAME] for n in (2, 3))
            elif kind == (18, BYTES):
                self.exit_code = first_integer(content)
        yield from ()

    def read_log(self, log: str) -> None:
        """Take entity, project and URL from the line with the URL that W&B printed at the start."""
        found = re.search(rf"(https?://[^\s/]+)/([^\s/]+)/([^\s/]+)/runs/{re.escape(self.id)}\b", log)
        if found:
            self.url = found[0]
            self.entity, self.project = unquote(found[2]), unquote(found[3])

    def python(self) -> str:
        """Return the interpreter that the program ran in, which has W&B; else the supervisor's."""
        with suppress(OSError, ValueError, KeyError, TypeError):
            text = read_small(self.path.parent / "files" / "wandb-metadata.json", 1 << 20)
            found = json.loads(text)["executable"]
            if isinstance(found, str) and Path(found).is_file() and os.access(found, os.X_OK):
                return found
        return sys.executable


def runs_since(box: Path, started_at: float) -> tuple[ProgramWandbRun, ...]:
    """Return the runs whose files changed since then (epoch seconds), of each id the newest; newest first."""
    found: dict[str, ProgramWandbRun] = {}
    for path in wandb_files(box):
        with suppress(OSError):
            run = ProgramWandbRun(path, modified=path.stat().st_mtime)
            is_newest = run.id not in found or found[run.id].modified < run.modified
            if is_newest and run.modified >= started_at and len(run.id) <= _MAX_NAME:  # the maximum of W&B
                found[run.id] = run
    for run in found.values():
        for _ in run.points(time.monotonic() + 5.0):  # a run whose end was not read is ended once more
            pass
    return tuple(sorted(found.values(), key=lambda run: run.modified, reverse=True))


def end_runs(
    box: Path, job: Job, environment: dict[str, str], *, started_at: float, exit_code: int
) -> WandbRun | None:
    """End the program's W&B runs that do not say how it ended. Return its main run; None: it has none.

    `environment`: of rank 0. The program's own word counts for runs that are not rank 0's own.
    """
    runs = runs_since(box, started_at)
    if not runs:
        return None
    own = environment.get("WANDB_RUN_ID", wandb_id(job))
    log = ""
    with suppress(OSError):
        log = read_small(box / layout.RAW_LOGS / "rank-0.log", 1 << 20).decode("utf-8", "replace")
    for run in runs:
        run.read_log(log)
    main = next((run for run in runs if run.id == own), runs[0])
    is_wrong = main.exit_code is not None and bool(main.exit_code) != bool(exit_code)
    to_end = [run for run in runs if run.exit_code is None or (run is main and is_wrong)]
    wrong = [run for run in to_end if not run.is_offline][:8]
    ended = _finish(box, environment, wrong, exit_code) if wrong else {}
    code = exit_code if main.id in ended else main.exit_code
    state: Literal["finished", "failed", "crashed"] = (
        "crashed" if code is None else "failed" if code else "finished"
    )
    mode: Literal["online", "offline"] = "offline" if main.is_offline else "online"
    url = ended.get(main.id) or main.url
    is_shown = url.isprintable() and 0 < len(url) <= 500  # else a program printed something else
    return WandbRun(id=main.id, mode=mode, state=state, url=url if is_shown else None)


def _finish(
    box: Path, environment: dict[str, str], runs: list[ProgramWandbRun], exit_code: int
) -> dict[str, str]:
    """End the runs in a separate process, and return the URL of each that it ended, by id."""
    named = [{"id": run.id, "entity": run.entity, "project": run.project} for run in runs]
    report = box / layout.RUN / ".wandb-ended.json"
    command = module_command("vastrun.onstart.supervision.finish_runs")
    words = (runs[0].python(), *command[1:], str(exit_code), json.dumps(named), str(report))
    with suppress(OSError, subprocess.TimeoutExpired):
        start_logged(words, box / WANDB_LOG, environment, cwd=box).wait(TIMEOUT_S)
    try:
        return read_json(dict[str, str], read_small(report, 1 << 14))
    except (OSError, ValueError):
        return {}
    finally:
        report.unlink(missing_ok=True)
