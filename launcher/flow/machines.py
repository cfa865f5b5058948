"""The machines of a run, by the id in its row and by its label. A market's list may lag."""

from __future__ import annotations

from dataclasses import replace

from vastrun.launcher.core import Instance, Run, bills
from vastrun.launcher.core.errors import IncompleteListError, ProviderError
from vastrun.launcher.decisions import policy
from vastrun.launcher.flow.services import Services
from vastrun.launcher.ports import Provider


def find_machines(run: Run, provider: Provider) -> list[Instance]:
    """Return the run's machines, the noted one first. Raises ProviderError when the list is unknown.

    A machine whose id is in the row is looked up by id where the list lacks it or failed: the list may be
    late, and the user may have changed the machine's label.
    """
    try:
        by_run = provider.abilities.by_run
        found = policy.machines_of_run(
            run, provider.instances() if by_run is None else by_run.instances_for(run)
        )
    except ProviderError as error:
        # What can be read of a list is there. What it lacks may be, too: then the machine's own row is enough
        # to go on with, and that there is none says nothing.
        found = policy.machines_of_run(run, error.found if isinstance(error, IncompleteListError) else ())
        if not found and run.instance_id is not None:
            noted = provider.machine(run.instance_id)
            found = [noted] if noted else []
        if not found:
            raise
    if run.instance_id is not None and all(machine.id != run.instance_id for machine in found):
        noted = provider.machine(run.instance_id)
        found = [*([noted] if noted else []), *found]
    return [replace(machine, label=run.label) for machine in found]


class StaleRows:
    """Finds rows of the provider's list that have a run's label and are not its machines."""

    def __init__(self, services: Services) -> None:
        self._services = services
        self._earlier_users: dict[str, str] = {}
        """The other run that had a machine, by the machine's id; empty: none."""

    def reason(self, machine: Instance, run: Run) -> str:
        """Return why the row is ignored; empty: it is a machine of the run.

        Applies to markets only: slots have the same id for one run after another.
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
        """Return the other run that had the machine: a provider uses no id twice. Empty: there is none."""
        if machine_id not in self._earlier_users:
            rows = self._services.ledger.runs(members=True)
            earlier = (one for one in rows if one.id != run.id and one.provider == run.provider)
            users = (one.id for one in earlier if machine_id in bills.machine_ids(one))
            self._earlier_users[machine_id] = next(users, "")
        return self._earlier_users[machine_id]


def is_absent(services: Services, machine_id: str) -> bool:
    """Return whether the provider has no machine of that id, even if it is still listed. False without a
    response."""
    try:
        return services.provider.machine(machine_id) is None
    except ProviderError:
        return False
