"""Run ids: readable names such as `calm-heron-3f1a`, and the search for a run by a shorter name."""

from __future__ import annotations

import difflib
import random
from collections.abc import Sequence

from vastrun.launcher.core import Phase, Run
from vastrun.launcher.core.errors import NoSuchRunError
from vastrun.launcher.core.labels import leader_id
from vastrun.launcher.ports import Ledger

LAST = "last"

_ADJECTIVES = """
    able amber apt bold brave brief bright brisk calm candid clear clever cool crisp deft eager early even
    fair fast fine firm fleet fresh gentle glad golden grand green happy hardy honest ivory jolly keen kind
    light lively loyal lucid mellow merry mild neat nimble noble plain proud quick quiet rapid ready royal
    sharp silent silver sleek smart smooth snug solid spry steady still sunny swift tidy vivid warm wise witty
"""

_NOUNS = """
    alder badger beaver birch bison brook canyon cedar comet coral crane creek dune eagle ember falcon fern
    finch fjord fox gale glacier grove harbor hare hawk hazel heron ibis island jay kestrel lake lark lynx
    maple marten meadow moose nebula oak ocean orca osprey otter owl panda pebble pine plover puffin quail
    raven reef ridge river robin salmon sparrow spruce stork summit swan tern thrush tiger walnut whale willow
"""


def new_id(rng: random.Random) -> str:
    """Draw a random id, one of some hundred million."""
    adjective, noun = rng.choice(_ADJECTIVES.split()), rng.choice(_NOUNS.split())
    return f"{adjective}-{noun}-{rng.randrange(1 << 16):04x}"


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
