"""The market of these tests: machines that take a moment to load, with extras that are worth counting."""

from collections.abc import Sequence

from tests.emulators.asking import ask
from tests.emulators.instance import Pace
from tests.emulators.machines import Machine
from tests.emulators.vast import VastEmulator

LOADING = Pace(created_s=0.3, loading_s=1.2)


def machines(count: int) -> Sequence[Machine]:
    """Storage costs a sixth of what the GPU does. A cent pays for loading and a minute of training."""
    prices = {"storage_usd": 6.0, "inet_down_usd": 0.0002, "inet_up_usd": 0.0002}
    return [Machine(id=41000 + number, inet_down=9000.0, **prices) for number in range(count)]


def vanish(vast: VastEmulator) -> None:
    """Destroy all machines behind the back of their launcher."""
    for instance in list(vast.instances):
        ask(vast, "DELETE", f"/api/v0/instances/{instance.id}/", {})
