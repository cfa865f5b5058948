"""ObservedVast: the provider of a conformance run. It does what `VastProvider` does, and looks on the way.

What it looks for never decides on the run: a look that fails is left out. Each is bounded, and none is begun
once the user wants the machine ended or its time is nearly over.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from launcher.core import Instance, Offer, RentalOrder
from launcher.core.errors import VastrunError
from launcher.core.job import JobSpec
from launcher.decisions import offer_check, policy
from launcher.ports import Abilities, Remote
from launcher.providers.onstart import onstart_text
from launcher.providers.vast import VastProvider
from launcher.providers.vast.conformance import timing
from launcher.providers.vast.conformance.answers import by_id
from launcher.providers.vast.conformance.box_facts import (
    ask_box,
    box_values,
    downloaded_bytes,
    hardware_values,
)
from launcher.providers.vast.conformance.noting import note
from launcher.providers.vast.conformance.observed_remote import ObservedRemote
from launcher.providers.vast.conformance.restarts import Restarts
from launcher.providers.vast.conformance.tape import Tape

_GPU_S = 60.0


@dataclass(frozen=True, kw_only=True)
class Thoroughness:
    """How much is looked at."""

    download_url: str
    """What the box downloads; empty: nothing."""
    download_gb: float = 1.0
    download_s: float = 60.0
    """At most."""
    download_usd: float = 0.02
    """At most."""
    watch_s: float = 60.0
    """How long a machine is looked for after the order, and after its end."""
    probes_s: float = 240.0
    """So long after the order no look at the box is begun."""
    restarts: bool = False
    """It is rebooted, stopped and started again when its job has ended."""
    restarts_s: float = 420.0
    """So long after the order nothing of that is begun."""
    restart_s: float = 150.0
    """How long each is waited for."""
    stopped_s: float = 60.0
    """How long it stays stopped."""


class ObservedVast:
    """`Provider` says what each verb promises."""

    name = VastProvider.name
    free = VastProvider.free
    most_nodes = VastProvider.most_nodes
    shared = VastProvider.shared
    list_lag_s = VastProvider.list_lag_s

    def __init__(
        self, vast: VastProvider, tape: Tape, thorough: Thoroughness, stopping: Callable[[], bool]
    ) -> None:
        """`stopping`: the user wants the run ended."""
        self._vast = vast
        self._tape = tape
        self._thorough = thorough
        self._stopping = stopping
        self._clock = vast.clock
        self._order: RentalOrder | None = None
        self._probed = ""
        self._restarted = False
        vast.api.record(tape.record)

    @property
    def abilities(self) -> Abilities:
        """As the provider's."""
        return self._vast.abilities

    def search(self, spec: JobSpec) -> Sequence[Offer]:
        """Return offers that fit, the cheapest first: how fast they train does not matter here."""
        return sorted(self._vast.search(spec), key=lambda offer: policy.worst_case_usd(spec, offer))

    def rent(self, order: RentalOrder) -> Instance:
        """Rent, then look how soon the machine is shown, and what a second such order is answered."""
        machine = self._vast.rent(order)
        self._order = order
        self._tape.begin(machine.id, self._clock.now())
        created = next((one for one in reversed(self._tape.exchanges) if _made(one.fields, machine.id)), None)
        if created is not None:
            self._tape.rented_at = created.answered_at
        with self._looking():
            self._await_shown(machine.id, order.label)
        with self._looking():
            self._attach(machine)
        with self._looking():
            self._order_again(order)
        return machine

    def instances(self) -> Sequence[Instance]:
        return self._vast.instances()

    def machine(self, instance_id: str) -> Instance | None:
        return self._vast.machine(instance_id)

    def connect(self, instance: Instance) -> Remote:
        """Connect; once the box has its lease, look at the box."""
        if instance.id != self._tape.instance_id:  # an order without an answer made it
            self._tape.begin(instance.id, self._clock.now())
            self._tape.rented_at = None
        remote = self._vast.connect(instance)
        with self._looking():
            self._await_log(instance)
        return ObservedRemote(remote, lambda inner: self._probe(instance, inner), self._note_stranger)

    def destroy(self, instance_id: str) -> None:
        """End the machine; once, before that, look at what a restart does."""
        if self._thorough.restarts and instance_id == self._probed and not self._restarted:
            self._restarted = True
            with self._looking():
                self._restart(instance_id)
        self._vast.destroy(instance_id)

    def _restart(self, instance_id: str) -> None:
        machine = self._vast.machine(instance_id)
        if machine is None:
            return
        restarts = Restarts(
            vast=self._vast,
            tape=self._tape,
            wait_s=self._thorough.restart_s,
            stopped_s=self._thorough.stopped_s,
            may_go_on=lambda: self._in_time(self._thorough.restarts_s),
        )
        restarts.look(machine)

    def _probe(self, instance: Instance, remote: Remote) -> None:
        if self._probed == instance.id or not self._in_time(self._thorough.probes_s):
            return
        self._probed = instance.id
        looks = (self._look_into, self._measure_hardware, self._rename, self._try_addresses, self._download)
        for look in (*looks, self._wait_for_log):
            with self._looking():
                look(instance, remote)

    def _note_stranger(self) -> None:
        self._tape.measured["log.host_keys"] = "others"

    def _await_shown(self, instance_id: str, label: str) -> None:
        """Look until both its row and the list show it."""
        until = self._clock.now() + self._thorough.watch_s
        by_list = shown = False
        while not (by_list and shown) and self._clock.now() < until and not self._stopping():
            # Its label is its run's: a list that lacks it would not help who lost the order's answer.
            by_list = by_list or any(
                one.id == instance_id and one.label == label for one in self._vast.instances()
            )
            shown = shown or self._vast.machine(instance_id) is not None
            if not by_list:
                self._clock.sleep(1.0)

    def _attach(self, machine: Instance) -> None:
        key = self._vast.public_key(machine.label)
        self._note(
            "key.attach",
            "attach key",
            lambda sdk: sdk.attach_ssh(instance_id=int(machine.id), ssh_key=key),
        )

    def _order_again(self, order: RentalOrder) -> None:
        """What it makes has the run's label and a lease; whoever drives the run ends it when it is seen."""
        request = self._vast.request(order)
        self._note(
            "create.again", "create", lambda sdk: sdk.create_instance(id=int(order.offer.id), **request)
        )

    def _await_log(self, instance: Instance) -> None:
        """Ask once whether the log names host keys by now."""
        if "log.seconds" in self._tape.measured or not self._vast.host_keys(instance.id):
            return
        loaded_s = timing.loading_seconds(self._tape)
        cut = self._tape.rented_at and timing.is_cut(self._tape, self._tape.rented_at, self._clock.now())
        if isinstance(loaded_s, float) and self._tape.rented_at is not None and not cut:
            running_s = self._clock.now() - self._tape.rented_at - loaded_s
            self._tape.measured["log.seconds"] = max(0.0, running_s)

    def _wait_for_log(self, instance: Instance, _remote: Remote) -> None:
        """A box whose log said nothing was believed on first use: how late is its log?"""
        until = self._clock.now() + self._thorough.watch_s
        while "log.seconds" not in self._tape.measured and self._clock.now() < until and not self._stopping():
            self._await_log(instance)
            self._clock.sleep(2.0)

    def _look_into(self, instance: Instance, remote: Remote) -> None:
        if self._order is None:
            return
        told = ask_box(remote, instance.id, self._vast.api.server)
        text = onstart_text(self._order.onstart)
        seen = box_values(
            told,
            onstart_sha256=hashlib.sha256(text.encode()).hexdigest(),
            log_keys=self._vast.host_keys(instance.id),
        )
        self._tape.measured.update(seen)

    def _measure_hardware(self, instance: Instance, remote: Remote) -> None:
        printed = remote.run(offer_check.COMMAND, timeout_s=_GPU_S).stdout
        row = self._vast.machine(instance.id) or instance
        offer = self._order.offer if self._order is not None else None
        self._tape.measured.update(hardware_values(offer_check.read_box(printed), row, offer))

    def _rename(self, instance: Instance, _remote: Remote) -> None:
        """The run finds its machine by its id meanwhile."""
        run, dot, ledger = instance.label.partition(".")
        other, path = f"{run}-renamed{dot}{ledger}", by_id(instance.id)
        try:
            self._note("label.rename", "label", lambda sdk: sdk.label_instance(int(instance.id), other))
            self._vast.machine(instance.id)
            rows = [one.fields.get("instances") for one in self._tape.calls("GET", path)]
            if rows and isinstance(rows[-1], dict):
                shown = rows[-1].get("label") == other
                self._tape.measured["label.shown"] = "the new label" if shown else "another"
        finally:
            self._vast.api.once("label", lambda sdk: sdk.label_instance(int(instance.id), instance.label))

    def _try_addresses(self, instance: Instance, _remote: Remote) -> None:
        shells = self._vast.shells(instance)
        for way in ("direct", "proxy"):
            self._tape.measured[f"ssh.{way}"] = self._opens(shells.get(way))

    def _opens(self, shell: Remote | None) -> str:
        if shell is None:
            return "no address"
        try:
            return "opens" if shell.run("true", timeout_s=20.0).exit_code == 0 else "fails"
        except VastrunError:
            return "does not open"
        finally:
            shell.close()

    def _download(self, instance: Instance, remote: Remote) -> None:
        """Download in the box, then ask its row until that has counted it."""
        before = self._vast.machine(instance.id)
        if not self._thorough.download_url or before is None:
            return
        most = int(self._most_gb(before) * 1e9)
        limit_s = self._thorough.download_s
        arguments = (
            instance.id,
            self._vast.api.server,
            self._thorough.download_url,
            str(most),
            f"{limit_s:g}",
        )
        size = downloaded_bytes(ask_box(remote, *arguments, timeout_s=limit_s + 30))
        began, waited_s, measured = self._clock.now(), 0.0, self._tape.measured
        while size and not self._stopping():
            now = self._vast.machine(instance.id)
            counted_gb = (now.down_gb - before.down_gb) if now is not None else 0.0
            measured["download.seconds"] = waited_s = self._clock.now() - began
            # What else came meanwhile is little beside a download: half of it is enough to be seen.
            if counted_gb * 1e9 >= 0.5 * size:
                measured["download.billed"] = counted_gb * 1e9 / size
            if counted_gb * 1e9 >= 0.9 * size or waited_s >= self._thorough.watch_s:
                return

    def _most_gb(self, machine: Instance) -> float:
        """As much as its money allows."""
        price = machine.extras.down_usd_per_gb
        most_gb = self._thorough.download_gb
        return min(most_gb, self._thorough.download_usd / price) if price > 0 else most_gb

    def _note(self, name: str, endpoint: str, call: Callable[..., object]) -> None:
        """Note what one call is answered; nothing where there was no answer, or it came too early."""
        note(self._vast, self._tape, name, endpoint, call)

    def _in_time(self, within_s: float) -> bool:
        since = self._tape.rented_at or self._clock.now()
        return not self._stopping() and self._clock.now() - since < within_s

    @contextmanager
    def _looking(self) -> Iterator[None]:
        """A look that fails is no reason to end the run, which meets the same trouble itself."""
        try:
            yield
        except VastrunError:
            return


def _made(fields: object, instance_id: str) -> bool:
    return isinstance(fields, dict) and str(fields.get("new_contract")) == instance_id
