"""Mutants: each is a module that still compiles, and differs in one place."""

from __future__ import annotations

import ast
import shutil
import subprocess
from functools import partial
from pathlib import Path

import pytest

from benchmarks.mutants.__main__ import FOLDERS, Checkout, Mutant, copy_checkout, drawn
from benchmarks.mutants.line_coverage import measured, names_defined
from benchmarks.mutants.mutations import Mutation, mutations_of

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


@pytest.mark.parametrize(
    ("line", "names"),
    [(1, ["A", "B"]), (2, ["c"]), (4, ["C"]), (6, ["f"]), (7, ["f"]), (9, [])],
)
def test_the_names_of_a_line_are_those_that_its_statement_defines(line: int, names: list[str]) -> None:
    source = (
        "A = B = 1\nc: int = 2\nclass D:\n    C = 3\n\n    def f(self, a=4):\n        x = 5\n\nif A: E = 6\n"
    )
    assert names_defined(source, range(line, line + 1)) == names


@pytest.mark.slow
def test_the_tests_of_a_line_are_those_that_execute_it(tmp_path: Path) -> None:
    both = ["test_f.py::test_false", "test_f.py::test_true"]
    before = tmp_path / "before"
    (before / "package").mkdir(parents=True)
    (before / "package" / "__init__.py").write_text(
        "def f(a):\n    if a:\n        return ONE\n    return two\n\n\n"
        "from package.constants import ONE\ntwo = 2\n"
    )
    (before / "package" / "constants.py").write_text("ONE = 1\ntwo = 2\n")
    (before / "test_f.py").write_text(
        "import pytest\nfrom package import f\n\n\n"
        "def test_true():\n    assert f(1)\n\n\n"
        "@pytest.mark.parametrize('a', [0, ''])\ndef test_false(a):\n    assert f(a) == 3\n"
    )
    root = tmp_path / "changed"
    shutil.copytree(before, root)
    path = "package/__init__.py"
    (root / path).write_text("\n" + (before / path).read_text() + "\n\ndef g():\n    return 3\n")
    covered = measured(before, ["package"], "not slow", [], jobs=1)
    for where, moved in ((before, 0), (root, 1)):
        at = partial(covered.tests_of, where, path)
        assert at(range(3 + moved, 4 + moved)) == ["test_f.py::test_true"]
        assert at(range(4 + moved, 5 + moved)) == ["test_f.py::test_false"]
        assert at(range(3 + moved, 5 + moved)) == both
        assert at(range(1 + moved, 2 + moved)) == both, "an import executes it"
    assert covered.tests_of(root, path, range(12, 13)) == both, "it is new"
    constants = "package/constants.py"
    assert covered.tests_of(before, constants, range(1, 2)) == ["test_f.py::test_true"]
    assert covered.tests_of(before, constants, range(2, 3)) == [], "its name is another one there"
    assert covered.tests_of(root, "package/new.py", range(1, 2)) == []


@pytest.mark.slow
@pytest.mark.parametrize(
    ("test", "text"),
    [
        (
            "tests/test_other.py",
            "from vastrun.launcher.gate import caps, text\n\n\n"
            "def test_limit():\n    assert caps.MAX_BYTES == 7\n",
        ),
        (
            "tests/launcher/gate/test_bytes.py",
            "import subprocess, sys\n\n\n"
            "def test_limit():\n    code = 'import caps; assert caps.MAX_BYTES == 7'\n"
            "    subprocess.run([sys.executable, '-c', code], cwd='launcher/gate', check=True)\n",
        ),
    ],
)
def test_a_constant_is_tried_with_the_tests_that_import_its_module_and_those_of_its_folder(
    tmp_path: Path, test: str, text: str
) -> None:
    files = {
        "launcher/gate/__init__.py": "",
        "launcher/gate/caps.py": "MAX_BYTES = 7\n",
        "launcher/gate/text.py": "",
        "vastrun/__init__.py": "",
        test: text,
        "tests/test_none.py": "def test_none():\n    assert True\n",
        "pyproject.toml": "[tool.pytest.ini_options]\n",
    }
    for name, content in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(content)
    (tmp_path / "vastrun" / "launcher").symlink_to("../launcher")
    covered = measured(tmp_path, ["launcher/gate"], "not slow", [], jobs=1)
    assert covered.tests_of(tmp_path, "launcher/gate/caps.py", range(1, 2)) == []
    checkout = Checkout(tmp_path, covered, "not slow", limit_s=60)
    mutation = Mutation(lines=range(1, 2), start=12, end=13, old="7", new="8")
    mutant = Mutant(folder="launcher/gate", path="launcher/gate/caps.py", mutation=mutation)
    assert checkout.try_out(mutant) == f"{test}::test_limit"
    assert (tmp_path / "launcher/gate/caps.py").read_text() == "MAX_BYTES = 7\n"
