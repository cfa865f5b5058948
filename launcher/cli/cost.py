"""`vastrun cost`: the costs of runs; `vastrun cost reconcile`: compare them with the bill."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import click

from vastrun.launcher.app_context import AppContext
from vastrun.launcher.cli.options import json_option, maybe_run_argument, the_run
from vastrun.launcher.cli.output import say, show, width
from vastrun.launcher.commands.queries import all_rows, row_of, with_bills
from vastrun.launcher.cost.groups import Calendar, GroupBy
from vastrun.launcher.cost.statement import cost_report, reconciliation, settle, with_nodes
from vastrun.launcher.ui.documents.costs import Costs, ReconciliationDocument
from vastrun.launcher.ui.render.costs import costs_table, report_csv, report_text, volume_costs_text
from vastrun.launcher.ui.render.reconciliation import reconciliation_text


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
@click.option("--metric", metavar="NAME", help="Also show this score of finished runs.")
@click.option(
    "--billed", is_flag=True, help="Ask the provider for its charges, which are a few minutes late."
)
@json_option
@click.option("--csv", "as_csv", is_flag=True, help="Print comma-separated values, with unrounded numbers.")
@click.pass_obj
def cost_command(
    app: AppContext,
    run_name: str | None,
    by_name: str | None,
    since: str | None,
    until: str | None,
    metric: str | None,
    billed: bool,
    as_json: bool,
    as_csv: bool,
) -> None:
    """Show the cost of all runs, or of one RUN: hours and dollars, so far or in total.

    With --by, --since, --until, --metric or --csv, show sums instead: the share of training, idle time and
    failed runs, and the cost per finished run and per thousand steps.
    """
    if not as_csv and all(value is None for value in (by_name, since, until, metric)):
        _list(app, run_name, billed=billed, as_json=as_json)
        return
    _must_agree(billed=billed, as_json=as_json, as_csv=as_csv)
    now, ledger, calendar = app.now(), app.ledger(), Calendar()
    report = cost_report(
        ledger,
        with_nodes(ledger, the_run(app, run_name)) if run_name else ledger.runs(members=True),
        now,
        by=GroupBy(by_name or GroupBy.RUN),
        since=_moment("--since", since, calendar.since, now),
        until=_moment("--until", until, calendar.until, now),
        metric=metric or None,
        calendar=calendar,
    )
    if as_csv:
        say(report_csv(report))
    else:
        show(report, report_text(report, width()), as_json=as_json)


def _list(app: AppContext, run_name: str | None, *, billed: bool, as_json: bool) -> None:
    """Show a line for each run, the newest first."""
    now, ledger = app.now(), app.ledger()
    rows = [row_of(ledger, the_run(app, run_name), now)] if run_name else all_rows(ledger, now)
    if billed:
        rows = with_bills(rows, app.provider, now)
    volumes = [] if run_name else ledger.volumes.all()
    table = costs_table(rows, now, billed=billed, width=width())
    text = "\n\n".join(filter(None, (table, volume_costs_text(volumes, now))))
    show(Costs.of(rows, volumes, now), text, as_json=as_json)


def _must_agree(*, billed: bool, as_json: bool, as_csv: bool) -> None:
    if billed:
        raise click.UsageError("--billed goes with --json only; see also: vastrun cost reconcile")
    if as_json and as_csv:
        raise click.UsageError("--json and --csv exclude each other")


def _moment(
    option: str, text: str | None, moment_of: Callable[[str, float], float], now: float
) -> float | None:
    try:
        return None if text is None else moment_of(text, now)
    except ValueError as error:
        raise click.BadParameter(str(error), param_hint=option) from error


@click.command("reconcile")
@click.option("--since", metavar="TIME", default="30d", show_default=True, help="Start, as for vastrun cost.")
@json_option
@click.pass_context
def reconcile_command(ctx: click.Context, since: str, as_json: bool) -> None:
    """Compare the ledger with the bill. Each difference is explained.

    For each run that rented a machine since --since: the cost by the ledger, the charges of the provider so
    far, and the reasons for the difference. An hour after a run's end, its charges replace the cost by the
    ledger in all commands, unless they are inexplicably low. Exit code 1 if a difference is unexplained.
    """
    app: AppContext = ctx.obj
    now, ledger = app.now(), app.ledger()
    begin = _moment("--since", since, Calendar().since, now)
    found = reconciliation(ledger, app.provider, now, now if begin is None else begin)
    settled = settle(found.runs, ledger, app.user.who(), now)
    show(
        ReconciliationDocument.of(found, settled),
        reconciliation_text(found, settled, width()),
        as_json=as_json,
    )
    ctx.exit(0 if found.explained else 1)


command = CostCommandGroup("cost", commands=[reconcile_command])
