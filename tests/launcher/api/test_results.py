"""Runs and batches as a program shows them: lines, tables, data frames, the progress."""

import io
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.launcher.api.notebook import JOB, Notebook
from tests.launcher.terminal import CRASH
from vastrun.launcher.api.results import BatchResults, PointRow
from vastrun.launcher.api.runs import RunHandle
from vastrun.launcher.api.session import ApiSession, ProgressLine
from vastrun.launcher.core import Verdict
from vastrun.launcher.core.errors import UsageError


def point(number: int, **values: Any) -> PointRow:
    return PointRow(
        number=number, values=values, verdict=Verdict.SUCCEEDED, cause=None, metric=0.5, step=10, hours=0.1,
        usd=0.25, attempts=1, run="calm-heron-3f1a", outputs=Path("/runs/a"),
    )  # fmt: skip


def test_a_handle_and_a_result_are_a_line(notebook: Notebook) -> None:
    run = notebook.client.launch(JOB)
    assert repr(run).startswith(f"<run {run.id}: plan, step 0")
    assert repr(run.wait()).startswith(f"<result of {run.id}: SUCCEEDED, step 10, $")


def test_a_result_says_why_it_failed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    result = Notebook(tmp_path, CRASH).client.launch(JOB).wait()
    assert "FAILED" in repr(result) and f", {result.cause}: {result.detail}>" in repr(result)


def test_the_results_of_a_batch_are_a_table(notebook: Notebook) -> None:
    results = notebook.client.sweep(JOB, {"train.batch": [4, 8]}, usd=5).wait()
    lines = repr(results).splitlines()
    assert lines[0].split() == ["VALUES", "VERDICT", "METRIC", "STEP", "COST", "RUN"]
    assert [row.run for row in results] == [line.split()[-1] for line in lines[1:]]
    assert lines[1].startswith("batch=") and "SUCCEEDED" in lines[1]


def test_a_handle_of_a_run_that_the_ledger_does_not_have_is_its_name(notebook: Notebook) -> None:
    session = ApiSession(notebook.app, lambda *_: pytest.fail("a launcher was started"))
    assert repr(RunHandle(session, "gone-owl-0a0a")) == "<run gone-owl-0a0a>"


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
        display = ProgressLine(run, terminal, lambda: 0.0)
        display.refresh(at_once=True)
        display.refresh(at_once=True)
        display.close()
        assert terminal.getvalue().count("\r") == 2 and terminal.getvalue().count("\n") == 1


class Tty(io.StringIO):
    """A terminal."""

    def isatty(self) -> bool:
        return True
