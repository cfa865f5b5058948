"""Trials: two short rentals before the run's own, each ended whatever Vast answers, none above the limit."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from tests.emulators.vast import VastEmulator
from tests.launcher.providers.vast.rentals import open_market, order
from vastrun.launcher.core import RentalOrder
from vastrun.launcher.core.errors import NoOfferError, UncertainError
from vastrun.launcher.providers.vast import VastProvider
from vastrun.launcher.providers.vast.conformance.recorder import ApiRecorder
from vastrun.launcher.providers.vast.conformance.trials import Trials

IMAGE = f"pytorch/pytorch:2.13.0@sha256:{'a' * 64}"


@pytest.fixture
def vast() -> Iterator[VastEmulator]:
    with VastEmulator(rate_limits=False) as vast:
        yield vast


class OnEmulator:
    """Trials there, with what they recorded."""

    def __init__(self, vast: VastEmulator, folder: Path, *, limit_usd: float = 10.0) -> None:
        self.provider: VastProvider = open_market(vast, folder)
        self.recorder = ApiRecorder()
        self.provider.api.record(self.recorder.record)
        self.trials = Trials(self.provider, self.recorder, lambda: False, limit_usd)

    def make(self, image: str = IMAGE) -> NoOfferError | None:
        """What the flow is told: the machine that was ended, or nothing."""
        try:
            self.trials.make(self.order(image))
        except NoOfferError as told:
            return told
        return None

    def order(self, image: str = IMAGE) -> RentalOrder:
        return replace(order(self.provider), image=image)


def test_an_image_by_its_digest_comes_first_then_a_bid_and_then_nothing(
    vast: VastEmulator, tmp_path: Path
) -> None:
    on = OnEmulator(vast, tmp_path)
    for name in ("digest", "bid"):
        told = on.make()
        assert told is not None
        assert told.has_run
        assert on.recorder.rented[told.ended] == name
        assert len(vast.instances) == 0
    assert on.make() is None
    assert on.recorder.trials["digest.answer"] == on.recorder.trials["bid.answer"] == "200 success"


def test_trials_that_could_pass_the_limit_are_left_out(vast: VastEmulator, tmp_path: Path) -> None:
    on = OnEmulator(vast, tmp_path, limit_usd=0.001)
    assert on.make() is None
    assert not any(method == "PUT" for method, _ in vast.requests)


def test_an_image_by_a_tag_is_no_trial(vast: VastEmulator, tmp_path: Path) -> None:
    on = OnEmulator(vast, tmp_path)
    told = on.make("pytorch/pytorch:2.13.0")
    assert told is not None
    assert on.recorder.rented[told.ended] == "bid"


@pytest.mark.parametrize("fault", ["bid_never", "bid_too_low"])
def test_a_bid_that_is_not_granted_is_ended_and_its_answer_recorded(
    fault: str, vast: VastEmulator, tmp_path: Path
) -> None:
    on = OnEmulator(vast, tmp_path)
    on.make()
    vast.faults.add(fault)
    assert on.make() is not None
    assert on.recorder.trials["bid.answer"] in ("200 refused", "200 bid_too_low")
    assert len(vast.instances) == 0


def test_an_image_that_cannot_be_pulled_is_recorded(vast: VastEmulator, tmp_path: Path) -> None:
    on = OnEmulator(vast, tmp_path)
    vast.faults.add("image_not_found")
    assert on.make() is not None
    assert on.recorder.trials["digest.state"] in ("image refused", "loading", "null")
    assert len(vast.instances) == 0


def test_an_offer_that_is_gone_leaves_the_trial_to_the_next_one(vast: VastEmulator, tmp_path: Path) -> None:
    on = OnEmulator(vast, tmp_path)
    vast.faults.add("no_such_ask", times=2)
    assert on.make() is None
    told = on.make()
    assert told is not None
    assert on.recorder.rented[told.ended] == "digest"


@pytest.mark.parametrize("fault", ["no_answer_done", "bad_gateway_done"])
def test_an_order_without_an_answer_is_for_the_flow_to_find(
    fault: str, vast: VastEmulator, tmp_path: Path
) -> None:
    on = OnEmulator(vast, tmp_path)
    ordered = on.order()
    vast.faults.add(fault, endpoint="create")
    with pytest.raises(UncertainError):
        on.trials.make(ordered)
    assert [one.label for one in vast.instances] == [ordered.label]


def test_a_machine_that_does_not_end_is_left_to_the_flow(vast: VastEmulator, tmp_path: Path) -> None:
    on = OnEmulator(vast, tmp_path)
    ordered = on.order()
    vast.faults.add("destroy_ignored", times=999)
    with pytest.raises(UncertainError, match="still there"):
        on.trials.make(ordered)
    assert [one.label for one in vast.instances] == [ordered.label]
