"""Resolve `auto`: replace it with a number by an estimate of the steps before a machine is rented."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from vastrun.contract.gpus import peak_of
from vastrun.launcher.commands.estimate import EstimateError, WorkloadEstimator
from vastrun.launcher.config import read_job
from vastrun.launcher.core import Offer, Run
from vastrun.launcher.core.errors import JobValueError
from vastrun.launcher.core.job import JobSpec
from vastrun.launcher.decisions.workload import whole_gb
from vastrun.launcher.ports import Provider

_MEMORY, _BATCH = "resources.gpu_memory_gb", "train.batch"
_EXAMPLES = {_MEMORY: "24", _BATCH: "48"}


@dataclass(frozen=True, kw_only=True)
class ResolvedJob:
    """A job whose every value is known."""

    spec: JobSpec
    message: str = ""
    """Line that says what `auto` became; empty where the job has no `auto`."""


def resolve_auto(
    spec: JobSpec, estimator: WorkloadEstimator, provider: Provider, parent: Run | None = None
) -> ResolvedJob:
    """Return the job with a number in place of `auto`. `parent`: the run that it continues.

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
    return ResolvedJob(spec=spec)


def _with_memory(spec: JobSpec, estimator: WorkloadEstimator) -> ResolvedJob:
    any_memory = _with_gpu_memory(spec, 0.0)
    workloads = estimator.workloads(any_memory)
    found = None if workloads is None else whole_gb(workloads, any_memory)
    if found is None:
        raise _unknown(_MEMORY, "no GPU is large enough for all that a rank should compute at once")
    message = f"{_MEMORY}: auto is {found:g}: memory that a rank needs for its share of a batch in one step"
    return ResolvedJob(spec=_with_gpu_memory(spec, found), message=message)


def _with_batch(
    spec: JobSpec, estimator: WorkloadEstimator, provider: Provider, parent: Run | None
) -> ResolvedJob:
    """Return the job with the batch of the run that it continues, or the largest that its GPUs hold.

    The job then asks for such GPUs: with smaller ones, another attempt would not have that room.
    """
    assert spec.train is not None
    if (batch := _batch_of(parent, spec)) is not None and parent is not None:
        spec = replace(spec, train=replace(spec.train, batch=batch))
        return ResolvedJob(
            spec=spec, message=f"{_BATCH}: auto is {batch}, as of {parent.id}, which it continues"
        )
    memory_gb = _gpu_memory_gb(spec, provider)
    spec, _ = estimator.with_largest_batch(spec, memory_gb)
    assert spec.train is not None
    message = (
        f"{_BATCH}: auto is {spec.train.batch}: a GPU with {memory_gb:g} GB has room for "
        f"{spec.train.global_batch // spec.world_size} windows at once"
    )
    return ResolvedJob(spec=_with_gpu_memory(spec, memory_gb), message=message)


def _batch_of(parent: Run | None, spec: JobSpec) -> int | None:
    """Return the batch of the run that is continued; another one would change the training halfway."""
    before = None if parent is None else read_job(parent.spec_json).train
    if before is None or spec.train is None or before.stage != spec.train.stage:
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
