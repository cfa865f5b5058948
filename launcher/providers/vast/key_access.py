"""KeyAccess: the run's SSH key is handed to Vast for a machine, and again while the machine rejects it."""

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
"""The key without its type: the lease adds it to `authorized_keys`. Vast sets SSH_PUBLIC_KEY itself."""
_RETRY_S, _MAX_RETRY_S = 15.0, 600.0
"""Seconds until the first new try to attach a rejected key, doubled with each try, and the most."""


@dataclass
class _KeyAttempts:
    """Attempts to attach the key to one machine."""

    tries: int = 0
    tried_at: float = 0.0
    rejects: bool = False
    """It did not accept the key when SSH was last tried."""
    refusal: VastrunError | None = None
    """Why Vast did not attach the key at the last try."""


class KeyAccess:
    """The keys of one launcher's runs on Vast's machines."""

    def __init__(self, api: VastApi, clock: Clock) -> None:
        self._api, self._clock = api, clock
        self._machines: dict[str, _KeyAttempts] = {}

    def attach(self, row: InstanceRow, public_key: str) -> None:
        """Attach the key to the machine: once, and again while the machine rejects it.

        Raises UnreachableError and GoneError. A refusal is kept: the machine may have the key all the same.
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
        """Note whether the machine, which answers by SSH, accepts the key.

        Raises KeyNotAttachedError when it does not and Vast refused to attach the key.
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
