"""`vastrun hold`, `reap`, `hosts`: keep a machine; destroy those that no open run claims; list machines."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import click

from vastrun.contract.texts import how_many
from vastrun.launcher.api.jobs import check_upload
from vastrun.launcher.api.runs import start_run
from vastrun.launcher.app import App
from vastrun.launcher.cli import options
from vastrun.launcher.cli.job_files import read_job_file, resolve_auto
from vastrun.launcher.cli.launch import agree, drive_to_end
from vastrun.launcher.cli.output import exit_with, note, set_error_run, show, width
from vastrun.launcher.commands.attempts import Attempts
from vastrun.launcher.commands.plan import plan_of
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
from vastrun.launcher.commands.takeover import held
from vastrun.launcher.core import NOTHING, Cost, Run, RunNetwork, UserRequest
from vastrun.launcher.core.errors import AuthError, NoOfferError, ProviderError, UsageError
from vastrun.launcher.core.verdict import EXIT_TEARDOWN_NOT_CONFIRMED
from vastrun.launcher.decisions.advice import resources_of_slots
from vastrun.launcher.decisions.history import AvoidedHosts, HostRecord, blames_host, host_records
from vastrun.launcher.gate.text import one_line
from vastrun.launcher.pool.held_machines import hold_spec
from vastrun.launcher.ports import Provider
from vastrun.launcher.run_services import services_for, settle_bills
from vastrun.launcher.ui.render.amounts import duration, rough, short, table, usd
from vastrun.launcher.ui.render.costs import Hosts, OrphanMachine, Orphans
from vastrun.launcher.ui.render.runs import RunDocument
from vastrun.launcher.ui.render.verdict import left_text, state_of

_HEADER = ("HOST", "RUNS", "FAILED", "SCORE", "LAST FAILURE", "AVOIDED FOR", "WHAT")


@click.command("reap")
@options.lenient_provider_option
@options.yes_option
@click.option("--dry-run", is_flag=True, help="List them and destroy nothing.")
@click.option(
    "--from-ledger",
    metavar="ID",
    help="Instead destroy machines of this other ledger, or `unknown` for those of no known ledger.",
)
@options.json_option
@click.pass_obj
def reap_command(
    app: App, provider: str, yes: bool, dry_run: bool, from_ledger: str | None, as_json: bool
) -> None:
    """List the machines that vastrun rented and no open run claims, and destroy them after confirmation.

    Machines of another computer with the same account are listed, and destroyed only with --from-ledger. A
    network that was made for a run on several nodes is removed with its machines, and so is what the provider
    has scheduled for machines that are gone. Then the costs of earlier
    runs are settled, as by `vastrun cost reconcile`.
    """
    code = _reap(app, provider, yes=yes, dry_run=dry_run, from_ledger=from_ledger, as_json=as_json)
    if not dry_run:
        settle_bills(app, provider)
    exit_with(code)


def _reap(
    app: App, provider: str, *, yes: bool, dry_run: bool, from_ledger: str | None, as_json: bool
) -> int:
    """Destroy the machines of one ledger after confirmation; return the exit code."""
    market = app.provider(provider)
    runs = [run for run in app.ledger().runs(open_only=True, members=True) if run.provider == market.name]
    leases = [row for row in rows_of(app.ledger(), runs, app.now()) if row.lease is not None]
    try:
        found = orphans(app.ledger(), market, app.now(), warn=lambda text: note(f"warning: {text}"))
    except (AuthError, ProviderError):
        for row in leases:
            note(left_text(row, app.now()))
        raise
    chosen = select_by_ledger(found, from_ledger)
    networks = list[RunNetwork]()
    try:
        networks = leftover_networks(app.ledger(), market) if from_ledger is None else networks
    except (AuthError, ProviderError) as error:  # the key may not list them, and machines matter more
        note(f"note: networks of runs cannot be listed: {error}")
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
    note(text)
    if from_ledger is not None:
        note(warning_text(chosen))
    ids = [orphan.instance.id for orphan in chosen]
    options.confirm(
        f"destroy {_all_of('machine', ids)}{' and ' if ids and names else ''}{_all_of('network', names)}",
        yes=yes,
    )
    services = services_for(app, provider, app.now())
    gone = [
        *reap(chosen, services, warn=lambda text: note(f"warning: {text}")),
        *remove_networks(networks, services),
    ]
    left = [one for one in (*ids, *names) if one not in gone]
    lines = "\n".join(f"{one} destroyed" for one in gone)
    ended = _cancel_ends(app, market, gone)
    show(replace(document, destroyed=gone, unscheduled=ended), lines, as_json=as_json)
    if left:
        again = "vastrun reap" if from_ledger is None else f"vastrun reap --from-ledger {from_ledger}"
        note(f"error: not destroyed: {', '.join(left)}\ntry:   {again}")
    # A network costs nothing: one that is left does not count as an unconfirmed destruction.
    return EXIT_TEARDOWN_NOT_CONFIRMED if set(left) & set(ids) else 0


def _cancel_ends(app: App, market: Provider, destroyed: Sequence[str] = ()) -> list[str]:
    """Remove scheduled ends of machines that are gone; return the machines' ids."""
    try:
        ended = cancel_ends(leftover_ends(app.ledger(), market, destroyed), market)
    except (AuthError, ProviderError) as error:
        note(f"note: scheduled ends of machines cannot be listed: {error}")
        return []
    if ended:
        note(f"scheduled ends removed, of machines that are gone: {', '.join(ended)}")
    return ended


def _all_of(word: str, names: Sequence[str]) -> str:
    if not names:
        return ""
    return f"{how_many(len(names), word)}: {', '.join(names)}"


def orphans_text(
    orphans: Sequence[Orphan], networks: Sequence[RunNetwork], left: Sequence[RunRow], now: float
) -> str:
    """Write a table of this computer's machines, then one for each other owner with the command to destroy.

    `left`: open runs whose machines are left to their leases.
    """
    mine = [orphan for orphan in orphans if orphan.owner is Owner.THIS]
    parts = [_table(mine, now) if mine else "every machine of this ledger belongs to an open run"]
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
@click.option("--allow", metavar="HOST", help="Rent HOST again, and what is avoided for its failures.")
@options.json_option
@click.pass_obj
def hosts_command(app: App, allow: str | None, as_json: bool) -> None:
    """List the machines that were rented, the worst first, and show which are avoided, why and for how long.

    One failure excludes a machine for a day, several for longer; their weight halves every week. All machines
    at its public address are avoided with it, and all of its owner's account after failures on two of them.
    """
    now = app.now()
    if allow is not None:
        count = _forgive(app, allow)
        note(f"{how_many(count, 'failure')} of {allow} no longer {'counts' if count == 1 else 'count'}")
    records = host_records(app.ledger().runs(members=True), now)
    show(Hosts(hosts=records), hosts_table(records, now, width()), as_json=as_json)


def _forgive(app: App, host: str) -> int:
    """Let no failure on the host count any more. Return the number of those that did."""
    failed = [run for run in app.ledger().runs(members=True) if run.host == host and blames_host(run)]
    if not failed:
        raise UsageError(f"no failure of {host} counts", hint="vastrun hosts")
    for run in failed:
        services = services_for(app, run.provider, run.created_at)
        with held(run, services):
            now = services.ledger.get(run.id)
            services.ledger.save(replace(now, meter=replace(now.meter, is_forgiven=True)), who=services.who)
    return len(failed)


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
            "-"
            if record.last_failure_at is None
            else f"{record.last_cause}, {duration(now - record.last_failure_at)}",
            "no"
            if record.avoided_until is None
            else f"{record.avoided}, {rough(record.avoided_until - now)}",
            record.description,
        )
        for record in records
    ]
    avoid = AvoidedHosts.among(records)
    also = [f"every machine at {address}" for address in sorted(avoid.addresses)]
    also += [f"every machine of account {account}" for account in sorted(avoid.accounts)]
    lines = [table(_HEADER, cells, right=(1, 2, 3), cut=(6, 0, 4), width=width)]
    return "\n".join(lines + [f"avoided: {one}" for one in also])


@click.command("hold")
@options.job_argument
@options.set_option
@options.provider_option
@click.option(
    "--slots", type=click.IntRange(1, 64), default=1, show_default=True, help="Number of concurrent runs."
)
@click.option(
    "--idle",
    type=options.seconds,
    default="10m",
    show_default=True,
    metavar="TIME",
    help="Release the machine after this idle time.",
)
@click.option("--out", metavar="DIR", type=options.PATH, help="Folder for its log [runs/RUN].")
@click.option("-d", "--detach", is_flag=True, help="Detach once the machine is held.")
@options.yes_option
@options.json_option
@click.pass_obj
def hold_command(
    app: App,
    job_file: Path,
    sets: tuple[str, ...],
    provider: str,
    slots: int,
    idle: float,
    out: Path | None,
    detach: bool,
    yes: bool,
    as_json: bool,
) -> None:
    """Keep a machine on which runs of this job start without booting.

    Start them with: vastrun launch JOB.yaml --provider pool. The machine is released when the job's
    limits.hours or limits.usd is reached, when it has been idle for --idle, or by vastrun stop.
    """
    began = app.now()
    note(f"reading {job_file}")
    job = read_job_file(job_file, sets)
    job = check_upload(app.packer(NOTHING), job, job_file.resolve().parent, note)
    job = resolve_auto(app, job)
    spec = hold_spec(job, slots=slots, hours=job.limits.hours, usd=job.limits.usd, idle_s=idle)
    market = app.provider(provider)
    try:
        plan = plan_of(spec, market, app.ledger(), began, app.budgets(began))
    except NoOfferError as error:
        if slots > 1:
            needs = resources_of_slots(spec)
            error.hint = f"one machine must have the resources of {slots} slots, {needs}: fewer --slots"
        raise
    agree(plan, free=market.free, yes=yes)

    def work(attempts: Attempts) -> Run:
        run = start_run(attempts, spec, provider=provider, run_id=app.new_id(), out=out)
        set_error_run(run)
        concurrency = "" if slots == 1 else f", up to {slots} at once"
        note(f"run {run.id} holds a machine; then: vastrun launch {job_file} --provider pool{concurrency}")
        return attempts.drive_or_follow(run)

    request = UserRequest.DETACH_ONCE_TRAINING if detach else UserRequest.NONE
    interrupts = app.interrupts(UserRequest.NONE, request=request)
    exit_with(drive_to_end(app, interrupts, work, began=began, as_json=as_json))
