"""Serving: drive the runs and batches of the ledger that have no launcher, on this computer."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from importlib.metadata import version
from threading import Thread
from typing import TYPE_CHECKING

from vastrun.launcher.app_context import AppContext
from vastrun.launcher.batch.schedule import PointState
from vastrun.launcher.batch.serve_driver import ServeDriver, ServeServices
from vastrun.launcher.batch.shared import NoteScreen, RunScreen, SharedRequests
from vastrun.launcher.core import Run
from vastrun.launcher.core.errors import VastrunError
from vastrun.launcher.flow.services import PollTiming
from vastrun.launcher.run_services import attempts_of_many, drive_batch
from vastrun.launcher.ui.interrupts import Interrupts

if TYPE_CHECKING:
    from vastrun.launcher.ui.web.prometheus import LedgerTotals, PrometheusExporter


METRICS_TOKEN = "metrics.token"
"""Name of the file in the state folder with the token of the metrics."""


def serve(app: AppContext, interrupts: Interrupts, metrics_port: int | None = None) -> None:
    """Drive runs and batches that have no launcher, until an interrupt. Raises StorageError at its start.

    `metrics_port`: port of 127.0.0.1 for Prometheus, 0 for a free one; None: no port is opened. Raises
    UsageError where it is taken, or prometheus_client is not installed.
    """
    screen = app.plain_screen()
    exporter = None if metrics_port is None else _exporter(app, lambda: server.driven())
    report_poll = _ignore if exporter is None else exporter.report_poll

    def drive_run(run: Run, requests: SharedRequests) -> Run:
        with closing(app.make.notifier(screen.note)) as notifier:
            attempts = attempts_of_many(
                app,
                requests,
                RunScreen(),
                lambda: server.runs_at_once,
                notifier=notifier,
                report_poll=report_poll,
            )
            return attempts.resume(run, None)

    def drive_one(name: str, requests: SharedRequests) -> Sequence[PointState]:
        return drive_batch(app, name, requests, NoteScreen(screen.note), report_poll=report_poll)

    with app.make.workers() as workers:
        server = ServeDriver(
            ServeServices(
                ledger=app.ledger(),
                is_reachable=lambda provider, computer: _is_reachable(app, provider, computer),
                drive_run=drive_run,
                drive_batch=drive_one,
                requests=interrupts.current,
                shared=SharedRequests(app.now, app.make.wake_signal()),
                workers=workers,
                sleep=interrupts.sleep,
                now=app.now,
                note=screen.note,
            )
        )
        with _exporting(app, exporter, metrics_port or 0, screen.note):
            server.serve()


def _ignore(_: PollTiming) -> None:
    """Do nothing with it."""


def _exporter(app: AppContext, driven: Callable[[], Mapping[str, int]]) -> PrometheusExporter:
    from vastrun.launcher.ui.web.prometheus import (
        PrometheusExporter,  # only where it is asked for
        ledger_totals,
    )

    def totals() -> LedgerTotals:
        now = app.now()
        return ledger_totals(app.ledger(), app.budgets(now), now)

    return PrometheusExporter(totals, driven, app.now, version("vastrun"), app.rate_limit_waits.totals)


@contextmanager
def _exporting(
    app: AppContext, exporter: PrometheusExporter | None, port: int, note: Callable[[str], None]
) -> Iterator[None]:
    """Answer Prometheus meanwhile, in threads of their own."""
    if exporter is None:
        yield
        return
    from vastrun.launcher.ui.web.prometheus import CONTENT_TYPE, load_or_create_token
    from vastrun.launcher.ui.web.server import LOOPBACK, Server  # slow to import: HTTP

    file = app.paths.state / METRICS_TOKEN
    with Server(exporter.page, port, token=load_or_create_token(file), content_type=CONTENT_TYPE) as server:
        note(f"metrics: http://{LOOPBACK}:{server.port}/metrics, with the bearer token in {file}")
        thread = Thread(target=server.serve_forever, daemon=True, name="metrics")
        thread.start()
        try:
            yield
        finally:
            server.shutdown()
            thread.join()


def _is_reachable(app: AppContext, provider: str, computer: str) -> bool:
    """Return whether this computer can reach the provider's machines that another computer rented."""
    if computer == app.user.computer():
        return True
    try:
        return app.shared_provider(provider).shared
    except VastrunError:  # this computer has no key for it
        return False
