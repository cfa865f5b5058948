"""Noting: what one call that is made on purpose is answered."""

from __future__ import annotations

from collections.abc import Callable

from launcher.providers.vast import VastProvider
from launcher.providers.vast.conformance.looking import word_of
from launcher.providers.vast.conformance.tape import Tape


def note(vast: VastProvider, tape: Tape, name: str, endpoint: str, call: Callable[..., object]) -> None:
    """Note what one call is answered; nothing where there was no answer, or it came too early."""
    before = len(tape.exchanges)
    vast.api.once(endpoint, call)
    heard = tape.exchanges[before:]
    if heard and heard[-1].status not in (0, 429):
        tape.measured[name] = word_of(heard[-1])
