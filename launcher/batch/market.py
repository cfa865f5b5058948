"""Market of a batch: cached offers of machines for one point, and for several at once."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from vastrun.launcher.core import Offer
from vastrun.launcher.core.errors import VastrunError
from vastrun.launcher.core.job import JobSpec
from vastrun.launcher.decisions.hold_size import IDLE_S, expected_s
from vastrun.launcher.decisions.host_history import HOST_CAUSES, avoided
from vastrun.launcher.decisions.placement import CheapestFleet, cheapest_fleet
from vastrun.launcher.decisions.policy import affordable
from vastrun.launcher.decisions.pool import hold_spec
from vastrun.launcher.ports import Ledger, Provider

_MAX_PRICE_AGE_S = 60.0
"""Seconds for which prices are cached. A rental uses current prices."""
_SLOT_COUNTS = (1, 2, 4, 8)
"""Numbers of concurrent points on one machine. GPUs come in powers of two."""


class Market:
    """One provider's, as a batch asks it."""

    def __init__(self, provider: Callable[[str], Provider], ledger: Ledger, now: Callable[[], float]) -> None:
        self._provider, self._ledger, self._now = provider, ledger, now
        self._known: dict[str, tuple[float, Sequence[Offer]]] = {}

    def offers(self, provider: str, job: JobSpec) -> Sequence[Offer]:
        """Return machines for one run of the job; none where the market has none, or does not answer.

        Whoever rents there hears why.
        """
        # What a point changes is seldom what a market asks for: all points share one answer.
        key = "\n".join((provider, str(job.resources), str(job.image), str(job.limits.usd_per_hour)))
        asked_at, offers = self._known.get(key, (0.0, ()))
        if not 0 <= self._now() - asked_at < _MAX_PRICE_AGE_S:
            offers = self._search(provider, job)
            self._known[key] = (self._now(), offers)
        return offers

    def cheapest_machines(
        self, provider: str, job: JobSpec, points: int, measured_s: Sequence[float], *, packs: bool
    ) -> CheapestFleet | None:
        """Return the machines on which `points` points cost least; None: the market has none."""
        sizes = [size for size in _SLOT_COUNTS if size <= points] if packs and job.resources.gpus else [1]
        offers = [offer for size in sizes for offer in self.offers(provider, _hold_job(job, size))]
        if not offers:
            return None
        return cheapest_fleet(
            points,
            offers,
            gpus=job.resources.gpus,
            seconds=expected_s(job, offers[0], measured_s),
            max_slots=sizes[-1],
        )

    def _search(self, provider: str, job: JobSpec) -> Sequence[Offer]:
        avoid = avoided(self._ledger.runs(causes=HOST_CAUSES, members=True), provider, self._now())
        try:
            found = affordable(job, self._provider(provider).search(job))
        except VastrunError:
            return ()
        return [offer for offer in found if offer.host not in avoid]


def _hold_job(job: JobSpec, slots: int) -> JobSpec:
    return hold_spec(job, slots=slots, hours=job.limits.hours, usd=job.limits.usd, idle_s=IDLE_S)
