"""`vastrun diff`: compare two runs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import click

from vastrun.launcher.app_context import AppContext
from vastrun.launcher.cli.options import json_option, the_run
from vastrun.launcher.cli.output import show, width
from vastrun.launcher.commands.report import comparison_of
from vastrun.launcher.core import Run
from vastrun.launcher.decisions.comparison import Difference, Value, differences
from vastrun.launcher.gate.text import one_line
from vastrun.launcher.ui.documents.document import Document
from vastrun.launcher.ui.render.table import short, table

_MAX_CELL = 60
_MAX_ONE_SIDED = 6
"""Maximum lines about values that only one run has, such as trainer settings; more are summed up."""
_UNITS = {"usd": "${:.3f}", "usd_per_hour": "${:.3f}"}


@click.command("diff")
@click.argument("one_name", metavar="RUN")
@click.argument("other_name", metavar="OTHER")
@json_option
@click.pass_obj
def command(app: AppContext, one_name: str, other_name: str, as_json: bool) -> None:
    """Compare RUN with OTHER: job, image, host, end and metrics.

    The metrics are the scores, and the last value of each name in metrics.jsonl.
    """
    runs = [the_run(app, name) for name in (one_name, other_name)]
    one, other = (comparison_of(app.ledger(), run, app.now()) for run in runs)
    found = differences(one, other)
    text = differences_text(one.run, other.run, found, width())
    show(Differences(runs=[run.id for run in runs], differences=found), text, as_json=as_json)


class Differences(Document):
    """The differences between two runs."""

    runs: Sequence[str]
    differences: Sequence[Difference]


def differences_text(one: Run, other: Run, found: Sequence[Difference], width: int | None) -> str:
    """Write a line for each difference. `width`: columns of the terminal."""
    if not found:
        return f"{one.id} and {other.id} do not differ"
    cells = [
        (
            each.section,
            one_line(each.key),
            _shown(each.key, each.one),
            _shown(each.key, each.other),
            _change(each),
        )
        for each in _summed_up(found)
    ]
    header = ("PART", "KEY", one.id, other.id, "CHANGE")
    return table(header, cells, right=(4,), cut=(2, 3, 1), width=width)


def _summed_up(found: Sequence[Difference]) -> list[Difference]:
    """Replace long lists of values that only one run has by one line."""
    groups: dict[tuple[str, str, bool, bool], list[Difference]] = {}
    for each in found:
        part = each.key.partition(".")[0] if each.section == "job" else ""
        groups.setdefault((each.section, part, each.one is None, each.other is None), []).append(each)
    return [line for group in groups.values() for line in _one_line_of(group)]


def _one_line_of(group: Sequence[Difference]) -> Sequence[Difference]:
    first = group[0]
    if (first.one is not None and first.other is not None) or len(group) <= _MAX_ONE_SIDED:
        return group
    key = first.key.partition(".")[0] if first.section == "job" else f"all {first.section}"
    count = f"{len(group)} values"
    one, other = (None if value is None else count for value in (first.one, first.other))
    return [replace(first, key=key, one=one, other=other)]


def _shown(key: str, value: Value) -> str:
    if value is None:
        return "-"
    if isinstance(value, float):
        return _UNITS.get(key, "{:.4g}").format(value)
    return short(one_line(str(value)), _MAX_CELL)


def _change(difference: Difference) -> str:
    change = difference.change
    if change is None:
        return ""
    return f"{change:+.1%}" if abs(change) < 10 else f"{change + 1:.0f}x"
