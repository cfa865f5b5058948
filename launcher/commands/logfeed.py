"""The log of a run as it grows: from its outputs while somebody drives it, else from its box."""

from __future__ import annotations

from launcher.core import Phase, Run
from launcher.core.errors import ProviderError
from launcher.flow.machines import machines_of
from launcher.gate.reading import look
from launcher.outputs.folder import CHUNK, GrowingFile, Outputs
from launcher.ports import Ledger, Provider, Remote
from trainer.contract import layout


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
