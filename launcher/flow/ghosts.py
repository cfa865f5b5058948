"""Ghosts: rows of machines that another run had, or whose end is confirmed. They cost nothing."""

from __future__ import annotations

from launcher.core import Instance, Run, bills
from launcher.core.errors import ProviderError
from launcher.flow.services import Services


class GhostRows:
    """Tells why a row with a run's label is of no machine of the run."""

    def __init__(self, services: Services) -> None:
        self._services = services
        self._earlier_users: dict[str, str] = {}
        """Which other run had a machine, by its id; empty: none."""

    def reason(self, machine: Instance, run: Run) -> str:
        """Say why the row is ignored; empty: it is a machine of the run.

        Only a market is doubted: slots have the same id for one run after another.
        """
        if machine.id == run.instance_id or self._services.provider.abilities.market is None:
            return ""
        if user := self._earlier_user(machine.id, run):
            return f"it was run {user}'s"
        ended = any(one.instance_id == machine.id and one.meter.absent_at for one in run.rentals)
        if ended and is_absent(self._services, machine.id):
            return "it was destroyed, and is not there by its id"
        return ""

    def _earlier_user(self, machine_id: str, run: Run) -> str:
        """The other run that had the machine: a provider gives no id twice. Empty: there is none."""
        if machine_id not in self._earlier_users:
            rows = self._services.ledger.runs(members=True)
            earlier = (one for one in rows if one.id != run.id and one.provider == run.provider)
            users = (one.id for one in earlier if machine_id in bills.machine_ids(one))
            self._earlier_users[machine_id] = next(users, "")
        return self._earlier_users[machine_id]


def is_absent(services: Services, machine_id: str) -> bool:
    """Ask for the machine by its id, also where the list still has it. Without an answer it is not gone."""
    try:
        return services.provider.machine(machine_id) is None
    except ProviderError:
        return False
