"""Trial: a bid, ended at once, before the run's order; and the facts that a box reports to `box_probe.py`,
within bounds.

Its machine has the run's label and its lease: the next driver of the run ends what is left of it. To the flow
it is an order that left a machine behind, which it adds to the run's bill.
"""

from __future__ import annotations

import json
import shlex
from collections.abc import Callable, Collection, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from vastrun.launcher.core import Instance, Offer, RentalOrder
from vastrun.launcher.core.errors import BoxError, GoneError, NoOfferError, ProviderError, UncertainError
from vastrun.launcher.decisions.offer_check import BoxHardware
from vastrun.launcher.ports import Remote
from vastrun.launcher.providers.vast import VastProvider, calls
from vastrun.launcher.providers.vast.conformance.assumptions import Value
from vastrun.launcher.providers.vast.conformance.observations import offered_number
from vastrun.launcher.providers.vast.conformance.recorder import ApiRecorder
from vastrun.launcher.providers.vast.instance_row import id_of

MAX_TRIAL_S = 60.0
"""Seconds for which the machine of the bid is paid for at most, its end included."""
_END_S, _LOOK_S = 20.0, 1.0
_PROBE = Path(__file__).with_name("box_probe.py").read_text(encoding="utf-8")
_MAX_CHARACTERS, _MAX_KEYS, _MAX_BYTES = 16_000, 16, 1 << 40
_WORDS: Mapping[str, tuple[str, str]] = {
    "container_id": ("the machine's id", "other"),
    "key": ("present", "absent"),
    "session_key": ("present", "absent"),
}


@dataclass
class BidTrial:
    """A bid, made once, on the offer that the flow takes first: the cheapest one."""

    vast: VastProvider
    recorder: ApiRecorder
    stopping: Callable[[], bool]
    """The user wants an end."""
    limit_usd: float = 0.0
    """Limit of the whole run, in dollars."""
    _is_made: bool = False

    def make(self, order: RentalOrder) -> None:
        """Make the bid, unless it was made.

        Raises NoOfferError, with the machine, once its machine ended; UncertainError when a machine may be
        there.
        """
        trial_usd = order.offer.usd_per_hour * MAX_TRIAL_S / 3600
        if self._is_made or self.stopping() or self.limit_usd < order.max_usd + trial_usd:
            return
        bid_usd = 1.2 * offered_number(self.recorder, order.offer.id, "min_bid")
        if 0 < bid_usd <= order.offer.usd_per_hour:
            self._make(order, int(bid_usd * 1e4) / 1e4)

    def _make(self, order: RentalOrder, bid_usd: float) -> None:
        request = {**self.vast.request(order), "price": bid_usd}
        heard = self.recorder.ask(self.vast.api.once, calls.create(order.offer.id, request))
        answer = heard[-1] if heard else None
        self._is_made = True
        if answer is None or not answer.status or answer.status >= 500:
            raise UncertainError("Vast did not say whether it rented for the trial of a bid")
        if answer.status == 429 or "no_such_ask" in answer.word:
            self._is_made = False  # on the next offer
            return
        self.recorder.trials["bid.answer"] = answer.word
        instance_id = id_of({"id": answer.fields.get("new_contract")})
        if instance_id is not None:
            self.recorder.rented[instance_id] = "bid"
            self._end(instance_id, answer.word)

    def _end(self, instance_id: str, answer: str) -> None:
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
                raise UncertainError(f"the machine of the trial of a bid is still there{error}")
            clock.sleep(_LOOK_S)
        raise NoOfferError(
            f"trial of a bid: {answer}; machine {instance_id} destroyed", ended=instance_id, has_run=True
        )


def ask_box(remote: Remote, *arguments: str, timeout_s: float = 60.0) -> Mapping[str, Any]:
    """Run the probe in the box. Raises UnreachableError, GoneError; BoxError when its answer is none."""
    words = shlex.join(("-", *arguments))
    command = f"\"$(command -v python3 || command -v python)\" {words} <<'PROBE_END'\n{_PROBE}\nPROBE_END\n"
    done = remote.run(command, timeout_s=timeout_s)
    try:
        if len(done.stdout) > _MAX_CHARACTERS:
            raise ValueError(f"{len(done.stdout)} characters")
        reply = json.loads(done.stdout.strip().rpartition("\n")[2])
    except (ValueError, RecursionError) as error:
        raise BoxError(f"the box did not describe itself: {done.stderr.strip()[-200:]!r}") from error
    if not isinstance(reply, dict):
        raise BoxError("the box did not describe itself")
    return reply


def box_values(
    reply: Mapping[str, Any], *, onstart_sha256: str, log_keys: Collection[str]
) -> dict[str, Value]:
    """Return what the probe found out, as values by assumption. What makes no sense is not there."""
    seen: dict[str, Value] = {
        f"box.{key}": words[not reply[key]]
        for key, words in _WORDS.items()
        if isinstance(reply.get(key), bool)
    }
    sha256, keys = reply.get("onstart_sha256"), reply.get("host_keys")
    if isinstance(sha256, str):
        seen["onstart.sha256"] = (
            "as ordered" if sha256 == onstart_sha256 else "other" if sha256 else "not there"
        )
    for call in ("own_row", "list", "account"):
        status = reply.get(call)
        if isinstance(status, int) and status is not True and 100 <= status <= 599:
            seen[f"key.{call}"] = str(status)
    if isinstance(keys, list) and keys and all(isinstance(key, str) for key in keys[:_MAX_KEYS]):
        box, log = set(keys[:_MAX_KEYS]), set(log_keys)
        seen["log.host_keys"] = (
            "none in the log" if not log else "the same" if box == log else "some" if box & log else "others"
        )
    return seen


def hardware_values(
    box: BoxHardware, row: Instance, offer: Offer | None, memory_gb: float
) -> dict[str, Value]:
    """Return how the box's hardware is to its row and its offer. What could not be read is not there.

    `memory_gb`: that of the offer.
    """
    gpu_gb = min((gb for _, gb in box.gpus), default=0.0)
    pairs = {
        "box.gpus": (float(len(box.gpus)), float(row.gpus)),
        "box.gpu_memory": (gpu_gb, offer.gpu_memory_gb if offer else 0.0),
        "box.memory": (box.memory_gb, memory_gb),
        "box.disk": (box.disk_gb, row.disk_gb),
    }
    seen: dict[str, Value] = {
        name: shown / listed for name, (shown, listed) in pairs.items() if shown and listed
    }
    if row.gpus and not box.gpus:
        seen["box.gpus"] = 0.0
    if box.cuda and row.cuda:
        seen["box.cuda"] = round(box.cuda - row.cuda, 3)
    return seen


def downloaded_bytes(reply: Mapping[str, Any]) -> int:
    """Return how much the box says that it downloaded; 0 where it does not say."""
    size = reply.get("downloaded")
    return size if isinstance(size, int) and size is not True and 0 < size <= _MAX_BYTES else 0
