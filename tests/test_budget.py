"""`make lint` fails when a part holds more than its budget, and when a budget was raised."""

import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.budget import FILE, density, main

BUDGET = """[product]
launcher = { max = 10, paths = ["launcher/*.py"] }
trainer = { max = 10, paths = ["trainer/*.py"] }
[lines]
tests = { max = 30, paths = ["tests/*.py", ":!tests/left_out.py"] }
[files]
files = { max = 2, paths = ["launcher/*.py", "trainer/*.py"] }
[percent]
ratio = { max = 150, lines = "tests" }
"""


@pytest.fixture
def commit(tmp_path: Path) -> Callable[..., Path]:
    """Return what writes files, each of so many lines, and this budget, and commits them."""

    def made(budget: str = BUDGET, **lines: int) -> Path:
        for name, number in {"launcher/a/b": 10, "trainer/a": 10, **lines}.items():
            path = tmp_path / f"{name}.py"
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text("x = 1\n" * number)
        (tmp_path / FILE).write_text(budget)
        git = ("git", "-c", "user.name=a", "-c", "user.email=a@b.c")
        for arguments in (("init", "-q"), ("add", "."), ("commit", "-q", "-m", "x", "--allow-empty")):
            subprocess.run([*git, *arguments], cwd=tmp_path, check=True)
        return tmp_path

    return made


def test_a_checkout_within_its_budget_passes(commit: Callable[..., Path]) -> None:
    assert main(commit(**{"tests/a": 30, "tests/left_out": 99, "launcher/small": 0})) == 0


@pytest.mark.parametrize(
    ("files", "message"),
    [
        ({"trainer/a": 11}, "trainer: 11 is above 10"),
        (
            {"trainer/a": 4, "trainer/b": 6, "launcher/a/b": 4, "launcher/c": 6, "launcher/d": 6},
            "launcher: 16 is",
        ),
        ({"tests/a": 31}, "tests: 31 is"),
        ({"tests/a": 25, "trainer/a": 5}, "ratio: 166.7 is above 150"),
        ({"launcher/a/b": 0, "launcher/c": 6, "trainer/a": 0, "trainer/b": 6, "trainer/c": 4}, ""),
    ],
)
def test_a_count_above_its_maximum_fails(
    commit: Callable[..., Path], capsys: pytest.CaptureFixture[str], files: dict[str, int], message: str
) -> None:
    assert main(commit(**files)) == bool(message)
    assert message in capsys.readouterr().err


@pytest.mark.parametrize("is_committed", [False, True])
def test_a_raised_maximum_fails(
    commit: Callable[..., Path], capsys: pytest.CaptureFixture[str], is_committed: bool
) -> None:
    root, higher = commit(), BUDGET.replace("trainer = { max = 10", "trainer = { max = 11")
    (root / FILE).write_text(higher)
    if is_committed:
        commit(higher)
    assert main(root) == 1
    assert "trainer: its maximum was 10 in the last commit, and only falls" in capsys.readouterr().err


def test_a_lost_row_fails_and_lines_that_move_within_the_product_do_not(commit: Callable[..., Path]) -> None:
    root = commit()
    (root / FILE).write_text(BUDGET.replace("launcher = { max = 10", "launcher = { max = 12"))
    assert main(root) == 1
    moved = BUDGET.replace("launcher = { max = 10", "launcher = { max = 12").replace(
        "trainer = { max = 10", "trainer = { max = 8"
    )
    commit(moved, **{"launcher/a/b": 12, "trainer/a": 8})
    assert main(root) == 0
    commit(moved.replace("files =", "other ="))
    assert main(root) == 1


def test_lines_that_move_to_the_tests_may_raise_theirs_and_no_others(commit: Callable[..., Path]) -> None:
    def moved(launcher: int, tests: int) -> str:
        less = BUDGET.replace("launcher = { max = 10", f"launcher = {{ max = {launcher}")
        more = less.replace("tests = { max = 30", f"tests = {{ max = {tests}")
        return more.replace("max = 150", "max = 250")

    root = commit()
    for launcher, tests, exit_code in ((6, 35, 1), (10, 31, 1), (6, 34, 0)):
        (root / FILE).write_text(moved(launcher, tests))
        (root / "launcher/a/b.py").write_text("x = 1\n" * launcher)
        assert main(root) == exit_code


def test_maxima_are_lowered_to_the_counts(commit: Callable[..., Path]) -> None:
    root = commit(**{"trainer/a": 8, "tests/a": 20})
    assert main(root, lower=True) == 0
    text = (root / FILE).read_text()
    assert "trainer = { max = 8," in text and "tests = { max = 20," in text and "ratio = { max = 150," in text


def test_functions_and_named_numbers_are_counted_per_1000_lines(tmp_path: Path) -> None:
    (tmp_path / "launcher").mkdir()
    (tmp_path / "launcher/a.py").write_text(
        "A_S = 1.5\nB: int = 64 << 20\nc = 1\nD = 'x'\ndef e(): ...\n" + "\n" * 95
    )
    subprocess.run(["git", "init", "-q"], cwd=tmp_path, check=True)
    budget = {"product": {"launcher": {"max": 1, "paths": ["launcher/*.py"]}}}
    assert density(tmp_path, budget) == "10.0 functions, 20.0 named numbers per 1,000 lines"
