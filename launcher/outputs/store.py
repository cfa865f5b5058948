"""The output store: a run's outputs in a folder of this computer, each checked against its checksum."""

from __future__ import annotations

import math
import secrets
import shlex
import tempfile
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path, PurePosixPath

from vastrun.contract import layout
from vastrun.contract.outcome import FileChecksum
from vastrun.launcher.core import CheckpointCopy, CollectResult, LeftOutFiles, PullResult, Run
from vastrun.launcher.core.errors import BoxError, StorageError
from vastrun.launcher.decisions.stages import stage_end_steps
from vastrun.launcher.gate import caps
from vastrun.launcher.gate.box_reader import fetch_small_file
from vastrun.launcher.gate.caps import ExchangeBudget
from vastrun.launcher.gate.manifest import PULLING, parse_manifest
from vastrun.launcher.outputs import disk
from vastrun.launcher.outputs.checkpoints import continue_copy
from vastrun.launcher.outputs.collect import IgnoresCase, collect, download_files, ignores_case, local_paths
from vastrun.launcher.outputs.folder import START_SCRIPT, Outputs, place_of, renamed_files
from vastrun.launcher.outputs.tail import download_log, grow_metrics
from vastrun.launcher.ports import ChecksExchange, Remote

Index = Callable[[Run, float], Mapping[str, str | bytes]]
"""Texts by the names of their files, from a run and the time."""
Report = Callable[[Run, float], str]
"""The page of a run, as HTML."""
REPORT = "report.html"
PAGE_FAULTS = (ArithmeticError, AttributeError, LookupError, TypeError, ValueError)
"""Errors that a bug in a page may raise. The run has ended: a page must not stop its launcher."""
_LIST_S = 1800.0
"""Limit for the checksums of what is fetched."""


class FolderStore:
    """A folder a run. `OutputStore` says what each verb promises."""

    def __init__(
        self,
        disk_ignores_case: IgnoresCase = ignores_case,
        index: Index | None = None,
        report: Report | None = None,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        """`index` and `report` write what `describe` puts there; None: nothing. `now`: for its exchanges."""
        self._now = now
        self._disk_ignores_case = disk_ignores_case
        self._index, self._report = index, report

    def check_unused(self, run: Run) -> None:
        with disk.disk_errors(run.out_dir) as out:
            disk.check_unused(out, run.id)

    def check(self, run: Run) -> None:
        with disk.disk_errors(run.out_dir) as out:
            out.mkdir(parents=True, exist_ok=True)
            with tempfile.TemporaryFile(dir=out) as file:
                file.write(b"\0")
            disk.check_unused(out, run.id)
            disk.claim(out, run.id)
        disk.need_space(out, 0)

    def save_start_script(self, run: Run, text: str) -> None:
        with disk.disk_errors(run.out_dir) as out:
            _write(out, {START_SCRIPT: text})

    def download_log(self, run: Run, remote: Remote) -> str:
        with disk.disk_errors(run.out_dir) as out:
            return download_log(out, remote, whole_lines=True).decode(errors="replace")

    def download_checkpoint(self, run: Run, remote: Remote, *, limit: int) -> CheckpointCopy | None:
        with disk.disk_errors(run.out_dir) as out:
            budget = self._budget("checkpoint", remote)
            return continue_copy(out, remote, limit, _disk_bytes(run), budget, stage_end_steps(run))

    def download_metrics(self, run: Run, remote: Remote) -> int:
        with disk.disk_errors(run.out_dir) as out:
            return grow_metrics(out, remote)

    def collect(self, run: Run, remote: Remote) -> CollectResult:
        with disk.disk_errors(run.out_dir) as out:
            not_shown = 0
            while part := download_log(out, remote, whole_lines=False):
                not_shown += len(part)
            budget = self._budget("outputs", remote)
            collected = collect(out, remote, self._disk_ignores_case, _disk_bytes(run), budget)
            return replace(collected, log_bytes_not_shown=not_shown)

    def fetch(self, run: Run, remote: Remote, path: str | None, *, max_bytes: float = math.inf) -> PullResult:
        name = f"{layout.PULL}/{secrets.token_hex(8)}.json"
        words = [name] if path is None else [name, path]
        command = f"bash onstart/module.sh transfer.path_listing {' '.join(map(shlex.quote, words))}"
        with disk.disk_errors(run.out_dir) as out:
            budget = self._budget("outputs", remote)
            done = remote.run(command, timeout_s=_LIST_S)
            if done.exit_code != 0:
                why = repr(done.stderr.strip()[-200:])
                raise BoxError(f"the machine cannot list {path or 'its files'}: {why}")
            manifest = fetch_small_file(remote, name, caps.SMALL_FILES[layout.MANIFEST], budget)
            listing = parse_manifest(manifest, min(_disk_bytes(run), max_bytes), budget)
            files = [file for file in listing.files if _is_program_file(file)]
            # Nothing else may be replaced here: evidence, checkpoints, the log.
            rejected = [file.path for file in listing.files if not _is_program_file(file)]
            requested = {
                _own_place(out, place, file, budget): file
                for place, file in local_paths(out, files, self._disk_ignores_case).items()
            }
            damaged = [*download_files(out, requested, remote, budget, PULLING), *listing.rejected, *rejected]
            # An older copy may lie at the place of one that did not arrive.
            lost = set(damaged)
            home = [place for place, file in requested.items() if file.path not in lost and place.is_file()]
            return PullResult(
                files=len(home),
                bytes=sum(place.stat().st_size for place in home),
                damaged=tuple(damaged),
                renamed=renamed_files(out, requested),
                left_out=listing.left_out,
            )

    def left_out(self, run: Run) -> LeftOutFiles:
        return Outputs(run).left_out()

    def describe(self, run: Run, now: float) -> None:
        if not Outputs(run).log.is_file():
            return
        with disk.disk_errors(run.out_dir) as out:
            if self._index is not None:
                _write(out, self._index(run, now))
            if self._report is not None:
                try:
                    page = self._report(run, now)
                except PAGE_FAULTS as fault:
                    text = f"{REPORT} cannot be made: {type(fault).__name__}: {fault}"
                    raise StorageError(text) from fault
                _write(out, {REPORT: page})

    def _budget(self, exchange: str, remote: Remote) -> ExchangeBudget:
        """Return the budget of an exchange that begins."""
        allowance = caps.EXCHANGES[exchange]
        if isinstance(remote, ChecksExchange):
            return ExchangeBudget(allowance, check=remote.raise_if_stopped, now=self._now)
        return ExchangeBudget(allowance, now=self._now)


def _write(out: Path, texts: Mapping[str, str | bytes]) -> None:
    disk.need_space(out, sum(map(len, texts.values())))
    for name, text in texts.items():
        disk.write_file(out / name, text.encode(errors="replace") if isinstance(text, str) else text)


def _disk_bytes(run: Run) -> float:
    """Return the disk size of its machine in bytes, which bounds its outputs; infinity when unknown."""
    return math.inf if run.offer is None else run.offer.disk_gb * 1e9


def _own_place(out: Path, place: Path, file: FileChecksum, budget: ExchangeBudget) -> Path:
    """Return a place with a number where one of the downloaded outputs has the file's place.

    Before those are downloaded, what lies there is an earlier state of the same file.
    """
    if not place_of(out, layout.MANIFEST).is_file():
        return place
    numbered = (place.with_name(f"{place.name}.{number}") for number in range(1, 100))
    free = (
        one for one in (place, *numbered) if not one.exists() or disk.is_complete(one, file, budget.check)
    )
    return next(free, place)


def _is_program_file(file: FileChecksum) -> bool:
    path = PurePosixPath(file.path)
    return any(path.is_relative_to(root) for root in (layout.CODE, layout.OUTPUTS))
