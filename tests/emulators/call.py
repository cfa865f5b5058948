"""One request to the API, as handlers see it."""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from tests.emulators.account import ApiKey
from tests.emulators.answers import Reply, refusal
from tests.emulators.world import World


@dataclass(frozen=True, kw_only=True)
class Call:
    """Path numbers, query and body, and whose key came with it."""

    ids: tuple[int, ...]
    query: Mapping[str, str]
    body: Mapping[str, Any]
    key: ApiKey | None
    address: str

    @property
    def id(self) -> int:
        """The first number in the path."""
        return self.ids[0]

    def json_query(self, name: str, default: Any = None) -> Any:
        """A query argument that holds JSON, or is a plain word."""
        text = self.query.get(name)
        if text is None:
            return default
        try:
            return json.loads(text)
        except ValueError:
            return text

    def number(self, name: str) -> int:
        """A number in the body. Raises ApiError (400)."""
        try:
            return int(self.body[name])
        except (KeyError, TypeError, ValueError) as error:
            raise refusal(400, "invalid_args", f"{name} must be a number") from error


Handler = Callable[[World, Call], Reply]


@dataclass(frozen=True)
class Route:
    """A line of the API's table. `#` in the path stands for a number."""

    method: str
    path: str
    name: str
    """The endpoint's: what faults and limits go by."""
    category: str
    """The permission it needs; empty for none."""
    handler: Handler
    open: bool = False
    """Whether it answers without a key."""
