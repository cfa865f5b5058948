"""Nodes: drives a run with all of its nodes, a thread for each further one.

The threads share only what stops this launcher: a full disk, a rejected key, another launcher that took over.
All else a node learns from the rows of the others (`flow/run_state.py`).
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from functools import partial

from vastrun.launcher.core import Event, Phase, Progress, Run
from vastrun.launcher.core.errors import UsageError
from vastrun.launcher.core.job import JobSpec
from vastrun.launcher.flow.drive import drive
from vastrun.launcher.flow.services import Services
from vastrun.launcher.ports import Ledger, RunThreads, Screen

MAX_NODES = 64


def node_threads() -> AbstractContextManager[RunThreads]:
    """Return threads for the further nodes of one run."""
    return ThreadPoolExecutor(max_workers=MAX_NODES, thread_name_prefix="node")


@dataclass
class StopEvent:
    """Stops all nodes with the error of the first that failed."""

    error: BaseException | None = None

    def check(self) -> None:
        """Raise it. Every node calls this whenever it has waited."""
        if self.error is not None:
            raise self.error

    def drive(self, row: Run, spec: JobSpec, services: Services) -> Run:
        """Drive one node as far as it goes; what it raises, the others will."""
        try:
            return drive(row, spec, services)
        except BaseException as error:
            self.error = self.error or error
            raise


def drive_nodes(
    run: Run,
    spec: JobSpec,
    services_of: Callable[[Run], Services],
    workers: Callable[[], AbstractContextManager[RunThreads]],
) -> Run:
    """Drive the run and its further nodes as far as they go; return the run, which has the verdict of all.

    `services_of` makes those of a row. Raises as `drive`, for whichever node that was.
    """
    services, stop_event, lock = services_of(run), StopEvent(), threading.Lock()

    def own(row: Run, services: Services) -> Services:
        screen = NodeScreen(services.screen, row.node, lock)
        notifier = None if row.leader else services.notifier
        return replace(services, screen=screen, notifier=notifier, check_nodes=stop_event.check)

    rows = [row for row in services.ledger.runs(leader=run.id) if row.phase is not Phase.ENDED]
    # All are made before the first is driven: a node without services would keep the others waiting.
    nodes = [(row, own(row, services_of(row))) for row in rows]
    with workers() as pool:
        for row, node_services in nodes:
            pool.submit(partial(stop_event.drive, row, spec, node_services))
        run = stop_event.drive(run, spec, own(run, services))
    stop_event.check()
    return run


class NodeScreen:
    """Screen of one node: prefixes each line with its name. The progress line is that of node 0."""

    def __init__(self, screen: Screen, node: int, lock: threading.Lock) -> None:
        self._screen, self._node, self._lock = screen, node, lock
        self._rest = ""

    def report(self, event: Event) -> None:
        """Show an event of this node."""
        with self._lock:
            self._screen.report(replace(event, text=f"{node_name(self._node)} {event.text}"))

    def log(self, text: str) -> None:
        """Show whole lines of this node's log: those of two nodes must not meet in one."""
        *lines, self._rest = (self._rest + text).split("\n")
        if lines:
            with self._lock:
                self._screen.log("".join(f"{prefix_node(line, self._node)}\n" for line in lines))

    def progress(self, run: Run, progress: Progress, *, usd: float) -> None:
        """Show where the run stands, by its node 0."""
        if not run.leader:
            with self._lock:
                self._screen.progress(run, progress, usd=usd)


def node_row(run: Run, ledger: Ledger, node: int) -> Run:
    """Return the row of the newest machine of that node. Raises UsageError when the run has no such node."""
    rows = [run, *ledger.runs(leader=run.id)]
    found = [row for row in rows if row.node == node]
    if not found:
        last = max(row.node for row in rows)
        has = f"nodes 0 to {last}" if last else "one node, 0"
        raise UsageError(f"--node {node}: {run.id} has {has}", hint=f"vastrun status {run.id}")
    return found[-1]


def node_name(node: int) -> str:
    """Return how a node is called before what it says, as in `[n1]`."""
    return f"[n{node}]"


def prefix_node(line: str, node: int) -> str:
    """Return a line of the log, `<time> <source> <text>`, with the node before its source."""
    at, blank, rest = line.partition(" ")
    return f"{at}{blank}{node_name(node)}{blank}{rest}"
