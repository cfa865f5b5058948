"""What of a job fits a slot of a held machine, and what its share of the price is.

What a shell in a slot can do besides its verbs is what the shell of the machine can.
"""

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from tests.jobs import train_job
from tests.offers import rtx_4090
from tests.remote_abilities import AbleRemote, BareRemote, abilities_of
from tests.runs import a_run
from vastrun.launcher import ports
from vastrun.launcher.config import dump_job, read_job
from vastrun.launcher.core import Instance, Offer, Phase, Run
from vastrun.launcher.core.job import JobSpec, Resources
from vastrun.launcher.core.labels import SlotId, slot_id_of
from vastrun.launcher.decisions.holders import holder_of, is_holder
from vastrun.launcher.pool.held_machines import (
    HeldMachineRow,
    held_machines,
    hold_spec,
    is_for,
    slot_offer,
    unfit_reason,
    units_of,
)
from vastrun.launcher.pool.machine import HeldMachine

NOW = 1_800_000_000.0
JOB = train_job(resources=Resources(gpus=1, gpu_memory_gb=20, memory_gb=16, disk_gb=10))


def held(job: JobSpec = JOB, *, slots: int = 8, gpu: str = "A100 SXM4", **changes: object) -> HeldMachineRow:
    """A machine for eight of these jobs, at $8 an hour."""
    spec = hold_spec(job, slots=slots, hours=10.0, usd=None, idle_s=60.0)
    run = a_run(
        id="held-owl-0a0a",
        spec_json=dump_job(spec),
        provider="vast",
        phase=Phase.TRAIN,
        created_at=NOW,
        offer=rtx_4090(
            8, gpu_name=gpu, gpu_memory_gb=40, disk_gb=200, usd_per_hour=8, cuda=12.4, image="ours@sha256:0"
        ),
        instance_id="4711",
        host="m1",
        usd_per_hour=8.0,
        rented_at=NOW,
    )
    (found,) = held_machines([replace(run, **changes)])  # type: ignore[arg-type]
    return found


def on_slot(number: int = 1, **changes: object) -> Run:
    """A run on a slot of that machine."""
    run_id = f"calm-heron-{number:04x}"
    run = a_run(
        id=run_id,
        spec_json=dump_job(JOB),
        provider="pool",
        phase=Phase.TRAIN,
        created_at=NOW,
        instance_id=f"{run_id}.0000@held-owl-0a0a",
        usd_per_hour=1.0,
        rented_at=NOW,
    )
    return replace(run, **changes)  # type: ignore[arg-type]


def test_a_machine_of_a_batch_is_for_the_runs_that_name_it_alone() -> None:
    everybodys, a_batchs = held(), held(batch="widths")
    named = replace(JOB, slot_on=a_batchs.run.id)
    assert is_for(JOB, everybodys) and not is_for(JOB, a_batchs)
    assert is_for(named, a_batchs)
    assert not is_for(replace(JOB, slot_on="held-owl-0b0b"), a_batchs)


def test_a_run_that_names_its_machine_belongs_there_before_it_has_an_offer() -> None:
    run = on_slot(1, instance_id=None, spec_json=dump_job(replace(JOB, slot_on="held-owl-0a0a")))
    assert holder_of(run) == "held-owl-0a0a"


def test_each_slot_is_paid_for_as_a_machine_would_be() -> None:
    job = replace(JOB, limits=replace(JOB.limits, usd_per_hour=0.5))
    assert hold_spec(job, slots=8, hours=1.0, usd=None, idle_s=60.0).limits.usd_per_hour == 4.0


def test_a_machine_that_is_held_asks_for_all_that_its_slots_ask_for() -> None:
    spec = hold_spec(JOB, slots=8, hours=10.0, usd=50.0, idle_s=60.0)
    assert (spec.resources.gpus, spec.resources.memory_gb, spec.resources.disk_gb) == (8, 128, 80)
    assert spec.hold is not None
    assert spec.hold.slots == 8
    assert spec.command is None
    assert read_job(dump_job(spec)) == spec


def test_only_a_run_without_a_job_of_its_own_holds_a_machine() -> None:
    assert is_holder(held().run)
    assert not is_holder(on_slot())
    assert held_machines([on_slot()]) == []


def test_a_job_of_more_gpus_has_more_parts() -> None:
    assert units_of(JOB.resources, held()) == 1
    assert units_of(replace(JOB.resources, gpus=4), held()) == 4
    assert units_of(replace(JOB.resources, memory_gb=40), held()) == 3


def test_a_share_of_three_times_a_size_is_that_size() -> None:
    job = train_job(resources=Resources(gpus=0, memory_gb=0.6, disk_gb=8.1))
    machine = held(job, slots=3)
    assert units_of(job.resources, machine) == 1
    assert unfit_reason(job, machine, NOW) == ""


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"gpus": 16}, "16 GPUs wanted, it has 8"),
        ({"gpu_memory_gb": 80}, "it has 8 x A100 SXM4"),
        ({"gpu_names": ("H100",)}, "it has 8 x A100 SXM4"),
        ({"cuda": 12.8}, "it has 8 x A100 SXM4"),
        ({"disk_gb": 11}, "11 GB of disk wanted, 10 in its share"),
        ({"reliability": 0.99}, "it was chosen with less reliability"),
        ({"regions": ("US",)}, "it may be in another region"),
        ({"down_mbps": 100}, "its download speed was not asked for"),
        ({"up_mbps": 100}, "its upload speed was not asked for"),
        ({"disk_mbps": 500}, "the speed of its disk was not asked for"),
        ({"cpu_cores": 8}, "8 CPU cores wanted, 0 asked for its share"),
        ({"gpus": 2, "nvlink": True}, "NVLink was not asked for"),
        ({"datacenter": True}, "it may be outside a datacenter"),
        ({"static_ip": True}, "its IP address may change"),
        ({"memory_gb": 999}, "999 GB of memory wanted, it has 128"),
    ],
)
def test_a_hard_limit_that_is_not_met_is_named(changes: dict[str, object], why: str) -> None:
    job = replace(JOB, resources=replace(JOB.resources, **changes))  # type: ignore[arg-type]
    assert unfit_reason(job, held(), NOW) == why


@pytest.mark.parametrize("names", [(), ("A100",), ("a100 sxm4",), ("H100", "A100")])
def test_a_job_that_fits_has_no_reason_against_it(names: tuple[str, ...]) -> None:
    job = replace(JOB, resources=replace(JOB.resources, gpu_names=names))
    assert unfit_reason(job, held(), NOW) == ""


def test_a_machine_that_may_be_taken_away_is_for_those_who_said_so() -> None:
    bid = replace(JOB, resources=replace(JOB.resources, interruptible=True))
    assert unfit_reason(JOB, held(bid), NOW) == "it may be taken away"
    assert unfit_reason(bid, held(bid), NOW) == ""


def test_a_machine_that_ends_soon_or_is_given_back_takes_nothing() -> None:
    assert unfit_reason(JOB, held(), NOW + 10 * 3600 - 100) == "its lease ends soon"
    assert unfit_reason(JOB, held(phase=Phase.COLLECT), NOW) == "it is being destroyed"


def test_another_image_is_another_machine() -> None:
    assert unfit_reason(replace(JOB, image="mine@sha256:1"), held(), NOW) == "it runs another image"
    mine = replace(JOB, image="mine@sha256:1")
    assert unfit_reason(mine, held(mine), NOW) == ""
    assert unfit_reason(JOB, held(mine), NOW) == "it runs another image"


@pytest.mark.parametrize(("gpus", "disk_gb"), [(1, 10.0), (2, 20.0), (3, 30.0), (8, 80.0)])
def test_a_slot_of_several_parts_has_the_disk_of_each(gpus: int, disk_gb: float) -> None:
    job = replace(JOB, resources=replace(JOB.resources, gpus=gpus, disk_gb=disk_gb))
    assert unfit_reason(job, held(), NOW) == ""
    assert slot_offer(job, held(), hours=1.0).disk_gb == disk_gb


def test_all_of_a_slot_s_offer_is_of_its_machine_and_its_share() -> None:
    job = replace(JOB, resources=replace(JOB.resources, gpus=2))
    assert slot_offer(job, held(), hours=3.0) == Offer(
        id="held-owl-0a0a",
        host="m1",
        gpu_name="A100 SXM4",
        gpus=2,
        gpu_memory_gb=40.0,
        disk_gb=20.0,
        usd_per_hour=2.0,
        description="slot on vast: 2/8 of held-owl-0a0a, 2 x A100 SXM4",
        expected_usd=6.0,
        image="ours@sha256:0",
        image_whole=held().offer.image_whole,
        cuda=12.4,
    )


def test_a_slot_without_a_gpu_says_so() -> None:
    job = replace(JOB, resources=Resources(gpus=0, memory_gb=16, disk_gb=10))
    offer = slot_offer(job, held(), hours=1.0)
    assert (offer.gpus, offer.gpu_name, offer.gpu_memory_gb) == (0, None, 0.0)
    assert offer.description.endswith("1/8 of held-owl-0a0a, no GPU")


@pytest.mark.parametrize(("left_s", "why"), [(300.0, ""), (299.0, "its lease ends soon")])
def test_a_machine_takes_slots_until_five_minutes_before_its_end(left_s: float, why: str) -> None:
    machine = held()
    assert unfit_reason(JOB, machine, NOW + machine.left_s(NOW) - left_s) == why


def test_the_id_of_a_slot_is_read_as_it_is_written() -> None:
    slot = SlotId(name="calm-heron-3f1a.0a0b", holder="held-owl-0a0a")
    assert slot_id_of(str(slot)) == slot
    for other in ("", "x", "a@b", "../x.0000@y", "x.0000@", "x.0000@y/z", "x.0000@y\n"):
        assert slot_id_of(other) is None


def slot_on(remote: ports.Remote) -> ports.Remote:
    """A shell in a slot of a machine on which that shell opens."""
    machine = Instance(id="4711", label="", state="running", usd_per_hour=8.0, rented_at=0.0)
    provider: Any = SimpleNamespace(machine=lambda _: machine, connect=lambda _: remote)
    return HeldMachine(held(), provider).connect("calm")


def test_every_optional_interface_of_a_remote_is_handed_on() -> None:
    # `isinstance` asks a remote for them, which the type checker allows of these protocols alone.
    interfaces = {
        one for one in vars(ports.abilities).values() if getattr(one, "_is_runtime_protocol", False)
    }
    assert interfaces == set(ports.REMOTE_ABILITIES)


def test_a_slot_has_every_ability_of_its_machine_on_every_python() -> None:
    machine = AbleRemote()
    slot = slot_on(machine)
    assert abilities_of(slot) == abilities_of(machine)
    assert isinstance(slot, ports.Interruptible)
    slot.abort()
    assert machine.aborted == 1


def test_a_slot_of_a_machine_without_abilities_has_none_of_them() -> None:
    slot = slot_on(BareRemote())
    assert not abilities_of(slot) & {ports.ChecksIdentity, ports.Interruptible, ports.OpensTerminal}
