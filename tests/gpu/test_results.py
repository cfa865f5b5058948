"""What the checks found is written as one JSON and one table; of a CPU nothing is claimed."""

import json
import math
from pathlib import Path

import pytest

from benchmarks.figures import max_limit, min_limit
from tests.gpu.check import Check, Figure, Place, Result, Seen, State, concluded
from tests.gpu.results import Report, as_json, placed, read, table, without, write


def _nothing(place: Place, folder: Path) -> Seen:
    return Seen()


def _result(*figures: Figure, text: str = "") -> Result:
    check = Check(text="losses in fp32", run=_nothing, expected_s=10)
    return concluded("fp32", check, Seen(text=text, figures=figures), 2.0)


NEAR = Figure(name="ddp x2", value=1.16e-7, unit="off", limit=max_limit(1e-3))
FAR = Figure(name="fsdp2 x2", value=0.5, unit="off", limit=max_limit(1e-3))
ABSENT = Figure(name="single", value=math.nan, unit="steps/s", limit=min_limit(1.0))
NOT_RUN = Result(name="hang", text="a hang | in NCCL", state=State.NOT_RUN, why="needs 2 GPUs, here is 1")
LEFT = Result(name="mfu", text="a large model", state=State.LEFT, why="takes about 60 s")
FAILED = Result(name="muon", text="losses with Muon", state=State.FAILED, why="Traceback\nValueError: 3")


def _report(*results: Result, gpus: int = 2) -> Report:
    return Report(machine="on 2 NVIDIA H100", gpus=gpus, results=results)


def test_a_check_whose_figure_misses_its_limit_has_failed() -> None:
    assert _result(NEAR).state is State.PASSED
    missed = _result(NEAR, FAR)
    assert (missed.state, missed.why) == (State.FAILED, "fsdp2 x2 0.5 off (limit: at most 0.001)")
    assert _result(ABSENT).state is State.FAILED


def test_the_table_has_a_row_for_each_figure_and_says_what_failed_or_was_not_run() -> None:
    text = table(
        [_report(_result(NEAR, FAR, text="of two"), _result(text="all well"), NOT_RUN, LEFT, FAILED)]
    )
    assert text.splitlines() == [
        "On 2 NVIDIA H100:",
        "",
        "| on GPUs | found | limit |",
        "|---|---|---|",
        "| losses in fp32 | ddp x2 1.16e-07 off | at most 0.001 |",
        "| … | **missed**: fsdp2 x2 0.5 off | at most 0.001 |",
        "| … | of two | - |",
        "| losses in fp32 | all well | - |",
        "| a hang / in NCCL | not run: needs 2 GPUs, here is 1 | - |",
        "| a large model | not run: takes about 60 s | - |",
        "| losses with Muon | **failed**: ValueError: 3 | - |",
    ]


def test_the_json_has_all_of_it_and_no_number_that_json_has_not() -> None:
    (record,) = json.loads(as_json([_report(_result(NEAR, ABSENT), NOT_RUN)]))["runs"]
    assert (record["gpus"], record["seconds"]) == (2, 2.0)
    measured, not_run = record["checks"]
    assert [(one["value"], one["holds"]) for one in measured["figures"]] == [(1.16e-7, True), (None, False)]
    assert (not_run["state"], not_run["why"]) == ("not run", "needs 2 GPUs, here is 1")


def test_the_table_takes_the_place_between_the_marks_of_a_page() -> None:
    page = "before\n<!-- gpu: begin -->\nold\n<!-- gpu: end -->\nafter\n"
    assert placed(page, "new") == "before\n<!-- gpu: begin -->\nnew\n<!-- gpu: end -->\nafter\n"
    with pytest.raises(ValueError, match="the page has no"):
        placed("before", "new")


def test_the_page_of_benchmarks_has_the_marks() -> None:
    page = Path(__file__).parents[2] / "docs/benchmarks.md"
    assert "| on GPUs |" in placed(page.read_text(encoding="utf-8"), table([_report(NOT_RUN)]))


def test_a_later_call_keeps_what_earlier_ones_found_and_did_not_do_again(tmp_path: Path) -> None:
    first = _report(_result(NEAR, ABSENT, text="seen"), LEFT, NOT_RUN, FAILED)
    write(tmp_path, [first])
    (earlier,) = without(read(tmp_path), {"mfu", "muon"})
    assert [result.name for result in earlier.results] == ["fp32", "hang"]
    assert as_json([earlier]) == as_json([_report(_result(NEAR, ABSENT, text="seen"), NOT_RUN)])
    assert without(read(tmp_path), {"fp32", "mfu", "hang", "muon"}) == []
    assert (tmp_path / "table.md").read_text() == table([first]) + "\n"
