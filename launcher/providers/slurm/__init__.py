"""Provider `slurm`: an instance is a job of a cluster, its box a folder on the shared disk."""

from __future__ import annotations

import re
import secrets
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from vastrun.contract import layout
from vastrun.launcher.core import LABEL_PREFIX, Cause, Identity, Instance, Offer, RentalOrder, Run, errors
from vastrun.launcher.core.job import JobSpec
from vastrun.launcher.core.market import ENDED, MachineEnd
from vastrun.launcher.core.settings import SlurmSettings
from vastrun.launcher.gate.slurm import SlurmJob, join_names
from vastrun.launcher.ports import Abilities, Clock, Remote, with_abilities
from vastrun.launcher.providers import ProviderContext, inherited_environment
from vastrun.launcher.providers.slurm.batch import REJECTED_HINT, JobOrder, end_of, wait_reason
from vastrun.launcher.providers.slurm.commands import ORDERS, SlurmCommands, SlurmQueue, first_node_id
from vastrun.launcher.providers.slurm.login_node import LoginNode, SlurmRemote
from vastrun.launcher.providers.slurm.offers import NodeShare, partition_offers, price

_ID = re.compile(r"[\w-]{1,80}(?:\.[0-9a-f]{8})?\.[0-9a-f]{8}", re.ASCII)
_END_TIMEOUT_S = 60.0
_PROGRAMS_TIMEOUT_S = 15.0
"""Seconds to wait for the programs of an ended job; on a node that does not respond they never end."""


class SlurmProvider:
    """The Provider port for one user's jobs on one cluster."""

    name = "slurm"
    max_nodes = 64
    shared = True
    list_lag_s = 10.0
    """Seconds: `sbatch` may succeed after the connection to the login node broke."""

    def __init__(
        self,
        settings: SlurmSettings,
        state: Path,
        environ: Mapping[str, str],
        python: str,
        *,
        clock: Clock,
        uptime: Callable[[], float] = time.monotonic,
        runs: Callable[[], Sequence[Run]] = tuple,
    ) -> None:
        """`python`: interpreter that trains on this computer, and in jobs if this is a login node."""
        self.free = price(settings, 1) == 0
        self._settings, self._clock, self._uptime = settings, clock, uptime
        self._python = settings.python or (python if settings.login is None else "python3")
        self._notes: Sequence[str] = ()
        self._node = LoginNode(settings, state, environ)
        where = {name: environ[name] for name in ("SLURM_CONF",) if name in environ}
        self._slurm = SlurmCommands(self._node, {**inherited_environment(environ), **where}, uptime, runs)

    @classmethod
    def of(cls, context: ProviderContext) -> SlurmProvider:
        """Build the provider for the cluster in the user's settings. Raises ConfigFileError, UsageError."""
        loaded = context.settings()
        # Settings with faults might name another cluster, on which all jobs would seem to be gone.
        if loaded.faults:
            raise errors.ConfigFileError(tuple(loaded.faults))
        settings, environ = loaded.settings.slurm, context.environ
        clock, uptime, runs = context.clock, context.uptime, context.runs
        return cls(settings, context.state, environ, context.python, clock=clock, uptime=uptime, runs=runs)

    @property
    def abilities(self) -> Abilities:
        return Abilities(describe=self.describe, identity=self, end_of=self.end_of, notes=lambda: self._notes)

    def search(self, spec: JobSpec) -> Sequence[Offer]:
        """Return an offer for each partition in which Slurm accepts the job, with its expected start.

        Raises NoOfferError with the reasons of all partitions.
        """
        if spec.nodes > 1 and self._settings.container == "pyxis":
            hint = "vastrun config set slurm.container apptainer"
            raise errors.NoOfferError("pyxis runs a job's image on one node", hint=hint)
        partitions, free_gb = self._slurm.market()
        image = (spec.image or self._settings.image) if self._settings.container else None
        found, self._notes = partition_offers(spec, partitions, self._settings, free_gb, self._slurm.test)
        lacking, disk_gb = list(self._notes), spec.resources.disk_gb
        if free_gb is not None and free_gb < disk_gb:
            lacking = [f"{disk_gb:g} GB of disk needed, {free_gb:.0f} free on the shared disk"]
            lacking += [] if found else self._notes
        elif found:
            return [replace(offer, image=image, place=self._node.folder) for offer in found]
        raise errors.NoOfferError(
            f"no partition fits the job: {join_names(lacking) or 'there is none'}", hint=REJECTED_HINT
        )

    def rent(self, order: RentalOrder) -> Instance:
        """Submit a job. Its label is part of the submission, so no crash can orphan it."""
        share = NodeShare.of(order.offer.id)
        if share is None:
            raise errors.NoOfferError(f"{order.offer.id} is not an offer of Slurm")
        if order.offer.place not in ("", self._node.folder):
            raise errors.NoOfferError(f"slurm.folder is no longer {order.offer.place}")
        token = secrets.token_hex(4)
        ids = [f"{label.removeprefix(LABEL_PREFIX)}.{token}" for label in order.nodes or (order.label,)]
        # Slurm gives all nodes of a job at once, with node 0: a node of its own cannot be added later.
        if order.nodes and order.nodes[0] != order.label:
            raise errors.NoOfferError("the job of node 0 no longer has this node")
        batch = JobOrder(
            ids=tuple(ids),
            order=order,
            share=share,
            folder=self._node.folder,
            python=self._python,
            settings=self._settings,
        )
        self._slurm.submit(batch)
        try:
            found = self.machine(ids[0])
        except errors.ProviderError as error:
            raise errors.UncertainError(f"job submitted, but Slurm does not list it: {error}") from error
        if found is None:
            raise errors.UncertainError("job submitted, but Slurm does not list it")
        return found

    def instances(self) -> Sequence[Instance]:
        """List all jobs of this ledger's user that have or await a node, and all boxes on the disk."""
        queue = self._slurm.queue()
        return [self._instance(one, queue) for one in queue.ids() if _ID.fullmatch(one)]

    def machine(self, instance_id: str) -> Instance | None:
        return next((found for found in self.instances() if found.id == instance_id), None)

    def connect(self, instance: Instance) -> Remote:
        """Return a shell on the job's node; for an ended job, in its box on the shared disk."""
        queue = self._slurm.recent_queue()
        job, box = queue.job(instance.id), queue.box(instance.id)
        if job is None or not job.is_pending:
            self._require_folder(instance.id, queue)
        if box is None and (job is None or job.is_over):
            raise errors.GoneError(f"there is no job {instance.id}")
        # Unreachable, not failed: a queue may take days, and only the user's limits end the wait.
        if job is not None and job.is_pending:
            raise errors.UnreachableError(f"job {job.id} waits: {wait_reason(job)}")
        if box is None:
            raise errors.UnreachableError("job started; waiting for set-up")
        if job is not None and not job.is_over:
            return self._shell(instance, job.id)
        end = self._end_of(job) if job else None
        if end is None and job is not None:
            raise errors.UnreachableError(f"Slurm does not say yet how job {job.id} ended")
        remote = self._shell(instance, None)
        if remote.run(f"[ -e {layout.RUN_LOCK} ]", timeout_s=_END_TIMEOUT_S).exit_code != 0:
            remote.close()
            text = "the job has ended, and Slurm no longer knows why"
            end = end or MachineEnd(cause=Cause.LOST, text=text)
            raise errors.EndedError(end.text, cause=end.cause, node=end.node)
        remote.finalize_killed_run()
        return remote

    def destroy(self, instance_id: str) -> None:
        """Cancel the job, wait until its programs have ended, and remove its box."""
        if not _ID.fullmatch(instance_id):
            return
        queue = self._slurm.queue()
        job = queue.job(instance_id)
        if job is not None and not job.is_over and instance_id != first_node_id(instance_id):
            self._slurm.release_node(instance_id)  # only node 0 ends the job
        else:
            self._end_job(instance_id)
        self._require_folder(instance_id, queue)
        self._slurm.remove(instance_id)

    def _require_folder(self, instance_id: str, queue: SlurmQueue) -> None:
        """Raise AccountMismatchError where the folder of an open run is not here; UnreachableError while the
        job runs, and by the settings it should be."""
        if instance_id not in queue.hidden:
            return
        job, folder = queue.job(instance_id), self._slurm.folder_of(instance_id)
        text = f"the run's folder {folder} (slurm.folder when it began) is not on {self._node.name}"
        if job is not None and not job.is_over and folder == self._node.folder:
            raise errors.UnreachableError(text)
        raise errors.AccountMismatchError(
            text,
            hint="resume it where that folder is; a job that still runs ends by its lease. If the folder is "
            f"lost: mkdir -p {folder}/{ORDERS}, and the run ends as LOST",
        )

    def _end_job(self, instance_id: str) -> None:
        began, cancelled = self._uptime(), False
        while (job := self._slurm.queue().job(instance_id)) is not None:
            waited_s = self._uptime() - began
            if job.is_over and (not job.is_ending or waited_s > _PROGRAMS_TIMEOUT_S):
                return
            if not job.is_over and not cancelled:
                self._slurm.cancel(job)
                cancelled = True
            if waited_s > _END_TIMEOUT_S:
                raise errors.ProviderError(
                    f"job {job.id} was cancelled, and is {job.state} {_END_TIMEOUT_S:.0f} s later"
                )
            self._clock.sleep(0.3)

    def end_of(self, instance_id: str) -> MachineEnd | None:
        """Return why the job ended; None while it runs, or when Slurm no longer knows."""
        queue = self._slurm.queue()
        job = queue.job(instance_id)
        # A job that completed when its lease had removed the box was not told to.
        if job is None or (job.state == "COMPLETED" and queue.box(instance_id) is None):
            return None
        return self._end_of(job)

    def _end_of(self, job: SlurmJob) -> MachineEnd | None:
        if job.is_ending:
            raise errors.UnreachableError(f"job {job.id} is ending")
        return end_of(job, self._slurm.failed_node(job) if job.state == "NODE_FAIL" else None)

    def identity(self) -> Identity:
        cluster = self._slurm.cluster()
        return Identity(account=f"{cluster.user}@{cluster.name}", clock_ahead_s=None)

    def describe(self) -> str:
        """Return a line about the cluster. Raises ProviderError when a program is missing."""
        cluster = self._slurm.cluster()
        self._slurm.check_programs(self._python if self._settings.container is None else "bash")
        partitions, free_gb = self._slurm.market()
        room = "" if free_gb is None else f", {free_gb:.0f} GB free"
        by = f"containers by {self._settings.container}" if self._settings.container else self._python
        return (
            f"Slurm {cluster.version}, cluster {cluster.name}, by {self._node.name}: "
            f"{join_names(one.name for one in partitions)}; boxes in {self._node.folder}{room}; {by}"
        )

    def _instance(self, instance_id: str, queue: SlurmQueue) -> Instance:
        job, box = queue.job(instance_id), queue.box(instance_id)
        queued = job is not None and job.is_pending
        runs = job is not None and not job.is_over and not queued
        rented_at = (job.submitted_at if job else 0.0) or (box.changed_at if box else 0.0)
        return Instance(
            id=instance_id,
            label=LABEL_PREFIX + instance_id.rpartition(".")[0],
            state="loading" if queued else "running" if runs else ENDED,
            note=wait_reason(job) if job and queued else "",
            usd_per_hour=price(self._settings, job.gpus) if job else 0.0,
            rented_at=rented_at or self._clock.now(),
            idle=not runs,
            queued=queued,
            up_s=job.ran_s if job and runs else None,
            host=job.nodes if job and runs else "",
            rendezvous=box.rendezvous if box and runs else "",
        )

    def _shell(self, instance: Instance, job_id: int | None) -> SlurmRemote:
        """Return a shell for the box. `job_id`: the running job; None when it has ended."""
        root = f"{self._slurm.folder_of(instance.id)}/{instance.id}"
        env = {
            "VASTRUN_BOX": root,
            "VASTRUN_INSTANCE": instance.id,
            "VASTRUN_PROVIDER": self.name,
            "VASTRUN_PYTHON": self._python,
        }
        inner = self._node.remote(root, env, lambda: self.machine(instance.id) is None)
        # The login node's identity says nothing about the job's node.
        remote = with_abilities(SlurmRemote, inner, without=("identity",))
        return remote(inner, root, job_id, self._node, self._slurm.queue)
