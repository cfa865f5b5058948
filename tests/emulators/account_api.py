"""Endpoints of the account: user, money, backups."""

from collections.abc import Mapping

from tests.emulators.account import EMAIL
from tests.emulators.answers import Reply, refusal, reply
from tests.emulators.call import Call, Route
from tests.emulators.world import World


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
            "ssh_key": None,
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
    limit = max(1, min(int(call.json_query("limit") or 20), 500))
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


def backups(world: World, call: Call) -> Reply:
    """What was saved of an instance before its machine was taken away."""
    contract = call.json_query("contract_id")
    rows = [row for row in world.account.backups if contract in (None, row["contract_id"])]
    return reply({"backups": rows})


def list_machines(world: World, call: Call) -> Reply:
    """Machines that the account lets: none."""
    return reply({"machines": []})


ROUTES = (
    Route("GET", "/v0/users/current", "show_user", "user_read", show_user),
    Route("GET", "/v0/charges", "charges", "billing_read", charges),
    Route("GET", "/v0/instance_backups", "backups", "instance_read", backups),
    Route("GET", "/v0/machines", "list_machines", "machine_read", list_machines),
)
