"""`vastrun replay`: a transcript, shown again."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path

import click

from vastrun.launcher.cli.options import plain_option, the_run
from vastrun.launcher.cli.output import say
from vastrun.launcher.commands.bugreport import TRANSCRIPT_NAME, member_of
from vastrun.launcher.commands.chains import attempt_after, chain_of
from vastrun.launcher.commands.replay import ReplayClock, began_at, replay
from vastrun.launcher.core import Run
from vastrun.launcher.core.errors import UsageError
from vastrun.launcher.outputs.folder import Outputs
from vastrun.launcher.ports import Ledger
from vastrun.launcher.transcript.reader import Entry, entries_of
from vastrun.launcher.ui.render.calls import call_text
from vastrun.launcher.wiring import Wiring

_LONGEST = 1 << 22


@click.command("replay")
@click.argument("name", metavar="FILE|RUN")
@click.option(
    "--speed",
    type=click.FloatRange(0),
    metavar="N",
    help="So many times as fast; 0: without waiting [1 at a terminal, else 0].",
)
@click.option("--calls", is_flag=True, help="Show each call to the provider and the box, too.")
@plain_option
@click.pass_context
def command(ctx: click.Context, name: str, speed: float | None, calls: bool) -> None:
    """Show again what the launchers of RUN did and showed: as it was then, with its timing.

    Each run writes transcript.jsonl beside its outputs. FILE is one, or a bug report that has one.
    Of a run that was tried again, each attempt is replayed by its own name: the end says which come before
    and after.

    \b
      vastrun replay last --speed 60
      vastrun replay bugreport-RUN.tar.gz --calls
    """
    wiring: Wiring = ctx.obj
    run = None if Path(name).is_file() else the_run(wiring, name)
    entries = _entries(name, run)
    speed = (1.0 if sys.stdout.isatty() else 0.0) if speed is None else speed
    clock = ReplayClock(began_at(entries), speed, wiring.clock().sleep)
    with closing(wiring.screens.of_replay(began_at(entries), clock.now)) as screen:
        replay(entries, screen, clock, (lambda call: screen.note(call_text(call))) if calls else None)
    if run is not None and (others := _other_attempts(wiring.ledger(), run)):
        say(others, err=True)


def _entries(name: str, run: Run | None) -> Sequence[Entry]:
    """What the file holds, or of the run. Raises UsageError."""
    file = Path(name) if run is None else Outputs(run).transcript
    try:
        content = member_of(file, TRANSCRIPT_NAME)
        if content is not None:
            entries = entries_of(content.splitlines())
        else:
            with file.open("rb") as opened:
                entries = entries_of(iter(lambda: opened.readline(_LONGEST), b""), run.id if run else "")
    except FileNotFoundError:
        raise UsageError(
            f"{name} has no transcript: there is no {file}",
            hint="vastrun replay FILE, where its outputs lie by now",
        ) from None
    except OSError as error:
        raise UsageError(f"cannot read {file}: {error.strerror or error}") from error
    if not entries:
        raise UsageError(f"{file} holds no line of a transcript")
    return entries


def _other_attempts(ledger: Ledger, run: Run) -> str:
    """Which attempt this was, and what shows those before and after it; empty: it was the only one."""
    before, after = chain_of(ledger, run)[:-1], attempt_after(ledger, run)
    if not before and after is None:
        return ""
    former = f"; the one before: vastrun replay {before[-1].id}" if before else ""
    following = "" if after is None else f"; the next: vastrun replay {after.id}"
    return f"this was attempt {len(before) + 1}{former}{following}"
