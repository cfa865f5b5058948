"""Routes of Vast's API that vastrun calls: what each is for, the right that it needs, and its rate limit."""

from __future__ import annotations

from collections.abc import Mapping
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
    is_optional: bool = False
    """True when one machine can be rented, watched and ended without it."""


ROUTES: Mapping[str, Route] = {
    "search": Route(purpose="find offers", right="misc", limit=Limit(10, 60.0)),
    "create": Route(purpose="rent a machine", right="instance_write", limit=Limit(1, 4.5), penalty_s=12.0),
    "list": Route(purpose="list the machines", right="instance_read", limit=Limit(1, 1.0)),
    "show": Route(purpose="look at a machine", right="instance_read", limit=Limit(1, 2.0)),
    "destroy": Route(purpose="destroy a machine", right="instance_write", limit=Limit(1, 3.0)),
    "attach key": Route(purpose="attach the run's SSH key", right="instance_write", limit=Limit(1, 1.0)),
    "logs": Route(purpose="read the logs of a start", right="instance_read", limit=Limit(1, 1.0)),
    "account": Route(purpose="read the credit", right="user_read", limit=Limit(1, 1.0)),
    "charges": Route(purpose="read the bill", right="billing_read", limit=Limit(1, 1.0), is_optional=True),
    "schedule": Route(
        purpose="have Vast itself end a machine later", right="", limit=Limit(1, 1.0), is_optional=True
    ),
    "overlays": Route(
        purpose="list networks of several nodes", right="user_read", limit=Limit(1, 1.0), is_optional=True
    ),
    "overlay": Route(
        purpose="make a network of several nodes", right="user_write", limit=Limit(1, 1.0), is_optional=True
    ),
}
"""Rights by Vast's page on permissions; limits as documented, those of account, attach key, logs, schedules
and networks chosen here."""

NEEDED = tuple(
    dict.fromkeys(route.right for route in ROUTES.values() if route.right != "user_write" and route.right)
)
"""Categories of permissions of a key that may do all but make networks."""
