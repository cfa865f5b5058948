"""All parts of the emulator, put together; one lock guards them."""

import secrets
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.conformance.assumptions import Value
from tests.emulators.account import Account
from tests.emulators.answers import Reply
from tests.emulators.behaviour import Behaviour
from tests.emulators.billing import Billing, recorded_tails
from tests.emulators.box import Box, Graphics
from tests.emulators.clock import Clock
from tests.emulators.containers import Containers
from tests.emulators.faults import Faults
from tests.emulators.instance import Pace
from tests.emulators.instances import Fleet
from tests.emulators.limits import Limits
from tests.emulators.machines import Machine
from tests.emulators.market import Market
from tests.emulators.overlays import Overlays
from tests.emulators.schedules import Schedules


@dataclass(frozen=True, kw_only=True)
class Settings:
    """How the emulated Vast behaves where the real one may be one way or another."""

    machines: Sequence[Machine]
    seed: int = 0
    credit_usd: float = 100.0
    pace: Pace = field(default_factory=Pace)
    rate_limits: bool = True
    ports_by_id: bool = True
    """Whether a look at one instance shows its ports."""
    subnet: str = "127.0.0.0/8"
    """Of its overlays: where its boxes reach each other."""
    seen: Mapping[str, Value] = field(default_factory=dict)
    """By assumption, what it does otherwise than usual."""
    tails: bool = False
    """Whether billing ends as long after a machine, or before it, as was recorded; else at its end."""


@dataclass(frozen=True)
class Result:
    """Text that can be fetched from a moment on."""

    text: str
    ready_at: float


class World:
    """The state behind the API."""

    def __init__(
        self,
        settings: Settings,
        clock: Clock,
        folder: Path,
        url: str,
        make_box: Callable[[str, Graphics], Box],
    ) -> None:
        self.settings = settings
        self.clock = clock
        self.url = url
        self.folder = folder
        self.behaviour = Behaviour(settings.seen)
        self.lock = threading.RLock()
        self.faults = Faults()
        self.account = Account(settings.credit_usd)
        self.limits = Limits(clock, self.behaviour, enabled=settings.rate_limits)
        self.market = Market(settings.machines, clock, seed=settings.seed)
        tail_s = recorded_tails(settings.seed) if settings.tails else lambda: 0.0
        self.billing = Billing(self.account, clock, lag_s=settings.pace.charges_s, tail_s=tail_s)
        self.overlays = Overlays(settings.subnet)
        self.containers = Containers(self.faults, self.behaviour, folder, url, make_box)
        self.instances = Fleet(
            clock=clock,
            market=self.market,
            account=self.account,
            billing=self.billing,
            faults=self.faults,
            containers=self.containers,
            behaviour=self.behaviour,
            pace=settings.pace,
        )
        self.schedules = Schedules(clock, self.faults, self.instances)
        self._cut_until = 0.0
        self._frozen_until = 0.0
        self._miscounts_until = 0.0
        self._last_list: list[dict[str, Any]] = []
        self._results: dict[str, Result] = {}

    def settle(self) -> None:
        """Everything that was due until now has happened, and is billed."""
        self.instances.settle()
        self.schedules.settle()

    def cut(self, seconds: float) -> None:
        """Nobody outside reaches the API or a box for so long; boxes reach the API."""
        self._cut_until = self.clock.now() + seconds
        self.instances.cut(seconds)

    def reaches(self, token: str | None) -> bool:
        """Whether who calls with that key gets through: boxes always do."""
        key = self.account.keys.get(token or "")
        inside = key is not None and key.instance_id is not None
        return inside or self.clock.now() >= self._cut_until

    def frozen(self, rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
        """What the list shows: these rows, or for a while what it showed last."""
        now = self.clock.now()
        fault = self.faults.take("frozen_list")
        if fault:
            self._frozen_until = now + (20.0 if fault.seconds is None else fault.seconds)
        if now >= self._frozen_until:
            self._last_list = rows
        return self._last_list

    def miscounted(self) -> int:
        """By how much the list's count is wrong."""
        fault = self.faults.take("count_off")
        if fault:
            self._miscounts_until = self.clock.now() + (20.0 if fault.seconds is None else fault.seconds)
        return 1 if self.clock.now() < self._miscounts_until else 0

    def download(self, size: int) -> Reply:
        """So many bytes, which count as traffic of what runs: boxes have no addresses of their own here."""
        for instance in self.instances:
            if instance.runs:
                delay_s = self.behaviour.number("download.seconds")
                self.instances.count_download(instance, size, delay_s)
        return Reply(body=bytes(size), content_type="application/octet-stream")

    def publish(self, text: str, *, is_late: bool = False) -> str:
        """The address where the text will be, soon, for anyone who knows it."""
        token = secrets.token_hex(16)
        late = self.faults.take("logs_late") is not None or is_late
        wait_s = float("inf") if late else self.settings.pace.result_s
        self._results[token] = Result(text, self.clock.now() + wait_s)
        return f"{self.url}/results/{token}"

    def result(self, token: str) -> Reply:
        """The published text; 404 before it is ready, as an object store answers."""
        result = self._results.get(token)
        if result is None or self.clock.now() < result.ready_at:
            missing = b'<?xml version="1.0"?><Error><Code>NoSuchKey</Code></Error>'
            return Reply(status=404, body=missing, content_type="application/xml")
        return Reply(body=result.text.encode(), content_type="text/plain")
