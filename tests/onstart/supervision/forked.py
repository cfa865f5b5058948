"""The real supervisor with the onboard trainer, forked from a server that has torch: no process imports it.

Only the launch agent is another one: it forks the ranks where torch's would start them.
"""

import json
import os
import signal
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, NoReturn

from tests import programs
from tests.trainer.conftest import SMALL, assert_is_quick, forking
from tests.waiting import LONGEST_S
from vastrun.contract import layout
from vastrun.contract.job import Job
from vastrun.contract.outcome import Outcome
from vastrun.onstart.supervision import rank_process
from vastrun.onstart.supervision.launch import AdoptedAgent, Launch, make_folders
from vastrun.onstart.supervision.processes import die_with_parent
from vastrun.trainer import data
from vastrun.trainer.job.config import config_of

Train = Callable[..., "Supervised"]


class Supervised:
    """A training under its supervisor, in a box of its own."""

    def __init__(self, box: Path, *, env: Mapping[str, str] | None = None, **job: Any) -> None:
        self.box = box
        box.mkdir(parents=True)
        train = {**SMALL, **job.pop("train", {})}
        described = {
            "run_id": "calm-heron-3f1a",
            "name": "small",
            "ranks": 2,
            "gpus": 0,
            "stall_s": 60,
            "start_s": 60,
            "env": dict(env or {}),
            **job,
            "train": train,
        }
        (box / layout.JOB).write_text(json.dumps(programs.described(described)))
        data.generate(replace(config_of(Job.read(box)).data[0], task="advection"), box / layout.DATA)
        process = forking().Process(target=_supervise, args=(box,))
        process.start()
        self.process = process

    def outcome(self) -> Outcome:
        """What the supervisor wrote, after its end."""
        self.process.join(LONGEST_S)
        assert self.process.exitcode is not None, "the supervisor did not end in time"
        return Outcome.from_json((self.box / layout.OUTCOME).read_text())

    def losses(self) -> dict[int, float]:
        """Loss by step."""
        lines = (self.box / layout.METRICS).read_text().splitlines()
        return {point["step"]: point["loss"] for point in map(json.loads, lines)}

    def log(self) -> str:
        path = self.box / layout.LOG
        return path.read_text() if path.exists() else ""

    def end(self) -> None:
        """Nothing of it is left."""
        self.process.kill()
        self.process.join()


def starting(folder: Path) -> Iterator[Train]:
    """Starts trainings that go wrong as `faulty.py` is told; what is left of them at the end is killed."""
    started: list[Supervised] = []

    def start(
        *faults: Mapping[str, Any],
        train: Mapping[str, Any] | None = None,
        env: Mapping[str, str] | None = None,
        **job: Any,
    ) -> Supervised:
        data = {**SMALL["data"], "task": "tests.onstart.supervision.faulty:make"}
        box, told = folder / f"box-{len(started)}", {"FAULTS": json.dumps(faults), **(env or {})}
        started.append(Supervised(box, env=told, train={**(train or {}), "data": data}, **job))
        return started[-1]

    yield start
    for run in started:
        run.end()


def _supervise(box: Path) -> NoReturn:
    assert_is_quick()
    from vastrun.onstart.supervise import main

    os.environ["VASTRUN_BOX"] = str(box)
    os._exit(main(begin=_fork_agent))


def _fork_agent(box: Path, world_size: int, env: Mapping[str, str]) -> Launch:
    make_folders(box)
    supervisor = os.getpid()
    pid = os.fork()
    if pid == 0:
        _be_agent(box, world_size, env, supervisor)
    return Launch(box=box, world_size=world_size, agent=AdoptedAgent(pid))


def _be_agent(box: Path, world_size: int, env: Mapping[str, str], supervisor: int) -> NoReturn:
    """Forks the ranks; when one has failed, the others have SIGTERM, as from torch's agent."""
    from torch.distributed import TCPStore

    die_with_parent(supervisor)
    os.setpgid(0, 0)
    log = os.open(box / layout.AGENT_LOG, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    os.dup2(log, 1)
    os.dup2(log, 2)
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, signal.SIG_DFL)
    os.environ.clear()
    os.environ.update(env)
    store = TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
    ranks = {_fork_rank(box, rank, world_size, store.port) for rank in range(world_size)}
    failed = False
    while ranks:
        pid, status = os.wait()
        ranks.discard(pid)
        if status and not failed:
            failed = True
            time.sleep(0.1)  # torch's looks ten times a second
            for other in ranks:
                os.killpg(other, signal.SIGTERM)
    os._exit(failed)


def _fork_rank(box: Path, rank: int, world_size: int, port: int) -> int:
    agent = os.getpid()
    pid = os.fork()
    if pid == 0:
        os.setpgid(0, 0)
        die_with_parent(agent)
        os.environ.update(
            RANK=str(rank),
            LOCAL_RANK=str(rank),
            WORLD_SIZE=str(world_size),
            MASTER_ADDR="127.0.0.1",
            MASTER_PORT=str(port),
            TORCHELASTIC_USE_AGENT_STORE="True",
        )
        rank_process.run(box, rank, partial(rank_process.Child.start, partial(_train, box / layout.CODE)))
    with suppress(OSError):  # it may have done so itself: whoever comes first
        os.setpgid(pid, pid)
    return pid


def _train(code: Path) -> NoReturn:
    from vastrun.trainer.train import main

    sys.path.append(str(code))
    main()
    raise AssertionError("a rank that has ended does not return")
