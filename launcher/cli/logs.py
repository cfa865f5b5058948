"""`vastrun logs`: print or follow a run's log."""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Iterable, Iterator
from contextlib import suppress
from datetime import datetime

import click

from vastrun.launcher.api.runs import new_lines, written_lines
from vastrun.launcher.app import App
from vastrun.launcher.cli.options import run_argument, seconds, the_run
from vastrun.launcher.cli.output import note, say
from vastrun.launcher.commands.logfeed import feed_of
from vastrun.launcher.config import read_job
from vastrun.launcher.core import Phase, Run
from vastrun.launcher.core.errors import UsageError
from vastrun.launcher.outputs.folder import Outputs
from vastrun.launcher.outputs.store import is_large, text_from_last
from vastrun.launcher.ui.document import keys_of
from vastrun.launcher.ui.render import loglines
from vastrun.launcher.ui.render.amounts import moment


@click.command("logs")
@run_argument
@click.option("-f", "--follow", is_flag=True, help="Follow until the run ends.")
@click.option("--rank", type=click.IntRange(min=0), help="Show one rank only.")
@click.option("--node", type=click.IntRange(min=0), help="Show one machine only of a run on several nodes.")
@click.option("--tail", type=click.IntRange(min=0), help="Show the last N lines only.")
@click.option("--since", metavar="TIME", help="Show lines since a time: 10m ago, or a date and time.")
@click.option(
    "--first-error",
    "errors",
    is_flag=True,
    help="Show the first error of the failed step or rank; without one, its last lines.",
)
@click.option("--timestamps", is_flag=True, help="Show the time of each line.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document per line.")
@click.pass_obj
def command(
    app: App,
    run_name: str,
    follow: bool,
    rank: int | None,
    node: int | None,
    tail: int | None,
    since: str | None,
    errors: bool,
    timestamps: bool,
    as_json: bool,
) -> None:
    """Print the log of RUN: onstart steps, supervisor and all ranks, in order."""
    run = the_run(app, run_name)
    ranks = read_job(run.spec_json).world_size
    if rank is not None and rank >= ranks:
        has = f"ranks 0 to {ranks - 1}" if ranks > 1 else "one rank, 0"
        raise UsageError(
            f"--rank {rank}: {run.id} has {has}", hint=f"vastrun logs {run.id} --rank {ranks - 1}"
        )
    feed = feed_of(run, app.ledger(), app.provider(run.provider), node)
    choice = loglines.LogFilter(rank=rank, since=None if since is None else _moment(since, app.now()))

    def show(lines: Iterable[loglines.LogLine]) -> None:
        for line in lines:
            text = f"{loglines.shown(line.origin)} {loglines.shown(line.text)}"
            text = f"{moment(line.at)} {text}" if timestamps else text
            say(json.dumps(keys_of(line)) if as_json else text)

    lines = loglines.chosen(written_lines(feed), choice, tail=tail)
    if errors:
        lines, remark = _first_error(lines, run, "" if rank is None else f"rank{rank}")
    show(lines)
    if errors and remark:
        note(remark)
    if follow and not errors:
        show(loglines.chosen(new_lines(feed, app.interrupts().sleep), choice))
    if feed.note:
        note(feed.note)


def _moment(value: str, now: float) -> float:
    """Parse a duration before now, or a date and time, as epoch seconds."""
    with suppress(ValueError):
        return datetime.fromisoformat(value).timestamp()
    try:
        return now - seconds(value)
    except click.BadParameter as error:
        raise click.BadParameter(f"{error.message}; or a date and time", param_hint="--since") from error


def _first_error(
    lines: Iterable[loglines.LogLine], run: Run, only: str
) -> tuple[Iterator[loglines.LogLine], str]:
    """Return the first error; without one, the last lines of the failed step or rank, with a note."""
    step, rank = ("", "") if only else _failed(run)
    if found := _last_traceback(run, only or rank):
        return iter(found), ""
    last: dict[str, deque[loglines.LogLine]] = {
        source: deque(maxlen=loglines.CONTEXT) for source in ("", step or rank)
    }
    found = loglines.first_error(loglines.remembered(lines, last), step)
    if found or run.cause is None:
        return iter(found), "" if found else "no line looks like an error"
    source = (step or rank) if last[step or rank] else ""
    whose = f"{source}, which failed" if source else only or "the log"
    note = f"no line looks like an error; showing the last lines of {whose}"
    return iter(last[source]), note if last[source] else "the log is empty"


def _last_traceback(run: Run, source: str) -> list[loglines.LogLine]:
    """Return the last traceback of a rank in a large log, of which reading everything takes a minute."""
    log = Outputs(run).log
    if not source or run.phase is not Phase.ENDED or run.leader or not is_large(log):
        return []
    text = text_from_last(log, f" {source} Traceback (most recent call last)")
    lines = (line for line in map(loglines.parse_line, loglines.lines_of(text)) if line is not None)
    return loglines.first_error(line for line in lines if line.source == source)


def _failed(run: Run) -> tuple[str, str]:
    """Return the onstart step that failed before the training left evidence, and the first failed rank."""
    outputs = Outputs(run)
    outcome = outputs.outcome()
    if outcome is None:
        return next((end.step for end in outputs.steps() if end.exit_code and not end.stop), ""), ""
    return "", "" if outcome.first_failure is None else f"rank{outcome.first_failure.rank}"
