"""Restarts: a machine whose job has ended is rebooted, stopped and started again, to see what that does.

A machine that is stopped has no lease that runs: it is stopped for a short time only, and only where the user
asked for it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass

from launcher.core import Instance
from launcher.core.errors import VastrunError
from launcher.providers.vast import VastProvider
from launcher.providers.vast.conformance.box import ask_box, lease_seconds
from launcher.providers.vast.conformance.observations import is_running, own_rows, short
from launcher.providers.vast.conformance.recorder import ApiRecorder

_LOOK_S = 2.0
_BEGINS_S = 20.0
"""So long after a request to reboot a row may still say that it runs."""
_EARLIER_S = 1.0


@dataclass(frozen=True, kw_only=True)
class Restarts:
    """The looks, in their order."""

    vast: VastProvider
    recorder: ApiRecorder
    wait_s: float
    """How long each change is waited for."""
    stopped_s: float
    """How long it stays stopped."""
    may_go_on: Callable[[], bool]
    """There is time, and the user wants no end."""

    def look(self, instance: Instance) -> None:
        """Do each once. What cannot be done is left out; the machine runs again, or is about to be ended."""
        for look in (self._reboot, self._stop_and_start):
            if self.may_go_on():
                with suppress(VastrunError):
                    look(instance)

    def _reboot(self, instance: Instance) -> None:
        machine = int(instance.id)
        if not self._agreed("reboot.answer", lambda sdk: sdk.reboot_instance(id=machine)):
            return
        since = self._now()
        self._wait(instance, runs=False, within_s=_BEGINS_S)
        if self._timed("reboot.seconds", instance, since, runs=True):
            self.recorder.measured["reboot.onstart"] = self._onstart_since(instance, since)

    def _onstart_since(self, instance: Instance, since: float) -> str:
        until = self._now() + self.wait_s
        while self._now() < until and self.may_go_on():
            with suppress(VastrunError):
                remote = self.vast.connect(self.vast.machine(instance.id) or instance)
                try:
                    age_s = lease_seconds(ask_box(remote, instance.id, self.vast.api.server))
                finally:
                    remote.close()
                if age_s is not None:
                    return "runs again" if age_s <= self._now() - since + _EARLIER_S else "was not ended"
            self.vast.clock.sleep(_LOOK_S)
        return "does not run"

    def _stop_and_start(self, instance: Instance) -> None:
        machine = int(instance.id)
        if not self._agreed("stop.answer", lambda sdk: sdk.stop_instance(id=machine)):
            return
        if not self._timed("stop.seconds", instance, self._now(), runs=False):
            return
        stopped_at = self._now()
        self.recorder.measured["stop.state"] = short(self._row(instance).get("actual_status"))
        try:
            while self._now() - stopped_at < self.stopped_s and self.may_go_on():
                self.vast.clock.sleep(_LOOK_S)
            if self._agreed("start.answer", lambda sdk: sdk.start_instance(id=machine)):
                self._timed("start.seconds", instance, self._now(), runs=True)
        finally:
            self.recorder.stopped_s = self._now() - stopped_at

    def _timed(self, name: str, instance: Instance, since: float, *, runs: bool) -> bool:
        """Note how long it took; where it was waited for in vain, how long that was."""
        done = self._wait(instance, runs=runs, within_s=self.wait_s)
        if done or self.may_go_on():
            self.recorder.measured[name] = self._now() - since
        return done

    def _wait(self, instance: Instance, *, runs: bool, within_s: float) -> bool:
        until = self._now() + within_s
        while is_running(self._row(instance)) != runs:
            if self._now() >= until or not self.may_go_on():
                return False
            self.vast.clock.sleep(_LOOK_S)
        return True

    def _row(self, instance: Instance) -> Mapping[str, object]:
        """Its row now. Raises GoneError, ProviderError."""
        self.vast.machine(instance.id)
        rows = own_rows(self.recorder)
        return rows[-1][1] if rows else {}

    def _agreed(self, name: str, call: Callable[..., object]) -> bool:
        """Note what a request is answered; a label and a state are changed by the same call."""
        return self.recorder.note(self.vast.api.once, name, "label", call).startswith("2")

    def _now(self) -> float:
        return self.vast.clock.now()
