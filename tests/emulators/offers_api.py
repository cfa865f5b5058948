"""Endpoints of the market: search, and everything that rents."""

from collections.abc import Mapping
from typing import Any

from tests.emulators import overlays_api
from tests.emulators.answers import ApiError, Reply, no_such_ask, refusal, reply
from tests.emulators.behaviour import refused
from tests.emulators.call import Call, Route
from tests.emulators.faults import Place
from tests.emulators.machines import DAY_S
from tests.emulators.market import Ask
from tests.emulators.rental import Rental, read_rental
from tests.emulators.world import World

_NO_CREDIT = ApiError(
    reply(
        {"error": "insufficient_credit", "msg": "Your account lacks credit; see the billing page."},
        status=400,
    )
)


def search(world: World, call: Call) -> Reply:
    """Offers by a query in the body."""
    return reply({"offers": _offers(world, call.body)})


def create(world: World, call: Call) -> Reply:
    """Rents one offer."""
    return _create(world, call.id, call.body)


def _offers(world: World, query: Mapping[str, Any]) -> list[dict[str, Any]]:
    if world.faults.take("search_quota"):
        now = world.clock.now()
        spent = refusal(429, "search_quota_exceeded", "Daily search quota exceeded.").reply
        midnight = str(int(now - now % DAY_S + DAY_S))
        raise ApiError(Reply(status=429, body=spent.body, headers={"X-RateLimit-Reset": midnight}))
    if world.faults.take("no_offers"):
        return []
    rented = world.instances.rented_machines()
    if "cuda_max_good" in query and "compute_cap" not in query and world.faults.take("cuda_alone"):
        return []
    found = world.market.search(
        query,
        rented=rented,
        filtering=world.faults.take("filters_ignored") is None,
        capped=world.faults.take("search_capped") is not None,
        underscores=world.faults.take("names_underscored") is not None,
    )
    return _odd(found) if world.faults.take("odd_offers") else found


def _odd(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The offers, none with an end, of which the last two cannot be read."""
    spoilt = [{**row, "end_date": None} for row in rows]
    if len(spoilt) > 2:
        spoilt[-2].pop("gpu_ram")
        spoilt[-1]["dph_total"] = "n/a"
    return spoilt


def _create(world: World, ask_id: int, body: Mapping[str, Any]) -> Reply:
    rental = read_rental(body)
    ask = world.market.ask(ask_id)
    if ask is None:
        raise no_such_ask(404, 3603, ask_id)
    _refuse(world, ask)
    if rental.cancel_unavail and world.market.is_taken(ask.id):
        raise ApiError(refused(world.behaviour.word("create.again")))
    _check_account(world)
    overlays_api.join(world, ask, rental)
    lowest = ask.machine.min_bid_usd * ask.gpus
    too_low = rental.bid_usd is not None and rental.bid_usd < lowest - 1e-9
    if too_low or world.faults.take("bid_rejected", Place(machine_id=ask.machine.id)):
        instance = world.instances.create(ask, rental, stopped=True)
        return reply({"success": False, "msg": "no available gpus", "new_contract": instance.id})
    if odd := _misnamed(world, ask, rental) or _pending(world, ask, rental):
        return odd
    late = world.faults.take("create_late", Place(machine_id=ask.machine.id))
    if late:
        world.instances.create_later(ask, rental, 20.0 if late.seconds is None else late.seconds)
        raise ApiError(Reply(cut=True))
    again = world.faults.take("create_twice", Place(machine_id=ask.machine.id))
    if again:
        rented = world.instances.rented_machines()
        others = [one for one in world.market.asks() if one.gpus == ask.gpus and one.machine.id not in rented]
        other = next((one for one in others if one.machine.id != ask.machine.id), ask)
        world.instances.create_later(other, rental, again.seconds or 0.0)
    stopped = world.faults.take("created_stopped", Place(machine_id=ask.machine.id)) is not None
    instance = world.instances.create(ask, rental, stopped=stopped)
    if not world.behaviour.word("create.again").startswith("200"):
        world.market.take(ask)
    if world.faults.take("create_denied_done", Place(machine_id=ask.machine.id)):
        raise _NO_CREDIT
    return reply({"success": True, "new_contract": instance.id, "instance_api_key": instance.api_key})


def _misnamed(world: World, ask: Ask, rental: Rental) -> Reply | None:
    """An answer with the id of the account's oldest instance."""
    place, oldest = Place(machine_id=ask.machine.id), next((one.id for one in world.instances), None)
    if oldest is None:
        return None
    if world.faults.take("refusal_names_other", place):
        return reply({"success": False, "msg": "no available gpus", "new_contract": oldest})
    if world.faults.take("create_names_other", place):
        world.instances.create(ask, rental)
        return reply({"success": True, "new_contract": oldest})
    return None


def _pending(world: World, ask: Ask, rental: Rental) -> Reply | None:
    """A bid that is neither granted nor refused, and its stopped instance."""
    place = Place(machine_id=ask.machine.id)
    later, never = world.faults.take("bid_pending", place), world.faults.take("bid_never", place)
    if not (later or never):
        return None
    instance = world.instances.create(ask, rental, stopped=True)
    if later:
        world.instances.start_later(instance, 10.0 if later.seconds is None else later.seconds)
    return reply({"success": False, "new_contract": instance.id, "instance_api_key": instance.api_key})


def _refuse(world: World, ask: Ask) -> None:
    statuses = {"no_such_ask": (410, 3907), "unknown_ask": (404, 3603), "no_such_ask_400": (400, 3603)}
    for fault, (status, number) in statuses.items():
        if world.faults.take(fault, Place(machine_id=ask.machine.id)):
            raise no_such_ask(status, number, ask.id)


def _check_account(world: World) -> None:
    if world.account.credit <= 0 or world.faults.take("insufficient_credit"):
        raise _NO_CREDIT
    if world.faults.take("spend_rate_limit"):
        raise refusal(400, "spend_rate_limit", "error 400/3730: Your account's spend rate is limited.")


ROUTES = (
    Route("POST", "/v0/bundles", "search", "misc", search, open=True),
    Route("PUT", "/v0/asks/#", "create", "instance_write", create),
)
