"""Estimate: a Python that has torch estimates a job's memory and speed; `auto` is resolved by that."""

from __future__ import annotations

import hashlib
import json
import re
import subprocess
import tempfile
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from vastrun.contract.program import package_folder
from vastrun.contract.records import read_json, write_atomically
from vastrun.contract.workload import WRONG_MODEL, Workloads
from vastrun.launcher.bundle.checkout import code_tree
from vastrun.launcher.config import program_of
from vastrun.launcher.config.program_kinds import context_of
from vastrun.launcher.core.errors import JobValueError, UsageError, VastrunError
from vastrun.launcher.core.job import JobSpec
from vastrun.launcher.decisions.workload import whole_gb
from vastrun.launcher.package_files import install_command, library_dir

_TIMEOUT_S = 120.0
_MAX_BYTES = 1 << 16
_MAX_ERROR_CHARACTERS = 300
_OWN_REPORT = "workload: "
"""Start of the line with which the program reports an error itself."""
_MISSING = re.compile(r"No module named '([\w.]+)'")
_MEMORY = "resources.gpu_memory_gb"


class EstimateError(VastrunError):
    """No estimate was possible; the text says what is missing."""


@dataclass(frozen=True, kw_only=True)
class WorkloadEstimator:
    """Asks the program's module in a process of `python`; answers stay in `cache`, named by content."""

    python: str
    environment: Mapping[str, str]
    cache: Path

    def workloads(self, spec: JobSpec) -> Workloads | None:
        """Return what a step of the job takes; None for a program of the user's own.

        Raises EstimateError; JobValueError for a model of the user's code that cannot be trained.
        """
        query = program_of(spec).workload_query(context_of(spec))
        return None if query is None else self._load(query, spec) or self._compute(query, spec)

    def known(self, spec: JobSpec) -> Workloads | None:
        """Return what was found before; None: nothing was, or by another version of the program."""
        query = program_of(spec).workload_query(context_of(spec))
        return None if query is None else self._load(query, spec)

    def _load(self, query: Mapping[str, Any], spec: JobSpec) -> Workloads | None:
        # The code of an earlier job may have been removed or changed since.
        with suppress(OSError, ValueError, UsageError):
            return _read(self._cache_path(query, spec).read_bytes()[: _MAX_BYTES + 1])
        return None

    def _compute(self, query: Mapping[str, Any], spec: JobSpec) -> Workloads:
        words = [self.python, "-m", program_of(spec).estimate_module]
        try:
            done = run_module(words, self.environment, json.dumps(query).encode(), timeout_s=_TIMEOUT_S)
        except subprocess.TimeoutExpired as error:
            raise EstimateError(f"not known after {_TIMEOUT_S:.0f} s") from error
        except OSError as error:
            raise EstimateError(f"cannot start {self.python}: {error.strerror}") from error
        reason, missing = failure_of(done)
        is_own_report, reason = reason.startswith(_OWN_REPORT), reason.removeprefix(_OWN_REPORT)
        if done.returncode == WRONG_MODEL and is_own_report:
            hint = "docs/own-model.md describes what a model takes and returns"
            raise JobValueError(reason[:_MAX_ERROR_CHARACTERS], hint=hint)
        if done.returncode != 0 and missing and not is_own_report:
            command = install_command("trainer", python=self.python)
            raise EstimateError(f"{self.python} has no {missing}; {command} brings it")
        if done.returncode != 0:
            raise EstimateError(reason[:_MAX_ERROR_CHARACTERS])
        try:
            workloads = _read(done.stdout)
        except ValueError as error:
            raise EstimateError(f"{self.python} gave no answer: {error}") from error
        # Kept whole or not at all. Where there is no room, it is asked for again.
        with suppress(OSError):
            write_atomically(self._cache_path(query, spec), done.stdout.decode(), durable=False)
        return workloads

    def _cache_path(self, query: Mapping[str, Any], spec: JobSpec) -> Path:
        """Name it by all that it follows from: the query, the program, the user's model, Python and torch.

        Raises UsageError when the code cannot be uploaded.
        """
        digest = hashlib.sha256(json.dumps(query, sort_keys=True).encode())
        for package in (library_dir() / "contract", package_folder(program_of(spec).package)):
            for path in sorted(package.rglob("*.py")) if package else ():
                digest.update(path.read_bytes())
        if program_of(spec).own_model and spec.code is not None:
            tree = code_tree(spec)
            for name in tree.paths:
                if name.endswith(".py"):
                    digest.update((tree.root / name).read_bytes())
        # By the names of folders: to start that Python, which knows its torch, takes seconds.
        installed = Path(self.python).parent.parent.glob("lib/python*/site-packages/torch-*")
        digest.update(f"{self.python} {' '.join(sorted(path.name for path in installed))}".encode())
        return self.cache / f"{digest.hexdigest()[:32]}.json"


def try_model(
    estimator: WorkloadEstimator, spec: JobSpec, *, free: bool, note: Callable[[str], None] = lambda _: None
) -> None:
    """Try a model of the user's code on this computer, if it has torch, before a machine is paid for.

    Raises JobValueError for a model that cannot be trained. What this computer cannot tell is a note.
    """
    model = program_of(spec).own_model
    if free or not model:
        return
    try:
        estimator.workloads(spec)
    except EstimateError as error:
        note(f"{model} was not tried on this computer: {error}")


def _read(text: bytes) -> Workloads:
    if len(text) > _MAX_BYTES:
        raise ValueError(f"more than {_MAX_BYTES} bytes")
    workloads: Workloads = read_json(Workloads, text)
    return workloads


def run_module(
    words: Sequence[str],
    environment: Mapping[str, str],
    stdin: bytes = b"",
    *,
    timeout_s: float | None = None,
) -> subprocess.CompletedProcess[bytes]:
    """Run `PYTHON -m MODULE...` with this vastrun. Raises OSError, subprocess.TimeoutExpired."""
    # Python looks for modules where it is started: that must be no folder of another user or of a box.
    with tempfile.TemporaryDirectory(prefix="vastrun-") as folder:
        (Path(folder) / "vastrun").symlink_to(library_dir())
        return subprocess.run(
            words, cwd=folder, env=dict(environment), input=stdin, capture_output=True, timeout=timeout_s
        )


def failure_of(done: subprocess.CompletedProcess[bytes]) -> tuple[str, str]:
    """Return the last line on stderr, and the name of a module that Python lacks; empty: none."""
    stderr = done.stderr.decode(errors="replace")
    missing = _MISSING.search(stderr)
    return (stderr.strip().splitlines() or ["no message"])[-1], missing[1] if missing else ""


def resolve_auto(spec: JobSpec, estimator: WorkloadEstimator) -> tuple[JobSpec, str]:
    """Return the job with a number in place of `auto`, and a line that says what it became; empty without
    `auto`.

    The number is found once: it is what is rented, resumed and retried. Raises JobValueError if there is no
    estimate.
    """
    if spec.resources.gpu_memory_gb != "auto":
        return spec, ""
    any_memory = _with_gpu_memory(spec, 0.0)
    try:
        workloads = estimator.workloads(any_memory)
    except EstimateError as error:
        raise _unknown(str(error)) from error
    found = None if workloads is None else whole_gb(workloads, any_memory)
    if found is None:
        raise _unknown("no GPU is large enough for what a rank computes at once")
    message = f"{_MEMORY}: auto is {found:g}: memory that a rank needs for its share of a batch in one step"
    return _with_gpu_memory(spec, found), message


def _with_gpu_memory(spec: JobSpec, size_gb: float) -> JobSpec:
    return replace(spec, resources=replace(spec.resources, gpu_memory_gb=size_gb))


def _unknown(why: str) -> JobValueError:
    return JobValueError(f"{_MEMORY}: cannot estimate auto: {why}", hint=f"--set {_MEMORY}=24")
