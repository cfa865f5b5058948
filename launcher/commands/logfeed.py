"""The log of a run as it grows: from its outputs while a launcher drives it, else from its machine."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from operator import itemgetter
from typing import Protocol

from vastrun.contract import layout
from vastrun.launcher.commands.nodes import prefix_node
from vastrun.launcher.core import Phase, Run
from vastrun.launcher.core.errors import ProviderError, UsageError
from vastrun.launcher.flow.machines import find_machines
from vastrun.launcher.gate.box_reader import fetch_status
from vastrun.launcher.outputs.folder import CHUNK, GrowingFile, Outputs
from vastrun.launcher.ports import Ledger, Provider, Remote


class Feed(Protocol):
    """Lines of a log as they come."""

    @property
    def is_finished(self) -> bool:
        """No more lines will come."""
        ...

    @property
    def note(self) -> str:
        """Reason why no more lines can be read; empty while they can."""
        ...

    def more(self) -> str:
        """Return whole lines that are new since the last call."""
        ...


def feed_of(run: Run, ledger: Ledger, provider: Provider, node: int | None = None) -> Feed:
    """Return the log of the run: of all its nodes, or of one. Raises UsageError where it has no such node."""
    rows = [run, *ledger.runs(leader=run.id)]
    nodes = {row.node for row in rows}
    if node is not None and node not in nodes:
        has = f"nodes 0 to {max(nodes)}" if len(nodes) > 1 else "one node, 0"
        raise UsageError(f"--node {node}: {run.id} has {has}", hint=f"vastrun logs {run.id}")
    selected = [row for row in rows if node in (None, row.node)]
    if len(selected) == 1:
        return LogFeed(selected[0], ledger, provider)

    def list_rows() -> Sequence[Run]:
        return [row for row in ledger.runs(leader=run.id) if node in (None, row.node)]

    return MergedFeed(selected, list_rows, lambda row: LogFeed(row, ledger, provider))


class MergedFeed:
    """The logs of several machines as one, by time, each line with the name of its node."""

    def __init__(
        self, rows: Sequence[Run], list_rows: Callable[[], Sequence[Run]], feed_of: Callable[[Run], LogFeed]
    ) -> None:
        """`come` returns the rows of further nodes, as they are now: some came in place of others."""
        self._list_rows, self._feed_of = list_rows, feed_of
        self._machines = {row.id: _Machine(feed=feed_of(row), node=row.node) for row in rows}

    @property
    def is_finished(self) -> bool:
        """No more lines will come."""
        return all(machine.feed.is_finished and not machine.waiting for machine in self._machines.values())

    @property
    def note(self) -> str:
        """Reason why no more lines can be read; empty while they can."""
        return next((machine.feed.note for machine in self._machines.values() if machine.feed.note), "")

    def more(self) -> str:
        """Return whole lines that are new since the last call."""
        for row in self._list_rows():
            if row.id not in self._machines:
                self._machines[row.id] = _Machine(feed=self._feed_of(row), node=row.node)
        machines = self._machines.values()
        for machine in machines:
            if not machine.waiting:
                machine.waiting = _dated(machine.feed.more(), machine.node)
        # As far as every node that said something has been read: nothing earlier of these will follow.
        until = min((one.waiting[-1][0] for one in machines if one.waiting), default=-math.inf)
        found: list[tuple[float, str]] = []
        for machine in machines:
            count = sum(at <= until for at, _ in machine.waiting)
            found += machine.waiting[:count]
            machine.waiting = machine.waiting[count:]
        return "".join(text for _, text in sorted(found, key=itemgetter(0)))


@dataclass(kw_only=True)
class _Machine:
    """One of a run's machines: its log, and the lines of it that later ones of others may precede."""

    feed: LogFeed
    node: int
    waiting: list[tuple[float, str]] = field(default_factory=list)


def _dated(text: str, node: int) -> list[tuple[float, str]]:
    """The lines with their times, which never go back; one without a time has that of the line before."""
    found, at = [], -math.inf
    for line in text.removesuffix("\n").split("\n") if text else []:
        with suppress(ValueError):
            at = max(at, float(line.partition(" ")[0]))
        found.append((at, f"{prefix_node(line, node)}\n"))
    return found


class LogFeed:
    """New lines of one run's log. Writes nothing: the log in the outputs belongs to the run's driver."""

    def __init__(self, run: Run, ledger: Ledger, provider: Provider) -> None:
        self._run_id, self._ledger, self._provider = run.id, ledger, provider
        self._file = GrowingFile(Outputs(run).log)
        self._remote: Remote | None = None
        self.is_finished = False
        """No more lines will come."""
        self.note = ""
        """Reason why no more lines can be read; empty while they can."""

    def more(self) -> str:
        """Return whole lines that are new since the last call."""
        run = self._ledger.get(self._run_id)
        text = self._file.more()
        if text:
            return text
        self.is_finished = run.phase is Phase.ENDED
        if run.phase is Phase.TRAIN and self._ledger.driver(run.id) is None:
            return self._from_box(run)
        return ""

    def _from_box(self, run: Run) -> str:
        """Return what the box's log has beyond the copy in the outputs."""
        self.note = ""
        try:
            remote = self._connected(run)
            if remote is None:
                return ""
            text = self._read(remote)
            if text or fetch_status(remote).box == "running":
                return text
            # What was written between the two looks is still to be read.
            text = self._read(remote)
            self.is_finished, self.note = (
                not text,
                f"the training has ended; download its outputs: vastrun attach {run.id}",
            )
            return text
        except ProviderError as error:
            self._remote, self.note = None, str(error)
            return ""

    def _read(self, remote: Remote) -> str:
        return self._file.take(remote.read(layout.LOG, offset=self._file.at, limit=CHUNK))

    def _connected(self, run: Run) -> Remote | None:
        if self._remote is None:
            machines = find_machines(run, self._provider)
            if not machines:
                self.is_finished, self.note = True, f"its machine no longer exists: vastrun attach {run.id}"
                return None
            self._remote = self._provider.connect(machines[0])
        return self._remote
