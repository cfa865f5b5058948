"""Jobs as `squeue` lists them."""

from __future__ import annotations

import pytest

from vastrun.launcher.gate.slurm import END, SlurmJob, parse_jobs

RUNNING = "7|RUNNING|1-02:03:04|1800000000|gpu:a100:4|2|n[1-2]|None|vastrun-a.1|vastrun-calm-heron-3f1a"


def jobs(*rows: str) -> list[SlurmJob]:
    """The jobs of these rows, in a listing that is whole."""
    return parse_jobs("\n".join([*rows, END, ""]), "vastrun-")


@pytest.mark.parametrize("ran", ["", "INVALID", "N/A"])
def test_a_job_that_waits_has_not_run(ran: str) -> None:
    row = f"7|PENDING|{ran}|1800000000|gpu:a100:4|2||Priority|vastrun-a.1|vastrun-calm-heron-3f1a"
    (job,) = jobs(row)
    assert (job.ran_s, job.reason, job.nodes) == (0.0, "Priority", "")


def test_a_job_that_runs_says_for_how_long_and_on_what() -> None:
    (job,) = jobs(RUNNING)
    assert (job.id, job.ran_s, job.submitted_at) == (7, 93_784.0, 1_800_000_000.0)
    assert (job.gpus, job.size, job.nodes, job.reason) == (4, 2, "n[1-2]", "")


def test_jobs_of_others_are_skipped_whatever_they_contain() -> None:
    assert [job.id for job in jobs("x|y", "8|?|?|?|?|?|?|?|other|", RUNNING)] == [7]
