"""Worker: one process that reads the micro-batches it is asked for, in order."""

from __future__ import annotations

import os
import signal
from contextlib import suppress
from multiprocessing.connection import Connection
from multiprocessing.context import BaseContext

import torch

from trainer.contract.errors import DataError, WorkerDiedError
from trainer.data import Task
from trainer.data.trajectories import Windows
from trainer.loading.slots import Slots
from trainer.loading.turn import Turn
from trainer.sampling.windows import Order

_LEAVES_WITHIN_S = 5.0


class Worker:
    """The process, as its rank sees it.

    It begins with a fresh interpreter: it has no thread, no socket and no GPU of the rank's. It leaves when
    the rank is gone, however that ended.
    """

    def __init__(
        self, context: BaseContext, number: int, task: Task, order: Order, example: Windows, slots: int
    ) -> None:
        self._slots = Slots(example, slots)
        self._asked: list[Turn] = []
        self._pipe, there = context.Pipe()
        work = (there, task, order, self._slots)
        self._process = context.Process(  # type: ignore[attr-defined]
            target=_serve, args=work, name=f"loader worker {number}", daemon=True
        )
        self._process.start()
        there.close()

    def ask(self, turn: Turn) -> None:
        """Takes back the slot of the answer before the last `slots` questions."""
        self._asked.append(turn)
        with suppress(ConnectionError):  # what became of the process is told with its answer
            self._pipe.send(turn)

    def answer(self) -> Windows:
        """What was read for the oldest question. Raises DataError when it could not be, WorkerDiedError."""
        turn = self._asked.pop(0)
        try:
            slot, fault = self._pipe.recv()
        except (EOFError, ConnectionError):
            raise self._end(turn) from None
        if fault:
            raise DataError(f"{self._process.name}: {fault}")
        return self._slots.read(slot)

    def leave(self) -> None:
        """The process ends when it has answered what it was asked."""
        with suppress(ConnectionError):
            self._pipe.send(None)

    def close(self) -> None:
        """The process is gone."""
        self._pipe.close()
        self._process.join(_LEAVES_WITHIN_S)
        self._process.kill()
        self._process.join(_LEAVES_WITHIN_S)

    def _end(self, turn: Turn) -> DataError | WorkerDiedError:
        self._process.join(_LEAVES_WITHIN_S)
        code, who = self._process.exitcode, f"{self._process.name} (pid {self._process.pid})"
        if code and code < 0:
            name = signal.Signals(-code).name
            return WorkerDiedError(f"{who} was ended by {name} while it read step {turn.step}")
        return DataError(f"{who} ended with {code} while it read step {turn.step}")


def _serve(pipe: Connection, task: Task, order: Order, slots: Slots) -> None:
    """All that the process does."""
    os.environ["CUDA_VISIBLE_DEVICES"] = ""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    torch.set_num_threads(1)
    slot = 0
    while (turn := _question(pipe)) is not None:
        fault = _read(task, order, turn, slots, slot)
        with suppress(ConnectionError):
            pipe.send((slot, fault))
        slot = (slot + 1) % slots.count


def _question(pipe: Connection) -> Turn | None:
    try:
        turn: Turn | None = pipe.recv()
    except (EOFError, ConnectionError):
        return None
    return turn


def _read(task: Task, order: Order, turn: Turn, slots: Slots, slot: int) -> str | None:
    """Puts the micro-batch into the slot; says what was wrong. Any other error ends the process, loudly."""
    try:
        slots.write(slot, task.batch(turn.step, order.micro_batch_of(turn.step, turn.number)))
    except (DataError, OSError) as error:
        return str(error)
    return None
