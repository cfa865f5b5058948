"""Slots, GPUs, silence and ends: what the contract does not ask of every provider."""

from __future__ import annotations

import os
import shutil
import signal
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from conftest import Lab
from vastrun_ssh_machines import SshMachinesProvider

from vastrun.launcher.core import Instance, Phase, Run
from vastrun.launcher.core.errors import (
    AuthError,
    GoneError,
    HostKeyError,
    IncompleteListError,
    NoOfferError,
    ProviderError,
    UnreachableError,
)
from vastrun.launcher.core.job import JobSpec, Resources
from vastrun.testing.setup import LEASE, ProviderSetup, eventually, small_job


@pytest.fixture
def setup_of_lab(lab: Lab) -> Iterator[ProviderSetup]:
    setup = ProviderSetup(provider=lab.provider(), again=lab.provider)
    yield setup
    setup.clear()


def job(**resources: object) -> JobSpec:
    return replace(small_job(), resources=replace(Resources(gpus=0, disk_gb=8.0), **resources))  # type: ignore[arg-type]


def rent(
    setup: ProviderSetup, spec: JobSpec, machine: str, *, run: str = "calm-heron-3f1a", **env: str
) -> Instance:
    offers = {offer.id: offer for offer in setup.provider.search(spec)}
    order = replace(setup.order(f"vastrun-{run}", env={**LEASE, **env}), offer=offers[machine])
    return setup.provider.rent(order)


def box(lab: Lab, instance: Instance) -> Path:
    name, _, machine = instance.id.partition("@")
    return lab.folder / machine / "boxes" / name


def test_each_run_has_gpus_of_its_own_and_a_full_workstation_is_not_offered(
    lab: Lab, setup_of_lab: ProviderSetup
) -> None:
    provider = setup_of_lab.provider
    seen = []
    for wanted in (1, 2, 1):
        instance = rent(setup_of_lab, job(gpus=wanted), "ada")
        seen.append(provider.connect(instance).run("echo $CUDA_VISIBLE_DEVICES", timeout_s=60).stdout.strip())
    assert seen == ["0", "1,2", "3"]
    assert [offer.id for offer in provider.search(job())] == ["turing"]
    rent(setup_of_lab, job(gpus=4), "turing")
    with pytest.raises(NoOfferError, match="ada: all 3 slots are taken; turing: 1 GPU wanted, 0 of 4 free"):
        provider.search(job(gpus=1))


def test_a_slot_that_another_launcher_took_meanwhile_is_refused(
    lab: Lab, setup_of_lab: ProviderSetup
) -> None:
    offer = next(offer for offer in setup_of_lab.provider.search(job(gpus=3)) if offer.id == "turing")
    rent(setup_of_lab, job(gpus=2), "turing")
    with pytest.raises(NoOfferError, match="turing: 3 GPUs wanted, 2 of 4 free"):
        setup_of_lab.again().rent(replace(setup_of_lab.order("vastrun-late-owl-0a0b"), offer=offer))
    assert [found.label for found in setup_of_lab.provider.instances()] == ["vastrun-calm-heron-3f1a"]


@pytest.mark.parametrize(
    ("resources", "lack"),
    [
        ({"gpus": 8}, "8 GPUs wanted, 4 there"),
        ({"gpus": 1, "gpu_names": ("A100 SXM4",)}, "A100 SXM4 wanted, RTX 4090 there"),
        ({"gpus": 1, "gpu_memory_gb": 80.0}, "80 GB of GPU memory wanted, 24 there"),
        ({"memory_gb": 40.0}, "40 GB of memory wanted, 32 in a slot"),
        ({"cpu_cores": 5}, "5 CPU cores wanted, 4 in a slot"),
        ({"disk_gb": 1e9}, "1e+09 GB of disk wanted, "),
    ],
)
def test_what_a_workstation_lacks_is_said(lab: Lab, resources: dict[str, object], lack: str) -> None:
    with pytest.raises(NoOfferError) as caught:
        lab.provider().search(job(**resources))
    assert f"turing: {lack}" in str(caught.value)


def test_a_silent_workstation_is_not_gone_and_keeps_no_other_run_from_its_end(
    lab: Lab, setup_of_lab: ProviderSetup
) -> None:
    provider = setup_of_lab.provider
    on_ada, on_turing = (rent(setup_of_lab, job(), name) for name in ("ada", "turing"))
    remote = provider.connect(on_turing)
    lab.machines[1].go_silent()
    try:
        with pytest.raises(IncompleteListError, match="turing cannot be reached") as caught:
            provider.instances()
        assert [found.id for found in caught.value.found] == [on_ada.id]
        for asks in (
            lambda: provider.machine(on_turing.id),
            lambda: provider.connect(on_turing),
            lambda: provider.destroy(on_turing.id),
            lambda: remote.read("lease.state"),
        ):
            with pytest.raises(UnreachableError):
                asks()
        assert [offer.id for offer in provider.search(job())] == ["ada"]
        run = Run(
            id="calm-heron-3f1a", job="demo", spec_json="{}", provider="ssh-machines", phase=Phase.TRAIN,
            out_dir="", created_at=1.0, phase_at=1.0, offer=setup_of_lab.offer(),
        )  # fmt: skip
        assert isinstance(provider, SshMachinesProvider)
        assert [found.id for found in provider.instances_for(run)] == [on_ada.id]
        assert "turing cannot be reached" in provider.describe()
        provider.destroy(on_ada.id)
    finally:
        lab.machines[1].start()
    assert [found.id for found in provider.instances()] == [on_turing.id]
    assert remote.read("lease.state")


def test_a_workstation_that_is_no_longer_listed_is_not_gone(lab: Lab, setup_of_lab: ProviderSetup) -> None:
    instance = rent(setup_of_lab, job(), "turing")
    fewer = Lab(lab.folder, lab.machines[:1]).provider()
    for asks in (lambda: fewer.machine(instance.id), lambda: fewer.destroy(instance.id)):
        with pytest.raises(ProviderError, match="no machine 'turing'") as caught:
            asks()
        assert not isinstance(caught.value, GoneError)


def test_destroying_kills_all_that_the_run_started_and_removes_its_folder(
    lab: Lab, setup_of_lab: ProviderSetup
) -> None:
    provider = setup_of_lab.provider
    kept, ended = rent(setup_of_lab, job(), "ada"), rent(setup_of_lab, job(), "ada", run="warm-otter-77aa")
    start = "setsid --fork sleep 4321 >/dev/null 2>&1 </dev/null; echo started"
    for instance in (kept, ended):
        assert provider.connect(instance).run(start, timeout_s=60).stdout == "started\n"
    provider.destroy(ended.id)
    provider.destroy(ended.id)
    assert not box(lab, ended).exists()
    assert [found.id for found in provider.instances()] == [kept.id]
    alive = [path for path in Path("/proc").glob("[0-9]*/environ") if ended.id.encode() in _bytes(path)]
    name = ended.id.partition("@")[0].encode()
    assert not alive and not [path for path in Path("/proc").glob("[0-9]*/environ") if name in _bytes(path)]


def _bytes(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError:
        return b""


def test_the_lease_ends_the_box_without_a_launcher(lab: Lab, setup_of_lab: ProviderSetup) -> None:
    instance = rent(setup_of_lab, job(), "ada", LEASE_LIFE_S="2", LEASE_GRACE_S="1")
    eventually(lambda: not box(lab, instance).exists(), what="the end of the lease")
    assert setup_of_lab.provider.machine(instance.id) is None
    with pytest.raises(GoneError):
        setup_of_lab.provider.connect(instance)


def test_a_lease_that_ended_with_its_computer_is_started_again_and_counts_on(
    lab: Lab, setup_of_lab: ProviderSetup
) -> None:
    provider = setup_of_lab.provider
    instance = rent(setup_of_lab, job(gpus=1), "ada")
    state = dict(line.split("=", 1) for line in (box(lab, instance) / "lease.state").read_text().splitlines())
    os.kill(int(state["pid"]), signal.SIGKILL)
    eventually(lambda: provider.machine(instance.id).state == "stopped", what="a lease that is gone")  # type: ignore[union-attr]
    again = provider.connect(instance).read("lease.state").decode()
    assert provider.machine(instance.id).state == "running"  # type: ignore[union-attr]
    assert f"armed_at={state['armed_at']}" in again


def test_what_a_program_wrote_over_its_note_hides_no_box(lab: Lab, setup_of_lab: ProviderSetup) -> None:
    instance = rent(setup_of_lab, job(gpus=1), "ada")
    for text in ("\x1b[2J 9,9,9\nbox x 1 1 -", "9" * 400, "", "-1 -1"):
        (box(lab, instance) / ".rented").write_text(text)
        found = setup_of_lab.provider.machine(instance.id)
        assert found is not None
        assert (found.label, found.usd_per_hour) == (instance.label, 0.0)
    (box(lab, instance) / ".rented").unlink()
    os.mkfifo(box(lab, instance) / ".rented")
    assert setup_of_lab.provider.machine(instance.id) is not None


def test_another_host_key_than_the_file_s_is_refused(lab: Lab) -> None:
    machine = lab.machines[0]
    for fingerprint, accepted in ((machine.fingerprint, True), ("SHA256:" + "a" * 43, False)):
        shutil.rmtree(lab.folder / "state", ignore_errors=True)  # there is none before a first connection
        machine.options = {**machine.options, "host_key": fingerprint}
        try:
            one = Lab(lab.folder, [machine]).provider()
            if accepted:
                assert one.instances() == []
            else:
                with pytest.raises(HostKeyError, match="ada"):
                    one.machine("calm-heron-3f1a.0a0b0c0d@ada")
        finally:
            machine.options = {key: value for key, value in machine.options.items() if key != "host_key"}
    shutil.rmtree(lab.folder / "state", ignore_errors=True)


def test_a_key_that_is_rejected_is_no_silence(lab: Lab) -> None:
    machine = lab.machines[0]
    keys = machine.folder / "authorized_keys"
    content = keys.read_text()
    keys.write_text("")
    try:
        with pytest.raises(AuthError, match="ada does not accept your key"):
            lab.provider().machine("calm-heron-3f1a.0a0b0c0d@ada")
    finally:
        keys.write_text(content)


def test_the_environment_names_the_file(of_environment: SshMachinesProvider) -> None:
    assert of_environment.instances() == []
    assert of_environment.describe() == "ada: 0 of 3 slots taken; turing: 0 of 2 slots taken"
