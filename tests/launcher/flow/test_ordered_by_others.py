"""What another open run has ordered is not ordered as well: a refusal costs a turn of the market's pace."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from launcher.core import Instance, RentalOrder
from tests.fakebox import Training
from tests.launcher.terminal import Market, Terminal


class CrowdedMarket(Market):
    """At its first order something else is done before it answers."""

    def __init__(self, terminal: Terminal) -> None:
        super().__init__(terminal.clock, [Training()], usd_per_hour=0.8)
        self.orders: list[str] = []
        self.meanwhile: Callable[[], object] = lambda: None

    def rent(self, order: RentalOrder) -> Instance:
        self.orders.append(order.offer.id)
        if len(self.orders) == 1:
            self.meanwhile()
        return super().rent(order)


def test_an_offer_that_another_open_run_has_ordered_comes_last(tmp_path: Path) -> None:
    terminal = Terminal(tmp_path)
    terminal.market = market = CrowdedMarket(terminal)
    market.meanwhile = terminal.launch

    assert terminal.launch().exit_code == 0

    assert market.orders == ["offer-1", "offer-2"]
    assert [str(run.verdict) for run in terminal.ledger.runs()] == ["SUCCEEDED", "SUCCEEDED"]


def test_one_that_an_ended_run_had_is_ordered_again(tmp_path: Path) -> None:
    terminal = Terminal(tmp_path)
    terminal.market = market = CrowdedMarket(terminal)

    assert terminal.launch().exit_code == terminal.launch().exit_code == 0

    assert market.orders == ["offer-1", "offer-1"]
