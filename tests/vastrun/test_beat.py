"""beat(): what the supervisor and the curves read is what the program said."""

import json
from pathlib import Path

import pytest

from vastrun import beat
from vastrun.contract import layout
from vastrun.contract.reports import read_beat


@pytest.fixture
def box(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("VASTRUN_RUN", str(tmp_path / layout.RUN))
    monkeypatch.setenv("RANK", "0")
    return tmp_path


def test_the_supervisor_reads_the_last_beat(box: Path) -> None:
    for step in range(12):
        beat(step)
    beat(11, "checkpoint")
    heard = read_beat(box / layout.HEARTBEATS / "rank-0")
    assert heard is not None
    assert (heard.step, heard.activity) == (11, "checkpoint")


def test_what_rank_0_measured_becomes_lines_of_metrics(box: Path) -> None:
    torch = pytest.importorskip("torch")
    beat(1)
    beat(2, loss=torch.tensor([0.5], requires_grad=True), lr=1)
    beat(3, loss=float("nan"))
    first, second = (box / layout.METRICS).read_text().splitlines()
    assert json.loads(first) == {"step": 2, "loss": 0.5, "lr": 1.0}
    assert second == '{"step": 3, "loss": NaN}'


def test_another_rank_beats_and_reads_no_measurement(box: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RANK", "3")
    beat(2, loss="not read")  # type: ignore[arg-type]
    assert read_beat(box / layout.HEARTBEATS / "rank-3") is not None
    assert not (box / layout.METRICS).exists()


def test_outside_a_run_nothing_happens(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("VASTRUN_RUN", raising=False)
    monkeypatch.chdir(tmp_path)
    beat(1, loss=0.5)
    assert list(tmp_path.iterdir()) == []


def test_a_activity_that_there_is_not_is_an_error_that_names_those_there_are(box: Path) -> None:
    with pytest.raises(ValueError, match="unknown activity 'my activity'; use one of step, data,"):
        beat(1, "my activity")  # type: ignore[arg-type]


@pytest.mark.parametrize("value", ["much", [0.5, 0.4], None])
def test_a_metric_that_is_no_number_is_an_error(box: Path, value: object) -> None:
    with pytest.raises((TypeError, ValueError)):
        beat(1, loss=value)  # type: ignore[arg-type]
