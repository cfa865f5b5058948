"""Endpoints of templates."""

from __future__ import annotations

from tests.emulators.answers import Reply, refusal, reply
from tests.emulators.call import Call, Route
from tests.emulators.query import matches
from tests.emulators.world import World


def search_templates(world: World, call: Call) -> Reply:
    """Our templates that fit the filters."""
    filters = call.json_query("select_filters", {}) or {}
    found = [row for row in world.templates.all() if matches(row, filters)]
    return reply({"success": True, "templates_found": len(found), "templates": found})


def create_template(world: World, call: Call) -> Reply:
    """A new template."""
    if not call.body.get("image"):
        raise refusal(400, "invalid_args", "image is required")
    return reply({"success": True, "template": world.templates.add(call.body, world.clock.now())})


def update_template(world: World, call: Call) -> Reply:
    """The template with other content, under another hash."""
    if not call.body.get("id") or not call.body.get("hash_id"):
        raise refusal(400, "invalid_args", "id and hash_id are required")
    changed = world.templates.change(call.body["hash_id"], call.body, world.clock.now())
    return reply({"success": True, "template": changed})


def delete_template(world: World, call: Call) -> Reply:
    """One template less."""
    world.templates.remove(hash_id=call.body.get("hash_id"), template_id=call.body.get("template_id"))
    return reply({"success": True, "msg": "Template deleted."})


ROUTES = (
    Route("GET", "/v0/template", "search_templates", "misc", search_templates),
    Route("POST", "/v0/template", "create_template", "user_write", create_template),
    Route("PUT", "/v1/template", "update_template", "user_write", update_template),
    Route("DELETE", "/v0/template", "delete_template", "user_write", delete_template),
)
