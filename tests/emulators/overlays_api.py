"""Endpoints of overlay networks, and what a new instance joins."""

import re
from typing import Any

from tests.emulators.answers import ApiError, Reply, refusal, reply
from tests.emulators.call import Call, Route
from tests.emulators.faults import Place
from tests.emulators.instance import Instance
from tests.emulators.market import Ask
from tests.emulators.overlays import Overlay
from tests.emulators.rental import Rental
from tests.emulators.world import World

_NAME = re.compile(r"[a-z0-9-]+")


def list_overlays(world: World, call: Call) -> Reply:
    """All of the account, a list without a frame."""
    _must_be_offered(world)
    if world.faults.take("overlay_read_denied"):
        raise _denied("user_read")
    return reply([_row(world, overlay) for overlay in world.overlays])


def create_overlay(world: World, call: Call) -> Reply:
    """A network on a cluster."""
    _must_be_offered(world)
    if world.faults.take("overlay_denied"):
        raise _denied("user_write")
    name, cluster_id = str(call.body.get("name") or ""), call.number("cluster_id")
    if not _NAME.fullmatch(name):
        raise refusal(400, "invalid_args", "name may have a-z, 0-9 and -")
    if all(machine.cluster_id != cluster_id for machine in world.market.machines.values()):
        raise refusal(404, "not_found", f"Cluster {cluster_id} not found.")
    if world.overlays.named(name) is not None:
        raise refusal(400, "invalid_args", f"Overlay {name} exists.")
    world.overlays.add(name, cluster_id)
    if world.faults.take("overlay_made_unsaid"):
        raise ApiError(Reply(cut=True))
    return reply({"success": True, "msg": f"Created overlay {name}."})


def delete_overlay(world: World, call: Call) -> Reply:
    """The network and every instance on it are gone."""
    _must_be_offered(world)
    overlay = _found(world, call)
    if world.faults.take("overlay_in_use"):
        raise refusal(400, "invalid_args", f"Overlay {overlay.name} has instances.")
    if not world.faults.take("overlay_stays"):
        for instance in _on(world, overlay):
            world.instances.destroy(instance)
        world.overlays.remove(overlay)
    return reply({"success": True, "msg": f"Deleted overlay {overlay.name}."})


def join(world: World, ask: Ask, rental: Rental) -> None:
    """Check that the new instance may join the networks it asks for. Raises ApiError (400)."""
    for name in rental.networks:
        overlay = world.overlays.named(name)
        if overlay is None:
            raise refusal(400, "invalid_args", f"error 400/3467: there is no overlay {name}")
        if overlay.cluster_id != ask.machine.cluster_id:
            raise refusal(400, "invalid_args", f"error 400/3467: overlay {name} is on another cluster")
        if world.faults.take("join_refused", Place(machine_id=ask.machine.id)):
            raise refusal(400, "invalid_args", f"error 400/3467: the instance may not join overlay {name}")


def _must_be_offered(world: World) -> None:
    if world.faults.take("overlays_off"):
        raise refusal(404, "not_found", "/api/v0/overlay/ is not known.")


def _denied(permission: str) -> ApiError:
    return refusal(403, "auth_error", f"This key does not have the permission {permission} for this call.")


def _found(world: World, call: Call) -> Overlay:
    wanted = call.body.get("overlay_id"), call.body.get("overlay_name") or call.body.get("name")
    for overlay in world.overlays:
        if overlay.id == wanted[0] or overlay.name == wanted[1]:
            return overlay
    raise refusal(404, "not_found", "Overlay not found.")


def _on(world: World, overlay: Overlay) -> list[Instance]:
    return [instance for instance in world.instances if overlay.name in instance.rental.networks]


def _row(world: World, overlay: Overlay) -> dict[str, Any]:
    return {
        "overlay_id": overlay.id,
        "name": overlay.name,
        "internal_subnet": world.overlays.subnet,
        "cluster_id": overlay.cluster_id,
        "instances": [instance.id for instance in _on(world, overlay)],
    }


ROUTES = (
    Route("GET", "/v0/overlay", "list_overlays", "user_read", list_overlays),
    Route("POST", "/v0/overlay", "create_overlay", "user_write", create_overlay),
    Route("DELETE", "/v0/overlay", "delete_overlay", "user_write", delete_overlay),
)
