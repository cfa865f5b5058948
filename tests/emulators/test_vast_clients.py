"""The official command line and SDK, unmodified, against the emulator."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from vastai import VastAI

from tests.emulators.asking import IMAGE
from tests.emulators.machines import Machine
from tests.emulators.vast import VastEmulator
from tests.waiting import LONGEST_S, eventually

Cli = Callable[..., str]


@pytest.fixture
def market() -> Iterator[VastEmulator]:
    """One machine with one GPU."""
    with VastEmulator([Machine(id=41000)], rate_limits=False) as vast:
        yield vast


@pytest.fixture
def cli(market: VastEmulator, tmp_path: Path) -> Cli:
    """Runs `vastai` with arguments; what it printed."""
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    key = {"VAST_URL": market.url, "VAST_API_KEY": market.account_key}
    env = {"PATH": path, "HOME": str(tmp_path), "VASTAI_NO_UPDATE_CHECK": "1", "COLUMNS": "200", **key}

    def run(*arguments: object) -> str:
        done = subprocess.run(
            ["vastai", *map(str, arguments)],
            env=env,
            capture_output=True,
            text=True,
            stdin=subprocess.DEVNULL,
            timeout=LONGEST_S,
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    return run


@pytest.mark.slow
def test_the_command_line_rents_watches_and_gives_back(market: VastEmulator, cli: Cli, ssh_key: Path) -> None:
    assert "ssh-key created" in cli("create", "ssh-key", ssh_key.with_suffix(".pub").read_text())
    assert "RTX_4090" in cli("search", "offers", "gpu_name=RTX_4090 num_gpus=1 geolocation=US")
    (offer,) = json.loads(cli("search", "offers", "reliability>0.99", "--interruptible", "--raw"))
    bid = ["--bid_price", offer["min_bid"] * 1.5, "--label", "mine", "--disk", 20]
    box = [
        "--ssh",
        "--direct",
        "--env",
        "-e WHO=me -p 8000:8000",
        "--onstart-cmd",
        "echo hello $WHO; sleep 99",
    ]
    made = json.loads(cli("create", "instance", offer["id"], "--image", IMAGE, *bid, *box, "--raw"))
    instance_id = made["new_contract"]
    look_at(market, cli, instance_id)
    change(market, cli, instance_id)
    assert f"destroying instance {instance_id}" in cli("destroy", "instance", instance_id, "-y")
    assert len(market.instances) == 0
    settled = ("show", "invoices-v1", "--charges", "--no-color")
    eventually(lambda: str(instance_id) in cli(*settled))


def test_several_offers_are_rented_at_once_and_one_by_a_search() -> None:
    with VastEmulator([Machine(id=one) for one in (1, 2, 3)], rate_limits=False) as vast:
        sdk = VastAI(api_key=vast.account_key, server_url=vast.url)
        asks = [offer["id"] for offer in sdk.search_offers(query={})]
        made = sdk.create_instance(asks[:2], image=IMAGE, disk=10, ssh=True)
        assert [one["success"] for one in made["results"]] == [True, True]
        assert sdk.launch_instance(gpu_name="RTX_4090", num_gpus="1", image=IMAGE)["success"]
        assert len(vast.instances) == 3


def test_the_proxy_of_a_jupyter_box_is_one_port_further(market: VastEmulator, cli: Cli) -> None:
    sdk = VastAI(api_key=market.account_key, server_url=market.url)
    (offer,) = sdk.search_offers(query={})
    instance_id = sdk.create_instance(offer["id"], image=IMAGE, jupyter=True)["new_contract"]
    wait_for(market, instance_id, "running")
    port = market.instances.get(instance_id).ports["proxy"].number
    assert cli("ssh-url", instance_id) == f"ssh://root@127.0.0.1:{port}\n"


def test_a_template_says_what_the_order_leaves_open(market: VastEmulator) -> None:
    sdk = VastAI(api_key=market.account_key, server_url=market.url)
    made = sdk.create_template(
        name="t", image="ubuntu", image_tag="24.04", env="-e WHO=me -p 8000:8000", ssh=True, direct=True
    )["template"]
    (offer,) = sdk.search_offers(query={})
    sdk.create_instance(offer["id"], disk=10, template_hash=made["hash_id"], env={"WHO": "you"})
    (instance,) = market.instances
    assert (instance.rental.image, instance.rental.runtype) == ("ubuntu:24.04", "ssh_direc ssh_proxy")
    assert instance.rental.env == {"WHO": "you", "-p 8000:8000": "1"}
    changed = sdk.update_template(hash_id=made["hash_id"], image="debian")["template"]
    assert changed["id"] == made["id"] and changed["hash_id"] != made["hash_id"]
    sdk.delete_template(hash_id=changed["hash_id"])
    assert sdk.search_templates() == []


def look_at(market: VastEmulator, cli: Cli, instance_id: int) -> None:
    """All that the command line shows of a running instance."""
    wait_for(market, instance_id, "running")
    assert "running" in cli("show", "instance", instance_id)
    assert [row["label"] for row in json.loads(cli("show", "instances", "--raw"))] == ["mine"]
    eventually(lambda: "hello me" in cli("logs", instance_id))
    address = market.instances.get(instance_id).address
    assert cli("ssh-url", instance_id).startswith(f"ssh://root@{address}:")


def change(market: VastEmulator, cli: Cli, instance_id: int) -> None:
    """All that the command line changes of an instance."""
    instance = market.instances.get(instance_id)
    cli("label", "instance", instance_id, "renamed")
    assert instance.label == "renamed"
    cli("change", "bid", instance_id, "--price", "0.77")
    assert instance.bid_usd == 0.77
    for verb, status in (("stop", "exited"), ("start", "running"), ("reboot", "running")):
        cli(verb, "instance", instance_id)
        wait_for(market, instance_id, status)


def wait_for(market: VastEmulator, instance_id: int, status: str) -> None:
    """Until the instance shows that status and nothing is under way."""
    instance = market.instances.get(instance_id)
    eventually(lambda: instance.actual == status and instance.runs == (status == "running"))


def test_the_sdk_rents_watches_and_gives_back(market: VastEmulator) -> None:
    sdk = VastAI(api_key=market.account_key, server_url=market.url)
    (offer,) = sdk.search_offers(query={"num_gpus": {"eq": 1}})
    instance_id = rent_with(sdk, offer["id"])["new_contract"]
    wait_for(market, instance_id, "running")
    assert sdk.show_instance(instance_id)["extra_env"] == {"WHO": "me"}
    assert [row["id"] for row in sdk.show_instances()] == [instance_id]
    eventually(lambda: "hello me" in sdk.logs(instance_id))
    assert "onstart.sh" in sdk.execute(instance_id, "ls /root")
    assert sdk.stop_instance(instance_id) == {"success": True}
    wait_for(market, instance_id, "exited")
    market.faults.add("start_refused")
    assert sdk.start_instance(instance_id)["error"] == "resources_unavailable"
    assert sdk.destroy_instance(instance_id) == {"success": True}
    assert sdk.show_instance(instance_id) is None


def test_the_sdk_rents_twice_when_a_gateway_fails_after_renting() -> None:
    """Where Vast takes a second order of the same offer, as a machine with more GPUs may."""
    seen = {"create.again": "200 success"}
    with VastEmulator([Machine(id=41000, gpus=2)], rate_limits=False, seen=seen) as vast:
        sdk = VastAI(api_key=vast.account_key, server_url=vast.url)
        offer = next(one for one in sdk.search_offers(query={}) if one["num_gpus"] == 1)
        vast.faults.add("bad_gateway_done", endpoint="create")
        rent_with(sdk, offer["id"])
        assert len(vast.instances) == 2


def rent_with(sdk: VastAI, offer_id: int) -> Any:
    """The answer to renting one offer."""
    return sdk.create_instance(
        offer_id,
        image=IMAGE,
        disk=10,
        env={"WHO": "me"},
        ssh=True,
        direct=True,
        onstart_cmd="echo hello $WHO",
        cancel_unavail=True,
    )
