"""From a job to a machine: choose among offers, rent one, never two."""

from __future__ import annotations

from collections.abc import Collection

from launcher.core import Instance, Meter, Offer, RentalOrder
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
from launcher.decisions.host_history import HOSTS_CAUSES, avoided
from launcher.flow.context import RunContext
from launcher.ports import Provider


def choose(spec: JobSpec, provider: Provider, avoid: Collection[str] = ()) -> list[Offer]:
    """Return offers that fit the job and its price, best first, on no host in `avoid`. Costs nothing.

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
    # What the job file alone shows to be wrong is refused before: Vast limits how often a key searches.
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


def choose_for(context: RunContext) -> list[Offer]:
    """Choose offers for the run, on hosts that did not fail us lately."""
    provider = context.services.provider
    failures = context.services.ledger.runs(causes=HOSTS_CAUSES)
    return choose(context.spec, provider, avoided(failures, provider.name, context.now()))


def rent_anew(context: RunContext) -> Instance:
    """Rent a new machine: the planned offer, or the next one when that was taken."""
    tried: set[str] = set()
    offers = [context.run.offer] if context.run.offer else []
    for _ in range(policy.RENT_TRIES):
        offer = next((o for o in offers if o.id not in tried), None)
        if offer is None:
            offers = choose_for(context)
            offer = next((o for o in offers if o.id not in tried), None)
        if offer is None:
            break
        tried.add(offer.id)
        _note_order(context, offer)
        try:
            return context.services.provider.rent(_order(context, offer))
        except NoOfferError:
            context.was_refused = True
            context.tell(f"offer {offer.id} was taken")
        except UncertainError:
            # Whether there is a machine is not known. If there is, it bears our label.
            found = look_for_it(context)
            if found is not None:
                return found
        except UnreachableError as error:
            # A provider that is busy has not read the order; one that fell silent may have.
            context.was_refused = isinstance(error, BusyError)
            raise
        except VastrunError:
            context.was_refused = True
            raise
    raise NoOfferError(
        f"none of {len(tried)} offers could be rented", hint="run vastrun launch again in a minute"
    )


def look_for_it(context: RunContext) -> Instance | None:
    """Find the machine that was asked for before; None when none was, or when it was absent twice.

    Raises ProviderError when the provider cannot tell: whoever comes next looks for it again.
    """
    return None if context.run.rented_at is None else context.found_late()


def _note_order(context: RunContext, offer: Offer) -> None:
    # The row comes before the order: a launcher killed in between looks for what it may have rented.
    context.save(
        offer=offer,
        usd_per_hour=offer.usd_per_hour,
        host=offer.host,
        image=offer.image or "",
        rented_at=context.now(),
        meter=Meter(extras=offer.extras),
    )
    context.was_refused = False


def _order(context: RunContext, offer: Offer) -> RentalOrder:
    lease = policy.lease_of(context.spec, offer)
    env = policy.lease_env(lease) | {
        "VASTRUN_LABEL": context.run.label,
        "VASTRUN_PROVIDER": context.services.provider.name,
    }
    # The lease travels with the order: a machine that is never reached ends itself all the same.
    return RentalOrder(
        offer=offer,
        label=context.run.label,
        image=offer.image,
        disk_gb=context.spec.resources.disk_gb,
        memory_gb=context.spec.resources.memory_gb,
        onstart=context.services.packer.lease(),
        env=env,
        at_most_usd=policy.worst_case_usd(context.spec, offer),
    )
