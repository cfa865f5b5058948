"""Provider `vast`: GPUs rented on Vast.ai."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import partial
from pathlib import Path
from random import Random
from typing import Any

from vastrun.launcher.core import AccountStatus, Cause, Identity, Instance, Offer, RentalOrder
from vastrun.launcher.core.errors import GoneError, ProviderError, UnreachableError
from vastrun.launcher.core.job import JobSpec
from vastrun.launcher.core.labels import run_id_in
from vastrun.launcher.decisions.estimates import MarketReport
from vastrun.launcher.decisions.history import SpeedHistory
from vastrun.launcher.image.lock import Lock, shipped_lock
from vastrun.launcher.ports import Abilities, Clock, RateLimitStore, Remote, SecretStore
from vastrun.launcher.providers import ProviderContext
from vastrun.launcher.providers.onstart import BOX, readable_text
from vastrun.launcher.providers.vast import account as accounts
from vastrun.launcher.providers.vast import instance_row, market, rental, transport
from vastrun.launcher.providers.vast.account import VARIABLE, KeyAccess, MachineRows
from vastrun.launcher.providers.vast.api import VastApi
from vastrun.launcher.providers.vast.instance_row import OFFLINE_S, DirectAddresses, InstanceRow, stop_error
from vastrun.launcher.providers.vast.limits import LIMITS, FileRateLimitStore, Limiter
from vastrun.launcher.providers.vast.offers import search_findings
from vastrun.launcher.providers.vast.overlays import WHY_ONE_NODE, Overlays
from vastrun.launcher.providers.vast.rental import ScheduledEnds
from vastrun.launcher.providers.vast.transport import SERVER, Send, VastAccount
from vastrun.launcher.ssh.connection import Login
from vastrun.launcher.ssh.keys import HostKeyLog, KeyRing, KnownHosts
from vastrun.launcher.ssh.remote import SshRemote


class VastProvider:
    """The Provider port for one account on Vast.ai."""

    name = "vast"
    free = False
    max_nodes = 64
    shared = True
    list_lag_s = 60.0

    def __init__(
        self,
        account: VastAccount,
        state: Path,
        recall: Callable[[JobSpec], SpeedHistory] = lambda _: SpeedHistory(),
        lock: Callable[[], Lock] = shipped_lock,
        elapsed: Callable[[], float] | None = None,
        *,
        clock: Clock,
        many_runs: bool = False,
        rate_limits: RateLimitStore | None = None,
        secrets: SecretStore | None = None,
        report_wait: Callable[[str, float], None] = lambda _endpoint, _seconds: None,
        connect: Callable[[VastAccount], Send] = transport.connect,
    ) -> None:
        """`state`: folder that this user's launchers share. `recall`: returns the speeds of earlier runs.
        `lock`: returns the images to choose from. `elapsed`: monotonic clock shared by all processes.
        `many_runs`: many runs of this process share the provider, so lists come from a short cache.
        `rate_limits`, `secrets`: stores that the computers of a team share. `report_wait`: receives the
        endpoint of each call, and the seconds that it waited for Vast's rate limits. `connect`: returns what
        sends requests.
        """
        self._recall = recall
        self._lock = lock
        self.clock = clock
        rate_limits = rate_limits or FileRateLimitStore(state / "vast-calls.json", elapsed or clock.now)
        limiter = Limiter(rate_limits, clock.sleep, report_wait=report_wait)
        self.api = VastApi(account, limiter, clock, connect)
        """Client of Vast's API, for callers that need more than machines."""
        self._overlays = Overlays(self.api, clock)
        self._keys = KeyRing(state / "keys", secrets)
        self._host_keys = HostKeyLog(
            lambda machine: self.api.log(machine, filter="SHA256:", tail="5000"), clock
        )
        self._env = {} if account.server == SERVER else {"VAST_URL": account.server}
        self._login = account.login
        # One seed for each launcher: its searches keep the order of equal offers, others get another.
        self._seed = Random().random()
        self._access = KeyAccess(self.api, clock)
        self._shared_offers = market.SharedOffers(clock.now) if many_runs else None
        self._rows = MachineRows(self.api, clock, many_runs=many_runs)
        self._addresses = DirectAddresses(self._rows.listed, clock.now)

    @property
    def abilities(self) -> Abilities:
        return Abilities(
            account=self,
            charged=partial(accounts.charges_of, self.api),
            backups=partial(accounts.backups_of, self.api),
            host_log=self,
            keys=self,
            market=self.market_report,
            rents_every_s=LIMITS["create"].seconds,
            networks=self._overlays,
            ends_later=ScheduledEnds(self.api),
            start_script=lambda order: readable_text(order.onstart),
            search_findings=partial(search_findings, self.api),
            why_one_node=WHY_ONE_NODE,
        )

    def request(self, order: RentalOrder) -> dict[str, Any]:
        """Return the request to Vast for this order, without secrets."""
        return rental.request(order, self._variables(order.label))

    def _variables(self, label: str) -> dict[str, str]:
        """Return variables in addition to the order's. Vast splits at spaces: the key's type is left out."""
        return {**self._env, VARIABLE: self.public_key(label).split()[1]}

    def public_key(self, label: str) -> str:
        """Return the public SSH key of the run with that label."""
        return self._keys.pair(run_id_in(label)).public

    def host_keys(self, instance_id: str) -> Collection[str]:
        """Return the fingerprints in the machine's log. Raises UnreachableError, ProviderError."""
        return self._host_keys.fingerprints(instance_id)

    def shells(self, instance: Instance) -> Mapping[str, Remote]:
        """Return one shell for each address: `direct`, `proxy`. Raises the errors of `connect`."""
        row = self._rows.own_row(instance.id)
        if row is None:
            raise GoneError(f"Vast has no instance {instance.id}")
        addresses = {"direct": row.direct, "proxy": row.proxy}
        run_id = run_id_in(instance.label)
        return {way: self._shell(row, run_id, [at]) for way, at in addresses.items() if at is not None}

    @classmethod
    def of(cls, context: ProviderContext) -> VastProvider:
        """Build the provider for the account in the environment. Raises AuthError, UsageError."""
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
            report_wait=partial(context.report_wait, cls.name),
        )

    def search(self, spec: JobSpec) -> Sequence[Offer]:
        """Return offers, lowest expected cost of the whole job first.

        Raises NoOfferError with the number of offers that each limit removed.
        """
        # Before the search: without a network the nodes would be rented, paid and could not meet.
        self._overlays.check_available(spec)
        if self._shared_offers is None:
            return self._search_fitting(spec)
        return self._shared_offers.offers(spec, lambda: self._search_fitting(spec))

    def _search_fitting(self, spec: JobSpec) -> Sequence[Offer]:
        return market.fitting_offers(
            self.api, spec, self._lock(), self._recall(spec), self.clock.now(), Random(self._seed)
        )

    def market_report(self, spec: JobSpec) -> MarketReport:
        """Return a report of the market: what each limit removes, and the cost of the remaining offers."""
        return market.market_report(self.api, spec, self._lock(), self._recall(spec), self.clock.now())

    def rent(self, order: RentalOrder) -> Instance:
        """Rent a machine by a single order."""
        shared = self._shared_offers
        if shared is not None:
            shared.check_free(order.offer.id)
        variables = self._variables(order.label)
        self._overlays.make(order)
        # Listed before the order, so that a wrong id in Vast's response is recognized.
        known = self._rows.known_ids()
        try:
            with shared.ordering(order.offer.id) if shared else contextlib.nullcontext():
                return rental.rent(self.api, order, variables, self.clock, self._rows.newest_row, known=known)
        finally:
            self._rows.invalidate()

    def instances(self) -> Sequence[Instance]:
        """List all machines with vastrun's label. Raises IncompleteListError when a row has no id."""
        return self._rows.instances()

    def machine(self, instance_id: str) -> Instance | None:
        """Query the machine by its id, which is more current than the list."""
        return self._rows.machine(instance_id)

    def connect(self, instance: Instance) -> Remote:
        """Return a shell on the instance. Raises ProviderError with the cause when it cannot start."""
        row = self._rows.row(instance.id)
        if row is None:
            raise GoneError(f"Vast has no instance {instance.id}")
        # The most certain cause first: a machine that never starts needs no query of the account.
        fault = instance_row.fault(row)
        if fault is not None:
            raise fault
        if row.is_stopped:
            raise stop_error(row, credit_usd=self.api.credit_usd(), now=self.clock.now())
        if self._rows.offline_s(row) >= OFFLINE_S:
            text = f"Vast lists machine {row.host} as offline for {OFFLINE_S / 60:.0f} min"
            raise ProviderError(text, cause=Cause.LOST)
        row = self._addresses.with_direct(row)
        addresses = [address for address in (row.direct, row.proxy) if address is not None]
        if not instance_row.may_be_reachable(row, self.clock.now()) or not addresses:
            raise UnreachableError(f"instance {row.id} is not up: {instance_row.progress(row)}")
        return self._shell(row, run_id_in(instance.label), addresses)

    def host_log(self, instance_id: str, *, within_s: float) -> str:
        return self.api.log(instance_id, daemon_logs="true", tail="100", within_s=within_s)

    def cause_in(self, host_log: str) -> Cause | None:
        return instance_row.cause_in(host_log)

    def destroy(self, instance_id: str) -> None:
        """Repeat the request until Vast accepts it or has no such instance."""
        if instance_id.isdecimal():
            try:
                with contextlib.suppress(GoneError):
                    self.api.destroy(instance_id)
                self._rows.note_destroyed(instance_id)
            finally:
                # Also after an error: the request may have arrived, and a cached list would show the machine.
                self._rows.invalidate()

    def forget(self, run_id: str) -> None:
        self._keys.forget(run_id)

    def account_status(self) -> AccountStatus:
        return accounts.account_status(self.api, self.clock.now)

    def identity(self) -> Identity:
        """Return the account's number and the offset of this clock to Vast's."""
        return accounts.identity(self.api)

    def _shell(self, row: InstanceRow, run_id: str, addresses: Sequence[tuple[str, int]]) -> Remote:
        """Return a shell. `run_id`: the run that rented the machine; its label may have changed since."""
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
            is_gone=lambda: self._rows.row(row.id) is None,
        )
