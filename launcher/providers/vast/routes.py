"""Routes of Vast's API that vastrun calls: what each is for, the right that it needs, and its rate limit."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass


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
    "bid": Route(purpose="raise a lost bid", right="instance_write", limit=Limit(1, 5.5)),
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
