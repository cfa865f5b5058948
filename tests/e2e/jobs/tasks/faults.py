"""What `faulty` makes; it needs torch, which what makes the data does without."""

import json
import os
import threading
from pathlib import Path

from vastrun.contract import layout
from vastrun.trainer.data.trajectories import TrajectoryTask

HANGS_AT = 12
WAITS_AT = 25


class Hanging(TrajectoryTask):
    def batch(self, step, indices):
        if step == HANGS_AT and os.environ["RANK"] == "1":
            wait_for_what_never_comes()
        return super().batch(step, indices)


class Waiting(TrajectoryTask):
    """Goes past that step only in a run that continues another one, or itself."""

    def batch(self, step, indices):
        is_first = not Path(os.environ["VASTRUN_BOX"], layout.RESUME).is_dir()
        if step == WAITS_AT and is_first and os.environ["VASTRUN_RESTART"] == "0":
            wait_for_what_never_comes()
        return super().batch(step, indices)


class Leaving(TrajectoryTask):
    def batch(self, step, indices):
        os._exit(0)


class WaitingInStages(TrajectoryTask):
    """Stands still at step 8 of each stage until a file of the stage's name is in the folder of GO."""

    def batch(self, step, indices):
        stage, go = Path(os.environ["VASTRUN_BOX"], layout.STAGE), Path(os.environ["GO"])
        while step == 8 and stage.exists() and not (go / json.loads(stage.read_text())["stage"]).exists():
            threading.Event().wait(0.05)
        return super().batch(step, indices)


def wait_for_what_never_comes():
    threading.Event().wait()
