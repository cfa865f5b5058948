"""Mutants: each is a module that still compiles, and differs in one place."""

from __future__ import annotations

import ast
import subprocess
from pathlib import Path

import pytest

from benchmarks.mutants.__main__ import FOLDERS, copy_checkout, drawn
from benchmarks.mutants.line_coverage import measured
from benchmarks.mutants.mutations import mutations_of

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize(
    ("source", "mutants"),
    [
        ("a < b", {"a <= b"}),
        ("a < b < c", {"a <= b < c", "a < b <= c"}),
        ("a + b", {"a - b"}),
        ("(a + b) * c", {"(a - b) * c", "(a + b) / c"}),
        ("a or b and c", {"a and (b and c)", "a or b or c"}),
        ("not a", {"a"}),
        ("True", {"False"}),
        ("0.0", {"1.0"}),
        ("7", {"8"}),
        ("f(a, limit=b, old=c)", {"f(a, old=c)", "f(a, limit=b)"}),
        ("'a' + b", set()),
        ("f'{a + b}'", set()),
    ],
)
def test_an_expression_has_its_mutants(source: str, mutants: set[str]) -> None:
    expected = {ast.unparse(ast.parse(one)) for one in mutants}
    made = {one.apply(source.encode()).decode() for one in mutations_of(source.encode())}
    assert {ast.unparse(ast.parse(one)) for one in made} == expected


def test_what_a_function_returns_becomes_none_and_its_conditions_are_turned_round() -> None:
    source = b"def f(a: int) -> int:\n    if a:\n        return a\n    return g(a)\n"
    made = {one.apply(source).decode() for one in mutations_of(source)}
    assert made == {
        source.decode().replace("if a:", "if not a:"),
        source.decode().replace("        return a", "        return None"),
        source.decode().replace("return g(a)", "return None"),
    }


def test_the_same_seed_draws_the_same_mutants_and_each_compiles() -> None:
    mutants = drawn(ROOT, list(FOLDERS), 40, seed=3)
    assert list(map(str, mutants)) == list(map(str, drawn(ROOT, list(FOLDERS), 40, seed=3)))
    for mutant in mutants:
        before = (ROOT / mutant.path).read_bytes()
        after = mutant.mutation.apply(before)
        compile(after, mutant.path, "exec")
        assert after != before


def test_a_copy_of_the_checkout_has_what_git_tracks_or_would_track(tmp_path: Path) -> None:
    root, target = tmp_path / "root", tmp_path / "copy"
    (root / "folder").mkdir(parents=True)
    subprocess.run(["git", "init", "-q", str(root)], check=True)
    (root / ".gitignore").write_text("ignored\n")
    for name in ("folder/new.py", "ignored"):
        (root / name).write_text("x = 1\n")
    (root / "link").symlink_to("folder")
    copy_checkout(root, target)
    assert sorted(path.name for path in target.iterdir()) == [".gitignore", "folder", "link"]
    assert (target / "link").readlink() == Path("folder")
    assert (target / "link" / "new.py").is_file()


@pytest.mark.slow
def test_the_tests_of_a_line_are_those_that_execute_it(tmp_path: Path) -> None:
    (tmp_path / "package").mkdir()
    (tmp_path / "package" / "__init__.py").write_text(
        "def f(a):\n    if a:\n        return 1\n    return 2\n"
    )
    (tmp_path / "test_f.py").write_text(
        "import pytest\nfrom package import f\n\n\n"
        "def test_true():\n    assert f(1)\n\n\n"
        "@pytest.mark.parametrize('a', [0, ''])\ndef test_false(a):\n    assert f(a) == 3\n"
    )
    covered = measured(tmp_path, ["package"], "not slow", [])
    path = "package/__init__.py"
    assert covered.tests_of(path, range(3, 4)) == ["test_f.py::test_true"]
    assert covered.tests_of(path, range(4, 5)) == ["test_f.py::test_false"]
    assert covered.tests_of(path, range(3, 5)) == ["test_f.py::test_false", "test_f.py::test_true"]
    assert covered.tests_of(path, range(1, 2)) == []
