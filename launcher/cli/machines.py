"""`vastrun reap`, `hosts`: destroy machines that no open run claims; list those that were rented."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import click

from vastrun.launcher.app import App
from vastrun.launcher.cli.options import confirm, json_option, lenient_provider_option, yes_option
from vastrun.launcher.cli.output import say, show, width
from vastrun.launcher.commands.queries import RunRow, rows_of
from vastrun.launcher.commands.reap import (
    UNKNOWN_LEDGER,
    Orphan,
    Owner,
    by_owner,
    cancel_ends,
    leftover_ends,
    leftover_networks,
    orphans,
    owner_text,
    reap,
    remove_networks,
    select_by_ledger,
)
from vastrun.launcher.core import Cost, RunNetwork
from vastrun.launcher.core.errors import AuthError, ProviderError
from vastrun.launcher.core.verdict import EXIT_TEARDOWN_NOT_CONFIRMED
from vastrun.launcher.decisions.history import AvoidedHosts, HostRecord, host_records
from vastrun.launcher.gate.text import one_line
from vastrun.launcher.ports import Provider
from vastrun.launcher.run_services import services_for, settle_bills
from vastrun.launcher.ui.render.amounts import duration, usd
from vastrun.launcher.ui.render.costs import Hosts, OrphanMachine, Orphans
from vastrun.launcher.ui.render.runs import RunDocument
from vastrun.launcher.ui.render.table import short, table
from vastrun.launcher.ui.render.verdict import left_text, state_of

_NONE = "every machine that vastrun rented belongs to an open run"
_HEADER = ("HOST", "RUNS", "FAILED", "SCORE", "LAST FAILURE", "AVOIDED", "WHAT")


@click.command("reap")
@lenient_provider_option
@yes_option
@click.option("--dry-run", is_flag=True, help="List them and destroy nothing.")
@click.option(
    "--from-ledger",
    metavar="ID",
    help="Instead destroy machines of this other ledger, or `unknown` for those of no known ledger.",
)
@json_option
@click.pass_context
def reap_command(
    ctx: click.Context,
    provider: str,
    yes: bool,
    dry_run: bool,
    from_ledger: str | None,
    as_json: bool,
) -> None:
    """List the machines that vastrun rented and no open run claims, and destroy them after confirmation.

    Machines of another computer with the same account are listed, and destroyed only with --from-ledger. A
    network that was made for a run on several nodes is removed with its machines, and so is what the provider
    has scheduled for machines that are gone. Then the costs of earlier
    runs are settled, as by `vastrun cost reconcile`.
    """
    app: App = ctx.obj
    code = _reap(app, provider, yes=yes, dry_run=dry_run, from_ledger=from_ledger, as_json=as_json)
    if not dry_run:
        settle_bills(app, provider)
    ctx.exit(code)


def _warn(text: str) -> None:
    say(f"warning: {text}", err=True)


def _reap(
    app: App, provider: str, *, yes: bool, dry_run: bool, from_ledger: str | None, as_json: bool
) -> int:
    """Destroy the machines of one ledger after confirmation; return the exit code."""
    market = app.provider(provider)
    leases = _left_to_leases(app, market.name)
    try:
        found = orphans(app.ledger(), market, app.now(), warn=_warn)
    except (AuthError, ProviderError):
        for row in leases:
            say(left_text(row, app.now()), err=True)
        raise
    chosen = select_by_ledger(found, from_ledger)
    networks = _networks(app, market) if from_ledger is None else []
    text = orphans_text(found, networks, leases, app.now())
    names = [network.name for network in networks]
    document = Orphans(
        machines=[OrphanMachine.fill(one.instance, one, run=one.run and one.run.id) for one in found],
        networks=names,
        left=list(map(RunDocument.of, leases)),
    )
    if dry_run or not (chosen or networks):
        ended = [] if dry_run else _cancel_ends(app, market)
        show(replace(document, unscheduled=ended), text, as_json=as_json)
        return 0
    say(text, err=True)
    if from_ledger is not None:
        say(warning_text(chosen), err=True)
    ids = [orphan.instance.id for orphan in chosen]
    confirm(
        f"destroy {_all_of('machine', ids)}{' and ' if ids and names else ''}{_all_of('network', names)}",
        yes=yes,
    )
    services = services_for(app, provider, app.now())
    gone = [*reap(chosen, services), *remove_networks(networks, services)]
    left = [one for one in (*ids, *names) if one not in gone]
    lines = "\n".join(f"{one} destroyed" for one in gone)
    ended = _cancel_ends(app, market, gone)
    show(replace(document, destroyed=gone, unscheduled=ended), lines, as_json=as_json)
    if left:
        again = "vastrun reap" if from_ledger is None else f"vastrun reap --from-ledger {from_ledger}"
        say(f"error: not destroyed: {', '.join(left)}\ntry:   {again}", err=True)
    # A network costs nothing: one that is left does not count as an unconfirmed destruction.
    return EXIT_TEARDOWN_NOT_CONFIRMED if set(left) & set(ids) else 0


def _left_to_leases(app: App, provider: str) -> list[RunRow]:
    """Return the provider's open runs whose machines are left to their leases."""
    ledger = app.ledger()
    runs = [run for run in ledger.runs(open_only=True, members=True) if run.provider == provider]
    return [row for row in rows_of(ledger, runs, app.now()) if row.lease is not None]


def _networks(app: App, market: Provider) -> list[RunNetwork]:
    """Return left-over networks; none, after a note, if the key may not list them: machines matter more."""
    try:
        return leftover_networks(app.ledger(), market)
    except (AuthError, ProviderError) as error:
        say(f"note: networks of runs cannot be listed: {error}", err=True)
        return []


def _cancel_ends(app: App, market: Provider, destroyed: Sequence[str] = ()) -> list[str]:
    """Remove scheduled ends of machines that are gone; return the machines' ids."""
    try:
        ended = cancel_ends(leftover_ends(app.ledger(), market, destroyed), market)
    except (AuthError, ProviderError) as error:
        say(f"note: scheduled ends of machines cannot be listed: {error}", err=True)
        return []
    if ended:
        say(f"scheduled ends removed, of machines that are gone: {', '.join(ended)}", err=True)
    return ended


def _all_of(word: str, names: Sequence[str]) -> str:
    if not names:
        return ""
    return f"{word if len(names) == 1 else word + 's'} {', '.join(names)}"


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


@click.command("hosts")
@json_option
@click.pass_obj
def hosts_command(app: App, as_json: bool) -> None:
    """List the machines that were rented, the worst first, and show which are avoided for now.

    One failure excludes a machine for a day, several for longer; their weight halves every week. All machines
    at its public address are avoided with it, and all of its owner's account after failures on two of them.
    """
    now = app.now()
    records = host_records(app.ledger().runs(members=True), now)
    show(Hosts(hosts=records), hosts_table(records, now, width()), as_json=as_json)


def hosts_table(records: Sequence[HostRecord], now: float, width: int | None = None) -> str:
    """Write one line per machine. `width`: columns of the terminal; None: nothing is cut."""
    if not records:
        return "no paid machine was rented yet"
    cells = [
        (
            record.host,
            str(record.runs),
            str(record.failures),
            f"{record.score:.2f}",
            _last_failure(record, now),
            record.avoided or "no",
            record.description,
        )
        for record in records
    ]
    avoid = AvoidedHosts.among(records)
    also = [f"every machine at {address}" for address in sorted(avoid.addresses)]
    also += [f"every machine of account {account}" for account in sorted(avoid.accounts)]
    lines = [table(_HEADER, cells, right=(1, 2, 3), cut=(6, 0, 4), width=width)]
    return "\n".join(lines + [f"avoided: {one}" for one in also])


def _last_failure(record: HostRecord, now: float) -> str:
    if record.last_failure_at is None:
        return "-"
    return f"{record.last_cause}, {duration(now - record.last_failure_at)}"
