"""`cost reconcile` in text: charges compared with the ledger, and the reasons for differences."""

from __future__ import annotations

import textwrap
from collections.abc import Collection, Mapping, Sequence

from vastrun.launcher.core.bills import WATCHED_S
from vastrun.launcher.cost.reconciliation import (
    CHANGES,
    LAST_GB,
    ROUNDED_SHARE,
    ROUNDED_USD,
    SETTLEMENT_S,
    DifferenceReason,
    ReconciledBill,
    UnmatchedCharge,
)
from vastrun.launcher.cost.statement import Reconciliation
from vastrun.launcher.gate.text import one_line
from vastrun.launcher.ui.render.amounts import moment, usd_sum
from vastrun.launcher.ui.render.table import WIDTH, table

_NONE = "-"
_NOT_EXPLAINED = "NOT EXPLAINED"
_ADVICE = "more than the reasons explain; check for a forgotten machine: vastrun reap --dry-run"

REASONS: Mapping[DifferenceReason, tuple[str, str]] = {
    DifferenceReason.ROUNDED: (
        "rounding",
        f"prices and times are reported rounded: up to {ROUNDED_SHARE:.1%}, or ${ROUNDED_USD}",
    ),
    DifferenceReason.OTHER_ACCOUNT: (
        "another account",
        "rented with the key of another account, whose bill is not visible",
    ),
    DifferenceReason.NOT_SETTLED: (
        "not settled yet",
        f"it runs, or ended less than {SETTLEMENT_S / 3600:.0f} h ago: the rest is yet to be charged",
    ),
    DifferenceReason.SEEN_LATE: (
        "seen late",
        "a start, change or end between two polls is counted until the later poll: up to "
        f"{CHANGES * WATCHED_S / 60:.0f} min a machine",
    ),
    DifferenceReason.PRICE_CHANGED: (
        "price changed",
        "at an unknown time: a higher price counts from the previous poll, a lower one from the poll that "
        "reported it",
    ),
    DifferenceReason.NOT_WATCHED: (
        "not watched",
        "it loaded, stopped or ended while no launcher polled it; time not known to be free is counted",
    ),
    DifferenceReason.LAST_TRAFFIC: (
        "last traffic",
        f"bytes after the last poll: up to {LAST_GB:.0f} GB each way, or more if its lease ended it",
    ),
}
"""Label of each reason in the line of a run, and its explanation below the table."""

STRANGERS: Mapping[UnmatchedCharge, str] = {
    UnmatchedCharge.NOT_A_RUN: "for machines that vastrun did not rent",
    UnmatchedCharge.OTHER_LEDGER: "for runs of another ledger, for example another computer's",
    UnmatchedCharge.UNKNOWN_RUN: (f"{_NOT_EXPLAINED}: for runs with this ledger's id that it does not have"),
}


def reconciliation_text(
    found: Reconciliation, settled: Collection[str] = (), width: int | None = None
) -> str:
    """Write one line per run, the reasons, the number of settled runs, and other charges."""
    if not found.runs:
        parts = [f"no run rented a machine that is billed since {moment(found.since)}"]
    else:
        parts = [_table(found.runs, width), _legend(found.runs)]
    return "\n\n".join(filter(None, [*parts, _settled(found.runs, settled), _besides(found)]))


def _table(runs: Sequence[ReconciledBill], width: int | None) -> str:
    counted = [one.bill.counted.usd for one in runs]
    charged = [one.bill.charged_usd for one in runs]
    columns = {
        "RUN": [*(one.bill.run.id for one in runs), "total"],
        "COUNTED": [*(usd_sum([usd]) for usd in counted), usd_sum(counted)],
        "CHARGED": [
            *(usd_sum([one.bill.charged_usd]) if one.bill.charges else _NONE for one in runs),
            usd_sum(charged),
        ],
        "DIFFERENCE": [
            *(_difference([a], [b]) for a, b in zip(counted, charged, strict=True)),
            _difference(counted, charged),
        ],
        "WHY": [*map(_why, runs), ""],
    }
    return table(
        tuple(columns), zip(*columns.values(), strict=True), right=(1, 2, 3), cut=(0, 4), width=width
    )


def _why(one: ReconciledBill) -> str:
    left = () if one.explained else (f"{_NOT_EXPLAINED} {usd_sum([one.unexplained_usd])}",)
    return ", ".join((*(REASONS[reason][0] for reason in one.reasons), *left)) or _NONE


def _difference(counted: Sequence[float], charged: Sequence[float]) -> str:
    """Write the difference of the sums as they are shown, so that the numbers add up."""
    mills = sum(round(usd * 1000) for usd in charged) - sum(round(usd * 1000) for usd in counted)
    return f"{'-' if mills < 0 else '+' if mills else ''}${abs(mills) / 1000:.3f}"


def _legend(runs: Sequence[ReconciledBill]) -> str:
    used = {reason for one in runs for reason in one.reasons}
    lines = [f"{name}: {text}" for reason, (name, text) in REASONS.items() if reason in used]
    if not all(one.explained for one in runs):
        lines.append(f"{_NOT_EXPLAINED}: {_ADVICE}")
    return "\n".join(textwrap.fill(line, WIDTH, subsequent_indent="  ") for line in lines)


def _settled(runs: Sequence[ReconciledBill], settled: Collection[str]) -> str:
    if not settled:
        return ""
    text = f"settled: for {len(settled)} of {len(runs)} runs, all commands show the charges as the cost"
    return textwrap.fill(text, WIDTH, subsequent_indent="  ")


def _besides(found: Reconciliation) -> str:
    lines = []
    for kind, text in STRANGERS.items():
        charges = [one for one in found.unclaimed if one.kind is kind]
        if charges:
            labels = ", ".join(one_line(one.label) or "no label" for one in charges[:3])
            more = f" and {len(charges) - 3} more" if len(charges) > 3 else ""
            lines.append(f"other charges: {usd_sum(one.usd for one in charges)} {text} ({labels}{more})")
    lines += [
        f"{count} run{'s' if count > 1 else ''} of {name}: it sends no bill"
        for name, count in found.without_bill.items()
    ]
    return "\n".join(textwrap.fill(line, WIDTH, subsequent_indent="  ") for line in lines)
