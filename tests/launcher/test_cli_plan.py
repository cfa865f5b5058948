"""`plan --explain`: what each limit removes, and why an offer comes before another."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from launcher.job import JobSpec
from launcher.model import Offer
from tests.launcher.terminal import Market, Terminal


@pytest.fixture
def terminal(tmp_path: Path) -> Terminal:
    return Terminal(tmp_path)


def test_the_funnel_and_the_ranking_are_shown_within_80_columns(terminal: Terminal) -> None:
    end = terminal.type("plan", str(terminal.job), "--explain")
    assert end.exit_code == 0
    lines = end.stdout.splitlines()
    assert lines[0].split() == ["10", "offers", "on", "the", "market"]
    assert lines[1].split() == ["-3", "fail", "gpu_memory_gb", "20", "GB"]
    assert lines[2].split() == ["7", "left"]
    assert lines[3] == "relax gpu_memory_gb to get 10"
    assert "$7.30  7.200  0.100  3.600  host-1  2 x RTX 4090" in end.stdout
    assert "reliability 99%" in end.stdout
    assert max(map(len, lines)) <= 80


def test_offers_on_hosts_that_failed_are_left_out_and_counted(terminal: Terminal) -> None:
    terminal.market.impostors = {"host-1"}
    terminal.launch()
    end = terminal.type("plan", str(terminal.job), "--explain")
    assert "-1  on hosts to avoid" in end.stdout
    assert "host-1 " not in end.stdout
    document = terminal.document("plan", str(terminal.job), "--explain")
    assert (document["avoided"], document["left"]) == (1, 6)


def test_the_explanation_as_a_document_has_every_term(terminal: Terminal) -> None:
    document = terminal.document("plan", str(terminal.job), "--explain")
    assert document["hurdles"] == [{"name": "gpu_memory_gb", "text": "20 GB", "removed": 3}]
    assert document["quotes"][0]["usd"] == pytest.approx(7.3)
    assert document["quotes"][0]["terms"][0] == {"name": "GPU", "usd": 7.2, "text": "2.0 h"}


def test_a_market_where_nothing_fits_is_explained_and_is_no_offer(tmp_path: Path) -> None:
    class Empty(Market):
        def search(self, spec: JobSpec) -> Sequence[Offer]:
            return []

    terminal = Terminal(tmp_path)
    terminal.market = Empty(terminal.clock, [], usd_per_hour=1.0)
    end = terminal.type("plan", str(terminal.job), "--explain")
    assert end.exit_code == 8
    assert "relax gpu_memory_gb to get 3" in end.stdout


@pytest.mark.parametrize("command", ["plan", "launch"])
def test_more_machines_than_a_run_can_have_are_refused_before_any_is_rented(
    terminal: Terminal, command: str
) -> None:
    end = terminal.type(command, str(terminal.job), "--set", "nodes=2")
    assert end.exit_code == 2
    assert "nodes: the job asks for 2 machines; fake rents at most 1" in end.stderr
    assert not terminal.market.instances()
