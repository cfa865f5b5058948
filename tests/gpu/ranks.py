"""Ranks: forked from a check's process, which has imported torch and opened no GPU; each with its groups."""

import os
import pickle
import tempfile
import time
import traceback
from collections.abc import Callable
from datetime import timedelta
from multiprocessing import connection, get_context
from pathlib import Path
from typing import Any, NoReturn

from tests.gpu.check import Broken, Place
from vastrun.onstart.supervision.processes import die_with_parent
from vastrun.trainer.distributed.rank import Rank

_WITHIN_S = 300.0
"""A check's own limit comes first."""


def together(place: Place, function: Callable[..., Any], ranks: int, *arguments: Any) -> list[Any]:
    """Return what `function(ranks, *arguments)` returns on each of so many ranks, by rank.

    A rank has its device and its groups. Raises Broken with the traceback of one that fails. More ranks than
    GPUs share the GPUs and talk over gloo: NCCL allows one rank for each.
    """
    with tempfile.TemporaryDirectory(prefix="vastrun-gpu-") as folder:
        works = [(place.gpus, rank, ranks, Path(folder)) for rank in range(ranks)]
        return _answers([(_take_part, (*work, function, arguments)) for work in works])


def apart(function: Callable[..., Any], *arguments: Any) -> Any:
    """Return what the function returns in a process of its own, without groups. Raises Broken."""
    return _answers([(function, arguments)])[0]


def _answers(works: list[tuple[Callable[..., Any], tuple[Any, ...]]]) -> list[Any]:
    context, pipes, processes = get_context("fork"), [], []
    try:
        for function, arguments in works:
            here, there = context.Pipe()
            processes.append(context.Process(target=_work, args=(there, os.getpid(), function, arguments)))
            processes[-1].start()
            there.close()
            pipes.append(here)
        return _gathered(pipes)
    finally:
        for process in processes:
            process.kill()
            process.join()


def _gathered(pipes: list[connection.Connection]) -> list[Any]:
    answers: dict[int, Any] = {}
    deadline = time.monotonic() + _WITHIN_S
    while waiting := [number for number in range(len(pipes)) if number not in answers]:
        ready = connection.wait([pipes[number] for number in waiting], max(0.0, deadline - time.monotonic()))
        if not ready:
            raise Broken(f"ranks {waiting} were not done within {_WITHIN_S:.0f} s")
        for pipe in ready:
            number = pipes.index(pipe)
            try:
                fault, answers[number] = pickle.loads(pipe.recv_bytes())
            except EOFError:
                fault = "died without a word"
            if fault:
                raise Broken(f"rank {number}: {fault}")
    return [answers[number] for number in range(len(pipes))]


def _work(
    pipe: connection.Connection, parent: int, function: Callable[..., Any], arguments: tuple[Any, ...]
) -> NoReturn:
    """Send what the function returns, or its traceback; wait to be killed."""
    die_with_parent(parent)
    fault, value = None, None
    try:
        value = function(*arguments)
    except BaseException:  # noqa: BLE001 - it is told by the parent
        fault = traceback.format_exc()
    pipe.send_bytes(pickle.dumps((fault, value)))
    pipe.poll(None)  # a rank that left now might break a collective that others have not finished
    os._exit(0)


def _take_part(
    gpus: int, rank: int, ranks: int, folder: Path, function: Callable[..., Any], arguments: tuple[Any, ...]
) -> Any:
    import torch
    import torch.distributed as torch_dist

    from vastrun.trainer.distributed.group import BACKENDS, Ranks, device_of

    torch.set_num_threads(1)
    device = device_of(rank % gpus if gpus else rank, gpus=gpus)
    one_each = ranks <= gpus
    limit = timedelta(seconds=_WITHIN_S)
    torch_dist.init_process_group(
        BACKENDS[device.type] if one_each else "gloo",
        store=torch_dist.FileStore(str(folder / "store"), ranks),
        rank=rank,
        world_size=ranks,
        timeout=limit,
        device_id=device if one_each else None,
    )
    control = torch_dist.new_group(backend="gloo", timeout=limit)
    here = Rank(rank=rank, local_rank=rank, world_size=ranks, box=folder)
    return function(Ranks(rank=here, device=device, control=control), *arguments)
