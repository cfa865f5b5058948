"""Runs on several machines, here boxes on this computer: one training, one verdict, nothing left."""

import json
import os
import signal
from typing import Any

import pytest

from tests.e2e.terminal import JOBS, Done, Terminal
from tests.waiting import eventually
from vastrun.contract import layout

pytestmark = pytest.mark.torch

STEPS = 10
JOB = (
    *("launch", str(JOBS / "learn.yaml"), "--set", "train.log_every=1", "--set", "limits.stall_s=120"),
    *("--set", "train.checkpoint_every=4"),
)
ONE_NODE = ("--set", "ranks=4")
TWO_NODES = ("--set", "nodes=2", "--set", "ranks=2")


def train(terminal: Terminal, *options: str, steps: int = STEPS) -> Done:
    return terminal.type(*JOB, "--set", f"train.steps={steps}", *options)


def losses(terminal: Terminal, out: str) -> list[float]:
    lines = (terminal.folder / out / "metrics.jsonl").read_text().splitlines()
    return [loss for line in lines if (loss := json.loads(line).get("loss")) is not None]


@pytest.mark.slow
def test_two_nodes_of_two_ranks_learn_as_one_node_of_four_and_leave_nothing(terminal: Terminal) -> None:
    assert train(terminal, *ONE_NODE, "--out", "one").exit_code == 0
    done = train(terminal, *TWO_NODES, "--set", "train.strategy=ddp", "--out", "two")

    assert done.exit_code == 0, done.err
    assert losses(terminal, "two") == pytest.approx(losses(terminal, "one"), abs=1e-6)
    assert len(losses(terminal, "two")) == STEPS
    assert "[n0] rank0 " in done.err
    assert "[n1] supervisor " in done.err
    status = terminal.type("status", "last", "--json").json()["run"]
    assert [(node["node"], node["phase"]) for node in status["nodes"]] == [(0, "ended"), (1, "ended")]
    assert len(terminal.type("status", "--json").json()["runs"]) == 2, "a row a run"
    lines = terminal.type("logs", "last", "--json").out.splitlines()
    assert {json.loads(line)["node"] for line in lines} == {0, 1}
    assert "rank2" not in terminal.type("logs", "last", "--node", "0", "--rank", "2").out
    assert terminal.type("logs", "last", "--node", "2").exit_code == 2
    assert terminal.leftovers() == []


@pytest.mark.slow
def test_fsdp2_on_two_nodes_outlives_its_launcher_and_continues_on_fewer_nodes(terminal: Terminal) -> None:
    assert train(terminal, *ONE_NODE, "--out", "one").exit_code == 0
    sharded = (*TWO_NODES, "--set", "train.strategy=fsdp2", "--set", f"train.steps={STEPS}")
    launch = terminal.start(*JOB, *sharded, "--out", "two")
    launch.shows("[n1] training: ")
    launch.kill()
    resumed = terminal.type("resume", "last")

    assert resumed.exit_code == 0, resumed.err
    assert losses(terminal, "two") == pytest.approx(losses(terminal, "one"), abs=1e-6)
    saved = terminal.folder / "two" / "checkpoints" / f"step-{STEPS:06d}"
    assert len(list(saved.glob("*.distcp"))) == 4, "the shards of both machines"

    on_one = train(terminal, "--set", "train.strategy=fsdp2", "--from", "last", steps=STEPS + 2)
    assert on_one.exit_code == 0, on_one.err
    on_two = train(terminal, *sharded[:-2], "--from", "last", steps=STEPS + 4)
    assert on_two.exit_code == 0, on_two.err
    assert f"step {STEPS + 3}/" in on_two.err
    assert terminal.leftovers() == []


def step_of(terminal: Terminal, node: int) -> Any:
    """How the first rank of that node stands, once it has done a step after a checkpoint was saved."""

    def look() -> Any:
        (path,) = (terminal.state / "vastrun" / "boxes").glob(f"*-n{node}*/{layout.STATUS}")
        rank = json.loads(path.read_text())["ranks"][0]
        return rank if rank["step"] > 5 else None

    return eventually(look)


@pytest.mark.slow
def test_ranks_of_all_nodes_go_on_from_the_newest_checkpoint_when_one_was_killed(terminal: Terminal) -> None:
    steps = 300
    sharded = ("--set", "train.strategy=fsdp2", "--set", f"train.steps={steps}")
    assert train(terminal, *ONE_NODE, "--out", "one", steps=steps).exit_code == 0
    launch = terminal.start(*JOB, *TWO_NODES, *sharded, "--out", "two")
    launch.shows("[n1] training: ")
    os.kill(step_of(terminal, node=1)["pid"], signal.SIGKILL)
    done = launch.end()

    assert done.exit_code == 0, done.err
    assert losses(terminal, "two") == pytest.approx(losses(terminal, "one"), rel=1e-5)
    for out in ("two", "two/node-1"):
        outcome = json.loads((terminal.folder / out / "details" / "outcome.json").read_text())
        assert [start["reason"] for start in outcome["starts"]] == ["signal", "finished"]
        assert "rank 2 was killed by SIGKILL" in outcome["starts"][0]["detail"]
    assert "restart 1 on 2 ranks on each of 2 nodes" in done.err
    assert "resumes after step" in done.err
    assert "the ranks were restarted once" in terminal.type("why", "last").out
    assert terminal.leftovers() == []


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_the_stages_of_two_nodes_are_those_of_one_though_a_rank_of_the_second_is_killed_in_the_second(
    terminal: Terminal,
) -> None:
    go = terminal.folder / "go"
    go.mkdir()
    stages = ("launch", str(JOBS / "stages.yaml"), "--set", f"env.GO={go}")
    launch = terminal.start(*stages, "--set", "nodes=2", "--set", "ranks=1", "--out", "two")
    (go / "operator").touch()
    (rank,) = eventually(lambda: waiting_ranks(terminal, step=17), what="the wait of the second stage")
    os.kill(rank["pid"], signal.SIGKILL)
    (go / "refine").touch()
    (go / "distill").touch()
    done = launch.end()

    assert done.exit_code == 0, done.err
    one = terminal.type(*stages, "--out", "one")
    assert one.exit_code == 0, one.err
    assert losses(terminal, "two") == pytest.approx(losses(terminal, "one"), abs=1e-6)
    for out, starts in (("two", 4), ("two/node-1", 4), ("one", 3)):
        outcome = json.loads((terminal.folder / out / "details" / "outcome.json").read_text())
        assert [start["reason"] for start in outcome["starts"]].count("finished") == 3
        assert len(outcome["starts"]) == starts
    assert [stage["steps_done"] for stage in terminal.type("why", "last", "--json").json()["stages"]] == [
        10
    ] * 3
    assert terminal.leftovers() == []


def waiting_ranks(terminal: Terminal, step: int) -> list[Any]:
    """The ranks of the second node once they have done that step."""
    paths = [*(terminal.state / "vastrun" / "boxes").glob(f"*-n1*/{layout.STATUS}")]
    ranks = [rank for path in paths for rank in json.loads(path.read_text())["ranks"]]
    return [rank for rank in ranks if rank["step"] >= step]
