"""An emulator of Vast.ai: its HTTP API, and instances that are real processes or containers on this computer.

`python -m tests.emulators.vast --port P`, or `with VastEmulator() as vast:` in a test.
"""

from __future__ import annotations

import argparse
import signal
import sys
import tempfile
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from tests.conformance.assumptions import Value
from tests.conformance.recorder import read_record
from tests.emulators import ssh_servers
from tests.emulators.answers import Reply
from tests.emulators.api import Request, answer
from tests.emulators.box import Box, Graphics
from tests.emulators.clock import Clock
from tests.emulators.faults import FAULTS
from tests.emulators.instance import REALISTIC, Pace
from tests.emulators.machines import Machine, here_mb, synthetic_machines
from tests.emulators.process_box import ProcessBox
from tests.emulators.server import Server
from tests.emulators.sshd import Sshd
from tests.emulators.world import Settings, World
from vastrun.launcher.core.errors import UsageError

if TYPE_CHECKING:
    from docker.models.containers import Container

    from tests.emulators.docker_host import DockerHost


class VastEmulator:
    """A Vast of one's own. All parts may be looked at and changed while it runs, under `lock`."""

    def __init__(
        self,
        machines: Sequence[Machine] | None = None,
        *,
        port: int = 0,
        clock: Clock | None = None,
        seed: int = 0,
        credit_usd: float = 100.0,
        pace: Pace | None = None,
        rate_limits: bool = True,
        ports_by_id: bool = True,
        image: str | None = None,
        make_box: Callable[[str, Graphics], Box] | None = None,
        seen: Mapping[str, Value] | None = None,
        tails: bool = False,
    ) -> None:
        """`image`: instances are containers of it, whatever image is asked for.

        `make_box`: makes what instances are, in the place of processes. `seen`: what it does otherwise than
        usual, by assumption. `tails`: billing goes on after a machine's end as was recorded.
        """
        self.clock = clock or Clock()
        self._docker = _docker_host(image)
        address = self._docker.address if self._docker else "127.0.0.1"
        self._server = Server((address, port), self._answer, self._shown_time)
        settings = Settings(
            machines=synthetic_machines(40, seed=seed) if machines is None else machines,
            seed=seed,
            credit_usd=credit_usd,
            pace=pace or Pace(),
            rate_limits=rate_limits,
            ports_by_id=ports_by_id,
            subnet="172.16.0.0/12" if self._docker else "127.0.0.0/8",
            seen=seen or {},
            tails=tails,
        )
        self.folder = Path(tempfile.mkdtemp(prefix="vast-"))
        """Where the boxes are: `C.<instance id>` each."""
        make_box = make_box or (self._docker.make_box if self._docker else self._make_process_box)
        self._world = World(settings, self.clock, self.folder, self._server.url, make_box)
        self.lock = self._world.lock
        """Guards everything below."""
        self.market, self.instances = self._world.market, self._world.instances
        self.overlays, self.schedules = self._world.overlays, self._world.schedules
        self.account, self.billing = self._world.account, self._world.billing
        self.faults, self.limits = self._world.faults, self._world.limits
        self._closing = threading.Event()
        self._ticker = threading.Thread(target=self._tick, name="ticker", daemon=True)
        self.requests: list[tuple[str, str]] = []
        """Method and path of every request so far."""

    def __enter__(self) -> VastEmulator:
        self._server.start()
        self._ticker.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def url(self) -> str:
        """The base address, as for VAST_URL."""
        return self._server.url

    @property
    def impostor(self) -> Sshd:
        """Who answers in the place of a box to which `ssh_impostor` happened."""
        return self._world.containers.impostor

    @property
    def login(self) -> str:
        """Who logs in to its boxes: root in containers, and the user who runs it in processes."""
        return "root" if self._docker else ssh_servers.user()

    @property
    def variables(self) -> Mapping[str, str]:
        """With these in its environment, `vastrun` takes it for Vast."""
        return {"VAST_URL": self.url, "VAST_API_KEY": self.account_key, "VAST_LOGIN": self.login}

    @property
    def account_key(self) -> str:
        """The account's API key."""
        return self.account.key

    def containers(self) -> list[Container]:
        """Of all boxes, in whatever state; none where boxes are processes."""
        return self._docker.containers() if self._docker else []

    def advance(self, seconds: float) -> None:
        """It is so much later, and all that was due has happened."""
        with self.lock:
            self.clock.advance(seconds)
            self._world.settle()

    def cut_network(self, seconds: float) -> None:
        """The user is off line for so long: neither API nor boxes answer, but boxes reach the API."""
        with self.lock:
            self._world.cut(seconds)

    def close(self) -> None:
        """Nothing is rented, no process and no folder is left, nobody answers."""
        self._closing.set()
        self._ticker.join()
        self._server.stop()
        with self.lock:
            self.instances.close()
        if self._docker:
            self._docker.close()

    def _make_process_box(self, name: str, graphics: Graphics) -> Box:
        return ProcessBox(root=self.folder / name, graphics=graphics)

    def _answer(self, request: Request) -> Reply:
        self.requests.append((request.method, request.target.partition("?")[0]))
        return answer(self._world, request)

    def _shown_time(self) -> float:
        return self.clock.now() - self._world.behaviour.number("clock.ahead")

    def _tick(self) -> None:
        while not self._closing.wait(0.05):
            with self.lock:
                self._world.settle()


def _docker_host(image: str | None) -> DockerHost | None:
    """Whoever does not ask for containers needs no `docker` installed."""
    if image is None:
        return None
    from tests.emulators.docker_host import DockerHost

    return DockerHost(image)


def main(arguments: Sequence[str] | None = None) -> int:
    """Serves until SIGINT or SIGTERM."""
    options = _parser().parse_args(arguments)
    if options.faults:
        for name, (where, what) in FAULTS.items():
            print(f"{name:26}{where:10}{what}")
        return 0
    try:
        emulator = VastEmulator(
            [
                replace(one, cpu_ram_mb=min(one.cpu_ram_mb, here_mb()))
                for one in synthetic_machines(options.machines, seed=options.seed)
            ],
            port=options.port,
            seed=options.seed,
            clock=Clock(options.speed),
            credit_usd=options.credit,
            pace=REALISTIC if options.realistic else None,
            rate_limits=not options.no_rate_limits,
            image=options.docker,
            seen=read_record(options.like).seen if options.like else None,
        )
    except (RuntimeError, UsageError) as error:
        sys.exit(f"error: {error}")
    for name in options.fault:
        emulator.faults.add(name)
    stop = threading.Event()
    for sign in (signal.SIGINT, signal.SIGTERM):
        signal.signal(sign, lambda *_: stop.set())
    with emulator:
        pairs = (f"{name}={value}" for name, value in emulator.variables.items())
        print("export", *pairs, flush=True)
        stop.wait()
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m tests.emulators.vast", description=__doc__)
    parser.add_argument("--port", type=int, default=0, help="loopback port; any free one by default")
    parser.add_argument("--machines", type=int, default=40, help="size of the market")
    parser.add_argument("--seed", type=int, default=0, help="another market")
    parser.add_argument("--credit", type=float, default=100.0, help="dollars on the account")
    parser.add_argument("--speed", type=float, default=1.0, help="how fast its time passes")
    parser.add_argument("--docker", metavar="IMAGE", help="instances are containers of this image")
    parser.add_argument(
        "--like", metavar="FILE", type=Path, help="as a conformance run has seen the live service to be"
    )
    parser.add_argument("--realistic", action="store_true", help="as slow as the real one")
    parser.add_argument("--no-rate-limits", action="store_true", help="answer however fast calls come")
    parser.add_argument(
        "--fault",
        action="append",
        default=[],
        choices=FAULTS,
        metavar="NAME",
        help="strikes once; repeatable",
    )
    parser.add_argument("--faults", action="store_true", help="list the faults by name")
    return parser


if __name__ == "__main__":
    sys.exit(main())
