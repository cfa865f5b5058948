"""Addresses: the service behind a notification URL, and whether the connection is private. Pure."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from enum import StrEnum
from ipaddress import ip_address
from urllib.parse import urlsplit

EXPECTED = (
    "a URL that begins with https:// or http:// (or ntfy+https://, slack+https:// to name its kind; "
    "apprise+… for a URL of Apprise)"
)
EXPECTED_FOR_APPRISE = "a URL of Apprise after apprise+, such as apprise+tgram://TOKEN/CHAT"
_APPRISE_URL = re.compile(r"[a-z][a-z0-9-]*://\S+", re.IGNORECASE)


class Service(StrEnum):
    """Protocol of the receiver."""

    WEBHOOK = "webhook"
    NTFY = "ntfy"
    SLACK = "slack"
    APPRISE = "apprise"
    """Any of the services of the package apprise, which knows their URLs."""


@dataclass(frozen=True, kw_only=True)
class Address:
    """URL of a receiver, with its protocol."""

    service: Service
    url: str = field(repr=False)

    @property
    def shown(self) -> str:
        """The address without its secret part; in a URL of Apprise, even the host may be a token."""
        if self.service is Service.APPRISE:
            return f"apprise+{self.url.partition(':')[0]}://…"
        parts = urlsplit(self.url)
        port = "" if parts.port is None else f":{parts.port}"
        return f"{parts.scheme}://{parts.hostname}{port}/…"


def is_private(url: str) -> bool:
    """Return whether messages to that URL cannot be read on the way: HTTPS, or a private address."""
    try:
        parts = urlsplit(url)
        if parts.scheme == "https":
            return bool(parts.hostname)
        return parts.scheme == "http" and (parts.hostname == "localhost" or _is_near(parts.hostname or ""))
    except ValueError:
        return False


def _is_near(host: str) -> bool:
    return ip_address(host).is_private


def address_of(url: str) -> Address:
    """Parse a URL. Raises ValueError, whose text does not repeat the URL."""
    kind, plus, rest = url.partition("+")
    if plus and kind == Service.APPRISE:
        if not _APPRISE_URL.fullmatch(rest) or not rest.isascii() or not rest.isprintable():
            raise ValueError(f"expected {EXPECTED_FOR_APPRISE}, in ASCII and without spaces")
        return Address(service=Service.APPRISE, url=rest)
    known = plus and kind in (Service.NTFY, Service.SLACK)
    plain = rest if known else url
    try:
        parts = urlsplit(plain)
        # `port` is read for its ValueError alone: urlsplit takes `https://host:x` as it is.
        host, _ = parts.hostname or "", parts.port
    except ValueError:
        host = ""
    if not host or parts.scheme not in ("https", "http") or not plain.isascii() or not plain.isprintable():
        # `from None`: the cause would show the URL, which may hold a token.
        raise ValueError(f"expected {EXPECTED}") from None
    if " " in plain or parts.username is not None:
        raise ValueError(f"expected {EXPECTED}, without spaces, user or password")
    return Address(service=Service(kind) if known else _service_at(host), url=plain)


def _service_at(host: str) -> Service:
    if host == "hooks.slack.com":
        return Service.SLACK
    return Service.NTFY if host.split(".")[0] == "ntfy" else Service.WEBHOOK
