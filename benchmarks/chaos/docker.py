"""What befalls the containers of an emulated Vast, by the hand of their daemon, and which are left."""

import contextlib
import threading
import time
from collections.abc import Callable, Mapping

from docker.errors import APIError
from docker.models.containers import Container

from benchmarks.chaos.troubles import DOCKER_KILL, DOCKER_PAUSE, NETWORK_REMOVED, Trouble
from tests.emulators.vast import VastEmulator

Deed = Callable[[Container], None]


def befall(trouble: Trouble, vast: VastEmulator) -> bool:
    """Whether there was a container to befall. What does not last is undone in time."""
    running = [one for one in vast.containers() if one.status == "running"]
    if not running or (trouble.name == NETWORK_REMOVED and not trouble.seconds and not _trains(running[0])):
        return False
    _do(_DEEDS[trouble.name], running[0])
    if trouble.seconds:
        threading.Timer(trouble.seconds, _do, (_UNDONE_BY[trouble.name], running[0])).start()
    return True


def left_containers(vast: VastEmulator) -> int:
    """So many outlive their instances."""
    deadline = time.monotonic() + 10.0
    while (left := len(vast.containers()) - len(vast.instances)) > 0 and time.monotonic() < deadline:
        time.sleep(0.1)
    return max(left, 0)


def _trains(container: Container) -> bool:
    """One that loses its network before is waited for, then left for another machine: that takes minutes."""
    try:
        return "run.sh main" in str(container.top())
    except APIError:
        return False


def _do(deed: Deed, container: Container) -> None:
    with contextlib.suppress(APIError):  # it may be gone by now
        deed(container)


def _unplug(container: Container) -> None:
    container.client.networks.get("bridge").disconnect(container, force=True)


def _plug(container: Container) -> None:
    container.client.networks.get("bridge").connect(container)


_DEEDS: Mapping[str, Deed] = {
    DOCKER_KILL: Container.kill,
    DOCKER_PAUSE: Container.pause,
    NETWORK_REMOVED: _unplug,
}
_UNDONE_BY: Mapping[str, Deed] = {DOCKER_PAUSE: Container.unpause, NETWORK_REMOVED: _plug}
