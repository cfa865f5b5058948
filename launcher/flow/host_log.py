"""The host's log: asked for once, for a few seconds, before a machine that does not start is given up."""

from __future__ import annotations

from dataclasses import replace

from launcher.core.errors import VastrunError
from launcher.flow.context import RunContext
from launcher.flow.phase_end import PhaseEnd
from launcher.gate.text import last_lines, one_line

WITHIN_S = 5.0
"""Longest wait for the log: the machine is paid for meanwhile."""
_LINES, _CHARS = 10, 200
_SHOWN = 5


def explained(context: RunContext, end: PhaseEnd, *, is_guess: bool = True) -> PhaseEnd:
    """Return the end of a boot with what the host wrote last, where its provider shows that.

    `is_guess`: nothing else says who is to blame, so that the log decides. The first reason stays in front.
    """
    provider, machine = context.services.provider.abilities.host_log, context.machine
    if provider is None or machine is None:
        return end
    try:
        lines = last_lines(provider.host_log(machine.id, within_s=WITHIN_S), _LINES, _CHARS)
    except VastrunError as error:
        context.tell(f"its host's log cannot be read: {one_line(str(error))}")
        return end
    if not lines:
        context.tell("its host's log is empty")
        return end
    for line in lines[-_SHOWN:]:
        context.tell(f"host log: {line}")
    cause = provider.cause_in("\n".join(lines))
    matching = [line for line in lines if cause is not None and provider.cause_in(line) is cause]
    detail = f"{end.detail}; its host's log says: {(matching or lines)[-1]}"
    return replace(end, detail=detail, cause=(cause if is_guess else None) or end.cause)
