"""Provider retry: what a launcher does after a wrong key, another account, or too many requests."""

from __future__ import annotations

import math
from contextlib import suppress
from dataclasses import replace

from vastrun.launcher.core import Phase, bills, errors
from vastrun.launcher.decisions import deadlines, policy
from vastrun.launcher.flow.context import RunContext

_PHASES_WITH_MACHINE = (Phase.RENT, Phase.BOOT, Phase.SHIP, Phase.TRAIN, Phase.COLLECT)
"""Phases in which a rejected key says nothing about the run; `destroy` has its own limit."""


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
