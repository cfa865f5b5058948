"""Client of a cluster: queries and orders by Slurm's commands on the login node."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from vastrun.launcher.core import LABEL_PREFIX, Run
from vastrun.launcher.core.errors import ProviderError, UncertainError, UnreachableError
from vastrun.launcher.core.labels import label_of, leader_id, ledger_in, member_id, run_id_in
from vastrun.launcher.gate import slurm as gate
from vastrun.launcher.gate.slurm import Box, Cluster, Partition, SlurmJob, StartEstimate
from vastrun.launcher.providers.slurm.batch import (
    JobOrder,
    batch_script,
    order_error,
    query_error,
    sbatch_options,
    script,
)
from vastrun.launcher.providers.slurm.login_node import LoginNode

ORDERS = ".orders"
"""Folder of batch scripts during their submission."""
_OVER = ".over"
_SIGNAL_S = 10.0
_LOGIN_VARIABLES = (
    'HOME="$HOME" USER="$USER" PATH="$PATH" LANG="${LANG-}" ${SLURM_CONF:+SLURM_CONF="$SLURM_CONF"}'
)
"""Variables of a remote login node's environment that a job inherits."""


@dataclass(frozen=True, kw_only=True)
class SlurmQueue:
    """Snapshot of the user's jobs, including recently ended ones, and of the boxes' folders."""

    jobs: Sequence[SlurmJob]
    boxes: Sequence[Box]
    hidden: Sequence[str] = ()
    """Instances of open runs without a box here, whose folder is not on the login node."""

    def job(self, instance_id: str) -> SlurmJob | None:
        """Return the job of which the instance is a node, preferably one that has not ended."""
        matching = [job for job in self.jobs if job.name == LABEL_PREFIX + first_node_id(instance_id)]
        return next((job for job in matching if not job.is_over), matching[-1] if matching else None)

    def ids(self) -> Sequence[str]:
        """List all instances: nodes of jobs that have not ended, and boxes on the disk."""
        of_jobs = [
            f"{label.removeprefix(LABEL_PREFIX)}.{job.name.rpartition('.')[2]}"
            for job in self.jobs
            if not job.is_over
            for label in node_labels(job)
        ]
        alive = [one for one in of_jobs if not any(box.name == f".{one}" for box in self.boxes)]
        return list(dict.fromkeys([*alive, *(box.name for box in self.boxes), *self.hidden]))

    def box(self, instance_id: str) -> Box | None:
        """Return the folder of that instance."""
        return next((box for box in self.boxes if box.name == instance_id), None)


def first_node_id(instance_id: str) -> str:
    """Return the id of node 0 in the same job."""
    run, dot, rest = instance_id.partition(".")
    return leader_id(run) + dot + rest


def node_labels(job: SlurmJob) -> Sequence[str]:
    """Return the label of each node of the job."""
    if job.size == 1:
        return (job.label,)
    run, ledger = run_id_in(job.label), ledger_in(job.label) or ""
    return tuple(label_of(member_id(run, node), ledger) for node in range(job.size))


class SlurmCommands:
    """Queries raise UnreachableError without a response; `submit` UncertainError when a job may exist."""

    def __init__(
        self,
        node: LoginNode,
        job_environment: Mapping[str, str],
        uptime: Callable[[], float],
        runs: Callable[[], Sequence[Run]],
    ) -> None:
        """`job_environment`: variables that a job inherits when the login node is this computer. `runs`:
        returns the open runs."""
        self._node, self._uptime, self._runs = node, uptime, runs
        self._places: Mapping[str, str] = {}
        """Folder of the boxes of each open run, by its label: the setting may have changed since."""
        # A job inherits the environment of `sbatch`, so the user's secrets must not be in it.
        variables = shlex.join(f"{name}={value}" for name, value in job_environment.items())
        self._clean = f"env -i {variables if node.address is None else _LOGIN_VARIABLES}"
        self._last_queue: tuple[float, SlurmQueue] | None = None
        self._ran_on: dict[int, str] = {}
        self._ended_on: dict[int, str] = {}

    def queue(self) -> SlurmQueue:
        """Query the user's jobs and boxes."""
        user = '--user="$(id -un)"'
        squeue = f"SLURM_TIME_FORMAT=%s squeue --noheader --all --states=all {user} -o '{gate.JOB_FIELDS}'"
        runs = [run for run in self._runs() if run.offer is not None and run.offer.place.startswith("/")]
        self._places = {run.label: run.offer.place for run in runs if run.offer is not None}
        folders = shlex.join(dict.fromkeys([self._node.folder, *self._places.values()]))
        jobs, left = self._query_with_disk(squeue, f"folders=({folders})\n{script('boxes')}")
        queue = SlurmQueue(jobs=gate.parse_jobs(jobs, LABEL_PREFIX), boxes=gate.parse_boxes(left))
        ours = [run.instance_id for run in runs if run.instance_id is not None]
        queue = replace(queue, hidden=self._hidden([one for one in ours if queue.box(one) is None]))
        self._last_queue = (self._uptime(), queue)
        for job in queue.jobs:
            if job.is_ending:
                self._ended_on.setdefault(job.id, job.nodes)
            elif not job.is_over:
                self._ran_on[job.id] = job.nodes
        return queue

    def _hidden(self, instance_ids: Sequence[str]) -> Sequence[str]:
        """Return those whose folder is not on the login node: only where it is, a box without one is gone."""
        folders = {self.folder_of(one) for one in instance_ids}
        # Each job was submitted from there; an empty folder may be where a disk is not mounted.
        test = f'[ -e "$folder/{ORDERS}" ] || echo "$folder"'
        asked = f"for folder in {shlex.join(sorted(folders))}; do {test}; done"
        missing = self._node.query(asked).splitlines() if folders else ()
        return [one for one in instance_ids if self.folder_of(one) in missing]

    def folder_of(self, instance_id: str) -> str:
        """Return the absolute path of the folder with the instance's box."""
        label = LABEL_PREFIX + first_node_id(instance_id).rpartition(".")[0]
        return self._places.get(label, self._node.folder)

    def recent_queue(self) -> SlurmQueue:
        """Return the last snapshot while it is fresh: a call of connect() follows one of machine()."""
        if self._last_queue is not None and 0 <= self._uptime() - self._last_queue[0] < 1.0:
            return self._last_queue[1]
        return self.queue()

    def market(self) -> tuple[list[Partition], float | None]:
        """List partitions, and the free space of the shared disk in GB; None when it is unknown."""
        # df needs an existing folder: the boxes' folder is created with the first job.
        nearest = f'd={shlex.quote(self._node.folder)}; while [ ! -e "$d" ]; do d=$(dirname "$d"); done'
        free = f"{nearest}; df -Pk \"$d\" | awk 'NR == 2 {{ print $4 }}'"
        rows, left = self._query_with_disk(f"sinfo --noheader --exact -o '{gate.PARTITION_FIELDS}'", free)
        return gate.parse_partitions(rows), gate.parse_free_gb(left)

    def test(self, jobs: Sequence[Sequence[str]]) -> list[StartEstimate]:
        """Ask the scheduler about jobs with these options of `sbatch`; submits none.

        Raises UnreachableError.
        """
        asked = "\n".join(f"estimate {shlex.join(options)}" for options in jobs)
        lines = (f"around=({self._clean})", script("estimate"), asked, "echo @")
        starts = gate.parse_starts(self._node.query("\n".join(lines)), len(jobs))
        for start in starts:
            if isinstance(order_error(start.refusal), UncertainError):
                raise query_error(start.refusal)
        return starts

    def failed_node(self, job: SlurmJob) -> tuple[str, int] | None:
        """Return name and index of the node that failed; None for a single node, or when it is unknown.

        A failing job loses this node at once, and the others when their programs have ended.
        """
        all_of_them, remaining = self._ran_on.get(job.id, ""), self._ended_on.get(job.id, "")
        if not remaining or all_of_them == remaining:
            return None
        names = [f"scontrol show hostnames {shlex.quote(nodes)}" for nodes in (all_of_them, remaining)]
        return gate.find_missing_node(self._node.query(f"{names[0]} && echo - && {names[1]} && echo @"))

    def cluster(self) -> Cluster:
        """Return the cluster and the user's name on it."""
        name = "scontrol show config | sed -n 's/^ClusterName *= *//p' | head -n 1"
        done = self._node.run(
            f"set -o pipefail; {name} && scontrol --version | sed 's/.* //' && id -un && echo @"
        )
        if done.exit_code != 0:
            raise query_error(done.stderr)
        return gate.parse_cluster(done.stdout)

    def check_programs(self, python: str) -> None:
        """Check that the programs for a job exist. Raises ProviderError with the missing ones."""
        tools = f"sbatch squeue scancel srun flock timeout {shlex.quote(python)}"
        script = f'for tool in {tools}; do command -v "$tool" >/dev/null || echo "$tool"; done'
        lacking = gate.summarize_errors(self._node.query(script))
        if lacking:
            hint = "vastrun config set slurm.python /PATH/bin/python names a Python on the shared disk"
            raise ProviderError(f"{self._node.name} has no {lacking}", hint=hint if python in lacking else "")

    def submit(self, batch: JobOrder) -> None:
        """Submit the job. Raises NoOfferError, ProviderError; UncertainError when the job may exist."""
        file = f"{ORDERS}/{batch.ids[0]}.sh"
        folder, path = shlex.quote(batch.folder), shlex.quote(f"{batch.folder}/{file}")
        self._node.query(f"umask 077 && mkdir -p {folder}/{ORDERS}")
        self._node.write(file, batch_script(batch).encode())
        sbatch = f"{self._clean} sbatch {shlex.join(sbatch_options(batch))} {path}"
        try:
            done = self._node.run(f"cd {folder} && {sbatch}; code=$?; rm -f {path}; exit $code")
        except UnreachableError as error:
            raise UncertainError(str(error)) from error
        if done.exit_code != 0:
            raise order_error(done.stderr)
        if gate.parse_job_id(done.stdout) is None:
            raise UncertainError(
                f"sbatch printed an unexpected response: {gate.summarize_errors(done.stdout)[:60]!r}"
            )

    def release_node(self, instance_id: str) -> None:
        """Mark the node as released; its job continues on the other nodes."""
        folder = shlex.quote(self.folder_of(instance_id))
        self._node.query(f"mkdir -p {folder}/{_OVER} && : >{folder}/{_OVER}/{shlex.quote(instance_id)}")

    def cancel(self, job: SlurmJob) -> None:
        """Cancel the job; USR1 first, so that the batch script does not wait for a last checkpoint."""
        self._last_queue = None
        # Limited in time: scancel retries while the job waits or its node does not respond.
        at_once = f"timeout {_SIGNAL_S:.0f} scancel --batch --signal=USR1 {job.id} 2>/dev/null; "
        # With several nodes, no USR1: a node that failed must not cut off the last checkpoint of another one.
        self._node.run(f"{'' if job.is_pending or job.size > 1 else at_once}scancel {job.id}")

    def remove(self, instance_id: str) -> None:
        """Delete the box's folder."""
        self._last_queue = None
        folder = self.folder_of(instance_id)
        root = shlex.quote(f"{folder}/{instance_id}")
        run, dot, rest = instance_id.partition(".")
        # With node 0, the marks of released nodes are deleted, too: their job has ended.
        noted = f"{shlex.quote(folder)}/{_OVER}/{run}-n*{dot}{rest}"
        self._node.query(f"chmod -R u+rwX {root} 2>/dev/null; rm -rf {root}; rm -f {noted}", timeout_s=600.0)

    def _query_with_disk(self, question: str, about_the_disk: str) -> tuple[str, str]:
        """Return the output of a Slurm query and of a command about the disk, in one round trip."""
        done = self._node.run(f"{question} && echo @ && echo @@ && {{ {about_the_disk}\n}}")
        if done.exit_code != 0:
            raise query_error(done.stderr)
        first, _, second = done.stdout.partition("@@\n")
        return first, second
