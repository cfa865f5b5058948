"""Why an instance does not run any more. Its row looks the same each time: other evidence tells."""

from __future__ import annotations

from launcher.core import Cause
from launcher.core.errors import ProviderError
from launcher.providers.vast.instance_row import InstanceRow

OFFLINE_S = 300.0
"""A host that Vast calls offline for this long, while its box is silent too, is given up. It may reboot."""
_CLOCK_SKEW_S = 60.0


def stop_error(row: InstanceRow, *, credit_usd: float, now: float) -> ProviderError:
    """Return what stopped it, with its cause."""
    # Without credit Vast stops everything: the other signs are then its consequences.
    if credit_usd <= 0:
        return ProviderError(
            f"Vast stopped instance {row.id}: the account's credit is used up",
            hint="add some at https://cloud.vast.ai/billing/",
            cause=Cause.PROVIDER,
        )
    if 0 < row.end_date <= now + _CLOCK_SKEW_S:
        why, cause = f"the host took machine {row.machine_id} back: its contract ended", Cause.LOST
    elif row.is_bid:
        why = f"somebody outbid ${row.usd_per_hour:.3f}/h on machine {row.machine_id}"
        cause = Cause.PREEMPTED
    else:
        why, cause = f"instance {row.id} was stopped, and not by this launcher", Cause.LOST
    return ProviderError(why, cause=cause)


def offline_error(row: InstanceRow) -> ProviderError:
    """Make the error of a host that is gone, and has been for a while."""
    return ProviderError(
        f"machine {row.machine_id} has been offline for {OFFLINE_S / 60:.0f} min, says Vast", cause=Cause.LOST
    )
