"""`vastrun cost`: the costs of runs; `vastrun cost reconcile`: compare them with the bill."""

from __future__ import annotations

import textwrap
from collections.abc import Collection, Mapping, Sequence
from typing import Any

import click

from vastrun.contract.texts import how_many
from vastrun.launcher.app import App
from vastrun.launcher.cli.options import json_option, maybe_run_argument, the_run
from vastrun.launcher.cli.output import exit_with, say, show, width
from vastrun.launcher.commands.queries import all_rows, row_of
from vastrun.launcher.core.bills import MAX_TAIL_S, WATCHED_S
from vastrun.launcher.cost.groups import Calendar, GroupBy
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
from vastrun.launcher.cost.statement import Reconciliation, cost_report, reconciliation, settle, with_nodes
from vastrun.launcher.gate.text import one_line
from vastrun.launcher.ui.render import costs
from vastrun.launcher.ui.render.amounts import WIDTH, moment, table, usd_sum

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
        f"it runs, or ended less than {SETTLEMENT_S / 3600:.0f} h ago: the rest is yet to be charged; or a "
        "charge of it cannot be read",
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
    DifferenceReason.BILL_RAN_ON: (
        "the bill ran on",
        f"it was charged after its end: up to {MAX_TAIL_S:.0f} s a machine were seen before",
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
    UnmatchedCharge.OTHER_KIND: "not for a machine, and not of a run",
    UnmatchedCharge.UNKNOWN_RUN: (f"{_NOT_EXPLAINED}: for runs with this ledger's id that it does not have"),
}


class CostCommandGroup(click.Group):
    """A group that runs `cost_command` if no subcommand is named."""

    def make_context(
        self, info_name: str | None, args: list[str], parent: click.Context | None = None, **extra: Any
    ) -> click.Context:
        if args and args[0] in self.commands:
            return super().make_context(info_name, args, parent, **extra)
        return cost_command.make_context(info_name, args, parent, **extra)


class CostCommand(click.Command):
    """A command whose help lists the subcommands of its group."""

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, one.get_short_help_str()) for name, one in command.commands.items()])
        super().format_epilog(ctx, formatter)


@click.command("cost", cls=CostCommand)
@maybe_run_argument
@click.option(
    "--by", "by_name", type=click.Choice([by.value for by in GroupBy]), help="Group the costs by this."
)
@click.option("--since", metavar="TIME", help="Start: 2026-11-01, 2026-11, today, or 7d or 24h ago.")
@click.option("--until", metavar="TIME", help="End, in the same forms; includes that day or month.")
@json_option
@click.option("--csv", "as_csv", is_flag=True, help="Print comma-separated values, with unrounded numbers.")
@click.pass_obj
def cost_command(
    app: App,
    run_name: str | None,
    by_name: str | None,
    since: str | None,
    until: str | None,
    as_json: bool,
    as_csv: bool,
) -> None:
    """Show the cost of all runs, or of one RUN: hours and dollars, so far or in total.

    With --by, --since, --until or --csv, show sums instead: the share of training, idle time and
    failed runs, and the cost per finished run and per thousand steps.
    """
    now, ledger = app.now(), app.ledger()
    if not as_csv and all(value is None for value in (by_name, since, until)):
        rows = [row_of(ledger, the_run(app, run_name), now)] if run_name else all_rows(ledger, now)
        show(costs.Costs.of(rows, now), costs.costs_table(rows, now, width=width()), as_json=as_json)
        return
    if as_json and as_csv:
        raise click.UsageError("--json and --csv exclude each other")
    report = cost_report(
        ledger,
        with_nodes(ledger, the_run(app, run_name)) if run_name else ledger.runs(members=True),
        now,
        by=GroupBy(by_name or GroupBy.RUN),
        since=None if since is None else _moment("--since", since, now),
        until=None if until is None else _moment("--until", until, now, is_end=True),
        calendar=Calendar(),
    )
    if as_csv:
        say(costs.report_csv(report))
    else:
        show(report, costs.report_text(report, width()), as_json=as_json)


def _moment(option: str, text: str, now: float, *, is_end: bool = False) -> float:
    try:
        return Calendar().moment(text, now, is_end=is_end)
    except ValueError as error:
        raise click.BadParameter(str(error), param_hint=option) from error


@click.command("reconcile")
@click.option("--since", metavar="TIME", default="30d", show_default=True, help="Start, as for vastrun cost.")
@json_option
@click.pass_obj
def reconcile_command(app: App, since: str, as_json: bool) -> None:
    """Compare the ledger with the bill. Each difference is explained.

    For each run that rented a machine since --since: the cost by the ledger, the charges of the provider so
    far, and the reasons for the difference. An hour after a run's end, its charges replace the cost by the
    ledger in all commands, unless they are inexplicably low. Exit code 1 if a difference is unexplained.
    """
    now, ledger = app.now(), app.ledger()
    found = reconciliation(ledger, app.provider, now, _moment("--since", since, now))
    settled = settle(found.runs, ledger, app.who(), now)
    show(
        costs.ReconciliationDocument.of(found, settled),
        reconciliation_text(found, settled, width()),
        as_json=as_json,
    )
    exit_with(0 if found.explained else 1)


command = CostCommandGroup("cost", commands=[reconcile_command])


def reconciliation_text(
    found: Reconciliation, settled: Collection[str] = (), width: int | None = None
) -> str:
    """Write one line per run, the reasons, the number of settled runs, and other charges."""
    if not found.runs:
        parts = [f"no run rented a machine that is billed since {moment(found.since)}"]
    else:
        parts = [_table(found.runs, width), _legend(found.runs)]
    if settled:
        runs = f"{len(settled)} of {len(found.runs)} runs"
        text = f"settled: for {runs}, all commands show the charges as the cost"
        parts.append(textwrap.fill(text, WIDTH, subsequent_indent="  "))
    return "\n\n".join(filter(None, [*parts, _besides(found)]))


def _table(runs: Sequence[ReconciledBill], width: int | None) -> str:
    rows = [(one.bill.run.id, *_amounts([one]), _why(one)) for one in runs]
    rows.append(("total", *_amounts(runs), ""))
    header = ("RUN", "COUNTED", "CHARGED", "DIFFERENCE", "WHY")
    return table(header, rows, right=(1, 2, 3), cut=(0, 4), width=width)


def _amounts(runs: Sequence[ReconciledBill]) -> tuple[str, str, str]:
    """Write the sums, and their difference as they are shown, so that the numbers add up."""
    counted, charged = [one.bill.counted.usd for one in runs], [one.bill.charged_usd for one in runs]
    mills = sum(round(usd * 1000) for usd in charged) - sum(round(usd * 1000) for usd in counted)
    difference = f"{'-' if mills < 0 else '+' if mills else ''}${abs(mills) / 1000:.3f}"
    is_billed = any(one.bill.charges for one in runs)
    return usd_sum(counted), usd_sum(charged) if is_billed else _NONE, difference


def _why(one: ReconciledBill) -> str:
    left = () if one.explained else (f"{_NOT_EXPLAINED} {usd_sum([one.unexplained_usd])}",)
    ran_on = {DifferenceReason.BILL_RAN_ON: f" for {one.bill.tail_s:.0f} s after the end"}
    labels = [REASONS[reason][0] + ran_on.get(reason, "") for reason in one.reasons]
    return ", ".join((*labels, *left)) or _NONE


def _legend(runs: Sequence[ReconciledBill]) -> str:
    used = {reason for one in runs for reason in one.reasons}
    lines = [f"{name}: {text}" for reason, (name, text) in REASONS.items() if reason in used]
    if not all(one.explained for one in runs):
        lines.append(f"{_NOT_EXPLAINED}: {_ADVICE}")
    return "\n".join(textwrap.fill(line, WIDTH, subsequent_indent="  ") for line in lines)


def _besides(found: Reconciliation) -> str:
    lines = []
    for kind, text in STRANGERS.items():
        charges = [one for one in found.unclaimed if one.kind is kind]
        if charges:
            labels = ", ".join(one_line(one.label) or "no label" for one in charges[:3])
            more = f" and {len(charges) - 3} more" if len(charges) > 3 else ""
            lines.append(f"other charges: {usd_sum(one.usd for one in charges)} {text} ({labels}{more})")
    for name, count in found.without_bill.items():
        lines.append(f"{how_many(count, 'run')} of {name}: it sends no bill")
    return "\n".join(textwrap.fill(line, WIDTH, subsequent_indent="  ") for line in lines)
