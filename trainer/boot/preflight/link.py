"""Link: the nodes of a run all-reduce before anything is fetched: do they reach each other, and how fast?"""

from __future__ import annotations

import os
import sys
from datetime import timedelta
from functools import partial
from pathlib import Path

import torch
import torch.distributed as torch_dist

from vastrun.contract.job import Job
from vastrun.trainer.boot.preflight.comm import at_once, measured
from vastrun.trainer.boot.preflight.forked import Forked, Work, run_forked, say_ready
from vastrun.trainer.distributed.group import device_of
from vastrun.trainer.distributed.nodes import ThisNode, network_environment, this_node_of

MEGABYTES = 16
_TIMES = 3
"""The first is the slowest: connections are made."""
_MEET_S = 600.0
"""The nodes do not come here together: one may have had to try several ways for its own ranks to talk."""
_LIMIT_S = 60.0
"""2 x 3 Mbit/s would do."""
_MBPS = 8000.0
"""So many Mbit/s are a GB/s."""


def check_link(box: Path, least_mbps: float, backend: str) -> int:
    """Measure how fast the nodes reach each other, by one rank of each. Returns the step's exit status."""
    job = Job.read(box)
    this_node = this_node_of(job.nodes, os.environ)
    work = between_nodes(this_node, backend)
    forked = run_forked(work, 1, network_environment(this_node), _LIMIT_S, start_s=_MEET_S)
    name = f"all-reduce {job.nodes} nodes {backend} {MEGABYTES} MB"
    if fault := fault_of(forked, least_mbps):
        print(f"{name}: {fault}", file=sys.stderr)
        return 1
    print(f"{name}: {_mbps(forked):.0f} Mbit/s, sum right")
    return 0


def fault_of(forked: Forked, least_mbps: float) -> str:
    """Say what keeps the nodes from training together; empty when nothing does."""
    if forked.faults:
        return f"the nodes do not reach each other: the rank {forked.faults[0]}"
    if _mbps(forked) < least_mbps:
        return f"only {_mbps(forked):.0f} Mbit/s between the nodes, expected at least {least_mbps:g}"
    return ""


def between_nodes(this_node: ThisNode, backend: str) -> Work:
    """Do this node's part. Returns gigabytes a second."""
    return partial(_all_reduce, this_node, backend)


def _all_reduce(this_node: ThisNode, backend: str, _rank: int, _ranks: int, folder: Path) -> float | None:
    """Sum over the nodes. Raises RuntimeError when they cannot talk, or the sum is wrong."""
    nodes, device = this_node.nodes, device_of(0, gpus=1 if backend == "nccl" else 0)
    # At the port of the agents' rendezvous, which begins only when all nodes are done with this.
    store = torch_dist.TCPStore(
        this_node.host,
        this_node.port,
        world_size=nodes,
        is_master=this_node.is_host,
        timeout=timedelta(seconds=_MEET_S),
    )
    torch_dist.init_process_group(
        backend,
        store=torch_dist.PrefixStore("link", store),
        rank=this_node.node,
        world_size=nodes,
        timeout=timedelta(seconds=_MEET_S),
        **at_once(device),
    )
    values = torch.empty(MEGABYTES * 250_000, device=device)
    torch_dist.barrier()
    say_ready(0, folder)
    figure = measured(values, this_node.node, nodes, times=_TIMES)
    # Node 0 has the store: it leaves last.
    store.set(f"done {this_node.node}", "")
    if this_node.is_host:
        store.wait([f"done {node}" for node in range(nodes)])
    return figure


def _mbps(forked: Forked) -> float:
    return (forked.figure or 0.0) * _MBPS
