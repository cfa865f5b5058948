"""Supervisors of several nodes that start their ranks again together, or none of them."""

import os
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.onstart.supervision.cores import cores_are_files
from tests.onstart.supervision.launches import Launched
from tests.ports import free_port
from vastrun.contract import layout
from vastrun.contract.outcome import Outcome
from vastrun.onstart.supervision.peers import SILENT_S

GOES_ON = """
    start = int(os.environ["VASTRUN_RESTART"])
    checkpoints = Path(os.environ["VASTRUN_RUN"], "checkpoints")
    if rank == 0:
        checkpoints.mkdir(exist_ok=True)
        (checkpoints / "latest.json").write_text('{"step": %d, "path": "none"}' % (10 + start))
    heart.beat(step=10 * start + 1, activity="step")
"""
"""Each start saves a checkpoint on node 0."""
FAILS_ONCE = f"""{GOES_ON}
    if start == 0 and rank == 1:
        saved = Path(os.environ["VASTRUN_BOX"]).with_name("node-0") / "run/checkpoints/latest.json"
        while not saved.exists():
            time.sleep(0.01)
        os.kill(os.getpid(), signal.SIGKILL)
    time.sleep(99 if start == 0 else 0.5)
"""


class Node(Launched):
    """One of several nodes, all on the loopback."""

    def __init__(self, path: Path, program: str, *, node: int, nodes: int, port: int, **job: Any) -> None:
        self._place = {"VASTRUN_NODE": str(node), "VASTRUN_RENDEZVOUS": f"127.0.0.1:{port}"}
        super().__init__(path, program, ranks=1, nodes=nodes, **job)

    def environment(self) -> dict[str, str]:
        return super().environment() | self._place

    def until_start(self, number: int) -> None:
        """Returns when its rank trains in that start."""
        self.until_steps(10 * number + 1)


Nodes = Callable[..., list[Node]]


@pytest.fixture
def nodes(tmp_path: Path) -> Iterator[Nodes]:
    """Starts them; what is left of them at the end is killed."""
    started, port = list[Node](), free_port(2)

    def start(program: str, nodes: int = 2, **job: Any) -> list[Node]:
        for node in range(nodes):
            box = tmp_path / f"node-{node}"
            started.append(Node(box, program, node=node, nodes=nodes, port=port, **job))
        return started

    yield start
    for one in started:
        one.end()


def reasons(outcome: Outcome) -> list[str]:
    return [start.reason for start in outcome.starts]


def test_all_ranks_begin_again_when_one_was_killed_and_every_node_tells_the_same(nodes: Nodes) -> None:
    both = nodes(FAILS_ONCE, restarts={"signal": 1})
    for node in both:
        outcome = node.outcome()
        assert (outcome.reason, outcome.world_size) == ("finished", 2)
        assert reasons(outcome) == ["signal", "finished"]
        assert outcome.starts[0].detail.startswith("rank 1 was killed by SIGKILL")
        assert "supervisor restart 1 on 1 rank on each of 2 nodes" in node.log()
        assert (node.box / layout.STARTS / "0").is_dir()
    assert [start.checkpoint for start in both[0].outcome().starts] == [10, 11]


def test_a_node_that_is_gone_ends_the_run_on_the_others(nodes: Nodes) -> None:
    first, second = nodes(f"{GOES_ON}\n    time.sleep(99)", restarts={"signal": 3, "communication": 3})
    first.until_steps(1)
    second.until_steps(1)
    second.send(signal.SIGKILL)
    outcome = first.outcome()
    assert (outcome.reason, outcome.detail) == ("communication", "node 1 can no longer be reached")
    assert reasons(outcome) == ["communication"]
    assert "supervisor no restart: node 1 can no longer be reached" in first.log()


@pytest.mark.slow
def test_a_stop_of_one_node_stops_the_restarted_ranks_of_all(nodes: Nodes) -> None:
    program = f"""{GOES_ON}
    if start == 0 and rank == 1:
        sys.exit(76)
    time.sleep(99)
    """
    both = nodes(program, restarts={"out_of_memory": 1})
    for node in both:
        node.until_start(1)
    (both[1].box / layout.STOP).write_text("time_limit")
    for node in both:
        outcome = node.outcome()
        assert (outcome.reason, outcome.stop_cause) == ("stopped", "time_limit")
        assert reasons(outcome) == ["oom", "stopped"]


@pytest.mark.slow
@pytest.mark.skipif(not cores_are_files(), reason="the kernel hands core files to a program")
def test_all_ranks_begin_again_though_the_stacks_of_a_crash_take_longer_than_a_silence(
    nodes: Nodes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    gdb = tmp_path / "tools" / "gdb"
    gdb.parent.mkdir()
    gdb.write_text(
        f"#!/bin/bash\nmkfifo $0.pipe\nread -t {SILENT_S + 5:.0f} <> $0.pipe\necho '#0  crash () at x.c:1'\n"
    )
    gdb.chmod(0o755)
    monkeypatch.setenv("PATH", f"{gdb.parent}:{os.environ['PATH']}")
    both = nodes(FAILS_ONCE.replace("SIGKILL", "SIGSEGV"), restarts={"signal": 1})
    for node in both:
        outcome = node.outcome()
        assert (outcome.reason, reasons(outcome)) == ("finished", ["signal", "finished"]), outcome.detail
    assert "crash () at x.c:1" in str(both[1].outcome().starts[0].first_failure)
