"""Client: the functions of the Python API, with their adapters."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from vastrun.launcher.api import jobs, runs
from vastrun.launcher.api.batches import BatchHandle, plan_batch
from vastrun.launcher.api.drivers import StartDriver, Target
from vastrun.launcher.api.runs import RunHandle
from vastrun.launcher.api.session import ApiSession
from vastrun.launcher.app import DEFAULT_PROVIDER, App
from vastrun.launcher.batch.plan import check_can_start, submit_plan
from vastrun.launcher.commands.estimate import resolve_auto, try_model
from vastrun.launcher.commands.plan import LaunchPlan, plan_of
from vastrun.launcher.commands.queries import all_rows
from vastrun.launcher.core import NOTHING, Run
from vastrun.launcher.core.batch import MAX_POINTS, sweep_name
from vastrun.launcher.core.errors import UsageError
from vastrun.launcher.core.job import JobSpec
from vastrun.launcher.ledger.run_ids import find_run
from vastrun.launcher.run_services import attempts_for

if TYPE_CHECKING:
    from vastrun.launcher.config.batch_file import LoadedBatch

_ANY_JOB = "{name: any, command: 'true', success: {exit_code: 0}}"


class Client:
    """The functions of the Python API: each does what the command of its name does, and returns at once.

    A launcher in a separate process drives each run and batch: it outlives this program, and no interrupt
    reaches it. There is no confirmation: machines are rented within the limits of the job or batch.
    """

    def __init__(self, wire: Callable[[], App], start_driver: StartDriver) -> None:
        """`wire` makes the adapters when they are first needed; `start_driver` starts a launcher."""
        self._session = ApiSession(wire, start_driver)

    def plan(
        self, job: jobs.JobSource, *, provider: str = DEFAULT_PROVIDER, set: jobs.Overrides = ()
    ) -> LaunchPlan:
        """Return the offers for a job, the best first, with their maximum costs. Costs nothing.

        Raises the same errors as `launch`.
        """
        source = jobs.source_of(job)
        return self._plan(source, jobs.load(source, set, now=self._now), provider)[1]

    def launch(
        self,
        job: jobs.JobSource,
        *,
        provider: str = DEFAULT_PROVIDER,
        set: jobs.Overrides = (),
        name: str | None = None,
        out: str | os.PathLike[str] | None = None,
        continues: str | RunHandle | None = None,
    ) -> RunHandle:
        """Start training a job and return a handle of its run: rent, upload, follow, download, destroy.

        `job`: a job file, or an example's name; YAML text; the same as a dict; or a JobSpec. `set`: values
        to override by their dotted keys, as in `{"limits.usd": 5}`. `out`: the folder for its outputs, by
        default `runs/RUN`. `continues`: the run whose checkpoint it continues from.

        There is no confirmation: the job's `limits` bound the cost. Raises, before anything is rented:
        UsageError, or its subclass JobFileError with every fault of the job; NoOfferError; BudgetError;
        AuthError; ProviderError; StorageError. Later failures are in the handle's result.
        """
        source = jobs.source_of(job)
        spec = jobs.load(source, set, name, now=self._now)
        app, parent = self._session.app, None
        if continues is not None:
            name = continues.id if isinstance(continues, RunHandle) else continues
            parent = app.driver_ledger().get(find_run(app.ledger(), name).id)
        spec, _ = self._plan(source, spec, provider, parent)
        # Signals are not handled here: the process that drives the run does that.
        interrupts = app.interrupts()
        with attempts_for(app, interrupts, began=app.now()) as attempts:
            folder, run_id = None if out is None else Path(out), app.new_id()
            run = runs.start_run(attempts, spec, provider=provider, run_id=run_id, out=folder, parent=parent)
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

        `batch`: a batch file, YAML text, or the same as a dict, whose `job` may be a dict or a JobSpec.
        `out`: the folder for the outputs, by default `batches/NAME`. Points that ran before are not run
        again. All runs together cost at most its `limits.usd`. Raises the same errors as `launch`.
        """
        from vastrun.launcher.config.batch_file import load_batch  # slow to import: pydantic, yaml

        value = batch.get("job") if isinstance(batch, Mapping) else None
        job = jobs.source_of(value) if isinstance(value, Mapping | JobSpec) else None
        source = jobs.source_of(
            {**batch, "job": job.name} if job and isinstance(batch, Mapping) else batch, "batch"
        )

        def read_file(name: str) -> str:
            return job.text if job and name == job.name else jobs.read_source(source.folder / name)

        loaded = load_batch(source.text, source.name, read_file, str(source.folder), self._now)
        return self._submit(loaded, source, provider, out)

    def sweep(
        self,
        job: jobs.JobSource,
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
        between. `usd`: budget of all runs, required if machines cost money. `parallel`: number of concurrent
        runs. `metric` and `goal`: comparison of the runs. `reuse` and `pack`: run points one after the other
        on one machine, or several at once on its GPUs. Raises the same errors as `launch`.
        """
        from vastrun.launcher.config.batch_file import load_batch, load_sweep  # slow to import

        source = jobs.source_of(job)
        batch = {
            "name": name or sweep_name(jobs.load(source, now=self._now).name),
            "job": source.name,
            "objective": {"metric": metric, "goal": goal},
            "limits": {"parallel": parallel} | ({} if usd is None else {"usd": usd}),
            "reuse": reuse,
            "pack": pack,
            "list": [{}],
        }
        spec = load_batch(jobs.to_yaml(batch, "sweep"), "sweep", lambda _: _ANY_JOB, ".").spec
        if not 1 <= samples <= MAX_POINTS:
            raise UsageError(f"samples: expected a whole number from 1 to {MAX_POINTS:,}, got {samples}")
        axes = [f"{key}={_axis(key, value)}" for key, value in values.items()]
        loaded = load_sweep(spec, source.text, axes, str(source.folder), samples, self._now)
        return self._submit(loaded, source, provider, out)

    def runs(self) -> list[RunHandle]:
        """Return every run: open ones first, then the newest. Raises StorageError."""
        rows = all_rows(self._session.ledger, self._session.now())
        return [RunHandle(self._session, row.run.id) for row in rows]

    def run(self, name: str) -> RunHandle:
        """Return a run by its id, the first letters of one, or `last`. Raises NoSuchRunError."""
        return RunHandle(self._session, find_run(self._session.ledger, name).id)

    def batches(self) -> list[BatchHandle]:
        """Return every batch, the newest first. Raises StorageError."""
        return [BatchHandle(self._session, batch.name) for batch in self._session.ledger.batches.all()]

    def find_batch(self, name: str) -> BatchHandle:
        """Return the batch of that name. Raises UsageError if there is none."""
        return BatchHandle(self._session, self._session.ledger.batches.get(name).name)

    @property
    def _now(self) -> datetime:
        return self._session.app.local_now()

    def _plan(
        self, source: jobs.JobText, spec: JobSpec, provider: str, parent: Run | None = None
    ) -> tuple[JobSpec, LaunchPlan]:
        """Return the job with a number in place of `auto`, and its plan.

        Raises if it cannot be uploaded, rented or paid.
        """
        app = self._session.app
        with jobs.name_in_errors(source):
            spec, _ = resolve_auto(spec, app.estimator())
            spec = jobs.check_upload(app.packer(NOTHING), spec, source.folder)
            ledger, market = self._session.ledger, app.provider(provider)
            try_model(app.estimator(), spec, free=market.free)
            now = app.now()
            plan = plan_of(spec, market, ledger, now, app.budgets(now), parent)
            if plan.refusals:
                raise plan.refusals[0]
            return spec, plan

    def _submit(
        self, loaded: LoadedBatch, source: jobs.JobText, provider: str, out: str | os.PathLike[str] | None
    ) -> BatchHandle:
        app, ledger = self._session.app, self._session.ledger
        with jobs.name_in_errors(source):
            plan = plan_batch(app, loaded, source.folder, provider)
        folder = Path(out or Path("batches") / plan.spec.name).resolve()
        check_can_start(ledger, plan, folder)
        batch, _ = submit_plan(app.driver_ledger(), plan, folder, app.now(), app.computer())
        if not ledger.batches.is_driven(batch.name):
            self._session.drive(Target("batch", batch.name))
        return BatchHandle(self._session, batch.name)


def _axis(key: str, values: Sequence[Any] | str) -> str:
    """Write the values of one key as on the command line. Raises UsageError if there are none."""
    if isinstance(values, str):
        return values
    if not values:
        raise UsageError(f"{key}: an empty list; give at least one value")
    return ",".join(jobs.to_yaml(value, key) for value in values)
