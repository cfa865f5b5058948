"""Telling: what of a run, an offer, a machine or an answer stands in a transcript. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from vastrun.launcher.core import CommandResult, Instance, Offer, Run
from vastrun.launcher.core.job import JobSpec
from vastrun.launcher.transcript.mask import SECRET, secrets_among

_MAX_LISTED = 10
"""Offers or machines of one list."""
_TEXT_BYTES = 300
"""Maximum bytes shown of a small file, or of the stderr of a failed command."""
_OMITTED = ("spec_json", "account")
"""Fields of a run that are left out: the job has its own entry, and the account is private."""


def row_of(run: Run) -> dict[str, Any]:
    """Return the run's row by its keys."""
    return {name: value for name, value in vars(run).items() if name not in _OMITTED}


def masked_job(spec: JobSpec) -> JobSpec:
    """Return the job without what is secret by its place."""
    env = {name: SECRET if secrets_among({name: value}) else value for name, value in spec.env.items()}
    return replace(spec, notify=tuple(replace(to, url=to.url and SECRET) for to in spec.notify), env=env)


def secrets_of(spec: JobSpec) -> list[str]:
    """Return what is secret in the job itself; the values of its `secrets` are not in it."""
    return [*secrets_among(spec.env), *(to.url for to in spec.notify if to.url)]


def summarize_offers(offers: Sequence[Offer]) -> Mapping[str, Any]:
    """Tell how many offers there are, and the best ones."""
    best = [
        {"id": one.id, "host": one.host, "usd_per_hour": one.usd_per_hour, "machine": one.description}
        for one in offers[:_MAX_LISTED]
    ]
    return {"offers": len(offers), "best": best}


def summarize_machines(machines: Sequence[Instance]) -> Mapping[str, Any]:
    """Tell how many machines there are, and the first ones."""
    return {"machines": len(machines), "first": [summarize_machine(one) for one in machines[:_MAX_LISTED]]}


def summarize_machine(machine: Instance | None) -> Mapping[str, Any] | None:
    """Tell which machine it is, how it is and what it costs."""
    if machine is None:
        return None
    return {
        "id": machine.id,
        "label": machine.label,
        "state": machine.state,
        "note": machine.note,
        "usd_per_hour": machine.usd_per_hour,
    }


def summarize_command(done: CommandResult) -> Mapping[str, Any]:
    """Tell how a command ended; of one that failed, what it said last."""
    end = {"exit_code": done.exit_code, "bytes": len(done.stdout) + len(done.stderr)}
    return end if done.exit_code == 0 else {**end, "stderr": done.stderr[-_TEXT_BYTES:]}


def summarize_size(content: bytes) -> Mapping[str, Any]:
    """Tell how much of a file came."""
    return {"bytes": len(content)}


def summarize_content(content: bytes) -> Mapping[str, Any]:
    """Tell how much of a file came, and what is in it where that is little."""
    size = summarize_size(content)
    return size if len(content) > _TEXT_BYTES else {**size, "text": content.decode(errors="replace")}
