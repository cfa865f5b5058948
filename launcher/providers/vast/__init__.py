"""The provider `vast`: GPUs rented on Vast.ai."""

from __future__ import annotations

import contextlib
import math
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path
from random import Random
from typing import Any

from vastrun.launcher.core import (
    AccountStatus,
    Cause,
    Charge,
    Identity,
    Instance,
    Offer,
    RentalOrder,
    SearchFinding,
    run_id_in,
)
from vastrun.launcher.core.errors import (
    GoneError,
    IncompleteListError,
    NoOfferError,
    ProviderError,
    UnreachableError,
)
from vastrun.launcher.core.job import JobSpec
from vastrun.launcher.decisions.job_shape import shape_of, steps_of
from vastrun.launcher.decisions.market_report import MarketReport
from vastrun.launcher.decisions.speed_history import SpeedHistory
from vastrun.launcher.image.lock import Lock, shipped_lock
from vastrun.launcher.ports import Abilities, Clock, RateLimitStore, Remote, SecretStore
from vastrun.launcher.providers import ProviderContext
from vastrun.launcher.providers.identity import HostKeyLog
from vastrun.launcher.providers.onstart import BOX, readable_text
from vastrun.launcher.providers.vast import account as accounts
from vastrun.launcher.providers.vast import boot, market, renting
from vastrun.launcher.providers.vast.addresses import DirectAddresses
from vastrun.launcher.providers.vast.api import VastApi
from vastrun.launcher.providers.vast.boot import OFFLINE_S, offline_error, stop_error
from vastrun.launcher.providers.vast.credentials import SERVER, VastAccount
from vastrun.launcher.providers.vast.instance_row import InstanceRow, has_our_label, id_of
from vastrun.launcher.providers.vast.key_access import VARIABLE, KeyAccess
from vastrun.launcher.providers.vast.latest import Latest
from vastrun.launcher.providers.vast.limits import LIMITS, FileRateLimitStore, Limiter
from vastrun.launcher.providers.vast.overlays import WHY_ONE_NODE, Overlays
from vastrun.launcher.providers.vast.search_check import search_findings
from vastrun.launcher.providers.vast.volumes import Volumes
from vastrun.launcher.ssh.connection import Login
from vastrun.launcher.ssh.hosts import KnownHosts
from vastrun.launcher.ssh.keys import KeyRing
from vastrun.launcher.ssh.noise import NoiseFilter
from vastrun.launcher.ssh.remote import SshRemote

Recall = Callable[[JobSpec], SpeedHistory]

_LIST_S, _MARKET_S = 5.0, 30.0
"""So old may be what many runs are told of their machines, and of the market."""


class VastProvider:
    """The market of Vast.ai, for one account. `Provider` says what each verb promises."""

    name = "vast"
    free = False
    max_nodes = 64
    shared = True
    list_lag_s = 60.0

    def __init__(
        self,
        account: VastAccount,
        state: Path,
        recall: Recall = lambda _: SpeedHistory(),
        lock: Callable[[], Lock] = shipped_lock,
        elapsed: Callable[[], float] | None = None,
        *,
        clock: Clock,
        many_runs: bool = False,
        rate_limits: RateLimitStore | None = None,
        secrets: SecretStore | None = None,
    ) -> None:
        """`state`: a folder that all launchers of this user share. `recall`: what earlier runs have shown.
        `lock`: the images to choose from. `elapsed`: a clock that all of them share, and that nobody sets.
        `crowd`: many runs of this process use it at once; what one of them asked lately answers the others.
        `book`, `secrets`: what the computers of a team share for their calls, and of their SSH keys.
        """
        self._recall = recall
        self._lock = lock
        self._clock = clock
        rate_limits = rate_limits or FileRateLimitStore(state / "vast-calls.json", elapsed or clock.now)
        self._api = VastApi(account, Limiter(rate_limits, clock.sleep), clock)
        self._overlays = Overlays(self._api, clock)
        self._volumes = Volumes(self._api)
        self._keys = KeyRing(state / "keys", secrets)
        self._host_keys = HostKeyLog(lambda machine: self._api.log(machine, "SHA256:"), clock)
        self._env = {} if account.server == SERVER else {"VAST_URL": account.server}
        self._login = account.login
        self._seed = Random().random()
        self._access = KeyAccess(self._api, clock)
        self._noise: defaultdict[str, NoiseFilter] = defaultdict(NoiseFilter)
        """Of each run, however often it was connected to."""
        self._offline_since: dict[str, float] = {}
        self._many_runs = many_runs
        self._rows = Latest(self._asked_rows, clock.now, _LIST_S if many_runs else 0.0)
        self._addresses = DirectAddresses(lambda: self._rows.get()[0], clock.now)
        self._given_back: dict[str, bool] = {}
        """Machines whose end Vast agreed to: whether it said since, by their id, that there is none."""
        self._markets: dict[str, Latest[Sequence[Offer]]] = {}
        self._taken: dict[str, float] = {}
        """When a run of this process had asked for an offer, inf while it asks: no other one need try it."""
        self._listed: dict[str, float] = {}
        """When the newest market that has the offer was asked: what is listed after it was taken is free."""

    @property
    def abilities(self) -> Abilities:
        return Abilities(
            account=self,
            bills=self,
            host_log=self,
            keys=self,
            market=self,
            rents_every_s=LIMITS["create"].seconds,
            networks=self._overlays,
            volumes=self._volumes,
            replaces_nodes=True,
            start_script=self,
            searches=self,
            why_one_node=WHY_ONE_NODE,
        )

    @property
    def api(self) -> VastApi:
        """The calls themselves, for who looks at more than machines."""
        return self._api

    @property
    def clock(self) -> Clock:
        """Its time."""
        return self._clock

    def request(self, order: RentalOrder) -> dict[str, Any]:
        """Return what Vast is asked for when that is rented. Holds no secret."""
        return renting.request(order, self._variables(order.label))

    def start_script(self, order: RentalOrder) -> str:
        """Return what the machine is sent to run at each start, unpacked. Holds no secret."""
        return readable_text(order.onstart)

    def _variables(self, label: str) -> dict[str, str]:
        """Variables of a run's machine besides its order's. Without spaces: the key's type is left out."""
        return {**self._env, VARIABLE: self.public_key(label).split()[1]}

    def public_key(self, label: str) -> str:
        """Return the SSH key, as Vast is handed it, of the run that the label names."""
        return self._keys.pair(run_id_in(label)).public

    def host_keys(self, instance_id: str) -> Collection[str]:
        """Return the fingerprints in the machine's log. Raises UnreachableError, ProviderError."""
        return self._host_keys.fingerprints(instance_id)

    def shells(self, instance: Instance) -> Mapping[str, Remote]:
        """Return a shell for each address alone, by its way: `direct`, `proxy`. Raises as `connect`."""
        row, _ = self._own_row(instance.id)
        if row is None:
            raise GoneError(f"Vast has no instance {instance.id}")
        addresses = {"direct": row.direct, "proxy": row.proxy}
        run_id = run_id_in(instance.label)
        return {way: self._shell(row, run_id, [at]) for way, at in addresses.items() if at is not None}

    @classmethod
    def of(cls, context: ProviderContext) -> VastProvider:
        """Make it for the account of whoever runs this. Raises AuthError, UsageError."""
        account = VastAccount.of_environment(context.environ)
        return cls(
            account,
            context.state,
            partial(context.speeds, cls.name),
            context.image_lock,
            context.uptime,
            clock=context.clock,
            many_runs=context.many_runs,
            rate_limits=context.rate_limits(account.key) if context.rate_limits is not None else None,
            secrets=context.secrets,
        )

    def search(self, spec: JobSpec) -> Sequence[Offer]:
        """Return offers, the cheapest to finish first.

        Raises NoOfferError, which says what each limit removed.
        """
        self._overlays.must_be_offered(spec)
        if not self._many_runs:
            return self._fitting(spec)
        # Points of a batch differ in what they train; most of them ask the same of the market.
        asked = (spec.resources, spec.limits, spec.image, spec.ranks, spec.nodes)
        wants = repr((asked, shape_of(spec), steps_of(spec)))
        latest = self._markets.setdefault(
            wants, Latest(lambda: self._fitting(spec), self._clock.now, _MARKET_S)
        )
        left = self._untaken(latest)
        if left:
            return left
        latest.forget()
        return self._untaken(latest)

    def _untaken(self, market: Latest[Sequence[Offer]]) -> Sequence[Offer]:
        """Offers that were not asked for since the market was: one that is there afterwards is free again."""
        offers, asked_at = market.get(), market.asked_at
        left = [offer for offer in offers if self._taken.get(offer.id, -math.inf) < asked_at]
        self._listed.update(dict.fromkeys((offer.id for offer in left), asked_at))
        return left

    def _fitting(self, spec: JobSpec) -> Sequence[Offer]:
        return market.fitting(
            self._api, spec, self._lock(), self._recall(spec), self._clock.now(), Random(self._seed)
        )

    def market_report(self, spec: JobSpec) -> MarketReport:
        """Return the market as the job sees it: what each limit removes, and what the rest would cost."""
        return market.market_report(self._api, spec, self._lock(), self._recall(spec), self._clock.now())

    def rent(self, order: RentalOrder) -> Instance:
        """Rent a machine, to be checked against its offer. Asks once."""
        offer_id = order.offer.id
        if offer_id in self._taken and self._taken[offer_id] >= self._listed.get(offer_id, -math.inf):
            raise NoOfferError("another run of this launcher took it")
        variables = self._variables(order.label)
        self._overlays.make(order)
        known = self._known_ids()
        if self._many_runs:
            self._taken[offer_id] = math.inf
        try:
            return renting.rent(self._api, order, variables, self._clock, self._newest_row, known=known)
        finally:
            if self._many_runs:
                self._taken[offer_id] = self._clock.now()
            self._rows.forget()

    def instances(self) -> Sequence[Instance]:
        """List every machine whose label is ours. Raises IncompleteListError when a row has no id."""
        rows, asked_at = self._rows.get()
        candidates = [row for row in rows if has_our_label(row)]
        found = [
            renting.instance_of(InstanceRow.of(row), asked_at) for row in candidates if id_of(row) is not None
        ]
        if len(found) < len(candidates):
            raise IncompleteListError(
                f"{len(candidates) - len(found)} rows of Vast's list of instances cannot be read", found=found
            )
        return found

    def _known_ids(self) -> Collection[str] | None:
        """Ids of all machines of the account, whoever rented them; None when they cannot be listed."""
        try:
            rows, _ = self._rows.get()
        except ProviderError:
            return None
        return {instance_id for row in rows if (instance_id := id_of(row)) is not None}

    def _asked_rows(self) -> tuple[list[Any], float]:
        return self._api.instances(), self._api.asked_at

    def machine(self, instance_id: str) -> Instance | None:
        """Return what Vast answers for that id alone: sooner than its list."""
        row, asked_at = self._row(instance_id)
        if self._many_runs and row is not None and row.is_idle:
            row, asked_at = self._own_row(instance_id)  # its GPUs may be charged since the list was asked for
        return None if row is None else renting.instance_of(row, asked_at)

    def connect(self, instance: Instance) -> Remote:
        """Return a shell on the instance. Raises ProviderError, with its cause, when it will not run."""
        row, _ = self._row(instance.id)
        if row is None:
            raise GoneError(f"Vast has no instance {instance.id}")
        # Most certain first: what never comes up needs no look at the account, which is a call of its own.
        fault = boot.fault(row)
        if fault is not None:
            raise fault
        if row.is_stopped:
            raise stop_error(row, credit_usd=self._api.credit_usd(), now=self._clock.now())
        if self._offline_s(row) >= OFFLINE_S:
            raise offline_error(row)
        row = self._addresses.with_direct(row)
        addresses = [address for address in (row.direct, row.proxy) if address is not None]
        if not boot.may_answer(row, self._clock.now()) or not addresses:
            raise UnreachableError(f"instance {row.id} is not up: {boot.progress(row)}")
        return self._shell(row, run_id_in(instance.label), addresses)

    def host_log(self, instance_id: str, *, within_s: float) -> str:
        """Return the end of the log of the machine's host. Raises UnreachableError, ProviderError."""
        return self._api.host_log(instance_id, within_s=within_s)

    def cause_in(self, host_log: str) -> Cause | None:
        """Return the cause of a failed start by that log; None: it does not say."""
        return boot.cause_in(host_log)

    def destroy(self, instance_id: str) -> None:
        """Ask until Vast agreed to end the instance, or has none."""
        if instance_id.isdecimal():
            try:
                with contextlib.suppress(GoneError):
                    self._api.destroy(instance_id)
                self._given_back.setdefault(instance_id, False)
            finally:
                self._rows.forget()

    def forget(self, run_id: str) -> None:
        """Remove the run's key from this computer."""
        self._keys.forget(run_id)

    def account_status(self) -> AccountStatus:
        """Return the account's credit, and what its key may do."""
        return accounts.account_status(self._api, self._clock.now)

    def identity(self) -> Identity:
        """Return the account's number, and Vast's time."""
        return accounts.identity(self._api, self._clock.now)

    def search_findings(self) -> Iterable[SearchFinding]:
        """Search in several ways, and say what was found out. Costs nothing."""
        return search_findings(self._api)

    def charged(self, since: float, until: float) -> Sequence[Charge]:
        """Return charges by machine; Vast settles them minutes later."""
        return accounts.charges_of(self._api, since, until)

    def _row(self, instance_id: str) -> tuple[InstanceRow | None, float]:
        """The machine's row, and when it was asked for.

        Vast answers one such question in two seconds. For many runs a list that has the machine is enough.
        That it is gone its own row has to say, once: after that, of a machine that was given back, a list
        that was asked for later and lacks it says so again.
        """
        if self._many_runs:
            rows, asked_at = self._rows.get()
            listed = [row for row in rows if has_our_label(row) and id_of(row) == instance_id]
            if listed:
                return InstanceRow.of(listed[0]), asked_at
            if self._given_back.get(instance_id):
                return None, asked_at
        return self._own_row(instance_id)

    def _newest_row(self, instance_id: str) -> tuple[InstanceRow | None, float]:
        """The row of a machine that was only just rented."""
        self._rows.forget()
        return self._row(instance_id)

    def _own_row(self, instance_id: str) -> tuple[InstanceRow | None, float]:
        found = self._api.instance(instance_id) if instance_id.isdecimal() else None
        if found is None and instance_id in self._given_back:
            self._given_back[instance_id] = True
            self._rows.forget()
        return (None if found is None else InstanceRow.of(found)), self._api.asked_at

    def _offline_s(self, row: InstanceRow) -> float:
        """How long Vast has called the host offline, as far as this launcher has seen."""
        now = self._clock.now()
        if row.actual_status != "offline":
            self._offline_since.pop(row.id, None)
            return 0.0
        return now - self._offline_since.setdefault(row.id, now)

    def _shell(self, row: InstanceRow, run_id: str, addresses: Sequence[tuple[str, int]]) -> Remote:
        """`run_id`: whose machine it is, whatever its label is by now."""
        key = self._keys.pair(run_id)
        self._access.attach(row, key.public)
        known = KnownHosts(
            self._keys.known_hosts(run_id, row.id),
            read_fingerprints=lambda: self._host_keys.fingerprints(row.id),
        )
        return SshRemote(
            Login(
                addresses=addresses,
                key=key,
                hosts=known,
                user=self._login,
                on_key=lambda accepted: self._access.note(row.id, accepted=accepted),
            ),
            root=BOX,
            env={},
            is_gone=lambda: self._row(row.id)[0] is None,
            noise=self._noise[run_id],
        )
