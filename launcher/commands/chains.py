"""Chains: a run and those that it tries again, what it continues from, and whether `retry:` allows more."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import takewhile
from pathlib import Path
from typing import TYPE_CHECKING

from vastrun.launcher.config import read_job
from vastrun.launcher.core import Cause, Origin, Phase, Run
from vastrun.launcher.core.bills import max_cost_usd
from vastrun.launcher.core.errors import UsageError
from vastrun.launcher.decisions import policy
from vastrun.launcher.decisions.estimates import usd
from vastrun.launcher.decisions.nodes import total_usd
from vastrun.launcher.decisions.policy import with_limit
from vastrun.launcher.outputs.folder import Outputs
from vastrun.launcher.ports import Ledger

if TYPE_CHECKING:
    from vastrun.launcher.core.job import JobSpec

MAX_HOST_RETRIES = 3
"""Number of further machines that a launch tries when each fails before training starts."""
NO_OTHER = "no other attempt"
_MIN_USD = 0.01
FRESH_LAUNCH = "vastrun launch JOB.yaml   (without --from: from the first step)"


def chain_of(ledger: Ledger, run: Run) -> list[Run]:
    """List the run and those before it that it tries again, oldest first."""
    chain, retry = [run], read_job(run.spec_json).retry
    while chain[0].parent is not None:
        former = ledger.get(chain[0].parent)
        if not failed_before_training(former) and (former.cause is None or former.cause not in retry):
            break
        chain.insert(0, former)
    return chain


def formers_of(ledger: Ledger, run: Run) -> Iterator[Run]:
    """Yield the runs that this one continues, the nearest first: by a retry, `--from` or `batch retry`."""
    known, former = {run.id}, _former_of(ledger, run)
    while former is not None and former.id not in known:  # rows of a team's ledger may be anybody's
        yield former
        known.add(former.id)
        former = _former_of(ledger, former)


def lineage_of(ledger: Ledger, run: Run) -> list[Run]:
    """List the run and those of its job that it continues, oldest first."""
    return [run, *takewhile(lambda one: one.job == run.job, formers_of(ledger, run))][::-1]


def continuation_of(ledger: Ledger, run: Run) -> Run | None:
    """Return the newest run that continues this one; None: there is none."""
    found, known = run, {run.id}
    while later := [
        one for one in ledger.runs(parent=found.id) if one.job == run.job and one.id not in known
    ]:
        found = later[0]
        known.add(found.id)
    if found is run and run.point and not run.leader:
        found = ledger.runs(batch=run.batch, point=run.point)[0]
    return None if found.id == run.id else found


def has_checkpoint(ledger: Ledger, run: Run, here: str | None = None) -> bool:
    """Return whether the run, or one that it continues, left a checkpoint on this computer.

    `here`: this computer, as `Run.computer`; None: the rows of other computers count, too.
    """
    return any(checkpoints_here(one, here or one.computer) for one in (run, *formers_of(ledger, run)))


def spent_on(ledger: Ledger, run: Run, now: float) -> float:
    """Return the dollars that a run cost so far, with all of its nodes."""
    return total_usd((run, *ledger.runs(leader=run.id)), now)


def max_spent_on(ledger: Ledger, run: Run, now: float) -> float:
    """Return the dollars that a run may have cost by its bill, with all of its nodes."""
    return sum(max_cost_usd(one, now) for one in (run, *ledger.runs(leader=run.id)))


def next_attempt(spec: JobSpec, chain: Sequence[Run], now: float, spent_usd: float) -> JobSpec | str:
    """Return the job of another attempt, with what is left of its money: the last one cost up to `spent_usd`.

    A text says why one that is due cannot be made; empty: none is due.
    """
    if not _is_due(spec, chain):
        return ""
    last = chain[-1]
    return (
        _budget_shortfall(spec, last, spent_usd) or _time_shortfall(spec, now) or with_limit(spec, spent_usd)
    )


def is_retry_missing(ledger: Ledger, run: Run, now: float) -> bool:
    """Return whether another attempt is due that the run's launcher did not live to begin."""
    if run.phase is not Phase.ENDED or run.cause is None:  # thousands of points of a batch end well
        return False
    if ledger.runs(parent=run.id):
        return False
    if ledger.user_request(run.id).cause is not None:
        return False
    chain, spent_usd = chain_of(ledger, run), max_spent_on(ledger, run, now)
    return not isinstance(next_attempt(read_job(run.spec_json), chain, now, spent_usd), str)


def _budget_shortfall(spec: JobSpec, last: Run, spent_usd: float) -> str:
    """Say why another attempt cannot be paid for; empty when it can."""
    if spec.limits.usd is None:
        return ""
    left_usd = max(0.0, spec.limits.usd - spent_usd)
    min_usd = _MIN_USD if last.offer is None else max(_MIN_USD, policy.min_usd(last.offer))
    min_usd *= spec.nodes
    if left_usd >= min_usd:
        return ""
    machines = "a machine" if spec.nodes == 1 else f"{spec.nodes} machines"
    return (
        f"{NO_OTHER}: {usd(left_usd)} of limits.usd is left; startup of {machines} plus one minute of "
        f"training costs {usd(min_usd)}"
    )


def _time_shortfall(spec: JobSpec, now: float) -> str:
    """Say why another attempt comes too late for the deadline; empty when it does not."""
    deadline, min_s = policy.deadline_of(spec), policy.START_S + policy.MIN_TRAINING_S
    if deadline is None or deadline - now >= min_s:
        return ""
    return (
        f"{NO_OTHER}: {max(0.0, deadline - now):.0f} s are left until limits.deadline; a machine and "
        f"one minute of training need {min_s:.0f} s"
    )


def _is_due(spec: JobSpec, chain: Sequence[Run]) -> bool:
    """Return whether `retry:` asks for another attempt, money aside."""
    last = chain[-1]
    if last.phase is not Phase.ENDED or last.cause is None:
        return False
    if failed_before_training(last):
        return sum(map(failed_before_training, chain)) <= MAX_HOST_RETRIES
    failures = sum(run.cause is last.cause and not failed_before_training(run) for run in chain)
    return failures <= {str(cause): number for cause, number in spec.retry.items()}.get(str(last.cause), 0)


def failed_before_training(run: Run) -> bool:
    """Tell whether the machine failed before the training began: another one costs little and may well do."""
    return run.failed_in in (Phase.RENT, Phase.BOOT, Phase.SHIP) and run.cause in (Cause.HOST, Cause.LOST)


def origin_of(ledger: Ledger, run: Run, here: str) -> Origin:
    """Find what the runs before this one left to continue from. `here`: this computer, as `Run.computer`.

    At home the nearest's, at URLs its own and those of the runs since. What is older is of no use, and may be
    of another stage, which counts other steps.
    """
    folder, urls, continues = None, [], []
    for former in formers_of(ledger, run):
        continues.append(former.id)
        if folder is None:
            folder = checkpoints_here(former, here)
            urls.append(pushed_url(former))
    pushed = tuple(url for url in urls if url is not None)
    return Origin(folder=folder, pushed=pushed, continues=tuple(continues))


def checkpoints_here(run: Run, here: str) -> Path | None:
    """Return the folder of the run's checkpoints on this computer; None where it has none."""
    # Another computer's row names a folder of that one: here it may be anything.
    return Outputs(run).checkpoints if run.computer == here else None


def _former_of(ledger: Ledger, run: Run) -> Run | None:
    """Return the run that this one continues; None: it starts afresh.

    `batch retry` starts a point again as a run without a parent: a user's own program continues all the same.
    """
    if run.parent is not None:
        return ledger.get(run.parent)
    from vastrun.launcher.config.program_kinds import program_spec  # slow to import: all that a job may say

    if not run.point or run.leader or program_spec(read_job(run.spec_json)).keeps_records:
        return None
    runs = ledger.runs(batch=run.batch, point=run.point)  # the newest first
    older = runs[[one.id for one in runs].index(run.id) + 1 :]
    return older[0] if older else None


def pushed_url(run: Run) -> str | None:
    """Return the URL to which the run's box pushes its checkpoints; None when the job does not say."""
    push = read_job(run.spec_json).checkpoints.push
    return None if push is None else f"{push.rstrip('/')}/{run.id}"


def nothing_to_resume_error(ledger: Ledger, run: Run) -> UsageError:
    """Return the error for a run that has ended, and after which no other attempt is due."""
    if (later := continuation_of(ledger, run)) is not None:
        verb = "why" if later.phase is Phase.ENDED else "attach"
        return UsageError(
            f"{run.id} has ended, and {later.id} continues it", hint=f"vastrun {verb} {later.id}"
        )
    if not has_checkpoint(ledger, run) and pushed_url(run) is None:
        return UsageError(
            f"{run.id} has ended and left no checkpoint; nothing can be resumed", hint=FRESH_LAUNCH
        )
    return UsageError(
        f"{run.id} has ended; a new run can continue from its checkpoint",
        hint=f"vastrun launch --from {run.id}",
    )


def has_open_nodes(ledger: Ledger, run: Run) -> bool:
    """Return whether rows of further nodes are still open: the launcher was killed before it closed them."""
    return any(node.phase is not Phase.ENDED for node in ledger.runs(leader=run.id))
