"""The trial of a bid before the run's own order: ended whatever Vast answers, never above the limit."""

import json
import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from tests.emulators.vast import VastEmulator
from tests.launcher.providers.vast.rentals import open_market, order
from vastrun.launcher.core import CommandResult, Instance, RentalOrder
from vastrun.launcher.core.errors import BoxError, NoOfferError, UncertainError
from vastrun.launcher.decisions.offer_check import BoxHardware
from vastrun.launcher.providers.vast import VastProvider
from vastrun.launcher.providers.vast.conformance.assumptions import ASSUMPTIONS
from vastrun.launcher.providers.vast.conformance.recorder import ApiRecorder
from vastrun.launcher.providers.vast.conformance.trials import (
    BidTrial,
    ask_box,
    box_values,
    downloaded_bytes,
    hardware_values,
)

IMAGE = f"pytorch/pytorch:2.13.0@sha256:{'a' * 64}"
SHA256 = "ab" * 32
HONEST = {
    "onstart_sha256": SHA256,
    "container_id": True,
    "key": True,
    "session_key": False,
    "own_row": 200,
    "list": 403,
    "account": 403,
    "host_keys": ["SHA256:one"],
}
LIES: tuple[Any, ...] = (None, True, [], {}, 7, -1, 10**400, math.nan, "\x1b[2J" * 99, ["x"] * 10**4, [[]])


@pytest.fixture
def vast() -> Iterator[VastEmulator]:
    with VastEmulator(rate_limits=False) as vast:
        yield vast


class OnEmulator:
    """The trial there, with what it recorded."""

    def __init__(self, vast: VastEmulator, folder: Path, *, limit_usd: float = 10.0) -> None:
        self.provider: VastProvider = open_market(vast, folder)
        self.recorder = ApiRecorder()
        self.provider.api.record(self.recorder.record)
        self.trial = BidTrial(self.provider, self.recorder, lambda: False, limit_usd)

    def make(self, image: str = IMAGE) -> NoOfferError | None:
        """What the flow is told: the machine that was ended, or nothing."""
        try:
            self.trial.make(self.order(image))
        except NoOfferError as told:
            return told
        return None

    def order(self, image: str = IMAGE) -> RentalOrder:
        return replace(order(self.provider), image=image)


def test_a_bid_is_made_once_and_its_machine_ended(vast: VastEmulator, tmp_path: Path) -> None:
    on = OnEmulator(vast, tmp_path)
    told = on.make()
    assert told is not None
    assert told.has_run
    assert on.recorder.rented[told.ended] == "bid"
    assert len(vast.instances) == 0
    assert on.make() is None
    assert on.recorder.trials == {"bid.answer": "200 success"}


def test_a_bid_that_could_pass_the_limit_is_left_out(vast: VastEmulator, tmp_path: Path) -> None:
    on = OnEmulator(vast, tmp_path, limit_usd=0.001)
    assert on.make() is None
    assert not any(method == "PUT" for method, _ in vast.requests)


@pytest.mark.parametrize("fault", ["bid_never", "bid_rejected"])
def test_a_bid_that_is_not_granted_is_ended_and_its_answer_recorded(
    fault: str, vast: VastEmulator, tmp_path: Path
) -> None:
    on = OnEmulator(vast, tmp_path)
    vast.faults.add(fault)
    assert on.make() is not None
    assert on.recorder.trials["bid.answer"] == "200 refused"
    assert len(vast.instances) == 0


def test_an_offer_that_is_gone_leaves_the_trial_to_the_next_one(vast: VastEmulator, tmp_path: Path) -> None:
    on = OnEmulator(vast, tmp_path)
    vast.faults.add("no_such_ask")
    assert on.make() is None
    told = on.make()
    assert told is not None
    assert on.recorder.rented[told.ended] == "bid"


@pytest.mark.parametrize("fault", ["no_answer_done", "bad_gateway_done"])
def test_the_flow_finds_an_order_without_an_answer(fault: str, vast: VastEmulator, tmp_path: Path) -> None:
    on = OnEmulator(vast, tmp_path)
    ordered = on.order()
    vast.faults.add(fault, endpoint="create")
    with pytest.raises(UncertainError):
        on.trial.make(ordered)
    assert [one.label for one in vast.instances] == [ordered.label]


def test_a_machine_that_does_not_end_is_left_to_the_flow(vast: VastEmulator, tmp_path: Path) -> None:
    on = OnEmulator(vast, tmp_path)
    ordered = on.order()
    vast.faults.add("destroy_ignored", times=999)
    with pytest.raises(UncertainError, match="still there"):
        on.trial.make(ordered)
    assert [one.label for one in vast.instances] == [ordered.label]


@dataclass
class Printing:
    """A remote that prints."""

    text: str

    def run(self, command: str, *, timeout_s: float) -> CommandResult:
        return CommandResult(exit_code=0, stdout=self.text, stderr="Traceback")


def values(told: dict[str, Any]) -> dict[str, Any]:
    return box_values(told, onstart_sha256=SHA256, log_keys=["SHA256:one"])


def test_an_honest_box_is_as_assumed() -> None:
    seen = values(HONEST)
    assert len(seen) == len(HONEST)
    assert all(ASSUMPTIONS[name].assumed.agrees(value) for name, value in seen.items())


@pytest.mark.parametrize("lie", LIES, ids=range(len(LIES)))
@pytest.mark.parametrize("key", HONEST)
def test_a_lie_is_a_word_of_the_table_or_nothing(key: str, lie: Any) -> None:
    for name, value in values({**HONEST, key: lie}).items():
        assert ASSUMPTIONS[name].assumed.read(value) == value


@pytest.mark.parametrize("text", ["", "no JSON", "[]", "null", "[" * 10_000, "x" * 10**6, "7"])
def test_a_box_that_says_no_object_is_to_blame(text: str) -> None:
    with pytest.raises(BoxError):
        ask_box(Printing(text), "7", "https://console.vast.ai")  # type: ignore[arg-type]


def test_what_an_image_prints_before_does_no_harm() -> None:
    printed = f"Welcome!\n{json.dumps(HONEST)}\n"
    assert ask_box(Printing(printed), "7", "https://console.vast.ai") == HONEST  # type: ignore[arg-type]


@pytest.mark.parametrize("size", [*LIES, 1 << 60])
def test_a_download_of_a_size_that_is_none_is_none(size: Any) -> None:
    assert downloaded_bytes({"downloaded": size}) in (0, 7)


def test_hardware_is_compared_as_far_as_it_was_read() -> None:
    row = Instance(
        id="7", label="", state="running", usd_per_hour=1, rented_at=0, gpus=2, disk_gb=16, cuda=13
    )
    assert hardware_values(BoxHardware(), row, None, 64) == {"box.gpus": 0.0}
    box = BoxHardware(disk_gb=8, memory_gb=32, gpus=(("RTX 4090", 24.0),), cuda=12.4)
    assert hardware_values(box, row, None, 64) == {
        "box.gpus": 0.5,
        "box.memory": 0.5,
        "box.disk": 0.5,
        "box.cuda": -0.6,
    }
