"""Every quantity that a box's metrics tell of."""

from __future__ import annotations

import json

from vastrun.launcher.gate import caps
from vastrun.launcher.gate.series import POINTS, Series, parse_series


def series(*records: object, names: set[str] | None = None) -> dict[str, Series]:
    found = parse_series([json.dumps(record).encode() for record in records], names)
    return {one.name: one for one in found}


def test_each_number_is_a_series_by_its_name() -> None:
    found = series({"step": 1, "loss": 2.0, "lr": 1, "at": 5.0}, {"step": 2, "loss": 1.0, "note": "x"})
    assert set(found) == {"loss", "lr"}
    assert found["loss"].points == ((1.0, 2.0), (2.0, 1.0))
    assert (found["loss"].last, found["loss"].min, found["loss"].max) == (1.0, 1.0, 2.0)


def test_many_values_become_means_and_the_numbers_beside_them_stay_exact() -> None:
    found = series(*({"step": step, "loss": 9.0 if step == 500 else 1.0} for step in range(1000)))["loss"]
    assert len(found.points) <= POINTS
    assert (found.averaged, found.max) == (5, 9.0)
    assert max(value for _, value in found.points) < 3.0


def test_what_was_told_last_of_a_step_counts_after_a_restart() -> None:
    found = series({"step": 1, "loss": 3}, {"step": 2, "loss": 9}, {"step": 2, "loss": 2})["loss"]
    assert found.points == ((1.0, 3.0), (2.0, 2.0))


def test_a_value_that_was_not_finite_is_told_and_not_drawn() -> None:
    found = series({"step": 1, "loss": 3.0}, {"step": 2, "loss": None}, {"step": 3, "loss": 10**400})["loss"]
    assert found.points == ((1.0, 3.0),)
    assert found.lost == (2.0,)


def test_only_so_many_names_are_taken_and_none_that_no_page_should_show() -> None:
    assert len(series({"step": 1} | {f"n{n}": n for n in range(500)})) == caps.SERIES
    assert not series({"step": 1, "\x1b[2J": 1, "x" * 300: 1})
    assert set(series({"step": 1, "loss": 1, "lr": 2}, names={"lr"})) == {"lr"}


def test_lines_that_are_none_are_passed_over() -> None:
    lines = [b"[1]", b"{", b'{"step": -1, "loss": 1}', b'{"step": true, "loss": 1}', b'{"loss": 1}', b"\xff"]
    assert parse_series(lines) == ()
