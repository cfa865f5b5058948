"""What the onstart steps need of job.json, each item ended by a NUL byte. Standard library only.

python -m trainer.boot.jobfile variables     NAME=VALUE: the job's own `env`, and what the steps decide by
python -m trainer.boot.jobfile setup         the `setup` commands
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from trainer.contract import layout


def variables(job: dict[str, Any]) -> list[str]:
    """The job's environment variables; ours come last and win."""
    ours = {
        "VASTRUN_KIND": "train" if job.get("train") is not None else "command",
        "VASTRUN_RANKS": job["ranks"],
        "VASTRUN_GPUS": job["gpus"],
        "VASTRUN_SETUP": len(job.get("setup") or ()),
        "VASTRUN_FETCH": len(job.get("pushed") or ()) + (job.get("start_from") is not None),
    }
    return [f"{name}={value}" for name, value in {**(job.get("env") or {}), **ours}.items()]


def setup(job: dict[str, Any]) -> list[str]:
    """The job's set-up commands."""
    return list(job.get("setup") or ())


def main(argv: list[str]) -> None:
    """Print one list of the box's job.json."""
    answers = {"variables": variables, "setup": setup}
    job = json.loads(Path(os.environ["VASTRUN_BOX"], layout.JOB).read_text(encoding="utf-8"))
    write_items(answers[argv[0]](job))


def write_items(items: Iterable[str]) -> None:
    """Each item and a NUL byte, on stdout."""
    sys.stdout.buffer.write(b"".join(item.encode() + b"\0" for item in items))


if __name__ == "__main__":
    main(sys.argv[1:])
