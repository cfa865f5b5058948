"""One instance: the contract, its state as the API tells it, and the box behind it."""

import sys
from dataclasses import dataclass, field

from tests.emulators.billing import Meter
from tests.emulators.box import Box
from tests.emulators.faults import Place
from tests.emulators.gateway import Port
from tests.emulators.machines import Machine
from tests.emulators.rental import Rental

SSH_PORT = "22/tcp"


@dataclass(frozen=True, kw_only=True)
class Pace:
    """How long the steps of a life take, in seconds of the emulator's clock."""

    created_s: float = 0.1
    """Until the pull begins."""
    loading_s: float = 0.4
    """Pulling the image."""
    restart_s: float = 0.2
    """How long a restarted instance still reads `exited`."""
    result_s: float = 0.2
    """Until a log or the output of a command can be fetched."""
    charges_s: float = 2.0
    """How far charges lag."""


REALISTIC = Pace(created_s=4, loading_s=32, restart_s=60, result_s=1.5, charges_s=300)


@dataclass
class Instance:
    """Mutable: the fleet moves it."""

    id: int
    machine: Machine
    gpus: int
    rental: Rental
    api_key: str
    created_at: float
    end_date: float
    box: Box = field(init=False)
    meter: Meter = field(init=False)
    ports: dict[str, Port] = field(default_factory=dict)
    """By container port, `22/tcp` the direct one; `proxy` is Vast's own ssh host."""
    ssh_keys: dict[int, str] = field(default_factory=dict)
    label: str | None = None
    bid_usd: float | None = None
    actual: str | None = None
    cur: str = "running"
    intended: str = "running"
    status_msg: str | None = None
    daemon_log: str | None = None
    """What the host's daemon logged; None: what status_msg says."""
    log_is_late: bool = False
    """The daemon's log is never ready."""
    running_since: float | None = None
    flaws: set[str] = field(default_factory=set)
    """Names of HARDWARE faults: how the machine differs from its offer."""
    losing: bool = False
    """Lost its GPU to somebody who pays more; runs again when it has priority."""
    hidden_until: float = 0.0
    """The list is late, and does not have it until then."""
    absent_until: float = 0.0
    """Nor is it to be had by its id."""
    price_factor: float = 1.0
    """By which its GPUs' price has changed since it was rented."""
    downloaded: int = 0
    """Bytes that it fetched by itself, as far as they are counted."""
    ended: bool = False
    """The host took the machine back."""
    generation: int = 0
    """Counts its starts, stops and ends: what was due in an earlier generation does not happen."""

    @property
    def address(self) -> str:
        """The machine's own. A Mac has one loopback address only."""
        if sys.platform != "linux":
            return "127.0.0.1"
        return f"127.{64 + self.id % 64}.{self.id // 64 % 256}.{1 + self.id // 16384 % 254}"

    @property
    def place(self) -> Place:
        """Where faults find it."""
        return Place(instance_id=self.id, machine_id=self.machine.id)

    @property
    def runs(self) -> bool:
        """Whether the container is up."""
        return self.running_since is not None

    @property
    def gpu_names(self) -> list[str]:
        """The GPUs in the machine, whatever the offer said."""
        name = "GTX 1080" if "wrong_gpu" in self.flaws else self.machine.gpu_name
        return [name] * (self.gpus - ("fewer_gpus" in self.flaws))

    @property
    def gpu_used_mb(self) -> int:
        """Memory of each GPU that other programs hold."""
        return self.machine.gpu_ram_mb - 1140 if "gpu_memory_used" in self.flaws else 0

    @property
    def driver(self) -> str:
        """The driver in the machine."""
        return "470.57.02" if "old_driver" in self.flaws else self.machine.driver

    @property
    def cuda(self) -> float:
        """The newest that the driver supports."""
        return 11.4 if "old_driver" in self.flaws else self.machine.cuda

    @property
    def gpu_usd_per_hour(self) -> float:
        """For all its GPUs; a bid costs no more than they do on demand."""
        usd = self.machine.gpu_usd * self.gpus
        usd = usd if self.bid_usd is None else min(self.bid_usd, usd)
        return round(usd * self.price_factor * (1.5 if "higher_price" in self.flaws else 1.0), 6)

    @property
    def traffic(self) -> tuple[int, int]:
        """Bytes into and out of the box."""
        ports = self.ports.values()
        return self.downloaded + sum(port.received for port in ports), sum(port.sent for port in ports)

    def state(self, actual: str | None, cur: str, intended: str) -> None:
        """What the row says from now on."""
        self.actual, self.cur, self.intended = actual, cur, intended
