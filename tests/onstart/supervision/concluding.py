"""What is observed of a launch, what is concluded from it, and the record of a start."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

from tests.onstart.supervision.launches import job_of, read_job
from vastrun.contract import layout
from vastrun.contract.job import Job
from vastrun.contract.outcome import Outcome, Reason, StartRecord
from vastrun.onstart.supervise import conclude, start_record_of
from vastrun.onstart.supervision.diagnosis import ObservedLaunch, diagnose
from vastrun.onstart.supervision.failure_causes import uncaught_folder
from vastrun.onstart.supervision.rank_process import RankProcess


def started(reason: Reason = "signal", **changes: Any) -> StartRecord:
    """The record of a start of two ranks that ended so after a second."""
    record = StartRecord(reason=reason, detail="", world_size=2, started_at=1.0, ended_at=2.0)
    return replace(record, **changes)


def training(**changes: Any) -> Job:
    """A job of the onboard trainer."""
    train = {"steps": 100, "batch": 12, **changes.pop("train", {})}
    return read_job(**{"train": train, "command": None, "success": None, **changes})


def exits(*codes: int | None) -> ObservedLaunch:
    """Ranks that left with these codes, one after the other."""
    processes = tuple(
        RankProcess(rank=rank, pid=1, started_at=1.0, exit_code=code, ended_at=10.0 + rank)
        for rank, code in enumerate(codes)
    )
    return ObservedLaunch(
        started_at=1.0, world_size=len(codes), training=False, processes=processes, agent_exit=1
    )


def raised(box: Path, rank: int, text: str, *names: str, errno: int | None = None, **details: Any) -> None:
    """The program of a rank left this exception, as `exits` says when."""
    link = {"names": [*names, "Exception"], "errno": errno, "text": f"{text}\n"}
    record = {"pid": 1, "at": 10.0 + rank, "traceback": f"Traceback\n{text}", "chain": [link], **details}
    folder = uncaught_folder(box, rank)
    folder.mkdir(parents=True)
    (folder / "1.json").write_text(json.dumps(record))


def outcome(box: Path, observed: ObservedLaunch, **job: Any) -> Outcome:
    (box / layout.JOB).write_text(json.dumps(job_of(**job)))
    return concluded(box, observed)


def concluded(box: Path, observed: ObservedLaunch) -> Outcome:
    """The outcome of a box that has its job, after its only start."""
    found = diagnose(box, observed)
    return conclude(box, Job.read(box), observed, found, [start_record_of(box, observed, found)], {})
