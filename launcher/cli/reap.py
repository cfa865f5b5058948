"""`vastrun reap`: end machines that no open run claims."""

from __future__ import annotations

import click

from launcher.actions.queries import orphans
from launcher.actions.reaping import reap
from launcher.cli.options import confirm, json_option, provider_option, yes_option
from launcher.cli.output import say, show
from launcher.phases import EXIT_TEARDOWN_NOT_CONFIRMED
from launcher.render.costs import orphans_table
from launcher.render.documents import orphans_document
from launcher.wiring import Wiring


@click.command("reap")
@provider_option
@yes_option
@click.option("--dry-run", is_flag=True, help="Only list them.")
@json_option
@click.pass_context
def command(ctx: click.Context, provider: str, yes: bool, dry_run: bool, as_json: bool) -> None:
    """List the machines of ours that no open run claims, and end them once confirmed."""
    wiring: Wiring = ctx.obj
    market = wiring.provider(provider)
    found = orphans(wiring.ledger(), market, wiring.now())
    ids = [orphan.instance.id for orphan in found]
    table = orphans_table(found, wiring.now())
    if not found or dry_run:
        show(orphans_document(found, []), table, as_json=as_json)
        return
    say(table, err=True)
    confirm(f"end {len(ids)} of them" if len(ids) > 1 else "end it", yes=yes)
    gone = reap(found, wiring.tools_for(provider, wiring.now()))
    left = [machine_id for machine_id in ids if machine_id not in gone]
    text = "\n".join(f"{machine_id} is gone" for machine_id in gone)
    show(orphans_document(found, gone), text, as_json=as_json)
    if left:
        say(f"error: still there: {', '.join(left)}\ntry:   vastrun reap", err=True)
        ctx.exit(EXIT_TEARDOWN_NOT_CONFIRMED)
