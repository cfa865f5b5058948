"""A bare client of the emulator's API, for its own tests."""

import http.client
import json
from collections.abc import Mapping
from typing import Any, Protocol
from urllib.parse import urlsplit

from tests.waiting import LONGEST_S

IMAGE = "pytorch/pytorch:2.13.0-cuda13.0-cudnn9-runtime"


class Api(Protocol):
    """An emulator, in this process or another."""

    @property
    def url(self) -> str:
        """Its address."""
        ...

    @property
    def account_key(self) -> str:
        """The key that opens it."""
        ...


def ask(
    vast: Api, method: str, path: str, body: Mapping[str, Any] | None = None, *, key: str | None = ""
) -> tuple[int, Any]:
    """Status and content of one answer: JSON, or text. `key` is the account's unless told, None for none."""
    connection = http.client.HTTPConnection(urlsplit(vast.url).netloc, timeout=LONGEST_S)
    headers = {} if key is None else {"Authorization": f"Bearer {key or vast.account_key}"}
    try:
        connection.request(method, path, None if body is None else json.dumps(body), headers)
        response = connection.getresponse()
        text = response.read().decode()
    finally:
        connection.close()
    is_json = response.headers["Content-Type"] == "application/json"
    return response.status, json.loads(text) if is_json else text


def offers(vast: Api, **query: Any) -> list[dict[str, Any]]:
    """What a search finds."""
    found: list[dict[str, Any]] = ask(vast, "POST", "/api/v0/bundles/", query)[1]["offers"]
    return found


def rent(vast: Api, **body: Any) -> tuple[int, Any]:
    """The answer to renting one GPU of the first machine that has one free."""
    found = offers(vast, type="bid" if "price" in body else "on-demand", order=[["machine_id", "asc"]])
    ask_id = min(found, key=lambda offer: offer["num_gpus"])["id"]
    order = {"image": IMAGE, "disk": 10, "runtype": "ssh_direc ssh_proxy", "cancel_unavail": True, **body}
    return ask(vast, "PUT", f"/api/v0/asks/{ask_id}/", order)


def row(vast: Api, instance_id: int) -> Any:
    """The instance as the API shows it, or None."""
    return ask(vast, "GET", f"/api/v0/instances/{instance_id}/?owner=me")[1]["instances"]
