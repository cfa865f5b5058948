"""The log of a run as it grows: from its outputs while a launcher drives it, else from its machine."""

from __future__ import annotations

import math
from collections.abc import Sequence
from contextlib import suppress
from operator import itemgetter

from vastrun.contract import layout
from vastrun.launcher.commands.nodes import node_row, prefix_node
from vastrun.launcher.core import Phase, Run
from vastrun.launcher.core.errors import ProviderError
from vastrun.launcher.flow.machines import find_machines
from vastrun.launcher.gate.box_reader import fetch_status
from vastrun.launcher.outputs.folder import CHUNK, GrowingFile, Outputs
from vastrun.launcher.ports import Ledger, Provider, Remote


def feed_of(run: Run, ledger: Ledger, provider: Provider, node: int | None = None) -> Feed:
    """Return the log of the run: of all its nodes, or of one. Raises UsageError where it has no such node."""
    rows = [run, *ledger.runs(leader=run.id)] if node is None else [node_row(run, ledger, node)]
    feeds = [LogFeed(row, ledger, provider) for row in rows]
    return feeds[0] if len(feeds) == 1 else MergedFeed(feeds)


class MergedFeed:
    """The logs of all nodes as one, by time, each line with the name of its node."""

    def __init__(self, feeds: Sequence[LogFeed]) -> None:
        self._feeds = feeds
        self._waiting: list[list[tuple[float, str]]] = [[] for _ in feeds]
        """Lines of each node that earlier ones of others may precede."""

    @property
    def is_finished(self) -> bool:
        """No more lines will come."""
        return all(feed.is_finished for feed in self._feeds) and not any(self._waiting)

    @property
    def note(self) -> str:
        """Reason why no more lines can be read; empty while they can."""
        return next((feed.note for feed in self._feeds if feed.note), "")

    def more(self) -> str:
        """Return whole lines that are new since the last call."""
        for node, feed in enumerate(self._feeds):
            if not self._waiting[node]:
                self._waiting[node] = _dated(feed.more(), node)
        # As far as every node that said something has been read: nothing earlier of these will follow.
        until = min((lines[-1][0] for lines in self._waiting if lines), default=-math.inf)
        found: list[tuple[float, str]] = []
        for node, lines in enumerate(self._waiting):
            count = sum(at <= until for at, _ in lines)
            found += lines[:count]
            self._waiting[node] = lines[count:]
        return "".join(text for _, text in sorted(found, key=itemgetter(0)))


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
        if run.phase is not Phase.TRAIN or self._ledger.driver(run.id) is not None:
            return ""
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
        except ProviderError as error:
            self._remote, self.note = None, str(error)
            return ""
        self.is_finished = not text
        self.note = f"the training has ended; download its outputs: vastrun attach {run.id}"
        return text

    def _read(self, remote: Remote) -> str:
        return self._file.take(remote.read(layout.LOG, offset=self._file.at, limit=CHUNK))

    def _connected(self, run: Run) -> Remote | None:
        if self._remote is None:
            machines = find_machines(run, self._provider)
            if not machines:
                self.is_finished = True
                self.note = f"its machine is gone by the list: vastrun attach {run.id}"
                return None
            self._remote = self._provider.connect(machines[0])
        return self._remote


Feed = LogFeed | MergedFeed
"""Lines of a log as they come."""
