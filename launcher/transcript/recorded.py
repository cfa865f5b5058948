"""Recorded: the ports of one drive of a run, with a recorder that hears every call. They do what they did."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

from launcher.config import read_job
from launcher.core import (
    Completed,
    Event,
    Identity,
    Instance,
    ListedVolume,
    Offer,
    Progress,
    RentalOrder,
    Run,
    UserRequest,
    VolumeOffer,
)
from launcher.core.job import JobSpec
from launcher.flow.services import Services
from launcher.ports import (
    Abilities,
    ChecksIdentity,
    CountsNoise,
    HasAccount,
    HasHostLog,
    HasNetworks,
    HasVolumes,
    Interruptible,
    KeepsKeys,
    Ledger,
    ListsByRun,
    Packer,
    Provider,
    Remote,
    Screen,
    UserRequests,
)
from launcher.transcript.plain import Mask, secrets_in
from launcher.transcript.recorder import Recorder, Said
from launcher.transcript.telling import (
    masked_job,
    row_of,
    secrets_of,
    size_of_content,
    told_command,
    told_content,
    told_machine,
    told_machines,
    told_offers,
)
from trainer.contract import layout

VERSION = 1
PROGRESS_S = 10.0
"""Between two lines that say the same of where the run stands."""


@contextmanager
def recorded(
    run: Run,
    services: Services,
    masked: Iterable[str] = (),
    *,
    shown_since: float | None = None,
    guard_gap_s: Callable[[], float] = lambda: 0.0,
) -> Iterator[Services]:
    """Yield the services, with each call of the run's drive written to its transcript.

    `masked`: values that are never written, besides the job's own secrets. `shown_since`: from when the
    screen counts elapsed time; None: from the begin of the run. `guard_gap_s`: longest gap of the guard.
    """
    spec = read_job(run.spec_json)
    mask = Mask([*masked, *secrets_of(spec)])
    since = run.created_at if shown_since is None else shown_since
    begin = {"version": VERSION, "shown_since": since, "run": row_of(run), "job": masked_job(spec)}
    recorder = Recorder(Path(run.out_dir), run.id, begin, mask, now=services.clock.now)
    try:
        yield replace(
            services,
            provider=cast("Provider", RecordedProvider(services.provider, recorder)),
            ledger=cast("Ledger", RecordedLedger(services.ledger, recorder, run)),
            packer=cast("Packer", RecordedPacker(services.packer, recorder)),
            screen=RecordedScreen(services.screen, recorder),
            user_requests=RecordedRequests(services.user_requests, recorder),
        )
    finally:
        recorder.close(guard_gap_s=round(guard_gap_s(), 3))


class _Through:
    """Anything behind a port: what is not said below is asked of the real one."""

    def __init__(self, real: Any, recorder: Recorder) -> None:
        self._real, self._recorder = real, recorder

    def __getattr__(self, name: str) -> Any:
        return getattr(self._real, name)


class RecordedProvider(_Through):
    """A Provider, recorded; so are its connections, and what of its abilities a drive asks."""

    @property
    def abilities(self) -> Abilities:
        able: Abilities = self._real.abilities
        recorder = self._recorder
        return replace(
            able,
            account=able.account and cast("HasAccount", _RecordedAccount(able.account, recorder)),
            host_log=able.host_log and cast("HasHostLog", _RecordedHostLog(able.host_log, recorder)),
            keys=able.keys and cast("KeepsKeys", _RecordedKeys(able.keys, recorder)),
            networks=able.networks and cast("HasNetworks", _RecordedNetworks(able.networks, recorder)),
            volumes=able.volumes and cast("HasVolumes", _RecordedVolumes(able.volumes, recorder)),
            by_run=able.by_run and cast("ListsByRun", _RecordedByRun(able.by_run, recorder)),
        )

    def search(self, spec: JobSpec) -> Sequence[Offer]:
        return self._recorder.call(
            "provider.search", Said(about={}, answer=told_offers), lambda: self._real.search(spec)
        )

    def rent(self, order: RentalOrder) -> Instance:
        about = {
            "offer": order.offer.id,
            "label": order.label,
            "image": order.image,
            "at_most_usd": order.at_most_usd,
            **({} if order.volume is None else {"volume": order.volume}),
        }
        said = Said(about=about, answer=lambda machine: machine)
        machine: Instance = self._recorder.call("provider.rent", said, lambda: self._real.rent(order))
        return machine

    def instances(self) -> Sequence[Instance]:
        return self._recorder.call(
            "provider.instances", Said(about={}, answer=told_machines), lambda: self._real.instances()
        )

    def machine(self, instance_id: str) -> Instance | None:
        said = Said(about={"id": instance_id}, answer=told_machine)
        found: Instance | None = self._recorder.call(
            "provider.machine", said, lambda: self._real.machine(instance_id)
        )
        return found

    def connect(self, instance: Instance) -> Remote:
        said = Said(about={"id": instance.id})
        remote = self._recorder.call("provider.connect", said, lambda: self._real.connect(instance))
        return recorded_remote(remote, self._recorder)

    def destroy(self, instance_id: str) -> None:
        said = Said(about={"id": instance_id})
        self._recorder.call("provider.destroy", said, lambda: self._real.destroy(instance_id))


class _RecordedAccount(_Through):
    def identity(self) -> Identity:
        said = Said(about={}, answer=lambda it: {"clock_ahead_s": it.clock_ahead_s})
        who: Identity = self._recorder.call("account.identity", said, lambda: self._real.identity())
        return who


class _RecordedHostLog(_Through):
    def host_log(self, instance_id: str, *, within_s: float) -> str:
        line = Said(about={"id": instance_id}, answer=lambda text: {"chars": len(text)})
        text: str = self._recorder.call(
            "host_log.host_log", line, lambda: self._real.host_log(instance_id, within_s=within_s)
        )
        return text


class _RecordedKeys(_Through):
    def forget(self, run_id: str) -> None:
        self._recorder.call("keys.forget", Said(about={"run": run_id}), lambda: self._real.forget(run_id))


class _RecordedNetworks(_Through):
    def rendezvous(self, label: str, remote: Remote) -> str:
        said = Said(about={"label": label}, answer=lambda place: {"place": place})
        place: str = self._recorder.call(
            "networks.rendezvous", said, lambda: self._real.rendezvous(label, remote)
        )
        return place

    def remove_network(self, label: str) -> None:
        said = Said(about={"label": label})
        self._recorder.call("networks.remove_network", said, lambda: self._real.remove_network(label))


class _RecordedVolumes(_Through):
    def volumes(self) -> Sequence[ListedVolume]:
        call_log = Said(about={}, answer=list)
        return self._recorder.call("volumes.volumes", call_log, lambda: self._real.volumes())

    def volume_offer(self, host: str, gb: int) -> VolumeOffer | None:
        call_log = Said(about={"host": host, "gb": gb}, answer=lambda offer: offer)
        found: VolumeOffer | None = self._recorder.call(
            "volumes.volume_offer", call_log, lambda: self._real.volume_offer(host, gb)
        )
        return found


class _RecordedByRun(_Through):
    def instances_for(self, run: Run) -> Sequence[Instance]:
        said = Said(about={"run": run.id}, answer=told_machines)
        return self._recorder.call("provider.instances_for", said, lambda: self._real.instances_for(run))


class RecordedRemote(_Through):
    """A Remote, recorded: sizes, not contents, but for small files and for commands that failed."""

    def run(self, command: str, *, timeout_s: float) -> Completed:
        said = Said(about={"command": command}, answer=told_command, is_routine=True)
        done: Completed = self._recorder.call(
            "remote.run", said, lambda: self._real.run(command, timeout_s=timeout_s)
        )
        return done

    def put(self, local_path: str, path: str) -> None:
        said = Said(about={"path": path})
        self._recorder.call("remote.put", said, lambda: self._real.put(local_path, path))

    def write(self, path: str, content: bytes, *, mode: int = 0o600) -> None:
        said = Said(about={"path": path, "bytes": len(content)})
        self._recorder.call("remote.write", said, lambda: self._real.write(path, content, mode=mode))

    def read(self, path: str, *, offset: int = 0, limit: int = 1 << 20) -> bytes:
        # A part of a file that grows may end within a secret; the log is told whole where it is shown.
        answer = size_of_content if path in (layout.LOG, layout.METRICS) else told_content
        said = Said(about={"path": path}, answer=answer, is_routine=True)
        content: bytes = self._recorder.call(
            "remote.read", said, lambda: self._real.read(path, offset=offset, limit=limit)
        )
        return content

    def close(self) -> None:
        self._recorder.call("remote.close", Said(about={}), lambda: self._real.close())


class _Heeding(_Through):
    def heed(self, check: Callable[[], None]) -> None:
        self._real.heed(check)

    def abort(self) -> None:
        self._real.abort()


class _Known(_Through):
    @property
    def identity(self) -> str:
        return str(self._real.identity)


class _Counting(_Through):
    @property
    def left_out(self) -> Mapping[str, int]:
        return cast("Mapping[str, int]", self._real.left_out)


_ABILITIES: Mapping[type, type[_Through]] = {
    Interruptible: _Heeding,
    ChecksIdentity: _Known,
    CountsNoise: _Counting,
}
"""What some remotes can do besides: `isinstance` must find it, or not, as in the real one."""


def recorded_remote(remote: Remote, recorder: Recorder) -> Remote:
    """Return the remote, recorded, with the abilities that it has."""
    able = tuple(kind for ability, kind in _ABILITIES.items() if isinstance(remote, ability))
    return cast("Remote", type("RecordedRemote", (RecordedRemote, *able), {})(remote, recorder))


class RecordedLedger(_Through):
    """A Ledger: what changes in the run's row is a decision; what others ask of the run is told once."""

    def __init__(self, real: Ledger, recorder: Recorder, run: Run) -> None:
        super().__init__(real, recorder)
        self._row = row_of(run)
        self._asked = UserRequest.NONE

    def save(self, run: Run, *, who: str) -> None:
        self._real.save(run, who=who)
        former, self._row = self._row, row_of(run)
        changes = {key: value for key, value in self._row.items() if value != former[key]}
        if changes:
            self._recorder.note("row", changes=changes)

    def tell(self, event: Event) -> None:
        self._real.tell(event)
        if event.told:  # all others are on the screen
            self._recorder.note("told", what=event.told, text=event.text)

    def user_request(self, run_id: str) -> UserRequest:
        request: UserRequest = self._real.user_request(run_id)
        if request is not self._asked:
            self._asked = request
            self._recorder.note("request", request=request, where="elsewhere")
        return request


class RecordedPacker(_Through):
    """A Packer, whose secrets are masked from then on."""

    def secrets(self, spec: JobSpec, run: Run | None = None) -> bytes:
        content: bytes = self._real.secrets(spec, run)
        self._recorder.mask.learn(secrets_in(content))
        return content


class RecordedScreen:
    """A Screen: what it shows is noted, so that it can be shown again."""

    def __init__(self, real: Screen, recorder: Recorder) -> None:
        self._real, self._recorder = real, recorder
        self._shown: tuple[Any, ...] = ()
        self._shown_usd = 0.0
        self._noted_at = 0.0

    def event(self, event: Event) -> None:
        self._real.event(event)
        self._recorder.note("event", phase=event.phase, text=event.text, usd=event.usd)

    def log(self, text: str) -> None:
        self._real.log(text)
        if text:
            self._recorder.log(text)

    def progress(self, run: Run, progress: Progress, *, usd: float) -> None:
        self._real.progress(run, progress, usd=usd)
        shown = (run.phase, progress)
        if shown != self._shown or self._recorder.now() - self._noted_at >= PROGRESS_S:
            self._shown, self._noted_at = shown, self._recorder.now()
            self._recorder.note("progress", is_chatter=True, phase=run.phase, progress=progress, usd=usd)


class RecordedRequests:
    """The UserRequests of this keyboard: one that is new is noted."""

    def __init__(self, real: UserRequests, recorder: Recorder) -> None:
        self._real, self._recorder, self._asked = real, recorder, UserRequest.NONE

    def current(self) -> UserRequest:
        request = self._real.current()
        if request is not self._asked:
            self._asked = request
            self._recorder.note("request", request=request, where="here")
        return request
