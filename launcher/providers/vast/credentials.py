"""Credentials for Vast: API key, server, and the user who logs in to machines."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from vastrun.launcher.core.addresses import is_private
from vastrun.launcher.core.errors import AuthError, UsageError

SERVER = "https://console.vast.ai"


@dataclass(frozen=True, kw_only=True)
class VastAccount:
    """An API key and its server."""

    key: str = field(repr=False)
    server: str = SERVER
    login: str = "root"
    """User who logs in to machines: root, except for an emulator without root's rights."""

    @classmethod
    def of_environment(cls, environ: Mapping[str, str]) -> VastAccount:
        """Read the key from the environment or from the file of Vast's tools. It stays in this process.

        Raises AuthError without a key, UsageError when the server's URL would expose it.
        """
        base = environ.get("XDG_CONFIG_HOME", "")
        folder = Path(base) if base.startswith("/") else Path.home() / ".config"
        file = folder / "vastai" / "vast_api_key"
        key = environ.get("VAST_API_KEY", "").strip()
        with suppress(OSError, UnicodeDecodeError):
            key = key or file.read_text(encoding="utf-8").strip()
        if not key:
            raise AuthError(
                f"no API key for Vast: VAST_API_KEY is not set, and {file} has none",
                hint="export VAST_API_KEY=… with a key from https://cloud.vast.ai/manage-keys/",
            )
        server = environ.get("VAST_URL", "").rstrip("/") or SERVER
        # Checked before any request, since the first one sends the key.
        if not is_private(server):
            raise UsageError(
                f"VAST_URL: expected an address with https://, got {server!r}: "
                "the key would be sent unencrypted",
                hint="unset VAST_URL; http:// is for an emulator on this computer or in its network",
            )
        return cls(key=key, server=server, login=environ.get("VAST_LOGIN", "") or "root")

    def __repr__(self) -> str:
        return f"VastAccount(key=<secret>, server={self.server!r})"
