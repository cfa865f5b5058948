"""Calls of Vast's API: routes, and method, path and body of each request. Pure: nothing is sent here."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote_plus

_PAGE = 25
"""The most instances that Vast puts on a page."""


@dataclass(frozen=True)
class Limit:
    """At most `calls` in any `seconds`."""

    calls: int
    seconds: float


@dataclass(frozen=True, kw_only=True)
class Route:
    """A route, as vastrun uses it."""

    purpose: str
    """Completes the sentence "vastrun needs this to …"."""
    right: str
    """Category of permissions that a key needs for it; empty: Vast documents none."""
    limit: Limit
    penalty_s: float = 5.0
    """Seconds for which Vast refuses further calls after one that came too early."""


ROUTES: Mapping[str, Route] = {
    "search": Route(purpose="find offers", right="misc", limit=Limit(10, 60.0)),
    "create": Route(purpose="rent a machine", right="instance_write", limit=Limit(1, 4.5), penalty_s=12.0),
    "list": Route(purpose="list the machines", right="instance_read", limit=Limit(1, 1.0)),
    "show": Route(purpose="look at a machine", right="instance_read", limit=Limit(1, 2.0)),
    "destroy": Route(purpose="destroy a machine", right="instance_write", limit=Limit(1, 3.0)),
    "attach key": Route(purpose="attach the run's SSH key", right="instance_write", limit=Limit(1, 1.0)),
    "logs": Route(purpose="read the logs of a start", right="instance_read", limit=Limit(1, 1.0)),
    "account": Route(purpose="read the credit", right="user_read", limit=Limit(1, 1.0)),
    "charges": Route(purpose="read the bill", right="billing_read", limit=Limit(1, 1.0)),
    "backups": Route(purpose="name backups of a lost machine", right="instance_read", limit=Limit(1, 1.0)),
    "schedule": Route(purpose="have Vast itself end a machine later", right="", limit=Limit(1, 1.0)),
    "schedules": Route(purpose="list what Vast itself will end", right="", limit=Limit(1, 1.0)),
    "unschedule": Route(purpose="remove such a schedule", right="", limit=Limit(1, 1.0)),
    "overlays": Route(purpose="list networks of several nodes", right="user_read", limit=Limit(1, 1.0)),
    "overlay": Route(purpose="make a network of several nodes", right="user_write", limit=Limit(1, 1.0)),
}
"""Rights by Vast's page on permissions; limits as documented, those of account, attach key, logs, schedules
and networks chosen here."""

RIGHTS: Mapping[str, Sequence[str]] = {
    right: tuple(one.purpose for one in ROUTES.values() if one.right == right)
    for right in dict.fromkeys(route.right for route in ROUTES.values() if route.right)
}
"""Purposes of each category of permissions."""
NEEDED = tuple(right for right in RIGHTS if right != "user_write")
"""Categories of permissions of a key for runs on one machine each."""


@dataclass(frozen=True, kw_only=True)
class VastCall:
    """One request, as Vast's SDK sends it."""

    route: str
    """Its name in `ROUTES`."""
    method: str
    path: str
    """With its query."""
    body: Mapping[str, Any] | None = None

    def __str__(self) -> str:
        """Describe the request for a message: short values only, no texts of scripts."""
        values = {k: v for k, v in (self.body or {}).items() if v is not None and len(str(v)) <= 80}
        values.pop("env", None)
        return f"{self.method} {self.path[:200]} {json.dumps(values)[:600] if values else ''}".strip()


ACCOUNT = VastCall(route="account", method="GET", path="/api/v0/users/current")
HOSTED_MACHINES = VastCall(route="account", method="GET", path="/api/v0/machines?owner=me")
"""Lists the machines that the account lets to others."""
OVERLAYS = VastCall(route="overlays", method="GET", path="/api/v0/overlay/")
SCHEDULES = VastCall(route="schedules", method="GET", path="/api/v0/commands/schedule_job/")


def search(
    filters: Mapping[str, Any], *, kind: str, disk_gb: float, order: tuple[str, str], limit: int | None
) -> VastCall:
    """Search offers. `kind`: `on-demand` or `bid`. `order`: a column, and `asc` or `desc`."""
    body = {**filters, "order": [list(order)], "type": kind, "allocated_storage": disk_gb}
    if limit is not None:
        body["limit"] = limit
    return VastCall(route="search", method="POST", path="/api/v0/bundles/", body=body)


def create(offer_id: str, order: Mapping[str, Any]) -> VastCall:
    """Rent an offer."""
    path = f"/api/v0/asks/{int(offer_id)}/"
    return VastCall(route="create", method="PUT", path=path, body={"client_id": "me", **order})


def list_instances(token: str | None = None, limit: int = _PAGE) -> VastCall:
    """List a page of the account's instances, in the order of their ids."""
    query = {"order_by": [{"col": "id", "dir": "asc"}], "limit": limit}
    path = _with_query("/api/v1/instances/", {**query, "after_token": token})
    return VastCall(route="list", method="GET", path=path)


def show_instance(instance_id: str) -> VastCall:
    """Read one instance's row."""
    path = _with_query(f"/api/v0/instances/{int(instance_id)}/", {"owner": "me"})
    return VastCall(route="show", method="GET", path=path)


def destroy(instance_id: str) -> VastCall:
    """Destroy an instance."""
    return VastCall(route="destroy", method="DELETE", path=f"/api/v0/instances/{int(instance_id)}/", body={})


def attach_key(instance_id: str, public_key: str) -> VastCall:
    """Authorize an SSH key on an instance."""
    path = f"/api/v0/instances/{int(instance_id)}/ssh/"
    return VastCall(route="attach key", method="POST", path=path, body={"ssh_key": public_key})


def request_log(instance_id: str, options: Mapping[str, str]) -> VastCall:
    """Ask for a log; the answer says where it will be."""
    path = f"/api/v0/instances/request_logs/{int(instance_id)}/"
    return VastCall(route="logs", method="PUT", path=path, body=options)


def charges(since: float, until: float, token: str | None = None) -> VastCall:
    """List a page of the charges of the days between two times, in epoch seconds."""
    query = {
        "select_filters": {"day": {"gte": int(since), "lte": int(until)}},
        "latest_first": False,
        "limit": 100,
        "format": "table",
        "after_token": token,
    }
    return VastCall(route="charges", method="GET", path=_with_query("/api/v0/charges/", query))


def list_backups(instance_id: str) -> VastCall:
    """List the backups of an instance whose machine was taken away."""
    path = _with_query("/api/v0/instance_backups/", {"contract_id": int(instance_id)})
    return VastCall(route="backups", method="GET", path=path)


def create_overlay(name: str, cluster: str) -> VastCall:
    """Create an overlay network on a cluster."""
    body = {"cluster_id": int(cluster), "name": name}
    return VastCall(route="overlay", method="POST", path="/api/v0/overlay/", body=body)


def delete_overlay(name: str) -> VastCall:
    """Delete a network and all instances on it."""
    return VastCall(route="overlay", method="DELETE", path="/api/v0/overlay/", body={"overlay_name": name})


def schedule_destroy(instance_id: str, start: float, end: float, job_id: str | None = None) -> VastCall:
    """Have Vast send the request that destroys an instance, each hour from the one with `start` to `end`.

    `job_id`: the scheduled request that this one replaces.
    """
    target = destroy(instance_id)
    body = {
        "start_time": start,
        "end_time": end,
        "api_endpoint": target.path,
        "request_method": target.method,
        "request_body": target.body,
        "day_of_the_week": None,
        "hour_of_the_day": None,
        "frequency": "HOURLY",
        "instance_id": int(instance_id),
    }
    path = SCHEDULES.path + ("" if job_id is None else f"{int(job_id)}/")
    return VastCall(route="schedule", method="POST" if job_id is None else "PUT", path=path, body=body)


def delete_schedule(job_id: str) -> VastCall:
    """Remove a scheduled request."""
    path = f"{SCHEDULES.path}{int(job_id)}/"
    return VastCall(route="unschedule", method="DELETE", path=path, body={})


def _with_query(path: str, query: Mapping[str, Any]) -> str:
    """Return the path with its query: texts as they are, everything else as JSON."""
    parts = [
        f"{name}={quote_plus(value if isinstance(value, str) else json.dumps(value))}"
        for name, value in query.items()
        if value is not None
    ]
    return f"{path}?{'&'.join(parts)}"
