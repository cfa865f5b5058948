"""Lies of a cluster: what no honest Slurm prints, by what reads it. A new field has its row here."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from tests.hostile.lie import STEERING
from vastrun.launcher.gate import slurm

Reader = Callable[[str], Any]
_JOB = (
    "7",
    "RUNNING",
    "0:05",
    "1795523601",
    "N/A",
    "1",
    "n1",
    "None",
    "vastrun-calm-heron-3f1a.0a0b0c0d",
    "vastrun-calm-heron-3f1a",
)
_NODES = ("debug*", "up", "1-00:00:00", "2", "8", "4000", "idle", "(null)")


def _job(**changes: str) -> str:
    names = ("id", "state", "ran", "submitted", "gres", "size", "nodes", "reason", "name", "label")
    return _row(dict(zip(names, _JOB, strict=True)) | changes)


def _partition(**changes: str) -> str:
    names = ("name", "avail", "limit", "nodes", "cores", "memory", "state", "gres")
    return _row(dict(zip(names, _NODES, strict=True)) | changes)


def _row(fields: Mapping[str, str]) -> str:
    return "|".join(fields.values()) + f"\n{slurm.END}\n"


def parse_starts(printed: str) -> Sequence[slurm.StartEstimate]:
    return slurm.parse_starts(printed, 1)


def parse_jobs(printed: str) -> Sequence[slurm.Job]:
    return slurm.parse_jobs(printed, "vastrun-")


HONEST: Mapping[str, tuple[Reader, str]] = {
    "a job": (parse_jobs, _job()),
    "a partition": (slurm.parse_partitions, _partition()),
    "a start": (
        parse_starts,
        f"0 1795523601 sbatch: Job 7 to start at 1795523661 using 1 processors on nodes n1\n{slurm.END}\n",
    ),
    "a box": (slurm.parse_boxes, f"1795523601.5 calm-heron-3f1a.0a0b0c0d\n{slurm.END}\n"),
    "the nodes of a job, and those that are left": (slurm.find_missing_node, f"n1\nn2\n-\nn1\n{slurm.END}\n"),
    "a cluster": (slurm.parse_cluster, f"lab\n22.05.8\nalice\n{slurm.END}\n"),
}
REFUSED: Mapping[str, tuple[Reader, str]] = {
    "nodes that are cut short": (slurm.find_missing_node, "n1\nn2\n-\nn1\n"),
    "a list that is cut short": (parse_jobs, _job().removesuffix(f"{slurm.END}\n")),
    "no answer at all": (parse_jobs, ""),
    "a job without a number": (parse_jobs, _job(id="7; scancel 8")),
    "a number of a job that never ends": (parse_jobs, _job(id="9" * 400)),
    "a number in other digits": (parse_jobs, _job(id="٧")),
    "a state that steers": (parse_jobs, _job(state=STEERING)),
    "a state that is no word": (parse_jobs, _job(state="RUNNING 0")),
    "a run time that is none": (parse_jobs, _job(ran="-1")),
    "a run time beyond all time": (parse_jobs, _job(ran="9" * 40 + ":00")),
    "a moment beyond all time": (parse_jobs, _job(submitted="9" * 12)),
    "nodes that are a command": (parse_jobs, _job(nodes="n1;reboot")),
    "as many nodes as there are none": (parse_jobs, _job(size="-2")),
    "a name that leaves its folder": (parse_jobs, _job(name="vastrun-../../etc")),
    "a comment without an end": (parse_jobs, _job(label="x" * 1000)),
    "a partition that is a path": (slurm.parse_partitions, _partition(name="../etc")),
    "a partition that steers": (slurm.parse_partitions, _partition(name=STEERING)),
    "a limit that is none": (slurm.parse_partitions, _partition(limit="soon")),
    "nodes without a number": (slurm.parse_partitions, _partition(nodes="many")),
    "cores beyond all computers": (slurm.parse_partitions, _partition(cores="9" * 12)),
    "memory below nothing": (slurm.parse_partitions, _partition(memory="-4000")),
    "a state of nodes that is none": (slurm.parse_partitions, _partition(state="idle; up")),
    "fields that are missing": (slurm.parse_partitions, f"debug|up\n{slurm.END}\n"),
    "a test without a code": (parse_starts, f"1795523601 accepted\n{slurm.END}\n"),
    "more tests than were made": (parse_starts, f"0 1 yes\n0 1 yes\n{slurm.END}\n"),
    "a box of no age": (slurm.parse_boxes, f"soon calm-heron-3f1a.0a0b0c0d\n{slurm.END}\n"),
    "a box that says another's place": (
        slurm.parse_boxes,
        "1795523601.5 calm-heron-3f1a.0a0b0c0d n1:29400\n"
        f"1795523601.5 calm-heron-3f1a.0a0b0c0d evil:29400\n{slurm.END}\n",
    ),
    "a cluster with two names": (slurm.parse_cluster, f"lab\nlab\n22.05.8\nalice\n{slurm.END}\n"),
    "a user who steers": (slurm.parse_cluster, f"lab\n22.05.8\n{STEERING}\n{slurm.END}\n"),
}
LEFT_OUT: Mapping[str, tuple[Reader, str]] = {
    "another's job, whatever its name": (parse_jobs, _job(name=STEERING)),
    "another's job of another shape": (parse_jobs, f"x|y\n{slurm.END}\n"),
    "a folder that is not ours": (slurm.parse_boxes, f"1795523601.5 ..%2f{STEERING[:8]}\n{slurm.END}\n"),
}
SHOWN: Mapping[str, tuple[Reader, str]] = {
    "a reason that steers": (parse_jobs, _job(reason=STEERING)),
    "a reason without an end": (parse_jobs, _job(reason="x" * 100_000)),
    "a start beyond all time": (parse_starts, f"0 1 Job 7 to start at {'9' * 400} using\n{slurm.END}\n"),
    "a refusal that steers": (parse_starts, f"1 1 {STEERING} {'x' * 100_000}\n{slurm.END}\n"),
    "a place that steers": (
        slurm.parse_boxes,
        f"1795523601.5 calm-heron-3f1a.0a0b0c0d {STEERING}\n{slurm.END}\n",
    ),
    "a place without an end": (
        slurm.parse_boxes,
        f"1795523601.5 calm-heron-3f1a.0a0b0c0d {'x' * 100_000}\n{slurm.END}\n",
    ),
    "GPUs beyond all computers": (slurm.parse_partitions, _partition(gres="gpu:a100:" + "9" * 400)),
    "GPUs of a kind that steers": (slurm.parse_partitions, _partition(gres=f"gpu:{STEERING}:4")),
    "GPUs without an end": (slurm.parse_partitions, _partition(gres="gpu:a100:4," * 100_000)),
}
"""What is harmless once it is bounded."""
