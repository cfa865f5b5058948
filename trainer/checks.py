"""Checks: compare the ranks before their first step and every `check_every` steps.

They find faults that would not end a training, but make it worthless: values that must be equal on all ranks
are, to the last bit, or the ranks that differ are named.
"""

import hashlib
import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import combinations
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.distributed.tensor import DTensor

from vastrun.trainer.data.trajectories import Windows
from vastrun.trainer.distributed.group import Ranks
from vastrun.trainer.engine.session import Session
from vastrun.trainer.errors import DataError
from vastrun.trainer.models.own_model import OwnModel
from vastrun.trainer.sampling.windows import BatchIndices

Window = tuple[int, int, int]
"""A window: its trajectory, its first frame, its image."""


class DisagreementError(Exception):
    """Ranks hold different values that must be equal: their training is worthless from then on."""


def check_start(session: Session) -> None:
    """Check that the ranks train the same model, each on a different share of the next step.

    Raises DisagreementError or DataError.
    """
    ranks, step = session.ranks, session.start
    if ranks.rank.world_size == 1 or step >= session.config.steps:
        return
    # A difference in one of these is visible nowhere else, or hours later as a bad model.
    facts = {
        "the configuration": digest(asdict(session.config)),
        "the model": layout_of(session.operator),
        "the data": digest([asdict(order.space) for order in session.task_schedule.sample_plans]),
        "the steps done": str(step),
        "the version of torch": torch.__version__,
    }
    if isinstance(session.operator, OwnModel) and step == 0:
        facts["the initial weights"] = str(session.operator.initial_weights)
    check_facts(ranks, facts)
    schedule = session.task_schedule
    for turn in range(schedule.turns):
        place = schedule.place(step, turn * schedule.accumulation)
        order, task = schedule.sample_plans[place.task], session.tasks[place.task]
        # Not with the loader: its read-ahead begins with this micro-batch.
        read = task.batch(place.step, order.micro_batch_of(place.step, 0))
        share = share_of(order.share_of(place.step), read)
        plans = [replace(order, rank=rank) for rank in range(order.world_size)]
        windows = [window for plan in plans for window in windows_of(plan.share_of(place.step))]
        check_shares(place.step, ranks.all_gather_objects(share), windows)


def check_step(session: Session, step: int, loss: float | None) -> None:
    """Check after the first step and every `check_every` steps that the ranks hold the same values.

    Raises DisagreementError.
    """
    if session.ranks.rank.world_size == 1:
        return
    if step == session.start + 1 or step % session.config.check_every == 0:
        numbers = {
            "the number of the step": step,
            "the learning rate": session.schedule.rate(step - 1),
            "the loss": 0.0 if loss is None else loss,
        }
        check_replicas(session.ranks, step, session.operator, numbers)


def check_facts(ranks: Ranks, facts: Mapping[str, str]) -> None:
    """Check that every rank starts with the same facts. Raises DisagreementError on all ranks."""
    gathered: list[Mapping[str, str]] = ranks.all_gather_objects(facts)
    for name in facts:
        values = [other.get(name) for other in gathered]
        if alone := _alone(values):
            other = next(rank for rank, value in enumerate(values) if value != values[alone[0]])
            raise DisagreementError(
                f"{_differ(alone, len(gathered))} in {name}: "
                f"rank {alone[0]} has {values[alone[0]]}, rank {other} has {values[other]}"
            )


def check_replicas(ranks: Ranks, step: int, model: nn.Module, numbers: Mapping[str, float]) -> None:
    """Check that all ranks hold the same `numbers`, parameters and buffers after `step`.

    Sharded tensors are skipped. Raises DisagreementError on all ranks. Waits for the device.
    """
    held = dict(_replicated(model))
    names = [*numbers, *held]
    # By their bits: as numbers, NaN differs from itself, and 0.0 equals -0.0.
    sums = np.concatenate([np.array([*numbers.values()]).view(np.int64), _checksums([*held.values()])])
    gathered = np.stack(ranks.all_gather_objects(sums))
    wrong = np.flatnonzero((gathered != gathered[0]).any(axis=0))
    if len(wrong):
        first = wrong[0]
        more = f" and in {len(wrong) - 1} more" if len(wrong) > 1 else ""
        fault = f"{_differ(_alone(gathered[:, first].tolist()), len(gathered))} in {names[first]}{more}"
        raise DisagreementError(f"after step {step} {fault}")


def layout_of(model: nn.Module) -> str:
    """Digest the names, shapes and types of the model's tensors."""
    tensors = [*model.named_parameters(), *model.named_buffers()]
    return digest([(name, list(tensor.shape), str(tensor.dtype)) for name, tensor in tensors])


def digest(value: Any) -> str:
    """Return a short digest of a JSON value."""
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()[:12]


def _replicated(model: nn.Module) -> Iterator[tuple[str, Tensor]]:
    """Yield the tensors that every rank holds completely, by name."""
    for kind, tensors in (("parameter", model.named_parameters()), ("buffer", model.named_buffers())):
        for name, tensor in tensors:
            if not isinstance(tensor, DTensor):
                yield f"{kind} {name}", tensor.detach()
            elif all(placement.is_replicate() for placement in tensor.placements):
                yield f"{kind} {name}", tensor.detach().to_local()


def _checksums(tensors: list[Tensor]) -> NDArray[np.int64]:
    """Sum the bits of each tensor as integers: equal on any device; NaN counts like any value."""
    sums = [_bits(tensor).sum(dtype=torch.int32) for tensor in tensors]
    return torch.stack(sums).cpu().numpy().astype(np.int64) if sums else np.empty(0, np.int64)


def _bits(tensor: Tensor) -> Tensor:
    plain = torch.view_as_real(tensor) if tensor.is_complex() else tensor
    return plain.view({1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}[plain.element_size()])


def _alone(values: list) -> list[int]:
    """Return the ranks whose value is not the most common; all if there is none. Empty when all are equal."""
    (value, times), *second = Counter(values).most_common(2)
    if not second:
        return []
    if times == second[0][1]:
        return list(range(len(values)))
    return [rank for rank, own in enumerate(values) if own != value]


def _differ(alone: list[int], world_size: int) -> str:
    if len(alone) == world_size:
        return f"the {world_size} ranks differ"
    if len(alone) == 1:
        return f"rank {alone[0]} of {world_size} differs from the others"
    return f"ranks {', '.join(map(str, alone))} of {world_size} differ from the others"


@dataclass(frozen=True, kw_only=True)
class ReadShare:
    """The windows that one rank read in one step."""

    windows: tuple[Window, ...]
    content: str
    """Digest of the values."""


def share_of(indices: BatchIndices, read: Windows) -> ReadShare:
    """Return the windows that this rank read, and a digest of their values."""
    content = hashlib.sha256(read.fields.cpu().contiguous().numpy().tobytes())
    return ReadShare(windows=windows_of(indices), content=content.hexdigest())


def windows_of(indices: BatchIndices) -> tuple[Window, ...]:
    """Return the windows of the indices."""
    numbers = (indices.trajectory, indices.frames[:, 0], indices.image)
    return tuple(zip(*(each.tolist() for each in numbers), strict=True))


def check_shares(step: int, shares: Sequence[ReadShare], batch: Sequence[Window]) -> None:
    """Check that the shares, by rank, make up the batch of all ranks. Raises DataError."""
    pairs = list(combinations(enumerate(shares), 2))
    read = Counter(window for share in shares for window in share.windows)
    missing, extra = Counter(batch) - read, read - Counter(batch)
    if missing or extra:
        # Two ranks that read the same windows are the usual mistake: name them instead of a count.
        for (a, one), (b, other) in pairs:
            if one.windows == other.windows:
                raise DataError(
                    f"ranks {a} and {b} read the same windows in step {step}: each must read different ones"
                )
        raise DataError(
            f"the ranks skipped {missing.total()} windows of step {step} and read {extra.total()} others"
        )
    # `windows` is the request, `content` the response: a user's task may ignore the request.
    for (a, one), (b, other) in pairs:
        if one.content == other.content and _trajectories(one).isdisjoint(_trajectories(other)):
            raise DataError(
                f"ranks {a} and {b} hold the same values in step {step}, but different trajectories "
                "were requested: check that the task's `batch` reads the trajectories of `indices`"
            )


def _trajectories(share: ReadShare) -> set[int]:
    return {trajectory for trajectory, _, _ in share.windows}
