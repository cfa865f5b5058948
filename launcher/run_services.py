"""Run services: what drives runs and batches, made from the application's context."""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, closing, contextmanager
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from vastrun.launcher.app import App
from vastrun.launcher.core import NOTHING, Origin, Run, UserRequest
from vastrun.launcher.flow.services import Services
from vastrun.launcher.ports import Screen
from vastrun.launcher.ui.interrupts import Interrupts

if TYPE_CHECKING:
    from vastrun.launcher.batch.shared import BatchScreen, BatchServices, SharedRequests
    from vastrun.launcher.commands.attempts import Attempts
    from vastrun.launcher.notifications import Sender


def services_for(app: App, provider: str, began: float) -> Services:
    """Make what reaches machines, for a command that drives no run."""
    return services_of(app, provider, app.interrupts(), app.screens.of_run(began))


@contextmanager
def attempts_for(app: App, interrupts: Interrupts, *, began: float) -> Iterator[Attempts]:
    """Yield what drives runs for a user who may interrupt."""
    with closing(app.screens.of_run(began)) as screen, closing(app.notifier(screen.note)) as notifier:
        yield attempts_of(app, interrupts, screen, notifier)


def attempts_of(
    app: App,
    requests: Interrupts | SharedRequests,
    screen: Screen,
    notifier: Sender,
    runs_at_once: Callable[[], int] = lambda: 1,
) -> Attempts:
    """Return what drives a run. `runs_at_once` counts those that this launcher drives now."""
    from vastrun.launcher.commands.attempts import Attempts  # when a run is driven

    def make_services(provider: str, origin: Origin) -> Services:
        made = services_of(app, provider, requests, screen, origin, notifier)
        return replace(made, active_runs=runs_at_once)

    def record(run: Run, services: Services) -> AbstractContextManager[Services]:
        from vastrun.launcher.transcript import recorded

        return recorded(run, services, app.secrets(), guard_gap_s=lambda: app.guard.longest_gap_s)

    return Attempts(services_for=make_services, new_id=app.new_id, recorded=record)


@contextmanager
def batch_services(
    app: App, name: str, interrupts: Interrupts | SharedRequests, screen: BatchScreen, *, prunes: bool = True
) -> Iterator[BatchServices]:
    """Yield what a `BatchDriver` drives the batch with; then settle its bills and write its page."""
    from vastrun.launcher.batch.shared import BatchServices  # when a batch is driven

    settle = partial(settle_bills, app, app.driver_ledger().batches.get(name).provider)
    with closing(app.notifier(screen.note)) as notifier, app.workers() as workers:
        yield BatchServices(
            ledger=app.driver_ledger(),
            attempts=lambda shared, one, count: attempts_of(app, shared, one, notifier, count),
            requests=interrupts.current,
            workers=workers,
            wake_signal=app.wake_signal(),
            sleep=interrupts.sleep,
            now=app.now,
            new_id=app.new_id,
            who=app.who(),
            computer=app.computer(),
            screen=screen,
            prunes=prunes,
            notifier=notifier,
            settle=settle,
        )
    gc.collect()  # a driver refers to itself: without this, all points of a batch would be in memory twice
    if interrupts.current() is UserRequest.NONE:
        settle()
    from vastrun.launcher.ui.report.batch_page import leave_report  # when a batch has ended

    if line := leave_report(app.driver_ledger(), name, app.now()):
        screen.note(line)


def settle_bills(app: App, provider: str) -> None:
    """Correct the costs of earlier runs to what that provider charged, where their bill is due by now."""
    from vastrun.launcher.cost.statement import settle_due  # at the end of a command

    settle_due(app.driver_ledger(), provider, app.provider(provider), app.who(), app.now())


def services_of(
    app: App,
    provider: str,
    requests: Interrupts | SharedRequests,
    screen: Screen,
    origin: Origin = NOTHING,
    notifier: Sender | None = None,
) -> Services:
    """Make what drives one run, for a user at a terminal or as one of many, which share a provider."""
    made = Services(
        provider=(app.provider if isinstance(requests, Interrupts) else app.shared_provider)(provider),
        ledger=app.driver_ledger(),
        clock=requests,
        packer=app.packer(origin),
        output_store=app.output_store(),
        screen=screen,
        user_requests=requests,
        who=app.who(),
        user=app.user,
        computer=app.computer(),
        notifier=notifier,
        budgets=app.budgets,
        guard=app.guard.guarding,
        interrupting=app.provider_clock.interrupting,
        call_interruptibly=app.provider_clock.call,
    )
    if not isinstance(requests, Interrupts):
        return made
    return replace(made, ask_to_keep=requests.ask_to_keep, note_phase=requests.note_phase)
