"""Steps of the phases plan and rent: choose among offers and rent one machine, never two."""

from __future__ import annotations

from contextlib import suppress

from vastrun.launcher.core import Instance, Meter, Offer, RentalOrder, Verdict, bills, errors
from vastrun.launcher.core.image_ref import ImageReference
from vastrun.launcher.core.job import JobSpec
from vastrun.launcher.core.runs import attempts_until
from vastrun.launcher.decisions import policy
from vastrun.launcher.decisions.deadlines import check_deadline, deadline_text, require_in_time
from vastrun.launcher.decisions.estimates import offer_text, offers_within_limits, price_limit_error
from vastrun.launcher.decisions.history import HOST_CAUSES, NOTHING_AVOIDED, AvoidedHosts, avoided
from vastrun.launcher.decisions.nodes import check_node_count, network_of, offers_on_one_network
from vastrun.launcher.flow.boot import check_against_offer
from vastrun.launcher.flow.context import RunContext
from vastrun.launcher.flow.lease_expiry import schedule_end
from vastrun.launcher.flow.node_sync import wait_for_leader, wait_for_turn_to_rent
from vastrun.launcher.flow.progress import resumed_step
from vastrun.launcher.flow.run_state import OK, PhaseResult
from vastrun.launcher.ports import Provider


def plan(context: RunContext) -> PhaseResult:
    """Check everything on this computer, and choose an offer, before any money is spent."""
    if (end := wait_for_leader(context)) is not None:
        return end
    services = context.services
    services.output_store.check(context.run)
    context.secrets()
    if services.notifier is not None:
        services.notifier.check(context.spec)
    bundle = services.packer.pack(context.run, context.spec)
    offer = choose_offers_for_run(context)[0]
    context.save(offer=offer, usd_per_hour=offer.usd_per_hour, host=offer.host)
    megabytes = bundle.size / 1e6 + context.spec.sent_gb * 1e3
    context.report(f"{offer_text(context.spec, offer)}; {megabytes:.1f} MB to upload")
    done = resumed_step(context.spec, context.run.parent, services.ledger)
    if deadline := deadline_text(context.spec, offer, context.now(), done):
        context.report(deadline)
    return OK


def rent(context: RunContext) -> PhaseResult:
    """Rent a machine that carries this run's label. Looks for one first, so that it is safe to repeat."""
    if (end := wait_for_turn_to_rent(context)) is not None:
        return end
    asked_at = context.now()
    machine = find_ordered_machine(context) or rent_machine(context)
    # What the machine is charged counts, not what was offered: a price may have changed in between.
    context.save(
        instance_id=machine.id,
        usd_per_hour=machine.usd_per_hour,
        host=machine.host or context.run.host,
        image=machine.image or context.run.image,
        rented_at=bills.rented_at(context.run, machine, context.now()),
        meter=Meter(extras=machine.extras),
    )
    context.machines.observe(machine, max(asked_at, context.run.rented_at or asked_at))
    context.report(f"machine {machine.id}")
    schedule_end(context)
    return check_against_offer(context, machine) or OK


def choose_offers(
    spec: JobSpec,
    provider: Provider,
    avoid: AvoidedHosts = NOTHING_AVOIDED,
    *,
    now: float,
    done: int = 0,
    network: str = "",
) -> list[Offer]:
    """Return offers that fit the job, its price and its deadline, best first, without those to `avoid`.

    Costs nothing. `done`: the step from which it continues. `network`: that of the nodes that chose before,
    where the market has several. Raises NoOfferError when there is none, UsageError when the job would spend
    money without a limit or on an image that may change, asks for more machines than a run can have there,
    or has limits that leave no time to train.
    """
    why_one_node = provider.abilities.why_one_node
    check_node_count(spec, provider.name, provider.max_nodes, why_one_node)
    if (
        not provider.free
        and spec.image
        and not (spec.image_unpinned or ImageReference.of(spec.image).is_pinned)
    ):
        raise errors.UsageError(
            f"image: {spec.image} has no digest: the image of that name may change, and this run costs money",
            hint="image: NAME@sha256:… (`docker pull` prints it), or image_unpinned: true",
        )
    # What the job file alone shows to be wrong is refused before: Vast limits how often a key searches.
    check_deadline(spec, now, min_s=0.0 if provider.free else policy.START_S)
    found = provider.search(spec)
    fitting = policy.affordable(spec, found)
    if found and not fitting:
        raise price_limit_error(spec, found)
    if not fitting:
        raise errors.NoOfferError(
            f"nothing on {provider.name} fits this job", hint="relax resources: or limits.usd_per_hour"
        )
    offers = [offer for offer in fitting if not avoid.covers(offer)]
    if not offers:
        raise errors.NoOfferError(
            f"{len(fitting)} offers fit, all of them on hosts that failed before",
            hint="see `vastrun hosts` for when they are allowed again, or relax resources:",
        )
    offers = offers_on_one_network(spec, offers, network, provider.name, why_one_node)
    if policy.lacks_money_limit(spec, offers[0]):
        raise errors.UsageError(
            f"set a spending limit first: {provider.name} charges money",
            hint="--set limits.usd=5, or set limits.usd or limits.usd_per_hour in the job file",
        )
    return require_in_time(spec, offers_within_limits(spec, offers), now, done)


def choose_offers_for_run(context: RunContext) -> list[Offer]:
    """Choose offers for the run, on hosts that did not fail recently."""
    provider, ledger, now = context.services.provider, context.services.ledger, context.now()
    avoid = avoided(ledger.runs(causes=HOST_CAUSES, members=True), provider.name, now)
    done = resumed_step(context.spec, context.run.parent, ledger)
    others = context.nodes.other_rows()
    network = network_of(context.run, others)
    offers = choose_offers(context.spec, provider, avoid, now=now, done=done, network=network)
    # What another node has comes last: a market has each machine once, this computer may be had again. On a
    # cluster, which has a place, all nodes are of one offer.
    held = {other.offer.id for other in others if other.offer}
    elsewhere = _offers_ordered_elsewhere(context)
    failed_on = {one.host for one in attempts_until(context.run, ledger.get) if one.verdict is Verdict.FAILED}

    def rank(offer: Offer) -> tuple[bool, bool]:
        return offer.id in elsewhere or (offer.id in held) is not bool(offer.place), offer.host in failed_on

    return sorted(offers, key=rank)


def _offers_ordered_elsewhere(context: RunContext) -> set[str]:
    """Return the ids of a market's offers that other open runs have ordered.

    Where many wait for their turn to order, an offer that another run took would waste the turn.
    """
    if context.services.provider.abilities.market is None:
        return set()
    runs = context.services.ledger.runs(open_only=True, members=True)
    return {
        run.offer.id
        for run in runs
        if run.offer is not None and run.rented_at is not None and run.id != context.run.id
    }


def rent_machine(context: RunContext) -> Instance:
    """Rent a new machine: the planned offer, or the next one when that is gone."""
    tried: set[str] = set()
    # The planned offer, if it is on the network of the machines that earlier nodes rented.
    planned, network = context.run.offer, network_of(context.run, context.nodes.other_rows(fresh=True))
    offers = [planned] if planned is not None and network in ("", planned.network) else []
    for _ in range(policy.RENT_TRIES):
        unavailable = _offers_ordered_elsewhere(context) if offers else set()
        offer = next((o for o in offers if o.id not in tried | unavailable), None)
        if offer is None:
            offers = choose_offers_for_run(context)
            offer = next((o for o in offers if o.id not in tried), None)
        if offer is None:
            break
        tried.add(offer.id)
        _save_order(context, offer)
        try:
            return _send_order(context, offer)
        except errors.NoOfferError as error:
            context.machines.was_order_rejected = True
            if error.ended:
                context.machines.save_ended(offer, error)
            context.report(f"offer {offer.id} was taken")
        except errors.UncertainError:
            # Whether there is a machine is not known. If there is, it bears our label.
            found = find_ordered_machine(context)
            if found is not None:
                return found
        except errors.UnreachableError as error:
            # A provider that is busy has not read the order; one that fell silent may have.
            context.machines.was_order_rejected = isinstance(error, errors.BusyError)
            raise
        except errors.VastrunError:
            context.machines.was_order_rejected = True
            raise
    raise errors.NoOfferError(
        f"none of {len(tried)} offers could be rented", hint="run vastrun launch again in a minute"
    )


def _send_order(context: RunContext, offer: Offer) -> Instance:
    order, provider = _make_order(context, offer), context.services.provider
    if (start_script := provider.abilities.start_script) is not None:
        with suppress(errors.StorageError):
            context.services.output_store.save_start_script(context.run, start_script(order))
    try:
        return provider.rent(order)
    finally:
        context.machines.last_order_at = context.now()


def find_ordered_machine(context: RunContext) -> Instance | None:
    """Find the machine that was ordered before; None when none was, or when it was absent twice.

    A further node's machine may exist already: some providers rent them all with the first one's. Raises
    ProviderError when the list is unknown: the next launcher looks for it again.
    """
    if context.run.rented_at is None:
        return context.machines.own() if context.run.leader else None
    return context.machines.find()


def _save_order(context: RunContext, offer: Offer) -> None:
    # The row comes before the order: a launcher killed in between looks for what it may have rented.
    context.save(
        offer=offer,
        usd_per_hour=offer.usd_per_hour,
        host=offer.host,
        image=offer.image or "",
        rented_at=context.now(),
        meter=Meter(extras=offer.extras),
    )
    context.machines.was_order_rejected = False


def _make_order(context: RunContext, offer: Offer) -> RentalOrder:
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
        max_usd=policy.worst_case_usd(context.spec, offer) / context.spec.nodes,
        warn_of_credit=context.report if context.spec.limits.credit == "warn" else None,
        nodes=context.nodes.labels,
    )
