"""Overlays: the network that the machines of one run share, on one of Vast's physical clusters.

It is made with the run's first machine, joined as machines are created, and named by the label of node 0:
whoever comes after a launcher that was killed finds it, and deletes it.
"""

from __future__ import annotations

import re
import zlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from vastrun.launcher.core import LABEL_PREFIX, RentalOrder, RunNetwork
from vastrun.launcher.core.errors import AuthError, NoOfferError, ProviderError, UnreachableError, UsageError
from vastrun.launcher.core.job import JobSpec
from vastrun.launcher.gate.rendezvous import ADDRESSES, find_address
from vastrun.launcher.ports import Clock, Remote
from vastrun.launcher.providers.vast.api import VastApi
from vastrun.launcher.providers.vast.rows import OverlayRow
from vastrun.launcher.providers.vast.sdk import RefusedError

WHY_ONE_NODE = (
    "its machines reach each other over NAT, where NCCL and gloo cannot work; only those of one Vast cluster "
    "share a network"
)
_OURS = re.compile(rf"({re.escape(LABEL_PREFIX)}[a-z0-9-]+)-([0-9a-f]{{8}})", re.ASCII)
_NAME = re.compile(r"[a-z0-9-]+", re.ASCII)
_DENIED = 403
_NOT_THERE = (404, 405, 410, 501)
"""Vast documents overlays, and has switched them off in its own commands: some day it may in its API."""
_FIRST_PORT, _PORTS, _EACH = 20_000, 3000, 3
"""Below those that Linux gives away by itself. On the network of a run all are free; each run has its own all
the same, so that runs which share a computer do not meet."""
_LOOKS = 3
_PAUSE_S = 2.0
_ASK_S = 30.0


def name_of(label: str) -> str:
    """Return the name of the network of that label. Raises UsageError for one that Vast does not allow."""
    name = label.replace(".", "-")
    if not _NAME.fullmatch(name):
        raise UsageError(f"{label} cannot name a network of Vast's: it allows a-z, 0-9 and - only")
    return name


def label_in(name: str) -> str | None:
    """Return the label that the network's name stands for; None: it is not vastrun's."""
    found = _OURS.fullmatch(name)
    return f"{found[1]}.{found[2]}" if found else None


def flag_of(order: RentalOrder) -> dict[str, str]:
    """Return what of the environment of an order joins its network; nothing for a run with one machine."""
    return {f"-n {name_of(order.nodes[0])}": "1"} if order.nodes else {}


class Overlays:
    """The overlays of one account. `HasNetworks` says what each verb promises."""

    def __init__(self, api: VastApi, clock: Clock) -> None:
        self._api, self._clock = api, clock

    def must_be_offered(self, spec: JobSpec) -> None:
        """Raise NoOfferError, AuthError, where a run with several nodes cannot have a network at all."""
        if spec.nodes > 1:
            self._rows()

    def make(self, order: RentalOrder) -> None:
        """Make the network of the order's run, unless it is there. Nothing is rented by then.

        Raises NoOfferError where the offer's machine is not on the cluster of the network; AuthError;
        ProviderError.
        """
        if not order.nodes:
            return
        name, cluster = name_of(order.nodes[0]), order.offer.network
        there = self._found(name)
        if there is not None and there.cluster != cluster and order.label == order.nodes[0]:
            self.remove_network(order.label)  # node 0 goes to another cluster, and the others with it
            there = None
        if there is not None and there.cluster != cluster:
            raise NoOfferError(f"its machine is on cluster {cluster}, the run's network on {there.cluster}")
        if there is None:
            self._make(name, cluster)

    def rendezvous(self, label: str, remote: Remote) -> str:
        """Ask the box for its addresses: Vast's API does not tell which of them is on the overlay."""
        row = self._found(name_of(label))
        if row is None:
            raise ProviderError(f"Vast has no overlay network {name_of(label)}")
        done = remote.run(ADDRESSES, timeout_s=_ASK_S)
        return f"{find_address(row.subnet, done.stdout)}:{_port_of(label)}"

    def run_networks(self) -> Sequence[RunNetwork]:
        """List those of all ledgers; none where Vast has no overlays."""
        try:
            rows = self._rows()
        except NoOfferError:
            return []
        named = ((row.name, label_in(row.name)) for row in rows)
        return [RunNetwork(name=name, label=label) for name, label in named if label is not None]

    def remove_network(self, label: str) -> None:
        """Ask until the list does not have it."""
        name = name_of(label)
        trouble: ProviderError | None = None
        for number in range(_LOOKS):
            if self._found(name) is None:
                return
            if number:
                self._clock.sleep(_PAUSE_S)
            try:
                with _explained():
                    self._api.delete_overlay(name)
            except NoOfferError:
                pass  # Vast says that it has none of that name: the list decides
            except ProviderError as error:
                trouble = error
        if self._found(name) is not None:
            why = f": {trouble}" if trouble else ", though Vast agreed to delete it"
            raise ProviderError(f"overlay network {name} is still there{why}")

    def _make(self, name: str, cluster: str) -> None:
        try:
            with _explained():
                self._api.create_overlay(name, cluster)
        except UnreachableError:
            # Whether it was made is not known. Two of one name would be the same to us.
            if self._found(name) is None:
                raise

    def _found(self, name: str) -> OverlayRow | None:
        return next((row for row in self._rows() if row.name == name), None)

    def _rows(self) -> list[OverlayRow]:
        with _explained():
            return [OverlayRow.of(row) for row in self._api.overlays()]


def _port_of(label: str) -> int:
    return _FIRST_PORT + zlib.crc32(label.encode()) % _PORTS * _EACH


@contextmanager
def _explained() -> Iterator[None]:
    """What a refusal means where several machines are asked for. Raises NoOfferError, AuthError."""
    try:
        yield
    except AuthError as error:
        if not isinstance(error.__cause__, RefusedError) or error.__cause__.answer.status != _DENIED:
            raise
        raise AuthError(
            f"the API key may not use overlay networks, which several nodes need ({error})",
            hint="give it user_read and user_write besides, or --set nodes=1: docs/nodes.md",
        ) from error
    except ProviderError as error:
        if isinstance(error.__cause__, RefusedError) and error.__cause__.answer.status in _NOT_THERE:
            raise NoOfferError(
                f"nodes need an overlay network, and Vast has none for this account: {WHY_ONE_NODE}",
                hint="--set nodes=1 with more GPUs on it, or another provider: docs/nodes.md",
            ) from error
        raise
