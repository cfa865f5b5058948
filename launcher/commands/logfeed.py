"""The log of a run as it grows: from its outputs while somebody drives it, else from its box."""

from __future__ import annotations

import math
from collections.abc import Sequence
from contextlib import suppress
from operator import itemgetter
from typing import Protocol

from launcher.commands.gang import with_node
from launcher.core import Phase, Run
from launcher.core.errors import ProviderError, UsageError
from launcher.flow.machines import machines_of
from launcher.gate.reading import look
from launcher.outputs.folder import CHUNK, GrowingFile, Outputs
from launcher.ports import Ledger, Provider, Remote
from trainer.contract import layout


class Feed(Protocol):
    """Lines of a log as they come."""

    @property
    def over(self) -> bool:
        """No more lines will come."""
        ...

    @property
    def note(self) -> str:
        """What stands in the way of more lines."""
        ...

    def more(self) -> str:
        """Return whole lines that are new since the last call."""
        ...


def feed_of(run: Run, ledger: Ledger, provider: Provider, node: int | None = None) -> Feed:
    """Return the log of the run: of all its nodes, or of one. Raises UsageError where it has no such node."""
    rows = [run, *ledger.runs(leader=run.id)]
    if node is not None and node >= len(rows):
        has = f"nodes 0 to {len(rows) - 1}" if len(rows) > 1 else "one node, 0"
        raise UsageError(f"--node {node}: {run.id} has {has}", hint=f"vastrun logs {run.id}")
    feeds = [LogFeed(row, ledger, provider) for row in rows]
    if node is not None or len(feeds) == 1:
        return feeds[node or 0]
    return MergedFeed(feeds)


class MergedFeed:
    """The logs of several nodes as one, by time, each line with the name of its node."""

    def __init__(self, feeds: Sequence[LogFeed]) -> None:
        self._feeds = feeds
        self._waiting: list[list[tuple[float, str]]] = [[] for _ in feeds]

    @property
    def over(self) -> bool:
        """No more lines will come."""
        return all(feed.over for feed in self._feeds) and not any(self._waiting)

    @property
    def note(self) -> str:
        """What stands in the way of more lines."""
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
        found.append((at, f"{with_node(line, node)}\n"))
    return found


class LogFeed:
    """New lines of one run's log. Writes nothing: the log in the outputs belongs to the run's driver."""

    def __init__(self, run: Run, ledger: Ledger, provider: Provider) -> None:
        self._run_id, self._ledger, self._provider = run.id, ledger, provider
        self._file = GrowingFile(Outputs(run).log)
        self._remote: Remote | None = None
        self.over = False
        """No more lines will come."""
        self.note = ""
        """What stands in the way of more lines."""

    def more(self) -> str:
        """Return whole lines that are new since the last call."""
        run = self._ledger.get(self._run_id)
        text = self._file.more()
        if text:
            return text
        self.over = run.phase is Phase.ENDED
        if run.phase is Phase.TRAIN and self._ledger.driver(run.id) is None:
            return self._from_box(run)
        return ""

    def _from_box(self, run: Run) -> str:
        """The log on the box goes on where the one in the outputs ends."""
        self.note = ""
        try:
            remote = self._connected(run)
            if remote is None:
                return ""
            text = self._read(remote)
            if text or look(remote).box == "running":
                return text
            # What was written between the two looks is still to be read.
            text = self._read(remote)
            self.over, self.note = (
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
            machines = machines_of(run, self._provider)
            if not machines:
                self.over, self.note = True, f"its machine no longer exists: vastrun attach {run.id}"
                return None
            self._remote = self._provider.connect(machines[0])
        return self._remote
