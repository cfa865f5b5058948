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


PINNED = "lab/own:1@sha256:" + "0" * 64


@pytest.mark.parametrize("command", ["plan", "launch"])
def test_an_image_without_a_digest_is_refused_before_money_is_spent(terminal: Terminal, command: str) -> None:
    end = terminal.type(command, str(terminal.job), "--set", "image=lab/own:1")
    assert end.exit_code == 2
    assert "image: lab/own:1 has no digest" in end.stderr
    assert "image_unpinned: true" in end.stderr
    assert not terminal.market.instances()


@pytest.mark.parametrize(
    ("sets", "image", "chosen"),
    [
        (("image=" + PINNED,), PINNED, "the job's own"),
        (("image=lab/own:1", "image_unpinned=true"), "lab/own:1", "what its name means may change"),
        ((), "lab/ours@sha256:" + "1" * 64, "ours that fits this machine"),
    ],
)
def test_the_plan_says_which_image_runs_and_who_chose_it_and_the_run_keeps_it(
    terminal: Terminal, sets: tuple[str, ...], image: str, chosen: str
) -> None:
    terminal.market.image = "lab/ours@sha256:" + "1" * 64
    options = [word for value in sets for word in ("--set", value)]
    said = terminal.type("plan", str(terminal.job), *options).stdout
    assert image in said
    assert chosen in said
    assert "what the trainer lacks there is installed at boot" in said
    assert terminal.launch(*options).exit_code == 0
    assert terminal.document("status", "last")["run"]["image"] == image
    assert image in terminal.type("status", "last").stdout


def test_where_nothing_is_charged_an_image_needs_no_digest(tmp_path: Path) -> None:
    terminal = Terminal(tmp_path, usd_per_hour=0)
    assert terminal.type("plan", str(terminal.job), "--set", "image=lab/own:1").exit_code == 0
