"""What `faulty` makes; it needs torch, which what makes the data does without."""

import os
import threading
from pathlib import Path

from trainer.contract import layout
from trainer.data.trajectories import TrajectoryTask

HANGS_AT = 12
WAITS_AT = 25


class Hanging(TrajectoryTask):
    def batch(self, step, indices):
        if step == HANGS_AT and os.environ["RANK"] == "1":
            wait_for_what_never_comes()
        return super().batch(step, indices)


class Waiting(TrajectoryTask):
    """Goes past that step only in a run that continues another one."""

    def batch(self, step, indices):
        if step == WAITS_AT and not Path(os.environ["VASTRUN_BOX"], layout.RESUME).is_dir():
            wait_for_what_never_comes()
        return super().batch(step, indices)


class Leaving(TrajectoryTask):
    def batch(self, step, indices):
        os._exit(0)


def wait_for_what_never_comes():
    threading.Event().wait()
