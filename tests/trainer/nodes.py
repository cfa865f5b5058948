"""Nodes that train apart, each a rank with a box of its own, and a store on node 0."""

from __future__ import annotations

import os
from collections.abc import Sequence
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

from tests.ports import free_port
from tests.trainer.conftest import Box, ended, forking, train


def boxes_of(folder: Path, nodes: int, **settings: Any) -> list[Box]:
    """A box for each node, without data."""
    return [Box(folder / f"node-{node}", strategy="diloco", **settings) for node in range(nodes)]


class RunningNodes:
    """One rank on each node. What still runs at the end is killed."""

    def __init__(self, boxes: Sequence[Box]) -> None:
        self._boxes, self._port = boxes, free_port(2)
        self.processes: list[BaseProcess] = []

    def __enter__(self) -> RunningNodes:
        self.processes = [self.start(node) for node in range(len(self._boxes))]
        return self

    def __exit__(self, *_: object) -> None:
        for process in self.processes:
            process.kill()
            process.join()

    def wait(self) -> list[int]:
        """The exit codes, by node."""
        return [ended(process) for process in self.processes]

    def start(self, node: int) -> BaseProcess:
        """Start the rank of a node."""
        box, nodes = self._boxes[node].path, len(self._boxes)
        variables = {
            "RANK": node,
            "LOCAL_RANK": 0,
            "WORLD_SIZE": nodes,
            "LOCAL_WORLD_SIZE": 1,
            "MASTER_ADDR": "127.0.0.1",
            "MASTER_PORT": self._port,
            "OMP_NUM_THREADS": 1,
            "VASTRUN_BOX": box,
        }
        environment = os.environ | {name: str(value) for name, value in variables.items()}
        process = forking().Process(target=train, args=(environment, box / "rank-0.log"))
        process.start()
        return process
