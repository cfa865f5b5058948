"""The API: keys, permissions, pages, rate limits, and every fault by its name."""

import http.client
import json
import socket
from urllib.parse import quote

import pytest

from tests.emulators.asking import IMAGE, ask, offers, rent, row
from tests.emulators.clock import Clock
from tests.emulators.faults import FAULTS, NETWORK
from tests.emulators.machines import Machine, synthetic_machines
from tests.emulators.vast import VastEmulator

OVERLAY = "some-network"


def page(vast: VastEmulator, **query: object) -> tuple[int, dict]:
    """A page of the list."""
    arguments = "&".join(
        f"{name}={quote(value if isinstance(value, str) else json.dumps(value))}"
        for name, value in query.items()
    )
    return ask(vast, "GET", f"/api/v1/instances/?{arguments}")


def test_without_a_key_only_the_market_answers(vast: VastEmulator) -> None:
    assert ask(vast, "POST", "/api/v0/bundles/", {}, key=None)[0] == 200
    status, content = ask(vast, "GET", "/api/v1/instances/", key=None)
    assert (status, content["error"]) == (403, "auth_error")
    status, content = ask(vast, "GET", "/api/v1/instances/", key="wrong")
    assert (status, content["msg"]) == (404, "Invalid user key")


def test_the_key_may_be_in_the_address_and_slashes_do_not_matter(vast: VastEmulator) -> None:
    for path in ("/api/v0/users/current", "/api/v0/users/current/"):
        status, content = ask(vast, "GET", f"{path}?api_key={vast.account_key}", key=None)
        assert (status, content["credit"]) == (200, 100.0)


def test_a_scoped_key_does_what_it_may(vast: VastEmulator) -> None:
    permissions = {"api": {"misc": {}, "instance_read": {"api.instance.request_logs": {}}}}
    key = vast.account.add_key("reader", permissions=permissions).key
    instance_id = rent(vast)[1]["new_contract"]
    logs = f"/api/v0/instances/request_logs/{instance_id}/"
    assert ask(vast, "POST", "/api/v0/bundles/", {}, key=key)[0] == 200
    assert ask(vast, "PUT", logs, {}, key=key)[0] == 200
    assert ask(vast, "GET", "/api/v1/instances/", key=key)[0] == 403
    assert ask(vast, "DELETE", f"/api/v0/instances/{instance_id}/", {}, key=key)[0] == 403


def test_the_list_comes_in_pages_of_25() -> None:
    with VastEmulator(synthetic_machines(80), clock=Clock(0), rate_limits=False) as vast:
        for offer in offers(vast, num_gpus={"eq": 1})[:27]:
            ask(vast, "PUT", f"/api/v0/asks/{offer['id']}/", {"image": IMAGE, "disk": 8, "label": "x"})
        first = page(vast, limit=100)[1]
        assert (len(first["instances"]), first["instances_found"]) == (25, 27)
        second = page(vast, limit=100, after_token=first["next_token"])[1]
        assert (len(second["instances"]), second["next_token"]) == (2, None)
        assert len(page(vast, limit=0)[1]["instances"]) == 25
        assert len(page(vast)[1]["instances"]) == 25
        status, content = page(vast, after_token="nonsense")
        assert (status, content["error"]) == (400, "invalid_token")


def test_calls_that_come_too_fast_are_refused_in_json() -> None:
    with VastEmulator([Machine(id=1, gpus=8)], clock=Clock(0)) as vast:
        instance_id = rent(vast)[1]["new_contract"]
        assert rent(vast) == (429, {"detail": "API requests too frequent endpoint threshold=4.5"})
        vast.advance(5)
        assert rent(vast)[0] == 429, "who came too early waits longer"
        vast.advance(12)
        assert rent(vast)[0] == 200
        path = f"/api/v0/instances/{instance_id}/"
        assert [ask(vast, "GET", path)[0] for _ in range(2)] == [200, 429]


@pytest.mark.parametrize("fault", FAULTS)
def test_every_fault_strikes(still: VastEmulator, fault: str) -> None:
    if fault.endswith("_names_other"):
        rent(still)  # the other instance
    still.faults.add(fault, seconds=0.01)
    body: dict[str, object] = {"price": 0.9} if fault in ("outbid", "bid_rejected") else {}
    if FAULTS[fault][0] == NETWORK:
        make_overlay(still)
        body["env"] = {f"-n {OVERLAY}": "1"}
    if fault == "cuda_alone":
        offers(still, cuda_max_good={"gte": 12.0})
    live_through(still, **body)
    if FAULTS[fault][0] == NETWORK:
        ask(still, "DELETE", "/api/v0/overlay/", {"overlay_name": OVERLAY})
    assert still.faults.struck == [fault]


def make_overlay(vast: VastEmulator) -> None:
    """A network on the cluster of the only machine, whatever is answered the first time."""
    for _ in range(2):
        ask(vast, "GET", "/api/v0/overlay/")
        try:
            ask(vast, "POST", "/api/v0/overlay/", {"cluster_id": 7, "name": OVERLAY})
        except http.client.RemoteDisconnected:
            continue


def test_an_overlay_shows_its_instances_and_ends_them_with_itself(still: VastEmulator) -> None:
    assert ask(still, "POST", "/api/v0/overlay/", {"cluster_id": 8, "name": OVERLAY})[0] == 404
    assert ask(still, "POST", "/api/v0/overlay/", {"cluster_id": 7, "name": "A B"})[0] == 400
    assert rent(still, env={f"-n {OVERLAY}": "1"})[0] == 400, "there is none yet"
    make_overlay(still)
    assert [offer["cluster_id"] for offer in offers(still, cluster_id={"gte": 0})] == [7, 7]
    instance_id = rent(still, env={f"-n {OVERLAY}": "1"})[1]["new_contract"]
    (shown,) = ask(still, "GET", "/api/v0/overlay/")[1]
    assert (shown["name"], shown["cluster_id"], shown["instances"]) == (OVERLAY, 7, [instance_id])

    assert ask(still, "DELETE", "/api/v0/overlay/", {"overlay_id": shown["overlay_id"]})[0] == 200
    assert len(still.instances) == 0
    assert ask(still, "GET", "/api/v0/overlay/")[1] == []
    assert ask(still, "DELETE", "/api/v0/overlay/", {"overlay_name": OVERLAY})[0] == 404


def test_a_key_that_may_only_read_the_account_makes_no_overlay(still: VastEmulator) -> None:
    key = still.account.add_key("narrow", permissions={"api": {"user_read": {}}}).key
    assert ask(still, "GET", "/api/v0/overlay/", key=key)[0] == 200
    assert ask(still, "POST", "/api/v0/overlay/", {"cluster_id": 7, "name": OVERLAY}, key=key)[0] == 403


SCHEDULES = "/api/v0/commands/schedule_job/"


def live_through(vast: VastEmulator, **body: object) -> None:
    """Everything a client does, whatever comes of it."""
    try:
        instance_id = rent(vast, **body)[1]["new_contract"]
    except (http.client.RemoteDisconnected, TypeError, KeyError, ValueError):
        return
    vast.advance(1)
    page(vast)
    page(vast, after_token=f"after-{instance_id}")
    row(vast, instance_id)
    path = f"/api/v0/instances/{instance_id}/"
    ask(vast, "PUT", f"/api/v0/instances/request_logs/{instance_id}/", {})
    ask(vast, "POST", f"/api/v0/instances/{instance_id}/ssh/", {"ssh_key": "ssh-ed25519 AAAA"})
    job = {"instance_id": instance_id, "api_endpoint": path, "request_method": "DELETE"}
    ask(
        vast,
        "POST",
        SCHEDULES,
        {**job, "start_time": vast.clock.now() + 9000, "end_time": vast.clock.now() + 9999},
    )
    ask(vast, "DELETE", f"{SCHEDULES}31/", {})
    ask(vast, "DELETE", path, {})


def test_random_faults_are_the_same_for_the_same_seed(still: VastEmulator) -> None:
    assert still.faults.add_random(7, 5) == still.faults.add_random(7, 5)
    assert still.faults.add_random(7, 5) != still.faults.add_random(8, 5)


def test_it_listens_on_loopback_only(vast: VastEmulator) -> None:
    port = int(vast.url.rpartition(":")[2])
    with socket.create_server(("127.0.0.2", port)):
        assert ask(vast, "GET", "/api/v0/users/current")[0] == 200
