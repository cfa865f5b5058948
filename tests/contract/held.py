"""A machine that is held, without a launcher that drives the run: what the slots of `pool` are shares of."""

from dataclasses import dataclass, replace
from pathlib import Path

from tests.runs import a_run
from tests.waiting import eventually
from vastrun.contract import layout
from vastrun.launcher.bundle import Bundler
from vastrun.launcher.config import dump_job
from vastrun.launcher.core import Instance, Phase, RentalOrder, Run
from vastrun.launcher.core.job import JobSpec, Resources
from vastrun.launcher.package_files import onstart_dir
from vastrun.launcher.pool.held_machines import hold_spec
from vastrun.launcher.ports import Provider, Remote
from vastrun.testing.setup import LEASE, small_job


@dataclass(frozen=True)
class HeldMachine:
    """It takes slots. `run` is the row that a launcher would have."""

    run: Run
    instance: Instance
    provider: Provider

    @property
    def remote(self) -> Remote:
        """A shell on the machine itself."""
        return self.provider.connect(self.instance)

    def box(self, folder: Path) -> Path:
        """Its folder, on this computer."""
        return folder / "state" / "boxes" / self.instance.id

    def end(self) -> None:
        """It is gone, with all its slots."""
        eventually(self._is_destroyed, what="the end of the held machine")

    def _is_destroyed(self) -> bool:
        self.provider.destroy(self.instance.id)
        return self.provider.machine(self.instance.id) is None


def hold(
    provider: Provider, folder: Path, *, job: JobSpec | None = None, slots: int = 3, idle_s: float = 600.0
) -> HeldMachine:
    """Rent a machine, ship what it needs, and wait until it takes slots."""
    spec = hold_spec(job or small_job(), slots=slots, hours=10.0, usd=None, idle_s=idle_s)
    run = a_run(
        id="held-owl-0a0a",
        job=spec.name,
        spec_json=dump_job(spec),
        provider=provider.name,
        phase=Phase.TRAIN,
        out_dir=str(folder / "held"),
        created_at=1.0,
    )
    offer = provider.search(replace(spec, resources=Resources(gpus=0, disk_gb=8.0)))[0]
    order = RentalOrder(
        offer=offer,
        label=run.label,
        image=offer.image,
        disk_gb=8.0,
        onstart=(onstart_dir() / "lease.sh").read_text(encoding="utf-8"),
        env={**LEASE, "LEASE_LIFE_S": "36000", "VASTRUN_PROVIDER": provider.name},
        max_usd=0.0,
    )
    instance = provider.rent(order)
    run = replace(
        run, offer=offer, instance_id=instance.id, host=instance.host, rented_at=instance.rented_at,
        usd_per_hour=instance.usd_per_hour,
    )  # fmt: skip
    remote = provider.connect(instance)
    with Bundler({}) as bundler:
        remote.put(bundler.pack(run, spec).path, layout.INBOX_BUNDLE)
    assert remote.run(f"tar -xzf {layout.INBOX_BUNDLE}", timeout_s=60).exit_code == 0
    started = remote.run("bash onstart/run.sh start", timeout_s=60)
    assert started.exit_code == 0, started.stderr
    eventually(lambda: _is_ready(remote), what="a machine that takes slots")
    return HeldMachine(run, instance, provider)


def _is_ready(remote: Remote) -> bool:
    assert not remote.read(layout.EXIT), remote.read(layout.LOG).decode()
    return bool(remote.read(layout.HELD_MACHINE))
