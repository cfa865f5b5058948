"""Documents for programs: one JSON object a command, with a version of its form."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from launcher.core import Offer, Run, RunNetwork, Volume
from launcher.core.bills import cost_usd, counted_of, gpu_seconds, rented_seconds
from launcher.decisions.advice import advice_for
from launcher.decisions.estimates import basis_text, expected_usd, finishing_usd
from launcher.decisions.host_history import HostRecord
from launcher.decisions.policy import worst_case_usd
from launcher.decisions.shares import counted_in_total
from launcher.ui.render.volumes import state_document, volume_document

if TYPE_CHECKING:
    from launcher.commands.accounting import CostReport, Reconciliation
    from launcher.commands.orphans import Orphan
    from launcher.commands.planning import LaunchPlan
    from launcher.commands.queries import Explanation, RunDetail, RunEnding, RunRow
    from launcher.commands.volumes import VolumeState
    from launcher.core.job import JobSpec
    from launcher.decisions.grouping import Group
    from launcher.decisions.market_report import MarketReport

SCHEMA_VERSION = 1

Document = Mapping[str, Any]


def to_text(document: Document) -> str:
    """Write the document as it goes to stdout."""
    return json.dumps({"schema_version": SCHEMA_VERSION, **document}, indent=2)


def runs_document(rows: Sequence[RunRow], more: int = 0) -> Document:
    """Describe runs for `status --json`. `more`: how many are left out."""
    return {"runs": [_run(row) for row in rows], "more": more}


def run_document(detail: RunDetail) -> Document:
    """Describe one run from near for `status RUN --json`."""
    return {
        "run": _run(detail.row),
        "events": [asdict(event) for event in detail.events],
        "box": None if detail.box_status is None else asdict(detail.box_status),
        "note": detail.note,
        "boxes": [
            None if one.box_status is None else asdict(one.box_status)
            for one in ((detail, *detail.nodes) if detail.nodes else ())
        ],
    }


def ending_document(ending: RunEnding) -> Document:
    """Describe the end of a run for `launch --json`."""
    return {
        "run": _run(ending.row),
        "exit_code": ending.row.run.exit_code(),
        "lease_ends_at": ending.lease_ends_at,
        "scores": ending.scores,
        "attempts": [{"id": a.run.id, "verdict": a.verdict, "usd": a.usd} for a in ending.attempts],
        "usd_all_attempts": sum(attempt.usd for attempt in ending.attempts),
        "next": advice_for(ending.row.run, checkpoint=ending.checkpoint, not_shipped=ending.not_shipped),
    }


def result_document(
    row: RunRow, scores: Mapping[str, float], *, newest: str | None, best: str | None
) -> Document:
    """Return what `result.json` in the run's folder says; checkpoints by their names."""
    return {
        "run": _run(row),
        "exit_code": None if row.verdict is None else row.run.exit_code(),
        "scores": dict(scores),
        "checkpoint": newest,
        "best_checkpoint": best,
        "next": advice_for(row.run, checkpoint=newest is not None),
    }


def explanation_document(explanation: Explanation) -> Document:
    """Describe the evidence on a run for `why --json`."""
    return {
        "run": _run(explanation.row),
        "outcome": None if explanation.outcome is None else asdict(explanation.outcome),
        "stacks": explanation.stacks,
        "steps": [asdict(end) for end in explanation.steps],
        "left_out": asdict(explanation.left_out),
        "next": advice_for(
            explanation.row.run, checkpoint=explanation.checkpoint, not_shipped=explanation.not_shipped
        ),
    }


def costs_document(rows: Sequence[RunRow], volumes: Sequence[Volume], now: float) -> Document:
    """Describe what runs cost for `cost --json`, in dollars."""
    counted = counted_in_total([row.run for row in rows])
    return {
        "runs": [
            {
                "id": row.run.id,
                "job": row.run.job,
                "hours": sum(rented_seconds(one, now) for one in row.machines) / 3600,
                "gpu_hours": sum(gpu_seconds(one, now) for one in row.machines) / 3600,
                "usd_per_hour": row.usd_per_hour,
                "nodes": [
                    {"node": one.node, "id": one.id, "usd": cost_usd(one, now)}
                    for one in (row.machines if row.nodes else ())
                ],
                **asdict(row.cost),
                "usd": row.usd,
                "usd_source": row.usd_source,
                "counted_usd": sum(counted_of(one, now).usd for one in row.machines),
                "billed_usd": row.billed_usd,
                "final": row.verdict is not None,
                "in_total": row.run.id in counted,
            }
            for row in rows
        ],
        "usd": sum(row.usd for row in rows if row.run.id in counted),
        "volumes": [volume_document(volume, now) for volume in volumes],
    }


def report_document(report: CostReport) -> Document:
    """Describe what runs cost together, in dollars."""
    return {
        "by": report.by,
        "since": report.since,
        "until": report.until,
        "time_zone": report.zone_name,
        "metric": report.metric or None,
        "groups": [_group(group) for group in report.groups],
        "total": _group(report.total),
    }


def reconciliation_document(found: Reconciliation, settled: Collection[str] = ()) -> Document:
    """Describe what was charged beside what is counted. `settled`: the runs that cost what was charged.

    Dollars; a difference above 0 was charged and not counted.
    """
    runs = [
        {
            "id": one.bill.run.id,
            "job": one.bill.run.job,
            "provider": one.bill.run.provider,
            "counted_usd": one.bill.counted.usd,
            "charged_usd": one.bill.charged_usd if one.bill.charges else None,
            "difference_usd": one.bill.difference_usd,
            "reasons": list(one.reasons),
            "unexplained_usd": one.unexplained_usd,
            "settled": one.bill.run.id in settled,
        }
        for one in found.runs
    ]
    return {
        "since": found.since,
        "runs": runs,
        "counted_usd": sum(one.bill.counted.usd for one in found.runs),
        "charged_usd": sum(one.bill.charged_usd for one in found.runs),
        "charged_besides": [asdict(stranger) for stranger in found.strangers],
        "without_bill": dict(found.without_bill),
        "explained": found.explained,
    }


def hosts_document(records: Sequence[HostRecord]) -> Document:
    """Describe the hosts that were used for `hosts --json`."""
    return {"hosts": [asdict(record) for record in records]}


def plan_document(plan: LaunchPlan) -> Document:
    """Describe what a launch would do and cost for `plan --json`."""
    return {
        "job": _job(plan.spec),
        "provider": plan.provider,
        "offers": [_offer(offer, plan.spec) for offer in plan.offers],
        "worst_case_usd": plan.worst_case_usd,
        "lease": asdict(plan.lease),
        "refused": [str(error) for error in plan.refusals],
        "deadline": plan.spec.limits.deadline,
        "expected_end_at": plan.expected_end_at,
        "workloads": None if plan.foretold.workloads is None else asdict(plan.foretold.workloads),
        "not_foretold": plan.foretold.note or None,
        "left_out": None if plan.left_out is None else asdict(plan.left_out),
    }


def market_report_document(report: MarketReport, spec: JobSpec) -> Document:
    """Describe the market for `plan --explain --json`."""
    quotes = [
        {**asdict(quote), "offer": _offer(quote.offer, spec), "usd": quote.usd} for quote in report.quotes
    ]
    values = asdict(report)
    values["hurdles"] = values.pop("constraints")  # the name that programs know
    return {**values, "quotes": quotes, "left": len(quotes)}


def orphans_document(
    orphans: Sequence[Orphan],
    networks: Sequence[RunNetwork],
    left: Sequence[RunRow],
    destroyed: Sequence[str],
    volumes: Sequence[VolumeState],
    now: float,
) -> Document:
    """Describe machines and networks that no open run claims, and data volumes, for `reap --json`."""
    machines = [
        {
            **asdict(orphan.instance),
            "run": None if orphan.run is None else orphan.run.id,
            "owner": orphan.owner,
            "ledger": orphan.ledger,
            "is_ghost": orphan.is_ghost,
        }
        for orphan in orphans
    ]
    names = [network.name for network in networks]
    runs = [_run(row) for row in left]
    return {
        "machines": machines,
        "destroyed": list(destroyed),
        "networks": names,
        "left": runs,
        "volumes": [state_document(state, now) for state in volumes],
    }


def _group(group: Group) -> dict[str, Any]:
    values = asdict(group)
    cost = values.pop("cost")
    scored = values.pop("scored")
    return {
        **values,
        **cost,
        "usd": group.cost.usd,
        "training_usd": group.training_usd,
        "usd_per_run": group.usd_per_run,
        "usd_per_1000_steps": group.usd_per_1000_steps,
        "scored": scored,
    }


def _offer(offer: Offer, spec: JobSpec) -> dict[str, Any]:
    known = None if offer.forecast is None else basis_text(offer.forecast)
    return {
        **asdict(offer),
        "expected_usd": expected_usd(spec, offer),
        "finishing_usd": finishing_usd(spec, offer),
        "at_most_usd": worst_case_usd(spec, offer),
        "speed": known,
    }


def _job(spec: JobSpec) -> dict[str, Any]:
    """The job; whoever knows a URL in `notify` may write there, so that none is shown."""
    values = asdict(spec)
    values["notify"] = [{**target, "url": target["url"] and "<secret>"} for target in values["notify"]]
    return values


def _run(row: RunRow) -> dict[str, Any]:
    values = asdict(row.run)
    del values["spec_json"]
    driver = None if row.driver is None else row.driver.who
    # `wish`: the name that programs know.
    user = values.pop("started_by")
    return {
        **values,
        "user": user,
        "wish": row.request,
        "verdict": row.verdict,
        "usd": row.usd,
        "usd_source": row.usd_source,
        "driver": driver,
        "download_left_s": row.download_left_s,
        "lease": None if row.lease is None else asdict(row.lease),
        "nodes": [_node(one) for one in (row.machines if row.nodes else ())],
    }


def _node(run: Run) -> dict[str, Any]:
    """One machine of a run that has several."""
    keys = ("node", "id", "phase", "instance_id", "host", "usd_per_hour", "cause", "detail", "out_dir")
    return {key: getattr(run, key) for key in keys}
