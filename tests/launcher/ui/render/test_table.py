"""No cell of a spreadsheet is a formula, and numbers stay numbers."""

import pytest

from tests.runs import a_run
from vastrun.launcher.batch.results import PointResult
from vastrun.launcher.core import Phase
from vastrun.launcher.core.batch import BatchObjective, BatchPoint, BatchSpec
from vastrun.launcher.ui.render.batch_results import results_csv
from vastrun.launcher.ui.render.table import csv_cell

FORMULA = '=HYPERLINK("http://x")'


@pytest.mark.parametrize(
    "text", [FORMULA, "+1+1", "-1-1", "@SUM(A1)", " =1", "\t=1", "\r=1", "-", "\uff1d1", "--1"]
)
def test_what_would_be_a_formula_is_quoted(text: str) -> None:
    assert csv_cell(text).startswith("'")


@pytest.mark.parametrize("text", ["", "RTX 4090", "-1", "-1e-05", "+3", "-inf", "a=b", "2026-11-27"])
def test_anything_else_stays_as_it_is(text: str) -> None:
    assert csv_cell(text) == text


def test_values_metrics_and_hosts_of_a_batch_are_no_formulas() -> None:
    values = {"=cell": FORMULA, "lr": -0.5}
    run = a_run(spec_json="", provider="vast", phase=Phase.TRAIN, out_dir="", host="@SUM(A1)")
    point = BatchPoint(id="1f", values=values, spec_json="", number=1)
    row = PointResult(
        point=point, run=run, verdict=None, metric=-0.25, step=0, hours=0.0, usd=0.0, attempts=1
    )
    spec = BatchSpec(name="b", job="job.yaml", objective=BatchObjective(metric="+loss"))
    header, cells = results_csv([row], spec)
    assert dict(zip(header, cells, strict=True)) | {"run": ""} == {
        "point": "1",
        "id": "1f",
        "'=cell": f"'{FORMULA}",
        "lr": "-0.5",
        "verdict": cells[4],
        "'+loss": "-0.25",
        "step": "0",
        "hours": "0.0000",
        "usd": "0.0000",
        "run": "",
        "host": "'@SUM(A1)",
    }


def test_a_cell_ends_no_line_and_steers_nothing() -> None:
    assert csv_cell("RTX\n4090\x1b[31m") == "RTX 4090"
