"""A task that goes wrong on a rank, at a step, in one place: how, the variable FAULTS says as JSON.

It reaches into the passes through torch's own global hooks, so that the trainer is the one that is shipped.
"""

import errno
import json
import os
import resource
import signal
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import torch.distributed as torch_dist
from torch import Tensor, nn
from torch.nn.modules.module import register_module_forward_hook
from torch.optim.optimizer import register_optimizer_step_pre_hook

from tests.waiting import eventually
from vastrun.contract import layout
from vastrun.trainer.data import advection
from vastrun.trainer.data.trajectories import TrajectoryTask, Windows
from vastrun.trainer.job.data_config import DataConfig
from vastrun.trainer.sampling.windows import BatchIndices

_ROOM = 1 << 16
"""Enough for a log, too little for a checkpoint."""


@dataclass(frozen=True, kw_only=True)
class Fault:
    """What happens, and where."""

    what: str
    where: str
    rank: int = 1
    step: int = 3
    starts: int = 1
    """It happens in so many starts, from the first on."""
    above: int = 0
    """It happens to larger micro-batches only."""
    saved: int | None = None
    """The checkpoint of this step is complete before."""

    @property
    def is_mine(self) -> bool:
        """True on the rank, and in the starts, that it is meant for."""
        mine = int(os.environ["RANK"]) == self.rank
        return mine and int(os.environ["VASTRUN_RESTART"]) < self.starts

    def happen(self) -> None:
        if self.saved is not None:
            eventually(self._is_saved)
        FAULTS[self.what]()

    def _is_saved(self) -> bool:
        latest = Path(os.environ["VASTRUN_BOX"], layout.CHECKPOINTS, "latest.json")
        return latest.exists() and json.loads(latest.read_text())["step"] == self.saved


def _raise() -> None:
    raise ValueError("injected")


def _run_out_of_memory() -> None:
    raise torch.OutOfMemoryError("injected")


def _ask_for_too_much() -> None:
    """A petabyte, of this rank's device."""
    device = "cuda" if torch.cuda.is_initialized() else "cpu"
    torch.empty(1 << 50, dtype=torch.uint8, device=device)


def _fill_the_disk() -> None:
    raise OSError(errno.ENOSPC, "No space left on device")


def _forbid_files() -> None:
    """What is written to files from now on fails as on a full disk."""
    resource.setrlimit(resource.RLIMIT_FSIZE, (_ROOM, resource.getrlimit(resource.RLIMIT_FSIZE)[1]))


def _ask_the_others() -> None:
    """As a handler of an error that only one rank has: the others never come here."""
    torch_dist.broadcast(torch.zeros(1), src=0)


def _die_tracked() -> None:
    """As soon as W&B knows of the run."""
    box = Path(os.environ["VASTRUN_BOX"])
    eventually((box / layout.WANDB).exists)
    os.kill(os.getpid(), signal.SIGKILL)


FAULTS: Mapping[str, Callable[[], Any]] = {
    "exception": _raise,
    "SIGSEGV": lambda: os.kill(os.getpid(), signal.SIGSEGV),
    "SIGKILL": lambda: os.kill(os.getpid(), signal.SIGKILL),
    "SIGKILL once tracked": _die_tracked,
    "out of memory": _run_out_of_memory,
    "too much memory": _ask_for_too_much,
    "sleep": lambda: threading.Event().wait(),
    "one-sided broadcast": _ask_the_others,
    "exit 0": lambda: os._exit(0),
    "disk full": _fill_the_disk,
    "no room for files": _forbid_files,
}


class Faulty(TrajectoryTask):
    """Arms the fault when its step is asked for; its place is then reached by the trainer itself."""

    fault: Fault | None
    armed = False
    """The step has begun, and the place has not been reached."""

    def batch(self, step: int, indices: BatchIndices) -> Windows:
        windows = super().batch(step, indices)
        if self.fault and step == self.fault.step and len(windows.fields) > self.fault.above:
            self.armed = True
        return windows

    def place(self, device: torch.device) -> None:
        super().place(device)
        register_module_forward_hook(self._on_forward)
        register_optimizer_step_pre_hook(lambda *_: self._at("optimizer"))

    def _on_forward(self, module: nn.Module, _inputs: Any, output: Any) -> None:
        """Of every module: the first one that computes something is in the midst of the pass."""
        if not torch.is_grad_enabled():
            self.armed |= self.fault is not None and self.fault.where == "eval"
            self._at("eval")
        elif self.armed:
            self._at("forward")
            module.register_state_dict_pre_hook(lambda *_: self._at("checkpoint"))
            if isinstance(output, Tensor) and output.requires_grad:
                output.register_hook(lambda _gradient: self._at("backward"))

    def _at(self, where: str) -> None:
        if self.armed and self.fault and where == self.fault.where:
            self.armed = False
            self.fault.happen()


def make(config: DataConfig, folder: Path) -> Faulty:
    """The advection task, with what is to happen to this rank."""
    faults = [Fault(**fault) for fault in json.loads(os.environ["FAULTS"])]
    task = Faulty(*advection.load(config, folder))
    task.fault = next((fault for fault in faults if fault.is_mine), None)
    if task.fault is not None and task.fault.where == "setup":
        task.fault.happen()
    return task


generate = advection.generate
