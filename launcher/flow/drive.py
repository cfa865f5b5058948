"""Driver of a run: runs its steps in the order of the phase table until the run has ended.

It tries again after a wrong key, another account, or too many requests.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import replace

from vastrun.launcher.core import Cause, Phase, Run, bills, errors
from vastrun.launcher.core.job import JobSpec
from vastrun.launcher.core.labels import POOL, member_folder, member_id
from vastrun.launcher.core.phases import NEXT, Result
from vastrun.launcher.decisions import deadlines, policy
from vastrun.launcher.flow.boot import boot
from vastrun.launcher.flow.context import RunContext
from vastrun.launcher.flow.lease_expiry import gone_result
from vastrun.launcher.flow.rental import plan, rent
from vastrun.launcher.flow.run_end import first_cause
from vastrun.launcher.flow.run_state import Detached, PhaseResult, RunStopped, failed, provider_terminated
from vastrun.launcher.flow.services import Services
from vastrun.launcher.flow.steps import collect, destroy, ship
from vastrun.launcher.flow.watch import watch
from vastrun.launcher.ports import Provider

STEPS: Mapping[Phase, Callable[[RunContext], PhaseResult]] = {
    Phase.PLAN: plan,
    Phase.RENT: rent,
    Phase.BOOT: boot,
    Phase.SHIP: ship,
    Phase.TRAIN: watch,
    Phase.COLLECT: collect,
    Phase.DESTROY: destroy,
}
"""Step of each phase: returns a result of the phase table; safe to repeat."""
_PHASES_WITH_MACHINE = (Phase.RENT, Phase.BOOT, Phase.SHIP, Phase.TRAIN, Phase.COLLECT)
"""Phases in which a rejected key says nothing about the run; `destroy` has its own limit."""


def create_run(
    spec: JobSpec,
    spec_json: str,
    services: Services,
    *,
    run_id: str,
    out_dir: str,
    parent: str | None = None,
    batch: str = "",
    point: str = "",
    home: str | None = None,
    check: Callable[[JobSpec, Run], object] = lambda _spec, _run: None,
) -> Run:
    """Create a run with its row, in phase `plan`. The provider was not asked for anything yet.

    `home`: the computer where its job was read; None: this one. `check`: what must work on this computer
    before; another launcher may begin the run where it raises. Raises UsageError when `out_dir` holds
    anything of others, BudgetError when a budget has no room for what the run may cost. No row is written
    then.
    """
    now = services.clock.now()
    run = Run(
        id=run_id,
        job=spec.name,
        spec_json=spec_json,
        provider=services.provider.name,
        phase=Phase.PLAN,
        out_dir=out_dir,
        created_at=now,
        phase_at=now,
        parent=parent,
        # Where other computers' launchers list the same machines, the label must say whose this one is.
        ledger=services.ledger.id if services.provider.shared else "",
        batch=batch,
        point=point,
        started_by=services.user,
        computer=services.computer,
        home=services.computer if home is None else home,
        reserved_usd=0.0 if costs_nothing(services.provider) else policy.reservation_usd(spec) / spec.nodes,
    )
    services.output_store.check_unused(run)
    check(spec, run)
    services.ledger.add(run, services.budgets(now), _node_rows(run, spec.nodes))
    return run


def _node_rows(run: Run, nodes: int) -> list[Run]:
    """Return the rows of the run's further nodes."""
    return [
        replace(
            run,
            id=member_id(run.id, node),
            leader=run.id,
            node=node,
            out_dir=f"{run.out_dir}/{member_folder(node)}",
            parent=None,
        )
        for node in range(1, nodes)
    ]


def costs_nothing(provider: Provider) -> bool:
    """Return whether its machines are free, or slots, which the run that holds the machine pays for."""
    return provider.free or provider.name == POOL


def drive(run: Run, spec: JobSpec, services: Services) -> Run:
    """Drive the run until it ended, was detached or could not be torn down (in `destroy`).

    Raises StorageError, HeldError, and AuthError where a machine is out of reach of this key. A run that has
    a machine then stands as it was, to be driven on, and the lease guards the machine.
    """
    context = RunContext(run, spec, services)
    context.hold()
    try:
        # Another launcher may have moved the run on before it let go. A new drive has all its tries again.
        context.run = replace(services.ledger.get(run.id), destroy_tries=0)
        with (
            suppress(Detached),
            services.guard(context.abort_if_stopped),
            services.interrupting(context.raise_if_requested),
        ):
            _drive_steps(context)
    except errors.AccountMismatchError as error:
        report_left_to_lease(context, error)
        raise
    finally:
        context.disconnect()
        services.ledger.release(run.id, services.who)
    return context.run


def _drive_steps(context: RunContext) -> None:
    """Run step after step until the run has ended, or cannot be destroyed. Raises Detached."""
    while True:
        if not context.run.leader:
            context.services.note_phase(context.run.phase)
        if context.run.phase is Phase.ENDED or context.run.destroy_tries >= policy.DESTROY_TRIES:
            return
        _advance(context, _run_step(context))


def _run_step(context: RunContext) -> PhaseResult:
    """Return the result of the current step, whatever it raises: a bug in vastrun must not leave a machine
    rented."""
    phase = context.run.phase
    try:
        return _run_with_retry(context)
    except RunStopped as over:
        return over.end
    except (Detached, errors.HeldError, errors.AccountMismatchError):
        raise
    except errors.StorageError as error:
        # Nothing is rented yet, so the run is closed. Later its row stays open, to be driven on; and so do
        # those of several nodes, which all have to be closed.
        if phase is Phase.PLAN and context.nodes.is_alone:
            # It has no machine and cannot be saved: there is nothing to resume.
            with suppress(errors.StorageError):
                context.save(
                    phase=Phase.ENDED,
                    ended_at=context.now(),
                    cause=Cause.STORAGE,
                    detail=str(error),
                    failed_in=Phase.PLAN,
                )
        raise
    except errors.EndedError as error:
        return provider_terminated(error.end)
    except errors.VastrunError as error:
        return failed(error.cause, str(error))
    except (Exception, SystemExit) as error:  # noqa: BLE001 - the one place: see above; a plug-in may exit
        return failed(Cause.INTERNAL, f"{type(error).__name__}: {error}")


def _run_with_retry(context: RunContext) -> PhaseResult:
    """Return the result of the current step, which is repeated while the provider rejects the requests."""
    phase, retry_timer = context.run.phase, RetryTimer(context)
    check_account(context)
    while True:
        context.raise_if_requested()
        try:
            return STEPS[phase](context)
        except errors.GoneError as error:
            if phase is not Phase.DESTROY and context.machines.is_gone():
                return gone_result(context)
            return failed(Cause.HOST, str(error))
        except (errors.AuthError, errors.BusyError) as error:
            retry_timer.wait(error)


def _advance(context: RunContext, end: PhaseResult) -> None:
    """Save the next phase as the table says; the first cause stays."""
    run, now = context.run, context.now()
    changes = {"phase": NEXT[run.phase][end.result], "phase_at": now}
    again = run.phase is Phase.DESTROY and end.result is not Result.OK
    end, columns = first_cause(context, end)
    changes |= columns
    if again:
        changes |= {"destroy_tries": run.destroy_tries + 1}
    if changes["phase"] is Phase.ENDED:
        changes |= {"ended_at": now}
    if end.result is not Result.OK:
        how = end.cause if end.cause is Cause.PRUNED else end.result  # which is no failure
        context.report(f"{end.detail}; trying again" if again else f"{how}: {end.detail}")
    context.save(**changes)
    if again:
        context.wait(min(60.0, 2.0**context.run.destroy_tries))


def check_account(context: RunContext) -> None:
    """Check that this key is of the run's account, and correct its times by this computer's clock.

    Asks once a drive. Raises AuthError when the key is not accepted, AccountMismatchError when a run may have
    a machine that this key does not reach. A provider that does not answer does not stop the drive.
    """
    provider, run = context.services.provider, context.run
    account = provider.abilities.account or provider.abilities.identity
    if context.is_account_checked or account is None:
        return
    try:
        who = account.identity()
    except errors.AuthError as error:
        if run.phase is Phase.PLAN:
            raise
        raise errors.AccountMismatchError(
            f"{run.id} cannot be reached: {error}", hint=_hint(context)
        ) from error
    except errors.ProviderError:
        return
    if run.account and run.rented_at is not None and who.account != run.account:
        raise errors.AccountMismatchError(
            f"{run.id} is on account {run.account} of {provider.name}; "
            f"this computer now uses account {who.account}",
            hint=_hint(context),
        )
    context.is_account_checked = True
    # The next row has it: a disk that is full is the business of the step that comes.
    context.run = replace(bills.by_clock(run, who.clock_ahead_s), account=who.account)
    context.start_grace_period()


def report_left_to_lease(context: RunContext, error: errors.AccountMismatchError) -> None:
    """Report that the run's machine is left to its lease, which alone can end it now."""
    run, services = context.run, context.services
    lease = deadlines.estimate_remaining_lease(run, context.spec, context.now())
    if lease is None:
        return
    with suppress(errors.StorageError):
        event = context.show_event(f"{error}; machine {run.instance_id} is left to its lease")
        if not deadlines.is_left_to_lease(services.ledger.events(run.id)):
            services.ledger.add_event(replace(event, told=deadlines.LEFT_TO_LEASE))
    context.notify(lease)


class RetryTimer:
    """Waits between two attempts at a step, within the limits for each outage of a key or a provider."""

    def __init__(self, context: RunContext) -> None:
        self._context = context
        self._since = math.inf
        """Time of the first rejection of the current outage."""
        self._tried_at = math.inf
        """Time at which the step was last tried again."""

    def wait(self, error: errors.AuthError | errors.BusyError) -> None:
        """Return once the step may be tried again.

        Raises `error` when a retry is of no use, AccountMismatchError when the run's machine cannot be
        reached for too long.
        """
        context = self._context
        has_machine = context.run.rented_at is not None and not context.machines.was_order_rejected
        # Where nothing is rented, nothing is lost by giving up at once; and no time makes a folder appear.
        if isinstance(error, errors.AccountMismatchError) or (
            isinstance(error, errors.AuthError)
            and not (has_machine and context.run.phase in _PHASES_WITH_MACHINE)
        ):
            raise error
        # Too many calls pass by themselves, a key does not: hence the two limits.
        limit_s = policy.KEY_REJECTED_S if isinstance(error, errors.AuthError) else policy.BUSY_S
        # A step that then ran for longer was not rejected meanwhile: a training lasts for hours.
        if self._since == math.inf or context.now() - self._tried_at > limit_s:
            self._since = context.now()
            context.report(f"{error}; trying again")
        if context.now() - self._since > limit_s:
            if isinstance(error, errors.BusyError):
                raise error
            raise errors.AccountMismatchError(f"{context.run.id}: {error}", hint=_hint(context)) from error
        context.disconnect()
        context.wait(15.0)
        context.raise_if_stopped()
        self._tried_at = context.now()


def _hint(context: RunContext) -> str:
    account = f" of account {context.run.account}" if context.run.account else ""
    if context.services.provider.abilities.account is None:
        return f"set DOCKER_HOST, or slurm.login, to the one{account}"
    return f"export VAST_API_KEY=… with a key{account}"
