"""Finish runs: ends W&B runs that a user's program left open, with the exit code of the program.

`python -m vastrun.onstart.supervision.finish_runs EXIT_CODE RUNS REPORT`: RUNS is a JSON list of objects with
`id`, `entity` and `project`; REPORT is the file for the URLs of those that were ended.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

from vastrun.contract.records import write_json

_INHERITED = ("WANDB_SERVICE", "WANDB_RUN_ID", "WANDB_RESUME", "WANDB_NAME", "WANDB_RUN_GROUP", "WANDB_TAGS")
"""Variables of rank 0 that name its own run, and its service."""


def main(arguments: list[str]) -> None:
    """End the runs one after the other; a run that cannot be ended is left as it is."""
    exit_code, runs, report = int(arguments[0]), json.loads(arguments[1]), Path(arguments[2])
    for name in _INHERITED:
        os.environ.pop(name, None)
    try:
        import wandb
    except ImportError:
        print(f"W&B: runs stay open, {len(runs)} in all: {sys.executable} has no wandb", flush=True)
        return
    urls: dict[str, str] = {}
    for run in runs:
        try:
            limits = {"init_timeout": 20.0, "finish_timeout": 20.0}
            # What W&B knows of the program, its machine and its code stays as the program reported it.
            quiet = {"silent": True, "console": "off", "disable_git": True, "disable_code": True}
            unseen = {"x_disable_meta": True, "x_disable_stats": True, "x_disable_machine_info": True}
            resumed = wandb.init(
                id=run["id"],
                entity=run["entity"] or None,
                project=run["project"] or None,
                resume="must",
                settings=wandb.Settings(**limits, **quiet, **unseen),
            )
            url = resumed.url or ""
            resumed.finish(exit_code=exit_code)
            print(f"W&B: the run {run['id']} has ended with exit code {exit_code}", flush=True)
            urls[run["id"]] = str(url)
        except (wandb.Error, OSError) as error:
            print(f"W&B: the run {run['id']} stays open: {error}", flush=True)
        write_json(report, urls)


if __name__ == "__main__":
    main(sys.argv[1:])
