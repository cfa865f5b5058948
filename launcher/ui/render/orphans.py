"""`reap` in text: the machines that no open run claims, by whose they are."""

from __future__ import annotations

from collections.abc import Sequence

from vastrun.launcher.commands.orphans import UNKNOWN_LEDGER, Orphan, Owner, by_owner, owner_text
from vastrun.launcher.commands.queries import RunRow
from vastrun.launcher.core import Cost, RunNetwork
from vastrun.launcher.gate.text import one_line
from vastrun.launcher.ui.render.amounts import duration, usd
from vastrun.launcher.ui.render.summary import left_text, state_of
from vastrun.launcher.ui.render.table import short, table

_NONE = "every machine that vastrun rented belongs to an open run"


def orphans_text(
    orphans: Sequence[Orphan], networks: Sequence[RunNetwork], left: Sequence[RunRow], now: float
) -> str:
    """Show a table of this computer's, then one of each other owner's, with how to end them.

    `left`: open runs whose machines are left to their leases.
    """
    mine = [orphan for orphan in orphans if orphan.owner is Owner.THIS]
    parts = [_table(mine, now) if mine else _NONE]
    ghosts = ", ".join(one_line(orphan.instance.id) for orphan in mine if orphan.is_ghost)
    if ghosts:
        parts.append(f"{ghosts} is listed again after its confirmed end: its run is not charged for it")
    if networks:
        parts.append(f"networks of runs that ended: {', '.join(one_line(one.name) for one in networks)}")
    for owner, theirs in by_owner(orphans):
        option = f"vastrun reap --from-ledger {theirs[0].ledger or UNKNOWN_LEDGER}"
        rule = f"a run may be training there; only `{option}` ends it"
        parts.append(f"{owner}:\n{_table(theirs, now)}\n{rule}")
    parts += [left_text(row, now) for row in left]
    return "\n\n".join(parts)


def warning_text(orphans: Sequence[Orphan]) -> str:
    """Say what ending another computer's machines would cost its owner."""
    return (
        f"{owner_text(orphans[0])}: whether a run is training there cannot be seen from here.\n"
        "Ending it stops that run; checkpoints and outputs that were not fetched or pushed yet are lost."
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
