"""Calls of a run to its provider and machine that are written, and the parts of each."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from vastrun.launcher.core import CommandResult, Instance, Offer, RentalOrder

_MAX_LISTED = 10
"""Offers or machines of one list."""
_TEXT_BYTES = 300
"""Maximum bytes shown of the stderr of a failed command."""


@dataclass(frozen=True, kw_only=True)
class CallLogSpec:
    """Parts of a call that are written: of its arguments and of its answer."""

    about: Callable[..., Mapping[str, Any]] = lambda *_, **__: {}
    answer: Callable[[Any], Any] = lambda _: None
    is_routine: bool = False
    """It is made all the time: its answer is not worth a line each time, even where it differs."""


def _order(order: RentalOrder) -> Mapping[str, Any]:
    about = {"offer": order.offer.id, "label": order.label, "image": order.image}
    return {**about, "at_most_usd": order.max_usd}


def _machine_id(instance_id: str, **_: Any) -> Mapping[str, Any]:
    return {"id": instance_id}


def _offers(offers: Sequence[Offer]) -> Mapping[str, Any]:
    best = [
        {"id": one.id, "host": one.host, "usd_per_hour": one.usd_per_hour, "machine": one.description}
        for one in offers[:_MAX_LISTED]
    ]
    return {"offers": len(offers), "best": best}


def _machines(machines: Sequence[Instance]) -> Mapping[str, Any]:
    return {"machines": len(machines), "first": [_machine(one) for one in machines[:_MAX_LISTED]]}


def _machine(machine: Instance | None) -> Mapping[str, Any] | None:
    named = ("id", "label", "state", "note", "usd_per_hour")
    return None if machine is None else {name: getattr(machine, name) for name in named}


def _command(done: CommandResult) -> Mapping[str, Any]:
    end = {"exit_code": done.exit_code, "bytes": len(done.stdout) + len(done.stderr)}
    return end if done.exit_code == 0 else {**end, "stderr": done.stderr[-_TEXT_BYTES:]}


CALLS: Mapping[str, CallLogSpec] = {
    "provider.search": CallLogSpec(answer=_offers),
    "provider.rent": CallLogSpec(about=_order, answer=lambda machine: machine),
    "provider.instances": CallLogSpec(answer=_machines),
    "provider.machine": CallLogSpec(about=_machine_id, answer=_machine),
    "provider.connect": CallLogSpec(about=lambda instance: {"id": instance.id}),
    "provider.destroy": CallLogSpec(about=_machine_id),
    "bids.change_bid": CallLogSpec(about=lambda id, usd: {"id": id, "usd_per_hour": usd}),
    "account.identity": CallLogSpec(answer=lambda identity: {"clock_ahead_s": identity.clock_ahead_s}),
    "by_run.instances_for": CallLogSpec(about=lambda run: {"run": run.id}, answer=_machines),
    "ends_later.schedule_end": CallLogSpec(
        about=lambda instance_id, after_s: {"id": instance_id, "after_s": after_s}
    ),
    "ends_later.cancel_end": CallLogSpec(about=_machine_id),
    "host_log.host_log": CallLogSpec(about=_machine_id, answer=lambda text: {"chars": len(text)}),
    "keys.forget": CallLogSpec(about=lambda run_id: {"run": run_id}),
    "networks.rendezvous": CallLogSpec(
        about=lambda label, _: {"label": label}, answer=lambda place: {"place": place}
    ),
    "networks.remove_network": CallLogSpec(about=lambda label: {"label": label}),
    "remote.run": CallLogSpec(
        about=lambda command, **_: {"command": command}, answer=_command, is_routine=True
    ),
    "remote.put": CallLogSpec(about=lambda _, path: {"path": path}),
    "remote.write": CallLogSpec(about=lambda path, content, **_: {"path": path, "bytes": len(content)}),
    "remote.read": CallLogSpec(
        about=lambda path, **_: {"path": path},
        answer=lambda content: {"bytes": len(content)},
        is_routine=True,
    ),
}
"""Calls that are written. Of a file only the size is, since its content may be secret."""
