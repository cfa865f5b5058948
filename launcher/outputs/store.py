"""The output store: a run's outputs in a folder of this computer, each checked against its checksum.

Also copies of a box's growing files, its log and its metrics, and a search in them.
"""

from __future__ import annotations

import fcntl
import math
import mmap
import os
import secrets
import shlex
import shutil
import tempfile
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import replace
from io import FileIO
from pathlib import Path, PurePosixPath

from vastrun.contract import layout
from vastrun.contract.outcome import FileChecksum
from vastrun.launcher.core import CheckpointCopy, CollectResult, LeftOutFiles, PullResult, Run
from vastrun.launcher.core.errors import BoxError, SliceOverError, StorageError
from vastrun.launcher.decisions.job_shape import stage_end_steps
from vastrun.launcher.gate import caps
from vastrun.launcher.gate.box_reader import fetch_small_file
from vastrun.launcher.gate.caps import LINE_CHARACTERS, LOG_BYTES, LOGS, METRICS_SLICE_BYTES, ExchangeBudget
from vastrun.launcher.gate.manifest import PULLING, parse_manifest
from vastrun.launcher.outputs import disk
from vastrun.launcher.outputs.checkpoints import continue_copy
from vastrun.launcher.outputs.collect import IgnoresCase, collect, download_files, ignores_case, local_paths
from vastrun.launcher.outputs.disk import need_space, write, write_file
from vastrun.launcher.outputs.folder import CHUNK, OVERLAP, START_SCRIPT, Outputs, place_of, renamed_files
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
MAX_LOG_CHUNK_BYTES = 2 << 20
"""Bytes of log in memory at once."""
_MAX_METRICS_BYTES = caps.SMALL_FILES[layout.METRICS]
LARGE_BYTES = 32 << 20
"""From here on, reading all lines takes more than a second."""


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


def download_log(out: Path, remote: Remote, *, whole_lines: bool) -> bytes:
    """Append what is new of the box's log to the copy here; return it."""
    place = place_of(out, layout.LOG)
    place.parent.mkdir(parents=True, exist_ok=True)
    with place.open("ab+", buffering=0) as log:
        fcntl.flock(log, fcntl.LOCK_EX)  # another process may show the same log
        new = _new_log_bytes(remote, log, os.fstat(log.fileno()).st_size)
        end = new.rfind(b"\n") + 1
        if whole_lines and (end or len(new) < LINE_CHARACTERS):
            new = new[:end]
        if new:
            need_space(out, len(new))
            write(log.fileno(), new)
            os.fsync(log.fileno())
    return new


def _new_log_bytes(remote: Remote, copy: FileIO, held: int) -> bytes:
    """Return what follows the `held` bytes of the local copy. The copy of a replaced log is kept."""
    last = os.pread(copy.fileno(), OVERLAP, max(0, held - OVERLAP))
    new = log_tail(remote, layout.LOG, held=held, last=last, limit=MAX_LOG_CHUNK_BYTES)
    log = Path(copy.name)
    if new is None:
        unused = next((place for place in _set_aside(log) if not place.exists()), None)
        if unused is None:
            raise BoxError(f"the log was restarted more than {LOGS} times")
        shutil.copyfile(log, unused)
        copy.truncate(0)
        return _new_log_bytes(remote, copy, 0)
    aside = sum(place.stat().st_size for place in _set_aside(log) if place.is_file())
    if new and held + len(new) + aside > LOG_BYTES:
        raise BoxError(f"the log is larger than {LOG_BYTES >> 30} GB")
    return new


def _set_aside(log: Path) -> list[Path]:
    return [log.with_name(f"{log.name}.{number}") for number in range(1, LOGS + 1)]


def log_tail(remote: Remote, path: str, *, held: int, last: bytes, limit: int) -> bytes | None:
    """Read what follows the first `held` bytes, whose end is `last` (up to OVERLAP bytes); at most `limit`.

    None: the file on the box does not begin with what is held: it was cut, or started again.
    A missing file has not grown: the end of the box is detected elsewhere.
    """
    seen = _read(remote, path, held - len(last), len(last), len(last) + limit)
    if seen.startswith(last):
        return seen[len(last) :]
    return None if seen or remote.read(path, limit=1) else b""


def _read(remote: Remote, path: str, offset: int, min_bytes: int, limit: int) -> bytes:
    """Read at least `min_bytes`, where available; a chunk that is not full is likely the last."""
    content = bytearray()
    while len(content) < limit:
        size = min(1 << 20, limit - len(content))
        try:
            chunk = remote.read(path, offset=offset + len(content), limit=size)
        except SliceOverError:
            if len(content) <= min_bytes:
                raise
            break
        content += chunk
        if not chunk or (len(chunk) < size and len(content) >= min_bytes):
            break
    return bytes(content)


def grow_metrics(out: Path, remote: Remote) -> int:
    """Append whole lines that are new, from one read of the box or two; return how many bytes.

    A training that is started again on its machine cuts the file back to its checkpoint: then the copy
    starts again, too. Raises BoxError when the box gives more than metrics take.
    """
    place = place_of(out, layout.METRICS)
    held = place.stat().st_size if place.is_file() else 0
    last = b""
    if held:
        with place.open("rb") as copy:
            copy.seek(max(0, held - OVERLAP))
            last = copy.read(OVERLAP)
    new = log_tail(remote, layout.METRICS, held=held, last=last, limit=METRICS_SLICE_BYTES)
    if new is not None:
        lines = _whole_lines(new)
        if held + len(lines) > _MAX_METRICS_BYTES:
            raise BoxError(f"the metrics are larger than {_MAX_METRICS_BYTES >> 20} MB")
        if lines:
            need_space(place.parent, len(lines))
            with place.open("ab", buffering=0) as copy:
                write(copy.fileno(), lines)
        return len(lines)
    content = _whole_lines(remote.read(layout.METRICS, limit=METRICS_SLICE_BYTES))
    need_space(out, len(content))
    write_file(place, content)  # at once: a reader finds the old ones or the new ones
    return len(content)


def _whole_lines(new: bytes) -> bytes:
    """The last line may still be written. Raises BoxError for one that has no end."""
    whole = new[: new.rfind(b"\n") + 1]
    if not whole and len(new) >= METRICS_SLICE_BYTES:
        raise BoxError(f"a line of the metrics is longer than {METRICS_SLICE_BYTES} bytes")
    return whole


def text_from_last(log: Path, mark: str) -> str:
    """Return the log from the last line with `mark` on, a chunk at most; empty where no line has it."""
    with suppress(OSError, ValueError), log.open("rb") as file:
        with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as content:
            at = content.rfind(mark.encode())
            begin = content.rfind(b"\n", 0, at) + 1
        if at >= 0:
            file.seek(begin)
            return file.read(CHUNK).decode("utf-8", "replace")
    return ""


def is_large(log: Path) -> bool:
    """Tell whether reading all lines of the log takes long."""
    with suppress(OSError):
        return log.stat().st_size >= LARGE_BYTES
    return False
