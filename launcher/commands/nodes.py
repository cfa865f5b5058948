"""Nodes: drives a run with all of its nodes, a thread for each further one, and replaces those that leave.

The threads share only what stops this launcher: a full disk, a rejected key, another launcher that took over.
All else a node learns from the rows of the others (`flow/run_state.py`).
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TypeVar

from vastrun.launcher.config import dump_job, read_job
from vastrun.launcher.core import Event, Phase, Progress, Run, UserRequest
from vastrun.launcher.core.bills import cost_usd
from vastrun.launcher.core.errors import BudgetError, HeldError
from vastrun.launcher.core.job import JobSpec
from vastrun.launcher.decisions.nodes import (
    current_machines,
    is_replacement,
    is_replacement_due,
    max_replacements,
    replacement_job,
    total_usd,
)
from vastrun.launcher.flow.drive import create_replacement, drive
from vastrun.launcher.flow.services import Services
from vastrun.launcher.ports import RunThreads, Screen

MAX_NODES = 64
_T = TypeVar("_T")
_RENTING_CONTINUES = (UserRequest.NONE, UserRequest.DETACH_ONCE_TRAINING)
"""While the user asks for nothing else, machines are rented."""


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

    def guard(self, work: Callable[[], _T]) -> _T:
        """Do it for one of them; what it raises, the others will."""
        try:
            return work()
        except BaseException as error:
            self.error = self.error or error
            raise


@dataclass(frozen=True, kw_only=True)
class NodeDriver:
    """Drives the rows of one run, each with its own services."""

    services_of: Callable[[Run], Services]
    replacement_of: Callable[[Run, Callable[[str], None]], Run | None]
    """Returns the row of a replacement for a machine that left, or None; reports either to the user."""
    stop_event: StopEvent = field(default_factory=StopEvent)
    lock: threading.Lock = field(default_factory=threading.Lock)

    def drive(self, row: Run, services: Services) -> Run:
        """Drive one row as far as it goes."""
        screen = NodeScreen(services.screen, row.node, self.lock)
        notifier = None if row.leader else services.notifier
        own = replace(services, screen=screen, notifier=notifier, check_nodes=self.stop_event.check)
        return self.stop_event.guard(lambda: drive(row, read_job(row.spec_json), own))

    def drive_node(self, row: Run, leader: Services) -> None:
        """Drive the machine of a further node, and those that come in its place."""
        following: Run | None = row
        while following is not None:
            row = following
            if row.phase is not Phase.ENDED:
                row = self.drive(row, self.services_of(row))
            self.stop_event.check()
            following = self.stop_event.guard(
                partial(self.replacement_of, row, partial(self._report, row, leader))
            )

    def _report(self, row: Run, services: Services, text: str) -> None:
        """Write a line once to the run's diary and to the screen, whatever launcher drives the run later."""
        ledger, now = services.ledger, services.clock.now()
        run = ledger.get(row.leader)
        if any(event.text == text for event in ledger.events(run.id)):
            return
        event = Event(run_id=run.id, at=now, phase=run.phase, text=text, usd=cost_usd(run, now))
        ledger.add_event(event)
        shown = replace(event, usd=total_usd((run, *ledger.runs(leader=run.id)), now))
        NodeScreen(services.screen, row.node, self.lock).report(shown)


def drive_nodes(
    run: Run,
    spec: JobSpec,
    services_of: Callable[[Run], Services],
    workers: Callable[[], AbstractContextManager[RunThreads]],
    replacement_of: Callable[[Run, Callable[[str], None]], Run | None],
) -> Run:
    """Drive the run and its further nodes as far as they go; return the run, which has the verdict of all.

    `services_of` makes those of a row, `replacement_of` that of another machine for a node that left.
    Raises as `drive`, for whichever node that was.
    """
    services = services_of(run)
    driver = NodeDriver(services_of=services_of, replacement_of=replacement_of)
    rows = current_machines(services.ledger.runs(leader=run.id))
    if spec.min_nodes == spec.nodes:
        rows = [row for row in rows if row.phase is not Phase.ENDED]
    with workers() as pool:
        for row in rows:
            pool.submit(partial(driver.drive_node, row, services))
        run = driver.drive(run, services)
    driver.stop_event.check()
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


def node_name(node: int) -> str:
    """Return how a node is called before what it says, as in `[n1]`."""
    return f"[n{node}]"


def prefix_node(line: str, node: int) -> str:
    """Return a line of the log, `<time> <source> <text>`, with the node before its source."""
    at, blank, rest = line.partition(" ")
    return f"{at}{blank}{node_name(node)}{blank}{rest}"


def replacement_of(former: Run, services: Services, report: Callable[[str], None]) -> Run | None:
    """Record a replacement for a machine that is gone; return None, with a report, when there is none.

    Raises StorageError.
    """
    ledger, now = services.ledger, services.clock.now()
    run, nodes = ledger.get(former.leader), ledger.runs(leader=former.leader)
    request = services.user_requests.current().or_stronger(ledger.user_request(run.id))
    spec = read_job(run.spec_json)
    if request not in _RENTING_CONTINUES or not is_replacement_due(spec, run, nodes, former):
        return None
    job = replacement_job(spec, run, nodes, former, now, free=services.provider.free)
    if not isinstance(job, str) and not services.provider.abilities.replaces_nodes:
        job = f"{services.provider.name} gives a run all of its machines at once"
    if isinstance(job, str):
        report(f"no machine in place of node {former.node}: {job}")
        return None
    machines = sum(row.node == former.node for row in nodes)
    try:
        row = create_replacement(job, dump_job(job), run, former, machines, services)
    except BudgetError as error:
        report(f"no machine in place of node {former.node}: {error}")
        return None
    except HeldError:  # the run has just ended, or its own thread is about to find out who drives it now
        return None
    of = f"{1 + sum(map(is_replacement, nodes))} of {max_replacements(spec)}"
    report(f"node {former.node} left ({former.cause}); a machine is rented in its place ({of})")
    return row
