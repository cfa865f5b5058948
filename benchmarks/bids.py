"""Bids: what a job of ten hours is expected to cost on a recorded market, by three rules of renting.

The market is that of 2026-08-17 (tests/launcher/providers/vast/recorded_market.py). Each offer is priced as
by the launcher. A machine rented by a bid is taken away at the rate given, each time at the cost of a new
start and of the work since the newest checkpoint.
"""

from __future__ import annotations

from collections.abc import Sequence

from tests.launcher.providers.vast.recorded_market import recorded_offers
from vastrun.launcher.core.job import Checkpoints, JobSpec, Limits, Resources, Success
from vastrun.launcher.decisions.history import BidHistory, Speed, SpeedHistory
from vastrun.launcher.decisions.market_report import Quote
from vastrun.launcher.image.lock import shipped_lock
from vastrun.launcher.providers.vast.funnel import funnel
from vastrun.launcher.providers.vast.ranking import rank_offers
from vastrun.launcher.providers.vast.rows import OfferRow

RATES = (0.02, 0.1, 0.5)
"""Interruptions per hour."""
_HOURS = 10
_A100 = ("A100 SXM4", "A100 PCIE")
_SAVES = Checkpoints(files="checkpoints/*", every_s=720)
_JOBS = (
    ("1 x RTX 4090", 1, ("RTX 4090",), _SAVES),
    ("1 x RTX 4090, saves nothing", 1, ("RTX 4090",), Checkpoints()),
    ("1 x A100", 1, _A100, _SAVES),
    ("8 x A100", 8, _A100, _SAVES),
)


def run() -> None:
    """Print the table of docs/cost.md."""
    print("| job of 10 h | interruptions per hour | ours | cheapest on demand | always the cheapest bid |")
    print("|---|--:|--:|--:|--:|")
    for name, gpus, gpu_names, checkpoints in _JOBS:
        for rate in RATES:
            by_rule, on_demand, bid = _rules(gpus, gpu_names, checkpoints, rate)
            way = "on demand" if by_rule.offer.bid_usd_per_hour is None else "bid"
            print(
                f"| {name} | {rate:g} | ${by_rule.usd:.2f} ({way}) | ${on_demand.usd:.2f} | ${bid.usd:.2f} |"
            )


def _rules(
    gpus: int, gpu_names: tuple[str, ...], checkpoints: Checkpoints, rate: float
) -> tuple[Quote, Quote, Quote]:
    """Return what each rule rents: the least to finish, the lowest price on demand, the lowest bid."""
    spec = JobSpec(
        name="ten-hours",
        command=("python", "train.py"),
        ranks=gpus,
        resources=Resources(gpus=gpus, gpu_names=gpu_names, disk_gb=20, interruptible=True),
        limits=Limits(hours=_HOURS, usd=1e4),
        checkpoints=checkpoints,
        success=Success(steps=_HOURS * 3600),
    )
    known = SpeedHistory(
        speeds={(name, gpus): Speed(steps_per_s=1.0, runs=1) for name in gpu_names}, bids=_history(rate)
    )
    on_demand, bids = ([row for row in recorded_offers(bid=bid) if row["min_bid"]] for bid in (False, True))
    left = funnel([*on_demand, *bids], spec, shipped_lock(), now=0.0).left
    cheapest = min((row for row in left if not row.is_bid), key=lambda row: row.usd_per_hour)
    lowest = min((row for row in left if row.is_bid), key=lambda row: row.min_bid_usd)
    return _best(left, spec, known), _best([cheapest], spec, known), _best([lowest], spec, known)


def _best(rows: Sequence[OfferRow], spec: JobSpec, known: SpeedHistory) -> Quote:
    return rank_offers(rows, spec, shipped_lock(), known)[0]


def _history(rate: float) -> BidHistory:
    """As much as anybody can know."""
    return BidHistory(hours=1e6, preemptions=round(rate * 1e6))
