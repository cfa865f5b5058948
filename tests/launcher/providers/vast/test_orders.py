"""One order on Vast, field by field and to the second: what is sent, what is waited for, what is returned."""

from dataclasses import dataclass, field, replace
from typing import Any, cast

import pytest

from tests.fakes import FakeClock
from tests.launcher.providers.vast.rentals import LABEL
from tests.launcher.providers.vast.rows import instance, instance_row
from tests.offers import rental_order, rtx_4090
from vastrun.launcher.core import ExtraRates, Instance, RentalOrder, errors
from vastrun.launcher.providers.onstart import onstart_text
from vastrun.launcher.providers.vast.api import VastApi
from vastrun.launcher.providers.vast.instance_row import InstanceRow
from vastrun.launcher.providers.vast.rental import rent, request

EXTRAS = ExtraRates(storage_usd_per_hour=0.01, down_usd_per_gb=0.02, up_usd_per_gb=0.03)
OFFER = replace(rtx_4090(), id="50751794", host="41234", usd_per_hour=0.5, extras=EXTRAS)
ORDER = rental_order(OFFER, env={"A": "1"}, max_usd=4.0)
ID = "52607650"


@dataclass
class Api:
    """Vast, as an order needs it."""

    clock: FakeClock = field(default_factory=FakeClock)
    credit: float = 4.0
    answer: dict[str, Any] = field(default_factory=lambda: {"success": True, "new_contract": int(ID)})
    row: dict[str, Any] | None = None
    """The machine's row; None: Vast does not list it yet."""
    listed_for: int = 0
    """Queries by id that still show the machine after it was destroyed."""
    asked_at: list[float] = field(default_factory=list)
    destroyed: list[str] = field(default_factory=list)

    def credit_usd(self) -> float:
        return self.credit

    def create(self, offer_id: str, order: dict[str, Any]) -> dict[str, Any]:
        assert (offer_id, order["label"]) == (OFFER.id, LABEL)
        return self.answer

    def destroy(self, instance_id: str) -> None:
        self.destroyed.append(instance_id)
        if not self.listed_for:
            raise errors.GoneError("no such instance")

    def instance(self, instance_id: str) -> dict[str, Any] | None:
        assert instance_id == ID
        self.listed_for -= 1
        return None if self.listed_for < 0 else instance()

    def read_row(self, instance_id: str) -> InstanceRow | None:
        assert instance_id == ID
        self.asked_at.append(self.clock.now())
        return None if self.row is None else InstanceRow.of(self.row, self.clock.now() + 0.5)

    def rent(self, order: RentalOrder = ORDER) -> Instance:
        return rent(cast(VastApi, self), order, {"B": "2"}, self.clock, self.read_row, known=())


def test_an_order_says_what_is_rented_and_for_what() -> None:
    expected = {
        "image": "pytorch/pytorch:2.13.0",
        "disk": 10.0,
        "env": {"A": "1", "B": "2"},
        "label": LABEL,
        "onstart": onstart_text("true\n"),
        "runtype": "ssh_direc ssh_proxy",
        "price": None,
        "cancel_unavail": True,
    }
    assert request(ORDER, {"B": "2"}) == expected
    bid = replace(ORDER, offer=replace(OFFER, bid_usd_per_hour=0.24))
    assert request(bid, {"A": "3"}) == expected | {"price": 0.24, "env": {"A": "3"}}
    with pytest.raises(errors.NoOfferError, match="no image"):
        request(replace(ORDER, image=None), {})


def test_credit_for_the_worst_case_is_enough_and_a_cent_less_is_not() -> None:
    assert Api(credit=4.0).rent().id == ID
    with pytest.raises(errors.ProviderError) as refused:
        Api(credit=3.99).rent()
    assert str(refused.value) == "the account has $3.99 of credit; this run may cost up to $4.00"
    assert refused.value.hint == (
        "add $0.01 at https://cloud.vast.ai/billing/, "
        "lower limits.usd, or set limits.credit=warn if the account tops up by itself"
    )


def test_a_machine_that_is_not_listed_yet_is_as_it_was_ordered() -> None:
    api = Api()
    assert api.rent() == Instance(
        id=ID,
        label=LABEL,
        state="loading",
        usd_per_hour=0.5,
        rented_at=api.clock.now(),
        extras=EXTRAS,
        idle=True,
        host="41234",
    )


@pytest.mark.parametrize("label", [LABEL, ""])
@pytest.mark.parametrize("is_priced", [True, False])
def test_a_listed_machine_has_its_row_and_the_rest_of_its_order(is_priced: bool, label: str) -> None:
    columns = {"dph_total": 0.41, "dph_base": 0.4} if is_priced else {"dph_total": None}
    api = Api(row=instance(label=label, start_date=None, machine_id=None, **columns))
    found = api.rent()
    assert (found.id, found.label, found.host) == (ID, LABEL, "41234")
    assert (found.state, found.rented_at) == ("running", api.clock.now())
    assert found.asked_at == api.clock.now() + 0.5
    row = instance_row(**columns)
    assert (found.usd_per_hour, found.extras) == ((0.41, row.extras) if is_priced else (0.5, EXTRAS))
    own = Api(row=instance()).rent()
    assert own.rented_at == instance()["start_date"]


@pytest.mark.parametrize("changes", [{"label": "vastrun-other"}, {"machine_id": 41235}])
def test_a_machine_with_another_label_or_host_is_left_alone(changes: dict[str, Any]) -> None:
    api = Api(row=instance(**changes))
    with pytest.raises(
        errors.UncertainError, match=f"the id of another machine, {ID}: its label is 'vastrun-"
    ):
        api.rent()
    assert api.destroyed == []


def test_a_machine_that_another_user_got_is_destroyed_until_it_is_gone() -> None:
    stopped = instance(cur_state="stopped", intended_status="stopped")
    for listed_for in (0, 1, 4):
        api = Api(row=stopped, listed_for=listed_for)
        with pytest.raises(errors.NoOfferError, match="another user rented it first") as lost:
            api.rent()
        assert (lost.value.ended, api.destroyed) == (ID, [ID])
    half = instance(cur_state="stopped", intended_status="running")
    assert Api(row=half).rent().id == ID


def test_a_machine_that_was_never_scheduled_is_the_fault_of_its_host() -> None:
    api = Api(row=instance(actual_status="loading", cur_state="stopped", intended_status="stopped"))
    assert (api.rent().id, api.destroyed) == (ID, [])


def test_a_bid_without_a_grant_is_looked_at_every_3_seconds_for_a_minute() -> None:
    waits = instance(actual_status="created", cur_state="stopped", status_msg="", intended_status="stopped")
    api = Api(row=waits, answer={"success": False, "new_contract": int(ID)})
    began = api.clock.now()
    with pytest.raises(errors.NoOfferError) as refused:
        api.rent()
    looks = [at - began for at in api.asked_at]
    assert looks == [0.0, *(3.0 * n for n in range(21))]
    assert (refused.value.ended, refused.value.idle_s, api.destroyed) == (ID, 60.5, [ID])
    assert str(refused.value) == "Vast did not grant the bid within 60 s; last seen: loading"


def test_a_bid_that_vast_does_not_list_costs_nothing_and_one_that_is_granted_is_rented() -> None:
    answer = {"success": False, "new_contract": int(ID), "msg": "", "error": None}
    api = Api(answer=answer)
    with pytest.raises(errors.NoOfferError, match=r"last seen: not listed$") as refused:
        api.rent()
    assert refused.value.idle_s == 0.0
    granted = Api(answer=answer, row=instance())
    assert granted.rent().state == "running"
    assert granted.clock.now() == FakeClock().now()


@pytest.mark.parametrize("reason", [{"msg": "no such ask"}, {"error": "no_such_ask"}])
@pytest.mark.parametrize("left", [True, False])
def test_a_rejected_order_is_destroyed_where_it_left_a_machine(reason: dict[str, Any], left: bool) -> None:
    api = Api(answer={"success": False, **reason, **({"new_contract": int(ID)} if left else {})})
    with pytest.raises(errors.VastrunError) as refused:
        api.rent()
    assert str(refused.value).startswith("the machine did not start: ") is left
    assert api.destroyed == ([ID] if left else [])


@pytest.mark.parametrize("named", [float(ID), ID])
def test_a_machine_that_is_named_by_another_type_of_number_is_the_rented_one(named: object) -> None:
    api = Api(answer={"success": True, "new_contract": named})
    assert (api.rent().id, api.destroyed) == (ID, [])


@pytest.mark.parametrize("named", [f"C.{ID}", {"id": int(ID)}, [int(ID)], True, -1])
@pytest.mark.parametrize("success", [True, False])
def test_name_that_is_no_id_leaves_the_machine_to_be_found_by_its_label(named: object, success: bool) -> None:
    api = Api(answer={"success": success, "new_contract": named})
    with pytest.raises(errors.UncertainError, match="named the machine"):
        api.rent()
    assert api.destroyed == []


def test_an_answer_without_an_id_or_a_look_that_fails_leaves_no_doubt_unsaid() -> None:
    with pytest.raises(errors.UncertainError, match="did not name the machine"):
        Api(answer={"success": True}).rent()

    def unreachable(_: str) -> InstanceRow | None:
        raise errors.UnreachableError("HTTP 500")

    api = Api()
    known_before = rent(cast(VastApi, api), ORDER, {}, api.clock, unreachable, known=("7",))
    assert (known_before.id, known_before.state) == (ID, "loading")
    for known, why in ((None, "neither its label nor an earlier list"), ((ID,), "the account had it before")):
        with pytest.raises(errors.UncertainError, match=why):
            rent(cast(VastApi, api), ORDER, {}, api.clock, unreachable, known=known)
