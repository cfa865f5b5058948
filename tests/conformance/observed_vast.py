"""ObservedVast: the provider of a conformance run, which acts like `VastProvider` and observes Vast.

What it looks for never decides on the run: a look that fails is left out. Each is bounded, and none is begun
once the user wants the machine ended or its time is nearly over.
"""

from __future__ import annotations

import hashlib
import json
import secrets
import shlex
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from tests.conformance import observations
from tests.conformance.assumptions import Value
from tests.conformance.observations import LIST, SEARCH, ended_at, number_of
from tests.conformance.recorder import ApiRecorder
from vastrun.contract import layout
from vastrun.launcher.core import Instance, Offer, RentalOrder
from vastrun.launcher.core.errors import BoxError, HostKeyError, VastrunError
from vastrun.launcher.core.job import JobSpec
from vastrun.launcher.decisions import offer_check, policy
from vastrun.launcher.decisions.offer_check import GB, PYPI_FILE, BoxHardware
from vastrun.launcher.gate.box_reader import parse_lease_state
from vastrun.launcher.ports import Abilities, Remote, with_abilities
from vastrun.launcher.providers.onstart import onstart_text
from vastrun.launcher.providers.vast import VastProvider, calls
from vastrun.launcher.providers.vast.calls import VastCall
from vastrun.launcher.providers.vast.limits import LIMITS

_GPU_S, _LOGIN_S, _DOWNLOAD_S = 60.0, 20.0, 60.0
_LAST_PROBE_S = 240.0
"""Seconds after the order at which the last look at the box begins."""
_PROBE = Path(__file__).with_name("box_probe.py").read_text(encoding="utf-8")
_MAX_CHARACTERS, _MAX_KEYS, _MAX_BYTES = 16_000, 16, 1 << 40
_WORDS: Mapping[str, tuple[str, str]] = {
    "container_id": ("the machine's id", "other"),
    "key": ("present", "absent"),
    "session_key": ("present", "absent"),
}
_FAR_S = 12 * 3600.0
"""Seconds after which the machine of a conformance run, which lives for minutes, is long gone."""


WATCH_S = 60.0
"""Seconds for which a machine is looked for after the order, and after its end."""


class ObservedVast:
    """The Provider port with observations."""

    name = VastProvider.name
    free = VastProvider.free
    max_nodes = VastProvider.max_nodes
    shared = VastProvider.shared
    list_lag_s = VastProvider.list_lag_s

    def __init__(
        self,
        vast: VastProvider,
        recorder: ApiRecorder,
        stopping: Callable[[], bool],
        *,
        download_url: str = PYPI_FILE,
        watch_s: float = WATCH_S,
    ) -> None:
        """`recorder`: of the answers to `vast`. `stopping`: returns whether the user wants the run to end."""
        self._vast, self._recorder, self._stopping = vast, recorder, stopping
        self._download_url, self._watch_s = download_url, watch_s
        self._clock = vast.clock
        self._order: RentalOrder | None = None
        self._probed = ""
        self.instances, self.machine, self.destroy = vast.instances, vast.machine, vast.destroy

    @property
    def abilities(self) -> Abilities:
        """The provider's abilities."""
        return self._vast.abilities

    def search(self, spec: JobSpec) -> Sequence[Offer]:
        """Return fitting offers, lowest price first: training speed does not matter here."""
        return sorted(self._vast.search(spec), key=lambda offer: policy.worst_case_usd(spec, offer))

    def rent(self, order: RentalOrder) -> Instance:
        """Rent, then look how soon the machine is shown, and what a second such order is answered."""
        self._order = order
        machine = self._vast.rent(order)
        made = (o for o in self._recorder.exchanges if str(o.fields.get("new_contract")) == machine.id)
        self._recorder.begin(machine.id, max((o.answered_at for o in made), default=self._clock.now()))
        self._look(self._await_shown, machine.id, order.label)
        key = self._vast.public_key
        self._look(lambda: self._note("key.attach", calls.attach_key(machine.id, key(machine.label))))
        # A second machine has the run's label and a lease; the run's driver ends it.
        self._look(
            lambda: self._note("create.again", calls.create(order.offer.id, self._vast.request(order)))
        )
        return machine

    def connect(self, instance: Instance) -> Remote:
        """Connect; probe the box once it has its lease."""
        if instance.id != self._recorder.instance_id:  # an order without an answer made it
            self._recorder.begin(instance.id, None)
        self._look(self._vast.instances)  # the list beside the row, as long as it loads
        remote = self._vast.connect(instance)
        self._look(self._await_log, instance)
        return with_abilities(_ObservedRemote, remote)(
            remote,
            lambda: self._probe(instance, remote),
            lambda: self._recorder.measured.update({"log.host_keys": "others"}),
        )

    def _probe(self, instance: Instance, remote: Remote) -> None:
        age_s = self._clock.now() - (self._recorder.rented_at or self._clock.now())
        if self._probed == instance.id or self._stopping() or age_s >= _LAST_PROBE_S:
            return
        self._probed = instance.id
        for look in (
            self._look_into,
            self._measure_hardware,
            self._try_addresses,
            self._download,
            self._schedule_again,
            self._wait_for_log,
        ):
            self._look(look, instance, remote)

    def _await_shown(self, instance_id: str, label: str) -> None:
        """Poll until both its row and the list show the machine."""
        until = self._clock.now() + self._watch_s
        by_list = shown = False
        while not (by_list and shown) and self._clock.now() < until and not self._stopping():
            # Its label is its run's: a list that lacks it would not help who lost the order's answer.
            by_list = by_list or any((o.id, o.label) == (instance_id, label) for o in self.instances())
            shown = shown or self.machine(instance_id) is not None
            if not by_list:
                self._clock.sleep(1.0)

    def _schedule_again(self, instance: Instance, _remote: Remote) -> None:
        """Ask once more for what the run has scheduled: for an hour that no limit lets it reach."""
        until = self._clock.now() + _FAR_S
        self._note("schedule.again", calls.schedule_destroy(instance.id, until, until + _FAR_S))

    def _await_log(self, instance: Instance) -> None:
        """Read the log once for host keys."""
        recorder, now = self._recorder, self._clock.now()
        if "log.seconds" in recorder.measured or not self._vast.host_keys(instance.id):
            return
        loaded_s, since = observations.loading_seconds(recorder), recorder.rented_at
        if loaded_s is not None and since is not None and not observations.is_cut(recorder, since, now):
            recorder.measured["log.seconds"] = max(0.0, self._clock.now() - since - loaded_s)

    def _wait_for_log(self, instance: Instance, _remote: Remote) -> None:
        """Measure the delay of the log of a box that was trusted on first use."""
        until, measured = self._clock.now() + self._watch_s, self._recorder.measured
        while "log.seconds" not in measured and self._clock.now() < until and not self._stopping():
            self._await_log(instance)
            self._clock.sleep(2.0)

    def _look_into(self, instance: Instance, remote: Remote) -> None:
        if self._order is None:
            return
        sha256 = hashlib.sha256(onstart_text(self._order.onstart).encode()).hexdigest()
        reply = ask_box(remote, instance.id, self._vast.api.server)
        log_keys = self._vast.host_keys(instance.id)
        self._recorder.measured |= box_values(reply, onstart_sha256=sha256, log_keys=log_keys)

    def _measure_hardware(self, instance: Instance, remote: Remote) -> None:
        box = offer_check.read_box(remote.run(offer_check.COMMAND, timeout_s=_GPU_S).stdout)
        if self._order is None:
            return
        offer, row = self._order.offer, self.machine(instance.id)
        memory_gb = observations.offered_number(self._recorder, offer.id, "cpu_ram") / 1000
        self._recorder.measured |= hardware_values(
            box, row or instance, gpu_memory_gb=offer.gpu_memory_gb, memory_gb=memory_gb
        )

    def _try_addresses(self, instance: Instance, _remote: Remote) -> None:
        shells = self._vast.shells(instance)
        for way in ("direct", "proxy"):
            self._recorder.measured[f"ssh.{way}"] = _opens(shells.get(way))

    def _download(self, instance: Instance, remote: Remote) -> None:
        """Download in the box, then poll its row until the traffic is counted."""
        measured, before = self._recorder.measured, self.machine(instance.id)
        if before is None:
            return
        words = (instance.id, self._vast.api.server, self._download_url, f"{_DOWNLOAD_S:g}")
        size = downloaded_bytes(ask_box(remote, *words, timeout_s=_DOWNLOAD_S + 30))
        began = self._clock.now()
        while size and not self._stopping():
            now = self.machine(instance.id)
            counted = GB * (now.down_gb - before.down_gb) if now is not None else 0.0
            measured["download.seconds"] = waited_s = self._clock.now() - began
            # What else came meanwhile is little beside a download: half of it is enough to be seen.
            is_over = counted >= 0.9 * size or waited_s >= self._watch_s
            if counted >= 0.5 * size or (is_over and counted > 0):
                measured["download.billed"] = counted / size
            if is_over:
                return

    def check_after_run(self) -> None:
        """Look once at all that costs nothing when the run is over; failures are skipped."""
        machine, note = self._recorder.instance_id, self._note
        bad_key = self._vast.api.with_key(secrets.token_hex(32))
        looks = [
            # An id that no machine has.
            lambda: note("unknown.answer", calls.show_instance("1000000000000")),
            lambda: self._recorder.note(bad_key.once, "key.bad", calls.ACCOUNT),
            self._search_clusters,
            lambda: note("overlay.list", calls.OVERLAYS),
            self._search_often,
            self._list_twice,
        ]
        if machine:
            end_again, show = calls.destroy(machine), calls.show_instance(machine)
            ask = (lambda: note("destroy.again", end_again), lambda: note("gone.answer", show))
            looks = [self._watch_absence, *ask, *looks]
        for look in looks:
            if not self._stopping():
                self._look(look)

    def _watch_absence(self) -> None:
        since = ended_at(self._recorder)
        while since is not None and not self._stopping():
            self._vast.instances()
            self._vast.machine(self._recorder.instance_id)
            if self._clock.now() - since >= self._watch_s:
                return
            self._clock.sleep(1.0)

    def _search_clusters(self) -> None:
        heard = self._recorder.ask(self._vast.api.once, _search({"cluster_id": {"neq": None}}))
        rows = heard[-1].fields.get("offers") if heard and heard[-1].status == 200 else None
        if isinstance(rows, list):
            alone = all(
                isinstance(row, dict) and number_of(row.get("cluster_id")) is not None for row in rows
            )
            found = "clusters alone" if alone else "others as well"
            self._recorder.measured["offer.cluster"] = found if rows else "nothing"

    def _search_often(self) -> None:
        """Search as often per minute as documented, the run's searches included, until a rejection."""
        since = self._clock.now() - _BURST.seconds
        searches = self._recorder.calls("POST", SEARCH)
        answered = sum(one.asked_at > since and one.status == 200 for one in searches)
        while answered < _BURST.calls and not self._stopping():
            heard = self._recorder.ask(self._vast.api.once, _search({"num_gpus": {"eq": "1"}}))
            if not heard or heard[-1].status not in (200, 429):
                return
            if heard[-1].status == 429:
                break
            answered += 1
        self._recorder.measured["limit.searches"] = float(answered)

    def _list_twice(self) -> None:
        page = calls.list_instances(limit=1)
        heard = self._recorder.ask(self._vast.api.once, page, page, pause_s=0.5)
        heard = [one for one in heard if one.path == LIST]
        if len(heard) != 2 or heard[0].status != 200 or not heard[1].status:
            return
        self._recorder.measured["limit.list"] = heard[1].word

    def _note(self, name: str, call: VastCall) -> None:
        self._recorder.note(self._vast.api.once, name, call)

    def _look(self, look: Callable[..., object], *arguments: object) -> None:
        """Run an observation; its failure must not end the run, which would meet the same error itself."""
        with suppress(VastrunError):
            look(*arguments)


class _ObservedRemote:
    """The Remote port with observations."""

    def __init__(self, inner: Remote, has_lease: Callable[[], None], is_stranger: Callable[[], None]) -> None:
        """`has_lease` is called once the lease is there; `is_stranger` when another host key is shown."""
        self._inner = inner
        self._has_lease: Callable[[], None] | None = has_lease
        self._is_stranger = is_stranger
        self.run, self.put, self.write, self.close = inner.run, inner.put, inner.write, inner.close

    def read(self, path: str, *, offset: int = 0, limit: int = 1 << 20) -> bytes:
        try:
            content = self._inner.read(path, offset=offset, limit=limit)
        except HostKeyError:
            self._is_stranger()
            raise
        # A lease that cannot be armed is worth a look most of all.
        if (
            path == layout.LEASE_STATE
            and self._has_lease
            and parse_lease_state(content) in ("armed", "proving")
        ):
            look, self._has_lease = self._has_lease, None
            look()
        return content


def ask_box(remote: Remote, *arguments: str, timeout_s: float = 60.0) -> Mapping[str, Any]:
    """Run the probe in the box. Raises UnreachableError, GoneError; BoxError when its answer is none."""
    words = shlex.join(("-", *arguments))
    command = f"\"$(command -v python3 || command -v python)\" {words} <<'PROBE_END'\n{_PROBE}\nPROBE_END\n"
    done = remote.run(command, timeout_s=timeout_s)
    try:
        if len(done.stdout) > _MAX_CHARACTERS:
            raise ValueError(f"{len(done.stdout)} characters")
        if not isinstance(reply := json.loads(done.stdout.strip().rpartition("\n")[2]), dict):
            raise ValueError("not an object")
    except (ValueError, RecursionError) as error:
        raise BoxError(f"the box did not describe itself: {done.stderr.strip()[-200:]!r}") from error
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
    box: BoxHardware, row: Instance, *, gpu_memory_gb: float, memory_gb: float
) -> dict[str, Value]:
    """Return how the box's hardware is to its row and its offer. What could not be read is not there.

    `gpu_memory_gb`, `memory_gb`: those of the offer.
    """
    gpu_gb = min((gb for _, gb in box.gpus), default=0.0)
    pairs = {
        "box.gpus": (float(len(box.gpus)), float(row.gpus)),
        "box.gpu_memory": (gpu_gb, gpu_memory_gb),
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


def _opens(shell: Remote | None) -> str:
    if shell is None:
        return "no address"
    try:
        return "opens" if shell.run("true", timeout_s=_LOGIN_S).exit_code == 0 else "fails"
    except VastrunError:
        return "does not open"
    finally:
        shell.close()


_BURST = LIMITS["search"]


def _search(filters: Mapping[str, Any]) -> VastCall:
    """Return the smallest possible search."""
    return calls.search(filters, kind="on-demand", disk_gb=8.0, order=("dph_total", "asc"), limit=1)
