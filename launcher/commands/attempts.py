"""Attempts: a run driven to its end, and again on a new machine as often as the job's `retry:` allows."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, ExitStack, nullcontext
from dataclasses import dataclass, replace
from typing import Any

from vastrun.launcher.commands import chains, takeover
from vastrun.launcher.commands.nodes import drive_nodes, node_threads
from vastrun.launcher.config import dump_job, program_of, read_job
from vastrun.launcher.core import NOTHING, Driver, Event, Phase, Run, UserRequest, errors
from vastrun.launcher.core.bills import cost_usd
from vastrun.launcher.core.job import JobSpec
from vastrun.launcher.decisions.comparison import job_differences
from vastrun.launcher.decisions.policy import DRIVER_TIMEOUT_S
from vastrun.launcher.flow.drive import create_run, drive
from vastrun.launcher.flow.services import Services
from vastrun.launcher.ports import Ledger, RunThreads


@dataclass(frozen=True, kw_only=True)
class AttemptPlacement:
    """Provider and job of an attempt."""

    provider: str
    spec: JobSpec
    """With the machine named that it is to have a slot of, if any."""


@dataclass(frozen=True, kw_only=True)
class Attempts:
    """Starts and drives runs. `new_id` names the next one."""

    services_for: takeover.ServicesFor
    new_id: Callable[[], str]
    place_retry: Callable[[Run, JobSpec], AttemptPlacement] | None = None
    """Places another attempt after that run; None: same provider."""
    workers: Callable[[], AbstractContextManager[RunThreads]] = node_threads
    """Pool of threads that drive the further nodes of a run."""
    recorded: Callable[[Run, Services], AbstractContextManager[Services]] = lambda _, services: nullcontext(
        services
    )
    """The services with which that run is driven, while they are: they may write down what it does."""
    in_background: Callable[[Callable[[], None]], object] = lambda work: work()
    """Makes the pages of a run that has ended. Among many runs the next one does not wait for them."""

    def start(
        self,
        spec: JobSpec,
        *,
        provider: str,
        run_id: str,
        out_dir: str,
        parent: Run | None = None,
        batch: str = "",
        point: str = "",
        home: str | None = None,
    ) -> Run:
        """Write down a new run, in phase `plan`. `home`: the computer where its job was read; None: this one.

        Raises UsageError when `parent` or the job asks for a checkpoint, and there is none; BudgetError when
        a budget has no room for it; ConfigFileError.
        """
        services = self.services_for(provider, NOTHING)
        if parent is not None:
            ledger = services.ledger
            _check_not_continued(ledger, parent, spec)
            if not chains.has_checkpoint(ledger, parent, services.computer):
                formers = (parent, *chains.formers_of(ledger, parent))
                urls = [url for one in formers if (url := chains.pushed_url(one))]
                if not urls:
                    hint = f"vastrun attach {parent.id}"  # it may still download one
                    hint = chains.FRESH_LAUNCH if parent.phase is Phase.ENDED else hint
                    raise errors.UsageError(f"{parent.id} left no checkpoint in {parent.out_dir}", hint=hint)
                spec = replace(spec, checkpoints=replace(spec.checkpoints, start_from=urls[0]))
        program = program_of(spec)
        if program.needs_checkpoint and parent is None and spec.checkpoints.start_from is None:
            raise errors.UsageError(
                f"{program.key}.{program.needs_checkpoint} needs a checkpoint to start from",
                hint="vastrun launch JOB.yaml --from RUN",
            )
        return self._begin(
            spec,
            provider=provider,
            run_id=run_id,
            out_dir=out_dir,
            parent=None if parent is None else parent.id,
            batch=batch,
            point=point,
            home=home,
        )

    def resume(self, run: Run, out_dir: str | None) -> Run:
        """Drive a run on, as `drive_to_end`; after one that has ended, start the attempt that is due.

        `out_dir`: another folder for the outputs. Raises UsageError when there is nothing left to do.
        """
        ledger = self.services_for(run.provider, NOTHING).ledger
        run = ledger.get(run.id)
        if run.phase is not Phase.ENDED:
            return self.drive_to_end(run if out_dir is None else self._move(run, out_dir))
        if chains.has_open_nodes(ledger, run):
            return self.drive_to_end(run)
        owed = self._try_again(run, out_dir)
        if owed is None:
            raise chains.nothing_to_resume_error(ledger, run)
        return self.drive_to_end(owed)

    def _move(self, run: Run, out_dir: str) -> Run:
        """Have the run download its outputs to another folder. Raises HeldError when another drives it."""
        services = self.services_for(run.provider, NOTHING)
        takeover.check_reachable(run, services, self.services_for)
        services.ledger.hold(run.id, Driver(who=services.who, until=services.clock.now() + DRIVER_TIMEOUT_S))
        try:
            moved = replace(services.ledger.get(run.id), out_dir=out_dir, computer=services.computer)
            services.output_store.check(moved)
            # Last of all the run itself: by its row it is known whether all were brought.
            takeover.move_nodes(moved, services)
            services.ledger.save(moved, who=services.who)
        except errors.VastrunError:
            services.ledger.release(run.id, services.who)
            raise
        return moved

    def _move_here(self, run: Run) -> Run:
        """Have the run download its outputs to this computer, where a launcher of another one began it.

        Raises UsageError when its machine can only be reached from there.
        """
        services = self.services_for(run.provider, NOTHING)
        if run.computer == services.computer:
            return run
        folder = takeover.folder_here(run, services.ledger)
        moved = self._move(run, folder)
        there, here = takeover.display_name(run.computer), takeover.display_name(moved.computer)
        text = f"taken over from {there}: its outputs are downloaded to {folder} on {here}"
        _report(services, run, text, is_stored=True)
        return moved

    def drive_or_follow(self, run: Run) -> Run:
        """Drive a run as `drive_to_end`; while another launcher drives it, follow it."""
        while True:
            try:
                return self.drive_to_end(run)
            except (errors.HeldError, errors.UnsignedError) as error:
                services = self.services_for(run.provider, NOTHING)
                services = replace(services, ledger=services.ledger.for_display())
                if isinstance(error, errors.UnsignedError) and services.ledger.driver(run.id) is None:
                    raise
                _report(services, run, str(error))
                run = takeover.follow(run, services)
                if run.phase is Phase.ENDED or services.user_requests.current() is UserRequest.DETACH:
                    return run

    def drive_to_end(self, run: Run) -> Run:
        """Drive the run and its next attempts as far as they go, and return the last.

        Raises HeldError when another drives it. A run that had ended before is left as it is: only who saw it
        end, or `resume`, tries again.
        """
        services = self.services_for(run.provider, NOTHING)
        run = services.ledger.get(run.id)
        if run.phase is Phase.ENDED and not chains.has_open_nodes(services.ledger, run):
            return run
        run = self._move_here(run)
        while True:
            run = self._drive(run)
            following = self._try_again(run, None)
            if following is None:
                return run
            run = following

    def _try_again(self, former: Run, out_dir: str | None) -> Run | None:
        """Begin the next attempt; None when the run should not be tried again, or was already.

        Raises HeldError when another launcher is at it.
        """
        if former.phase is not Phase.ENDED or former.cause is None:
            return None  # most runs end well: a free slot must not wait until this was held and released
        services = self.services_for(former.provider, NOTHING)
        takeover.check_reachable(former, services, self.services_for)
        ledger, now = services.ledger, services.clock.now()
        request = services.user_requests.current().or_stronger(ledger.user_request(former.id))
        try:
            with takeover.held(former, services):
                chain = chains.chain_of(ledger, former)
                if ledger.runs(parent=former.id) or request.cause is not None:
                    return None
                placed = self._placed_next(services, chain, former, now)
                if placed is None:
                    return None
                run_id = self.new_id()
                folder = out_dir or takeover.folder_after(chain, run_id, services)
                run = self._begin(
                    placed.spec,
                    provider=placed.provider,
                    run_id=run_id,
                    out_dir=folder,
                    parent=former.id,
                    batch=former.batch,
                    point=former.point,
                    home=former.home,
                )
        except (errors.BudgetError, errors.ConfigFileError, errors.JobValueError) as error:
            _report(services, former, f"{chains.NO_OTHER}: {error}", is_stored=True)
            return None
        story = f"{former.id} ended with {former.cause} for ${chains.spent_on(ledger, former, now):.3f}"
        _report(services, run, f"attempt {len(chain) + 1}: {story}; this is {run.id}, outputs in {folder}")
        return run

    def _placed_next(
        self, services: Services, chain: Sequence[Run], former: Run, now: float
    ) -> AttemptPlacement | None:
        """Return job and provider of the next attempt; None, with a message to the user, when the limits
        leave none.
        """
        spent_usd = chains.max_spent_on(services.ledger, former, now)
        spec = chains.next_attempt(read_job(former.spec_json), chain, now, spent_usd)
        if isinstance(spec, str):
            if spec:
                _report(services, former, spec, is_stored=True)
            return None
        if self.place_retry is not None:
            return self.place_retry(former, spec)
        return AttemptPlacement(provider=former.provider, spec=spec)

    def _begin(self, spec: JobSpec, *, provider: str, **new: Any) -> Run:
        services = self.services_for(provider, NOTHING)
        if new["home"] in (None, services.computer):
            spec = services.packer.keep_code(spec)
        # A launcher of a team may lack a secret that another one has.
        return create_run(spec, dump_job(spec), services, check=services.packer.secrets, **new)

    def _drive(self, run: Run) -> Run:
        known = self.services_for(run.provider, NOTHING)
        services = self.services_for(run.provider, chains.origin_of(known.ledger, run, known.computer))

        with ExitStack() as transcripts:
            recorded = transcripts.enter_context(self.recorded(run, services))

            def services_of(row: Run) -> Services:
                if not row.leader:
                    return recorded
                # What it continues from goes to node 0 alone. Each packs for itself: bundles are different.
                # All that is shown is in the transcript of node 0, what each asks and decides in its own.
                own = replace(self.services_for(run.provider, NOTHING), screen=recorded.screen)
                return transcripts.enter_context(self.recorded(row, own))

            if (spec := read_job(run.spec_json)).nodes == 1:
                ended = drive(run, spec, recorded)
            else:
                ended = drive_nodes(run, spec, services_of, self.workers)
        self.in_background(lambda: _describe(ended, services))
        return ended


def _check_not_continued(ledger: Ledger, parent: Run, spec: JobSpec) -> None:
    """Raise UsageError when an open run does the same work already."""
    later = chains.continuation_of(ledger, parent)
    if later is None or later.phase is Phase.ENDED:
        return
    its = read_job(later.spec_json)
    its = replace(its, limits=spec.limits, checkpoints=spec.checkpoints, code_digest=spec.code_digest)
    if not job_differences(spec, its):
        raise errors.UsageError(
            f"{later.id} is continuing {parent.id} already, with the same job",
            hint=f"vastrun attach {later.id}, or first: vastrun stop {later.id}",
        )


def _describe(run: Run, services: Services) -> None:
    try:
        services.output_store.describe(run, services.clock.now())
    except errors.StorageError as error:  # no reason to lose sight of how the run stands
        _report(services, run, f"the pages in its outputs are not up to date: {error}")


def _report(services: Services, run: Run, text: str, *, is_stored: bool = False) -> None:
    """Show the text, and add it to the run's diary if it is to be read later."""
    now = services.clock.now()
    event = Event(run_id=run.id, at=now, phase=run.phase, text=text, usd=cost_usd(run, now))
    if is_stored:
        services.ledger.add_event(event)
    services.screen.report(replace(event, usd=chains.spent_on(services.ledger, run, now)))
