"""Driving a run with all of its nodes: a thread for each further one, and one fate for all.

The nodes tell each other nothing here: each reads the rows of the others (`flow/gang.py`). They share only
what keeps this launcher from going on: a full disk, a key that is refused, another launcher that took over.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace

from launcher.core import Event, Phase, Progress, Run
from launcher.core.job import JobSpec
from launcher.flow import drive
from launcher.flow.context import Services
from launcher.ports import RunThreads, Screen

MOST_NODES = 64


def threads() -> AbstractContextManager[RunThreads]:
    """Return threads for the further nodes of one run."""
    return ThreadPoolExecutor(max_workers=MOST_NODES, thread_name_prefix="node")


@dataclass
class Halt:
    """What one node could not go on with: then none does."""

    error: BaseException | None = None

    def check(self) -> None:
        """Raise it. Every node calls this whenever it has waited."""
        if self.error is not None:
            raise self.error

    def drive(self, run: Run, spec: JobSpec, services: Services) -> Run:
        """Drive one of them; what it raises, the others will."""
        try:
            return drive(run, spec, services)
        except BaseException as error:
            self.error = self.error or error
            raise


def drive_nodes(
    run: Run,
    spec: JobSpec,
    services_of: Callable[[int], Services],
    workers: Callable[[], AbstractContextManager[RunThreads]],
) -> Run:
    """Drive the run and its further nodes as far as they go; return the run, which has the verdict of all.

    `services_of` makes those of a node. Raises as `drive`, for whichever node that was.
    """
    services = services_of(0)
    if spec.nodes == 1:
        return drive(run, spec, services)
    halt, lock = Halt(), threading.Lock()
    left = [one for one in services.ledger.runs(leader=run.id) if one.phase is not Phase.ENDED]
    with workers() as pool:
        for one in left:
            pool.submit(_driving(one, spec, _shared(services_of(one.node), one, halt, lock), halt))
        run = halt.drive(run, spec, _shared(services, run, halt, lock))
    halt.check()
    return run


def _driving(run: Run, spec: JobSpec, services: Services, halt: Halt) -> Callable[[], Run]:
    return lambda: halt.drive(run, spec, services)


def _shared(services: Services, run: Run, halt: Halt, lock: threading.Lock) -> Services:
    screen = NodeScreen(services.screen, run.node, lock)
    notifier = None if run.leader else services.notifier
    return replace(services, screen=screen, notifier=notifier, may_go_on=halt.check)


class NodeScreen:
    """What one node shows, with its name before each line. The line of progress is that of node 0."""

    def __init__(self, screen: Screen, node: int, lock: threading.Lock) -> None:
        self._screen, self._node, self._lock = screen, node, lock
        self._rest = ""

    def event(self, event: Event) -> None:
        """Show an event of this node."""
        with self._lock:
            self._screen.event(replace(event, text=f"{name_of(self._node)} {event.text}"))

    def log(self, text: str) -> None:
        """Show whole lines of this node's log: those of two nodes must not meet in one."""
        *lines, self._rest = (self._rest + text).split("\n")
        if lines:
            with self._lock:
                self._screen.log("".join(f"{with_node(line, self._node)}\n" for line in lines))

    def progress(self, run: Run, progress: Progress, *, usd: float) -> None:
        """Show where the run stands, by its node 0."""
        if not run.leader:
            with self._lock:
                self._screen.progress(run, progress, usd=usd)


def name_of(node: int) -> str:
    """Return how a node is called before what it says, as in `[n1]`."""
    return f"[n{node}]"


def with_node(line: str, node: int) -> str:
    """Return a line of the log, `<time> <source> <text>`, with the node before its source."""
    at, blank, rest = line.partition(" ")
    return f"{at}{blank}{name_of(node)}{blank}{rest}"
