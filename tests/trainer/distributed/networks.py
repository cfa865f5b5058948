"""Two network namespaces of this computer with a cable between them: as two machines are to each other."""

import secrets
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass


@dataclass(frozen=True)
class Machine:
    """A network of its own, with one interface besides loopback."""

    namespace: str
    interface: str
    address: str

    def command(self, *words: str) -> list[str]:
        """The same command, run there."""
        return ["ip", "netns", "exec", self.namespace, *words]


@contextmanager
def two_machines() -> Iterator[tuple[Machine, Machine]]:
    """Gone at the end, whatever happened."""
    mark = secrets.token_hex(3)
    machines = tuple(Machine(f"vr{mark}-{n}", f"vr{mark}-{n}", f"10.213.7.{n + 1}") for n in (0, 1))
    first, second = machines
    try:
        for machine in machines:
            _ip("netns", "add", machine.namespace)
        _ip("link", "add", first.interface, "netns", first.namespace, "type", "veth",
            "peer", "name", second.interface, "netns", second.namespace)  # fmt: skip
        for machine in machines:
            here = ("-n", machine.namespace)
            _ip(*here, "address", "add", f"{machine.address}/24", "dev", machine.interface)
            _ip(*here, "link", "set", machine.interface, "up")
            _ip(*here, "link", "set", "lo", "up")
        yield first, second
    finally:
        for machine in machines if shutil.which("ip") else ():
            subprocess.run(["ip", "netns", "delete", machine.namespace], check=False, capture_output=True)


def may_be_made() -> bool:
    """Whether this computer lets us."""
    try:
        with two_machines():
            return True
    except (OSError, subprocess.CalledProcessError):
        return False


def _ip(*words: str) -> None:
    subprocess.run(["ip", *words], check=True, capture_output=True)
