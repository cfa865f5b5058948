"""`vastrun reap`: end machines that no open run claims."""

from __future__ import annotations

from collections.abc import Sequence

import click

from launcher.cli.options import confirm, json_option, provider_anyway_option, yes_option
from launcher.cli.output import say, show
from launcher.commands.orphans import leftover_networks, of_ledger, orphans
from launcher.commands.reaping import reap, remove_networks
from launcher.core import RunNetwork
from launcher.core.errors import AuthError, ProviderError
from launcher.core.verdict import EXIT_TEARDOWN_NOT_CONFIRMED
from launcher.ports import Provider
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

    Those of another computer with the same account are listed, and are ended only with --from-ledger. A
    network that was made for a run of several nodes is removed with its machines. Then earlier runs are
    settled, as by `vastrun cost reconcile`.
    """
    wiring: Wiring = ctx.obj
    code = _reap(wiring, provider, yes=yes, dry_run=dry_run, from_ledger=from_ledger, as_json=as_json)
    if not dry_run:
        wiring.settle(provider)
    ctx.exit(code)


def _warn(text: str) -> None:
    say(f"warning: {text}", err=True)


def _reap(
    wiring: Wiring, provider: str, *, yes: bool, dry_run: bool, from_ledger: str | None, as_json: bool
) -> int:
    """End them, and return the exit code."""
    market = wiring.provider(provider)
    found = orphans(wiring.ledger(), market, wiring.now(), warn=_warn)
    chosen = of_ledger(found, from_ledger)
    networks = _networks(wiring, market) if from_ledger is None else []
    text = orphans_text(found, networks, wiring.now())
    if dry_run or not (chosen or networks):
        show(orphans_document(found, networks, []), text, as_json=as_json)
        return 0
    say(text, err=True)
    if from_ledger is not None:
        say(warning_text(chosen), err=True)
    ids = [orphan.instance.id for orphan in chosen]
    names = [network.name for network in networks]
    confirm(
        f"end {_all_of('machine', ids)}{' and ' if ids and names else ''}{_all_of('network', names)}", yes=yes
    )
    services = wiring.services_for(provider, wiring.now())
    gone = [*reap(chosen, services), *remove_networks(networks, services)]
    left = [one for one in (*ids, *names) if one not in gone]
    show(
        orphans_document(found, networks, gone),
        "\n".join(f"{one} destroyed" for one in gone),
        as_json=as_json,
    )
    if left:
        again = "vastrun reap" if from_ledger is None else f"vastrun reap --from-ledger {from_ledger}"
        say(f"error: still there: {', '.join(left)}\ntry:   {again}", err=True)
    # A network costs nothing: that one is left is no machine that may be paid for.
    return EXIT_TEARDOWN_NOT_CONFIRMED if set(left) & set(ids) else 0


def _networks(wiring: Wiring, market: Provider) -> list[RunNetwork]:
    """Those that are left over; a key that may not list them ends machines all the same."""
    try:
        return leftover_networks(wiring.ledger(), market)
    except (AuthError, ProviderError) as error:
        say(f"note: networks of runs cannot be listed: {error}", err=True)
        return []


def _all_of(word: str, names: Sequence[str]) -> str:
    if not names:
        return ""
    return f"{word if len(names) == 1 else word + 's'} {', '.join(names)}"
