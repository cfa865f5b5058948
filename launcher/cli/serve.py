"""`vastrun serve`, `ui`: drive runs and batches that have no launcher; show them in the browser."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager
from importlib.metadata import version
from threading import Thread
from typing import TYPE_CHECKING

import click

from vastrun.launcher.app import App
from vastrun.launcher.batch.serve_driver import ServeDriver
from vastrun.launcher.batch.shared import NoteScreen, RunScreen, SharedRequests
from vastrun.launcher.cli.output import say
from vastrun.launcher.core import Run
from vastrun.launcher.core.errors import VastrunError
from vastrun.launcher.run_services import attempts_of, batch_services
from vastrun.launcher.ui.interrupts import Interrupts

if TYPE_CHECKING:
    from vastrun.launcher.ui.web.prometheus import LedgerTotals, PrometheusExporter

METRICS_TOKEN = "metrics.token"
"""Name of the file in the state folder with the token of the metrics."""


@click.command("serve")
@click.option("--driver", is_flag=True, help="Drive runs and batches that have no launcher.")
@click.option(
    "--metrics-port",
    type=click.IntRange(0, 65535),
    help="Answer Prometheus on this port of 127.0.0.1; 0 takes a free one [off].",
)
@click.pass_obj
def serve_command(app: App, driver: bool, metrics_port: int | None) -> None:
    """Drive all open runs and batches of the ledger that have no launcher, until Ctrl-C.

    Without VASTRUN_LEDGER these are your own on this computer, whose driver was killed or ended by a
    restart. With it they are also those of computers with the same VASTRUN_TEAM_KEY. Outputs are downloaded
    to runs/ and batches/ in the current folder. No port is opened without --metrics-port.
    """
    if not driver:
        raise click.UsageError("expected --driver")
    interrupts = app.interrupts(views=True)
    interrupts.detach_words = "this server ends; what it drives continues, bounded by leases"
    say(f"driving runs and batches without a launcher in {app.place}; Ctrl-C ends this server", err=True)
    with interrupts.listening():
        serve(app, interrupts, metrics_port)


@click.command("ui")
@click.option("--port", type=click.IntRange(0, 65535), default=0, help="Port to listen on [a free one].")
@click.option("--open", "opens", is_flag=True, help="Open it in the browser.")
@click.pass_obj
def ui_command(app: App, port: int, opens: bool) -> None:
    """Show runs and batches live in the browser until Ctrl-C.

    Prints an address on 127.0.0.1 with a token; without the token nothing is shown. The pages are read-only,
    refresh automatically, and connect only to this computer. They show what the launchers have downloaded;
    they query no machine.

    From another computer: ssh -L 8000:127.0.0.1:8000 HOST, and on HOST: vastrun ui --port 8000
    """
    from vastrun.launcher.ui.web.server import (
        Server,  # slow to import: HTTP
        Site,
    )

    with Server(Site(app.ledger, app.now).page, port) as server:
        say(server.address)
        say("Ctrl-C stops the server", err=True)
        if opens and not app.browse(server.address):
            say("cannot find a browser; open the address in one", err=True)
        try:
            server.serve_forever()
        except KeyboardInterrupt:
            say("server stopped", err=True)


def serve(app: App, interrupts: Interrupts, metrics_port: int | None = None) -> None:
    """Drive runs and batches that have no launcher, until an interrupt. Raises StorageError at its start.

    `metrics_port`: port of 127.0.0.1 for Prometheus, 0 for a free one; None: no port is opened. Raises
    UsageError where it is taken, or prometheus_client is not installed.
    """
    screen = app.plain_screen()
    exporter = None if metrics_port is None else _exporter(app, lambda: server.driven())

    def drive_run(run: Run, requests: SharedRequests) -> Run:
        with closing(app.notifier(screen.note)) as notifier:
            attempts = attempts_of(app, requests, RunScreen(), notifier, lambda: server.runs_at_once)
            return attempts.resume(run, None)

    def drive_batch(name: str, requests: SharedRequests) -> None:
        from vastrun.launcher.batch.driver import BatchDriver  # when a batch is driven

        screen_of_batch = NoteScreen(screen.note)
        with batch_services(app, name, requests, screen_of_batch) as services:
            BatchDriver(name, services).drive()

    with app.workers() as workers:
        server = ServeDriver(
            ledger=app.driver_ledger(),
            is_reachable=lambda provider, computer: _is_reachable(app, provider, computer),
            drive_run=drive_run,
            drive_batch=drive_batch,
            requests=interrupts.current,
            shared=SharedRequests(app.now, app.wake_signal()),
            workers=workers,
            sleep=interrupts.sleep,
            now=app.now,
            note=screen.note,
        )
        with _exporting(app, exporter, metrics_port or 0, screen.note):
            server.serve()


def _exporter(app: App, driven: Callable[[], Mapping[str, int]]) -> PrometheusExporter:
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
    app: App, exporter: PrometheusExporter | None, port: int, note: Callable[[str], None]
) -> Iterator[None]:
    """Answer Prometheus meanwhile, in threads of their own."""
    if exporter is None:
        yield
        return
    from vastrun.launcher.ui.web.prometheus import CONTENT_TYPE, load_or_create_token
    from vastrun.launcher.ui.web.server import LOOPBACK, Server  # slow to import: HTTP

    file = app.state / METRICS_TOKEN
    with Server(exporter.page, port, token=load_or_create_token(file), content_type=CONTENT_TYPE) as server:
        note(f"metrics: http://{LOOPBACK}:{server.port}/metrics, with the bearer token in {file}")
        thread = Thread(target=server.serve_forever, daemon=True, name="metrics")
        thread.start()
        try:
            yield
        finally:
            server.shutdown()
            thread.join()


def _is_reachable(app: App, provider: str, computer: str) -> bool:
    """Return whether this computer can reach the provider's machines that another computer rented."""
    if computer == app.computer():
        return True
    try:
        return app.shared_provider(provider).shared
    except VastrunError:  # this computer has no key for it
        return False
