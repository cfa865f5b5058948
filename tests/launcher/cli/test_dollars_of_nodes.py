"""Dollars of a run on several machines: wherever they are shown, they are those of all its nodes."""

import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from tests.jobs import train_job
from tests.launcher.api.notebook import Notebook
from tests.launcher.terminal import Terminal
from tests.runs import a_run
from vastrun.launcher.api.client import Client
from vastrun.launcher.config import dump_job
from vastrun.launcher.core import Event, Meter, Phase, Run

ID = "calm-heron-3f1a"
HOUR, HALF = 3600.0, 1800.0
OWN, BOTH, PRICE = "$1.00", "$2.50", "$5.00/h"
"""What node 0 cost; what all nodes did, and their price."""


def machine(terminal: Terminal, node: int) -> Run:
    """A node whose machine was rented for half an hour."""
    now, name = terminal.clock.now(), ID if node == 0 else f"{ID}-n{node}"
    return a_run(
        id=name,
        spec_json=dump_job(train_job(nodes=2)),
        provider="fake",
        phase=Phase.ENDED,
        out_dir=str(terminal.folder / f"out-{node}"),
        created_at=now - HALF,
        rented_at=now - HALF,
        released_at=now,
        ended_at=now,
        usd_per_hour=2.0 + node,
        meter=Meter(began_at=now - HALF),
        leader=ID if node else "",
        node=node,
        instance_id=str(node),
    )


def seed(terminal: Terminal) -> None:
    """The run with both of its nodes, in the ledger; each has told what it cost by half of that time."""
    run, member = (machine(terminal, node) for node in (0, 1))
    terminal.ledger.add(run, (), [member])
    for row in (member, run):
        at = terminal.clock.now() - HALF / 2
        event = Event(
            run_id=row.id, at=at, phase=Phase.TRAIN, text="half", usd=row.usd_per_hour * HALF / 2 / HOUR
        )
        terminal.ledger.add_event(event)


@pytest.fixture
def seeded(terminal: Terminal) -> Terminal:
    seed(terminal)
    return terminal


def page(terminal: Terminal) -> str:
    file = terminal.folder / "page.html"
    assert terminal.type("report", ID, "--output", str(file)).exit_code == 0
    return " ".join(re.sub(r"<[^>]*>", " ", file.read_text()).split())


TEXTS: dict[str, Callable[[Terminal], str]] = {
    "status": lambda terminal: terminal.type("status").stdout,
    "status of the run": lambda terminal: terminal.type("status", ID).stdout,
    "cost": lambda terminal: terminal.type("cost").stdout,
    "cost of the run": lambda terminal: terminal.type("cost", ID).stdout,
    "report": page,
}


@pytest.mark.parametrize("where", TEXTS)
def test_the_dollars_are_those_of_all_nodes(where: str, seeded: Terminal) -> None:
    said = TEXTS[where](seeded)
    assert BOTH in said, said
    assert OWN not in said, said


@pytest.mark.parametrize("where", ["status of the run", "report"])
def test_it_is_said_that_they_are_of_several_machines(where: str, seeded: Terminal) -> None:
    assert re.search(rf"{re.escape(BOTH)}.* on 2 machines", TEXTS[where](seeded))


def test_the_price_and_the_diary_are_of_all_nodes_too(seeded: Terminal) -> None:
    told = page(seeded)
    assert PRICE in told
    assert "half $1.25" in told
    assert [event["usd"] for event in seeded.document("status", ID)["events"]] == [1.25]


def test_two_runs_are_compared_by_what_all_nodes_cost(seeded: Terminal) -> None:
    other = replace(machine(seeded, 0), id="warm-otter-77aa", usd_per_hour=4.0)
    seeded.ledger.add(other)
    found = {one["key"]: one for one in seeded.document("diff", ID, other.id)["differences"]}
    assert (found["usd"]["one"], found["usd"]["other"]) == (pytest.approx(2.5), pytest.approx(2.0))
    assert (found["usd_per_hour"]["one"], found["usd_per_hour"]["other"]) == (5.0, 4.0)


def test_the_python_api_has_the_sum(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    notebook = Notebook(tmp_path)
    seed(notebook)
    run = Client(notebook.app, notebook._start).run(ID)
    assert (run.status().usd, run.status().usd_per_hour) == (pytest.approx(2.5), 5.0)
    assert (run.result().usd, run.result().cost.usd) == (pytest.approx(2.5), pytest.approx(2.5))
