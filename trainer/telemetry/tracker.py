"""Tracker: logs to W&B in a separate thread, so that neither its import nor its network delays the training.

`python -m vastrun.trainer.telemetry.tracker EXIT_CODE` ends the W&B run of a box whose rank 0 could not, or
ended it with another state.
"""

import json
import os
import sys
import threading
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import asdict, replace
from pathlib import Path
from queue import SimpleQueue
from typing import Any, Literal

from vastrun.contract import layout
from vastrun.contract.job import Job, JobBatch
from vastrun.contract.outcome import WandbRun
from vastrun.contract.records import read_json, write_json
from vastrun.contract.texts import hide_in_command
from vastrun.trainer.job import config as train_config
from vastrun.trainer.job.config import TrainConfig, WandbConfig, WandbMode, wandb_mode

_Message = dict[str, Any] | int
"""A point, or the exit code that ends the run."""

_INIT_S = 30.0
_FINISH_S = 30.0


class Tracker:
    """One W&B run. Points wait in a queue until W&B is ready.

    `run/wandb.json` has its id and state from its start on. The run is the same after a restart of the ranks,
    and when another job continues from its checkpoints.
    """

    def __init__(self, box: Path, job: Job, config: TrainConfig, mode: WandbMode | None = None) -> None:
        """`mode`: the destination of the data, if it was decided before."""
        known = known_run(box)
        self._box = box
        self._job = job
        self._train = config
        self._config = config.wandb
        self._queue: SimpleQueue[_Message] = SimpleQueue()
        self._scores: dict[str, float] = {}
        self._run = WandbRun(
            id=known.id if known else job.run_id,
            mode=mode or wandb_mode(self._config.mode, os.environ),
            state="running",
        )
        self._thread = threading.Thread(target=self._work, name="wandb", daemon=True)
        if self._run.mode != "off":
            # Silence W&B, keep its files in the box, and separate its service process.
            os.environ.update(WANDB_SILENT="true", WANDB_SERVICE="")
            for folder in ("WANDB_CACHE_DIR", "WANDB_CONFIG_DIR", "WANDB_DATA_DIR"):
                os.environ[folder] = str(box / layout.WANDB_FILES)
            self._thread.start()

    def continue_run(self, run_id: str) -> None:
        """Continue the W&B run of that id instead of a new one. Call this before the first point."""
        self._run = replace(self._run, id=run_id)

    def log(self, point: dict[str, Any]) -> None:
        """Queue a point, which has a `step`."""
        if self._run.mode != "off":
            self._queue.put(point)

    def show(self, step: int, pictures: Sequence[Path]) -> None:
        """Queue the pictures, each by the name of its file."""
        if pictures:
            self.log({"step": step, **{picture.stem: picture for picture in pictures}})

    def finish(self, exit_code: int, scores: dict[str, float] | None = None) -> WandbRun:
        """End the W&B run with the exit code of the training. Safe to repeat: the first call counts."""
        self._scores = scores or {}
        if self._thread.is_alive():
            self._queue.put(exit_code)
            self._thread.join(_INIT_S + _FINISH_S)  # W&B may still be starting
        if self._run.mode == "off":
            return replace(self._run, state=_state_of(exit_code))
        if self._run.state == "running":
            self._update_run(state="crashed")
            print("W&B did not finish; its files are in run/wandb", flush=True)
        return self._run

    def _work(self) -> None:
        # If the rank is not a fork with W&B loaded, the import takes a second of CPU time, which the set-up
        # of the training needs more.
        first = self._queue.get()
        self._update_run()  # if this rank is killed meanwhile, the supervisor finds the run to end
        try:
            import wandb
        except ImportError:
            print("W&B is off: the package wandb is not installed", flush=True)
            self._update_run(mode="off")
            return
        try:
            message = first
            run = self._begin(wandb)
            self._update_run(url=run.url if self._run.mode == "online" else None)
            # W&B's own steps only rise, but a restart from a checkpoint repeats some steps.
            run.define_metric("*", step_metric="step")
            while isinstance(message, dict):
                shown = {  # a path is a picture
                    name: wandb.Image(str(value)) if isinstance(value, Path) else value
                    for name, value in message.items()
                }
                run.log(shown)
                message = self._queue.get()
            run.summary.update(self._scores)
            run.finish(exit_code=message)
            self._update_run(state=_state_of(message))
        except (wandb.Error, OSError) as error:
            print(f"W&B is off from here: {error}", flush=True)
            self._update_run(state="crashed")

    def _begin(self, wandb: Any) -> Any:
        try:
            return self._init(wandb)
        except wandb.Error as error:
            if self._run.mode == "offline":
                raise
            print(f"W&B continues offline: {str(error).splitlines()[0]}", flush=True)
            self._update_run(mode="offline")
            wandb.teardown()  # its service still holds the id
            return self._init(wandb)

    def _init(self, wandb: Any) -> Any:
        limits = {"init_timeout": _INIT_S, "finish_timeout": _FINISH_S}
        # No code, commit or console output leaves the box without request.
        quiet = {"silent": True, "console": "off", "disable_git": True, "disable_code": True}
        return wandb.init(
            project=self._config.project,
            entity=self._config.entity,
            tags=tags_of(self._config, self._job.batch),
            group=self._job.batch.name if self._job.batch else None,
            name=f"{self._job.name} {self._run.id}",
            id=self._run.id,
            resume="allow" if self._run.mode == "online" else None,
            mode=self._run.mode,
            dir=str(self._box / layout.RUN),
            config={**config_of(self._train, self._job.batch), "code": self._job.code},
            settings=wandb.Settings(**limits, **quiet),
        )

    def _update_run(self, **changes: Any) -> None:
        self._run = replace(self._run, **changes)
        with suppress(OSError):  # a full disk ends the training elsewhere, with its own reason
            write_json(self._box / layout.WANDB, asdict(self._run))


def main(arguments: list[str]) -> None:
    """End the W&B run of the box with this exit code."""
    box = Path(os.environ["VASTRUN_BOX"])
    job, known = Job.read(box), known_run(box)
    if known:
        Tracker(box, job, train_config.config_of(job), known.mode).finish(int(arguments[0]))


def tags_of(config: WandbConfig, batch: JobBatch | None) -> tuple[str, ...]:
    """Return the job's tags, and the name of its batch."""
    return tuple(dict.fromkeys((*config.tags, *([batch.tag] if batch else []))))


def config_of(train: TrainConfig, batch: JobBatch | None) -> dict[str, Any]:
    """Return the configuration for W&B: the options of the run, and the values of its point.

    W&B advises against dots in keys, and shows `{"train": {"optim": {"lr": …}}}` as the column
    `train.optim.lr`, as `batch results` does: https://docs.wandb.ai/guides/track/config.
    """
    config: dict[str, Any] = json.loads(hide_in_command(json.dumps(asdict(train))))
    for key, value in (batch.values if batch else {}).items():
        *sections, last = key.split(".")
        section = config
        for name in sections:
            if not isinstance(section.get(name), dict):
                section[name] = {}
            section = section[name]
        section[last] = value
    return config


def _state_of(exit_code: int) -> Literal["finished", "failed"]:
    return "finished" if exit_code == 0 else "failed"


def known_run(box: Path) -> WandbRun | None:
    """Return the W&B run of an earlier start of the ranks; None: there is none."""
    try:
        run: WandbRun = read_json(WandbRun, (box / layout.WANDB).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    return run


if __name__ == "__main__":
    main(sys.argv[1:])
