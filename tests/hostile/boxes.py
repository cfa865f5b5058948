"""A market whose boxes lie, from a moment on."""

import json
from typing import Literal

from tests.fakebox import FakeBox, Training
from tests.fakes import PRICE, FakeClock, FakeRemote
from tests.hostile.lie import Lie
from tests.launcher.terminal import Market
from vastrun.contract import layout
from vastrun.launcher.core import CommandResult, Instance
from vastrun.launcher.ports import Remote

Since = Literal["boot", "train", "end"]
"""The phase of its run in which a box begins to lie."""

MAX_GAP_S = 2.0
"""Seconds of computing between two looks of the launcher's guard at the user, time and money."""
READ_S, TRICKLE_S = 0.2, 1.0
"""How long a read takes that is answered with a lie, and one of what has no end."""


class LyingMarket(Market):
    """Its boxes tell `lie` once their run is as far as `since`."""

    def __init__(self, clock: FakeClock, lie: Lie, since: Since, training: Training) -> None:
        super().__init__(clock, [training], usd_per_hour=PRICE)
        self.lie, self.since = lie, since

    def shown_by(self, box: FakeBox) -> str:
        return super().shown_by(box) + self.lie.shown

    def connect(self, instance: Instance) -> Remote:
        self.box(instance.id)
        return LyingRemote(self, instance.id)


class LyingRemote(FakeRemote):
    """A shell on a box that lies."""

    _provider: LyingMarket

    def run(self, command: str, *, timeout_s: float) -> CommandResult:
        done, lie = super().run(command, timeout_s=timeout_s), self._lie()
        if command != "bash onstart/status.sh" or lie is None:
            return done
        status = json.loads(done.stdout)
        lie.status(status)
        printed = json.dumps(status) if lie.printed is None else lie.printed
        return CommandResult(exit_code=0, stdout=printed, stderr="")

    def read(self, path: str, *, offset: int = 0, limit: int = 1 << 20) -> bytes:
        lie = self._lie()
        if lie is None:
            return super().read(path, offset=offset, limit=limit)
        content = lie.files.get(path)
        if path == layout.MANIFEST and lie.listed:
            manifest = json.loads(super().read(path, limit=1 << 24) or b'{"files": []}')
            content = json.dumps({"files": [*manifest["files"], *lie.listed]}).encode()
        if content is None:
            return super().read(path, offset=offset, limit=limit)
        self._provider.clock.sleep(TRICKLE_S if callable(content) else READ_S)
        return content(offset, limit) if callable(content) else content[offset : offset + limit]

    def _lie(self) -> Lie | None:
        market = self._provider
        return market.lie if _has_come_to(market.since, self._box()) else None


def _has_come_to(since: Since, box: FakeBox) -> bool:
    if since == "boot":
        return True
    return (box.started_at if since == "train" else box.ended_at) is not None
