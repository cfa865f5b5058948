"""Boxes to train in, and ranks started as torchrun would start them."""

from __future__ import annotations

import faulthandler
import json
import multiprocessing
import os
import pickle
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Iterator
from datetime import timedelta
from multiprocessing import connection, forkserver
from multiprocessing.context import ForkServerContext
from multiprocessing.process import BaseProcess
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, NoReturn

import pytest

from tests.programs import described
from tests.waiting import LONGEST_S
from vastrun.contract import layout
from vastrun.trainer.distributed.rank import Rank

if TYPE_CHECKING:
    from vastrun.trainer.distributed.group import Ranks

SMALL: dict[str, Any] = {
    "steps": 20,
    "batch": 8,
    "unroll": 2,
    "log_every": 1,
    "checkpoint_every": 10,
    "data": {"betas": [1.0], "train": 32, "test": 8, "points": 32, "frames": 9},
    "model": {"name": "latent", "dim": 32, "depth": 2, "heads": 2, "patch": 4},
    "wandb": {"mode": "off"},
    "plots": False,
}

_PRELOADED = "tests.trainer.preloaded"


def forking() -> ForkServerContext:
    """Make processes from a server that has imported all of a rank, once: one then starts in milliseconds."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload([_PRELOADED])
    return context


def assert_is_quick() -> None:
    """Of a process that `forking` made. Python has one such server: whoever comes first says what it has."""
    assert _PRELOADED in sys.modules, "another server was there first: its test needs the fixture fork_server"


def share_fork_server() -> None:
    """Start the server, for this process and those that are forked from it: none starts one of its own."""
    forking()
    forkserver.ensure_running()
    # Python would ask the kernel whether the server still runs, which only its parent may.
    owners: tuple[Any, ...] = (forkserver, forkserver._forkserver)
    for owner in owners:
        owner.ensure_running = lambda: None


@pytest.fixture(scope="session")
def fork_server() -> None:
    """Of ranks, and there before a loader in this process starts one that has no torch."""
    forking()
    forkserver.ensure_running()


def together(
    function: Callable[..., Any], ranks: int, *arguments: Any, within_s: float = LONGEST_S
) -> list[Any]:
    """What `function(ranks, *arguments)` returns on each of several ranks, by rank.

    The ranks have their gloo groups (`distributed.group.Ranks`); the function is one of a module. A rank that
    fails fails the test with its traceback; at the deadline all are killed, and stderr says where they stood.
    """
    context, pipes, processes = forking(), [], []
    with tempfile.TemporaryDirectory() as folder:
        try:
            for rank in range(ranks):
                here, there = context.Pipe()
                place = Rank(rank=rank, local_rank=rank, world_size=ranks, box=Path(folder))
                work = (there, place, within_s, function, arguments)
                processes.append(context.Process(target=_take_part, args=work))
                processes[-1].start()
                there.close()
                pipes.append(here)
            return _answers(pipes, time.monotonic() + within_s)
        finally:
            for process in processes:
                process.kill()
                process.join()


def _answers(pipes: list[connection.Connection], deadline: float) -> list[Any]:
    answers: dict[int, Any] = {}
    while waiting := [rank for rank in range(len(pipes)) if rank not in answers]:
        ready = connection.wait([pipes[rank] for rank in waiting], max(0.0, deadline - time.monotonic()))
        assert ready, f"ranks {waiting} were not done in time"
        for pipe in ready:
            rank = pipes.index(pipe)
            try:
                fault, answers[rank] = pickle.loads(pipe.recv_bytes())
            except EOFError:
                fault = "died without a word"
            if fault:
                pytest.fail(f"rank {rank}: {fault}", pytrace=False)
    return [answers[rank] for rank in range(len(pipes))]


def _take_part(
    pipe: connection.Connection, rank: Rank, within_s: float, function: Callable[..., Any], arguments: Any
) -> None:
    """One rank of `together`, from its groups to its answer."""
    assert_is_quick()
    import torch
    import torch.distributed as torch_dist

    from vastrun.trainer.distributed.group import Ranks

    faulthandler.dump_traceback_later(max(1.0, within_s - 2))
    torch.set_num_threads(1)
    with _Answer(pipe) as answer:
        store = torch_dist.FileStore(str(rank.box / "store"), rank.world_size)
        limit = timedelta(seconds=within_s + 30)  # the deadline comes first, and knows who is missing
        torch_dist.init_process_group(
            "gloo", store=store, rank=rank.rank, world_size=rank.world_size, timeout=limit
        )
        control = torch_dist.new_group(backend="gloo", timeout=limit)
        answer.value = function(Ranks(rank=rank, device=torch.device("cpu"), control=control), *arguments)


class _Answer:
    """Around the work of a rank: its value or its traceback is sent, and the process ends with the test."""

    def __init__(self, pipe: connection.Connection) -> None:
        self.value: Any = None
        self._pipe = pipe

    def __enter__(self) -> _Answer:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> NoReturn:
        fault = "".join(traceback.format_exception(error)) if error else None
        self._pipe.send_bytes(pickle.dumps((fault, self.value)))
        self._pipe.poll(None)  # a rank that left now might break a collective that others have not finished
        os._exit(0)


class Box:
    """A box with a job, and what was written there."""

    def __init__(self, path: Path, **train: Any) -> None:
        self.path = path
        self.describe(**train)

    def describe(self, **train: Any) -> None:
        """Writes `job.json`; keywords replace values of the small training."""
        job = {
            "run_id": "calm-heron-3f1a",
            "name": "small",
            "ranks": 2,
            "gpus": 0,
            "stall_s": 60,
            "start_s": 60,
        }
        self.path.mkdir(parents=True, exist_ok=True)
        (self.path / layout.JOB).write_text(json.dumps(described({**job, "train": {**SMALL, **train}})))

    def json(self, path: str) -> Any:
        return json.loads((self.path / path).read_text())

    def losses(self) -> dict[int, float]:
        """Loss by step."""
        lines = (self.path / layout.METRICS).read_text().splitlines()
        return {point["step"]: point["loss"] for point in map(json.loads, lines)}

    def reason(self, rank: int) -> Any:
        """Why a rank ended."""
        return self.json(f"{layout.RANKS}/rank-{rank}.json")

    def log(self, rank: int) -> str:
        return (self.path / f"rank-{rank}.log").read_text()


class RunningRanks:
    """Ranks that train in a box, each forked from a server that has torch.

    They meet in a store of this process, so that no port is guessed.
    """

    def __init__(self, box: Box, ranks: int) -> None:
        from torch.distributed import TCPStore

        self.box = box
        self._store = TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
        self.processes = [self._start(rank, ranks) for rank in range(ranks)]

    def wait(self, within_s: float = LONGEST_S) -> list[int]:
        """The exit codes, by rank."""
        return [ended(process, within_s) for process in self.processes]

    def kill(self) -> None:
        for process in self.processes:
            process.kill()
            process.join()

    def _start(self, rank: int, ranks: int) -> BaseProcess:
        variables = {
            "RANK": rank,
            "LOCAL_RANK": rank,
            "WORLD_SIZE": ranks,
            "MASTER_ADDR": "127.0.0.1",
            "MASTER_PORT": self._store.port,
            "TORCHELASTIC_USE_AGENT_STORE": True,
            "OMP_NUM_THREADS": 1,
            "VASTRUN_BOX": self.box.path,
        }
        environment = os.environ | {name: str(value) for name, value in variables.items()}
        process = forking().Process(target=train, args=(environment, self.box.path / f"rank-{rank}.log"))
        process.start()
        return process


Start = Callable[[Box, int], RunningRanks]
"""What starts so many ranks in a box."""


def ended(process: BaseProcess, within_s: float = LONGEST_S) -> int:
    """Its exit code, once there is one."""
    process.join(within_s)
    assert process.exitcode is not None, "a rank did not end in time"
    return process.exitcode


def train(environment: dict[str, str], log: Path) -> None:
    assert_is_quick()
    from vastrun.trainer.train import main

    os.environ.clear()
    os.environ.update(environment)
    with log.open("wb") as file:
        os.dup2(file.fileno(), 1)
        os.dup2(file.fileno(), 2)
    main()


@pytest.fixture(scope="session")
def start_ranks() -> Iterator[Start]:
    """Starts ranks; what still runs at the end is killed."""
    started: list[RunningRanks] = []

    def start(box: Box, ranks: int) -> RunningRanks:
        started.append(RunningRanks(box, ranks))
        return started[-1]

    yield start
    for running in started:
        running.kill()


@pytest.fixture
def box(tmp_path: Path) -> Box:
    return Box(tmp_path / "box")


@pytest.fixture
def alone(tmp_path: Path) -> Iterator[Ranks]:
    """The groups of the only rank."""
    import torch
    import torch.distributed as torch_dist

    from vastrun.trainer.distributed.group import Ranks

    store = torch_dist.FileStore(str(tmp_path / "store"), 1)
    torch_dist.init_process_group("gloo", store=store, rank=0, world_size=1)
    control = torch_dist.new_group(backend="gloo")
    rank = Rank(rank=0, local_rank=0, world_size=1, box=tmp_path)
    yield Ranks(rank=rank, device=torch.device("cpu"), control=control)
    torch_dist.destroy_process_group()
