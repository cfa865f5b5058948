"""What `plan --explain` shows of a market in which nothing is left."""

from __future__ import annotations

from tests.jobs import train_job
from vastrun.launcher.decisions.market_report import Constraint, MarketReport, Relaxation
from vastrun.launcher.ui.render.market_report import market_report_text

REPORT = MarketReport(
    offers=256,
    unreadable=1,
    constraints=(
        Constraint(name="nvlink", text="NVLink", removed=200),
        Constraint(name="disk_mbps", text="3000 MB/s", removed=55),
    ),
    relaxations=(Relaxation(name="disk_mbps", left=3),),
    quotes=(),
    strictest=Constraint(name="disk_mbps", text="3000 MB/s", removed=250),
    truncated=True,
)


def test_each_limit_is_listed_and_the_one_that_most_offers_fail_is_named() -> None:
    lines = market_report_text(REPORT, train_job()).splitlines()
    assert lines[0].split(maxsplit=1) == ["256", "offers on the market  the cheapest ones; more may exist"]
    assert [line.split()[0] for line in lines[1:5]] == ["-200", "-55", "-1", "0"]
    assert lines[5:] == [
        "250 of 256 offers fail disk_mbps, more than any other limit",
        "relax disk_mbps to get 3",
    ]
