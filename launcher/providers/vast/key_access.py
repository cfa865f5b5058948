"""KeyAccess: attaches the run's SSH key to its machine on Vast, again while the machine rejects it."""

from __future__ import annotations

from dataclasses import dataclass

from vastrun.launcher.core.errors import (
    AuthError,
    GoneError,
    KeyNotAttachedError,
    ProviderError,
    UnreachableError,
    VastrunError,
)
from vastrun.launcher.ports import Clock
from vastrun.launcher.providers.vast.api import VastApi
from vastrun.launcher.providers.vast.instance_row import InstanceRow

VARIABLE = "VASTRUN_SSH_KEY"
"""Variable with the key without its type, for `authorized_keys`. Vast itself sets SSH_PUBLIC_KEY."""
_RETRY_S, _MAX_RETRY_S = 15.0, 600.0
"""Seconds before the first retry of a rejected key, doubled at each retry, and their maximum."""


@dataclass
class _KeyAttempts:
    """Attempts to attach the key to one machine."""

    tries: int = 0
    tried_at: float = 0.0
    rejects: bool = False
    """True when the machine rejected the key at the last SSH login."""
    refusal: VastrunError | None = None
    """Error of the last attempt to attach the key; None when it succeeded."""


class KeyAccess:
    """SSH keys of one launcher's runs on their machines."""

    def __init__(self, api: VastApi, clock: Clock) -> None:
        self._api, self._clock = api, clock
        self._machines: dict[str, _KeyAttempts] = {}

    def attach(self, row: InstanceRow, public_key: str) -> None:
        """Attach the key to the machine once, and again while the machine rejects it.

        Raises UnreachableError and GoneError. A rejection is stored: the machine may have the key
        nevertheless.
        """
        machine, now = self._machines.setdefault(row.id, _KeyAttempts()), self._clock.now()
        wait_s = min(_RETRY_S * 2 ** (machine.tries - 1), _MAX_RETRY_S)
        if machine.tries and not (machine.rejects and now - machine.tried_at >= wait_s):
            return
        machine.tried_at, machine.refusal = now, None
        try:
            self._api.attach_key(row.id, public_key)
        except (UnreachableError, GoneError):
            raise
        except (ProviderError, AuthError) as error:
            if row.state == "loading":
                return  # it may take the key later
            machine.refusal = error
        machine.tries += 1

    def note(self, instance_id: str, *, accepted: bool) -> None:
        """Record whether the machine accepts the key at an SSH login.

        Raises KeyNotAttachedError when it rejects the key and Vast did not attach it.
        """
        machine = self._machines.setdefault(instance_id, _KeyAttempts())
        machine.rejects = not accepted
        if accepted:
            machine.tries = 1
        elif machine.refusal is not None:
            raise KeyNotAttachedError(
                f"Vast did not attach the run's SSH key to its machine, which rejects it: {machine.refusal}",
                hint=machine.refusal.hint or "see the SSH keys at https://cloud.vast.ai/manage-keys/",
            )
