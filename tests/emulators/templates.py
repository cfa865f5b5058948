"""Templates: what to run, kept under a hash of its content."""

from __future__ import annotations

import hashlib
import itertools
import json
import shlex
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from tests.emulators.answers import refusal

_NAMING = ("id", "hash_id", "creator_id", "created_at", "recent_create_date", "count_created")
_FLAGS = ("-p", "-h", "-v", "-n")


@dataclass
class Templates:
    """The account's templates by their hash."""

    user_id: int
    _by_hash: dict[str, dict[str, Any]] = field(default_factory=dict)
    _ids: itertools.count[int] = field(default_factory=lambda: itertools.count(330001))

    def all(self) -> list[dict[str, Any]]:
        """Every template as a row."""
        return list(self._by_hash.values())

    def add(self, content: Mapping[str, Any], now: float) -> dict[str, Any]:
        """The template with that content."""
        return self._put(next(self._ids), content, now)

    def change(self, hash_id: str, content: Mapping[str, Any], now: float) -> dict[str, Any]:
        """The template as it is now, under another hash. Raises ApiError (404)."""
        old = self.get(hash_id)
        del self._by_hash[hash_id]
        return self._put(old["id"], {**old, **content}, now)

    def get(self, hash_id: str) -> dict[str, Any]:
        """The template of that hash. Raises ApiError (404)."""
        if hash_id not in self._by_hash:
            raise refusal(404, "invalid_args", f"Template {hash_id} not found.")
        return self._by_hash[hash_id]

    def remove(self, *, hash_id: str | None, template_id: int | None) -> None:
        """The template is gone. Raises ApiError (404)."""
        for row in self.all():
            if hash_id == row["hash_id"] or (hash_id is None and template_id == row["id"]):
                del self._by_hash[row["hash_id"]]
                return
        raise refusal(404, "invalid_args", "Template not found.")

    def fill(self, order: Mapping[str, Any]) -> dict[str, Any]:
        """The create body with what the template it names adds; the body's own values win."""
        if not order.get("template_hash_id"):
            return dict(order)
        template = self.get(order["template_hash_id"])
        tagged = f"{template['image']}:{template['tag']}" if template.get("tag") else template["image"]
        given = order.get("env")
        return {
            **order,
            "image": order.get("image") or tagged,
            "onstart": order.get("onstart") or template.get("onstart"),
            "runtype": order.get("runtype") or _runtype(template),
            "env": {
                **_environment(template.get("env") or ""),
                **(given if isinstance(given, Mapping) else {}),
            },
        }

    def _put(self, template_id: int, content: Mapping[str, Any], now: float) -> dict[str, Any]:
        kept = {name: value for name, value in content.items() if name not in _NAMING}
        digest = hashlib.md5(json.dumps(kept, sort_keys=True).encode(), usedforsecurity=False)
        row = {
            **kept,
            "id": template_id,
            "hash_id": digest.hexdigest(),
            "creator_id": self.user_id,
            "created_at": now,
            "recent_create_date": now,
            "count_created": 0,
        }
        self._by_hash[row["hash_id"]] = row
        return row


def _runtype(template: Mapping[str, Any]) -> str:
    if not template.get("use_ssh"):
        return str(template.get("runtype") or "args")
    return "ssh_direc ssh_proxy" if template.get("ssh_direct") else "ssh_proxy"


def _environment(options: str) -> dict[str, str]:
    """Docker options such as `-e A=b -p 8000:8000` as a create body has them."""
    words = iter(shlex.split(options))
    env: dict[str, str] = {}
    for word in words:
        if word in ("-e", "--env"):
            name, _, value = next(words, "").partition("=")
            env[name] = value
        elif word in _FLAGS:
            env[f"{word} {next(words, '')}"] = "1"
    return env
