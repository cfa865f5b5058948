"""Slurm's own commands, run on the login node: what is asked and ordered of a cluster, in our nouns."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from vastrun.launcher.core import LABEL_PREFIX, label_of, ledger_in, run_id_in
from vastrun.launcher.core.errors import ProviderError, UncertainError, UnreachableError
from vastrun.launcher.core.labels import leader_id, member_id
from vastrun.launcher.gate import slurm as gate
from vastrun.launcher.gate.slurm import Box, Cluster, Partition, SlurmJob
from vastrun.launcher.providers.slurm.batch import RENDEZVOUS, JobOrder, options_of, script_of
from vastrun.launcher.providers.slurm.ends import order_error, question_error
from vastrun.launcher.providers.slurm.login_node import LoginNode

_ORDERS = ".orders"
"""The batch scripts that are being handed in."""
_OVER = ".over"
_ONE_WORD = "! -name '*[!A-Za-z0-9_.+-]*'"
"""For `find`: names with a line break would be rows of their own."""
"""A file for each node that was given back while its job goes on for the others."""
_REMOVE_S = 600.0
_SAME_LOOK_S = 1.0
_SIGNAL_S = 10.0
_TOOLS = "sbatch squeue scancel srun flock timeout"
_KEPT = 'HOME="$HOME" USER="$USER" PATH="$PATH" LANG="${LANG-}" ${SLURM_CONF:+SLURM_CONF="$SLURM_CONF"}'
"""Of the environment that a user has on a login node which is another computer."""


@dataclass(frozen=True, kw_only=True)
class SlurmQueue:
    """What one look saw: our jobs, those included that ended lately, and our folders."""

    jobs: Sequence[SlurmJob]
    boxes: Sequence[Box]

    def job(self, instance_id: str) -> SlurmJob | None:
        """Return the job of that instance, which is a node of it: of two, the one that lives."""
        ours = [job for job in self.jobs if job.name == LABEL_PREFIX + first_of(instance_id)]
        return next((job for job in ours if not job.is_over), ours[-1] if ours else None)

    def was_given_back(self, instance_id: str) -> bool:
        """Return whether that node's part in its job is over."""
        return any(box.name == f".{instance_id}" for box in self.boxes)

    def ids(self) -> Sequence[str]:
        """List all instances: nodes of jobs that have or await them, and what others left on the disk."""
        of_jobs = [
            f"{label.removeprefix(LABEL_PREFIX)}.{job.name.rpartition('.')[2]}"
            for job in self.jobs
            if not job.is_over
            for label in labels_of(job)
        ]
        alive = [one for one in of_jobs if not self.was_given_back(one)]
        return list(dict.fromkeys([*alive, *(box.name for box in self.boxes)]))

    def box(self, instance_id: str) -> Box | None:
        """Return the folder of that instance."""
        return next((box for box in self.boxes if box.name == instance_id), None)


def first_of(instance_id: str) -> str:
    """Return the instance that is node 0 of the same job."""
    run, dot, rest = instance_id.partition(".")
    return leader_id(run) + dot + rest


def labels_of(job: SlurmJob) -> Sequence[str]:
    """Return the label of each node of the job."""
    if job.size == 1:
        return (job.label,)
    run, ledger = run_id_in(job.label), ledger_in(job.label) or ""
    return tuple(label_of(member_id(run, node), ledger) for node in range(job.size))


class SlurmCommands:
    """Questions raise UnreachableError while nobody answers; `submit` UncertainError when a job may exist."""

    def __init__(
        self, node: LoginNode, job_environment: Mapping[str, str], uptime: Callable[[], float]
    ) -> None:
        """`job_environment`: what a job inherits where the login node is this computer."""
        self._node, self._uptime = node, uptime
        # Not all of the user's environment, which may hold secrets: a job inherits that of `sbatch`.
        ours = shlex.join(f"{name}={value}" for name, value in job_environment.items())
        self._clean = f"env -i {ours if node.address is None else _KEPT}"
        self._last_look: tuple[float, SlurmQueue] | None = None
        self._ran_on: dict[int, str] = {}
        self._ended_on: dict[int, str] = {}

    def look(self) -> SlurmQueue:
        """Look at all that is ours."""
        user = '--user="$(id -un)"'
        squeue = f"SLURM_TIME_FORMAT=%s squeue --noheader --all --states=all {user} -o '{gate.JOB_FIELDS}'"
        folder = shlex.quote(self._node.folder)
        boxes = f"find {folder} -mindepth 1 -maxdepth 1 -type d ! -name '.*' {_ONE_WORD} -printf '%T@ %f\\n'"
        # What a box wrote stays on its line, and is a file: a pipe would never end.
        file = f'{folder}/"$name"/{RENDEZVOUS}'
        where = f"$([ -f {file} ] && head -c 300 {file} 2>&- | LC_ALL=C tr -cd 'A-Za-z0-9._:[]-')"
        meet = f'while read -r at name; do echo "$at $name {where}"; done'
        ended = f"{folder}/{_OVER}"
        over = f"if [ -e {ended} ]; then find {ended} -type f {_ONE_WORD} -printf '%T@ .%f\\n'; fi"
        jobs, left = self._two(squeue, f"if [ -e {folder} ]; then {boxes} | {meet}; {over}; fi && echo @")
        seen = SlurmQueue(jobs=gate.parse_jobs(jobs, LABEL_PREFIX), boxes=gate.parse_boxes(left))
        self._last_look = (self._uptime(), seen)
        for job in seen.jobs:
            if job.is_ending:
                self._ended_on.setdefault(job.id, job.nodes)
            elif not job.is_over:
                self._ran_on[job.id] = job.nodes
        return seen

    def look_lately(self) -> SlurmQueue:
        """Return the last look, where it was a moment ago: whoever connects has just looked for a machine."""
        if self._last_look is not None and 0 <= self._uptime() - self._last_look[0] < _SAME_LOOK_S:
            return self._last_look[1]
        return self.look()

    def market(self) -> tuple[list[Partition], float | None]:
        """List partitions, and the free space of the shared disk in GB; None: it cannot be told."""
        # Of the nearest folder that is there: ours is made with the first job.
        nearest = f'd={shlex.quote(self._node.folder)}; while [ ! -e "$d" ]; do d=$(dirname "$d"); done'
        free = f"{nearest}; df -Pk \"$d\" | awk 'NR == 2 {{ print $4 }}'"
        rows, left = self._two(f"sinfo --noheader --exact -o '{gate.PARTITION_FIELDS}'", free)
        return gate.parse_partitions(rows), gate.parse_free_gb(left)

    def failed_of(self, job: SlurmJob) -> tuple[str, int] | None:
        """Return the name and the number of the node that failed; None: there is one, or nobody knows.

        A job that ends loses that node at once, and the others when their programs have ended.
        """
        all_of_them, others = self._ran_on.get(job.id, ""), self._ended_on.get(job.id, "")
        if not others or all_of_them == others:
            return None
        names = [f"scontrol show hostnames {shlex.quote(nodes)}" for nodes in (all_of_them, others)]
        return gate.find_missing_node(self._node.asked(f"{names[0]} && echo - && {names[1]} && echo @"))

    def cluster(self) -> Cluster:
        """Say which cluster it is, and who we are to it."""
        name = "scontrol show config | sed -n 's/^ClusterName *= *//p' | head -n 1"
        done = self._node.ran(
            f"set -o pipefail; {name} && scontrol --version | sed 's/.* //' && id -un && echo @"
        )
        if done.exit_code != 0:
            raise question_error(done.stderr)
        return gate.parse_cluster(done.stdout)

    def must_have(self, python: str) -> None:
        """Look for what a job needs. Raises ProviderError, which names what is missing."""
        tools = f"{_TOOLS} {shlex.quote(python)}"
        script = f'for tool in {tools}; do command -v "$tool" >/dev/null || echo "$tool"; done'
        lacking = gate.summarize_errors(self._node.asked(script))
        if lacking:
            hint = "vastrun config set slurm.python /PATH/bin/python names a Python on the shared disk"
            raise ProviderError(f"{self._node.name} has no {lacking}", hint=hint if python in lacking else "")

    def submit(self, batch: JobOrder) -> None:
        """Hand the job in. Raises NoOfferError, ProviderError; UncertainError when it may exist."""
        file = f"{_ORDERS}/{batch.instance_id}.sh"
        folder, path = shlex.quote(batch.folder), shlex.quote(f"{batch.folder}/{file}")
        self._node.asked(f"umask 077 && mkdir -p {folder}/{_ORDERS}")
        self._node.write(file, script_of(batch).encode())
        sbatch = f"{self._clean} sbatch {shlex.join(options_of(batch))} {path}"
        try:
            done = self._node.ran(f"cd {folder} && {sbatch}; code=$?; rm -f {path}; exit $code")
        except UnreachableError as error:
            raise UncertainError(str(error)) from error
        if done.exit_code != 0:
            raise order_error(done.stderr)
        if gate.parse_job_id(done.stdout) is None:
            raise UncertainError(
                f"sbatch printed an unexpected response: {gate.summarize_errors(done.stdout)[:60]!r}"
            )

    def give_back(self, instance_id: str) -> None:
        """End that node's part in its job, which goes on for the others: its box is removed."""
        folder = shlex.quote(self._node.folder)
        self._node.asked(f"mkdir -p {folder}/{_OVER} && : >{folder}/{_OVER}/{shlex.quote(instance_id)}")

    def cancel(self, job: SlurmJob) -> None:
        """Have the job end at once: the first signal says that nobody waits for what it might still save."""
        self._last_look = None
        # It is tried again and again where nobody can take it: while a job waits, or its node is silent.
        at_once = f"timeout {_SIGNAL_S:.0f} scancel --batch --signal=USR1 {job.id} 2>/dev/null; "
        # With several nodes it goes the other way: what another one still saves is waited for.
        self._node.ran(f"{'' if job.is_pending or job.size > 1 else at_once}scancel {job.id}")

    def remove(self, instance_id: str) -> None:
        """Remove the box."""
        self._last_look = None
        root = shlex.quote(f"{self._node.folder}/{instance_id}")
        run, dot, rest = instance_id.partition(".")
        # With node 0 goes what was noted of the others: their job is over.
        noted = f"{shlex.quote(self._node.folder)}/{_OVER}/{run}-n*{dot}{rest}"
        self._node.asked(
            f"chmod -R u+rwX {root} 2>/dev/null; rm -rf {root}; rm -f {noted}", timeout_s=_REMOVE_S
        )

    def _two(self, question: str, about_the_disk: str) -> tuple[str, str]:
        """What Slurm answers and what the disk does, by one command."""
        done = self._node.ran(f"{question} && echo @ && echo @@ && {{ {about_the_disk}; }}")
        if done.exit_code != 0:
            raise question_error(done.stderr)
        first, _, second = done.stdout.partition("@@\n")
        return first, second
