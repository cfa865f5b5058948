"""From a job to a machine: choose among offers, rent one, never two."""

from __future__ import annotations

from collections.abc import Collection

from launcher.core import Instance, Meter, Offer, Order
from launcher.core.errors import (
    BusyError,
    NoOfferError,
    UncertainError,
    UnreachableError,
    UsageError,
    VastrunError,
)
from launcher.core.image_ref import Reference
from launcher.core.job import JobSpec
from launcher.decisions import policy
from launcher.decisions.estimates import enough_for, over_the_price
from launcher.decisions.host_history import avoided
from launcher.flow.context import Trip
from launcher.ports import Provider


def choose(spec: JobSpec, provider: Provider, avoid: Collection[str] = ()) -> list[Offer]:
    """Offers that fit the job and its price, best first, on none of the hosts in `avoid`. Costs nothing.

    Raises NoOfferError when there is none, UsageError when the job would spend money without a limit or on an
    image that may change, asks for more machines than a run can have there, or has limits that leave no time
    to train.
    """
    if spec.nodes > provider.most_nodes:
        most = f"{provider.name} rents at most {provider.most_nodes}"
        raise UsageError(
            f"nodes: the job asks for {spec.nodes} machines; {most}",
            hint="--set nodes=1, or start the supervisors yourself: docs/box.md, Several nodes",
        )
    if not provider.free and spec.image and not (spec.image_unpinned or Reference.of(spec.image).is_pinned):
        raise UsageError(
            f"image: {spec.image} has no digest: what it names may change, and this run costs money",
            hint="image: NAME@sha256:… (`docker pull` prints it), or image_unpinned: true",
        )
    found = provider.search(spec)
    fitting = policy.affordable(spec, found)
    if found and not fitting:
        raise over_the_price(spec, found)
    if not fitting:
        raise NoOfferError(
            f"nothing on {provider.name} fits this job", hint="relax resources: or limits.usd_per_hour"
        )
    offers = [offer for offer in fitting if offer.host not in avoid]
    if not offers:
        raise NoOfferError(
            f"{len(fitting)} offers fit, all of them on hosts that failed before",
            hint="see `vastrun hosts` for when they are allowed again, or relax resources:",
        )
    if policy.unlimited(spec, offers[0]):
        raise UsageError(
            f"set a spending limit first: {provider.name} charges money",
            hint="--set limits.usd=5, or set limits.usd or limits.usd_per_hour in the job file",
        )
    return enough_for(spec, offers)


def choose_for(trip: Trip) -> list[Offer]:
    """As `choose`, on hosts that did not fail us lately."""
    provider = trip.tools.provider
    return choose(trip.spec, provider, avoided(trip.tools.ledger.runs(), provider.name, trip.now()))


def rent_anew(trip: Trip) -> Instance:
    """A new machine: the planned offer, or the next one when it was taken."""
    tried: set[str] = set()
    offers = [trip.run.offer] if trip.run.offer else []
    for _ in range(policy.RENT_TRIES):
        offer = next((o for o in offers if o.id not in tried), None)
        if offer is None:
            offers = choose_for(trip)
            offer = next((o for o in offers if o.id not in tried), None)
        if offer is None:
            break
        tried.add(offer.id)
        meter = Meter(extras=offer.extras)
        trip.save(
            offer=offer,
            usd_per_hour=offer.usd_per_hour,
            host=offer.host,
            image=offer.image or "",
            rented_at=trip.now(),
            meter=meter,
        )
        trip.was_refused = False
        try:
            return trip.tools.provider.rent(_order(trip, offer))
        except NoOfferError:
            trip.was_refused = True
            trip.tell(f"offer {offer.id} was taken")
        except UncertainError:
            found = look_for_it(trip)
            if found is not None:
                return found
        except UnreachableError as error:
            trip.was_refused = isinstance(error, BusyError)
            raise
        except VastrunError:
            trip.was_refused = True
            raise
    raise NoOfferError(
        f"none of {len(tried)} offers could be rented", hint="run vastrun launch again in a minute"
    )


def look_for_it(trip: Trip) -> Instance | None:
    """The machine that was asked for before; None when none was, or when it was absent twice.

    Raises ProviderError when the provider cannot tell: whoever comes next looks for it again.
    """
    return None if trip.run.rented_at is None else trip.found_late()


def _order(trip: Trip, offer: Offer) -> Order:
    lease = policy.lease_of(trip.spec, offer)
    env = policy.lease_env(lease) | {
        "VASTRUN_LABEL": trip.run.label,
        "VASTRUN_PROVIDER": trip.tools.provider.name,
    }
    return Order(
        offer=offer,
        label=trip.run.label,
        image=offer.image,
        disk_gb=trip.spec.resources.disk_gb,
        memory_gb=trip.spec.resources.memory_gb,
        onstart=trip.tools.packer.lease(),
        env=env,
        at_most_usd=policy.worst_case_usd(trip.spec, offer),
    )
