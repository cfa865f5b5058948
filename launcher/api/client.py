"""Client: the functions of the Python API, with the adapters that they reach the world through."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from vastrun.launcher.api import batches, runs
from vastrun.launcher.api.batches import BatchHandle
from vastrun.launcher.api.drivers import StartDriver, Target
from vastrun.launcher.api.jobs import (
    JobSource,
    JobText,
    Overrides,
    about,
    as_yaml,
    check_upload,
    load,
    source_of,
    text_in,
)
from vastrun.launcher.api.runs import RunHandle
from vastrun.launcher.api.session import ApiSession
from vastrun.launcher.api.sweep_values import must_use
from vastrun.launcher.batch.plan import price
from vastrun.launcher.batch.search import first_points
from vastrun.launcher.commands.plan import LaunchPlan, plan_of
from vastrun.launcher.commands.queries import all_rows
from vastrun.launcher.commands.resolve_auto import resolve_auto
from vastrun.launcher.config import load_batch, load_sweep, read_job
from vastrun.launcher.core import NOTHING, Run
from vastrun.launcher.core.batch import MAX_POINTS, BatchSpec, sweep_name
from vastrun.launcher.core.errors import UsageError
from vastrun.launcher.core.job import JobSpec
from vastrun.launcher.ledger.run_ids import find_run
from vastrun.launcher.wiring import DEFAULT_PROVIDER, Wiring

if TYPE_CHECKING:
    from vastrun.launcher.config.batch_file import LoadedBatch

_ANY_JOB = "{name: any, command: 'true', success: {exit_code: 0}}"


class Client:
    """Each function does what the command of its name does, and returns at once.

    A launcher, in a process of its own, drives what was begun: it outlives this program, and no interrupt
    reaches it. Nothing is asked: machines that cost money are rented, within the limits of the job or batch.
    """

    def __init__(self, wire: Callable[[], Wiring], start_driver: StartDriver) -> None:
        """`wire` makes the adapters when they are first needed; `start_driver` starts a launcher."""
        self._session = ApiSession(wire, start_driver)

    def plan(
        self,
        job: JobSource,
        *,
        provider: str = DEFAULT_PROVIDER,
        set: Overrides = (),
    ) -> LaunchPlan:
        """Return the offers for a job, the best first, and what it may cost at most. Costs nothing.

        Raises as `launch`, of which it does nothing.
        """
        source = source_of(job)
        spec = self._without_auto(source, load(source, set, now=self._now), provider)
        return self._plan(source, spec, provider)

    def launch(
        self,
        job: JobSource,
        *,
        provider: str = DEFAULT_PROVIDER,
        set: Overrides = (),
        name: str | None = None,
        out: str | os.PathLike[str] | None = None,
        continues: str | RunHandle | None = None,
    ) -> RunHandle:
        """Begin to train a job and return a handle of its run: rent, ship, follow, collect, end the machine.

        `job`: a job file, or an example's name; YAML text; the same as a dict; or a JobSpec. `set`: values
        to change by their dotted keys, as in `{"limits.usd": 5}`. `out`: the folder for its outputs, else
        `runs/RUN`. `continues`: the run whose checkpoint it continues from.

        Nothing is asked: it may cost what the job's `limits` allow. Raises, before anything is rented:
        UsageError, of it JobFileError with every fault of the job; NoOfferError; BudgetError; AuthError;
        ProviderError; StorageError. What happens later is in the handle's result.
        """
        source = source_of(job)
        spec = load(source, set, name, now=self._now)
        parent = None if continues is None else find_run(self._session.ledger, _id_of(continues))
        spec = self._without_auto(source, spec, provider, parent)
        self._plan(source, spec, provider, parent)
        wiring = self._session.wiring
        # No signal is ours to handle here: whoever drives the run does that.
        interrupts = wiring.interrupts()
        with wiring.attempts(interrupts, began=wiring.now()) as attempts:
            run = runs.begin(
                attempts,
                spec,
                provider=provider,
                run_id=wiring.new_id(),
                out=None if out is None else Path(out),
                parent=parent,
            )
        self._session.drive(Target("run", run.id))
        return RunHandle(self._session, run.id)

    def batch(
        self,
        batch: str | os.PathLike[str] | Mapping[str, Any],
        *,
        provider: str = DEFAULT_PROVIDER,
        out: str | os.PathLike[str] | None = None,
    ) -> BatchHandle:
        """Start a batch, or add the new points of an edited one; return its handle.

        `batch`: a batch file, YAML text, or the same as a dict, whose `job` may be a dict or a JobSpec
        itself. `out`: the folder for the outputs, else `batches/NAME`. Points that ran before are not run
        again. Raises as `launch`; all of its runs together cost at most its `limits.usd`.
        """
        given = batch.get("job") if isinstance(batch, Mapping) else None
        job = source_of(given) if isinstance(given, Mapping | JobSpec) else None
        source = source_of(
            {**batch, "job": job.name} if job and isinstance(batch, Mapping) else batch, "batch"
        )

        def read_file(name: str) -> str:
            return job.text if job and name == job.name else text_in(source.folder / name)

        loaded = load_batch(
            source.text, source.name, read_file, str(source.folder), self._session.wiring.local_now()
        )
        return self._submit(loaded, source, provider, out)

    def sweep(
        self,
        job: JobSource,
        values: Mapping[str, Sequence[Any] | str],
        *,
        usd: float | None = None,
        parallel: int = 4,
        samples: int = 8,
        metric: str = "loss",
        goal: Literal["min", "max"] = "min",
        reuse: Literal["auto", "never"] = "never",
        pack: Literal["auto", "never"] = "never",
        name: str | None = None,
        provider: str = DEFAULT_PROVIDER,
        out: str | os.PathLike[str] | None = None,
    ) -> BatchHandle:
        """Run a job with each combination of values, as one batch; return its handle.

        `values`: by dotted key a list, or text as on the command line: `"1e-4..1e-2"` takes `samples` values
        between. `usd`: what all runs together may cost, needed where machines cost money. `parallel`: runs at
        once. `metric` and `goal`: what they are compared by. `reuse` and `pack`: points may follow each other
        on one machine, or share its GPUs. Raises as `launch`.
        """
        source = source_of(job)
        spec = _checked(
            {
                "name": name or sweep_name(load(source, now=self._now).name),
                "job": source.name,
                "objective": {"metric": metric, "goal": goal},
                "limits": {"parallel": parallel} | ({} if usd is None else {"usd": usd}),
                "reuse": reuse,
                "pack": pack,
            }
        )
        if not 1 <= samples <= MAX_POINTS:
            raise UsageError(f"samples: expected a whole number from 1 to {MAX_POINTS:,}, got {samples}")
        axes = [f"{key}={_axis(key, value)}" for key, value in values.items()]
        loaded = load_sweep(
            spec, source.text, axes, str(source.folder), samples, self._session.wiring.local_now()
        )
        return self._submit(loaded, source, provider, out)

    def runs(self) -> list[RunHandle]:
        """Return every run: open ones first, then the newest. Raises StorageError."""
        rows = all_rows(self._session.ledger, self._session.now())
        return [RunHandle(self._session, row.run.id) for row in rows]

    def run(self, name: str) -> RunHandle:
        """Return the run of that id, of the first letters of an id, or `last`. Raises NoSuchRunError."""
        return RunHandle(self._session, find_run(self._session.ledger, name).id)

    def batches(self) -> list[BatchHandle]:
        """Return every batch, the newest first. Raises StorageError."""
        return [BatchHandle(self._session, batch.name) for batch in self._session.ledger.batches.all()]

    def find_batch(self, name: str) -> BatchHandle:
        """Return the batch of that name. Raises UsageError when there is none."""
        return BatchHandle(self._session, self._session.ledger.batches.get(name).name)

    @property
    def _now(self) -> datetime:
        return self._session.wiring.local_now()

    def _without_auto(
        self, source: JobText, spec: JobSpec, provider: str, parent: Run | None = None
    ) -> JobSpec:
        """Return the job with what it leaves to `auto` as numbers."""
        wiring = self._session.wiring
        with about(source):
            return resolve_auto(spec, wiring.estimator(), wiring.provider(provider), parent).spec

    def _plan(self, source: JobText, spec: JobSpec, provider: str, parent: Run | None = None) -> LaunchPlan:
        """Check that the job can be shipped and rented."""
        wiring = self._session.wiring
        with about(source):
            check_upload(wiring.packer(NOTHING), spec, source.folder)
            ledger = self._session.ledger
            now = wiring.now()
            plan = plan_of(spec, wiring.provider(provider), ledger, now, wiring.budgets(now), parent)
            if plan.refusals:
                raise plan.refusals[0]
            return plan

    def _submit(
        self,
        loaded: LoadedBatch,
        source: JobText,
        provider: str,
        out: str | os.PathLike[str] | None,
    ) -> BatchHandle:
        wiring, ledger = self._session.wiring, self._session.ledger
        loaded = batches.named_for_its_job(ledger, loaded)
        spec = loaded.spec
        with about(source):
            points = first_points(spec, loaded.points, loaded.search)
            job = read_job(points[0].spec_json)
            check_upload(wiring.packer(NOTHING), job, source.folder)
            must_use(job, loaded.unmentioned)
            now = wiring.now()
            market, budgets = wiring.market_of_many(provider), wiring.budgets(now)
            plan = price(spec, points, market, ledger, now, loaded.search, budgets)
        folder = Path(out or Path("batches") / spec.name).resolve()
        batches.must_fit(ledger, plan, folder)
        batch, _ = batches.submit(ledger, plan, folder, wiring.now(), wiring.computer())
        if not ledger.batches.is_driven(batch.name):
            self._session.drive(Target("batch", batch.name))
        return BatchHandle(self._session, batch.name)


def _checked(batch: Mapping[str, Any]) -> BatchSpec:
    """Return a batch without points, checked as a batch file is. Raises JobFileError with every fault."""
    text = as_yaml({**batch, "list": [{}]}, "sweep")
    return load_batch(text, "sweep", lambda _: _ANY_JOB, ".").spec


def _id_of(run: str | RunHandle) -> str:
    return run.id if isinstance(run, RunHandle) else run


def _axis(key: str, values: Sequence[Any] | str) -> str:
    """Return the values of one key as the command line has them. Raises UsageError when there are none."""
    if isinstance(values, str):
        return values
    if not values:
        raise UsageError(f"{key}: an empty list; give at least one value")
    return ",".join(as_yaml(value, key) for value in values)
