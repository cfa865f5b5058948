"""Run ids: the search for a run by a shorter name."""

from __future__ import annotations

import difflib
from collections.abc import Sequence

from vastrun.launcher.core import Phase, Run
from vastrun.launcher.core.errors import NoSuchRunError
from vastrun.launcher.core.labels import leader_id
from vastrun.launcher.ports import Ledger

LAST = "last"


def find_run(ledger: Ledger, name: str) -> Run:
    """Find the run for `name`. Raises NoSuchRunError.

    `name` is an id, the prefix of exactly one id, `last`, or a job's name: its only open run, else its
    newest.
    """
    runs = ledger.runs()
    if not runs:
        raise NoSuchRunError("there are no runs yet", hint="vastrun launch JOB.yaml")
    if name == LAST:
        return runs[0]
    # The id of one node, as the label of its machine shows it, stands for the whole run.
    name = leader_id(name)
    matches = [run for run in runs if run.id == name] or [run for run in runs if run.id.startswith(name)]
    if len(matches) != 1 and (of_job := [run for run in runs if run.job == name]):
        matches = [run for run in of_job if run.phase is not Phase.ENDED] or of_job[:1]
    if len(matches) == 1:
        return matches[0]
    if any(batch.name == name for batch in ledger.batches.all()):
        raise NoSuchRunError(f"'{name}' is a batch, not a run", hint=f"vastrun batch status {name}")
    if matches:
        several = ", ".join(run.id for run in matches[:5])
        raise NoSuchRunError(f"'{name}' could be any of: {several}", hint="use more letters of the id")
    suggested = suggestion(name, [run.id for run in runs])
    raise NoSuchRunError(f"no run is called '{name}'{suggested}", hint="vastrun status")


def suggestion(name: str, names: Sequence[str]) -> str:
    """Return "; did you mean NAME?" for the most similar name; empty when there is none."""
    matches = [one for one in names if one.startswith(name)] or difflib.get_close_matches(name, names, n=1)
    return f"; did you mean {matches[0]}?" if matches else ""
