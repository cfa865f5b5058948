"""ASSUMPTIONS: all that vastrun takes for granted of Vast's live service. The emulator reads the same table.

`python -m tests.conformance` compares each row with what the service does. To add one: a row here, how it is
seen (`observations.py`, or `measured` by a probe), and what the emulator makes of it in
`tests/emulators/behaviour.py`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

Value = str | float | Mapping[str, str]
"""An observation of one assumption: a word, a number, or a word for each of several fields."""
_MAX_WORD, _MAX_FIELDS, _MAX_NUMBER = 80, 200, 1e12


class Words:
    """Any of these words, for example `404 no_such_instance`; the first is the usual one."""

    def __init__(self, *allowed: str) -> None:
        self._allowed = allowed
        self.usual: Value = allowed[0]

    def read(self, raw: Any) -> Value:
        return _word(raw)

    def agrees(self, seen: Value) -> bool:
        return seen in self._allowed

    def shown(self, seen: Value) -> str:
        return str(seen)

    def __str__(self) -> str:
        return " or ".join(self._allowed)


@dataclass(frozen=True)
class Within:
    """A number from `low` to `high`."""

    low: float
    high: float
    unit: str
    usual: float = 0.0

    def read(self, raw: Any) -> Value:
        if isinstance(raw, bool) or not isinstance(raw, int | float) or not abs(raw) <= _MAX_NUMBER:
            raise ValueError(f"expected a number, got {str(raw)[:_MAX_WORD]!r}")
        return float(raw)

    def agrees(self, seen: Value) -> bool:
        return isinstance(seen, int | float) and self.low <= seen <= self.high

    def shown(self, seen: Value) -> str:
        return f"{seen:.3g} {self.unit}"

    def __str__(self) -> str:
        if math.isinf(self.high):
            return f"at least {self.low:g} {self.unit}"
        if self.low == self.high:
            return f"{self.low:g} {self.unit}"
        return f"{'at most' if self.low == 0 else f'{self.low:g} to'} {self.high:g} {self.unit}"


class Fields:
    """Fields, each with these words alone, `|` between them: types, or a unit."""

    def __init__(self, expected: Mapping[str, str]) -> None:
        self.usual: Mapping[str, str] = expected

    def read(self, raw: Any) -> Value:
        if not isinstance(raw, dict) or len(raw) > _MAX_FIELDS:
            raise ValueError(f"expected fields, got {str(raw)[:_MAX_WORD]!r}")
        return {_word(name): _word(word) for name, word in raw.items()}

    def agrees(self, seen: Value) -> bool:
        return isinstance(seen, Mapping) and not self._deviating(seen)

    def shown(self, seen: Value) -> str:
        if not isinstance(seen, Mapping):
            return str(seen)
        return ", ".join(f"{name} is {seen[name]}" for name in self._deviating(seen)) or f"{len(seen)} fields"

    def __str__(self) -> str:
        return f"{len(self.usual)} fields"

    def _deviating(self, seen: Mapping[str, str]) -> list[str]:
        """Return the fields that differ from what is assumed; a field that was not seen does not."""
        expected = {name: set(words.split("|")) for name, words in self.usual.items() if name in seen}
        return [name for name, words in expected.items() if not set(seen[name].split("|")) <= words]


Kind = Words | Within | Fields
"""The values that agree with an assumption.

`read` reads one from a file, and raises ValueError for anything that no conformance run writes. `shown`
writes one: of fields, those that differ. The emulator does what is `usual`.
"""


class State(StrEnum):
    """Result of the comparison of an assumption."""

    AGREES = "agrees"
    DEVIATES = "deviates"
    NOT_SEEN = "not seen"


class When(StrEnum):
    """Time at which it can be seen."""

    RENT = "rent"
    SETTLE = "settle"
    """Minutes later, when what was charged is settled."""


@dataclass(frozen=True)
class Assumption:
    """One thing that the live service is taken to do."""

    text: str
    """Subject of the assumption, in a few words."""
    assumed: Kind
    how: str
    """Source of the observation, in words."""
    rests: str
    """Code that depends on it."""
    when: When = When.RENT


@dataclass(frozen=True, kw_only=True)
class Comparison:
    """An assumption with its observation."""

    name: str
    state: State
    text: str
    assumed: str
    seen: Value | None
    """Observed value; null if nothing was observed."""
    seen_text: str
    how: str
    rests: str
    when: When


def compare(name: str, seen: Value | None) -> Comparison:
    """Compare the assumption of that name with what was seen; None: it was not."""
    row = ASSUMPTIONS[name]
    state = State.NOT_SEEN
    if seen is not None:
        state = State.AGREES if row.assumed.agrees(seen) else State.DEVIATES
    return Comparison(
        name=name,
        state=state,
        text=row.text,
        assumed=str(row.assumed),
        seen=seen,
        seen_text="" if seen is None else row.assumed.shown(seen),
        how=row.how,
        rests=row.rests,
        when=row.when,
    )


def _word(raw: Any) -> str:
    if not isinstance(raw, str) or not 0 < len(raw) <= _MAX_WORD or not raw.isprintable():
        raise ValueError(f"expected a short word, got {str(raw)[:_MAX_WORD]!r}")
    return raw


def _typed(**names: str) -> dict[str, str]:
    """Return the type of each field, from the fields of each type; `null` is what some may be besides."""
    types = {"maybe_number": "number|null", "maybe_text": "text|null"}
    return {name: types.get(kind, kind) for kind, listed in names.items() for name in listed.split()}


OFFER = _typed(
    number="id ask_contract_id machine_id num_gpus gpu_ram cpu_ram disk_space dph_base dph_total "
    "inet_down_cost inet_up_cost",
    text="gpu_name verification",
    bool="rentable rented",
    maybe_text="cpu_arch geolocation",
    maybe_number="cuda_max_good compute_cap reliability end_date min_bid inet_down dlperf cluster_id",
)
INSTANCE = _typed(
    number="id machine_id num_gpus cpu_ram disk_space dph_base dph_total inet_down_cost inet_up_cost "
    "start_date",
    text="label gpu_name image_uuid",
    bool="is_bid",
    maybe_text="actual_status cur_state intended_status status_msg",
    maybe_number="gpu_frac cuda_max_good inet_down inet_up inet_down_billed inet_up_billed end_date",
)
RUNNING = _typed(number="uptime_mins ssh_port", text="public_ipaddr ssh_host", object="ports")
CREATE = _typed(bool="success", number="new_contract")
CHARGE = _typed(number="start end amount", text="source type", object="metadata", list="items")
UNIT_SPANS: Mapping[str, Mapping[str, tuple[float, float, float]]] = {
    "gpu_ram": {"MB": (1e3, 1e6, 1), "GB": (1, 1e3, 1e-3)},
    "cpu_ram": {"MB": (1e3, 1e8, 1), "GB": (1, 1e3, 1e-3)},
    "disk_space": {"GB": (1, 1e5, 1), "MB": (1e5, 1e9, 1e3)},
    "reliability": {"fraction": (0, 1, 1), "percent": (1, 100, 100)},
    "end_date": {"epoch s": (1e9, 1e11, 1), "epoch ms": (1e11, 1e14, 1e3)},
    "compute_cap": {"hundreds": (300, 3000, 1), "plain": (3, 30, 1e-2)},
    "cuda_max_good": {"plain": (5, 50, 1), "thousands": (5e3, 5e4, 1e3)},
}
"""The units of the market's numbers, the assumed one first: from, to, and the factor that makes one of the
first unit into it.

`down` in Mbit/s or MB/s cannot be recognised by its size.
"""
UNITS = {name: next(iter(spans)) for name, spans in UNIT_SPANS.items()}

# fmt: off
ASSUMPTIONS: Mapping[str, Assumption] = {
    "offer.fields": Assumption("types of the fields of an offer", Fields(OFFER),
        "every offer of the searches", "rows.OfferRow: an offer without them is passed over"),
    "offer.units": Assumption("units of an offer's numbers", Fields(UNITS),
        "the middle value of each over all offers",
        "rows.OfferRow, offers.query: memory, disk, reliability and the end of the contract"),
    "limit.searches": Assumption("searches that are answered within a minute",
        Within(10, 10, "searches", usual=10),
        "as many as are documented and not one above, after the machine has ended",
        "limits.LIMITS: how fast a launcher searches"),
    "limit.list": Assumption("a second list after half a second",
        Words("429 object", "429 rate_limit_exceeded", "429 text"),
        "two lists 0.5 s apart, once",
        "limits.LIMITS, errors: how a call that comes too early is recognised"),
    "offer.cluster": Assumption("a search for offers of clusters finds", Words("nothing", "clusters alone"),
        "one search with a filter on cluster_id, after the machine has ended",
        "offers.query: where a run with several nodes finds its machines"),
    "overlay.list": Assumption("the list of overlay networks", Words("200 list"),
        "one call, after the machine has ended; no network is made",
        "overlays.Overlays: a run with several nodes; one machine does without"),
    "clock.ahead": Assumption("this computer's clock is ahead by", Within(-60, 60, "s"),
        "the middle of all Date headers", "deadlines, and the bill compared with the ledger"),
    "key.bad": Assumption("an unknown key", Words("404 auth_error", "401 auth_error", "403 auth_error"),
        "one call with an invalid key",
        "errors._TABLE: a revoked key is not taken for a machine that is gone"),
    "create.answer": Assumption("an order", Words("200 success"), "the order of the run", "rental.rent"),
    "create.fields": Assumption("types of the fields of that answer", Fields(CREATE), "the order of the run",
        "rental.rent: the machine's id"),
    "create.seconds": Assumption("how long that answer takes", Within(0, 30, "s"), "the order of the run",
        "api._TIMEOUT_S: after it, it is not known whether there is a machine"),
    "create.state": Assumption("actual_status right after",
        Words("null", "created", "loading", "scheduling", "running"),
        "the machine's row, the first time it is shown", "instance_row.InstanceRow, boot.may_be_reachable"),
    "create.label": Assumption("the label of the order in the machine's row", Words("echoed"),
        "the machine's row compared with the order",
        "flow/machines.py: a launcher that was killed finds its machine"),
    "create.image": Assumption("the image of the order in the machine's row", Words("echoed"),
        "the machine's row compared with the order", "the ledger's note of what image ran"),
    "create.price": Assumption("price of the machine to that of its offer", Within(0, 1.02, "times", usual=1),
        "dph_total of the machine's row and of the offer",
        "decisions/offer_check.py, policy.lease_of: how long the money lasts"),
    "create.again": Assumption("a second order of the same offer, with the same label",
        Words("410 no_such_ask", "404 no_such_ask", "400 no_such_ask"),
        "ordered once more with cancel_unavail; what that makes is ended at once",
        "rental, flow/rental.py: an order is never repeated blindly"),
    "new.by_id": Assumption("seconds until a new machine is shown by its id", Within(0, 5, "s"),
        "its row, asked for every 2 s from the order on", "policy.ABSENT_S: a machine is not taken for gone"),
    "new.in_list": Assumption("seconds until a new machine stands in the list", Within(0, 60, "s"),
        "the list, asked for every second from the order on",
        "VastProvider.list_lag_s: how long one is looked for whose id is not known"),
    "new.by_label": Assumption("seconds until the list shows it under its label", Within(0, 60, "s"),
        "the list, asked for every second from the order on",
        "flow/rental.py: an order whose answer is lost is found by its label"),
    "key.attach": Assumption("an SSH key that is attached while it loads", Words("200 success"),
        "the run's key, right after the order", "VastProvider._let_in"),
    "instance.fields": Assumption("types of the fields of a machine's row, by its id", Fields(INSTANCE),
        "every such answer", "instance_row.InstanceRow"),
    "instance.running": Assumption("further fields once it runs, by its id", Fields(RUNNING),
        "every such answer", "instance_row.InstanceRow: its addresses, how long it runs"),
    "list.fields": Assumption("types of the fields of a machine's row, in the list", Fields(INSTANCE),
        "every such answer", "instance_row.InstanceRow"),
    "list.counts": Assumption("total_instances of the list, to its rows", Words("as many"),
        "every list of one page", "VastApi.instances: a list that is shorter than it says is refused"),
    "instance.start": Assumption("start_date after the order", Within(-60, 60, "s"),
        "the machine's row, by our clock", "bills: since when a machine costs"),
    "instance.uptime": Assumption("least uptime_mins while it runs", Within(0, math.inf, "minutes"),
        "every such answer", "columns.seconds: a negative one says nothing; one source, 2026-08"),
    "instance.memory": Assumption("cpu_ram of the machine's row is",
        Words("the host's", "the slice's", "that of a whole host"),
        "the machine's row and its offer, by gpu_frac", "nothing: neither is known from two sources"),
    "loading.seconds": Assumption("seconds until it runs", Within(0, 300, "s"),
        "the first row that calls it running",
        "that ten minutes are enough here; policy.BOOT_S waits for 40"),
    "onstart.sha256": Assumption("the onstart text in the box", Words("as ordered"),
        "the SHA-256 of ~/onstart.sh there", "providers/onstart.py: the lease is in it"),
    "box.container_id": Assumption("CONTAINER_ID for onstart", Words("the machine's id"),
        "the environment of the lease", "onstart/lease.sh: which machine it ends"),
    "box.key": Assumption("CONTAINER_API_KEY for onstart", Words("present"),
        "the environment of the lease; the key is never printed", "onstart/lease.sh: the box can end itself"),
    "box.session_key": Assumption("CONTAINER_API_KEY in an SSH session", Words("absent"),
        "the environment of the probe", "docs/security.md: no program of the job is handed the key"),
    "key.own_row": Assumption("the box's key reads its own row", Words("200"),
        "asked in the box, with its key", "onstart/lease.sh: proves that the key works"),
    "key.list": Assumption("the box's key reads the list of machines", Words("403", "401", "404"),
        "asked in the box, with its key", "docs/security.md: what a stranger's computer learns"),
    "key.account": Assumption("the box's key reads the account", Words("403", "401", "404"),
        "asked in the box, with its key", "docs/security.md: what a stranger's computer learns"),
    "log.seconds": Assumption("seconds from running until the log names host keys", Within(0, 60, "s"),
        "the container's log, asked for again and again", "ssh/keys.py, policy.ANSWER_S"),
    "log.host_keys": Assumption("host keys in the log, to those in the box", Words("the same"),
        "fingerprints of both", "ssh/keys.py: whom the launcher believes"),
    "ssh.direct": Assumption("the direct address, with the attached key", Words("opens"),
        "a login at that address alone", "VastProvider.connect"),
    "ssh.proxy": Assumption("the proxy's address, with the attached key", Words("opens"),
        "a login at that address alone", "VastProvider.connect: where high ports are blocked"),
    "box.gpus": Assumption("GPUs in the box, to its row", Within(1, math.inf, "times", usual=1), "nvidia-smi",
        "decisions/offer_check.py"),
    "box.gpu_memory": Assumption("memory of a GPU in the box, to its offer",
        Within(0.9, 1.2, "times", usual=1), "nvidia-smi", "decisions/offer_check.py"),
    "box.memory": Assumption("memory in the box, to its offer", Within(0.9, math.inf, "times", usual=1),
        "/proc/meminfo and the container's limit", "rows.OfferRow: cpu_ram of an offer is its slice's"),
    "box.disk": Assumption("disk in the box, to its row", Within(0.9, math.inf, "times", usual=1), "df",
        "decisions/offer_check.py"),
    "box.cuda": Assumption("newest CUDA of the box's driver, less that of its row",
        Within(0, math.inf, "versions"), "nvidia-smi", "image/lock.py: which image runs there"),
    "download.billed": Assumption("inet_down_billed in kilobytes, to what was downloaded",
        Within(0.9, 1.5, "times", usual=1), "a download in the box, then its row",
        "columns.billed_gb; traffic.counter_fault: else vastrun counts its own transfers"),
    "download.seconds": Assumption("seconds until the row counts it", Within(0, 30, "s"),
        "its row, asked for again and again",
        "bills.traffic_usd: what is not yet counted at the end is not in the ledger"),
    "schedule.answer": Assumption("a request to end the machine later, sent by Vast itself",
        Words("200 object", "200 success"),
        "the schedule of the run, for an hour after its last possible end",
        "scheduled_ends.ScheduledEnds: the end that needs none of vastrun's programs"),
    "schedule.again": Assumption("a second one for the same machine", Words("422 scheduled_job_exists"),
        "the same request once more",
        "scheduled_ends.ScheduledEnds: it is moved by the id that comes with it"),
    "schedule.early": Assumption("it was sent although its hour had not come", Words("no"),
        "the machine's row, until the run ends it",
        "scheduled_ends.end_hour: it never ends a machine that may live"),
    "schedule.removed": Assumption("removing it", Words("200 success", "200 object"), "the end of the run",
        "scheduled_ends.ScheduledEnds.cancel_end"),
    "destroy.answer": Assumption("a request to end the machine", Words("200 success"), "the end of the run",
        "VastApi.destroy"),
    "destroy.again": Assumption("a second such request", Words("404 no_such_instance", "404 not_found"),
        "once, after its absence was confirmed", "errors._TABLE: destroy is safe to repeat"),
    "gone.by_id": Assumption("seconds that a machine that was ended is shown by its id", Within(0, 30, "s"),
        "its row, for a minute after its end was agreed to", "flow/steps.py: its absence is seen twice"),
    "gone.in_list": Assumption("seconds that it stands in the list", Within(0, 30, "s"),
        "the list, for a minute after its end was agreed to", "flow/steps.py, policy.DESTROY_TRIES"),
    "gone.again": Assumption("it is shown again after it was absent", Words("no"), "both, for that minute",
        "flow/context.py: two looks are enough"),
    "gone.answer": Assumption("a machine that was ended, by its id",
        Words("200 instances=null", "404 no_such_instance", "404 not_found"), "after that minute",
        "VastApi.instance"),
    "unknown.answer": Assumption("an id that never existed",
        Words("200 instances=null", "404 no_such_instance", "404 not_found"), "one call",
        "VastApi.instance"),
    "charge.fields": Assumption("types of the fields of a charge", Fields(CHARGE), "the machine's charges",
        "rows.parse_charge", when=When.SETTLE),
    "charge.gpu": Assumption("what was charged for GPUs, to the time that it ran",
        Within(0.8, 1.1, "times", usual=1),
        "charges compared with the ledger's seconds and price: loading is free",
        "bills: loading costs the disk alone", when=When.SETTLE),
    "charge.disk": Assumption("what was charged for its disk, to the time that it was rented",
        Within(0.8, 1.25, "times", usual=1), "charges compared with the ledger's seconds and price",
        "bills: the disk costs from the order to the end", when=When.SETTLE),
    "charge.total": Assumption("all that was charged, to the ledger", Within(0.8, 1.05, "times", usual=1),
        "charges compared with the ledger", "the promise that the ledger is never below the bill",
        when=When.SETTLE),
}
# fmt: on
"""Assumptions by name, in the order in which a run meets them."""
