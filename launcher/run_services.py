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
from vastrun.launcher.ports import Provider, Screen
from vastrun.launcher.ui.interrupts import Interrupts

if TYPE_CHECKING:
    from vastrun.launcher.batch.shared import BatchScreen, BatchServices, RunScreen, SharedRequests
    from vastrun.launcher.commands.attempts import Attempts
    from vastrun.launcher.notifications.delivery import Sender


def services_for(app: App, provider: str, began: float) -> Services:
    """Make what reaches machines, for a command that drives no run."""
    screen = app.screens.of_run(began)
    return interactive_services(app, provider, app.interrupts(), screen)


@contextmanager
def attempts_for(app: App, interrupts: Interrupts, *, began: float) -> Iterator[Attempts]:
    """Yield what drives runs for a user who may interrupt."""
    screen = app.screens.of_run(began)
    notifier = app.notifier(screen.note)

    def make_services(provider: str, origin: Origin) -> Services:
        return interactive_services(app, provider, interrupts, screen, origin, notifier)

    try:
        yield _attempts(app, make_services)
    finally:
        notifier.close()
        screen.close()


def attempts_of_many(
    app: App,
    shared: SharedRequests,
    screen: RunScreen,
    runs_at_once: Callable[[], int],
    notifier: Sender,
) -> Attempts:
    """Return what drives one run among many."""

    def make_services(provider: str, origin: Origin) -> Services:
        made = _services(app, app.shared_provider(provider), shared, screen, origin, notifier)
        return replace(made, active_runs=runs_at_once)

    return _attempts(app, make_services)


@contextmanager
def batch_services(
    app: App,
    name: str,
    interrupts: Interrupts | SharedRequests,
    screen: BatchScreen,
    *,
    prunes: bool = True,
) -> Iterator[BatchServices]:
    """Yield what a `BatchDriver` drives the batch with; then settle its bills and write its page."""
    from vastrun.launcher.batch.shared import BatchServices  # when a batch is driven

    with closing(app.notifier(screen.note)) as notifier, app.workers() as workers:

        def attempts(
            shared: SharedRequests, run_screen: RunScreen, runs_at_once: Callable[[], int]
        ) -> Attempts:
            return attempts_of_many(app, shared, run_screen, runs_at_once, notifier)

        yield BatchServices(
            ledger=app.driver_ledger(),
            attempts=attempts,
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
            settle=partial(settle_bills, app, app.driver_ledger().batches.get(name).provider),
        )
    gc.collect()  # a driver refers to itself: without this, all points of a batch would be in memory twice
    if interrupts.current() is UserRequest.NONE:
        settle_bills(app, app.driver_ledger().batches.get(name).provider)
    from vastrun.launcher.ui.report.batch_page import leave_report  # when a batch has ended

    if line := leave_report(app.driver_ledger(), name, app.now()):
        screen.note(line)


def settle_bills(app: App, provider: str) -> None:
    """Correct the costs of earlier runs to what that provider charged, where their bill is due by now."""
    from vastrun.launcher.cost.statement import settle_due  # at the end of a command

    settle_due(app.driver_ledger(), provider, app.provider(provider), app.who(), app.now())


def _attempts(app: App, make_services: Callable[[str, Origin], Services]) -> Attempts:
    from vastrun.launcher.commands.attempts import Attempts  # when a run is driven

    return Attempts(services_for=make_services, new_id=app.new_id, recorded=partial(_recorded, app))


def _recorded(app: App, run: Run, services: Services) -> AbstractContextManager[Services]:
    """Return the services that drive the run, recorded in its transcript."""
    from vastrun.launcher.transcript import recorded

    return recorded(run, services, app.secrets(), guard_gap_s=partial(getattr, app.guard, "longest_gap_s"))


def interactive_services(
    app: App,
    provider: str,
    interrupts: Interrupts,
    screen: Screen,
    origin: Origin = NOTHING,
    notifier: Sender | None = None,
) -> Services:
    """Make what drives one run for a user at a terminal."""
    made = _services(app, app.provider(provider), interrupts, screen, origin, notifier)
    return replace(made, ask_to_keep=interrupts.ask_to_keep)


def _services(
    app: App,
    provider: Provider,
    requests: Interrupts | SharedRequests,
    screen: Screen,
    origin: Origin,
    notifier: Sender | None,
) -> Services:
    return Services(
        provider=provider,
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
    )
