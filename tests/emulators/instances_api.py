"""Endpoints of instances."""

import re
from typing import Any

from tests.emulators.account import OURS
from tests.emulators.answers import ApiError, Reply, refusal, reply
from tests.emulators.behaviour import refused
from tests.emulators.call import Call, Route
from tests.emulators.faults import FAULTS, ROW
from tests.emulators.instance import Instance
from tests.emulators.instance_rows import instance_row, spoil
from tests.emulators.instances import BY_ID, IN_LIST
from tests.emulators.world import World

MAX_PAGE = 25


def show_instance(world: World, call: Call) -> Reply:
    """One row; null when there is no such instance."""
    there = (one for one in world.instances.seen(BY_ID) if not _is_absent(world, one))
    instance = next((one for one in there if one.id == call.id), None)
    row = _row(world, instance) if instance else None
    if row and not world.settings.ports_by_id:
        row["ports"] = None
    return reply({"instances": row})


def list_instances(world: World, call: Call) -> Reply:
    """A page of rows."""
    ours = world.instances.seen(IN_LIST) if call.key and call.key.user_id == OURS else []
    listed = [one for one in ours if not _is_hidden(world, one)]
    rows = [{**_row(world, one), "volume_info": []} for one in listed]
    found = world.frozen(rows)
    page, token = _page(world, call, found)
    return reply(
        {
            "success": True,
            "instances_found": len(found) + world.miscounted(),
            "total_instances": len(rows) + world.miscounted(),
            "next_token": token,
            "instances": page,
        }
    )


def _is_hidden(world: World, instance: Instance) -> bool:
    """Whether the list is late with this one."""
    fault = world.faults.take("hidden_row", instance.place)
    if fault:
        instance.hidden_until = world.clock.now() + (20.0 if fault.seconds is None else fault.seconds)
    return world.clock.now() < instance.hidden_until or _is_absent(world, instance)


def _is_absent(world: World, instance: Instance) -> bool:
    """Whether nothing shows this one."""
    fault = world.faults.take("absent_row", instance.place)
    if fault:
        instance.absent_until = world.clock.now() + (8.0 if fault.seconds is None else fault.seconds)
    return world.clock.now() < instance.absent_until


def destroy(world: World, call: Call) -> Reply:
    """Gives it back."""
    world.instances.destroy(world.instances.get(call.id))
    return reply({"success": True})


def change_bid(world: World, call: Call) -> Reply:
    """Another price; null for one that wins."""
    instance = world.instances.get(call.id)
    price = call.body.get("price")
    if price is not None and not 0.001 <= float(price) <= 32 * instance.gpus:
        raise refusal(400, "invalid_price", "error 400/3470: price is out of range")
    world.instances.change_bid(instance, None if price is None else float(price))
    return reply({"success": True})


def request_logs(world: World, call: Call) -> Reply:
    """Where the container's log will be."""
    instance = world.instances.get(call.id)
    if call.body.get("daemon_logs"):
        text = instance.status_msg or "" if instance.daemon_log is None else instance.daemon_log
    else:
        text = _log(world, instance)
    lines = text.splitlines(keepends=True)
    wanted = call.body.get("filter")
    if wanted:
        lines = [line for line in lines if wanted in line]
    tail = int(call.body.get("tail") or 1000)
    is_late = bool(call.body.get("daemon_logs")) and instance.log_is_late
    return _published(world, "".join(lines[-tail:]), is_late=is_late)


def attach_key(world: World, call: Call) -> Reply:
    """One more ssh key for this instance alone."""
    instance = world.instances.get(call.id)
    key = str(call.body.get("ssh_key") or "").strip()
    if not key.startswith(("ssh-", "ecdsa-", "sk-")):
        raise refusal(400, "invalid_args", "Invalid SSH key.")
    word = world.behaviour.word("key.attach")
    if not instance.runs and word != "200 success":
        raise ApiError(refused(word))
    if world.faults.take("attach_refused", instance.place):
        raise refusal(400, "invalid_args", "error 400/3510: the key cannot be attached")
    if world.faults.take("attach_denied", instance.place):
        raise refusal(403, "forbidden", "no permission: api.instance.attach_ssh")
    if not world.faults.take("attach_lost", instance.place):
        world.instances.attach_key(instance, key)
    return reply({"success": True, "msg": "SSH key attached successfully"})


def _log(world: World, instance: Instance) -> str:
    """What the container printed, as this Vast shows it."""
    silent_s = world.behaviour.number("log.seconds")
    if silent_s and world.clock.now() - (instance.running_since or world.clock.now()) < silent_s:
        return ""
    text, said = instance.box.log(), world.behaviour.word("log.host_keys")
    if said == "none in the log":
        return "".join(line for line in text.splitlines(keepends=True) if "SHA256:" not in line)
    return text if said == "the same" else re.sub(r"SHA256:\S{43}", f"SHA256:{'x' * 43}", text)


def _row(world: World, instance: Instance) -> dict[str, Any]:
    row = instance_row(instance, world.clock.now())
    row["min_bid"] = world.instances.winning_bid(instance)
    for name, (where, _) in FAULTS.items():
        if where == ROW and world.faults.take(name, instance.place):
            row = spoil(row, name)
    return row


def _page(world: World, call: Call, rows: list[dict[str, Any]]) -> tuple[list[dict[str, Any]], str | None]:
    """The page after the token, and the token of the next."""
    limit = int(call.json_query("limit") or MAX_PAGE)
    limit = min(limit, MAX_PAGE) if limit > 0 else MAX_PAGE
    token = call.query.get("after_token") or ""
    known = [f"after-{row['id']}" for row in rows]
    if token and (token not in known or world.faults.take("invalid_token")):
        raise refusal(400, "invalid_token", "The page token is not valid.")
    if world.faults.take("empty_list"):
        return [], None
    start = known.index(token) + 1 if token else 0
    page: list[Any] = rows[start : start + limit]
    if page and world.faults.take("null_row"):
        page[-1] = None
    return page, known[start + limit - 1] if start + limit < len(rows) else None


def _published(world: World, text: str, *, is_late: bool = False, **more: Any) -> Reply:
    url = world.publish(text, is_late=is_late)
    return reply({"success": True, **more, "result_url": url, "msg": "Result will be ready soon."})


ROUTES = (
    Route("GET", "/v0/instances/#", "show_instance", "instance_read", show_instance),
    Route("GET", "/v1/instances", "list_instances", "instance_read", list_instances),
    Route("DELETE", "/v0/instances/#", "destroy", "instance_write", destroy),
    Route("PUT", "/v0/instances/bid_price/#", "change_bid", "instance_write", change_bid),
    Route("PUT", "/v0/instances/request_logs/#", "request_logs", "instance_read", request_logs),
    Route("POST", "/v0/instances/#/ssh", "attach_ssh", "instance_write", attach_key),
)
