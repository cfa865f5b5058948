"""What the ranks of a user's program are told of each other, without torch."""

from __future__ import annotations

from pathlib import Path

from tests.trainer.supervision.launches import job_of
from vastrun.contract.job import Job
from vastrun.contract.records import read_as
from vastrun.trainer.distributed.nodes import ThisNode
from vastrun.trainer.supervision.rank_starter import master_of, rank_variables

BOX = Path("/box")
FIRST = ThisNode(node=0, nodes=2, host="gpu.example.com", port=29400, address="10.0.0.1")
SECOND = ThisNode(node=1, nodes=2, host="gpu.example.com", port=29400, address="10.0.0.2")


def job() -> Job:
    found = read_as(Job, job_of())
    assert isinstance(found, Job)
    return found


def test_ranks_are_numbered_node_by_node() -> None:
    variables = rank_variables(job(), SECOND, count=4, local=1, box=BOX)
    assert {name: variables[name] for name in ("RANK", "LOCAL_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE")} == {
        "RANK": "5",
        "LOCAL_RANK": "1",
        "WORLD_SIZE": "8",
        "LOCAL_WORLD_SIZE": "4",
    }
    assert (variables["GROUP_RANK"], variables["GROUP_WORLD_SIZE"]) == ("1", "2")


def test_ranks_of_several_nodes_meet_at_the_first_node_two_ports_above_the_rendezvous() -> None:
    assert master_of(FIRST) == ("10.0.0.1", 29402)
    assert master_of(SECOND) == ("gpu.example.com", 29402)


def test_ranks_of_one_node_meet_at_a_free_port_of_the_loopback() -> None:
    address, port = master_of(ThisNode())
    assert address == "127.0.0.1"
    assert port > 0
