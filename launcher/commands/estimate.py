"""Estimate: a Python that has torch estimates a job's memory and speed; `auto` is resolved by that."""

from __future__ import annotations

import hashlib
import json
import re
import subprocess
import tempfile
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from vastrun.contract.gpus import peak_of
from vastrun.contract.records import read_json
from vastrun.launcher.bundle.checkout import worktree
from vastrun.launcher.config import read_job
from vastrun.launcher.core import Offer, Run
from vastrun.launcher.core.errors import JobValueError, UsageError, VastrunError
from vastrun.launcher.core.job import Code, JobSpec
from vastrun.launcher.decisions.workload import query_of, whole_gb
from vastrun.launcher.package_files import install_command, library_dir, trainer_dir
from vastrun.launcher.ports import Provider
from vastrun.trainer.job.workload import WRONG_MODEL, WorkloadQuery, Workloads

_TIMEOUT_S = 120.0
_MAX_BYTES = 1 << 16
_MAX_ERROR_CHARACTERS = 300
_OWN_REPORT = "workload: "
"""Start of the line with which the program reports an error itself."""
_MISSING = re.compile(r"No module named '([\w.]+)'")
_MEMORY, _BATCH = "resources.gpu_memory_gb", "train.batch"
_EXAMPLES = {_MEMORY: "24", _BATCH: "48"}


class EstimateError(VastrunError):
    """No estimate was possible; the text says what is missing."""


@dataclass(frozen=True, kw_only=True)
class WorkloadEstimator:
    """Asks `vastrun.trainer.workload` in a process of `python`; answers stay in `cache`, named by content."""

    python: str
    environment: Mapping[str, str]
    cache: Path

    def workloads(self, spec: JobSpec) -> Workloads | None:
        """Return what a step of the job takes; None for a program of the user's own.

        Raises EstimateError; JobValueError for a model of the user's code that cannot be trained.
        """
        query = query_of(spec)
        if query is None:
            return None
        return self.known(spec) or self._compute(query, spec.code)

    def with_largest_batch(self, spec: JobSpec, gpu_memory_gb: float) -> tuple[JobSpec, Workloads]:
        """Return the job with the largest batch of which such GPUs hold all at once, and what its steps take.

        Raises EstimateError, also where they do not hold one window a rank.
        """
        query = query_of(spec, gpu_memory_gb)
        assert query is not None and spec.train is not None
        workloads = self._load(query, spec.code) or self._compute(query, spec.code)
        # All of a rank's share at once, so that the first one says how large that is.
        batch = spec.world_size * workloads.workloads[0].micro_batch
        spec = replace(spec, train=replace(spec.train, batch=batch))
        if (settled := query_of(spec)) is not None:
            self._save(settled, spec.code, json.dumps(asdict(workloads)).encode())
        return spec, workloads

    def known(self, spec: JobSpec) -> Workloads | None:
        """Return what was found before; None: nothing was, or of another trainer."""
        query = query_of(spec)
        return None if query is None else self._load(query, spec.code)

    def _load(self, query: WorkloadQuery, code: Code | None) -> Workloads | None:
        # The code of an earlier job may have been removed or changed since.
        with suppress(OSError, ValueError, UsageError):
            return _read(self._cache_path(query, code).read_bytes()[: _MAX_BYTES + 1])
        return None

    def _compute(self, query: WorkloadQuery, code: Code | None) -> Workloads:
        # Python looks for modules where it is started: that must not be a folder of another user.
        with tempfile.TemporaryDirectory(prefix="vastrun-") as folder:
            (Path(folder) / "vastrun").symlink_to(library_dir())
            try:
                done = subprocess.run(
                    [self.python, "-m", "vastrun.trainer.workload"],
                    cwd=folder,
                    env=dict(self.environment),
                    input=json.dumps(asdict(query)).encode(),
                    capture_output=True,
                    timeout=_TIMEOUT_S,
                )
            except subprocess.TimeoutExpired as error:
                raise EstimateError(f"not known after {_TIMEOUT_S:.0f} s") from error
            except OSError as error:
                raise EstimateError(f"cannot start {self.python}: {error.strerror}") from error
        stderr = done.stderr.decode(errors="replace")
        if done.returncode == WRONG_MODEL and (reason := _last_line(stderr)).startswith(_OWN_REPORT):
            raise JobValueError(
                reason.removeprefix(_OWN_REPORT)[:_MAX_ERROR_CHARACTERS],
                hint="docs/own-model.md describes what a model takes and returns",
            )
        if done.returncode != 0:
            raise EstimateError(_reason(self.python, stderr))
        try:
            workloads = _read(done.stdout)
        except ValueError as error:
            raise EstimateError(f"{self.python} gave no answer: {error}") from error
        self._save(query, code, done.stdout)
        return workloads

    def _save(self, query: WorkloadQuery, code: Code | None, answer: bytes) -> None:
        """Keep the answer, whole or not at all. Where there is no room, it is asked for again."""
        place = self._cache_path(query, code)
        with suppress(OSError):
            place.parent.mkdir(parents=True, exist_ok=True)
            with tempfile.NamedTemporaryFile(dir=place.parent, delete=False) as file:
                file.write(answer)
            Path(file.name).replace(place)

    def _cache_path(self, query: WorkloadQuery, code: Code | None) -> Path:
        """Name it by all that it follows from: the query, the trainer, the user's model, Python and torch.

        Raises UsageError when the code cannot be uploaded.
        """
        digest = hashlib.sha256(json.dumps(asdict(query), sort_keys=True).encode())
        for package in (library_dir() / "contract", trainer_dir()):
            for path in sorted(package.rglob("*.py")):
                digest.update(path.read_bytes())
        if query.code is not None and code is not None:
            tree = worktree(code.path, code.exclude, code.include)
            for name in tree.paths:
                if name.endswith(".py"):
                    digest.update((tree.root / name).read_bytes())
        digest.update(f"{self.python} {_torch_version(Path(self.python))}".encode())
        return self.cache / f"{digest.hexdigest()[:32]}.json"


def try_model(
    estimator: WorkloadEstimator, spec: JobSpec, *, free: bool, note: Callable[[str], None] = lambda _: None
) -> None:
    """Try a model of the user's code on this computer, if it has torch, before a machine is paid for.

    Raises JobValueError for a model that cannot be trained. What this computer cannot tell is a note.
    """
    if free or spec.train is None or not spec.train.model.is_own:
        return
    try:
        estimator.workloads(spec)
    except EstimateError as error:
        note(f"{spec.train.model.name} was not tried on this computer: {error}")


def _read(text: bytes) -> Workloads:
    if len(text) > _MAX_BYTES:
        raise ValueError(f"more than {_MAX_BYTES} bytes")
    workloads: Workloads = read_json(Workloads, text)
    return workloads


def _torch_version(python: Path) -> str:
    """Return the torch versions installed for that Python, read from folder names: to start it takes
    seconds.
    """
    return " ".join(
        sorted(path.name for path in python.parent.parent.glob("lib/python*/site-packages/torch-*"))
    )


def _reason(python: str, stderr: str) -> str:
    last = _last_line(stderr)
    missing = _MISSING.search(stderr)
    if missing and not last.startswith(_OWN_REPORT):
        return f"{python} has no {missing[1]}; {install_command('trainer', python=python)} brings it"
    return last.removeprefix(_OWN_REPORT)[:_MAX_ERROR_CHARACTERS]


def _last_line(stderr: str) -> str:
    return (stderr.strip().splitlines() or ["no message"])[-1]


def resolve_auto(
    spec: JobSpec, estimator: WorkloadEstimator, provider: Provider, parent: Run | None = None
) -> tuple[JobSpec, str]:
    """Return the job with a number in place of `auto`, and a line that says what it became; empty without
    `auto`. `parent`: the run that it continues.

    The number is found once: it is what is rented, resumed and retried. Raises JobValueError if there is no
    estimate, and as `search` of a provider whose machines are of this computer.
    """
    for key in spec.auto_keys:
        try:
            if key == _BATCH:
                return _with_batch(spec, estimator, provider, parent)
            return _with_memory(spec, estimator)
        except EstimateError as error:
            raise _unknown(key, str(error)) from error
    return spec, ""


def _with_memory(spec: JobSpec, estimator: WorkloadEstimator) -> tuple[JobSpec, str]:
    any_memory = _with_gpu_memory(spec, 0.0)
    workloads = estimator.workloads(any_memory)
    found = None if workloads is None else whole_gb(workloads, any_memory)
    if found is None:
        raise _unknown(_MEMORY, "no GPU is large enough for what a rank computes at once")
    message = f"{_MEMORY}: auto is {found:g}: memory that a rank needs for its share of a batch in one step"
    return _with_gpu_memory(spec, found), message


def _with_batch(
    spec: JobSpec, estimator: WorkloadEstimator, provider: Provider, parent: Run | None
) -> tuple[JobSpec, str]:
    """Return the job with the batch of the run that it continues, or the largest that its GPUs hold.

    The job then asks for such GPUs: with smaller ones, another attempt would not have that room.
    """
    assert spec.train is not None
    if (batch := _batch_of(parent, spec)) is not None and parent is not None:
        spec = replace(spec, train=replace(spec.train, batch=batch))
        return spec, f"{_BATCH}: auto is {batch}, that of {parent.id}, which it continues"
    memory_gb = _gpu_memory_gb(spec, provider)
    spec, _ = estimator.with_largest_batch(spec, memory_gb)
    assert spec.train is not None
    message = (
        f"{_BATCH}: auto is {spec.train.batch}: a GPU with {memory_gb:g} GB has room for "
        f"{spec.train.global_batch // spec.world_size} windows at once"
    )
    return _with_gpu_memory(spec, memory_gb), message


def _batch_of(parent: Run | None, spec: JobSpec) -> int | None:
    """Return the batch of the run that is continued; another one would change the training halfway."""
    before = None if parent is None else read_job(parent.spec_json).train
    if before is None or spec.train is None:
        return None
    if (before.stage, before.stages) != (spec.train.stage, spec.train.stages):
        return None
    return None if before.global_batch % spec.world_size else before.global_batch


def _gpu_memory_gb(spec: JobSpec, provider: Provider) -> float:
    """Return the memory of the smallest GPU that the job may come to."""
    resources = spec.resources
    if resources.min_gpu_gb:
        return resources.min_gpu_gb
    peaks = [peak_of(name) for name in resources.gpu_names]
    known = [float(min(peak.sizes_gb)) for peak in peaks if peak is not None]
    if known and len(known) == len(peaks):
        return min(known)
    here = [offer.gpu_memory_gb for offer in _local_offers(spec, provider) if offer.gpu_memory_gb]
    if here:
        return min(here)
    raise JobValueError(
        f"{_BATCH}: auto follows from the memory of the GPUs, which may be of any size here",
        hint=f"--set {_MEMORY}=24, or name them in resources.gpu_names",
    )


def _local_offers(spec: JobSpec, provider: Provider) -> Sequence[Offer]:
    """Return what is offered where it can be only one kind of machine; a market has any."""
    if not provider.free or spec.train is None:
        return ()
    return provider.search(replace(spec, train=replace(spec.train, batch=spec.world_size)))


def _with_gpu_memory(spec: JobSpec, size_gb: float) -> JobSpec:
    return replace(spec, resources=replace(spec.resources, gpu_memory_gb=size_gb))


def _unknown(key: str, why: str) -> JobValueError:
    return JobValueError(f"{key}: cannot estimate auto: {why}", hint=f"--set {key}={_EXAMPLES[key]}")
