"""What a job on a machine leaves out means what a job file means that leaves it out."""

from __future__ import annotations

from vastrun.contract.job import Job
from vastrun.contract.records import read_as
from vastrun.launcher.core.job import Checkpoints, JobSpec


def test_what_a_job_on_a_machine_leaves_out_is_as_a_job_file_leaves_it_out() -> None:
    short = {"run_id": "calm-heron-3f1a", "ranks": 1, "program": {"kind": "x"}, "stall_s": 30, "start_s": 30}
    job = read_as(Job, {**short, "checkpoints": {"files": "*.pt"}})
    spec, saves = JobSpec(name="program"), Checkpoints()
    assert isinstance(job, Job) and job.checkpoints is not None
    assert (job.outputs, job.outputs_gb, job.nodes) == (spec.outputs, spec.outputs_gb, spec.nodes)
    assert (job.restarts, dict(job.env), job.data) == (spec.restarts, dict(spec.env), spec.data)
    assert (job.checkpoints.keep, job.checkpoints.every_s) == (saves.keep, saves.every_s)
