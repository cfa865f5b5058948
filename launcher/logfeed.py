"""The log of a run as it grows: written by whoever drives it, or fetched here while nobody does."""

from __future__ import annotations

from launcher.errors import HeldError, ProviderError
from launcher.model import Driver, Phase, Run
from launcher.outputs import GrowingFile, Outputs
from launcher.policy import HOLD_S, ours
from launcher.ports import Remote
from launcher.sight import look
from launcher.trip import Tools


class LogFeed:
    """New lines of one run's log."""

    def __init__(self, run: Run, tools: Tools) -> None:
        self._run, self._tools = run, tools
        self._file = GrowingFile(Outputs(run).log)
        self._remote: Remote | None = None
        self.note = ""
        """Why the log could not be brought up to date; empty when it could."""

    def more(self) -> str:
        """Whole lines that are new since the last call."""
        self._fetch()
        return self._file.more()

    @property
    def over(self) -> bool:
        """True when no more lines will come: the run ended, or its training did and nobody collects it."""
        ledger = self._tools.ledger
        if ledger.get(self._run.id).phase is Phase.ENDED:
            return True
        return ledger.driver(self._run.id) is None and self._remote is None

    def _fetch(self) -> None:
        """Brings the file up to date. Only one process may write it, so the run is held meanwhile."""
        self.note = ""
        ledger, who = self._tools.ledger, self._tools.who
        if ledger.get(self._run.id).phase is not Phase.TRAIN:
            return
        try:
            ledger.hold(self._run.id, Driver(who=who, until=self._tools.clock.now() + HOLD_S))
        except HeldError:
            return
        try:
            self._pump()
        except ProviderError as error:
            self._remote, self.note = None, str(error)
        finally:
            ledger.release(self._run.id, who)

    def _pump(self) -> None:
        if self._remote is None:
            machines = ours(self._run, self._tools.provider.instances())
            if not machines:
                self.note = "its machine is gone"
                return
            self._remote = self._tools.provider.connect(machines[0])
        while self._tools.shelf.pump(self._run, self._remote):
            pass
        if look(self._remote).box != "running":
            self._remote.close()
            self._remote, self.note = None, f"the training is over: vastrun attach {self._run.id} collects it"
