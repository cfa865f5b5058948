"""What the API answers in a Vast that behaves in its own way: by endpoint, after the call was carried out."""

import shutil
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from tests.emulators.answers import Reply, reply
from tests.emulators.behaviour import refused, worded
from tests.emulators.call import Call
from tests.emulators.machines import here_mb
from tests.emulators.world import World

_MEMORY: Mapping[str, Callable[[float], float]] = {
    "the slice's": lambda share: share,
    "other": lambda share: 3 / share,
}
"""By which the memory in a machine's row is that of its host."""
Bend = Callable[[World, Call, Reply], Reply]


def bent(endpoint: str, world: World, call: Call, done: Reply) -> Reply:
    """The reply as this Vast gives it."""
    bend = _BENDS.get(endpoint)
    if bend is None or done.cut or done.content_type != "application/json":
        return done
    return bend(world, call, done)


def _searched(world: World, call: Call, done: Reply) -> Reply:
    behaviour, content = world.behaviour, done.content
    if done.status != 200 or not isinstance(content, dict):
        return done
    rows = content["offers"]
    if "cluster_id" in call.body and behaviour.word("offer.cluster") == "others as well":
        rows = world.market.search({**call.body, "cluster_id": {}}, rented=frozenset())
    if behaviour.is_told("box.memory"):  # the box is this computer: its offer tells another story
        rows = [{**row, "cpu_ram": here_mb() / behaviour.number("box.memory")} for row in rows]
    rows = [
        behaviour.shaped("offer.fields", behaviour.in_units(row)) if isinstance(row, dict) else row
        for row in rows
    ]
    return reply({**content, "offers": rows})


def _created(world: World, _: Call, done: Reply) -> Reply:
    behaviour, content = world.behaviour, done.content
    if done.status != 200 or not isinstance(content, dict) or not content.get("success"):
        return done
    answered = worded(reply(behaviour.shaped("create.fields", content)), behaviour.word("create.answer"))
    return replace(answered, hang_s=max(done.hang_s, behaviour.number("create.seconds")))


def _shown(world: World, call: Call, done: Reply) -> Reply:
    behaviour, content = world.behaviour, done.content
    if done.status != 200 or not isinstance(content, dict):
        return done
    row = content.get("instances")
    if isinstance(row, dict) and _is_shown(world, row, "new.by_id"):
        row = behaviour.shaped("instance.fields", _row(world, row))
        runs = row.get("actual_status") == "running"
        row = behaviour.shaped("instance.running", row) if runs else row
        if world.faults.take("word_row"):
            return reply({"instances": "loading"})
        return reply({"instances": [row] if world.faults.take("row_in_list") else row})
    was = call.id in world.billing.meters and not isinstance(row, dict)
    return refused(behaviour.word("gone.answer" if was else "unknown.answer"))


def _listed(world: World, _: Call, done: Reply) -> Reply:
    behaviour, content = world.behaviour, done.content
    if done.status != 200 or not isinstance(content, dict) or not isinstance(content.get("instances"), list):
        return done
    rows = content["instances"]
    shown = [row for row in rows if not isinstance(row, dict) or _is_shown(world, row, "new.in_list")]
    late = len(rows) - len(shown)
    for row in shown:
        if isinstance(row, dict) and not _is_shown(world, row, "new.by_label"):
            row["label"] = None
    shown = [
        behaviour.shaped("list.fields", _row(world, row)) if isinstance(row, dict) else row for row in shown
    ]
    off = {"more": 1, "fewer": -1}.get(behaviour.word("list.counts"), 0) - late
    counts = {name: max(0, content[name] + off) for name in ("instances_found", "total_instances")}
    places = {str(place): row for place, row in enumerate(shown)}
    in_object = bool(shown) and world.faults.take("rows_in_object")
    return reply({**content, **counts, "instances": places if in_object else shown})


def _ended(world: World, call: Call, done: Reply) -> Reply:
    if done.status == 200:
        return worded(done, world.behaviour.word("destroy.answer"))
    was = call.id in world.billing.meters
    return worded(done, world.behaviour.word("destroy.again")) if was else done


def _charged(world: World, _: Call, done: Reply) -> Reply:
    content, behaviour = done.content, world.behaviour
    if done.status != 200 or not isinstance(content, dict):
        return done
    rows = [behaviour.shaped("charge.fields", _charge(world, row)) for row in content["results"]]
    return reply({**content, "results": rows})


def _charge(world: World, row: Mapping[str, Any]) -> Mapping[str, Any]:
    if row["type"] != "instance":
        return row
    factors = {kind: world.behaviour.number(f"charge.{kind}") for kind in ("gpu", "disk")}
    items = [{**item, "amount": item["amount"] * factors.get(item["type"], 1.0)} for item in row["items"]]
    return {**row, "items": items, "amount": row["amount"] * world.behaviour.number("charge.total")}


def _is_shown(world: World, row: Mapping[str, Any], name: str) -> bool:
    """Whether the machine has been there for long enough."""
    since = world.clock.now() - row["start_date"] if row.get("start_date") else world.behaviour.number(name)
    return since >= world.behaviour.number(name)


def _row(world: World, row: Mapping[str, Any]) -> dict[str, Any]:
    behaviour, changes = world.behaviour, dict[str, Any]()
    if behaviour.word("create.label") != "echoed":
        changes["label"] = None
    if behaviour.word("create.image") != "echoed":
        changes["image_uuid"] = f"{row['image_uuid']}-of-its-own"
    if row.get("start_date") is not None:
        changes["start_date"] = row["start_date"] + behaviour.number("instance.start")
    for column in ("inet_down_billed", "inet_up_billed"):
        if row.get(column) is not None:
            changes[column] = row[column] * behaviour.number("download.billed")
    if (factor := _MEMORY.get(behaviour.word("instance.memory"))) is not None:
        changes["cpu_ram"] = row["cpu_ram"] * factor(row.get("gpu_frac") or 1.0)
    if behaviour.is_told("instance.uptime") and row.get("uptime_mins") is not None:
        changes["uptime_mins"] = behaviour.number("instance.uptime")
    if behaviour.is_told("box.disk"):
        disk_gb = shutil.disk_usage(world.folder).total / 1e9
        changes["disk_space"] = disk_gb / behaviour.number("box.disk")
    return {**row, **changes}


def _overlays_listed(world: World, _: Call, done: Reply) -> Reply:
    word = world.behaviour.word("overlay.list")
    return done if done.status != 200 or word == "200 list" else refused(word)


_BENDS: Mapping[str, Bend] = {
    "list_overlays": _overlays_listed,
    "search": _searched,
    "create": _created,
    "show_instance": _shown,
    "list_instances": _listed,
    "destroy": _ended,
    "charges": _charged,
}
