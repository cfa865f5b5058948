"""Which node this is, how it is reached, and the same start as torchrun would make it."""

import shlex
from pathlib import Path

import pytest

from vastrun.contract.job import Job
from vastrun.contract.program import ProgramSpec
from vastrun.onstart.nodes import ThisNode, network_environment, this_node_of, torchrun_line
from vastrun.onstart.supervision.launch_agent import master_of, rank_variables

PROGRAM = ProgramSpec(kind="command", argv=("python", "train.py"))
JOB = Job(run_id="calm-heron", ranks=2, program=PROGRAM, stall_s=60, start_s=60)


def test_one_node_needs_no_variables() -> None:
    this_node = this_node_of(1, {})
    assert (this_node.node, this_node.nodes, this_node.address) == (0, 1, "127.0.0.1")
    assert network_environment(this_node) == {}


def test_a_node_talks_over_the_interface_on_the_route_to_the_first() -> None:
    this_node = this_node_of(3, {"VASTRUN_NODE": "2", "VASTRUN_RENDEZVOUS": "127.0.0.1:29400"})
    assert (this_node.node, this_node.address, this_node.endpoint) == (2, "127.0.0.1", "127.0.0.1:29400")
    assert network_environment(this_node) == {"GLOO_SOCKET_IFNAME": "lo", "NCCL_SOCKET_IFNAME": "=lo"}
    assert list(this_node.ranks(2)) == [4, 5]


@pytest.mark.parametrize(
    ("node", "rendezvous", "fault"),
    [
        (None, "a:1", "VASTRUN_NODE: expected a number from 0 to 1, got ''"),
        ("2", "a:1", "VASTRUN_NODE: expected a number from 0 to 1, got '2'"),
        ("0", None, "VASTRUN_RENDEZVOUS: expected HOST:PORT of the first node, got ''"),
        ("0", "10.0.0.1", "VASTRUN_RENDEZVOUS: expected HOST:PORT of the first node, got '10.0.0.1'"),
        ("0", "10.0.0.1:65536", "VASTRUN_RENDEZVOUS: expected HOST:PORT of the first node"),
        ("0", "10.0.0.1:65535", "VASTRUN_RENDEZVOUS: expected HOST:PORT of the first node"),
    ],
)
def test_a_wrong_variable_is_named(node: str | None, rendezvous: str | None, fault: str) -> None:
    given = {"VASTRUN_NODE": node, "VASTRUN_RENDEZVOUS": rendezvous}
    with pytest.raises(ValueError, match="VASTRUN_") as caught:
        this_node_of(2, {name: value for name, value in given.items() if value is not None})
    assert str(caught.value).startswith(fault)


@pytest.mark.torch
@pytest.mark.parametrize(
    "this_node", [ThisNode(), ThisNode(node=1, nodes=2, host="10.0.0.1", port=29400, address="10.0.0.2")]
)
def test_the_torchrun_line_starts_what_the_supervisor_starts(this_node: ThisNode, tmp_path: Path) -> None:
    from torch.distributed.run import config_from_args, parse_args

    _, *words = shlex.split(torchrun_line(JOB, this_node))
    typed, program, arguments = config_from_args(parse_args(words))
    ours = rank_variables(JOB, this_node, 2, 0, tmp_path)
    assert [program, *arguments] == ["python", "train.py"]
    assert [str(number) for number in (typed.nproc_per_node, typed.max_nodes, typed.max_restarts)] == [
        ours["LOCAL_WORLD_SIZE"],
        ours["GROUP_WORLD_SIZE"],
        ours["TORCHELASTIC_MAX_RESTARTS"],
    ]
    if this_node.nodes > 1:
        assert (typed.run_id, typed.rdzv_backend) == (ours["TORCHELASTIC_RUN_ID"], "c10d")
        assert typed.rdzv_endpoint.startswith(f"{master_of(this_node)[0]}:")
        assert typed.local_addr == this_node.address
