"""The API: keys, permissions, pages, rate limits, and every fault by its name."""

import socket

from tests.emulators.asking import ask, offers, rent
from tests.emulators.vast import VastEmulator

OVERLAY = "some-network"


def test_a_scoped_key_does_what_it_may(vast: VastEmulator) -> None:
    permissions = {"api": {"misc": {}, "instance_read": {"api.instance.request_logs": {}}}}
    key = vast.account.add_key("reader", permissions=permissions).key
    instance_id = rent(vast)[1]["new_contract"]
    logs = f"/api/v0/instances/request_logs/{instance_id}/"
    assert ask(vast, "POST", "/api/v0/bundles/", {}, key=key)[0] == 200
    assert ask(vast, "PUT", logs, {}, key=key)[0] == 200
    assert ask(vast, "GET", "/api/v1/instances/", key=key)[0] == 403
    assert ask(vast, "DELETE", f"/api/v0/instances/{instance_id}/", {}, key=key)[0] == 403


def test_an_overlay_shows_its_instances_and_ends_them_with_itself(still: VastEmulator) -> None:
    assert ask(still, "POST", "/api/v0/overlay/", {"cluster_id": 8, "name": OVERLAY})[0] == 404
    assert ask(still, "POST", "/api/v0/overlay/", {"cluster_id": 7, "name": "A B"})[0] == 400
    assert rent(still, env={f"-n {OVERLAY}": "1"})[0] == 400, "there is none yet"
    assert ask(still, "POST", "/api/v0/overlay/", {"cluster_id": 7, "name": OVERLAY})[0] == 200
    assert [offer["cluster_id"] for offer in offers(still, cluster_id={"gte": 0})] == [7, 7]
    instance_id = rent(still, env={f"-n {OVERLAY}": "1"})[1]["new_contract"]
    (shown,) = ask(still, "GET", "/api/v0/overlay/")[1]
    assert (shown["name"], shown["cluster_id"], shown["instances"]) == (OVERLAY, 7, [instance_id])

    assert ask(still, "DELETE", "/api/v0/overlay/", {"overlay_id": shown["overlay_id"]})[0] == 200
    assert len(still.instances) == 0
    assert ask(still, "GET", "/api/v0/overlay/")[1] == []
    assert ask(still, "DELETE", "/api/v0/overlay/", {"overlay_name": OVERLAY})[0] == 404


def test_it_listens_on_loopback_only(vast: VastEmulator) -> None:
    port = int(vast.url.rpartition(":")[2])
    with socket.create_server(("127.0.0.2", port)):
        assert ask(vast, "GET", "/api/v0/users/current")[0] == 200
