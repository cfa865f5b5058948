"""`cost reconcile` in text: what was charged beside what is counted, and why they differ."""

from __future__ import annotations

import textwrap
from collections.abc import Collection, Mapping, Sequence

from vastrun.launcher.commands.cost import Reconciliation
from vastrun.launcher.core.bills import WATCHED_S
from vastrun.launcher.decisions.reconciliation import (
    CHANGES,
    LAST_GB,
    ROUNDED_SHARE,
    ROUNDED_USD,
    SETTLEMENT_S,
    DifferenceReason,
    ReconciledBill,
    UnmatchedCharge,
)
from vastrun.launcher.gate.text import one_line
from vastrun.launcher.ui.render.amounts import moment, usd_sum
from vastrun.launcher.ui.render.table import WIDTH, table

_NONE = "-"
_NOT_EXPLAINED = "NOT EXPLAINED"
_WHAT_TO_DO = "this goes beyond what the reasons allow; is a machine still there? vastrun reap --dry-run"

REASONS: Mapping[DifferenceReason, tuple[str, str]] = {
    DifferenceReason.ROUNDED: (
        "rounding",
        f"prices and times are told rounded: up to {ROUNDED_SHARE:.1%}, or ${ROUNDED_USD}",
    ),
    DifferenceReason.OTHER_ACCOUNT: (
        "another account",
        "rented with the key of another account, whose bill is not seen",
    ),
    DifferenceReason.NOT_SETTLED: (
        "not settled yet",
        f"it runs, or ended less than {SETTLEMENT_S / 3600:.0f} h ago: the rest is yet to be charged",
    ),
    DifferenceReason.SEEN_LATE: (
        "seen late",
        "what began, changed or ended between two looks is counted until the later one: up to "
        f"{CHANGES * WATCHED_S / 60:.0f} min a machine",
    ),
    DifferenceReason.PRICE_CHANGED: (
        "price changed",
        "nobody sees when: a higher price counts from the last look before, a lower one from when it was "
        "heard",
    ),
    DifferenceReason.NOT_WATCHED: (
        "not watched",
        "it loaded, was stopped or ended while no launcher looked: what is not known to be free is counted",
    ),
    DifferenceReason.LAST_TRAFFIC: (
        "last traffic",
        f"bytes after the last look: up to {LAST_GB:.0f} GB each way, or more if it ended by itself",
    ),
}
"""What is shown in the line of a run, and what is said of it below the table."""

STRANGERS: Mapping[UnmatchedCharge, str] = {
    UnmatchedCharge.NOT_A_RUN: "for machines that vastrun did not rent",
    UnmatchedCharge.OTHER_LEDGER: "for runs of another ledger, such as another computer's",
    UnmatchedCharge.UNKNOWN_RUN: (
        f"{_NOT_EXPLAINED}: for runs that bear this ledger's id, and that it does not have"
    ),
}


def reconciliation_text(
    found: Reconciliation, settled: Collection[str] = (), width: int | None = None
) -> str:
    """Write one line a run, the reasons below, how many are settled, and what was charged besides."""
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
    """Of the sums as they are shown, so that they add up for who checks it."""
    mills = sum(round(usd * 1000) for usd in charged) - sum(round(usd * 1000) for usd in counted)
    return f"{'-' if mills < 0 else '+' if mills else ''}${abs(mills) / 1000:.3f}"


def _legend(runs: Sequence[ReconciledBill]) -> str:
    used = {reason for one in runs for reason in one.reasons}
    lines = [f"{name}: {text}" for reason, (name, text) in REASONS.items() if reason in used]
    if not all(one.explained for one in runs):
        lines.append(f"{_NOT_EXPLAINED}: {_WHAT_TO_DO}")
    return "\n".join(textwrap.fill(line, WIDTH, subsequent_indent="  ") for line in lines)


def _settled(runs: Sequence[ReconciledBill], settled: Collection[str]) -> str:
    if not settled:
        return ""
    text = f"settled: {len(settled)} of {len(runs)} runs cost what was charged, in vastrun cost, too"
    return textwrap.fill(text, WIDTH, subsequent_indent="  ")


def _besides(found: Reconciliation) -> str:
    lines = []
    for kind, text in STRANGERS.items():
        strange = [one for one in found.unclaimed if one.kind is kind]
        if strange:
            labels = ", ".join(one_line(one.label) or "no label" for one in strange[:3])
            more = f" and {len(strange) - 3} more" if len(strange) > 3 else ""
            lines.append(f"charged besides: {usd_sum(one.usd for one in strange)} {text} ({labels}{more})")
    lines += [
        f"{count} run{'s' if count > 1 else ''} of {name}: it sends no bill"
        for name, count in found.without_bill.items()
    ]
    return "\n".join(textwrap.fill(line, WIDTH, subsequent_indent="  ") for line in lines)
