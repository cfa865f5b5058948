"""Addresses: the URL of a receiver of notifications, and whether a connection is private. Pure."""

from __future__ import annotations

import re
from ipaddress import ip_address
from urllib.parse import urlsplit

APPRISE = "apprise+"
"""Beginning of a URL for the package apprise, which knows many services."""
EXPECTED = "a URL that begins with https:// or http://, or one of Apprise, such as apprise+tgram://TOKEN/CHAT"
_APPRISE_URL = re.compile(r"[a-z][a-z0-9-]*://\S+", re.IGNORECASE)


def is_private(url: str) -> bool:
    """Return whether messages to that URL cannot be read on the way: HTTPS, or a private address."""
    try:
        parts = urlsplit(url)
        if parts.scheme == "https":
            return bool(parts.hostname)
        host = parts.hostname or ""
        return parts.scheme == "http" and (host == "localhost" or ip_address(host).is_private)
    except ValueError:
        return False


def check_address(url: str) -> None:
    """Raise ValueError, whose text does not repeat the URL, where no notification can be sent to it."""
    plain = url.removeprefix(APPRISE)
    if not plain.isascii() or not plain.isprintable() or " " in plain:
        raise ValueError(f"expected {EXPECTED}, in ASCII and without spaces")
    if plain != url:
        if not _APPRISE_URL.fullmatch(plain):
            raise ValueError(f"expected {EXPECTED}")
        return
    try:
        parts = urlsplit(plain)
        # `port` is read for its ValueError alone: urlsplit takes `https://host:x` as it is.
        host, _ = parts.hostname or "", parts.port
    except ValueError:
        host = ""
    if not host or parts.scheme not in ("https", "http"):
        # `from None`: the cause would show the URL, which may hold a token.
        raise ValueError(f"expected {EXPECTED}") from None
    if parts.username is not None:
        raise ValueError(f"expected {EXPECTED}, without user or password")


def shown_address(url: str) -> str:
    """Return a valid URL without its secret part; in one of Apprise, even the host may be a token."""
    if url.startswith(APPRISE):
        return f"{url.partition(':')[0]}://…"
    parts = urlsplit(url)
    port = "" if parts.port is None else f":{parts.port}"
    return f"{parts.scheme}://{parts.hostname}{port}/…"
