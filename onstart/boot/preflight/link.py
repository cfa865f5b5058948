"""Link: measures an all-reduce between the nodes of a run before data is downloaded."""

from __future__ import annotations

import os
import sys
from datetime import timedelta
from functools import partial
from pathlib import Path

import torch
import torch.distributed as torch_dist

from vastrun.contract.job import Job
from vastrun.onstart.boot.preflight import comm
from vastrun.onstart.nodes import ThisNode, network_environment, this_node_of

MEGABYTES = 16
_CONNECT_TIMEOUT_S = 600.0
"""Timeout for all nodes to connect: one may have tested several settings of its ranks before."""


def check_link(box: Path, min_mbps: float, backend: str) -> int:
    """Measure the rate between the nodes, by one rank of each. Returns the step's exit status."""
    job = Job.read(box)
    this_node = this_node_of(job.nodes, os.environ)
    work = partial(_all_reduce, this_node, backend)
    forked = comm.run_forked(work, 1, network_environment(this_node), 60.0, start_s=_CONNECT_TIMEOUT_S)
    name = f"all-reduce {job.nodes} nodes {backend} {MEGABYTES} MB"
    if fault := fault_of(forked, min_mbps):
        print(f"{name}: {fault}", file=sys.stderr)
        return 1
    print(f"{name}: {_mbps(forked):.0f} Mbit/s, sum correct")
    return 0


def fault_of(forked: comm.ForkedRanks, min_mbps: float) -> str:
    """Return why the nodes cannot train together; empty if they can."""
    if forked.faults:
        return f"the nodes cannot reach each other: the rank {forked.faults[0]}"
    if _mbps(forked) < min_mbps:
        return f"only {_mbps(forked):.0f} Mbit/s between the nodes, expected at least {min_mbps:g}"
    return ""


def _all_reduce(this_node: ThisNode, backend: str, _rank: int, _ranks: int, folder: Path) -> float | None:
    """Sum over the nodes; return GB/s. Raises RuntimeError for failed communication or a wrong sum."""
    nodes, device = this_node.nodes, comm.device_of(0, gpus=1 if backend == "nccl" else 0)
    # At a port of its own: the supervisors and the ranks use the next two.
    store = torch_dist.TCPStore(
        this_node.host,
        this_node.port,
        world_size=nodes,
        is_master=this_node.is_host,
        timeout=timedelta(seconds=_CONNECT_TIMEOUT_S),
    )
    torch_dist.init_process_group(
        backend,
        store=torch_dist.PrefixStore("link", store),
        rank=this_node.node,
        world_size=nodes,
        timeout=timedelta(seconds=_CONNECT_TIMEOUT_S),
        **comm.eager_init_options(device),
    )
    values = torch.empty(MEGABYTES * 250_000, device=device)
    torch_dist.barrier()
    comm.report_ready(0, folder)
    # The first is the slowest: connections are made.
    figure = comm.measure_all_reduce(values, this_node.node, nodes, times=3)
    # Node 0 has the store: it exits last.
    store.set(f"done {this_node.node}", "")
    if this_node.is_host:
        store.wait([f"done {node}" for node in range(nodes)])
    return figure


def _mbps(forked: comm.ForkedRanks) -> float:
    return (forked.figure or 0.0) * 8000  # from GB/s
