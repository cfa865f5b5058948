"""Recorder: appends the calls of one drive of a run to its transcript, as JSON; never delays the run."""

from __future__ import annotations

import json
import math
import os
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, fields, is_dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, TypeVar, cast

from vastrun.launcher.config import read_job
from vastrun.launcher.core import CommandResult, Instance, Offer, RentalOrder, Run
from vastrun.launcher.core.errors import NoRoomError, StorageError, UsageError
from vastrun.launcher.core.secrets import Mask, job_secrets, public_job, values_in
from vastrun.launcher.flow.services import Services
from vastrun.launcher.gate.manifest import OWNER
from vastrun.launcher.outputs.disk import need_space, write
from vastrun.launcher.outputs.folder import TRANSCRIPT
from vastrun.launcher.outputs.store import PAGE_FAULTS
from vastrun.launcher.ports import Abilities, Provider

_MAX_LISTED = 10
"""Offers or machines of one list."""
MAX_BYTES = 16 << 20
"""Maximum bytes of one transcript, over all drives."""
_CHATTER_BYTES = 12 << 20
"""From there on only what decides is written: no progress, no call that went as it always does."""
_T = TypeVar("_T")
TEXT_CHARACTERS = 1000
"""Maximum characters of a text; the middle of a longer one is left out."""
_MEMBERS = 40
_OMITTED = ("spec_json", "account")
"""Fields of a run that are left out: the job has its own entry, and the account is private."""
VERSION = 2


@dataclass(frozen=True, kw_only=True)
class CallLogSpec:
    """Parts of a call that are written: of its arguments and of its answer."""

    about: Callable[..., Mapping[str, Any]] = lambda *_, **__: {}
    answer: Callable[[Any], Any] = lambda _: None
    is_routine: bool = False
    """It is made all the time: its answer is not worth a line each time, even where it differs."""
    may_be_left: bool = False
    """A request of the user does not wait for it: it changes nothing, or is repeated. An order is waited for,
    since its answer names what is rented."""


def _order(order: RentalOrder) -> Mapping[str, Any]:
    about = {"offer": order.offer.id, "label": order.label, "image": order.image}
    return {**about, "at_most_usd": order.max_usd}


def _machine_id(instance_id: str, **_: Any) -> Mapping[str, Any]:
    return {"id": instance_id}


def _offers(offers: Sequence[Offer]) -> Mapping[str, Any]:
    best = [
        {"id": one.id, "host": one.host, "usd_per_hour": one.usd_per_hour, "machine": one.description}
        for one in offers[:_MAX_LISTED]
    ]
    return {"offers": len(offers), "best": best}


def _machines(machines: Sequence[Instance]) -> Mapping[str, Any]:
    return {"machines": len(machines), "first": [_machine(one) for one in machines[:_MAX_LISTED]]}


def _machine(machine: Instance | None) -> Mapping[str, Any] | None:
    named = ("id", "label", "state", "note", "usd_per_hour")
    return None if machine is None else {name: getattr(machine, name) for name in named}


def _command(done: CommandResult) -> Mapping[str, Any]:
    end = {"exit_code": done.exit_code, "bytes": len(done.stdout) + len(done.stderr)}
    return end if done.exit_code == 0 else {**end, "stderr": done.stderr[-300:]}


_IDENTITY = CallLogSpec(answer=lambda identity: {"clock_ahead_s": identity.clock_ahead_s}, may_be_left=True)
CALLS: Mapping[str, CallLogSpec] = {
    "provider.search": CallLogSpec(answer=_offers, may_be_left=True),
    "provider.rent": CallLogSpec(about=_order, answer=lambda machine: machine),
    "provider.instances": CallLogSpec(answer=_machines, may_be_left=True),
    "provider.machine": CallLogSpec(about=_machine_id, answer=_machine, may_be_left=True),
    "provider.connect": CallLogSpec(about=lambda instance: {"id": instance.id}, may_be_left=True),
    "provider.destroy": CallLogSpec(about=_machine_id, may_be_left=True),
    "account.identity": _IDENTITY,
    "identity.identity": _IDENTITY,
    "by_run.instances_for": CallLogSpec(
        about=lambda run: {"run": run.id}, answer=_machines, may_be_left=True
    ),
    "ends_later.schedule_end": CallLogSpec(
        about=lambda instance_id, after_s: {"id": instance_id, "after_s": after_s}
    ),
    "ends_later.cancel_end": CallLogSpec(about=_machine_id),
    "host_log.host_log": CallLogSpec(
        about=_machine_id, answer=lambda text: {"chars": len(text)}, may_be_left=True
    ),
    "keys.forget": CallLogSpec(about=lambda run_id: {"run": run_id}),
    "networks.rendezvous": CallLogSpec(
        about=lambda label, _: {"label": label}, answer=lambda place: {"place": place}
    ),
    "networks.remove_network": CallLogSpec(about=lambda label: {"label": label}),
    "remote.run": CallLogSpec(
        about=lambda command, **_: {"command": command}, answer=_command, is_routine=True
    ),
    "remote.put": CallLogSpec(about=lambda _, path: {"path": path}),
    "remote.write": CallLogSpec(about=lambda path, content, **_: {"path": path, "bytes": len(content)}),
    "remote.read": CallLogSpec(
        about=lambda path, **_: {"path": path},
        answer=lambda content: {"bytes": len(content)},
        is_routine=True,
    ),
}
"""Calls that are written. Of a file only the size is, since its content may be secret."""


class Recorder:
    """Writes lines of JSON, some at a time. A disk that takes none is no reason to stop."""

    def __init__(
        self,
        folder: Path,
        run_id: str,
        begin: Mapping[str, Any],
        mask: Mask,
        *,
        now: Callable[[], float],
        calls: Mapping[str, CallLogSpec] = CALLS,
    ) -> None:
        """`folder`: of the run's outputs; nothing is written there before it is the run's own.

        `begin`: what comes before the first line. A launcher that does nothing writes nothing.
        """
        self._begin: Mapping[str, Any] | None = begin
        self._mask, self._now, self._calls = mask, now, calls
        self._folder, self._run_id = folder, run_id
        self._lock = threading.Lock()
        self._lines: list[bytes] = []
        self._waiting = 0
        self._flushed_at = now()
        self._written: int | None = None
        """Bytes of the file; None: the folder was not the run's own yet."""
        self._last_answers: dict[tuple[Any, ...], tuple[str, float]] = {}
        """Last written answer by question, with its time."""

    def _note(self, kind: str, values: Mapping[str, Any]) -> None:
        """Write one line, of this moment."""
        with suppress(*PAGE_FAULTS):
            shown = {key: to_jsonable(value, self._mask) for key, value in values.items()}
            self._put(kind, self._now(), shown, is_chatter=False)

    def call(self, verb: str, act: Callable[..., _T], *args: Any, **options: Any) -> _T:
        """Do `act`, and write what was asked, what was answered or raised, and how long it took."""
        spec, began = self._calls[verb], self._now()
        about: Mapping[str, Any] = {}
        with suppress(*PAGE_FAULTS):  # a page that cannot be made is no reason to fail
            about = spec.about(*args, **options)
        try:
            answer = act(*args, **options)
        except BaseException as error:
            with suppress(*PAGE_FAULTS):  # as below: what the call raised is what goes on
                raised = {"type": type(error).__name__, "text": str(error)}
                self._called(verb, about, began, {"error": raised})
            raise
        with suppress(*PAGE_FAULTS):
            values = {"answer": spec.answer(answer)}
            self._called(verb, about, began, values, is_routine=spec.is_routine)
        return answer

    def close(self, **facts: Any) -> None:
        """Write the end, with `facts`."""
        if self._begin is None:
            self._note("end", facts)

    def _called(
        self,
        verb: str,
        about: Mapping[str, Any],
        began: float,
        end: Mapping[str, Any],
        *,
        is_routine: bool = False,
    ) -> None:
        question = (verb, *about.values())
        # Most calls are routine: what they were answered is not looked at before it is to be written.
        same = "" if is_routine else json.dumps(to_jsonable(end, self._mask))
        former = self._last_answers.get(question)
        if former is not None and former[0] == same and began - former[1] < 60.0:
            return  # the same again within a minute
        if len(self._last_answers) >= 1000:
            self._last_answers.clear()
        self._last_answers[question] = (same, began)
        values = {"verb": verb, "about": to_jsonable(about, self._mask)}
        values |= {"took_s": round(self._now() - began, 4), **to_jsonable(end, self._mask)}
        self._put("call", began, values, is_chatter=is_routine)

    def _put(self, kind: str, at: float, values: Mapping[str, Any], is_chatter: bool) -> None:
        if self._begin is not None:
            begin, self._begin = self._begin, None
            self._note("begin", begin)
        # ASCII only: whatever a box says, to print the file steers no terminal.
        line = json.dumps({"at": round(at, 3), "kind": kind, **values}).encode() + b"\n"
        with self._lock:
            if (self._written or 0) + self._waiting + len(line) > (
                _CHATTER_BYTES if is_chatter else MAX_BYTES
            ):
                return
            if self._written is None and self._waiting + len(line) > (1 << 20):
                return
            self._lines.append(line)
            self._waiting += len(line)
        if not is_chatter or at - self._flushed_at >= 2.0:
            self._flush()

    def _flush(self) -> None:
        with self._lock, suppress(OSError, NoRoomError):
            self._flushed_at = self._now()
            owner = self._folder / OWNER
            if self._written is None and owner.read_text("utf-8", "replace").strip() != self._run_id:
                return  # the folder is not the run's yet
            lines, self._lines, self._waiting = b"".join(self._lines), [], 0
            need_space(self._folder, len(lines))
            descriptor = os.open(
                self._folder / TRANSCRIPT, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW, 0o600
            )
            try:
                write(descriptor, lines)
                self._written = os.fstat(descriptor).st_size
            finally:
                os.close(descriptor)


def row_of(run: Run) -> dict[str, Any]:
    """Return the run's row by its keys."""
    return {each.name: getattr(run, each.name) for each in fields(run) if each.name not in _OMITTED}


def to_jsonable(value: Any, mask: Mask, depth: int = 0) -> Any:
    """Return the value as numbers, texts, lists and objects: bounded, its secrets hidden."""
    if value is None or isinstance(value, int):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else str(value)
    if isinstance(value, str):
        return cut(mask.hide(str(value)))
    if depth >= 6:
        return "..."
    if is_dataclass(value) and not isinstance(value, type):
        value = {each.name: getattr(value, each.name) for each in fields(value)}
    if isinstance(value, Mapping):
        some = list(value.items())[:_MEMBERS]
        return {cut(mask.hide(str(key))): to_jsonable(each, mask, depth + 1) for key, each in some}
    if isinstance(value, Sequence) and not isinstance(value, bytes):
        return [to_jsonable(each, mask, depth + 1) for each in value[:_MEMBERS]]
    return f"<{type(value).__name__}>"


def cut(text: str, max_characters: int = TEXT_CHARACTERS) -> str:
    """Return the text; of a long one the begin and the end, and how much is left out."""
    if len(text) <= max_characters:
        return text
    half = max_characters // 2
    return f"{text[:half]}[... {len(text) - 2 * half} characters ...]{text[-half:]}"


_ABILITIES = frozenset(verb.partition(".")[0] for verb in CALLS) - {"provider", "remote"}


@contextmanager
def recorded(
    run: Run,
    services: Services,
    masked: Iterable[str] = (),
    *,
    guard_gap_s: Callable[[], float] = lambda: 0.0,
) -> Iterator[Services]:
    """Yield the services, with each call of the run's drive written to its transcript.

    `masked`: values that are never written, besides the job's own secrets. `guard_gap_s`: longest gap of the
    guard.
    """
    spec = read_job(run.spec_json)
    mask = Mask([*masked, *job_secrets(spec)])
    with suppress(UsageError, StorageError):  # what an earlier launcher shipped, without asking for it
        mask.learn(values_in(services.packer.known_secrets(spec, run) or b""))
    begin = {"version": VERSION, "run": row_of(run), "job": public_job(spec)}
    recorder = Recorder(Path(run.out_dir), run.id, begin, mask, now=services.clock.now)
    calls = recorder.call, services.call_interruptibly
    provider = cast("Provider", _RecordedProvider(services.provider, "provider", *calls))
    try:
        yield replace(services, provider=provider, call=recorder.call, mask=mask)
    finally:
        recorder.close(guard_gap_s=round(guard_gap_s(), 3))


class _RecordedPort:
    """A port whose calls are recorded as `CALLS` says under its name."""

    def __init__(self, real: Any, name: str, *calls: Callable[..., Any]) -> None:
        """`calls`: makes a call and records it; makes one that may be left."""
        self._inner, self._name = real, name
        self._calls = self._record, self._leave = calls

    def __getattr__(self, method: str) -> Any:
        act, verb = getattr(self._inner, method), f"{self._name}.{method}"
        if verb not in CALLS:
            return act
        return partial(self._record, verb, partial(self._leave, act) if CALLS[verb].may_be_left else act)


class _RecordedProvider(_RecordedPort):
    """A Provider, recorded; so are those of its abilities that a drive asks."""

    @property
    def abilities(self) -> Abilities:
        able: Abilities = self._inner.abilities
        recorded: dict[str, Any] = {
            name: _RecordedPort(ability, name, *self._calls)
            for name in _ABILITIES
            if (ability := getattr(able, name)) is not None
        }
        return replace(able, **recorded, end_of=able.end_of and partial(self._leave, able.end_of))
