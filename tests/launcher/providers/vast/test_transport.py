"""Requests to Vast: the same with its SDK and without it, and what Vast's own functions send."""

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, urlsplit

import pytest
from vastai import VastAI

from tests.emulators.vast import VastEmulator
from tests.fakes import FakeClock
from tests.http_servers import QuietHandler, serving
from tests.launcher.providers.vast.rentals import open_market, order
from vastrun.launcher.core.errors import ProviderError
from vastrun.launcher.gate import caps
from vastrun.launcher.gate.caps import ExchangeBudget
from vastrun.launcher.providers.vast import VastProvider, calls
from vastrun.launcher.providers.vast.calls import VastCall
from vastrun.launcher.providers.vast.errors import NoResponseError
from vastrun.launcher.providers.vast.transport import Send, VastAccount, http_sender, sdk_sender

Connect = Callable[[VastAccount], Send]
each_sender = pytest.mark.parametrize("connect", [http_sender, sdk_sender])
ORDER = {"image": "debian", "disk": 10.0, "env": {"A": "b"}, "label": "x", "onstart": "true", "price": 0.5}


@dataclass
class Wire:
    """A server that notes requests, and answers each alike."""

    status: int = 200
    headers: dict[str, str] = field(default_factory=dict)
    asked: list[tuple[str, str, dict[str, Any], dict[str, Any], str]] = field(default_factory=list)
    """Method, path, query, what the body holds, and the key of each request."""
    url: str = ""


@contextmanager
def listening(**told: Any) -> Iterator[Wire]:
    wire = Wire(**told)

    class Handler(QuietHandler):
        def tell(self) -> None:
            content = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            place = urlsplit(self.path)
            query = {name: _parsed(value) for name, value in parse_qsl(place.query)}
            body = {k: v for k, v in json.loads(content or b"{}").items() if v is not None and v is not False}
            key = self.headers.get("Authorization", "")
            wire.asked.append((self.command, place.path, query, body, key))
            content = b'{"success": true, "offers": [], "machines": [], "results": []}'
            self.answer(wire.status, content, **wire.headers)

        do_GET = do_PUT = do_POST = do_DELETE = tell

    with serving(Handler) as wire.url:
        yield wire


def _parsed(value: str) -> Any:
    try:
        return json.loads(value)
    except ValueError:
        return value


def budget() -> ExchangeBudget:
    return ExchangeBudget(caps.EXCHANGES["vast"], now=time.monotonic, error=NoResponseError)


SDK_CALLS: dict[str, tuple[VastCall, Callable[[VastAI], object]]] = {
    "search": (
        calls.search(
            {"num_gpus": {"eq": 1}}, kind="bid", disk_gb=10.0, order=("dph_total", "asc"), limit=1000
        ),
        lambda sdk: sdk.search_offers(
            query={"num_gpus": {"eq": 1}},
            type="bid",
            storage=10.0,
            order="dph_total",
            limit=1000,
            no_default=True,
        ),
    ),
    "create": (
        calls.create("7", {**ORDER, "runtype": "ssh_direc ssh_proxy", "cancel_unavail": True}),
        lambda sdk: sdk.create_instance(
            7,
            image="debian",
            disk=10.0,
            env={"A": "b"},
            label="x",
            onstart_cmd="true",
            price=0.5,
            runtype="ssh_direc ssh_proxy",
            cancel_unavail=True,
        ),
    ),
    "list": (
        calls.list_instances("token-2"),
        lambda sdk: sdk.show_instances_v1(
            {"order_by": [{"col": "id", "dir": "asc"}], "limit": 25, "after_token": "token-2"}
        ),
    ),
    "destroy": (calls.destroy("7"), lambda sdk: sdk.destroy_instance(7)),
    "attach key": (calls.attach_key("7", "ssh-ed25519 A"), lambda sdk: sdk.attach_ssh(7, "ssh-ed25519 A")),
    "hosted machines": (calls.HOSTED_MACHINES, lambda sdk: sdk.show_machines()),
    "charges": (
        calls.charges(1000.0, 2000.0, "next"),
        lambda sdk: sdk.show_invoices_v1(
            charges=True, start_date=1000, end_date=2000, limit=100, next_token="next"
        ),
    ),
    "list overlays": (calls.OVERLAYS, lambda sdk: sdk.show_overlays()),
    "create overlay": (calls.create_overlay("net", "3"), lambda sdk: sdk.create_overlay(3, "net")),
    "delete overlay": (calls.delete_overlay("net"), lambda sdk: sdk.delete_overlay("net")),
}


@pytest.mark.parametrize("name", SDK_CALLS)
@each_sender
def test_a_request_is_what_the_sdk_s_own_function_sends(connect: Connect, name: str) -> None:
    call, ask = SDK_CALLS[name]
    with listening() as wire:
        connect(VastAccount(key="key", server=wire.url))(call, budget())
        ask(VastAI(api_key="key", server_url=wire.url, retry=1))
    ours, theirs = wire.asked
    assert ours == theirs
    assert ours[4] == "Bearer key"


def test_without_the_sdk_machines_are_rented_listed_and_destroyed(vast: VastEmulator, tmp_path: Path) -> None:
    provider = open_market(vast, tmp_path, connect=http_sender)
    machine = provider.rent(order(provider))
    assert [one.id for one in provider.instances()] == [machine.id]
    assert provider.account_status().credit_usd > 0
    provider.destroy(machine.id)
    assert provider.machine(machine.id) is None


def test_a_computer_without_the_sdk_asks_by_itself(vast: VastEmulator, tmp_path: Path) -> None:
    script = """
import os, sys
sys.modules["vastai"] = sys.modules["requests"] = None
from vastrun.launcher.app import App
print(App(os.environ).provider("vast").instances())
"""
    done = subprocess.run(
        [sys.executable, "-c", script],
        env={**os.environ, "HOME": str(tmp_path), **vast.variables},
        capture_output=True,
        text=True,
    )
    assert done.stdout == "[]\n", done.stderr


def test_a_redirect_is_not_followed_with_the_key() -> None:
    with listening() as elsewhere, listening(status=307, headers={"Location": elsewhere.url}) as wire:
        answer = http_sender(VastAccount(key="key", server=wire.url))(calls.destroy("7"), budget())
    assert (answer.status, elsewhere.asked) == (307, [])


@each_sender
def test_a_server_that_cannot_be_reached_is_no_answer(connect: Connect, tmp_path: Path) -> None:
    account = VastAccount(key="key", server="http://127.0.0.1:9")
    provider = VastProvider(account, tmp_path, clock=FakeClock(time.time()), connect=connect)
    with pytest.raises(ProviderError, match="refused"):
        provider.instances()
