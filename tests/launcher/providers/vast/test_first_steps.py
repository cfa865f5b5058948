"""The road's first steps on an emulated Vast: a machine that is no good is given back, noted and avoided."""

import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.emulators.machines import Machine
from tests.emulators.vast import VastEmulator
from tests.fakes import FakeClock
from tests.jobs import train_job
from tests.launcher.providers.vast.rentals import open_market, services_on
from vastrun.launcher.config import dump_job
from vastrun.launcher.core import Cause, Phase, Run
from vastrun.launcher.core.job import JobSpec, Limits, Resources
from vastrun.launcher.decisions.history import AvoidedHosts, avoided
from vastrun.launcher.flow.drive import create_run, drive
from vastrun.launcher.flow.rental import choose_offers

JOB = train_job(resources=Resources(gpus=0, disk_gb=20.0), limits=Limits(hours=1.0, usd=3.0))


class Desk:
    """A launcher whose waits pass at once, and a Vast with four machines."""

    def __init__(self, vast: VastEmulator, folder: Path) -> None:
        self.vast, clock = vast, FakeClock(time.time())
        self.services = services_on(open_market(vast, folder, clock), folder, clock)

    def launch(self, spec: JobSpec = JOB, run_id: str = "calm-heron-3f1a") -> Run:
        run = create_run(spec, dump_job(spec), self.services, run_id=run_id, out_dir="/nowhere")
        return drive(run, spec, self.services)

    def avoided(self) -> AvoidedHosts:
        return avoided(self.services.ledger.runs(), "vast", self.services.clock.now())


@pytest.fixture
def desk(tmp_path: Path) -> Iterator[Desk]:
    machines = [Machine(id=number) for number in range(41000, 41004)]
    with VastEmulator(machines, rate_limits=False) as vast:
        yield Desk(vast, tmp_path)


@pytest.mark.parametrize(
    ("fault", "said"),
    [
        ("wrong_gpu", "instead of RTX 4090"),
        ("small_disk", "10 GB disk instead of 20"),
        ("old_driver", "CUDA"),
        ("higher_price", "/h instead of $"),
        ("oci_failure", "failed to start containers"),
        ("never_scheduled", "never scheduled"),
        ("pull_eof", "unexpected EOF"),
        ("build_failure", "docker_build() error"),
    ],
)
@pytest.mark.sampled(3)
def test_a_bad_machine_is_given_back_and_its_host_avoided(desk: Desk, fault: str, said: str) -> None:
    desk.vast.faults.add(fault)
    run = desk.launch()
    assert (run.cause, run.phase) == (Cause.HOST, Phase.ENDED)
    assert run.failed_in in (Phase.RENT, Phase.BOOT)
    assert said in run.detail
    assert len(desk.vast.instances) == 0
    assert desk.avoided().machines == {run.host}
    assert run.host not in {
        offer.host
        for offer in choose_offers(JOB, desk.services.provider, desk.avoided(), now=desk.services.clock.now())
    }


def test_after_a_failure_the_next_run_is_at_another_site(tmp_path: Path) -> None:
    machines = [Machine(id=number, gpu_usd=0.3, address="45.3.2.1") for number in range(41000, 41004)]
    with VastEmulator([*machines, Machine(id=42000)], rate_limits=False) as vast:
        desk = Desk(vast, tmp_path)
        vast.faults.add("oci_failure", times=2)
        hosts = [desk.launch(run_id=f"calm-heron-{number}").host for number in (1, 2)]
    assert hosts[0] != "42000"
    assert hosts[1] == "42000"


@pytest.mark.parametrize("fault", ["image_not_found", "pull_denied"])
def test_an_image_that_cannot_be_pulled_is_not_the_host_s_fault(desk: Desk, fault: str) -> None:
    desk.vast.faults.add(fault)
    run = desk.launch()
    assert run.cause is Cause.USER_ERROR
    assert len(desk.vast.instances) == 0
    assert desk.avoided() == AvoidedHosts()


@pytest.mark.slow
def test_a_host_is_not_blamed_while_vast_cannot_be_asked(desk: Desk) -> None:
    for endpoint in ("list_instances", "show_instance"):
        desk.vast.faults.add("server_error", endpoint=endpoint, times=10_000)
    run = desk.launch()
    assert run.cause is Cause.PROVIDER
    assert run.phase is Phase.DESTROY, "it may still be there"
    assert desk.avoided() == AvoidedHosts()
