"""Noise filter: drops and counts meaningless lines that machines print."""

from __future__ import annotations

import re
from collections import Counter

_KNOWN = {
    "port_forwarding": re.compile(r"remote port forwarding failed for listen port \d+"),
    "welcome": re.compile(r"^Welcome to vast\.ai\b|^Have fun!$"),
    "known_hosts": re.compile(r"^Warning: Permanently added .+ to the list of known hosts"),
    "locale": re.compile(r"setlocale: LC_\w+: cannot change locale"),
}


class NoiseFilter:
    """Drops known noise from text and counts it."""

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()
        """Number of dropped lines by kind."""

    def strip(self, text: str) -> str:
        """Return the text without its lines of known noise."""
        return "\n".join(line for line in text.split("\n") if not self._is_noise(line))

    def _is_noise(self, line: str) -> bool:
        kind = next((kind for kind, pattern in _KNOWN.items() if pattern.search(line.rstrip("\r"))), None)
        if kind is not None:
            self.counts[kind] += 1
        return kind is not None
