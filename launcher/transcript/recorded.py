"""Recorded services: those of one drive of a run, whose calls to its provider and machine are written."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

from vastrun.launcher.config import read_job
from vastrun.launcher.core import Run
from vastrun.launcher.core.errors import StorageError, UsageError
from vastrun.launcher.core.secrets import Mask, job_secrets, public_job, values_in
from vastrun.launcher.flow.services import Services
from vastrun.launcher.ports import Abilities, Provider
from vastrun.launcher.transcript.recorder import CALLS, Recorder, row_of

VERSION = 2
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
    provider = cast("Provider", _RecordedProvider(services.provider, recorder, "provider"))
    try:
        yield replace(services, provider=provider, call=recorder.call, mask=mask)
    finally:
        recorder.close(guard_gap_s=round(guard_gap_s(), 3))


class _RecordedPort:
    """A port whose calls are recorded as `CALLS` says under its name."""

    def __init__(self, real: Any, recorder: Recorder, name: str) -> None:
        self._inner, self._recorder, self._name = real, recorder, name

    def __getattr__(self, method: str) -> Any:
        act, verb = getattr(self._inner, method), f"{self._name}.{method}"
        if verb not in CALLS:
            return act
        return lambda *args, **options: self._recorder.call(verb, act, *args, **options)


class _RecordedProvider(_RecordedPort):
    """A Provider, recorded; so are those of its abilities that a drive asks."""

    @property
    def abilities(self) -> Abilities:
        able: Abilities = self._inner.abilities
        recorded: dict[str, Any] = {
            name: _RecordedPort(ability, self._recorder, name)
            for name in _ABILITIES
            if (ability := getattr(able, name)) is not None
        }
        return replace(able, **recorded)
