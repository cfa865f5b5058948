"""machines_of(run): a run's machines, by the id that was noted and by its label. A market's list may lag."""

from __future__ import annotations

from dataclasses import replace

from launcher.core import Instance, Run
from launcher.core.errors import IncompleteListError, ProviderError
from launcher.decisions import policy
from launcher.ports import Provider


def machines_of(run: Run, provider: Provider) -> list[Instance]:
    """Return the run's machines, the noted one first. Raises ProviderError when it cannot be told.

    What was noted is asked for by its id where the list does not have it, or cannot be had: the list may be
    late, and the user may have given the machine another label.
    """
    try:
        by_run = provider.abilities.by_run
        found = policy.ours(run, provider.instances() if by_run is None else by_run.instances_for(run))
    except ProviderError as error:
        # What can be read of a list is there. What it lacks may be, too: then the machine's own row is enough
        # to go on with, and that there is none says nothing.
        found = policy.ours(run, error.found if isinstance(error, IncompleteListError) else ())
        if not found and run.instance_id is not None:
            noted = provider.machine(run.instance_id)
            found = [noted] if noted else []
        if not found:
            raise
    if run.instance_id is not None and all(machine.id != run.instance_id for machine in found):
        noted = provider.machine(run.instance_id)
        found = [*([noted] if noted else []), *found]
    return [replace(machine, label=run.label) for machine in found]
