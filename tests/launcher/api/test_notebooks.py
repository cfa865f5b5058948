"""Runs and batches as a notebook shows them: cards, tables, data frames, a live display."""

import io
import re
import sys
from html.parser import HTMLParser
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from tests.hostile.lie import MARKUP, STEERING
from tests.launcher.api.notebook import JOB, Notebook
from tests.launcher.terminal import CRASH
from vastrun.launcher.api.results import BatchResults, PointRow
from vastrun.launcher.api.runs import RunHandle
from vastrun.launcher.api.session import ApiSession, NotebookDisplay, TerminalDisplay
from vastrun.launcher.core import Verdict
from vastrun.launcher.core.errors import UsageError
from vastrun.launcher.ui.render.notebook import card, curve, table


class Elements(HTMLParser):
    """The elements of a text, each closed, and their attributes."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.names: set[str] = set()
        self.attributes: set[str] = set()
        self.shown = ""
        self._open: list[str] = []
        self.feed(html)
        self.close()
        assert self._open == [], self._open

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.names.add(tag)
        self.attributes |= {name for name, _ in attrs}
        if not (self.get_starttag_text() or "").endswith("/>"):
            self._open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.names.add(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self._open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.shown += data


def point(number: int, **values: Any) -> PointRow:
    return PointRow(
        number=number, values=values, verdict=Verdict.SUCCEEDED, cause=None, metric=0.5, step=10, hours=0.1,
        usd=0.25, attempts=1, run="calm-heron-3f1a", outputs=Path("/runs/a"),
    )  # fmt: skip


def test_a_run_is_a_card_with_state_curve_and_dollars(notebook: Notebook) -> None:
    run = notebook.client.launch(JOB)
    assert "plan" in Elements(run._repr_html_()).shown
    run.wait()
    ended = Elements(run._repr_html_())
    assert f"run {run.id}" in ended.shown and "SUCCEEDED" in ended.shown
    assert "step 10 of 10" in ended.shown
    assert re.search(r"cost \$0\.\d\d\d", ended.shown)
    assert {"svg", "polyline"} <= ended.names
    assert len(run._repr_html_()) < 5000


def test_a_result_is_a_card_with_its_cause_and_its_outputs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    notebook = Notebook(tmp_path, CRASH)
    result = notebook.client.launch(JOB).wait()
    shown = Elements(result._repr_html_()).shown
    assert "FAILED" in shown and "SIGSEGV" in shown and str(result.outputs) in shown


def test_a_batch_is_a_card_with_its_table(notebook: Notebook) -> None:
    batch = notebook.client.sweep(JOB, {"train.batch": [4, 8]}, usd=5)
    results = batch.wait()
    shown = Elements(batch._repr_html_()).shown
    assert "2 of 2 ended" in shown and "of $5.00" in shown and "train.batch" in shown
    assert all(str(row.run) in shown for row in results)
    assert "train.batch" in Elements(results._repr_html_()).shown
    assert results == [*results] and isinstance(batch.results(), BatchResults)


def test_a_handle_of_a_run_that_the_ledger_does_not_have_is_its_name(notebook: Notebook) -> None:
    session = ApiSession(notebook.app, lambda *_: pytest.fail("a launcher was started"))
    assert Elements(RunHandle(session, "gone-owl-0a0a")._repr_html_()).shown == "<run gone-owl-0a0a>"


@pytest.mark.parametrize("lie", [MARKUP, STEERING, "x" * 100_000, '" onload="alert(1)'], ids=range(4))
def test_what_a_machine_says_is_text_and_short(lie: str) -> None:
    html = (
        card(lie, lie, "bad", {lie: lie}, curve(lie, [(1, 2.0), (2, 1.0)]))
        + table([lie], [[lie]])
        + BatchResults([point(1, **{lie: lie})])._repr_html_()
    )
    seen = Elements(html)
    allowed = {"div", "b", "span", "svg", "polyline", "table", "thead", "tbody", "tr", "th", "td"}
    assert seen.names <= allowed
    assert not any(name.startswith("on") or name in ("src", "href") for name in seen.attributes)
    assert "\x1b" not in html and "\u202e" not in html
    assert len(html) < 20_000


def test_a_curve_leaves_out_what_is_no_number_and_stays_small() -> None:
    assert curve("loss", [(1, 2.0)]) == curve("loss", [(1, 2.0), (2, float("nan"))]) == ""
    picture = curve("loss", [(step, 1 / step) for step in range(1, 100_001)])
    assert len(picture) < 3000
    assert "loss 1 to 1e-05, step 1 to 100,000" in Elements(picture).shown


def test_a_long_table_says_how_much_is_left_out() -> None:
    assert "150 more" in Elements(BatchResults(point(n, lr=n) for n in range(200))._repr_html_()).shown


class TestDataFrames:
    """Made by pandas."""

    def test_metrics_are_a_row_for_each_step(self, notebook: Notebook) -> None:
        pytest.importorskip("pandas")
        run = notebook.client.launch(JOB)
        assert [*run.to_dataframe().columns] == ["step"]
        run.wait()
        frame = run.to_dataframe()
        assert len(frame) == len(run.metrics()) > 0
        assert frame.iloc[-1]["loss"] == run.metrics()[-1]["loss"]

    def test_each_value_of_a_point_is_a_column(self) -> None:
        pytest.importorskip("pandas")
        frame = BatchResults([point(1, lr=0.1, step=5), point(2, lr=0.2)]).to_dataframe()
        assert [*frame["lr"]] == [0.1, 0.2]
        assert [*frame["step"]] == [10, 10] and frame["values.step"][0] == 5
        assert frame["verdict"][0] == "SUCCEEDED" and frame["outputs"][0] == "/runs/a"
        assert "verdict" in BatchResults().to_dataframe().columns

    def test_without_pandas_the_error_says_what_to_install(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setitem(sys.modules, "pandas", None)
        with pytest.raises(UsageError, match="pandas is not installed") as caught:
            BatchResults().to_dataframe()
        assert "pip install" in caught.value.hint


class TestLiveDisplay:
    """What a program sees while it waits."""

    def test_a_script_prints_a_line_and_gets_the_result(
        self, notebook: Notebook, capsys: pytest.CaptureFixture[str]
    ) -> None:
        run = notebook.client.launch(JOB)
        assert run.watch() == run.result()
        printed = capsys.readouterr()
        assert printed.out == ""
        last = printed.err.splitlines()[-1]
        assert run.id in last and "SUCCEEDED" in last and "step 10 of 10" in last and "\x1b" not in last

    def test_a_batch_counts_its_points(self, notebook: Notebook, capsys: pytest.CaptureFixture[str]) -> None:
        batch = notebook.client.sweep(JOB, {"train.batch": [4, 8]}, usd=5)
        assert batch.watch() == batch.results()
        assert "2 of 2 ended" in capsys.readouterr().err.splitlines()[-1]

    def test_a_terminal_keeps_one_line(self, notebook: Notebook) -> None:
        run, terminal = notebook.client.launch(JOB), Tty()
        display = TerminalDisplay(run, terminal)
        display.refresh()
        display.refresh()
        display.close()
        assert terminal.getvalue().count("\r") == 2 and terminal.getvalue().count("\n") == 1

    def test_a_notebook_replaces_one_card(self, notebook: Notebook, monkeypatch: pytest.MonkeyPatch) -> None:
        shown: list[str] = []
        ipython, display = ModuleType("IPython"), ModuleType("IPython.display")
        shell = SimpleNamespace(kernel=object())
        handle = SimpleNamespace(update=lambda html: shown.append(f"again {html}"))
        ipython.get_ipython = lambda: shell  # type: ignore[attr-defined]
        display.HTML = str  # type: ignore[attr-defined]
        display.display = lambda html, display_id: (shown.append(html), handle)[1]  # type: ignore[attr-defined]
        monkeypatch.setitem(sys.modules, "IPython", ipython)
        monkeypatch.setitem(sys.modules, "IPython.display", display)
        run = notebook.client.launch(JOB)
        run.watch()
        assert shown[0].startswith("<div") and all(text.startswith("again <div") for text in shown[1:])
        assert "SUCCEEDED" in shown[-1]
        assert NotebookDisplay.interval_s == 1.0


class Tty(io.StringIO):
    """A terminal."""

    def isatty(self) -> bool:
        return True
