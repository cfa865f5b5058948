"""`status` in text: the table of runs, and one run in detail."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from vastrun.launcher.commands.queries import RunDetail, RunRow, UsdSource
from vastrun.launcher.core import BoxStatus, Event, Phase, Progress, RankStatus, Run
from vastrun.launcher.decisions.stages import stage_name
from vastrun.launcher.gate.text import one_line
from vastrun.launcher.ui.render.amounts import duration, moment, rough, usd
from vastrun.launcher.ui.render.table import facts, short, table
from vastrun.launcher.ui.render.verdict import cost_text, lease_line, left_text, on_machines, state_of

_HEADER = ("RUN", "JOB", "STATE", "STEP", "AGE", "COST")
_LAST_EVENTS = 8


def runs_table(
    rows: Sequence[RunRow],
    now: float,
    width: int | None = None,
    *,
    users: bool = False,
    more: int = 0,
) -> str:
    """Write one line per run. `width`: columns of the terminal; None: nothing is cut.

    `users`: show who started each. `more`: number of runs left out.
    """
    if not rows:
        return "no runs yet\n\nvastrun launch JOB.yaml starts one"
    user_column = ("USER",) if users else ()
    cells = (
        (
            row.run.id,
            row.run.job,
            *((row.run.started_by or "-",) if users else ()),
            *_state_cells(row, now),
        )
        for row in rows
    )
    header = (*_HEADER[:2], *user_column, *_HEADER[2:])
    right = [number + len(user_column) for number in (3, 4, 5)]
    # The job's name loses a part first, then the user's.
    listed = table(header, cells, right=right, cut=(1, 2) if users else (1,), width=width)
    open_runs = [row for row in rows if row.run.phase is not Phase.ENDED]
    following = f"vastrun attach {open_runs[0].run.id}" if open_runs else f"vastrun why {rows[0].run.id}"
    rest = f"{more:,} more that have ended: vastrun status --all\n" if more else ""
    waiting = "".join(f"{row.run.id}: {state_of(row)}\n" for row in rows if row.download_left_s is not None)
    left = "".join(f"{left_text(row, now)}\n" for row in rows if row.lease is not None)
    return f"{listed}\n\n{rest}{waiting}{left}{following}"


def _state_cells(row: RunRow, now: float) -> Sequence[str]:
    state = state_of(row) if row.download_left_s is None else f"ended, {rough(row.download_left_s)} left"
    return state, progress_of(row.run), duration(now - row.run.created_at), usd(row.usd)


def run_text(detail: RunDetail, now: float, width: int | None = None) -> str:
    """Write everything known about one run. `width`: as above."""
    run, row = detail.row.run, detail.row
    parts = [
        facts(
            [
                ("run", f"{run.id} ({run.job})"),
                ("state", state_of(row)),
                ("because", run.detail),
                ("step", progress_of(run) if detail.box_status is None else _seen(run, detail.box_status)),
                ("cost", _cost(row)),
                ("machine", "" if row.nodes else _machine(run)),
                ("image", run.image),
                ("lease", lease_line(row, now)),
                ("box", _box(detail.box_status, now) or detail.note),
                ("driver", _driver(row)),
                ("started by", run.started_by),
                ("parent", run.parent or ""),
                ("outputs", run.out_dir),
            ]
        )
    ]
    if detail.nodes:
        parts.append(nodes_table(row, width))
    ranks = [one.box_status.ranks for one in (detail, *detail.nodes) if one.box_status is not None]
    if any(ranks):
        parts.append(_ranks([rank for those in ranks for rank in those]))
    if detail.events:
        parts.append(_diary(detail.events[-_LAST_EVENTS:], width))
    return "\n\n".join(parts)


def nodes_table(row: RunRow, width: int | None = None) -> str:
    """Write a line for each machine of a run on several nodes."""
    cells = [
        (str(one.node), one.phase.value, one.instance_id or "-", one.host or "-", usd(one.usd_per_hour))
        for one in row.machines
    ]
    return table(("NODE", "PHASE", "MACHINE", "HOST", "$/H"), cells, right=(0, 4), cut=(3, 2), width=width)


def progress_of(run: Run) -> str:
    """Write the steps done of all, as in `340/1500`, and the stage where there are several."""
    stage = f" {name}" if run.step and (name := stage_name(run)) else ""
    return f"{run.step}/{run.steps}{stage}" if run.steps else str(run.step or "-")


def progress_text(progress: Progress) -> str:
    """Write the known parts of `step 340/1500 (23%)  loss 0.031  evaluating  ETA 12m`."""
    step, steps = progress.step, progress.steps
    parts = [
        f"step {step}{f'/{steps} ({step / steps:.0%})' if steps else ''}" if step else "",
        progress.stage if step else "",
        f"loss {progress.loss:.4g}" if step and progress.loss is not None else "",
        progress.activity,
        f"ETA {rough(progress.left_s)}" if progress.left_s is not None else "",
    ]
    return "  ".join(filter(None, parts))


def _seen(run: Run, box_status: BoxStatus) -> str:
    """Write the step and loss that the machine reports; `-` if no rank reports a step."""
    if not box_status.step and all(not rank.activity for rank in box_status.ranks):
        return "-"
    loss = "" if box_status.loss is None else f", loss {box_status.loss:.4g}"
    stage = stage_name(replace(run, step=box_status.step))
    return f"{box_status.step}/{run.steps or box_status.steps or '?'}{f' {stage}' if stage else ''}{loss}"


def _cost(row: RunRow) -> str:
    kind = "" if row.run.released_at or row.run.rented_at is None else " so far"
    if row.usd_source is UsdSource.CHARGED:
        kind = " charged,"
    return cost_text(row, f"{kind} at {usd(row.usd_per_hour)}/h{on_machines(row)}")


def _machine(run: Run) -> str:
    if run.instance_id is None:
        return ""
    gone = f", gone since {moment(run.released_at)}" if run.released_at else ""
    return f"{run.instance_id} ({run.provider}{', host ' + run.host if run.host else ''}){gone}"


def _box(box_status: BoxStatus | None, now: float) -> str:
    if box_status is None:
        return ""
    step = f" in {box_status.onstart_step}" if box_status.onstart_step else ""
    ends = f" until {moment(box_status.lease_ends_at)}" if box_status.lease_ends_at else ""
    late = "" if abs(now - box_status.at) < 60 else f"; its clock is {duration(abs(now - box_status.at))} off"
    return f"{box_status.box}{step}; lease {box_status.lease}{ends}{late}"


def _driver(row: RunRow) -> str:
    if row.driver is None:
        return "" if row.verdict else f"none; vastrun attach {row.run.id}"
    host, _, rest = row.driver.who.partition(":")
    return f"process {rest.partition(':')[0]} on {host}"


def _ranks(ranks: Sequence[RankStatus]) -> str:
    cells = [
        (
            str(rank.rank),
            str(rank.pid or "-"),
            str(rank.step) if rank.activity else "-",
            rank.activity or "-",
            duration(rank.age_s),
        )
        for rank in ranks
    ]
    return table(("RANK", "PID", "STEP", "PHASE", "SILENT FOR"), cells, right=(0, 1, 2, 4))


def _diary(events: Sequence[Event], width: int | None) -> str:
    lines = (f"{moment(event.at)}  {event.phase.value:<8} {one_line(event.text)}" for event in events)
    return "\n".join(short(line, width) for line in lines)
