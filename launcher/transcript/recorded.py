"""Recorded ports: those of one drive of a run, with a recorder that notes every call."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

from vastrun.contract import layout
from vastrun.launcher.config import read_job
from vastrun.launcher.core import Event, Instance, Progress, RentalOrder, Run, UserRequest
from vastrun.launcher.core.errors import StorageError, UsageError
from vastrun.launcher.core.job import JobSpec
from vastrun.launcher.flow.services import Services
from vastrun.launcher.ports import (
    Abilities,
    Ledger,
    Packer,
    Provider,
    Remote,
    Screen,
    UserRequests,
    with_abilities,
)
from vastrun.launcher.transcript.mask import Mask, secrets_in
from vastrun.launcher.transcript.recorder import (
    CallLogSpec,
    Recorder,
    masked_job,
    row_of,
    secrets_of,
    summarize_command,
    summarize_content,
    summarize_machine,
    summarize_machines,
    summarize_offers,
    summarize_size,
)

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
    packer = RecordedPacker(services.packer, recorder)
    packer.learn_known(spec, run)
    try:
        yield replace(
            services,
            provider=cast("Provider", RecordedProvider(services.provider, recorder, "provider")),
            ledger=cast("Ledger", RecordedLedger(services.ledger, recorder, run)),
            packer=cast("Packer", packer),
            screen=RecordedScreen(services.screen, recorder),
            user_requests=RecordedRequests(services.user_requests, recorder),
        )
    finally:
        recorder.close(guard_gap_s=round(guard_gap_s(), 3))


def _order(order: RentalOrder) -> Mapping[str, Any]:
    about = {"offer": order.offer.id, "label": order.label, "image": order.image}
    return {**about, "at_most_usd": order.max_usd}


def _machine_id(instance_id: str, **_: Any) -> Mapping[str, Any]:
    return {"id": instance_id}


CALLS: Mapping[str, CallLogSpec] = {
    "provider.search": CallLogSpec(answer=summarize_offers),
    "provider.rent": CallLogSpec(about=_order, answer=lambda machine: machine),
    "provider.instances": CallLogSpec(answer=summarize_machines),
    "provider.machine": CallLogSpec(about=_machine_id, answer=summarize_machine),
    "provider.connect": CallLogSpec(about=lambda instance: {"id": instance.id}),
    "provider.destroy": CallLogSpec(about=_machine_id),
    "bids.change_bid": CallLogSpec(about=lambda id, usd: {"id": id, "usd_per_hour": usd}),
    "account.identity": CallLogSpec(answer=lambda identity: {"clock_ahead_s": identity.clock_ahead_s}),
    "by_run.instances_for": CallLogSpec(about=lambda run: {"run": run.id}, answer=summarize_machines),
    "ends_later.schedule_end": CallLogSpec(
        about=lambda instance_id, after_s: {"id": instance_id, "after_s": after_s}
    ),
    "ends_later.cancel_end": CallLogSpec(about=_machine_id),
    "host_log.host_log": CallLogSpec(about=_machine_id, answer=lambda text: {"chars": len(text)}),
    "keys.forget": CallLogSpec(about=lambda run_id: {"run": run_id}),
    "networks.rendezvous": CallLogSpec(
        about=lambda label, _: {"label": label}, answer=lambda place: {"place": place}
    ),
    "networks.remove_network": CallLogSpec(about=lambda label: {"label": label}),
    "remote.run": CallLogSpec(
        about=lambda command, **_: {"command": command}, answer=summarize_command, is_routine=True
    ),
    "remote.put": CallLogSpec(about=lambda _, path: {"path": path}),
    "remote.write": CallLogSpec(about=lambda path, content, **_: {"path": path, "bytes": len(content)}),
    "remote.read": CallLogSpec(
        about=lambda path, **_: {"path": path}, answer=summarize_content, is_routine=True
    ),
    "remote.close": CallLogSpec(),
}
"""Parts of each call that are written: sizes, and contents only of small files and failed commands."""
_READ_SIZE = replace(CALLS["remote.read"], answer=summarize_size)
_ABILITIES = frozenset(verb.partition(".")[0] for verb in CALLS) - {"provider", "remote"}


class _Forwarding:
    """Anything behind a port: what is not said below is asked of the real one."""

    def __init__(self, real: Any, recorder: Recorder) -> None:
        self._inner, self._recorder = real, recorder

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)


class RecordedPort(_Forwarding):
    """A port whose calls are recorded as `CALLS` says under its name."""

    def __init__(self, real: Any, recorder: Recorder, name: str) -> None:
        super().__init__(real, recorder)
        self._name = name

    def __getattr__(self, method: str) -> Any:
        act = getattr(self._inner, method)
        verb = f"{self._name}.{method}"
        if verb not in CALLS:
            return act
        return lambda *args, **options: self._recorder.call(verb, CALLS[verb], act, *args, **options)


class RecordedProvider(RecordedPort):
    """A Provider, recorded; so are its connections, and what of its abilities a drive asks."""

    @property
    def abilities(self) -> Abilities:
        able: Abilities = self._inner.abilities
        recorded: dict[str, Any] = {
            name: RecordedPort(ability, self._recorder, name)
            for name in _ABILITIES
            if (ability := getattr(able, name)) is not None
        }
        return replace(able, **recorded)

    def connect(self, instance: Instance) -> Remote:
        verb = "provider.connect"
        remote = self._recorder.call(verb, CALLS[verb], self._inner.connect, instance)
        return recorded_remote(remote, self._recorder)


class RecordedRemote(RecordedPort):
    """Recorded Remote. Of its log and metrics only sizes are written: a part may end within a secret."""

    def read(self, path: str, **limits: int) -> bytes:
        spec = _READ_SIZE if path in (layout.LOG, layout.METRICS) else CALLS["remote.read"]
        content: bytes = self._recorder.call("remote.read", spec, self._inner.read, path, **limits)
        return content


def recorded_remote(remote: Remote, recorder: Recorder) -> Remote:
    """Return the remote, recorded. `isinstance` finds the abilities that the real one has, and no others."""
    return cast("Remote", with_abilities(RecordedRemote, remote)(remote, recorder, "remote"))


class RecordedLedger(_Forwarding):
    """Recorded Ledger: writes changes of the run's row, and each new request once."""

    def __init__(self, real: Ledger, recorder: Recorder, run: Run) -> None:
        super().__init__(real, recorder)
        self._row = row_of(run)
        self._asked = UserRequest.NONE

    def save(self, run: Run, *, who: str) -> None:
        self._inner.save(run, who=who)
        former, self._row = self._row, row_of(run)
        changes = {key: value for key, value in self._row.items() if value != former[key]}
        if changes:
            self._recorder.note("row", changes=changes)

    def add_event(self, event: Event) -> None:
        self._inner.add_event(event)
        if event.told:  # all others are on the screen
            self._recorder.note("told", what=event.told, text=event.text)

    def user_request(self, run_id: str) -> UserRequest:
        request: UserRequest = self._inner.user_request(run_id)
        if request is not self._asked:
            self._asked = request
            self._recorder.note("request", request=request, where="elsewhere")
        return request


class RecordedPacker(_Forwarding):
    """A Packer, whose secrets are masked from then on."""

    def secrets(self, spec: JobSpec, run: Run | None = None) -> bytes:
        content: bytes = self._inner.secrets(spec, run)
        self._recorder.mask.learn(secrets_in(content))
        return content

    def learn_known(self, spec: JobSpec, run: Run) -> None:
        """Mask what an earlier launcher shipped, as far as it is known without asking the user for it."""
        with suppress(UsageError, StorageError):
            if (content := self._inner.known_secrets(spec, run)) is not None:
                self._recorder.mask.learn(secrets_in(content))


class RecordedScreen:
    """A Screen: what it shows besides the log is noted, so that it can be shown again."""

    def __init__(self, real: Screen, recorder: Recorder) -> None:
        self._inner, self._recorder = real, recorder
        self._shown: tuple[Any, ...] = ()
        self._noted_at = 0.0

    def report(self, event: Event) -> None:
        self._inner.report(event)
        self._recorder.note("event", phase=event.phase, text=event.text, usd=event.usd)

    def log(self, text: str) -> None:
        self._inner.log(text)

    def progress(self, run: Run, progress: Progress, *, usd: float) -> None:
        self._inner.progress(run, progress, usd=usd)
        shown = (run.phase, progress)
        if shown != self._shown or self._recorder.now() - self._noted_at >= PROGRESS_S:
            self._shown, self._noted_at = shown, self._recorder.now()
            self._recorder.note("progress", is_chatter=True, phase=run.phase, progress=progress, usd=usd)


class RecordedRequests:
    """The UserRequests of this keyboard: one that is new is noted."""

    def __init__(self, real: UserRequests, recorder: Recorder) -> None:
        self._inner, self._recorder, self._asked = real, recorder, UserRequest.NONE

    def current(self) -> UserRequest:
        request = self._inner.current()
        if request is not self._asked:
            self._asked = request
            self._recorder.note("request", request=request, where="here")
        return request
