"""Boxes as containers: the same lives as of boxes that are processes, and nothing left of them either."""

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import docker
import pytest

from tests.emulators.asking import row
from tests.emulators.docker_host import LABEL
from tests.emulators.test_vast_box import (
    Elsewhere,
    addresses,
    assert_the_disk_stays_over_a_stop,
    container_log,
    running,
    ssh,
)
from tests.emulators.vast import VastEmulator
from tests.parts import BASE_IMAGE
from tests.waiting import eventually

pytestmark = pytest.mark.needs("docker")

_CURL = 'curl -s -X DELETE -H "Authorization: Bearer $CONTAINER_API_KEY" "$VAST_URL/api/v0/instances/'


@pytest.fixture
def vast() -> Iterator[VastEmulator]:
    """Every instance is a container of the base image."""
    with VastEmulator(rate_limits=False, image=BASE_IMAGE) as vast:
        yield vast


def test_a_container_is_reached_as_on_vast_and_can_end_itself(vast: VastEmulator, ssh_key: Path) -> None:
    text = '#!/bin/bash\necho "I am $CONTAINER_ID of $WHO"\nuntil [[ -e go ]]; do sleep 0.1; done\n'
    instance_id = running(vast, ssh_key, env={"WHO": "me"}, onstart=f'{text}{_CURL}$CONTAINER_ID/"')
    eventually(lambda: f"I am {instance_id} of me\n" in container_log(vast, instance_id))
    look = 'hostname; pwd; echo "${CONTAINER_API_KEY-no key}"; nvidia-smi -L | wc -l; cat /etc/ssh/*.pub'
    seen = [ssh(port, ssh_key, look, "root") for port in addresses(vast, instance_id)]

    (container,) = vast.containers()
    host, folder, key, gpus, host_key = seen[0].stdout.splitlines()
    assert seen[0].stdout == seen[1].stdout
    assert (host, folder, key) == (container.id[:12], "/root", "no key")
    assert gpus == str(row(vast, instance_id)["num_gpus"])
    assert host_key.startswith("ssh-ed25519 ")
    ssh(addresses(vast, instance_id)[0], ssh_key, "touch go", "root")
    eventually(lambda: len(vast.instances) == 0)
    eventually(lambda: not vast.containers())


def test_the_disk_of_a_container_stays_over_a_stop_and_not_over_a_recycle(vast: VastEmulator) -> None:
    assert_the_disk_stays_over_a_stop(vast)


def test_a_container_that_is_killed_is_stopped_and_keeps_its_disk(vast: VastEmulator) -> None:
    killed = running(vast)
    eventually(lambda: [one.status for one in vast.containers()] == ["running"])
    vast.containers()[0].kill()
    eventually(lambda: row(vast, killed)["actual_status"] == "exited")
    assert len(vast.containers()) == 1


def test_containers_end_with_an_emulator_that_is_killed_and_the_next_one_removes_them() -> None:
    command = [sys.executable, "-m", "tests.emulators.vast", "--no-rate-limits", "--docker", BASE_IMAGE]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as emulator:
        assert emulator.stdout
        try:
            settings = dict(word.split("=", 1) for word in emulator.stdout.readline().split()[1:])
            running(Elsewhere(settings["VAST_URL"], settings["VAST_API_KEY"]))
            eventually(lambda: states_of(emulator.pid) == ["running"])
        finally:
            emulator.kill()
    eventually(lambda: states_of(emulator.pid) == ["exited"])
    with VastEmulator(image=BASE_IMAGE):
        assert states_of(emulator.pid) == []


def states_of(process: int) -> list[str]:
    """How the containers are of the emulator that ran there."""
    listed = docker.from_env().containers.list(all=True, filters={"label": LABEL}, ignore_removed=True)
    return [one.status for one in listed if one.labels[LABEL].startswith(f"{process}.")]
