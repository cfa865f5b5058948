"""Addresses: the URL of a receiver of notifications, and whether a connection is private. Pure."""

from __future__ import annotations

import re
from ipaddress import ip_address
from urllib.parse import urlsplit

APPRISE = "apprise+"
"""Beginning of a URL for the package apprise, which knows many services."""
EXPECTED = (
    "a URL that begins with https:// or http://, in ASCII, without spaces, user and password, or one of "
    "Apprise, such as apprise+tgram://TOKEN/CHAT"
)
_ADDRESS = re.compile(
    r"(apprise\+[a-z][a-z0-9-]*:/)/[!-~]+"
    r"|(https?://(?:[\w.-]+|\[[\da-f:.]+\])(?::\d{1,5})?)(?:[/?#][!-~]*)?",
    re.ASCII | re.IGNORECASE,
)
"""Matches a URL to which a notification can be sent, by groups without its secret part."""


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
    if not _ADDRESS.fullmatch(url):
        raise ValueError(f"expected {EXPECTED}")


def shown_address(url: str) -> str:
    """Return a valid URL without its secret part; in one of Apprise, even the host may be a token."""
    found = _ADDRESS.fullmatch(url)
    return f"{found[1] or found[2]}/…" if found else "…"
