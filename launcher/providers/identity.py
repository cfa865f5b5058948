"""SSH host keys in a machine's log, a channel that an attacker on the network path cannot change."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection

from vastrun.launcher.core.errors import ProviderError, UnreachableError, VastrunError
from vastrun.launcher.gate import caps
from vastrun.launcher.ports import Clock

_KEY_LINE = re.compile(r"\b\d+ (SHA256:[A-Za-z0-9+/]{43}) .*\([A-Z0-9-]+\)\s*$")
"""A fingerprint as printed by `ssh-keygen -l`."""
_LOG_WAIT_S = 20.0
"""Seconds after which the log of a reachable box should name its keys."""
_CACHE_S = 10.0
"""Seconds for which fingerprints are cached."""


class HostKeyLog:
    """Reader and cache of the host key fingerprints in machines' logs."""

    def __init__(self, read: Callable[[str], str], clock: Clock) -> None:
        """`read` returns the log of the machine with that id, or at least its lines with fingerprints."""
        self._log = read
        self._clock = clock
        self._started: dict[str, float] = {}
        self._named: dict[str, tuple[float, Collection[str]]] = {}

    def fingerprints(self, instance_id: str) -> Collection[str]:
        """Return the fingerprints of one machine; empty when its log names none.

        Raises UnreachableError while the log may still name them, ProviderError when it cannot be read.
        """
        now = self._clock.now()
        read_at, named = self._named.get(instance_id, (0.0, ()))
        # A read of the log takes seconds on some providers, and every new connection needs it.
        if named and now - read_at < _CACHE_S:
            return named
        # The log is untrusted: lines longer than any fingerprint are skipped, since the pattern is quadratic.
        lines = [
            line for line in self._read(instance_id).split("\n") if len(line) <= caps.KEY_LINE_CHARACTERS
        ]
        named = {found[1] for found in map(_KEY_LINE.search, lines) if found}
        self._named[instance_id] = now, named
        if not named and now - self._started.setdefault(instance_id, now) < _LOG_WAIT_S:
            raise UnreachableError("its log does not name its SSH host key yet")
        return named

    def _read(self, instance_id: str) -> str:
        try:
            return self._log(instance_id)
        except VastrunError as error:
            raise ProviderError(f"its log cannot be read ({error})") from error
