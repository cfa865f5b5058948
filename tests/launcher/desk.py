"""Desk: a terminal at which the runs of a batch take their time together."""

from pathlib import Path

from tests.fakebox import Training
from tests.launcher.batch.virtual_time import VirtualTime
from tests.launcher.terminal import Terminal
from vastrun.launcher.app import App

FILE = """\
name: widths
job: job.yaml
grid: {train.seed: [1, 2, 3], train.batch: [8, 16]}
limits: {usd: 20, parallel: 3}
"""


class Desk(Terminal):
    """`submit` the batch of `file`, which has six points."""

    def __init__(self, folder: Path, *trainings: Training, usd_per_hour: float = 3.6) -> None:
        self.time = VirtualTime()
        super().__init__(folder, *trainings, usd_per_hour=usd_per_hour, clock=self.time)
        self.file = folder / "batch.yaml"
        self.file.write_text(FILE)

    def app(self) -> App:
        return super().app().with_changes(workers=self.time.workers, wake_signal=lambda: self.time)

    def submit(self, *options: str) -> tuple[int, str, str]:
        result = self.type(
            "batch", "submit", str(self.file), "-y", "--out", str(self.folder / "out"), *options
        )
        return result.exit_code, result.stdout, result.stderr
