"""Prometheus metrics: a scrape over loopback, read back by Prometheus' own parser; the dashboard's names."""

import json
import re
import socket
import sys
from collections.abc import Mapping
from http.client import HTTPConnection
from pathlib import Path

import pytest

from tests.fakebox import Training
from tests.launcher.terminal import CRASH, Terminal
from tests.launcher.ui.web.test_server import served
from vastrun.launcher.core.batch import Budget
from vastrun.launcher.core.errors import StorageError, UsageError
from vastrun.launcher.rate_limit_waits import RateLimitWaits
from vastrun.launcher.ui.web import prometheus
from vastrun.launcher.ui.web.server import Server

pytestmark = pytest.mark.needs("prometheus")
DOCS = Path(__file__).parents[4] / "docs"
TOKEN = "t" * 43
HOSTILE = 'a "budget"\\ of\nJune'
Samples = Mapping[tuple[str, frozenset[tuple[str, str]]], float]


def get(server: Server, path: str = "/metrics", **headers: str) -> tuple[int, str, str]:
    connection = HTTPConnection("127.0.0.1", server.port, timeout=60)
    try:
        connection.request("GET", path, headers=headers)
        response = connection.getresponse()
        return response.status, response.headers["Content-Type"], response.read().decode()
    finally:
        connection.close()


def scraped(exporter: prometheus.PrometheusExporter) -> Samples:
    """Each sample by its name and labels."""
    with served(exporter.page, token=TOKEN, content_type=prometheus.CONTENT_TYPE) as server:
        status, kind, text = get(server, Authorization=f"Bearer {TOKEN}")
    assert (status, kind) == (200, prometheus.CONTENT_TYPE)
    return samples_of(text)


def samples_of(text: str) -> Samples:
    from prometheus_client.parser import text_string_to_metric_families

    return {
        (sample.name, frozenset(sample.labels.items())): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


def at(samples: Samples, name: str, **labels: str) -> float:
    return samples[name, frozenset(labels.items())]


@pytest.fixture
def terminal(tmp_path: Path) -> Terminal:
    """A run that crashed, one that succeeded, and one that trains."""
    terminal = Terminal(tmp_path, CRASH, Training())
    terminal.launch()
    terminal.launch()
    terminal.launch("--detach")
    return terminal


def exporter_of(terminal: Terminal) -> prometheus.PrometheusExporter:
    budget = Budget(name=HOSTILE, usd=50.0)

    def totals() -> prometheus.LedgerTotals:
        return prometheus.ledger_totals(terminal.ledger, [budget], terminal.clock.now())

    waits = RateLimitWaits()
    for seconds in (0.0, 4.5, 3.0):
        waits.report("vast", "create", seconds)
    return prometheus.PrometheusExporter(
        totals, lambda: {"run": 1, "batch": 0}, terminal.clock.now, "1.0", waits.totals
    )


def test_a_scrape_has_runs_machines_dollars_budgets_and_ends_by_cause(terminal: Terminal) -> None:
    found = scraped(exporter_of(terminal))

    (open_run,) = terminal.ledger.runs(open_only=True)
    assert at(found, "vastrun_open_runs", provider="fake", phase="train") == 1
    assert at(found, "vastrun_machines", provider="fake") == 1
    assert at(found, "vastrun_usd_per_hour", provider="fake") == pytest.approx(open_run.usd_per_hour)
    assert at(found, "vastrun_ended_runs_total", verdict="FAILED", cause="signal") == 1
    assert at(found, "vastrun_ended_runs_total", verdict="SUCCEEDED", cause="none") == 1
    left = at(found, "vastrun_budget_left_usd", budget=HOSTILE)
    spent = at(found, "vastrun_budget_spent_usd", budget=HOSTILE)
    reserved = at(found, "vastrun_budget_reserved_usd", budget=HOSTILE)
    assert at(found, "vastrun_budget_limit_usd", budget=HOSTILE) == 50
    assert 0 < left == pytest.approx(50 - spent - reserved)
    assert at(found, "vastrun_rate_limit_waits_total", provider="vast", call="create") == 2
    assert at(found, "vastrun_rate_limit_wait_seconds_total", provider="vast", call="create") == 7.5
    assert at(found, "vastrun_driven", kind="run") == 1
    assert at(found, "vastrun_ledger_up") == 1


def test_without_the_token_or_with_another_host_nothing_is_told(terminal: Terminal) -> None:
    right = f"Bearer {TOKEN}"
    with served(exporter_of(terminal).page, token=TOKEN, content_type=prometheus.CONTENT_TYPE) as server:
        refused = [
            get(server),
            get(server, Authorization="Bearer wrong"),
            get(server, Authorization=f"Basic {TOKEN}"),
            get(server, Authorization=right, Host="evil.example"),
            get(server, Authorization=right, Origin="http://evil.example"),
            get(server, "/other", Authorization=right),
        ]
        assert get(server, f"/{TOKEN}/metrics")[0] == 200
    assert [status for status, _, _ in refused] == [404, 404, 404, 403, 403, 404]
    assert not any("vastrun_" in text for _, _, text in refused)


def test_an_unreadable_ledger_is_a_metric() -> None:
    def totals() -> prometheus.LedgerTotals:
        raise StorageError("the database is away")

    found = scraped(prometheus.PrometheusExporter(totals, dict, lambda: 0.0, "1.0"))
    assert at(found, "vastrun_ledger_up") == 0
    assert not any(name == "vastrun_open_runs" for name, _ in found)


def test_scrapes_at_the_same_time_read_the_ledger_once(terminal: Terminal) -> None:
    reads: list[float] = []
    now = 100.0

    def totals() -> prometheus.LedgerTotals:
        reads.append(now)
        return prometheus.ledger_totals(terminal.ledger, [], terminal.clock.now())

    exporter = prometheus.PrometheusExporter(totals, dict, lambda: now, "1.0")
    exporter.page(["metrics"])
    now = 104.0
    exporter.page(["metrics"])
    now = 106.0
    exporter.page(["metrics"])
    assert reads == [100.0, 106.0]


def test_serve_says_where_it_answers_prometheus_and_leaves_no_port_open(terminal: Terminal) -> None:
    terminal.press(after_s=7.0)
    end = terminal.type("serve", "--driver", "--metrics-port", "0")
    assert end.exit_code == 0, end.output
    found = re.search(
        r"metrics: http://127\.0\.0\.1:(\d+)/metrics, with the bearer token in (\S+)", end.output
    )
    assert found
    assert prometheus.load_or_create_token(Path(found[2]))
    assert "this server ends" in end.output and "the training continues" not in end.output
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.1", int(found[1])), timeout=60)


def test_the_dashboard_and_the_page_name_the_metrics_that_exist(terminal: Terminal) -> None:
    names = {name for name, _ in samples_of(exporter_of(terminal).page(["metrics"]) or "")}
    dashboard = json.loads((DOCS / "assets" / "grafana.json").read_text())
    queries = [target["expr"] for panel in dashboard["panels"] for target in panel["targets"]]
    used = {name for query in queries for name in re.findall(r"\b(?:vastrun|process)_\w+", query)}
    assert used - names == set()
    told = set(re.findall(r"`((?:vastrun|process)_\w+)`", (DOCS / "trackers.md").read_text()))
    families = {re.sub(r"_(bucket|count|sum|created)$", "", name) for name in names}
    assert {name for name in families if name.startswith("vastrun_")} <= told <= families


def test_the_token_is_kept_in_a_file_that_only_its_user_reads(tmp_path: Path) -> None:
    file = tmp_path / "state" / "metrics.token"
    token = prometheus.load_or_create_token(file)
    assert len(token) >= 32
    assert prometheus.load_or_create_token(file) == token
    assert file.stat().st_mode & 0o077 == 0
    file.write_text("short")
    with pytest.raises(StorageError, match="at least 32"):
        prometheus.load_or_create_token(file)


def test_without_the_package_the_error_says_how_to_install_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "prometheus_client", None)
    with pytest.raises(UsageError, match="prometheus_client, which is not installed") as caught:
        prometheus.PrometheusExporter(lambda: pytest.fail("not read"), dict, lambda: 0.0, "1.0")
    assert "install" in caught.value.hint
