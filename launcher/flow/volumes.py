"""The data volume of a run: created by the first run, attached by later ones, never a reason to fail."""

from __future__ import annotations

from dataclasses import replace

from vastrun.launcher.core import ListedVolume, Offer, Volume, VolumeOrder, volume_label
from vastrun.launcher.core.errors import AuthError, BudgetError, NoOfferError, ProviderError, UsageError
from vastrun.launcher.core.job import DataVolume, JobSpec
from vastrun.launcher.core.volumes import HOURS_A_MONTH
from vastrun.launcher.flow.context import RunContext
from vastrun.launcher.ports import HasVolumes, Ledger, Provider

DOWNLOAD_MBPS = 500.0
"""Download speed, in Mbit/s, by which the time to fetch a volume's data again is estimated."""


def check_volumes_supported(spec: JobSpec, provider: Provider) -> None:
    """Raise UsageError where the job asks for a volume and the provider has none."""
    if spec.volume is not None and provider.abilities.volumes is None:
        raise UsageError(
            f"volume: {provider.name} has no data volumes; vast has",
            hint="--set volume=null, or --provider vast",
        )


def find_volume(spec: JobSpec, provider: str, ledger: Ledger) -> Volume | None:
    """Return the job's volume as the ledger has it; None: it has none yet, or asks for none."""
    return None if spec.volume is None else ledger.volumes.find(provider, spec.volume.name)


def prefer_volume(spec: JobSpec, offers: list[Offer], volume: Volume | None) -> list[Offer]:
    """Put the machine that has the volume first where it is worth its price.

    With a deadline the order stays: what is done in time comes first.
    """
    if volume is None or spec.limits.deadline is not None:
        return offers
    return prefer_host(offers, volume.host, volume.gb)


def order_volume(context: RunContext, offer: Offer) -> VolumeOrder | None:
    """Return the volume to order with the offer; None: the run keeps its data on the machine's own disk.

    The row of a new volume is written before the order, so that a launcher that is killed in between leaves
    no volume that the ledger does not know.
    """
    request, able = context.spec.volume, context.services.provider.abilities.volumes
    if request is None or able is None:
        return None
    try:
        return _VolumeSearch(context, request, able, offer).order()
    except BudgetError as error:
        report_no_volume(context, f"its price does not fit the budget: {error}")
    except (_NoVolumeError, AuthError, NoOfferError, ProviderError) as error:
        report_no_volume(context, str(error))
    return None


def cancel_order(context: RunContext, order: VolumeOrder) -> None:
    """Record that the provider rejected the order with that volume: the new volume does not exist.

    If it exists nevertheless, its label is found in the provider's list.
    """
    request, records = context.spec.volume, context.services.ledger.volumes
    known = None if request is None else records.find(context.run.provider, request.name)
    if not order.volume_id and known is not None and not known.volume_id:
        records.save(replace(known, deleted_at=known.created_at))


def report_no_volume(context: RunContext, reason: str) -> None:
    """Report that the run continues without its volume, and why."""
    name = "" if context.spec.volume is None else context.spec.volume.name
    context.report(f"without volume {name}, on the machine's own disk: {reason}")


class _NoVolumeError(Exception):
    """The run cannot have its volume with this offer. The text says why."""


class _VolumeSearch:
    """The search of one run for its volume, for one offer."""

    def __init__(self, context: RunContext, request: DataVolume, able: HasVolumes, offer: Offer) -> None:
        self._context, self._request, self._able, self._offer = context, request, able, offer
        self._records = context.services.ledger.volumes
        self._label = volume_label(context.services.ledger.id, request.name)

    def order(self) -> VolumeOrder:
        known = self._records.find(self._context.run.provider, self._request.name)
        listed = self._listed()
        if listed is not None:
            return self._attached(known, listed)
        if known is not None:
            self._must_be_gone(known)
        return self._created()

    def _listed(self) -> ListedVolume | None:
        """Return the volume of that label: one in use before others, then the oldest."""
        found = [one for one in self._able.volumes() if one.label == self._label]
        return min(found, key=lambda one: (not one.in_use, len(one.id), one.id), default=None)

    def _must_be_gone(self, known: Volume) -> None:
        """Raise where it may still exist: the list is late, or it was only just ordered."""
        known = known.not_listed(self._context.now())
        self._records.save(known)
        if known.deleted_at is None:
            raise _NoVolumeError("the provider does not list it now; a list may be late")
        self._context.report(f"volume {known.name} is gone: the provider no longer lists it")

    def _attached(self, known: Volume | None, listed: ListedVolume) -> VolumeOrder:
        # An order that was refused may have been done all the same: its row says that it is gone.
        rows = [row for row in self._records.all() if row.label == self._label]
        if known is None and not rows:
            raise _NoVolumeError(f"volume {listed.id} has its label and is not in this ledger")
        known = (known or rows[0]).listed_as(listed)
        self._records.save(known)
        if known.host != self._offer.host:
            raise _NoVolumeError(f"it is on machine {known.host}, and this run rents {self._offer.host}")
        if listed.in_use:
            raise _NoVolumeError("another machine uses it, or did until a moment ago")
        if known.gb != self._request.gb:
            sizes = f"it has {known.gb:.0f} GB, and the job asks for {self._request.gb}"
            self._context.report(f"volume {known.name}: {sizes}; the size of a volume cannot change")
        self._records.save(replace(known, used_at=self._context.now(), run_id=self._context.run.id))
        self._context.report(
            f"volume {known.name} is attached: it has what earlier runs kept in $VASTRUN_DATA"
        )
        return VolumeOrder(label=self._label, gb=self._request.gb, volume_id=listed.id)

    def _created(self) -> VolumeOrder:
        context, request = self._context, self._request
        found = self._able.volume_offer(self._offer.host, request.gb)
        if found is None:
            raise _NoVolumeError(f"machine {self._offer.host} has no room for a volume of {request.gb} GB")
        usd_per_month = found.usd_per_gb_month * request.gb
        if usd_per_month > request.max_usd_per_month:
            limit = f"volume.usd_per_month allows ${request.max_usd_per_month:.2f}"
            raise _NoVolumeError(f"it would cost ${usd_per_month:.2f} a month there, and {limit}")
        now = context.now()
        volume = Volume(
            provider=context.run.provider,
            name=request.name,
            label=self._label,
            host=self._offer.host,
            gb=request.gb,
            usd_per_hour=usd_per_month / HOURS_A_MONTH,
            created_at=now,
            used_at=now,
            run_id=context.run.id,
        )
        # Only for the run's hours: no run can reserve what the volume costs after it.
        usd = volume.usd_per_hour * context.spec.limits.hours
        if not self._records.add(volume, context.services.budgets(now), usd):
            raise _NoVolumeError("another run is creating it")
        context.report(
            f"volume {request.name} is created on machine {self._offer.host}: ${usd_per_month:.2f} a month "
            f"until `vastrun reap --provider {context.run.provider} --volume {request.name}`"
        )
        return VolumeOrder(label=self._label, gb=request.gb, offer_id=found.id)


def prefer_host(offers: list[Offer], host: str, gb: float) -> list[Offer]:
    """Put the best offer of `host` first where it costs no more than the best one and `gb` of downloads."""
    with_volume = next((offer for offer in offers if offer.host == host), None)
    if with_volume is None or _extra_usd(with_volume, offers[0]) > download_usd(offers[0], gb):
        return offers
    return [with_volume, *(offer for offer in offers if offer is not with_volume)]


def download_usd(offer: Offer, gb: float) -> float:
    """Return the cost of downloading `gb` on a machine: its traffic, and its price meanwhile."""
    hours = gb * 8000 / DOWNLOAD_MBPS / 3600
    return gb * offer.extras.down_usd_per_gb + hours * offer.usd_per_hour


def _extra_usd(with_volume: Offer, best: Offer) -> float:
    """Return by how much the job costs more there; by the hour where its length is not known."""
    if with_volume.expected_usd and best.expected_usd:
        return with_volume.expected_usd - best.expected_usd
    return with_volume.usd_per_hour - best.usd_per_hour
