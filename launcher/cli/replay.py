"""`vastrun replay`: print a transcript."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from pathlib import Path

import click

from vastrun.launcher.app_context import AppContext
from vastrun.launcher.cli.options import the_run
from vastrun.launcher.cli.output import say
from vastrun.launcher.commands.bugreport import TRANSCRIPT_NAME, read_member
from vastrun.launcher.commands.chains import attempt_after, chain_of
from vastrun.launcher.core import Run
from vastrun.launcher.core.errors import UsageError
from vastrun.launcher.gate.text import one_line
from vastrun.launcher.outputs.folder import Outputs
from vastrun.launcher.ports import Ledger
from vastrun.launcher.transcript.reader import CallEntry, Entry, entries_of
from vastrun.launcher.transcript.replay import began_at, replay
from vastrun.launcher.ui.render.table import short
from vastrun.launcher.ui.screen import StreamScreen, TerminalCapabilities

_MAX_LINE_BYTES = 1 << 22
_MAX_COLUMNS = 160


@click.command("replay")
@click.argument("name", metavar="FILE|RUN")
@click.option("--calls", is_flag=True, help="Also show each call to the provider and the machine.")
@click.pass_context
def command(ctx: click.Context, name: str, calls: bool) -> None:
    """Print what the launchers of RUN did and showed: the events and, with --calls, each call.

    Each run writes transcript.jsonl next to its outputs. FILE is a transcript, or a bug report with one.
    Each attempt of a retried run is shown by its own id; the last line names the previous and the next
    attempt.

    \b
      vastrun replay last
      vastrun replay bugreport-RUN.tar.gz --calls
    """
    app: AppContext = ctx.obj
    run = None if Path(name).is_file() else the_run(app, name)
    entries = _entries(name, run)
    capabilities = TerminalCapabilities(live=False, color=False)
    screen = StreamScreen(sys.stdout, capabilities, began=began_at(entries))
    replay(entries, screen, (lambda call: screen.note(call_text(call))) if calls else None)
    if run is not None and (text := _other_attempts(app.ledger(), run)):
        say(text, err=True)


def _entries(name: str, run: Run | None) -> Sequence[Entry]:
    """Return the entries of the file, or of the run's transcript. Raises UsageError."""
    file = Path(name) if run is None else Outputs(run).transcript
    try:
        content = read_member(file, TRANSCRIPT_NAME)
        if content is not None:
            entries = entries_of(content.splitlines())
        else:
            with file.open("rb") as opened:
                entries = entries_of(
                    iter(lambda: opened.readline(_MAX_LINE_BYTES), b""), run.id if run else ""
                )
    except FileNotFoundError:
        raise UsageError(
            f"{name} has no transcript: there is no {file}",
            hint="vastrun replay FILE, with the path to which its outputs were moved",
        ) from None
    except OSError as error:
        raise UsageError(f"cannot read {file}: {error.strerror or error}") from error
    if not entries:
        raise UsageError(f"{file} contains no transcript")
    return entries


def _other_attempts(ledger: Ledger, run: Run) -> str:
    """Say which attempt this was, and how to replay the previous and next; empty if it was the only one."""
    before, after = chain_of(ledger, run)[:-1], attempt_after(ledger, run)
    if not before and after is None:
        return ""
    previous = f"; the previous one: vastrun replay {before[-1].id}" if before else ""
    following = "" if after is None else f"; the next one: vastrun replay {after.id}"
    return f"this was attempt {len(before) + 1}{previous}{following}"


def call_text(call: CallEntry) -> str:
    """Write one line with the call, its result and its duration."""
    about = " ".join(f"{key}={_word(value)}" for key, value in call.about.items())
    if call.error is not None:
        end = f"{call.error.type}: {call.error.text}"
    else:
        end = "ok" if call.answer is None else _word(call.answer)
    repeats = f" ({call.alike} alike before)" if call.alike else ""
    return (
        short(one_line(f"         {call.verb} {about} [{call.took_s:.2f} s] {end}"), _MAX_COLUMNS) + repeats
    )


def _word(value: object) -> str:
    return value if isinstance(value, str) else json.dumps(value)
