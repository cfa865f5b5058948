"""The account: its keys and what each may do, and its ssh keys."""

import itertools
import secrets
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from tests.emulators.answers import refusal

EMAIL = "user@example.com"
UNKNOWN_KEY = "Invalid user key"
OURS, OTHER = 10001, 10002
"""Numbers of accounts."""
INSTANCE_KEY_CALLS = frozenset({"show_instance", "destroy"})
"""What the key inside a container may do, to that container."""


@dataclass(frozen=True)
class ApiKey:
    """A key and its reach. Without `permissions` it is the account's own."""

    id: int
    key: str
    name: str = "account"
    permissions: Mapping[str, Any] | None = None
    instance_id: int | None = None
    """Set for the key that Vast puts into a container."""
    user_id: int = OURS

    def allows(self, endpoint: str, category: str, target: int | None) -> bool:
        """Whether the key may call this endpoint on that instance."""
        if self.instance_id is not None:
            return endpoint in INSTANCE_KEY_CALLS and target == self.instance_id
        if self.permissions is None or not category:
            return True
        granted = self.permissions.get("api", self.permissions).get(category)
        return granted is not None and _within(granted, endpoint)


@dataclass
class Account:
    """One user."""

    credit: float
    keys: dict[str, ApiKey] = field(default_factory=dict)
    backups: list[dict[str, Any]] = field(default_factory=list)
    user_id: int = OURS

    def __post_init__(self) -> None:
        self._ids = itertools.count(7001)
        self.key = self.add_key("account").key

    def add_key(
        self, name: str, *, permissions: Mapping[str, Any] | None = None, instance_id: int | None = None
    ) -> ApiKey:
        """A new key."""
        made = ApiKey(next(self._ids), secrets.token_hex(32), name, permissions, instance_id)
        self.keys[made.key] = made
        return made

    def add_stranger(self) -> str:
        """The key of another account, which has nothing rented."""
        made = ApiKey(next(self._ids), secrets.token_hex(32), user_id=OTHER)
        self.keys[made.key] = made
        return made.key

    def revoke(self, key: str) -> None:
        """The key opens nothing any more."""
        self.keys.pop(key, None)

    def identify(self, key: str | None) -> ApiKey:
        """Whose key that is. Raises ApiError."""
        if not key:
            raise refusal(403, "auth_error", "This action requires login.")
        if key not in self.keys:
            raise refusal(404, "auth_error", UNKNOWN_KEY)
        return self.keys[key]


def _within(granted: Any, endpoint: str) -> bool:
    """A category may name the calls it grants."""
    if not isinstance(granted, Mapping) or not granted:
        return True
    return any(name.rpartition(".")[2] in (endpoint, _VAST_NAMES.get(endpoint)) for name in granted)


_VAST_NAMES = {
    "request_logs": "request_logs",
    "show_instance": "show",
    "list_instances": "index",
    "destroy": "destroy",
    "create": "create",
}
