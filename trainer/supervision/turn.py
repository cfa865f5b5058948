"""Turn: a supervisor that was started early has torch imported while the box's other steps work.

A rented GPU waits for packages, code and data anyway: the import takes none of its time.

It reads a line from its stdin when it is its turn. Until then it writes no evidence, and ends with whoever
started it. Standard library only.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

from trainer.contract.job import Job
from trainer.distributed.nodes import this_node_of
from trainer.supervision.agents import Agents
from trainer.supervision.processes import die_with_parent, outlive_parent
from trainer.supervision.restarts import Start
from trainer.supervision.watch import environment_of

TURN = "VASTRUN_TURN"
"""The environment variable with the process that says when; without it, it is this supervisor's turn."""


def await_turn(box: Path, agents: Agents) -> None:
    """Have the launch agent load; return when it is this supervisor's turn."""
    die_with_parent(int(os.environ.pop(TURN)))
    job = Job.read(box)
    this_node = this_node_of(job.nodes, os.environ)
    agents.prepare(box, environment_of(box, job, Start(world_size=job.ranks), this_node))
    if not os.read(0, 1):
        sys.exit("nobody is left who could say when it is this supervisor's turn")
    outlive_parent()
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.close(nothing)
