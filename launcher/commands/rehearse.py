"""A rehearsal: the steps of a run, one by one, on this computer, in a folder that stays."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import tarfile
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path, PurePosixPath

from vastrun.contract import layout
from vastrun.contract.job import Job
from vastrun.contract.program import ProgramSpec
from vastrun.launcher.bundle.checkout import data_in_code
from vastrun.launcher.config.program_kinds import program_spec
from vastrun.launcher.core import Bundle, LeftOutFiles
from vastrun.launcher.core.errors import NoOfferError, StorageError, UsageError
from vastrun.launcher.core.job import JobSpec
from vastrun.launcher.core.verdict import RunAssessment
from vastrun.launcher.decisions.run_assessment import assess_run
from vastrun.launcher.gate import caps
from vastrun.launcher.gate.box_reader import parse_evidence, parse_outcome, parse_step_ends
from vastrun.launcher.gate.manifest import Listing, parse_left_out, parse_manifest
from vastrun.launcher.outputs.folder import GrowingFile
from vastrun.launcher.package_files import onstart_dir
from vastrun.launcher.providers.local.remote import missing_requirement

CONFIG, FIT, UNPACK, TRAIN, RESUME = "config", "fit", "unpack", "train", "resume"
REPORT = "report"
_NAMES_PACKAGES = re.compile(
    r".*require.*\.(?:txt|in)|.*constraints.*\.txt|pyproject\.toml|setup\.(?:py|cfg)|environment.*\.ya?ml|.*\.lock"
)
"""Files of the code by which packages are installed."""
STOP = ("run.sh", "stop", "stopped")
KILL = (layout.LEASE_SCRIPT, "end", "{box}/run", "{box}/tmp")
"""Kill all processes of the run at once, as the end of a machine does, and remove their temporary files."""
_REPLACED = (layout.ONSTART, layout.PACKAGES, layout.CODE, layout.RESUME)
"""Folders of the box that a rehearsal replaces; the data stay."""


def select_steps(names: Sequence[str], spec: JobSpec) -> list[str]:
    """Return those steps, in their order; all but `fit` when none is named. Raises UsageError.

    `resume` is of commands, and needs the steps that start the program.
    """
    resume = [RESUME] if spec.command is not None else []
    steps = [CONFIG, FIT, *_box_steps(program_spec(spec)), *resume, REPORT]
    for name in names:
        if name not in steps:
            raise UsageError(f"there is no step named {name}", hint=f"one of {', '.join(steps)}")
    if RESUME in names:
        names = (*names, UNPACK, TRAIN)
    return [step for step in steps if (step in names if names else step != FIT)]


def _box_steps(program: ProgramSpec) -> dict[str, str]:
    """The steps that run on a box, in their order, with their names there: of scripts, and of the program."""
    scripts = (path.stem for path in (onstart_dir() / "steps.d").glob("[0-9][0-9]-*.sh"))
    names = sorted((*scripts, *(step.name for step in program.prepare)))
    return {name.lstrip("0123456789-"): name for name in names}


def rehearsal_folder(cache: Path, spec: JobSpec) -> Path:
    """Return the folder in which a job is rehearsed where no other is named."""
    return cache / "rehearsals" / spec.name


def left_out_of_rehearsal(cache: Path, spec: JobSpec) -> LeftOutFiles | None:
    """Return which files would not be downloaded, by the last rehearsal of the same job; None: there is none.

    Of a job whose outputs were changed since, it says nothing.
    """
    box = rehearsal_folder(cache, spec)
    try:
        job = Job.read(box)
        with (box / layout.MANIFEST).open("rb") as file:
            manifest = file.read(caps.SMALL_FILES[layout.MANIFEST])
    except (OSError, ValueError):
        return None
    files = None if job.checkpoints is None else job.checkpoints.files
    then = (job.program.argv, job.outputs, job.outputs_gb, files)
    if spec.command is None or then != (spec.command, spec.outputs, spec.outputs_gb, spec.checkpoints.files):
        return None
    return parse_left_out(manifest)


def _what_setup_installs(box: Path) -> tuple[object, dict[str, bytes]] | None:
    """Return the set-up commands and the files that name packages; None where the box has no job."""
    try:
        setup = json.loads((box / layout.JOB).read_bytes()).get("setup")
        if not (box / layout.CODE_ARCHIVE).is_file():
            return setup, {}
        with tarfile.open(box / layout.CODE_ARCHIVE) as archive:
            return setup, {
                member.name: file.read()
                for member in archive
                if _NAMES_PACKAGES.fullmatch(PurePosixPath(member.name).name)
                and (file := archive.extractfile(member)) is not None
            }
    except (OSError, ValueError, AttributeError, tarfile.TarError):
        return None


class Rehearsal:
    """A box without a lease, whose folder is `box`. `environment` is what its processes inherit."""

    def __init__(self, box: Path, python: str, environment: Mapping[str, str]) -> None:
        self._box = box
        self._environment = {
            **environment,
            "VASTRUN_BOX": str(box),
            "VASTRUN_INSTANCE": f"rehearsal-{box.name}",
            "VASTRUN_PROVIDER": "local",
            "VASTRUN_PYTHON": python,
        }

    def prepare(self, bundle: Bundle, spec: JobSpec, *, fresh: bool) -> None:
        """Put into the box what a run would be shipped; `afresh`: remove what was trained there before.

        Raises NoOfferError where no box can run, UsageError when the folder is no box, StorageError when it
        cannot be written.
        """
        wants, _ = missing_requirement()
        if wants:
            raise NoOfferError(f"a rehearsal {wants}", hint="vastrun launch JOB.yaml --provider docker")
        try:
            self._expect_box()
            for name in (*_REPLACED, *((layout.RUN,) if fresh else ())):
                shutil.rmtree(self._box / name, ignore_errors=True)
            (self._box / layout.STOP).unlink(missing_ok=True)
            self._box.mkdir(parents=True, exist_ok=True, mode=0o700)
            installed = _what_setup_installs(self._box)
            (self._box / layout.CODE_ARCHIVE).unlink(missing_ok=True)
            with tarfile.open(bundle.path) as archive:
                # Debian 12's Python, 3.11.2, knows no filters, and passes this over.
                archive.extraction_filter = getattr(tarfile, "data_filter", None)
                archive.extractall(self._box)
            # As they are here: links instead of copies.
            here = {file.target: file.path or "" for file in spec.data if file.url is None}
            links = {f"{layout.CODE}/{path}": name for path, name in data_in_code(spec).items()}
            for place, name in {**{f"{layout.DATA}/{name}": name for name in here}, **links}.items():
                (self._box / place).parent.mkdir(parents=True, exist_ok=True)
                (self._box / place).unlink(missing_ok=True)
                (self._box / place).symlink_to(Path(here[name]).expanduser().resolve())
            if _what_setup_installs(self._box) != installed:
                # A machine would not have what only an earlier rehearsal installed.
                shutil.rmtree(self._box / layout.OVERLAY, ignore_errors=True)
        except OSError as error:
            raise StorageError(f"cannot write {self._box}: {error.strerror or error}") from error

    def run_step(
        self,
        spec: JobSpec,
        step: str,
        secrets: bytes,
        show: Callable[[str], None],
        *,
        is_over: Callable[[str], bool] = lambda _: False,
        end: Sequence[str] = (),
    ) -> int:
        """Run the step of the job and return its exit code.

        `show` gets new lines of the log. Ctrl-C stops the step, so that a training saves, and is raised.
        `is_over` gets them, too; once it returns True, the script `end` is run: `STOP` or `KILL`.
        """
        # The step finds the secrets where a box does, and deletes them.
        place = self._box / layout.INBOX_SECRETS
        place.parent.mkdir(exist_ok=True, mode=0o700)
        place.touch(mode=0o600)
        place.write_bytes(secrets)
        log = GrowingFile(self._box / layout.LOG, last_lines=0)
        process = self._bash("only.sh", _box_steps(program_spec(spec))[step])
        try:
            while process.poll() is None:
                with suppress(subprocess.TimeoutExpired):
                    process.wait(0.1)
                show(lines := log.more())
                if end and is_over(lines):
                    self._bash(*(word.format(box=self._box) for word in end)).wait()
                    end = ()
        except KeyboardInterrupt:
            self._bash(*STOP).wait()
            process.wait()
            raise
        finally:
            show(log.more())
        return process.returncode

    def assessment(self, spec: JobSpec) -> RunAssessment:
        """Judge the last training by the box's own evidence."""
        ends = {end.step: end for end in parse_step_ends(self._read(layout.STEPS))}
        code = next((end.exit_code for step, end in ends.items() if step.endswith(f"-{TRAIN}")), None)
        evidence = parse_evidence(self._read(layout.OUTCOME), b"", code)
        return assess_run(replace(evidence, steps=tuple(ends.values())), spec)

    def scores(self) -> dict[str, float]:
        """Return the scores of the last training; none when it left none."""
        try:
            outcome = parse_outcome(self._read(layout.OUTCOME))
        except ValueError:
            return {}
        return dict(outcome.scores or {}) if outcome else {}

    def list_outputs(self) -> Listing | None:
        """List what would be downloaded of this training, and what would not; None where that fails."""
        with suppress(subprocess.TimeoutExpired):
            process = self._bash("module.sh", "transfer.manifest")
            try:
                process.wait(600.0)
            finally:
                process.kill()
            if process.returncode == 0:
                return parse_manifest(self._read(layout.MANIFEST))
        return None

    def _expect_box(self) -> None:
        """Raise UsageError for a folder with other files: a user's own folders may have the names that are
        replaced.
        """
        if (self._box / layout.JOB).is_file() or not self._box.is_dir():
            return
        if any(self._box.iterdir()):
            raise UsageError(
                f"{self._box} contains files that are not from a rehearsal", hint="--box with a new folder"
            )

    def _bash(self, script: str, *arguments: str) -> subprocess.Popen[bytes]:
        # In a session of its own: a Ctrl-C reaches it as a stop, so that a training saves.
        return subprocess.Popen(
            ["bash", f"{layout.ONSTART}/{script}", *arguments],
            cwd=self._box,
            env=self._environment,
            stdin=subprocess.DEVNULL,
            start_new_session=True,
        )

    def _read(self, name: str) -> bytes:
        with suppress(OSError):
            return (self._box / name).read_bytes()
        return b""
