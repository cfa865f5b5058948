"""`vastrun reap`: end machines that no open run claims."""

from __future__ import annotations

import click

from launcher.cli.options import confirm, json_option, provider_anyway_option, yes_option
from launcher.cli.output import say, show
from launcher.commands.orphans import of_ledger, orphans
from launcher.commands.reaping import reap
from launcher.core.verdict import EXIT_TEARDOWN_NOT_CONFIRMED
from launcher.ui.render.documents import orphans_document
from launcher.ui.render.orphans import orphans_text, warning_text
from launcher.wiring import Wiring


@click.command("reap")
@provider_anyway_option
@yes_option
@click.option("--dry-run", is_flag=True, help="Only list them.")
@click.option(
    "--from-ledger",
    metavar="ID",
    help="End the machines of that ledger, another computer's, instead; `unknown`: those of no known ledger.",
)
@json_option
@click.pass_context
def command(
    ctx: click.Context, provider: str, yes: bool, dry_run: bool, from_ledger: str | None, as_json: bool
) -> None:
    """List the machines of ours that no open run claims, and end them once confirmed.

    Those of another computer with the same account are listed, and are ended only with --from-ledger.
    """
    wiring: Wiring = ctx.obj
    market = wiring.provider(provider)
    found = orphans(wiring.ledger(), market, wiring.now())
    chosen = of_ledger(found, from_ledger)
    text = orphans_text(found, wiring.now())
    if not chosen or dry_run:
        show(orphans_document(found, []), text, as_json=as_json)
        return
    say(text, err=True)
    if from_ledger is not None:
        say(warning_text(chosen), err=True)
    ids = [orphan.instance.id for orphan in chosen]
    confirm(f"end {'machine' if len(ids) == 1 else 'machines'} {', '.join(ids)}", yes=yes)
    gone = reap(chosen, wiring.services_for(provider, wiring.now()))
    left = [machine_id for machine_id in ids if machine_id not in gone]
    show(
        orphans_document(found, gone),
        "\n".join(f"{machine_id} destroyed" for machine_id in gone),
        as_json=as_json,
    )
    if left:
        again = "vastrun reap" if from_ledger is None else f"vastrun reap --from-ledger {from_ledger}"
        say(f"error: still there: {', '.join(left)}\ntry:   {again}", err=True)
        ctx.exit(EXIT_TEARDOWN_NOT_CONFIRMED)
