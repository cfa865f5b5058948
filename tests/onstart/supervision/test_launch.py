"""A supervisor that is started before its turn: what loads meanwhile, and what becomes of it."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from tests.onstart.supervision.launches import Launched
from tests.torch_builds import STUB_TORCH
from tests.waiting import LONGEST_S, eventually, has_ended
from vastrun.contract import layout

Early = Callable[[str], "EarlyLaunch"]


class EarlyLaunch(Launched):
    """A supervisor that waits for a line from this process."""

    def _start(self) -> subprocess.Popen[bytes]:
        return subprocess.Popen(
            [sys.executable, "-P", "-m", "vastrun.onstart.supervise"],
            env={**self.environment(), "VASTRUN_TURN": str(os.getpid())},
            stdin=subprocess.PIPE,
        )

    def loading(self) -> int:
        """Pid of the agent that loads."""
        eventually(lambda: len(self.processes()) == 2)
        (agent,) = (pid for pid in self.processes() if pid != self._process.pid)
        return agent

    def take_turn(self) -> None:
        self._process.communicate(b"\n", timeout=LONGEST_S)

    def leave(self) -> None:
        """Say nothing any more."""
        assert self._process.stdin is not None
        self._process.stdin.close()


@pytest.fixture
def early(launch: Callable[..., EarlyLaunch]) -> Early:
    """Starts a supervisor before its turn."""
    return partial(launch, kind=EarlyLaunch)


SAYS_WHO_STARTED_IT = """
    status = Path(f"/proc/{os.getppid()}/status").read_text()
    (agent,) = (line.split()[1] for line in status.splitlines() if line.startswith("PPid:"))
    print("agent", agent, "way", os.environ.get("NCCL_P2P_DISABLE"), "threads", os.environ["OMP_NUM_THREADS"])
"""


def test_before_its_turn_an_agent_loads_and_nothing_is_started_or_told(early: Early) -> None:
    run = early(SAYS_WHO_STARTED_IT)
    agent = run.loading()
    assert not (run.box / layout.LOG).exists()
    assert not (run.box / layout.OUTCOME).exists()
    (run.box / layout.PREFLIGHT).write_text(json.dumps({"env": {"NCCL_P2P_DISABLE": "1"}}))
    run.take_turn()
    assert run.outcome().reason == "finished"
    assert [line for line in run.log() if line.startswith(f"rank1 agent {agent} way 1 ")]


def test_an_agent_loads_under_the_environment_of_its_ranks(early: Early) -> None:
    run = early(SAYS_WHO_STARTED_IT)
    environment = Path(f"/proc/{run.loading()}/environ")
    # The job's PYTHONPATH. Until the new process is the agent, its environment is the supervisor's.
    eventually(lambda: str(STUB_TORCH) in environment.read_text(), within_s=LONGEST_S / 4)


def test_an_agent_that_loaded_under_another_environment_is_replaced(early: Early) -> None:
    run = early(SAYS_WHO_STARTED_IT)
    agent = run.loading()
    (run.box / layout.PREFLIGHT).write_text(json.dumps({"env": {"OMP_NUM_THREADS": "7"}}))
    run.take_turn()
    assert run.outcome().reason == "finished"
    assert [line for line in run.log() if line.startswith("rank1 agent ") and line.endswith(" threads 7")]
    assert not [line for line in run.log() if f" agent {agent} " in line]


def test_an_agent_that_died_before_the_turn_is_replaced(early: Early) -> None:
    run = early(SAYS_WHO_STARTED_IT)
    agent = run.loading()
    os.kill(agent, signal.SIGKILL)
    eventually(lambda: has_ended(agent))
    run.take_turn()
    assert run.outcome().reason == "finished"


def test_without_anybody_to_say_when_it_ends_and_tells_nothing(early: Early) -> None:
    run = early(SAYS_WHO_STARTED_IT)
    run.loading()
    run.leave()
    assert run.wait() == 1
    assert not (run.box / layout.OUTCOME).exists()
    eventually(lambda: not run.processes())


def test_it_is_killed_with_who_started_it_until_its_turn(early: Early) -> None:
    run = early(SAYS_WHO_STARTED_IT)
    run.loading()
    starter = subprocess.Popen(
        ["bash", "-c", 'VASTRUN_TURN=$$ "$0" -P -m vastrun.onstart.supervise <&0 & wait', sys.executable],
        env=run.environment(),
        stdin=subprocess.PIPE,
    )
    eventually(lambda: len(run.processes()) == 5)  # two supervisors, two agents, bash
    starter.kill()
    starter.wait()
    eventually(lambda: len(run.processes()) == 2)
