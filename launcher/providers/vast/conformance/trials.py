"""Trials: an order of an image by its digest, and a bid, each ended within a minute, before the run's order.

Both machines have the run's label and its lease: the next driver of the run ends what is left of them. To
the flow they are orders that left a machine behind, and it adds them to the run's bill.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from vastrun.launcher.core import Cause, RentalOrder
from vastrun.launcher.core.errors import GoneError, NoOfferError, ProviderError, UncertainError, VastrunError
from vastrun.launcher.providers.vast import VastProvider, boot
from vastrun.launcher.providers.vast.conformance.observations import min_bid_of, short
from vastrun.launcher.providers.vast.conformance.recorder import ApiRecorder, Exchange
from vastrun.launcher.providers.vast.instance_row import InstanceRow

MAX_TRIALS_S = 120.0
"""Seconds for which both machines together are paid for at most, their ends included."""
_DIGEST_S, _BID_S, _END_S, _LOOK_S = 30.0, 15.0, 20.0, 1.0
_BID_MARGIN = 1.2
_TITLES = {"digest": "an image by its digest", "bid": "a bid"}


@dataclass
class Trials:
    """The trials, each made once, on the offers that the flow takes first: the cheapest ones."""

    vast: VastProvider
    recorder: ApiRecorder
    stopping: Callable[[], bool]
    """The user wants an end."""
    limit_usd: float = 0.0
    """Limit of the whole run, in dollars."""
    _made: set[str] = field(default_factory=set)

    def make(self, order: RentalOrder) -> None:
        """Make the trials that were not made yet.

        Raises NoOfferError, with the machine, once one was made and its machine ended; UncertainError when a
        machine may be there.
        """
        trials_usd = order.offer.usd_per_hour * MAX_TRIALS_S / 3600
        if self.limit_usd < order.max_usd + trials_usd:
            return
        bid_usd = _BID_MARGIN * min_bid_of(self.recorder, order.offer.id)
        planned = {
            "digest": (_DIGEST_S, None) if "@sha256:" in (order.image or "") else None,
            "bid": (_BID_S, int(bid_usd * 1e4) / 1e4) if 0 < bid_usd <= order.offer.usd_per_hour else None,
        }
        for name, trial in planned.items():
            if name not in self._made and trial is not None and not self.stopping():
                self._made.add(name)
                self._make(name, order, *trial)

    def _make(self, name: str, order: RentalOrder, watch_s: float, bid_usd: float | None) -> None:
        request = {**self.vast.request(order), "price": bid_usd}
        offer = int(order.offer.id)
        heard = self.recorder.ask(
            self.vast.api.once, "create", lambda sdk: sdk.create_instance(id=offer, **request)
        )
        answer = heard[-1] if heard else None
        if answer is None or not answer.status or answer.status >= 500:
            raise UncertainError(f"Vast did not say whether it rented for the trial of {_TITLES[name]}")
        if answer.status == 429 or "no_such_ask" in answer.word:
            self._made.discard(name)  # on the next offer
            return
        self.recorder.trials[f"{name}.answer"] = answer.word
        instance_id = _made_by(answer)
        if instance_id:
            self._watch(name, instance_id, watch_s)
            self._end(name, instance_id)

    def _watch(self, name: str, instance_id: str, watch_s: float) -> None:
        """Look every second until it runs, cannot run, or was watched for long enough."""
        clock, state = self.vast.clock, ""
        until = clock.now() + watch_s
        self.recorder.rented[instance_id] = name
        while clock.now() < until and not self.stopping() and state not in ("running", "image refused"):
            with suppress(VastrunError):
                self.vast.instances()
                if (row := self.vast.api.instance(instance_id)) is not None:
                    state = _state(row)
            clock.sleep(_LOOK_S)
        if state:
            self.recorder.trials[f"{name}.state"] = state

    def _end(self, name: str, instance_id: str) -> None:
        clock = self.vast.clock
        until, error = clock.now() + _END_S, ""
        while True:
            try:
                with suppress(GoneError):
                    self.vast.destroy(instance_id)
                if self.vast.machine(instance_id) is None and self.vast.machine(instance_id) is None:
                    break
            except ProviderError as failed:
                error = f": {failed}"
            if clock.now() >= until:
                raise UncertainError(f"the machine of the trial of {_TITLES[name]} is still there{error}")
            clock.sleep(_LOOK_S)
        raise NoOfferError(
            f"trial of {_TITLES[name]}: {self.recorder.trials[f'{name}.answer']}; "
            f"machine {instance_id} destroyed",
            ended=instance_id,
            has_run=True,
        )


def _made_by(answer: Exchange) -> str:
    found = str(answer.fields.get("new_contract") or "")
    return found if found.isdecimal() else ""


def _state(raw: Mapping[str, Any]) -> str:
    row = InstanceRow.of(raw)
    fault = boot.fault(row)
    if fault is not None:
        return "image refused" if fault.cause is Cause.USER_ERROR else "host refused"
    return short(raw.get("actual_status")) if row.state != "running" else "running"
