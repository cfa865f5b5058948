"""The picture of the loss: from the metrics of any box to an SVG that any viewer takes."""

from __future__ import annotations

import json
import math
import re
from pathlib import Path
from xml.etree import ElementTree

import pytest

from launcher.gate import caps
from launcher.gate.metrics import POINTS, Curve, curves_of
from launcher.ui.render.curve import loss_picture


def curves(*records: object) -> tuple[Curve, ...]:
    return curves_of(json.dumps(record).encode() + b"\n" for record in records)


def drawn(*records: object, title: str = "job: loss", below: str = "run calm-heron: SUCCEEDED") -> str:
    """The picture, which is well-formed, small, and has all its lines on the paper."""
    text = loss_picture(title, below, curves(*records))
    if text:
        ElementTree.fromstring(text)
        assert len(text) < 100_000
        for points in re.findall(r'points="([^"]*)"', text):
            for across, down in (pair.split(",") for pair in points.split()):
                assert 0 <= float(across) <= 800
                assert 0 <= float(down) <= 450
    return text


def labels(picture: str) -> list[str]:
    return [part.text or "" for part in ElementTree.fromstring(picture).iter() if part.tag.endswith("text")]


def test_a_picture_says_what_it_shows() -> None:
    losses = [{"step": step, "loss": 2.0 / step} for step in range(1, 101)]
    picture = drawn(*losses, {"step": 50, "validation_nrmse": 0.5}, {"step": 100, "validation_nrmse": 0.3})
    assert {"job: loss", "run calm-heron: SUCCEEDED", "training loss", "validation nRMSE"} <= {
        *labels(picture)
    }
    assert {"step", "loss (logarithmic)", "20", "100", "0.1", "1"} <= {*labels(picture)}


def test_losses_of_one_size_have_an_even_axis() -> None:
    assert {"loss", "0.5", "0.6"} <= {*labels(drawn({"step": 0, "loss": 0.5}, {"step": 9, "loss": 0.6}))}


def test_of_many_values_means_are_drawn_and_it_is_said() -> None:
    (curve,) = curves(*({"step": step, "loss": float(step % 2)} for step in range(10 * POINTS)))
    assert (len(curve.points), curve.averaged) == (POINTS, 10)
    assert curve.points[0] == (4.5, 0.5)
    assert "training loss, mean of 10 values each" in labels(loss_picture("", "", (curve,)))


def test_steps_whose_loss_is_no_number_are_marked() -> None:
    picture = drawn({"step": 1, "loss": 2.0}, {"step": 2, "loss": None}, {"step": 3, "loss": math.nan})
    assert "training loss, x: not finite" in labels(picture)
    assert picture.count("<path") == 2


def test_a_step_that_was_done_again_counts_as_it_was_last() -> None:
    (curve,) = curves({"step": 2, "loss": 9.0}, {"step": 1, "loss": 2.0}, {"step": 2, "loss": 1.0})
    assert curve.points == ((1, 2.0), (2, 1.0))


@pytest.mark.parametrize(
    "values",
    [
        (0.0,),
        (0.0, 5e-324),
        (1.0, 1.0 + 1e-15),
        (-3.0, -3.0, 1e-30),
        (caps.LOSS, -caps.LOSS),
        (caps.LOSS, caps.LEAST_LOSS),
        (1e300, 1.0, -1e300),
        (10**400, 2.0),
        (math.inf, -math.inf, 2.0),
        (7,),
    ],
)
def test_whatever_the_values_are_they_are_on_the_paper(values: tuple[float, ...]) -> None:
    assert "<polyline" in drawn(*({"step": step, "loss": value} for step, value in enumerate(values)))
    assert "<polyline" in drawn(*({"step": 10**15 - n, "loss": value} for n, value in enumerate(values)))


@pytest.mark.parametrize(
    "record",
    [
        *([], 3, None, "x", {}, {"step": 1}, {"loss": 1.0}, {"step": "1", "loss": 1.0}),
        *({"step": True, "loss": 1.0}, {"step": 1.5, "loss": 1.0}, {"step": -1, "loss": 1.0}),
        *({"step": 10**30, "loss": 1.0}, {"step": 1, "loss": "low"}, {"step": 1, "loss": True}),
        {"step": 1, "loss": None},
    ],
)
def test_without_a_value_there_is_no_picture(record: object) -> None:
    assert drawn(record) == ""


def test_lines_that_are_no_json_are_passed_over() -> None:
    lines = [b"{", b"[" * 60_000, b"\xff", b"9" * 5000, b'{"step": 1, "loss": ' + b" " * 70_000 + b"1}"]
    assert curves_of(lines) == ()


def test_no_text_becomes_a_part_of_the_picture() -> None:
    evil = '</title><script>alert(1)</script>&"\x1b[2J\u202e' + "x" * 1000
    picture = drawn({"step": 1, "loss": 1.0}, title=evil, below=evil)
    assert "<script" not in picture
    assert "\x1b" not in picture
    assert "\u202e" not in picture
    assert max(map(len, labels(picture))) <= 80


def test_it_is_readable_on_light_and_on_dark_pages(tmp_path: Path) -> None:
    picture = drawn({"step": 1, "loss": 1.0})
    assert '<rect class="paper" width="800" height="450" rx="6" fill="#ffffff"/>' in picture
    assert "@media (prefers-color-scheme:dark)" in picture
