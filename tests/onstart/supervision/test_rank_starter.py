"""What the ranks of a user's program are told of each other, without torch."""

import json
from pathlib import Path

import pytest

from tests.onstart.supervision.launches import job_of, read_job
from vastrun.contract import layout
from vastrun.contract.job import Job
from vastrun.onstart.nodes import ThisNode
from vastrun.onstart.supervision.launch_agent import master_of, rank_variables, start_ranks

BOX = Path("/box")
FIRST = ThisNode(node=0, nodes=2, host="gpu.example.com", port=29400, address="10.0.0.1")
SECOND = ThisNode(node=1, nodes=2, host="gpu.example.com", port=29400, address="10.0.0.2")


def test_a_rank_has_the_variables_that_torchrun_sets_numbered_node_by_node() -> None:
    assert rank_variables(read_job(), SECOND, count=4, local=1, box=BOX) == {
        "LOCAL_RANK": "1",
        "RANK": "5",
        "GROUP_RANK": "1",
        "ROLE_RANK": "5",
        "LOCAL_WORLD_SIZE": "4",
        "WORLD_SIZE": "8",
        "GROUP_WORLD_SIZE": "2",
        "ROLE_WORLD_SIZE": "8",
        "ROLE_NAME": "rank",
        "TORCHELASTIC_RESTART_COUNT": "0",
        "TORCHELASTIC_MAX_RESTARTS": "0",
        "TORCHELASTIC_RUN_ID": "calm-heron-3f1a",
        "TORCHELASTIC_USE_AGENT_STORE": "False",
        "TORCHELASTIC_ERROR_FILE": "/box/run/ranks/rank-5.error.json",
    }


def test_ranks_of_several_nodes_meet_at_the_first_node_two_ports_above_the_rendezvous() -> None:
    assert master_of(FIRST) == ("10.0.0.1", 29402)
    assert master_of(SECOND) == ("gpu.example.com", 29402)


def test_ranks_that_end_well_have_no_failures(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parents[3]))
    for code, failed in ((0, []), (3, [(0, 3)])):
        box = tmp_path / str(code)
        (box / layout.RANKS).mkdir(parents=True)
        text = json.dumps(job_of(command=["sh", "-c", f"exit {code}"]))
        (box / layout.JOB).write_text(text)
        monkeypatch.setenv("VASTRUN_BOX", str(box))
        failures = start_ranks(Job.read(box), ThisNode(), 1, box)
        assert [(failure.rank, failure.exit_code) for failure in failures] == failed


def test_ranks_of_one_node_meet_at_a_free_port_of_the_loopback() -> None:
    address, port = master_of(ThisNode())
    assert address == "127.0.0.1"
    assert 1024 < port < 32_768  # which no connection takes meanwhile
