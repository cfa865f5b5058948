"""What a machine's own log says of its SSH host keys: a channel that nobody between us and it can change."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection

from vastrun.launcher.core.errors import ProviderError, UnreachableError, VastrunError
from vastrun.launcher.gate import caps
from vastrun.launcher.ports import Clock

_LISTED = re.compile(r"\b\d+ (SHA256:[A-Za-z0-9+/]{43}) .*\([A-Z0-9-]+\)\s*$")
"""As `ssh-keygen -l` prints a key."""
_PATIENCE_S = 20.0
"""A box that answers has its log by then."""
_REST_S = 10.0
"""Between two looks at a log that has named other keys already."""


class LoggedKeys:
    """The fingerprints in the logs of all machines."""

    def __init__(self, read: Callable[[str], str], clock: Clock) -> None:
        """`read` gives the log of the machine with that id, or its lines that name a fingerprint."""
        self._log = read
        self._clock = clock
        self._began: dict[str, float] = {}
        self._named: dict[str, tuple[float, Collection[str]]] = {}

    def of(self, instance_id: str) -> Collection[str]:
        """Return those of one machine; empty when its log names none.

        Raises UnreachableError while it may still do so, ProviderError when the log cannot be read.
        """
        now = self._clock.now()
        read_at, named = self._named.get(instance_id, (0.0, ()))
        # A read of the log takes seconds on some providers, and every connection asks.
        if named and now - read_at < _REST_S:
            return named
        # The log is a stranger's: what is longer than any such line is not searched.
        lines = [
            line for line in self._read(instance_id).split("\n") if len(line) <= caps.KEY_LINE_CHARACTERS
        ]
        named = {found[1] for found in map(_LISTED.search, lines) if found}
        self._named[instance_id] = now, named
        if not named and now - self._began.setdefault(instance_id, now) < _PATIENCE_S:
            raise UnreachableError("its log does not name its SSH host key yet")
        return named

    def _read(self, instance_id: str) -> str:
        try:
            return self._log(instance_id)
        except VastrunError as error:
            raise ProviderError(f"its log cannot be read ({error})") from error
