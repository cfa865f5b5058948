"""`reap` in text: the machines that no open run claims, by owner."""

from __future__ import annotations

from collections.abc import Sequence

from vastrun.launcher.commands.queries import RunRow
from vastrun.launcher.commands.reap import UNKNOWN_LEDGER, Orphan, Owner, by_owner, owner_text
from vastrun.launcher.core import Cost, RunNetwork
from vastrun.launcher.gate.text import one_line
from vastrun.launcher.ui.render.amounts import duration, usd
from vastrun.launcher.ui.render.summary import left_text, state_of
from vastrun.launcher.ui.render.table import short, table

_NONE = "every machine that vastrun rented belongs to an open run"


def orphans_text(
    orphans: Sequence[Orphan], networks: Sequence[RunNetwork], left: Sequence[RunRow], now: float
) -> str:
    """Write a table of this computer's machines, then one for each other owner with the command to destroy.

    `left`: open runs whose machines are left to their leases.
    """
    mine = [orphan for orphan in orphans if orphan.owner is Owner.THIS]
    parts = [_table(mine, now) if mine else _NONE]
    ghosts = ", ".join(one_line(orphan.instance.id) for orphan in mine if orphan.is_ghost)
    if ghosts:
        parts.append(
            f"{ghosts} is listed again after its confirmed destruction; its run is not charged for it"
        )
    if networks:
        parts.append(f"networks of runs that ended: {', '.join(one_line(one.name) for one in networks)}")
    for owner, owned in by_owner(orphans):
        option = f"vastrun reap --from-ledger {owned[0].ledger or UNKNOWN_LEDGER}"
        rule = f"a run may be training there; only `{option}` ends it"
        parts.append(f"{owner}:\n{_table(owned, now)}\n{rule}")
    parts += [left_text(row, now) for row in left]
    return "\n\n".join(parts)


def warning_text(orphans: Sequence[Orphan]) -> str:
    """Warn about destroying another computer's machines."""
    return (
        f"{owner_text(orphans[0])}: this computer cannot see whether a run is training there.\n"
        "Destroying it stops that run; checkpoints and outputs not yet downloaded or pushed are lost."
    )


def _table(orphans: Sequence[Orphan], now: float) -> str:
    cells = [
        (
            short(orphan.instance.id, 12),
            short(one_line(orphan.instance.label), 32),
            short(one_line(orphan.instance.state), 8),
            duration(now - orphan.instance.rented_at),
            usd(orphan.instance.usd_per_hour),
            "unknown" if orphan.run is None else state_of(RunRow(run=orphan.run, cost=Cost())),
        )
        for orphan in orphans
    ]
    return table(("MACHINE", "LABEL", "STATE", "AGE", "$/H", "ITS RUN"), cells, right=(3, 4))
