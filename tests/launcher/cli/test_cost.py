"""`cost --by`: what runs cost together."""

import csv
import io
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from tests.launcher.cli.three_runs import changed, runs, three_runs
from tests.launcher.terminal import Terminal
from vastrun.launcher.cost.groups import GroupBy


@pytest.fixture
def terminal(tmp_path: Path) -> Terminal:
    return three_runs(tmp_path)


@pytest.fixture(scope="module")
def read(tmp_path_factory: pytest.TempPathFactory) -> Terminal:
    """For all tests of this file that only read."""
    return three_runs(tmp_path_factory.mktemp("runs"))


@pytest.mark.parametrize("by", GroupBy)
def test_what_is_added_up_is_what_the_runs_cost(read: Terminal, by: GroupBy) -> None:
    document = read.document("cost", "--by", by.value)
    total = document["total"]
    assert document["by"] == by
    assert total["usd"] == pytest.approx(read.document("cost")["usd"])
    assert (total["runs"], total["finished"]) == (3, 1)
    for parts in (("gpu_usd", "storage_usd", "traffic_usd"), ("training_usd", "idle_usd", "failed_usd")):
        assert sum(total[part] for part in parts) == pytest.approx(total["usd"])
    summed = sum(group["usd"] for group in document["groups"])
    twice = read.document("cost", runs(read)[0].id)["usd"] if by is GroupBy.TAG else 0.0
    assert summed == pytest.approx(total["usd"] + twice)


def test_what_was_spent_lately_leaves_out_what_was_spent_before(read: Terminal) -> None:
    lately = read.document("cost", "--since", "30m")
    assert [group["key"] for group in lately["groups"]] == [runs(read)[2].id]
    assert lately["total"]["usd"] == pytest.approx(1.8)
    before = read.document("cost", "--until", "30m")
    everything = read.document("cost", "--by", "run")
    assert lately["total"]["usd"] + before["total"]["usd"] == pytest.approx(everything["total"]["usd"])
    assert (lately["since"], lately["until"]) == (read.clock.now() - 1800, None)
    assert read.type("cost", "--until", "2020-01").stdout == "no runs in that time\n"


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--since", "soon"], "--since: expected a day like 2026-11-01, a month like 2026-11, today"),
        (["--until", "2026-02-30"], "--until: expected a day like 2026-11-01"),
        (["--since", "1h", "--until", "2h"], "--since is not before --until"),
        (["--by", "colour"], "--by: 'colour' is not one of 'run', 'batch', 'job', 'host'"),
        (["--csv", "--json"], "--json and --csv exclude each other"),
    ],
)
def test_unanswerable_questions_are_one_error(read: Terminal, options: Sequence[str], said: str) -> None:
    end = read.type("cost", *options)
    assert (end.exit_code, end.stdout) == (2, "")
    assert end.stderr.startswith(f"error: {said}")
    assert end.stderr.count("error:") == 1


def test_the_numbers_for_a_spreadsheet_are_those_of_the_document(read: Terminal) -> None:
    rows = list(csv.DictReader(io.StringIO(read.type("cost", "--by", "job", "--csv").stdout)))
    groups = read.document("cost", "--by", "job")["groups"]
    assert [row["job"] for row in rows] == [group["key"] for group in groups] == ["demo", "other"]
    for row, group in zip(rows, groups, strict=True):
        for name in ("usd", "idle_usd", "failed_usd", "gpu_hours", "runs", "finished"):
            assert float(row[name]) == group[name]
    assert rows[1]["usd_per_run"] == ""


def test_no_cell_of_a_spreadsheet_is_a_formula_or_ends_its_line(terminal: Terminal) -> None:
    good, bad, _ = runs(terminal)
    assert good.offer is not None
    changed(terminal, good, offer=replace(good.offer, gpu_name='=HYPERLINK("http://x")'))
    changed(terminal, bad, offer=replace(good.offer, gpu_name="RTX\n4090,1"))
    names = [
        row["gpu"]
        for row in csv.DictReader(io.StringIO(terminal.type("cost", "--by", "gpu", "--csv").stdout))
    ]
    assert set(names) == {"RTX 4090", '\'=HYPERLINK("http://x")', "RTX 4090,1"}


def test_without_runs_it_says_so(tmp_path: Path) -> None:
    assert Terminal(tmp_path).type("cost", "--by", "job").stdout == "no runs yet\n"
    assert Terminal(tmp_path).document("cost", "--by", "job")["groups"] == []
