"""Export: write the weights of a downloaded checkpoint to one file, by a Python that has torch."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from vastrun.contract.checkpoint_folder import FILES, SnapshotState
from vastrun.contract.records import read_json
from vastrun.launcher.commands.estimate import failure_of, run_module
from vastrun.launcher.config import program_of, read_job
from vastrun.launcher.core import Phase, Run
from vastrun.launcher.core.errors import StorageError, UsageError
from vastrun.launcher.outputs.folder import Outputs
from vastrun.launcher.outputs.index import contents_of
from vastrun.launcher.package_files import install_command

FORMATS = (".pt", ".safetensors")


@dataclass(frozen=True, kw_only=True)
class ExportedCheckpoint:
    """Result of an export, as the program's own module prints it."""

    checkpoint: str
    step: int
    tensors: int
    bytes: int
    averaged: bool


@dataclass(frozen=True, kw_only=True)
class Exporter:
    """Exports with the program's own reader, in a process of `python`, which has torch."""

    python: str
    environment: Mapping[str, str]

    def export(self, run: Run, to: Path, *, which: str, everything: bool, force: bool) -> ExportedCheckpoint:
        """Write the checkpoint of the run to `to`: the `latest` intact, the `best`, or that of a step.

        Raises UsageError when there is nothing to export or `to` is no place for it, StorageError when it
        fails.
        """
        checkpoints = Outputs(run).checkpoints
        if checkpoints is None:
            raise UsageError(
                f"{run.id} left no checkpoint in {run.out_dir}",
                hint=f"vastrun {'why' if run.phase is Phase.ENDED else 'attach'} {run.id}",
            )
        program = program_of(read_job(run.spec_json))
        if not program.export_module:
            path = _resume_path(run, checkpoints)
            raise UsageError(
                f"{run.id} ran {program.title}; its newest checkpoint is in the program's own format: {path}",
                hint=shlex.join(["cp", "-r", str(path), str(to)]),
            )
        if to.suffix not in FORMATS:
            raise UsageError(f"--to: expected a file that ends in {' or '.join(FORMATS)}, got {to}")
        if not to.absolute().parent.is_dir():
            raise UsageError(f"--to: there is no folder {to.absolute().parent}", hint=f"mkdir -p {to.parent}")
        if to.is_dir() or (to.exists() and not force):
            raise UsageError(f"--to: {to} exists", hint="another name, or --force to replace that file")
        options = ["--checkpoint", which, *(["--all"] if everything else [])]
        words = [str(checkpoints.absolute()), str(to.absolute()), *options]
        done = run_module([self.python, "-m", program.export_module, *words], self.environment)
        if done.returncode == 0:
            exported: ExportedCheckpoint = read_json(ExportedCheckpoint, done.stdout)
            return exported
        reason, missing = failure_of(done)
        if missing:
            raise StorageError(
                f"{self.python} has no {missing}, which an export needs",
                hint=install_command("trainer", "export", python=self.python),
            )
        raise StorageError(f"cannot export: {reason.removeprefix('export: ')}")


def _resume_path(run: Run, checkpoints: Path) -> Path:
    """Return what `{resume}` names in the newest checkpoint, else the folder of its files."""
    newest = checkpoints / (contents_of(run, ()).newest or "")
    files = newest / FILES
    # A machine wrote the path.
    path = (files / SnapshotState.of(newest).resume).resolve()
    if path.is_relative_to(files.resolve()) and path.exists():
        return path
    return files if files.is_dir() else newest
