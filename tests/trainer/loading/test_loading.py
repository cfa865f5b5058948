"""Loaders: the same micro-batches from the device, from memory and from files; faults are told by name."""

import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.trainer import sessions
from tests.trainer.conftest import SMALL, Box, together
from tests.waiting import LONGEST_S, eventually
from vastrun.contract import layout
from vastrun.contract.reports import read_beat
from vastrun.onstart.supervision.processes import descendants
from vastrun.trainer.data import Task, advection
from vastrun.trainer.data.stored import StoredTask
from vastrun.trainer.data.trajectories import Windows
from vastrun.trainer.errors import DataError, WorkerDiedError
from vastrun.trainer.job.config import LoaderConfig, TrainConfig
from vastrun.trainer.job.data_config import DataConfig
from vastrun.trainer.loading import Loader, make_task_loader
from vastrun.trainer.sampling.windows import BatchIndices, SamplePlan, WindowSpace

pytestmark = pytest.mark.usefixtures("fork_server")

DATA = DataConfig(betas=(0.5, 1.0), train=6, test=4, points=32, frames=9)
ORDER = SamplePlan(
    seed=1,
    batch=8,
    noise=0.1,
    space=WindowSpace(trajectories=12, frames=9, grid=(32,), symmetry="shift", unroll=3),
    rank=1,
    world_size=2,
    accumulation=2,
)
CPU = torch.device("cpu")

Open = Callable[..., Loader]


class Sabotaged(StoredTask):
    """A task whose reading goes wrong at step 3."""

    how = ""

    def batch(self, step: int, indices: BatchIndices) -> Windows:
        if step == 3 and self.how == "killed":
            os.kill(os.getpid(), signal.SIGKILL)
        if step == 3 and self.how == "wrong":
            raise DataError("trajectory 7 is damaged")
        if step == 3 and self.how == "shape":
            return super().batch(step, indices.share(0, 2))
        return super().batch(step, indices)


class Witness(StoredTask):
    """A task that tells who reads: its process, and what that has of the rank's."""

    def __init__(self, task: StoredTask, server: socket.socket) -> None:
        vars(self).update(vars(task))
        self.inode = os.fstat(server.fileno()).st_ino

    def batch(self, step: int, indices: BatchIndices) -> Windows:
        files = [path.stat().st_ino for path in Path("/proc/self/fd").iterdir() if path.exists()]
        told = [os.getpid(), self.inode in files, os.environ.get("CUDA_VISIBLE_DEVICES") == ""]
        return replace(super().batch(step, indices), conditions=torch.tensor(told))


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("data")
    advection.generate(DATA, folder)
    return folder


@pytest.fixture
def open_loader() -> Iterator[Open]:
    opened: list[Loader] = []

    def make(task: Task, keep: str, **loader: Any) -> Loader:
        config = TrainConfig(
            steps=6,
            data=(replace(DATA, keep=keep),),
            loader=LoaderConfig(**loader),  # type: ignore[arg-type]
        )
        task.place(CPU)
        opened.append(make_task_loader(task, ORDER, config.loader, config.steps, CPU))
        return opened[-1]

    yield make
    for loader in opened:
        loader.close()


def task_of(folder: Path, keep: str) -> Task:
    return advection.make(replace(DATA, keep=keep), folder)  # type: ignore[arg-type]


def micro_batches(loader: Loader, first: int = 0) -> list[Windows]:
    return [loader.read(step, number) for step in range(first, 6) for number in range(2)]


def assert_same(found: list[Windows], expected: list[Windows]) -> None:
    for one, other in zip(found, expected, strict=True):
        for name, tensor in other.tensors.items():
            torch.testing.assert_close(getattr(one, name), tensor, rtol=0, atol=0)


@pytest.mark.parametrize(
    ("keep", "loader"),
    [
        ("host", {}),
        ("host", {"prefetch": 5}),
        ("disk", {"workers": 3, "prefetch": 1}),
        ("disk", {"workers": 1}),
    ],
)
def test_micro_batches_are_the_same_wherever_the_trajectories_lie(
    folder: Path, open_loader: Open, keep: str, loader: dict[str, Any]
) -> None:
    expected = micro_batches(open_loader(task_of(folder, "device"), "device"))
    ahead = open_loader(task_of(folder, keep), keep, **loader)
    assert_same(micro_batches(ahead), expected)
    moments = [torch.stack(task_of(folder, where).train.moments()) for where in (keep, "device")]
    assert torch.equal(*moments)


@pytest.mark.parametrize("keep", ["host", "disk"])
def test_any_micro_batch_can_be_asked_for(folder: Path, open_loader: Open, keep: str) -> None:
    expected = micro_batches(open_loader(task_of(folder, "device"), "device"))
    ahead = open_loader(task_of(folder, keep), keep)
    assert_same(micro_batches(ahead, 4), expected[8:])
    assert_same([ahead.read(4, 0), ahead.read(1, 1)], [expected[8], expected[3]])


@pytest.mark.parametrize(
    ("how", "error", "told"),
    [
        (
            "killed",
            WorkerDiedError,
            r"^loader worker [01] \(pid \d+\) was killed by SIGKILL while it read step 3$",
        ),
        ("wrong", DataError, r"^loader worker [01]: trajectory 7 is damaged$"),
        ("shape", DataError, r"^loader worker [01]: all batches must have equal shapes: "),
    ],
)
def test_a_worker_that_dies_or_fails_is_told_by_its_name(
    folder: Path, open_loader: Open, how: str, error: type[Exception], told: str
) -> None:
    task = Sabotaged(*advection.store(replace(DATA, keep="disk"), folder))
    task.how = how
    loader = open_loader(task, "disk")
    assert len([loader.read(step, number) for step in range(3) for number in range(2)]) == 6
    began = time.monotonic()
    with pytest.raises(error, match=told):
        loader.read(3, 0)
    assert time.monotonic() - began < LONGEST_S


def test_an_error_of_the_reading_thread_reaches_the_loop(folder: Path, open_loader: Open) -> None:
    task = Sabotaged(*advection.store(replace(DATA, keep="host"), folder))
    task.how = "wrong"
    loader = open_loader(task, "host")
    assert loader.read(2, 1).fields.shape == (2, 4, 1, 32)
    with pytest.raises(DataError, match="trajectory 7 is damaged"):
        loader.read(3, 0)


def test_workers_have_nothing_of_the_rank(folder: Path, open_loader: Open) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.set_inheritable(True)
        task = Witness(task_of(folder, "disk"), server)  # type: ignore[arg-type]
        loader = open_loader(task, "disk")
        told = [tuple(batch.conditions.tolist()) for batch in micro_batches(loader)]
    assert {(socket_is_open, no_gpu) for _, socket_is_open, no_gpu in told} == {(0, 1)}
    pids = [pid for pid, _, _ in told]
    assert len(set(pids)) == 2
    loader.close()
    assert not any(Path(f"/proc/{pid}").exists() for pid in pids[-2:])


class Cuda:
    """The part of `torch.cuda` that a loader sets up with; each thread begins with the first GPU."""

    def __init__(self) -> None:
        self._current = threading.local()

    def set_device(self, device: torch.device) -> None:
        self._current.index = device.index

    def current_device(self) -> int:
        return getattr(self._current, "index", 0)

    def Stream(self, device: torch.device) -> str:
        return f"stream of {device}"


class Reader(StoredTask):
    """A task that tells which GPU the thread that reads it would use."""

    cuda: Cuda

    def batch(self, step: int, indices: BatchIndices) -> Windows:
        raise DataError(f"GPU {self.cuda.current_device()} is the current one")


def test_the_reading_thread_uses_only_its_ranks_gpu(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cuda = Cuda()
    for name in ("set_device", "Stream"):
        monkeypatch.setattr(torch.cuda, name, getattr(cuda, name))
    task = Reader(*advection.store(replace(DATA, keep="host"), folder))
    task.cuda = cuda
    task.place(CPU)
    loader = make_task_loader(task, ORDER, LoaderConfig(), 6, torch.device("cuda", 1))
    with pytest.raises(DataError, match="GPU 1 is the current one"):
        loader.read(0, 0)
    loader.close()


STEADY = {"micro_batch": 4, "optim": {"schedule": "constant", "warmup": 0.0}}
DISK = {**SMALL["data"], "keep": "disk"}


def start_rank(box: Box) -> subprocess.Popen[bytes]:
    """The only one. It is not forked from the tests' own server, which would fork its workers, too."""
    place = {"RANK": 0, "LOCAL_RANK": 0, "WORLD_SIZE": 1, "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": 0}
    environment = os.environ | {name: str(value) for name, value in place.items()}
    environment |= {"OMP_NUM_THREADS": "1", "VASTRUN_BOX": str(box.path)}
    with (box.path / "rank-0.log").open("wb") as log:
        command = [sys.executable, "-u", "-m", "vastrun.trainer.train"]
        return subprocess.Popen(command, env=environment, stdout=log, stderr=log)


@pytest.mark.torch
@pytest.mark.slow
def test_a_killed_worker_ends_its_rank_as_a_signal_does(tmp_path: Path) -> None:
    box = Box(sessions.prepare(tmp_path / "box"), **STEADY, steps=1_000_000, data=DISK)
    rank = start_rank(box)
    beat = box.path / layout.HEARTBEATS / "rank-0"
    eventually(lambda: (seen := read_beat(beat)) is not None and seen.step > 20)
    family = descendants(rank.pid)
    workers = [pid for child in family for pid in descendants(child)]
    assert len(workers) == 2
    assert "data in files, read by 2 processes a rank, without /dev/shm" in box.log(0)

    os.kill(workers[0], signal.SIGKILL)
    assert rank.wait(60) == 1
    assert box.reason(0)["reason"] == "signal"
    assert f"(pid {workers[0]}) was killed by SIGKILL while it read step " in box.reason(0)["exception"]
    eventually(lambda: not any(Path(f"/proc/{pid}").exists() for pid in family))
    undisturbed = together(sessions.curve, 1, sessions.prepare(tmp_path / "other"), STEADY)[0]
    assert [box.losses()[step] for step in range(1, 21)] == undisturbed.losses
