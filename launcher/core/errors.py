"""Errors, each with its cause and a hint."""

from __future__ import annotations

from collections.abc import Sequence

from vastrun.launcher.core import Cause, Instance, MachineEnd


class VastrunError(Exception):
    """Base of all errors that vastrun explains.

    `hint`: one command or one change to try; `cause`: only where it differs from the class's.
    """

    cause: Cause = Cause.INTERNAL
    exit_code: int = 1

    def __init__(self, message: str, *, hint: str = "", cause: Cause | None = None) -> None:
        super().__init__(message)
        self.hint = hint
        if cause is not None:
            self.cause = cause


class UsageError(VastrunError):
    """The command line or the job file is wrong. Nothing was done."""

    exit_code = 2
    cause = Cause.USER_ERROR


class JobFileError(UsageError):
    """All faults of a job file, one a line: `file:line: key: fault`."""

    def __init__(self, faults: tuple[str, ...]) -> None:
        super().__init__("\n".join(faults), hint="")
        self.faults = faults


class ConfigFileError(JobFileError):
    """All faults of the user's config file. Commands that only read or destroy continue without it."""


class JobValueError(UsageError):
    """A well-formed value of a job file does not work here: `key: fault`. The command line adds the file
    name."""


class StorageError(VastrunError):
    """This computer cannot write. The run stays as it is and can be resumed."""


class NoRoomError(StorageError):
    """The disk has no space for a download. The space that the ledger needs is still free."""


class HeldError(VastrunError):
    """Another launcher drives this run."""


class UnsignedError(UsageError):
    """A row of a team's ledger is not signed: it is shown, and nothing is done by it."""


class NoSuchRunError(UsageError):
    """No run, or more than one, has that name."""


class ImageError(VastrunError):
    """An image cannot be built, found or trusted."""


class AuthError(VastrunError):
    """The provider rejects the key."""

    exit_code = 4
    cause = Cause.PROVIDER


class AccountMismatchError(AuthError):
    """The key belongs to another account than the run's machine. The run stays open, under its lease."""


class NoOfferError(VastrunError):
    """Nothing on offer fits the job.

    `ended`: id of a machine that was created despite the rejection, destroyed, and is billed. `idle_s`:
    seconds from its order for which it was seen not to run.
    """

    exit_code = 8
    cause = Cause.NO_OFFER

    def __init__(
        self,
        message: str,
        *,
        hint: str = "",
        cause: Cause | None = None,
        ended: str = "",
        idle_s: float = 0.0,
    ) -> None:
        super().__init__(message, hint=hint, cause=cause)
        self.ended, self.idle_s = ended, idle_s


class BudgetError(VastrunError):
    """A budget does not cover the max. cost of a run. Nothing was rented. `budget`: its name."""

    exit_code = 9
    cause = Cause.MONEY_LIMIT

    def __init__(self, message: str, *, hint: str = "", cause: Cause | None = None, budget: str = "") -> None:
        super().__init__(message, hint=hint, cause=cause)
        self.budget = budget


class ProviderError(VastrunError):
    """The provider answered with an error."""

    cause = Cause.PROVIDER


class UncertainError(ProviderError):
    """No clear response: the request may or may not have been executed. Check before a retry."""


class UnreachableError(ProviderError):
    """The box does not answer now: silent, not lost."""

    cause = Cause.HOST


class SliceOverError(ProviderError):
    """The time for a part of a file is used up: what has come stays, and the next part continues it."""

    cause = Cause.HOST


class IncompleteListError(UnreachableError):
    """A list of machines has unreadable rows: machines that are not in it may exist."""

    cause = Cause.PROVIDER

    def __init__(
        self, message: str, *, hint: str = "", cause: Cause | None = None, found: Sequence[Instance] = ()
    ) -> None:
        super().__init__(message, hint=hint, cause=cause)
        self.found = found
        """Machines in the readable rows."""


class BusyError(UnreachableError):
    """The provider's rate limit is reached, and it did nothing. It will answer later."""

    cause = Cause.PROVIDER


class NoBoxError(UnreachableError):
    """The machine answers, and has no box: its onstart script did not run, or not yet."""


class KeyNotAttachedError(UnreachableError):
    """The machine rejects the run's SSH key, and the provider refused to attach it.

    A problem of the account or the API, not of the machine.
    """

    cause = Cause.PROVIDER


class HostKeyError(UnreachableError):
    """The machine that answers has another SSH host key than the box. Nothing was sent to it."""


class BoxError(ProviderError):
    """The box sent invalid data, or more than is allowed: its host is to blame."""

    cause = Cause.HOST


class UnexplainedError(ProviderError):
    """The machine does not start, and its provider reports no reason; its host's log may."""

    cause = Cause.HOST


class EndedError(ProviderError):
    """The provider has ended the machine, and nothing of the run is left on it."""

    def __init__(
        self, message: str, *, hint: str = "", cause: Cause | None = None, node: int | None = None
    ) -> None:
        """`node`: as `MachineEnd.node`."""
        super().__init__(message, hint=hint, cause=cause)
        self.end = MachineEnd(cause=self.cause, text=message, node=node)


class GoneError(ProviderError):
    """The provider reports that the machine does not exist."""

    cause = Cause.LOST
