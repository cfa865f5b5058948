"""Notebook: the Python API on a fake market. The launchers that it starts are threads in virtual time."""

from collections.abc import Callable
from concurrent.futures import Future
from pathlib import Path

from tests.fakebox import Training
from tests.launcher.desk import Desk
from vastrun.launcher.api.client import Client
from vastrun.launcher.api.driver_process import drive
from vastrun.launcher.api.drivers import Target
from vastrun.launcher.api.session import without_terminal
from vastrun.launcher.core.errors import VastrunError

JOB = {
    "name": "demo",
    "resources": {"gpus": 2},
    "limits": {"hours": 1, "usd": 3},
    "train": {"steps": 10, "batch": 8},
}


class ThreadDriver:
    """A launcher that takes its turn whenever somebody waits."""

    def __init__(self, future: Future[None]) -> None:
        self._future = future

    def is_alive(self) -> bool:
        return not self._future.done()

    def error(self) -> VastrunError | None:
        error = self._future.exception()
        assert error is None or isinstance(error, VastrunError), error
        return error


class Notebook(Desk):
    """`client` is what `import vastrun` offers; `started` are the launchers that it has started."""

    def __init__(self, folder: Path, *trainings: Training, usd_per_hour: float = 3.6) -> None:
        super().__init__(folder, *trainings, usd_per_hour=usd_per_hour)
        self.started: list[Target] = []
        self.troubles: list[VastrunError] = []
        """What the next launchers can not go on with."""
        self.client = Client(self.app, self._start)

    def _start(self, target: Target, secrets: bytes) -> ThreadDriver:
        self.started.append(target)
        return ThreadDriver(self.time.submit(self._work(target)))

    def _work(self, target: Target) -> Callable[[], None]:
        trouble = self.troubles.pop(0) if self.troubles else None

        def work() -> None:
            if trouble is not None:
                raise trouble
            app = without_terminal(self.app())
            interrupts = app.interrupts()
            drive(app, interrupts, target)

        return work
