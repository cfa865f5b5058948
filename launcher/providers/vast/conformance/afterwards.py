"""What is looked at once the machine has ended: that costs nothing, and nobody waits for it."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import partial

from launcher.core.errors import VastrunError
from launcher.providers.vast import VastProvider
from launcher.providers.vast.conformance.answers import LIST, SEARCH, by_id, number_of
from launcher.providers.vast.conformance.looking import refusal_values, word_of
from launcher.providers.vast.conformance.noting import note
from launcher.providers.vast.conformance.tape import Tape
from launcher.providers.vast.limits import LIMITS

_EARLY_S = 0.5
_NEVER = 10**12
"""No machine has such a number."""
_BURST = LIMITS["search"]
_LONGEST_PAUSE_S = 10.0


@dataclass(frozen=True, kw_only=True)
class Afterwards:
    """The looks, in their order."""

    vast: VastProvider
    tape: Tape
    watch_s: float
    """How long a machine is watched that was ended."""
    stopping: Callable[[], bool]
    """The user wants an end."""

    def look(self) -> None:
        """Ask each question once. Ends early when the user wants that; what cannot be asked is left out."""
        looks = [self._ask_unknown, self._use_bad_key, self._search_clusters, self._list_overlays]
        looks += [self._search_often, self._list_twice]
        if self.tape.instance_id:
            looks = [self._watch_absence, self._end_again, self._ask_for_it, *looks]
        for look in looks:
            if not self.stopping():
                with suppress(VastrunError):
                    look()

    def _watch_absence(self) -> None:
        path = by_id(self.tape.instance_id)
        ended = self.tape.first("DELETE", path, lambda one: 200 <= one.status < 300)
        while ended is not None and not self.stopping():
            self.vast.instances()
            self.vast.machine(self.tape.instance_id)
            if self.vast.clock.now() - ended.answered_at >= self.watch_s:
                return
            self.vast.clock.sleep(1.0)

    def _end_again(self) -> None:
        machine = int(self.tape.instance_id)
        note(self.vast, self.tape, "destroy.again", "destroy", lambda sdk: sdk.destroy_instance(id=machine))

    def _ask_for_it(self) -> None:
        self._ask("gone.answer", int(self.tape.instance_id))

    def _ask_unknown(self) -> None:
        self._ask("unknown.answer", _NEVER)

    def _ask(self, name: str, instance_id: int) -> None:
        path, query = f"/instances/{instance_id}/", {"owner": "me"}
        note(self.vast, self.tape, name, "show", lambda sdk: sdk.client.get(path, query_args=query))

    def _use_bad_key(self) -> None:
        other = self.vast.api.with_key(secrets.token_hex(32))
        before = len(self.tape.exchanges)
        other.once("account", lambda sdk: sdk.client.get("/users/current"))
        heard = self.tape.exchanges[before:]
        if heard and heard[-1].status not in (0, 429):
            self.tape.measured["key.bad"] = word_of(heard[-1])

    def _search_clusters(self) -> None:
        before = len(self.tape.exchanges)
        self.vast.api.once("search", partial(_search, filters={"cluster_id": {"neq": None}}))
        heard = self.tape.exchanges[before:]
        rows = heard[-1].fields.get("offers") if heard and heard[-1].status == 200 else None
        if isinstance(rows, list):
            alone = all(
                isinstance(row, dict) and number_of(row.get("cluster_id")) is not None for row in rows
            )
            found = "clusters alone" if alone else "others as well"
            self.tape.measured["offer.cluster"] = found if rows else "nothing"

    def _list_overlays(self) -> None:
        note(self.vast, self.tape, "overlay.list", "overlay", lambda sdk: sdk.show_overlays())

    def _search_often(self) -> None:
        """Search as often within a minute as is documented, with the run's own; a refusal ends it."""
        since = self.vast.clock.now() - _BURST.seconds
        answered = sum(
            one.asked_at > since and one.status == 200 for one in self.tape.calls("POST", f"{SEARCH}")
        )
        while answered < _BURST.calls and not self.stopping():
            before = len(self.tape.exchanges)
            self.vast.api.once("search", _search)
            heard = self.tape.exchanges[before:]
            if not heard or heard[-1].status != 200:
                if heard and heard[-1].status != 429:
                    return
                break
            answered += 1
        self.tape.measured["limit.searches"] = float(answered)

    def _list_twice(self) -> None:
        before = len(self.tape.exchanges)
        self.vast.api.once("list", _list, _list, pause_s=_EARLY_S)
        heard = [one for one in self.tape.exchanges[before:] if one.path == LIST]
        if len(heard) != 2 or heard[0].status != 200 or not heard[1].status:
            return
        self.tape.measured["limit.list"] = word_of(heard[1])
        if heard[1].status == 429:
            self.tape.measured |= refusal_values(heard[1])
            self._list_with_bad_key()
            self._list_until_answered(heard[1].answered_at)

    def _list_with_bad_key(self) -> None:
        """Ask the same once with a key that is none, while this computer is refused."""
        before = len(self.tape.exchanges)
        self.vast.api.with_key(secrets.token_hex(32)).once("account", _list)
        heard = self.tape.exchanges[before:]
        if heard and heard[-1].status:
            self.tape.measured["limit.bad_key"] = word_of(heard[-1])

    def _list_until_answered(self, refused_at: float) -> None:
        """Keep the documented distance, then twice that, and so on: when is a list answered again?"""
        pause_s = LIMITS["list"].seconds
        self.vast.clock.sleep(max(0.0, refused_at + pause_s - self.vast.clock.now()))
        while not self.stopping():
            before = len(self.tape.exchanges)
            self.vast.api.once("list", _list)
            heard = self.tape.exchanges[before:]
            if not heard or heard[-1].status not in (200, 429):
                return
            self.tape.measured["limit.window"] = heard[-1].asked_at - refused_at
            if heard[-1].status == 200 or pause_s > _LONGEST_PAUSE_S:
                return
            pause_s *= 2
            self.vast.clock.sleep(pause_s)


def _search(sdk: object, filters: Mapping[str, object] = {"num_gpus": {"eq": "1"}}) -> object:
    """The smallest search there is."""
    return sdk.client.post("/bundles/", json_data={"limit": 1, **filters})  # type: ignore[attr-defined]


def _list(sdk: object) -> object:
    return sdk.client.get("/api/v1/instances/", query_args={"limit": 1})  # type: ignore[attr-defined]
