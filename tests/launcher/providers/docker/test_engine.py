"""What a Docker daemon that is down, silent or unwilling means for a run; and what it is asked for."""

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.fakes import FakeClock
from tests.launcher.providers.docker.daemon import HANG_UP, INFO, FakeDaemon, row, shown
from tests.offers import rental_order
from vastrun.launcher.core import Cause, Instance, Offer, RentalOrder, errors
from vastrun.launcher.core.job import JobSpec, Resources
from vastrun.launcher.package_files import onstart_dir
from vastrun.launcher.providers.docker import DockerProvider
from vastrun.launcher.providers.docker.containers import NETWORK
from vastrun.testing.setup import LEASE, small_job

pytest.importorskip("docker")

LABEL = "vastrun-calm-heron-3f1a"
CREATE, START, LIST = "POST /containers/create", "POST /containers/.*/start", "GET /containers/json"
JOB = replace(small_job(), image="lab/own:1")
WILLING: dict[str, tuple[int, Any]] = {
    "GET /info": (200, INFO),
    "GET /images/.*/json": (200, {"Id": "sha256:0"}),
    CREATE: (201, {"Id": "0" * 64, "Warnings": []}),
    START: (204, None),
    LIST: (200, []),
}


@pytest.fixture
def daemon(tmp_path: Path) -> Iterator[FakeDaemon]:
    """On this computer, and willing."""
    with FakeDaemon(tmp_path, dict(WILLING)) as daemon:
        yield daemon


@pytest.fixture
def provider(daemon: FakeDaemon, tmp_path: Path) -> DockerProvider:
    return provider_of(daemon.url, tmp_path)


def provider_of(url: str, folder: Path) -> DockerProvider:
    return DockerProvider(folder / "state", {"DOCKER_HOST": url}, clock=FakeClock())


def order_of(offer: Offer, memory_gb: float) -> RentalOrder:
    lease = (onstart_dir() / "lease.sh").read_text(encoding="utf-8")
    return rental_order(offer, image=offer.image, memory_gb=memory_gb, onstart=lease, env=LEASE)


def rent_refused(provider: DockerProvider, offer: Offer, memory_gb: float = 0.0) -> errors.VastrunError:
    """Why: unless a test says more, the daemon shows nothing of what it made."""
    with pytest.raises(errors.VastrunError) as caught:
        provider.rent(order_of(offer, memory_gb))
    return caught.value


def asking_for(**resources: Any) -> JobSpec:
    return replace(JOB, resources=Resources(**{"gpus": 0, "disk_gb": 8.0, **resources}))


def test_a_daemon_that_is_not_there_is_silent_and_never_an_empty_list(tmp_path: Path) -> None:
    provider = provider_of(f"unix://{tmp_path}/nowhere.sock", tmp_path)
    for verb in (provider.instances, provider.describe, lambda: provider.search(JOB)):
        with pytest.raises(errors.UnreachableError, match="Docker does not answer: No such file") as caught:
            verb()
        assert caught.value.cause is Cause.PROVIDER
        assert "DOCKER_HOST" in caught.value.hint


def test_without_docker_s_package_the_doctor_says_what_to_install(tmp_path: Path) -> None:
    without = "import sys; sys.modules['docker'] = None; from vastrun.launcher.cli import main; main()"
    done = subprocess.run(
        [sys.executable, "-c", without, "doctor", "--provider", "docker"],
        env={"XDG_STATE_HOME": str(tmp_path), "PATH": os.environ["PATH"]},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 1
    assert "fail  docker " in done.stdout
    assert "-m pip install 'docker>=7.1'" in done.stdout


@pytest.mark.parametrize("answer", [(HANG_UP, None), (500, {"message": "restarting"}), (200, "not a list")])
def test_a_list_that_did_not_come_is_never_an_empty_one(
    daemon: FakeDaemon, provider: DockerProvider, answer: tuple[int, Any]
) -> None:
    daemon.answers[LIST] = answer
    with pytest.raises(errors.ProviderError):
        provider.instances()


@pytest.mark.parametrize("order", [CREATE, START])
def test_an_order_that_was_not_answered_is_asked_once_and_uncertain(
    daemon: FakeDaemon, provider: DockerProvider, order: str
) -> None:
    (offer,) = provider.search(JOB)
    daemon.answers[order] = (HANG_UP, None)
    assert isinstance(rent_refused(provider, offer), errors.UncertainError)
    daemon.sent(order)


@pytest.mark.parametrize(
    ("order", "status", "said", "cause", "hint"),
    [
        (CREATE, 404, "No such image: lab/own:1", Cause.USER_ERROR, "docker pull"),
        (START, 400, 'exec: "bash": executable file not found in $PATH', Cause.USER_ERROR, "image:"),
        (START, 500, 'could not select device driver "" with capabilities: [[gpu]]', Cause.HOST, "NVIDIA"),
        (
            START,
            500,
            "driver failed: Bind for 127.0.0.1:49153: port is already allocated",
            Cause.PROVIDER,
            "",
        ),
        (CREATE, 500, "mkdir /var/lib/docker/overlay2/1: no space left on device", Cause.DISK, "prune"),
    ],
)
def test_a_refusal_has_its_cause_and_what_to_try(
    daemon: FakeDaemon, provider: DockerProvider, order: str, status: int, said: str, cause: Cause, hint: str
) -> None:
    (offer,) = provider.search(JOB)
    daemon.answers[order] = (status, {"message": said})
    error = rent_refused(provider, offer)
    assert not isinstance(error, errors.UncertainError | errors.NoOfferError)
    assert said in str(error)
    assert error.cause is cause
    assert hint in error.hint


def test_an_image_that_is_not_there_is_told_before_anything_is_rented(
    daemon: FakeDaemon, provider: DockerProvider
) -> None:
    daemon.answers["GET /images/.*/json"] = (404, {"message": "No such image: lab/own:1"})
    with pytest.raises(errors.NoOfferError, match="no image lab/own:1") as caught:
        provider.search(JOB)
    assert caught.value.hint == "docker pull lab/own:1"


def test_a_container_gets_what_the_job_asks_for_and_is_reached_from_this_computer_alone(
    daemon: FakeDaemon, provider: DockerProvider
) -> None:
    (offer,) = provider.search(asking_for(memory_gb=32))
    rent_refused(provider, replace(offer, id="GPU-1,GPU-2", gpus=2))
    asked = daemon.sent(CREATE)
    limits = asked["HostConfig"]
    assert asked["Image"] == "lab/own:1"
    assert asked["Labels"]["io.vastrun.label"] == LABEL
    assert "GPU_COUNT=2" in asked["Env"]
    assert limits["PortBindings"] == {"22/tcp": [{"HostIp": "127.0.0.1", "HostPort": ""}]}
    assert limits["DeviceRequests"][0]["DeviceIDs"] == ["GPU-1", "GPU-2"]
    assert limits["ShmSize"] == 32_000_000_000
    assert "Memory" not in limits or limits["Memory"] == 0


def test_requested_memory_is_also_the_most_available(daemon: FakeDaemon, provider: DockerProvider) -> None:
    (offer,) = provider.search(JOB)
    rent_refused(provider, offer, memory_gb=8.0)
    limits = daemon.sent(CREATE)["HostConfig"]
    assert limits["Memory"] == limits["MemorySwap"] == 8_000_000_000
    assert limits["ShmSize"] == 4_000_000_000


def test_what_the_daemon_s_computer_lacks_is_told_at_once(provider: DockerProvider) -> None:
    with pytest.raises(errors.NoOfferError) as caught:
        provider.search(asking_for(gpus=64, memory_gb=1000))
    for part in ("workstation", "64 GPUs", "1000 GB of memory needed, 64 here"):
        assert part in str(caught.value)


def test_a_workstation_gives_gpus_of_any_kind_and_is_reached_from_elsewhere(tmp_path: Path) -> None:
    with FakeDaemon(None, dict(WILLING)) as daemon:
        provider = provider_of(daemon.url, tmp_path)
        (offer,) = provider.search(asking_for(gpus=2))
        assert "workstation: 2 x GPU" in offer.description
        with pytest.raises(errors.NoOfferError):
            provider.search(asking_for(gpus=2, gpu_memory_gb=80))
        rent_refused(provider, offer)
        limits = daemon.sent(CREATE)["HostConfig"]
    assert limits["PortBindings"]["22/tcp"][0]["HostIp"] == "0.0.0.0"
    assert limits["DeviceRequests"][0]["DeviceIDs"] == ["0", "1"]


NODES = (LABEL, f"{LABEL}-n1")
NETWORKS, MAKE_NETWORK = "GET /networks", "POST /networks/create"


def test_the_nodes_of_a_run_share_a_network_that_goes_with_the_last_of_them(
    daemon: FakeDaemon, provider: DockerProvider
) -> None:
    left = {"Name": "vastrun-old-fox-0000", "Created": "2020-01-01T00:00:00.123456789Z", "Labels": {}}
    daemon.answers |= {
        NETWORKS: (200, [left]),
        MAKE_NETWORK: (201, {"Id": "1"}),
        "DELETE /networks/.*": (204, None),
        "DELETE /containers/.*": (204, None),
    }
    (offer,) = provider.search(replace(JOB, nodes=2))
    with pytest.raises(errors.UncertainError):
        provider.rent(replace(order_of(offer, 0.0), nodes=NODES, label=NODES[1]))
    asked = daemon.sent(CREATE)
    assert daemon.sent(MAKE_NETWORK)["Name"] == asked["HostConfig"]["NetworkMode"] == LABEL
    assert "DELETE /networks/vastrun-old-fox-0000" in [one for one, _ in daemon.asked], "which nobody used"

    name = f"{NODES[1]}.00aa"
    listed = row(name, **asked["Labels"])
    listed["NetworkSettings"] = {"Networks": {LABEL: {"IPAddress": "172.18.0.3"}}}
    near = shown(name, asked["Labels"])
    shared = {"Name": LABEL, "Created": left["Created"], "Labels": {}}
    daemon.answers |= {
        LIST: (200, [listed]),
        NETWORKS: (200, [shared]),
        f"GET /containers/{name}/json": (200, near),
    }
    (instance,) = provider.instances()
    assert instance.rendezvous == "172.18.0.3:29400"
    daemon.answers["DELETE /networks/.*"] = (403, {"message": f"network {LABEL} has active endpoints"})
    provider.destroy(instance.id)
    assert f"DELETE /networks/{LABEL}" in [one for one, _ in daemon.asked]


def test_a_label_of_its_image_makes_no_network_of_the_users_the_run_s(
    daemon: FakeDaemon, provider: DockerProvider
) -> None:
    (offer,) = provider.search(JOB)
    rent_refused(provider, offer)
    made = daemon.sent(CREATE)["Labels"]
    assert made[NETWORK] == "", "else the image's own label would be the container's"

    name = f"{LABEL}.00aa"
    labels = {**made, NETWORK: "the-users"}
    near = shown(name, labels)
    daemon.answers |= {
        f"GET /containers/{name}/json": (200, near),
        NETWORKS: (200, []),
        "DELETE /networks/.*": (204, None),
        "DELETE /containers/.*": (204, None),
    }
    provider.destroy(name)
    deleted = [one for one, _ in daemon.asked if one.startswith("DELETE")]
    assert deleted == [f"DELETE /containers/{name}"]


def test_each_node_gets_gpus_of_its_own(tmp_path: Path) -> None:
    with FakeDaemon(None, dict(WILLING)) as daemon:
        provider = provider_of(daemon.url, tmp_path)
        offers = provider.search(replace(asking_for(gpus=2), nodes=2))
    assert [offer.id for offer in offers] == ["0,1", "2,3"]


def rented(daemon: FakeDaemon, provider: DockerProvider, **state: Any) -> Instance:
    """A container, which the daemon then shows in that state."""
    (offer,) = provider.search(JOB)
    rent_refused(provider, offer)
    name = next(asked.split("/")[2] for asked, _ in daemon.asked if re.fullmatch(START, asked))
    labels = daemon.sent(CREATE)["Labels"]
    near = shown(name, labels, **state)
    daemon.answers |= {LIST: (200, [row(name, **labels)]), f"GET /containers/{name}/json": (200, near)}
    (instance,) = provider.instances()
    assert instance.image == "lab/own:1 sha256:0"
    return instance


@pytest.mark.parametrize(
    ("exit_code", "out_of_memory", "cause", "said"),
    [
        (0, False, Cause.LOST, "exited with code 0: the lease has ended this container"),
        (78, False, Cause.USER_ERROR, "its image has no SSH server"),
        (137, True, Cause.OUT_OF_MEMORY, "exceeded its memory limit"),
        (137, False, Cause.LOST, "was killed"),
        (143, False, Cause.LOST, "was stopped"),
        (1, False, Cause.HOST, "exit code 1"),
    ],
)
def test_a_container_that_ended_says_how(
    daemon: FakeDaemon, provider: DockerProvider, exit_code: int, out_of_memory: bool, cause: Cause, said: str
) -> None:
    instance = rented(daemon, provider, Status="exited", ExitCode=exit_code, OOMKilled=out_of_memory)
    daemon.answers["GET /containers/.*/logs"] = (
        200,
        b"the lease has ended this container\n256 SHA256:abc root@box (ED25519)\n",
    )
    with pytest.raises(errors.ProviderError) as caught:
        provider.connect(instance)
    assert not isinstance(caught.value, errors.UnreachableError)
    assert caught.value.cause is cause
    assert said in str(caught.value)


@pytest.mark.parametrize(
    ("call", "error"), [(LIST, errors.UnreachableError), (CREATE, errors.UncertainError)]
)
def test_an_answer_without_an_end_is_no_answer(
    daemon: FakeDaemon, provider: DockerProvider, call: str, error: type[errors.VastrunError]
) -> None:
    (offer,) = provider.search(JOB)
    daemon.answers[call] = (200, [{"Note": "x" * (17 << 20)}])
    with pytest.raises(error, match="it sent more than"):
        provider.instances() if call is LIST else provider.rent(order_of(offer, 0.0))


@pytest.mark.parametrize("status", ["paused", "restarting", "removing", "running"])
def test_a_lost_container_is_silent(daemon: FakeDaemon, provider: DockerProvider, status: str) -> None:
    instance = rented(daemon, provider, Status=status)
    with pytest.raises(errors.UnreachableError, match="on no network" if status == "running" else status):
        provider.connect(instance)


def test_a_removal_that_goes_on_already_is_agreed_to(daemon: FakeDaemon, provider: DockerProvider) -> None:
    instance = rented(daemon, provider)
    said = f"removal of container {instance.id} is already in progress"
    daemon.answers["DELETE /containers/.*"] = (409, {"message": said})
    provider.destroy(instance.id)
    daemon.answers["DELETE /containers/.*"] = (500, {"message": "device or resource busy"})
    with pytest.raises(errors.ProviderError, match="busy"):
        provider.destroy(instance.id)


def test_a_container_that_was_made_and_never_started_is_found_and_started(
    daemon: FakeDaemon, provider: DockerProvider
) -> None:
    instance = rented(daemon, provider, Status="created")
    starts = [asked for asked, _ in daemon.asked if re.fullmatch(START, asked)]
    with pytest.raises(errors.UnreachableError):
        provider.connect(instance)
    assert [asked for asked, _ in daemon.asked if re.fullmatch(START, asked)] == starts * 2
