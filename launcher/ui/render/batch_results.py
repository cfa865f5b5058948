"""Results of a batch, as text and as CSV: the best point first."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from vastrun.contract.texts import how_many
from vastrun.launcher.batch.results import SHORT_S, PointResult, SameResults
from vastrun.launcher.config import program_of, read_job
from vastrun.launcher.core import Verdict
from vastrun.launcher.core.batch import BatchSpec
from vastrun.launcher.ui.render.amounts import cells, csv_cell, duration, facts, table, usd, usd_sum

_COLUMNS = ("#", "VALUES", "VERDICT", "STEPS", "TIME", "COST", "RUN")
"""All but the metric's, which is the fourth."""
_MAX_SAME = 4
"""Maximum number of points with the same results, and of groups of them."""
Values = Mapping[str, Any]


def results_text(
    rows: Sequence[PointResult], spec: BatchSpec, width: int | None, same: Sequence[SameResults] = ()
) -> str:
    """Write the table of results, the best first, and commands for the best point."""
    if not rows:
        return "no points yet"
    # The metric's name as it is where another column has that title.
    title = spec.objective.metric.rpartition(".")[2].upper()
    header = (*_COLUMNS[:3], (spec.objective.metric if title in _COLUMNS else title), *_COLUMNS[3:])

    def render(texts: Sequence[str], width: int | None) -> str:
        cells = [
            (
                str(row.point.number),
                text,
                row.state,
                metric_text(row),
                str(row.step) if row.run else "-",
                duration(row.hours * 3600) if row.run else "-",
                usd_sum([row.usd]),
                "-" if row.run is None else row.run.id,
            )
            for row, text in zip(rows, texts, strict=True)
        ]
        return table(header, cells, right=(0, 3, 4, 5, 6), cut=(1, 7), width=width)

    values = [row.point.shown for row in rows]
    text = fitted(value_forms(values, values), width, render)
    best, name = rows[0].run, spec.objective.metric
    if best is None or rows[0].metric is None:
        return "\n\n".join(filter(None, (text, _nothing_measured(rows, name))))
    # Programs of users have their own checkpoints.
    can_continue = rows[0].step and program_of(read_job(rows[0].point.spec_json)).reports_steps
    summary = facts(
        [
            ("same", same_text(rows, same)),
            ("reuse", _reuse(rows, spec)),
            ("best", f"{values_text(rows[0].point.shown)}: {name} {rows[0].metric:.4g}"),
            ("outputs", best.out_dir),
            ("report", f"vastrun report {spec.name} --open"),
            ("why", f"vastrun why {best.id}"),
            ("continue", f"vastrun launch --from {best.id}" if can_continue else ""),
        ]
    )
    return f"{text}\n\n{summary}"


def _reuse(rows: Sequence[PointResult], spec: BatchSpec) -> str:
    """Write what reused machines would have saved; empty where that is nothing, or they were shared."""
    each_usd = [usd for row in rows for usd in row.restart_usd]
    saved_usd = sum(each_usd) * (1 - min(1.0, spec.limits.parallel / max(1, len(each_usd))))
    if spec.may_share_machines or saved_usd < 0.01:
        return ""
    lived = f"{how_many(len(each_usd), 'machine')} lived for less than {SHORT_S / 60:.0f} min each"
    return f"{lived}; reuse: auto saves up to {usd(saved_usd)} of starts and of bills' tails"


def metric_text(row: PointResult, unknown: str = "-") -> str:
    """Write the metric of a point."""
    return "diverged" if row.diverged else unknown if row.metric is None else f"{row.metric:.4g}"


def same_text(rows: Sequence[PointResult], same: Sequence[SameResults]) -> str:
    """Write which points reported the same; a line for each set of keys that made no difference."""
    values, lines = {row.point.number: row.point.shown for row in rows}, list[str]()
    for keys in dict.fromkeys(tuple(one.keys) for one in same):
        groups = [one.points for one in same if tuple(one.keys) == keys]
        differ = [values_text({key: values[n].get(key, "") for key in keys}) for n in groups[0]]
        first, *others = (" and ".join(_first_of(list(map(str, points)))) for points in groups)
        points = ", ".join(_first_of([f"{first} ({', '.join(_first_of(differ))})", *others]))
        question = f"does the program read {' and '.join(keys)}?"
        lines.append(f"points {points} reported the same to the last digit: {question}")
    return "\n".join(lines)


def _first_of(texts: list[str]) -> list[str]:
    return [*texts[:_MAX_SAME], "…"] if len(texts) > _MAX_SAME else texts


def _nothing_measured(rows: Sequence[PointResult], name: str) -> str:
    """Write why no point has the metric; empty where none succeeded."""
    if not any(row.verdict is Verdict.SUCCEEDED for row in rows):
        return ""
    why = f"no run reported {name}"
    if any(row.diverged for row in rows):
        why = f"every point that reported {name} diverged"
    elif name.isidentifier():
        why += f": call beat(step, {name}=...) in the program, or choose another metric"
    return facts([("metric", why)])


def results_csv(rows: Sequence[PointResult], spec: BatchSpec) -> list[list[str]]:
    """Return the results as rows of a CSV file, with the keys of all points as columns."""
    keys = list(dict.fromkeys(key for row in rows for key in row.point.shown))
    metric = (spec.objective.metric, "diverged")
    header = ["point", "id", *keys, "verdict", *metric, "step", "hours", "usd", "run", "host"]
    lines = [
        [
            str(row.point.number),
            row.point.id,
            *(value_text(row.point.shown.get(key, "")) for key in keys),
            row.state,
            "" if row.metric is None else repr(row.metric),
            "true" if row.diverged else "",
            str(row.step),
            f"{row.hours:.4f}",
            f"{row.usd:.4f}",
            "" if row.run is None else row.run.id,
            "" if row.run is None else row.run.host,
        ]
        for row in rows
    ]
    return [[csv_cell(cell) for cell in line] for line in (header, *lines)]


def value_text(value: Any) -> str:
    """Write a value of a point in short form, and as in YAML."""
    if isinstance(value, bool):
        return "true" if value else "false"
    return f"{value:g}" if isinstance(value, float) else str(value)


def values_text(values: Values) -> str:
    """Write `lr=0.001 dim=64`: each value with the last part of its key, or all of the key if ambiguous."""
    short = [key.rpartition(".")[2] for key in values]
    return " ".join(
        f"{name if short.count(name) == 1 else key}={value_text(value)}"
        for (key, value), name in zip(values.items(), short, strict=True)
    )


def common_values(points: Sequence[Values]) -> dict[str, Any]:
    """Return the values that all points share, if they differ in others."""
    first = dict(points[0]) if points else {}
    same = {
        key: value
        for key, value in first.items()
        if all(key in one and type(one[key]) is type(value) and one[key] == value for one in points)
    }
    return same if len(points) > 1 and any(set(point) - set(same) for point in points) else {}


def value_forms(shown: Sequence[Values], points: Sequence[Values]) -> tuple[list[str], ...]:
    """Return three lists of texts for the rows: all values, those that differ, and these without names."""
    same = common_values(points)
    differing = [{key: value for key, value in values.items() if key not in same} for values in shown]
    bare = [", ".join(map(value_text, values.values())) for values in differing]
    return [values_text(values) for values in shown], [values_text(values) for values in differing], bare


def fitted(
    forms: Sequence[Sequence[str]], width: int | None, render: Callable[[Sequence[str], int | None], str]
) -> str:
    """Return the table with the first form of texts that fits the width; if none does, the last one is cut.

    `render`: makes the table from texts and a width.
    """
    for form in forms:
        text = render(form, None)
        if width is None or max(map(cells, text.splitlines())) <= width:
            return text
    return render(forms[-1], width)
