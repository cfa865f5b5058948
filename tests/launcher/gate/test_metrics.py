"""What of a box's metrics is a number, a name or a step, at the exact limits."""

import json
import math
from itertools import pairwise

import pytest

from vastrun.launcher.gate import caps, metrics


def line(**values: object) -> bytes:
    return json.dumps(values).encode()


@pytest.mark.parametrize(
    ("value", "number"),
    [
        (0, 0.0),
        (-3, -3.0),
        (2.5, 2.5),
        (caps.LOSS, 1e30),
        (-caps.LOSS, -1e30),
        (1.1e30, None),
        (-1.1e30, None),
        (caps.MIN_LOSS, 1e-30),
        (-caps.MIN_LOSS, -1e-30),
        (0.9e-30, 0.0),
        (-0.9e-30, 0.0),
        (math.nan, None),
        (math.inf, None),
        (-math.inf, None),
        (True, None),
        ("1", None),
        (None, None),
        ([1.0], None),
    ],
)
def test_a_number_is_finite_and_within_the_limits(value: object, number: float | None) -> None:
    assert metrics.parse_number(value) == number


@pytest.mark.parametrize(
    ("step", "is_one"),
    [
        (0, True),
        (1, True),
        (caps.STEPS, True),
        (caps.STEPS + 1, False),
        (-1, False),
        (1.0, False),
        (True, False),
        ("1", False),
    ],
)
def test_a_step_is_a_whole_number_within_the_limits(step: object, is_one: bool) -> None:
    said = line(step=step, loss=2.0)
    assert [one.points for one in metrics.parse_series([said])] == ([((step, 2.0),)] if is_one else [])
    assert metrics.parse_records([said]) == ([{"step": step, "loss": 2.0}] if is_one else [])
    assert metrics.parse_point(said, "loss") == ((step, 2.0) if is_one else None)


@pytest.mark.slow
def test_of_too_many_values_lines_are_left_out_evenly_and_never_the_last_one() -> None:
    count = caps.METRICS_VALUES
    lines = (
        line(step=n, loss=1.0, **({"validation_loss": 2.0} if n % 10 == 0 else {})) for n in range(count)
    )
    found = metrics.parse_records(lines)
    steps = [int(one["step"]) for one in found]
    assert sum(map(len, found)) <= caps.METRICS_VALUES + 3
    assert steps == sorted(set(steps)) and steps[-1] == count - 1
    assert max(after - one for one, after in pairwise(steps)) < 20
    assert 0.09 < sum("validation_loss" in one for one in found) / len(found) < 0.11


def test_names_beyond_the_first_thousand_are_left_out() -> None:
    (record,) = metrics.parse_records([line(step=1, **{f"n{n}": 0.5 for n in range(caps.METRICS_NAMES + 5)})])
    assert list(record)[-1] == f"n{caps.METRICS_NAMES - 1}"


@pytest.mark.parametrize(
    ("number", "size"),
    [
        (metrics.SERIES_POINTS, 1),
        (metrics.SERIES_POINTS + 1, 2),
        (2 * metrics.SERIES_POINTS, 2),
        (2 * metrics.SERIES_POINTS + 1, 3),
    ],
)
def test_more_values_than_points_are_averaged_in_groups(number: int, size: int) -> None:
    (loss,) = metrics.parse_series(line(step=step, loss=float(step)) for step in range(number))
    assert loss.averaged == size
    assert len(loss.points) == math.ceil(number / size)
    assert loss.points[0] == ((size - 1) / 2, (size - 1) / 2)


def test_steps_are_in_order_and_of_many_that_diverged_some_are_shown() -> None:
    lost = [line(step=step, loss=math.nan) for step in reversed(range(2 * metrics.SERIES_POINTS))]
    (loss,) = metrics.parse_series([line(step=3000, loss=1.0), line(step=2000, loss=5.0), *lost])
    assert loss.points == ((2000.0, 5.0), (3000.0, 1.0))
    assert loss.lost == tuple(range(0, 2 * metrics.SERIES_POINTS, 2))
    (few,) = metrics.parse_series([line(step=3000, loss=1.0), *lost[: metrics.SERIES_POINTS]])
    assert len(few.lost) == metrics.SERIES_POINTS


def test_a_record_has_each_name_that_may_be_shown_and_each_number() -> None:
    said = line(loss=1.0, step=4, note="text", **{"bad\x1bname": 1.0, "x": math.nan})
    assert metrics.parse_records([said]) == [{"step": 4, "loss": 1.0}]


@pytest.mark.parametrize(
    ("name", "shown"),
    [("loss", True), ("a\nb", False), ("\x1b[2J", False), ("x" * 255, True), ("x" * 256, False)],
)
def test_a_name_is_printable_and_short(name: str, shown: bool) -> None:
    assert metrics.is_printable_name(name) is shown


def test_a_value_that_is_told_and_no_number_is_nan_and_one_that_is_not_told_is_none() -> None:
    said = metrics.parse_point(line(step=7, loss="diverged"), "loss")
    assert said is not None and said[0] == 7 and math.isnan(said[1])
    assert metrics.parse_point(line(step=7, loss=1.0), "accuracy") is None
    assert metrics.parse_point(line(step=7, accuracy=0.5), "accuracy") == (7, 0.5)


def test_a_name_whose_last_value_is_no_finite_number_is_lost() -> None:
    lines = [b'{"step": 1, "loss": null, "lr": 1}', b"nonsense", b'{"step": 2, "loss": 2, "lr": NaN}']
    assert metrics.lost_names(lines) == ("lr",)
    assert metrics.lost_names([*lines, b'{"step": 3, "loss": null, "\\u001b": null}']) == ("loss", "lr")


def test_a_line_is_read_up_to_its_longest_length_and_must_be_an_object() -> None:
    room = caps.LINE_CHARACTERS - len(b'{"a": ""}')
    assert metrics.parse_record(b'{"a": "' + b"x" * room + b'"}') == {"a": "x" * room}
    assert metrics.parse_record(b'{"a": "' + b"x" * (room + 1) + b'"}') == {}
    for broken in (b"", b"[1]", b"3", b"null", b"{", b"\xff", b"[" * 60_000):
        assert metrics.parse_record(broken) == {}


def series(*records: object, names: set[str] | None = None) -> dict[str, metrics.Series]:
    found = metrics.parse_series([json.dumps(record).encode() for record in records], names)
    return {one.name: one for one in found}


def test_each_number_is_a_series_by_its_name() -> None:
    found = series({"step": 1, "loss": 2.0, "lr": 1, "at": 5.0}, {"step": 2, "loss": 1.0, "note": "x"})
    assert set(found) == {"loss", "lr"}
    assert found["loss"].points == ((1.0, 2.0), (2.0, 1.0))
    assert (found["loss"].last, found["loss"].min, found["loss"].max) == (1.0, 1.0, 2.0)


def test_many_values_become_means_and_the_numbers_beside_them_stay_exact() -> None:
    found = series(*({"step": step, "loss": 9.0 if step == 500 else 1.0} for step in range(1000)))["loss"]
    assert len(found.points) <= metrics.SERIES_POINTS
    assert (found.averaged, found.max) == (5, 9.0)
    assert max(value for _, value in found.points) < 3.0


def test_what_was_told_last_of_a_step_counts_after_a_restart() -> None:
    found = series({"step": 1, "loss": 3}, {"step": 2, "loss": 9}, {"step": 2, "loss": 2})["loss"]
    assert found.points == ((1.0, 3.0), (2.0, 2.0))


def test_only_so_many_names_are_taken_and_none_that_no_page_should_show() -> None:
    assert len(series({"step": 1} | {f"n{n}": n for n in range(500)})) == caps.SERIES
    assert not series({"step": 1, "\x1b[2J": 1, "x" * 300: 1})
    assert set(series({"step": 1, "loss": 1, "lr": 2}, names={"lr"})) == {"lr"}


def test_lines_that_are_none_are_passed_over() -> None:
    lines = [b"[1]", b"{", b'{"step": -1, "loss": 1}', b'{"step": true, "loss": 1}', b'{"loss": 1}', b"\xff"]
    assert metrics.parse_series(lines) == ()
