"""Overlay networks: each connects the machines of one run, within one of Vast's physical clusters.

A network is created with the run's first machine, and named by the label of node 0, so that another launcher
can find and delete it after a crash.
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
from vastrun.launcher.providers.vast import calls
from vastrun.launcher.providers.vast.api import VastApi
from vastrun.launcher.providers.vast.errors import RejectedError, require_list
from vastrun.launcher.providers.vast.rows import OverlayRow

WHY_ONE_NODE = (
    "its machines reach each other over NAT, where NCCL and gloo cannot work; only those of one Vast cluster "
    "share a network"
)
_OWN_NAME = re.compile(rf"({re.escape(LABEL_PREFIX)}[a-z0-9-]+)-([0-9a-f]{{8}})", re.ASCII)
_NAME = re.compile(r"[a-z0-9-]+", re.ASCII)
_UNAVAILABLE = (404, 405, 410, 501)
"""Status codes without overlays: Vast documents them, but has disabled them in its command line."""
_FIRST_PORT, _PORTS, _PORTS_PER_RUN = 20_000, 3000, 3
"""Ports below Linux's ephemeral range. All are free on a run's network; still each run has its own, so that
runs on the same computer never collide."""


def name_of(label: str) -> str:
    """Return the name of the label's network. Raises UsageError when Vast does not allow the name."""
    # Reversible: `label_in` has to find the run of a network that a killed launcher left.
    name = label.replace(".", "-")
    if not _NAME.fullmatch(name):
        raise UsageError(f"{label} cannot name a network on Vast, which only allows a-z, 0-9 and -")
    return name


def label_in(name: str) -> str | None:
    """Return the label in the network's name; None when the network is not vastrun's."""
    found = _OWN_NAME.fullmatch(name)
    return f"{found[1]}.{found[2]}" if found else None


def flag_of(order: RentalOrder) -> dict[str, str]:
    """Return the entry of an order's environment that joins its network; empty for one machine."""
    return {f"-n {name_of(order.nodes[0])}": "1"} if order.nodes else {}


class Overlays:
    """The HasNetworks port for one account."""

    def __init__(self, api: VastApi, clock: Clock) -> None:
        self._api, self._clock = api, clock

    def check_available(self, spec: JobSpec) -> None:
        """Raise NoOfferError or AuthError when a run with several nodes cannot have a network."""
        if spec.nodes > 1:
            self._rows()

    def make(self, order: RentalOrder) -> None:
        """Create the network of the order's run unless it exists, before anything is rented.

        Raises NoOfferError when the offer's machine is not in the cluster of the network; AuthError;
        ProviderError.
        """
        if not order.nodes:
            return
        name, cluster = name_of(order.nodes[0]), order.offer.network
        there = self._find(name)
        if there is not None and there.cluster != cluster and order.label == order.nodes[0]:
            self.remove_network(order.label)  # node 0 is rented first, so the run moves to its cluster
            there = None
        if there is not None and there.cluster != cluster:
            raise NoOfferError(f"its machine is on cluster {cluster}, the run's network on {there.cluster}")
        if there is None:
            try:
                with _mapped_errors():
                    self._api.call_once(calls.create_overlay(name, cluster))
            except UnreachableError:
                # It may exist. Two networks of one name could not be distinguished.
                if self._find(name) is None:
                    raise

    def rendezvous(self, label: str, remote: Remote) -> str:
        """Ask the box for its addresses: Vast's API does not say which one is on the overlay."""
        row = self._find(name_of(label))
        if row is None:
            raise ProviderError(f"Vast has no overlay network {name_of(label)}")
        done = remote.run(ADDRESSES, timeout_s=30.0)
        port = _FIRST_PORT + zlib.crc32(label.encode()) % _PORTS * _PORTS_PER_RUN
        return f"{find_address(row.subnet, done.stdout)}:{port}"

    def run_networks(self) -> Sequence[RunNetwork]:
        """List vastrun's networks of all ledgers; none when Vast has no overlays."""
        try:
            rows = self._rows()
        except NoOfferError:
            return []
        named = ((row.name, label_in(row.name)) for row in rows)
        return [RunNetwork(name=name, label=label) for name, label in named if label is not None]

    def remove_network(self, label: str) -> None:
        """Delete the network; repeat until the list does not have it."""
        name = name_of(label)
        trouble: ProviderError | None = None
        for number in range(3):
            if self._find(name) is None:
                return
            if number:
                self._clock.sleep(2.0)
            try:
                with _mapped_errors():
                    self._api.call_once(calls.delete_overlay(name))
            except NoOfferError:
                pass  # Vast reports no network of that name: the list decides
            except ProviderError as error:
                trouble = error
        if self._find(name) is not None:
            why = f": {trouble}" if trouble else ", though Vast agreed to delete it"
            raise ProviderError(f"overlay network {name} is still there{why}")

    def _find(self, name: str) -> OverlayRow | None:
        return next((row for row in self._rows() if row.name == name), None)

    def _rows(self) -> list[OverlayRow]:
        with _mapped_errors():
            return list(map(OverlayRow.of, self._api.repeat(calls.OVERLAYS, require_list)))


@contextmanager
def _mapped_errors() -> Iterator[None]:
    """Map rejections in the context of several nodes. Raises NoOfferError, AuthError."""
    try:
        yield
    except AuthError as error:
        if not isinstance(error.__cause__, RejectedError) or error.__cause__.answer.status not in (401, 403):
            raise
        raise AuthError(
            f"the API key may not use overlay networks, which several nodes need ({error})",
            hint="also give it user_read and user_write, or --set nodes=1: docs/nodes.md",
        ) from error
    except ProviderError as error:
        if isinstance(error.__cause__, RejectedError) and error.__cause__.answer.status in _UNAVAILABLE:
            raise NoOfferError(
                f"nodes need an overlay network, and Vast has none for this account: {WHY_ONE_NODE}",
                hint="--set nodes=1 with more GPUs on it, or another provider: docs/nodes.md",
            ) from error
        raise
