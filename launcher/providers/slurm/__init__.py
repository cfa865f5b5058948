"""The provider `slurm`: an instance is a job of a cluster, its box a folder on the disk that nodes share."""

from __future__ import annotations

import re
import secrets
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from vastrun.contract import layout
from vastrun.launcher.core import LABEL_PREFIX, Cause, Identity, Instance, MachineEnd, Offer, RentalOrder
from vastrun.launcher.core.errors import (
    ConfigFileError,
    EndedError,
    GoneError,
    NoOfferError,
    ProviderError,
    UncertainError,
    UnreachableError,
)
from vastrun.launcher.core.job import JobSpec
from vastrun.launcher.core.market import ENDED
from vastrun.launcher.core.settings import SlurmSettings
from vastrun.launcher.gate.slurm import SlurmJob, join_names
from vastrun.launcher.ports import Abilities, Clock, Remote
from vastrun.launcher.providers import ProviderContext
from vastrun.launcher.providers.local import inherited_environment
from vastrun.launcher.providers.slurm.batch import JobOrder
from vastrun.launcher.providers.slurm.box import Place, SlurmRemote
from vastrun.launcher.providers.slurm.commands import SlurmCommands, SlurmQueue, first_of
from vastrun.launcher.providers.slurm.ends import end_of, why_it_waits
from vastrun.launcher.providers.slurm.login_node import LoginNode
from vastrun.launcher.providers.slurm.offers import NodeShare, offers_for, price

_ID = re.compile(r"[\w-]{1,80}(?:\.[0-9a-f]{8})?\.[0-9a-f]{8}", re.ASCII)
_END_S = 60.0
_PROGRAMS_S = 15.0
"""How long the programs of a job that is over are waited for. On a silent node they never end."""
_LOOK_AGAIN_S = 0.3


class SlurmProvider:
    """Jobs of one user on one cluster. `Provider` says what each verb promises."""

    name = "slurm"
    max_nodes = 64
    shared = True
    list_lag_s = 10.0
    """`sbatch` may be answered after the line to the login node broke."""

    def __init__(
        self,
        settings: SlurmSettings,
        state: Path,
        environ: Mapping[str, str],
        python: str,
        *,
        clock: Clock,
        uptime: Callable[[], float] = time.monotonic,
    ) -> None:
        """`python`: what trains on this computer; it does so in a job, too, where this is a login node."""
        self.free = price(settings, 1) == 0
        self._settings, self._clock, self._uptime = settings, clock, uptime
        self._python = settings.python or (python if settings.login is None else "python3")
        self._node = LoginNode(settings, state, environ)
        where = {name: environ[name] for name in ("SLURM_CONF",) if name in environ}
        self._slurm = SlurmCommands(self._node, {**inherited_environment(environ), **where}, uptime)

    @classmethod
    def of(cls, context: ProviderContext) -> SlurmProvider:
        """Make it for the cluster that the user's settings name. Raises ConfigFileError, UsageError."""
        loaded = context.settings()
        # Half-read settings might name another cluster, on which none of our jobs is to be found.
        if loaded.faults:
            raise ConfigFileError(tuple(loaded.faults))
        settings, environ = loaded.settings.slurm, context.environ
        return cls(
            settings, context.state, environ, context.python, clock=context.clock, uptime=context.uptime
        )

    @property
    def abilities(self) -> Abilities:
        return Abilities(description=self, identity=self, ends=self)

    def search(self, spec: JobSpec) -> Sequence[Offer]:
        """Return an offer for each partition that fits.

        Raises NoOfferError, which says what the others lack.
        """
        partitions, free_gb = self._slurm.market()
        image = (spec.image or self._settings.image) if self._settings.container else None
        found = offers_for(spec, partitions, self._settings, free_gb)
        return [replace(offer, image=image) for offer in found]

    def rent(self, order: RentalOrder) -> Instance:
        """Hand a job in. It carries its label from the moment it exists."""
        share = NodeShare.of(order.offer.id)
        if share is None:
            raise NoOfferError(f"{order.offer.id} is no offer of Slurm's")
        token = secrets.token_hex(4)
        ids = [f"{label.removeprefix(LABEL_PREFIX)}.{token}" for label in order.nodes or (order.label,)]
        if order.nodes and order.nodes[0] != order.label:
            raise NoOfferError("the job of node 0 has this node no more")
        partitions, _ = self._slurm.market()
        batch = JobOrder(
            ids=tuple(ids),
            order=order,
            share=share,
            max_s=next((one.max_s for one in partitions if one.name == share.partition), None),
            folder=self._node.folder,
            python=self._python,
            settings=self._settings,
        )
        self._slurm.submit(batch)
        return self._looked_at(ids[0])

    def instances(self) -> Sequence[Instance]:
        """List every job of ours that has or awaits a node, and every box that one left on the disk."""
        seen = self._slurm.look()
        return [self._instance(one, seen) for one in seen.ids() if _ID.fullmatch(one)]

    def machine(self, instance_id: str) -> Instance | None:
        """Return that job, or what it left; None where there is neither."""
        return next((found for found in self.instances() if found.id == instance_id), None)

    def connect(self, instance: Instance) -> Remote:
        """Return a shell on the job's node; of a job that is over, in what it left on the disk."""
        seen = self._slurm.look_lately()
        job, box = seen.job(instance.id), seen.box(instance.id)
        if box is None and (job is None or job.is_over):
            raise GoneError(f"there is no job {instance.id}")
        if job is not None and job.is_pending:
            raise UnreachableError(f"job {job.id} waits: {why_it_waits(job)}")
        if box is None:
            raise UnreachableError("the job has begun, and has no box yet")
        if job is not None and not job.is_over:
            return self._shell(instance, job.id)
        return self._left(instance, job)

    def destroy(self, instance_id: str) -> None:
        """Cancel the job, wait until its programs have ended, and remove its box."""
        if not _ID.fullmatch(instance_id):
            return
        seen = self._slurm.look()
        job = seen.job(instance_id)
        if job is not None and not job.is_over and instance_id != first_of(instance_id):
            self._slurm.give_back(instance_id)  # node 0's end is that of the job
        else:
            self._end_job(instance_id)
        self._slurm.remove(instance_id)

    def _end_job(self, instance_id: str) -> None:
        began, cancelled = self._uptime(), False
        while (job := self._slurm.look().job(instance_id)) is not None:
            waited_s = self._uptime() - began
            if job.is_over and (not job.is_ending or waited_s > _PROGRAMS_S):
                return
            if not job.is_over and not cancelled:
                self._slurm.cancel(job)
                cancelled = True
            if waited_s > _END_S:
                raise ProviderError(f"job {job.id} was cancelled, and is {job.state} {_END_S:.0f} s later")
            self._clock.sleep(_LOOK_AGAIN_S)

    def end_of(self, instance_id: str) -> MachineEnd | None:
        """Return why the job ended, for as long as Slurm remembers; None: it has not, or nobody says."""
        job = self._slurm.look().job(instance_id)
        return None if job is None else self._end_of(job)

    def _end_of(self, job: SlurmJob) -> MachineEnd | None:
        if job.is_ending:
            raise UnreachableError(f"job {job.id} is ending")
        return end_of(job, self._slurm.failed_of(job) if job.state == "NODE_FAIL" else None)

    def identity(self) -> Identity:
        """Return which cluster it is, and who we are to it. Raises ProviderError."""
        cluster = self._slurm.cluster()
        return Identity(account=f"{cluster.user}@{cluster.name}", clock_ahead_s=None)

    def describe(self) -> str:
        """Say which cluster it is and what a job finds there. Raises ProviderError: what is missing."""
        cluster = self._slurm.cluster()
        self._slurm.must_have(self._python if self._settings.container is None else "bash")
        partitions, free_gb = self._slurm.market()
        room = "" if free_gb is None else f", {free_gb:.0f} GB free"
        by = f"containers by {self._settings.container}" if self._settings.container else self._python
        return (
            f"Slurm {cluster.version}, cluster {cluster.name}, by {self._node.name}: "
            f"{join_names(one.name for one in partitions)}; boxes in {self._node.folder}{room}; {by}"
        )

    def _looked_at(self, instance_id: str) -> Instance:
        """The job that was just made, as it is listed."""
        try:
            found = self.machine(instance_id)
        except ProviderError as error:
            raise UncertainError(f"the job was handed in, and Slurm does not list it: {error}") from error
        if found is None:
            raise UncertainError("the job was handed in, and Slurm does not list it")
        return found

    def _instance(self, instance_id: str, seen: SlurmQueue) -> Instance:
        job, box = seen.job(instance_id), seen.box(instance_id)
        queued = job is not None and job.is_pending
        runs = job is not None and not job.is_over and not queued
        rented_at = (job.submitted_at if job else 0.0) or (box.changed_at if box else 0.0)
        return Instance(
            id=instance_id,
            label=LABEL_PREFIX + instance_id.rpartition(".")[0],
            state="loading" if queued else "running" if runs else ENDED,
            note=why_it_waits(job) if job and queued else "",
            usd_per_hour=price(self._settings, job.gpus) if job else 0.0,
            rented_at=rented_at or self._clock.now(),
            idle=not runs,
            queued=queued,
            up_s=job.ran_s if job and runs else None,
            host=job.nodes if job and runs else "",
            rendezvous=box.rendezvous if box and runs else "",
        )

    def _shell(self, instance: Instance, job_id: int | None) -> SlurmRemote:
        """`job_id`: that of the job that has a node for it; None: it is over."""
        place = Place(root=f"{self._node.folder}/{instance.id}", job=job_id)
        env = {
            "VASTRUN_BOX": place.root,
            "VASTRUN_INSTANCE": instance.id,
            "VASTRUN_PROVIDER": self.name,
            "VASTRUN_PYTHON": self._python,
        }
        inner = self._node.remote(place.root, env, lambda: self.machine(instance.id) is None)
        return SlurmRemote(inner, place, self._node, lambda: self._is_over(instance.id))

    def _left(self, instance: Instance, job: SlurmJob | None) -> Remote:
        """What a job that is over has left. Raises ProviderError, with its cause, when that is nothing."""
        end = self._end_of(job) if job else None
        if end is None and job is not None:
            raise UnreachableError(f"job {job.id} does not say how it ended")
        remote = self._shell(instance, None)
        if remote.run(f"[ -e {layout.RUN_LOCK} ]", timeout_s=_END_S).exit_code != 0:
            remote.close()
            text = "the job is over, and Slurm no longer says why"
            said = end or MachineEnd(cause=Cause.LOST, text=text)
            raise EndedError(said.text, cause=said.cause, node=said.node)
        remote.bury()
        return remote

    def _is_over(self, instance_id: str) -> bool:
        job = self._slurm.look().job(instance_id)
        return job is None or job.is_over
