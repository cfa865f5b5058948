"""Endpoints of volumes, and what a new instance may have of them."""

from __future__ import annotations

import re
from typing import Any

from tests.emulators.answers import Reply, refusal, reply
from tests.emulators.call import Call, Route
from tests.emulators.faults import Place
from tests.emulators.machines import Machine
from tests.emulators.market import Ask
from tests.emulators.query import matches
from tests.emulators.rental import Rental
from tests.emulators.volumes import OFFER_BASE, Volume
from tests.emulators.world import World

_NAME = re.compile(r"[A-Za-z0-9_]{1,64}")
_UNLISTED_S = 60.0


def search_volumes(world: World, call: Call) -> Reply:
    """Machines with room for a volume."""
    filters = {name: value for name, value in call.body.items() if isinstance(value, dict)}
    rows = [_offer_row(machine) for machine in world.market.machines.values()]
    return reply({"offers": [row for row in rows if matches(row, filters)]})


def list_volumes(world: World, call: Call) -> Reply:
    """All of the account."""
    if world.faults.take("volumes_denied"):
        raise refusal(403, "auth_error", "This key does not have the permission instance_read for this call.")
    if world.faults.take("volume_gone"):
        for volume in world.volumes:
            world.volumes.remove(volume)
    late = world.faults.take("volume_unlisted")
    if late:
        wait_s = _UNLISTED_S if late.seconds is None else late.seconds
        world.volumes.unlisted_until = world.clock.now() + wait_s
    if world.clock.now() < world.volumes.unlisted_until:
        return reply({"volumes": []})
    return reply({"volumes": [_row(world, volume) for volume in world.volumes]})


def create_volume(world: World, call: Call) -> Reply:
    """A volume without an instance: not done here."""
    raise refusal(400, "invalid_args", "Volumes are created with instances here.")


def delete_volume(world: World, call: Call) -> Reply:
    """The volume and its data are gone."""
    volume = world.volumes.get(int(call.query.get("id") or 0))
    if volume is None:
        raise refusal(404, "not_found", "Volume not found.")
    if not volume.is_free(world.clock.now()):
        raise refusal(400, "invalid_args", f"Volume {volume.id} is in use.")
    world.volumes.remove(volume)
    return reply({"success": True})


def check_volume(world: World, ask: Ask, rental: Rental) -> None:
    """Check that the new instance can have the volume it asks for. Raises ApiError."""
    info = rental.volume_info
    if info is None:
        return
    if world.faults.take("volume_refused", Place(machine_id=ask.machine.id)):
        raise refusal(400, "invalid_args", "error 400/3467: the volume cannot be had")
    if not str(info.get("mount_path") or "").startswith("/"):
        raise refusal(400, "invalid_args", "error 400/3467: mount_path must be a path")
    (_check_new if info.get("create_new") else _check_existing)(world, ask, info)


def _check_new(world: World, ask: Ask, info: dict[str, Any]) -> None:
    name = info.get("name")
    if name is not None and not _NAME.fullmatch(str(name)):
        raise refusal(422, "invalid_args", "name may have 1 to 64 letters, digits and _")
    if info.get("volume_id") != OFFER_BASE + ask.machine.id:
        raise refusal(400, "invalid_args", "error 400/3467: the volume offer is of another machine")
    if float(info.get("size") or 15) > ask.machine.volume_gb:
        raise refusal(400, "invalid_args", "error 400/3467: the machine has no such room")


def _check_existing(world: World, ask: Ask, info: dict[str, Any]) -> None:
    volume = world.volumes.get(int(info.get("volume_id") or 0))
    if volume is None:
        raise refusal(404, "not_found", "Volume not found.")
    if volume.machine_id != ask.machine.id:
        raise refusal(400, "invalid_args", "error 400/3467: the volume is on another machine")
    if not volume.is_free(world.clock.now()):
        raise refusal(400, "invalid_args", "error 400/3467: the volume is in use")


def _offer_row(machine: Machine) -> dict[str, Any]:
    return {
        "id": OFFER_BASE + machine.id,
        "machine_id": machine.id,
        "disk_space": machine.volume_gb,
        "storage_cost": machine.volume_usd,
        "inet_down": machine.inet_down,
        "inet_up": machine.inet_up,
        "reliability": machine.reliability,
        "verification": machine.verification,
    }


def _row(world: World, volume: Volume) -> dict[str, Any]:
    free = volume.is_free(world.clock.now())
    return {
        "id": volume.id,
        "label": volume.label,
        "status": "created" if free else "in-use",
        "machine_id": volume.machine_id,
        "type": "machine",
        "disk_space": volume.gb,
        "instances": [] if free else [volume.instance_id],
        "start_date": volume.created_at,
    }


ROUTES = (
    Route("POST", "/v0/volumes/search", "search_volumes", "misc", search_volumes, open=True),
    Route("GET", "/v0/volumes", "list_volumes", "instance_read", list_volumes),
    Route("PUT", "/v0/volumes", "create_volume", "instance_write", create_volume),
    Route("DELETE", "/v0/volumes", "delete_volume", "instance_write", delete_volume),
)
