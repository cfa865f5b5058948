"""Endpoints of the account: user, money, ssh keys, API keys, secrets."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from tests.emulators.account import EMAIL, ApiKey, SshKey
from tests.emulators.answers import Reply, refusal, reply
from tests.emulators.call import Call, Route
from tests.emulators.world import World

_MAX_CHARGES = 500
_CHARGES = 20


def show_user(world: World, call: Call) -> Reply:
    """Who we are; `credit` is the number to watch."""
    account = world.account
    return reply(
        {
            "id": call.key.user_id if call.key else account.user_id,
            "email": EMAIL,
            "username": EMAIL.partition("@")[0],
            "credit": account.credit,
            "balance": -0.01,
            "sid": f"{account.user_id}-session",
            "key_id": call.key.id if call.key else None,
            "ssh_key": next((key.public_key for key in account.ssh_keys.values()), None),
            "host_agreement_accepted": False,
            "billaddress": None,
            "api_key": None,
        }
    )


def charges(world: World, call: Call) -> Reply:
    """A page of what was charged on the days asked for."""
    filters = call.json_query("select_filters", {}) or {}
    day = filters.get("day") if isinstance(filters, Mapping) else None
    if not isinstance(day, Mapping) or not {"gte", "lte"} <= day.keys():
        msg = "Must provide both 'day' gte and lte filters for instance charges"
        return reply({"success": False, "msg": msg}, status=400)
    kinds = filters.get("type", {}).get("in") or []
    rows = sorted(
        world.billing.charges(float(day["gte"]), float(day["lte"]), kinds), key=lambda row: row["start"]
    )
    if call.json_query("latest_first"):
        rows.reverse()
    limit = max(1, min(int(call.json_query("limit") or _CHARGES), _MAX_CHARGES))
    token = call.query.get("after_token") or "0"
    if not token.isdecimal() or int(token) > len(rows):
        raise refusal(400, "invalid_token", "The page token is not valid.")
    start = int(token)
    page = rows[start : start + limit]
    more = start + limit < len(rows)
    return reply(
        {
            "success": True,
            "count": len(page),
            "total": len(rows),
            "next_token": str(start + limit) if more else None,
            "results": page,
        }
    )


def invoices(world: World, call: Call) -> Reply:
    """What was paid in: the first deposit."""
    filters = call.json_query("select_filters", {}) or {}
    if "when" not in filters:
        raise refusal(400, "invalid_request", "Error in query parameters: select_filters must contain when")
    began = world.market.began_at
    deposit = {
        "start": began,
        "end": began,
        "type": "credit",
        "source": "stripe",
        "description": "Deposit",
        "amount": world.settings.credit_usd,
        "metadata": {"invoice_id": 1},
        "items": [],
    }
    return reply({"success": True, "count": 1, "total": 1, "next_token": None, "results": [deposit]})


def list_ssh_keys(world: World, call: Call) -> Reply:
    """The account's ssh keys."""
    if not world.account.ssh_keys:
        raise refusal(404, "no_ssh_keys", "No SSH keys found for the user.")
    return reply([_ssh_key(world, key, "key") for key in world.account.ssh_keys.values()])


def create_ssh_key(world: World, call: Call) -> Reply:
    """An ssh key for instances created from now on."""
    text = str(call.body.get("ssh_key") or "").strip()
    if not text.startswith(("ssh-", "ecdsa-", "sk-")):
        raise refusal(400, "invalid_args", "Invalid SSH key.")
    if any(key.public_key == text for key in world.account.ssh_keys.values()):
        raise refusal(400, "duplicate", "SSH key already exists.")
    added = world.account.add_ssh_key(text, world.clock.now())
    return reply({"success": True, "key": _ssh_key(world, added, "public_key")})


def update_ssh_key(world: World, call: Call) -> Reply:
    """Another text for an ssh key."""
    key = world.account.ssh_keys.get(call.id)
    if key is None:
        raise refusal(404, "not_found", "SSH key not found.")
    key.public_key = str(call.body.get("ssh_key") or "").strip()
    return reply({"success": True, "key": _ssh_key(world, key, "public_key")})


def delete_ssh_key(world: World, call: Call) -> Reply:
    """One ssh key less; running instances keep it."""
    if world.account.ssh_keys.pop(call.id, None) is None:
        raise refusal(404, "not_found", "SSH key not found.")
    return reply({"success": True})


def list_api_keys(world: World, call: Call) -> Reply:
    """All keys but those inside containers, without their text."""
    return reply({"apikeys": [_api_key(key) for key in _user_keys(world)]})


def show_api_key(world: World, call: Call) -> Reply:
    """One key."""
    return reply(_api_key(_user_key(world, call.id)))


def create_api_key(world: World, call: Call) -> Reply:
    """A key with the permissions given."""
    name, permissions = str(call.body.get("name") or ""), call.body.get("permissions")
    made = world.account.add_key(name, permissions=permissions)
    return reply({"id": made.id, "key": made.key, "permissions": permissions})


def delete_api_key(world: World, call: Call) -> Reply:
    """The key opens nothing any more."""
    world.account.revoke(_user_key(world, call.id).key)
    return reply({"success": True})


def backups(world: World, call: Call) -> Reply:
    """What was saved of an instance before its machine was taken away."""
    contract = call.json_query("contract_id")
    rows = [row for row in world.account.backups if contract in (None, row["contract_id"])]
    return reply({"backups": rows})


def list_machines(world: World, call: Call) -> Reply:
    """Machines that the account lets: none."""
    return reply({"machines": []})


def show_secrets(world: World, call: Call) -> Reply:
    """Variables that every container gets."""
    return reply({"success": True, "secrets": world.account.secrets})


def write_secret(world: World, call: Call) -> Reply:
    """One more variable for every container created from now on."""
    world.account.secrets[str(call.body.get("key") or "").upper()] = str(call.body.get("value") or "")
    return reply({"success": True, "msg": "Secret saved."})


def delete_secret(world: World, call: Call) -> Reply:
    """One variable less."""
    world.account.secrets.pop(str(call.body.get("key") or "").upper(), None)
    return reply({"success": True, "msg": "Secret deleted."})


def _ssh_key(world: World, key: SshKey, name: str) -> dict[str, Any]:
    return {
        "id": key.id,
        "user_id": world.account.user_id,
        name: key.public_key,
        "created_at": key.created_at,
        "deleted_at": None,
    }


def _user_keys(world: World) -> Sequence[ApiKey]:
    return [key for key in world.account.keys.values() if key.instance_id is None]


def _user_key(world: World, key_id: int) -> ApiKey:
    for key in _user_keys(world):
        if key.id == key_id:
            return key
    raise refusal(404, "not_found", "API key not found.")


def _api_key(key: ApiKey) -> dict[str, Any]:
    return {"id": key.id, "name": key.name, "permissions": key.permissions, "key_params": None}


ROUTES = (
    Route("GET", "/v0/users/current", "show_user", "user_read", show_user),
    Route("GET", "/v0/charges", "charges", "billing_read", charges),
    Route("GET", "/v1/invoices", "invoices", "billing_read", invoices),
    Route("GET", "/v0/ssh", "list_ssh_keys", "user_read", list_ssh_keys),
    Route("POST", "/v0/ssh", "create_ssh_key", "user_write", create_ssh_key),
    Route("PUT", "/v0/ssh/#", "update_ssh_key", "user_write", update_ssh_key),
    Route("DELETE", "/v0/ssh/#", "delete_ssh_key", "user_write", delete_ssh_key),
    Route("GET", "/v0/auth/apikeys", "list_api_keys", "user_read", list_api_keys),
    Route("GET", "/v0/auth/apikeys/#", "show_api_key", "user_read", show_api_key),
    Route("POST", "/v0/auth/apikeys", "create_api_key", "user_write", create_api_key),
    Route("DELETE", "/v0/auth/apikeys/#", "delete_api_key", "user_write", delete_api_key),
    Route("GET", "/v0/instance_backups", "backups", "instance_read", backups),
    Route("GET", "/v0/machines", "list_machines", "machine_read", list_machines),
    Route("GET", "/v0/secrets", "show_secrets", "user_read", show_secrets),
    Route("POST", "/v0/secrets", "write_secret", "user_write", write_secret),
    Route("PUT", "/v0/secrets", "write_secret", "user_write", write_secret),
    Route("DELETE", "/v0/secrets", "write_secret", "user_write", delete_secret),
)
