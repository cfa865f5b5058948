"""What a launcher does when its provider refuses it: wrong key, other account, too many calls."""

from __future__ import annotations

import math
from dataclasses import replace

from launcher.core import Phase, bills
from launcher.core.errors import AuthError, BusyError, OutOfReachError, ProviderError
from launcher.decisions import policy
from launcher.flow.context import Trip
from launcher.ports import HasAccount

_PAUSE_S = 15.0
_WITH_A_MACHINE = (Phase.RENT, Phase.BOOT, Phase.SHIP, Phase.TRAIN, Phase.COLLECT)
"""A key that is refused says nothing about a run in one of these; `destroy` has a limit of its own."""


def identify(trip: Trip) -> None:
    """The run's account is this key's, and its times are by this computer's clock as it is now.

    Asks once a drive. Raises AuthError when the key is not accepted, OutOfReachError when a run may have a
    machine that this key does not reach. A provider that does not answer keeps nobody from driving.
    """
    provider, run = trip.tools.provider, trip.run
    if trip.is_identified or not isinstance(provider, HasAccount):
        return
    try:
        who = provider.identity()
    except AuthError as error:
        if run.phase is Phase.PLAN:
            raise
        raise OutOfReachError(f"{run.id} cannot be reached: {error}", hint=_hint(trip)) from error
    except ProviderError:
        return
    if run.account and run.rented_at is not None and who.account != run.account:
        raise OutOfReachError(
            f"{run.id} is on account {run.account} of {provider.name}; this key is of account {who.account}",
            hint=_hint(trip),
        )
    trip.is_identified = True
    # The next row has it: a disk that is full is the business of the step that comes.
    trip.run = replace(bills.by_clock(run, who.clock_ahead_s), account=who.account)
    trip.arrive()


class Refused:
    """How long one step has been refused."""

    def __init__(self, trip: Trip) -> None:
        self._trip = trip
        self._since = math.inf

    def wait(self, error: AuthError | BusyError) -> None:
        """Returns when the step may be tried again. Raises `error` when it is of no use, OutOfReachError when
        the machine of the run cannot be reached for too long."""
        trip = self._trip
        has_machine = trip.run.rented_at is not None and not trip.was_refused
        if isinstance(error, AuthError) and not (has_machine and trip.run.phase in _WITH_A_MACHINE):
            raise error
        if self._since == math.inf:
            self._since = trip.now()
            trip.tell(f"{error}; trying again")
        refused_s = trip.now() - self._since
        if isinstance(error, AuthError) and refused_s > policy.REFUSED_S:
            raise OutOfReachError(f"{trip.run.id}: {error}", hint=_hint(trip)) from error
        if refused_s > policy.BUSY_S:
            raise error
        trip.hang_up()
        trip.wait(_PAUSE_S)
        trip.must_go_on()


def _hint(trip: Trip) -> str:
    account = f" of account {trip.run.account}" if trip.run.account else ""
    return f"export VAST_API_KEY=… with a key{account}"
