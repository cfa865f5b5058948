"""`report` and `diff` as a user types them."""

import json
import shutil
from pathlib import Path

import pytest

from tests.fakebox import Training
from tests.launcher.desk import Desk
from tests.launcher.terminal import CRASH, Terminal
from tests.launcher.ui.report.reading import assert_sound
from vastrun.contract import layout
from vastrun.launcher.app import App
from vastrun.launcher.core import Run
from vastrun.launcher.outputs.store import FolderStore
from vastrun.launcher.ui.render.index import index_of

METRICS = b'{"step": 1, "loss": 2.0}\n{"step": 2, "loss": 1.0}\n'
RICH = Training(leaves={layout.METRICS: METRICS})


def test_the_page_of_a_run_lies_beside_its_outputs_and_its_place_is_printed(terminal: Terminal) -> None:
    terminal.launch()
    file = terminal.folder / "out" / "report.html"
    file.unlink()
    result = terminal.type("report", "last")
    assert (result.exit_code, result.stdout, result.stderr) == (0, f"{file}\n", "")
    assert_sound(file.read_text())
    assert terminal.browsed == []


def test_the_page_may_lie_elsewhere_and_be_shown_at_once(terminal: Terminal) -> None:
    terminal.launch()
    file = terminal.folder / "page.html"
    document = terminal.document("report", "last", "--open", "--output", str(file))
    assert document == {"schema_version": 1, "file": str(file), "bytes": file.stat().st_size}
    assert terminal.browsed == [file.as_uri()]


def test_without_a_browser_it_is_said_where_the_page_is(terminal: Terminal) -> None:
    terminal.launch()
    terminal.has_browser = False
    result = terminal.type("report", "last", "--open")
    assert result.exit_code == 0
    assert "cannot find a browser; open" in result.stderr


def test_a_run_whose_outputs_are_gone_has_its_page_here(
    terminal: Terminal, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    terminal.launch()
    shutil.rmtree(tmp_path / "out")
    monkeypatch.chdir(tmp_path)
    result = terminal.type("report", "last")
    assert result.stdout == f"{terminal.ledger.runs()[0].id}.html\n"
    assert_sound((tmp_path / result.stdout.strip()).read_text())


def test_what_is_neither_a_run_nor_a_batch_is_told(desk: Desk) -> None:
    result = desk.type("report", "nothing")
    assert (result.exit_code, "there are no runs yet" in result.stderr) == (2, True)
    desk.submit()
    result = desk.type("report", "nothing")
    assert result.exit_code == 2
    assert "and no batch either" in result.stderr


def test_a_page_that_cannot_be_written_is_an_error_of_this_computer(terminal: Terminal) -> None:
    terminal.launch()
    result = terminal.type("report", "last", "--output", str(terminal.folder / "no" / "such" / "page.html"))
    assert result.exit_code == 1
    assert "cannot write to" in result.stderr


def test_a_page_with_a_fault_changes_nothing_about_the_end_of_a_run(tmp_path: Path) -> None:
    class Faulty(Terminal):
        def app(self) -> App:
            return super().app().with_changes(output_store=lambda: FolderStore(index=index_of, report=broken))

    def broken(run: Run, now: float) -> str:
        raise KeyError("a bug in the page")

    terminal = Faulty(tmp_path)
    end = terminal.launch()
    assert end.exit_code == 0
    assert "report.html cannot be made: KeyError" in end.stderr
    assert terminal.ledger.runs()[0].verdict == "SUCCEEDED"
    assert (tmp_path / "out" / "README.md").is_file()


def test_a_difference_is_a_line(tmp_path: Path) -> None:
    terminal = Terminal(tmp_path, RICH, CRASH)
    terminal.launch()
    one = terminal.ledger.runs()[0].id
    terminal.launch("--set", "train.batch=16")
    other = terminal.ledger.runs()[0].id
    told = [line.split() for line in terminal.type("diff", one, other).stdout.splitlines()]
    assert told[0] == ["PART", "KEY", one, other, "CHANGE"]
    assert ["job", "train.batch", "8", "16", "+100.0%"] in told
    assert ["end", "verdict", "SUCCEEDED", "FAILED"] in told
    assert ["metrics", "loss", "1", "0.1", "-90.0%"] in told
    document = terminal.document("diff", one, other)
    assert document["runs"] == [one, other]
    batch = next(each for each in document["differences"] if each["key"] == "train.batch")
    assert batch == {"section": "job", "key": "train.batch", "one": 8, "other": 16, "change": 1.0}


def test_a_run_and_itself_differ_in_nothing(terminal: Terminal) -> None:
    terminal.launch()
    result = terminal.type("diff", "last", "last")
    assert (result.exit_code, "do not differ" in result.stdout) == (0, True)
    assert json.loads(terminal.type("diff", "last", "last", "--json").stdout)["differences"] == []


def test_batch_leaves_its_page_beside_the_outputs_of_its_runs_and_no_commit_takes_it(tmp_path: Path) -> None:
    desk = Desk(tmp_path, CRASH, Training())
    code, _, err = desk.submit()
    file = tmp_path / "out" / "report.html"
    assert code == 5 and f"report: {file}" in err
    links = [link["href"] for link in assert_sound(file.read_text()).of("a")]
    assert len(links) == 6 and all((file.parent / str(link)).is_file() for link in links)
    assert (file.parent / ".gitignore").read_text() == "*\n"
    before = file.read_text()
    file.unlink()
    assert desk.type("report", "widths").stdout == f"{file}\n"
    assert file.read_text().partition("<script")[0].count("FAILED")
    assert desk.type("batch", "retry", "widths").exit_code == 0
    assert "FAILED" in before and "FAILED" not in file.read_text().partition("<script")[0]


@pytest.mark.slow
def test_a_page_of_a_batch_that_cannot_be_written_is_told_and_changes_nothing_else(desk: Desk) -> None:
    (desk.folder / "out").mkdir()
    desk.at(1.0, lambda: (desk.folder / "out" / "report.html").mkdir())
    code, _, err = desk.submit()
    assert code == 0
    assert "the report of the batch was not written: cannot write to" in err
