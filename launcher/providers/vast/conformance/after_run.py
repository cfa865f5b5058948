"""Observations after the end of the machine, free of charge."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from vastrun.launcher.core.errors import VastrunError
from vastrun.launcher.providers.vast import VastProvider, calls
from vastrun.launcher.providers.vast.calls import VastCall
from vastrun.launcher.providers.vast.conformance.observations import (
    LIST,
    SEARCH,
    ended_at,
    number_of,
)
from vastrun.launcher.providers.vast.conformance.recorder import ApiRecorder
from vastrun.launcher.providers.vast.limits import LIMITS

_EARLY_S = 0.5
_NEVER = "1000000000000"
"""An id that no machine has."""
_BURST = LIMITS["search"]
_ANY = {"num_gpus": {"eq": "1"}}
_CLUSTERS = {"cluster_id": {"neq": None}}


@dataclass(frozen=True, kw_only=True)
class AfterRun:
    """The observations after a run, in order."""

    vast: VastProvider
    recorder: ApiRecorder
    watch_s: float
    """Seconds for which the absence of a destroyed machine is watched."""
    stopping: Callable[[], bool]
    """Returns whether the user wants to stop."""

    def look(self) -> None:
        """Make each observation once. Stops early at the user's request; failures are skipped."""
        machine, ask = self.recorder.instance_id, self._ask_for
        looks = [lambda: ask("unknown.answer", _NEVER), self._use_bad_key, self._search_clusters]
        looks += [self._list_overlays, self._search_often, self._list_twice]
        if machine:
            looks = [self._watch_absence, self._end_again, lambda: ask("gone.answer", machine), *looks]
        for look in looks:
            if not self.stopping():
                with suppress(VastrunError):
                    look()

    def _watch_absence(self) -> None:
        since = ended_at(self.recorder)
        while since is not None and not self.stopping():
            self.vast.instances()
            self.vast.machine(self.recorder.instance_id)
            if self.vast.clock.now() - since >= self.watch_s:
                return
            self.vast.clock.sleep(1.0)

    def _end_again(self) -> None:
        self._note("destroy.again", calls.destroy(self.recorder.instance_id))

    def _ask_for(self, name: str, instance_id: str) -> None:
        self._note(name, calls.show_instance(instance_id))

    def _use_bad_key(self) -> None:
        other = self.vast.api.with_key(secrets.token_hex(32))
        self.recorder.note(other.once, "key.bad", calls.account())

    def _search_clusters(self) -> None:
        heard = self.recorder.ask(self.vast.api.once, _search(_CLUSTERS))
        rows = heard[-1].fields.get("offers") if heard and heard[-1].status == 200 else None
        if isinstance(rows, list):
            alone = all(
                isinstance(row, dict) and number_of(row.get("cluster_id")) is not None for row in rows
            )
            found = "clusters alone" if alone else "others as well"
            self.recorder.measured["offer.cluster"] = found if rows else "nothing"

    def _list_overlays(self) -> None:
        self._note("overlay.list", calls.list_overlays())

    def _search_often(self) -> None:
        """Search as often per minute as documented, the run's searches included, until a rejection."""
        since = self.vast.clock.now() - _BURST.seconds
        searches = self.recorder.calls("POST", SEARCH)
        answered = sum(one.asked_at > since and one.status == 200 for one in searches)
        while answered < _BURST.calls and not self.stopping():
            heard = self.recorder.ask(self.vast.api.once, _search(_ANY))
            if not heard or heard[-1].status not in (200, 429):
                return
            if heard[-1].status == 429:
                break
            answered += 1
        self.recorder.measured["limit.searches"] = float(answered)

    def _list_twice(self) -> None:
        page = calls.list_instances(limit=1)
        heard = self.recorder.ask(self.vast.api.once, page, page, pause_s=_EARLY_S)
        heard = [one for one in heard if one.path == LIST]
        if len(heard) != 2 or heard[0].status != 200 or not heard[1].status:
            return
        self.recorder.measured["limit.list"] = heard[1].word

    def _note(self, name: str, call: VastCall) -> None:
        self.recorder.note(self.vast.api.once, name, call)


def _search(filters: Mapping[str, Any]) -> VastCall:
    """Return the smallest possible search."""
    return calls.search(filters, kind="on-demand", disk_gb=8.0, order=("dph_total", "asc"), limit=1)
