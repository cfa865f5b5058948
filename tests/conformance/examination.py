"""Examination: rents a machine on Vast, compares what is seen with the assumptions, and adds the bill."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from pathlib import Path

import click

from tests.conformance import assumptions
from tests.conformance.observations import charges_of, number_of, seen_in
from tests.conformance.observed_vast import WATCH_S, ObservedVast
from tests.conformance.recorder import (
    ApiRecorder,
    Record,
    read_record,
    write_record,
)
from vastrun.launcher.api.runs import start_run
from vastrun.launcher.app import App
from vastrun.launcher.cli.output import say, set_error_run
from vastrun.launcher.commands.plan import plan_of
from vastrun.launcher.config.job_loader import load_job
from vastrun.launcher.core import Run, UserRequest, Verdict
from vastrun.launcher.core.bills import cost_usd, counted_of, max_cost_usd
from vastrun.launcher.core.errors import NoOfferError, UsageError, VastrunError
from vastrun.launcher.core.job import JobSpec
from vastrun.launcher.core.verdict import EXIT_CODE_OF
from vastrun.launcher.decisions.estimates import offer_text
from vastrun.launcher.decisions.offer_check import PYPI_FILE
from vastrun.launcher.image.lock import read_lock
from vastrun.launcher.providers.vast import VastProvider, account, transport
from vastrun.launcher.providers.vast.transport import VastAccount
from vastrun.launcher.run_services import attempts_for
from vastrun.launcher.ui.interrupts import Interrupts
from vastrun.launcher.ui.render.amounts import duration, facts, short, table, usd

JOB = Path(__file__).with_name("job.yaml")
MAX_RUN_S = 600.0
"""No machine is kept for longer, loading included."""
SETTLEMENT_S = 900.0
"""Seconds after the end when charges are expected to be listed."""


def rent(
    environ: Mapping[str, str],
    spec: JobSpec,
    *,
    yes: bool,
    download_url: str = PYPI_FILE,
    watch_s: float = WATCH_S,
) -> int:
    """Rent a machine, run the job there, show the comparison; return the exit code.

    `download_url`: what the machine downloads. `watch_s`: for how long a destroyed machine is watched.
    """
    app = App(environ)
    began = app.now()
    interrupts = app.interrupts()
    recorder = ApiRecorder()
    observed = ObservedVast(
        _vast_of(app, environ, recorder),
        recorder,
        lambda: interrupts.current() is not UserRequest.NONE,
        download_url=download_url,
        watch_s=watch_s,
    )
    app = app.with_changes(provider=lambda _: observed)
    run: Run | None = None
    error: VastrunError | None = None
    try:
        plan = plan_of(spec, observed, app.ledger(), began, app.budgets(began))
        if plan.refusals:
            raise plan.refusals[0]
        offer = offer_text(plan.spec, plan.offers[0])
        limits = f"All machines together: at most {usd(spec.limits.usd or 0.0)} and {duration(MAX_RUN_S)}"
        if not yes:
            click.confirm(f"rent {offer} to check the assumptions about Vast. {limits}", abort=True, err=True)
    except NoOfferError as no_offer:  # the report still shows the search
        error = no_offer
    with interrupts.listening():
        if error is None:
            run, error = _drive(app, interrupts, spec, began)
        observed.check_after_run()
    run = None if run is None else app.ledger().get(run.id)
    path = Path(f"conformance-{run.id if run else 'no-offer'}.json")
    record = record_of(recorder, run, began, app.now())
    write_record(path, record)
    say(report(record, path))
    if error is not None:
        raise error
    return record.exit_code


def settle(environ: Mapping[str, str], path: Path) -> int:
    """Add the charges to a record, and show it; return the exit code."""
    app, recorder = App(environ), ApiRecorder()
    record = settled(read_record(path), _vast_of(app, environ, recorder), recorder, app.now())
    if record.billed_usd is not None:
        write_record(path, record)
    say(report(record, path))
    if record.billed_usd is None:
        say("there is no charge for this machine yet; try again in a few minutes", err=True)
    return record.exit_code


def _vast_of(app: App, environ: Mapping[str, str], recorder: ApiRecorder) -> VastProvider:
    """Return the provider of the account in the environment, whose answers are recorded."""
    connect = recorder.recording(transport.connect, app.now)
    account, lock = VastAccount.of_environment(environ), partial(read_lock, app.image_lock)
    return VastProvider(account, app.state, lock=lock, clock=app.provider_clock, connect=connect)


def _drive(app: App, interrupts: Interrupts, spec: JobSpec, began: float) -> tuple[Run, VastrunError | None]:
    """Drive the run to its end; return it with the error that ended it early, raised after the report."""
    run_id = app.new_id()
    with attempts_for(app, interrupts, began=began) as attempts:
        run = start_run(attempts, spec, provider=VastProvider.name, run_id=run_id, out=None, parent=None)
        set_error_run(run)
        say(f"run {run.id}, outputs in {run.out_dir}", err=True)
        try:
            return attempts.drive_or_follow(run), None
        except VastrunError as error:
            return run, error


def report(record: Record, path: Path) -> str:
    """Write a report. `path`: the file of the record."""
    rows = record.comparisons
    lines = [(one.state, one.name, short(one.assumed, 22), short(one.seen_text, 24)) for one in rows]
    deviations = [_deviation(one) for one in rows if one.state is assumptions.State.DEVIATES]
    count = Counter(one.state for one in rows)
    verdict = record.verdict or ("open" if record.run else "NO_OFFER")
    summary = [
        ("run", f"{record.run or 'none'} {verdict}, {duration(record.ended_at - record.began_at)}"),
        ("machine", record.machine if record.instance else "none was rented"),
        ("ledger", usd(record.run_usd)),
        ("bill", _bill(record, path)),
        ("rows", ", ".join(f"{count[state]} {state}" for state in assumptions.State if count[state])),
        ("untried", "whether Vast sends a scheduled end: its first hour comes after the run"),
        ("file", f"{path}   (holds no secret; attach it to an issue)"),
    ]
    return "\n\n".join([facts(summary), table(("", "ASSUMPTION", "ASSUMED", "SEEN"), lines), *deviations])


def _bill(record: Record, path: Path) -> str:
    if not record.instance:
        return ""
    if record.billed_usd is None:
        settle = f"python -m tests.conformance --settle {path}"
        return f"not settled yet; in {SETTLEMENT_S / 60:.0f} minutes: {settle}"
    return f"{usd(record.billed_usd)} for that machine, of which the ledger counts {usd(record.counted.usd)}"


def _deviation(one: assumptions.Comparison) -> str:
    return facts(
        [
            ("deviates", one.name),
            ("", one.text),
            ("assumed", one.assumed),
            ("seen", one.seen_text),
            ("how", one.how),
            ("rests on it", one.rests),
        ]
    )


def conformance_job(usd: float, sets: Sequence[str], now: float) -> JobSpec:
    """Return the job, with its limits. Raises JobFileError."""
    deadline = datetime.fromtimestamp(now + MAX_RUN_S, UTC).isoformat(timespec="seconds")
    overrides = (f"limits.usd={usd!r}", f"limits.deadline='{deadline}'")
    text = JOB.read_text(encoding="utf-8")
    return load_job(text, str(JOB), [*overrides, *sets], str(JOB.parent), datetime.fromtimestamp(now, UTC))


def record_of(recorder: ApiRecorder, run: Run | None, began: float, now: float) -> Record:
    """Return the record of what was seen; `run` is None where no offer fitted."""
    record = Record(
        began_at=began, ended_at=now, run_exit_code=EXIT_CODE_OF[Verdict.NO_OFFER], seen=seen_in(recorder)
    )
    if run is None:
        return record
    alone = replace(run, rentals=())
    return replace(
        record,
        run=run.id,
        instance=recorder.instance_id,
        machine="" if run.offer is None else run.offer.description[:200],
        ended_at=run.ended_at or now,
        verdict="" if run.verdict is None else run.verdict.value,
        run_exit_code=run.exit_code(),
        counted=counted_of(alone, now),
        tail_usd=max_cost_usd(alone, now) - cost_usd(alone, now),
        run_usd=cost_usd(run, now),
    )


def settled(record: Record, vast: VastProvider, recorder: ApiRecorder, now: float) -> Record:
    """Return the record with what was charged for its machine by now.

    `recorder`: it records what `vast` is answered. Raises AuthError, ProviderError; UsageError where no
    machine was rented.
    """
    if not record.instance:
        raise UsageError(f"{record.run} rented no machine", hint="python -m tests.conformance")
    recorder.begin(record.instance, record.began_at)
    charged = account.charges_of(vast.api, record.began_at, now)
    charges = [one for one in charged if one.instance_id == record.instance]
    if not charges:
        return record
    # The ratio of charged to counted dollars, for GPUs and for disk.
    rows = [row.get("items") for row in charges_of(recorder)]
    items = [item for row in rows if isinstance(row, list) for item in row if isinstance(item, dict)]
    by_type = {
        kind: sum(number_of(item.get("amount")) or 0.0 for item in items if item.get("type") == kind)
        for kind in ("gpu", "disk")
    }
    billed_usd = sum(charge.usd for charge in charges)
    pairs = (
        ("charge.gpu", by_type["gpu"], record.counted.gpu_usd),
        ("charge.disk", by_type["disk"], record.counted.storage_usd),
        ("charge.total", billed_usd, record.counted.usd),
    )
    ratios = {name: _ratio(charged, counted, record) for name, charged, counted in pairs if counted > 0}
    bill = {name: value for name, value in seen_in(recorder).items() if name == "charge.fields"}
    return replace(record, billed_usd=billed_usd, seen={**record.seen, **bill, **ratios})


def _ratio(charged_usd: float, counted_usd: float, record: Record) -> float:
    """Return the ratio of charged to counted dollars, without what the bill's tail may be."""
    ratio = charged_usd / counted_usd
    return ratio - min(max(0.0, ratio - 1), record.tail_usd / record.counted.usd)
