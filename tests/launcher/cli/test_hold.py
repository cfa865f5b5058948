"""`vastrun hold`: what it says of the slots."""

from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.launcher.terminal import Market, Terminal
from vastrun.launcher.core import Offer
from vastrun.launcher.core.errors import NoOfferError
from vastrun.launcher.core.job import JobSpec


class FullMarket(Market):
    """A provider with no machine that is large enough."""

    def search(self, spec: JobSpec) -> Sequence[Offer]:
        raise NoOfferError("nothing fits", hint="--set resources.disk_gb=74")


@pytest.mark.parametrize(
    ("slots", "hint"),
    [("1", "--set resources.disk_gb=74"), ("3", "one machine must have the resources of 3 slots, ")],
)
def test_a_machine_too_small_for_its_slots_is_refused(tmp_path: Path, slots: str, hint: str) -> None:
    terminal = Terminal(tmp_path)
    terminal.market = FullMarket(terminal.clock, [], usd_per_hour=1.0)
    end = terminal.type("hold", str(terminal.job), "--slots", slots, "-y", "--out", str(tmp_path / "out"))
    assert end.exit_code == 8
    assert hint in end.stderr
    assert ("fewer --slots" in end.stderr) is (slots != "1")
