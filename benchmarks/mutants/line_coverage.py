"""Line coverage by test: which tests execute which lines, from one run of the tests under coverage.py."""

from __future__ import annotations

import ast
import os
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher
from functools import cached_property
from pathlib import Path

import coverage

DATA_FILE = ".coverage"


@dataclass(frozen=True, kw_only=True)
class LineCoverage:
    """The data file of a run, and the folder that its paths are relative to."""

    data: coverage.CoverageData
    root: Path

    def tests_of(self, root: Path, path: str, lines: range) -> list[str]:
        """Return the test functions that execute any of the lines, as pytest names them without their cases.

        Those that execute the least of the code come first. For lines that no test executes, such as those of
        an import, return the tests that execute a line with a name that they define; for such without a name,
        and for those that have changed since, the tests that execute any line of the file. Lines that another
        process executes are unknown.
        """
        places = self._places(root, path)
        tests = self._executing({path: [places[line] for line in lines if line in places]})
        if not tests:
            names = names_defined((root / path).read_text("utf-8"), lines) if (root / path).is_file() else []
            tests = self._executing(self._uses(path, names))
        tests = tests or self._executing({path: self._lines_of(path)})
        return sorted(tests, key=lambda test: (self._sizes.get(test, 0), test))

    def _executing(self, lines: Mapping[str, Iterable[int]]) -> set[str]:
        found = set()
        for path, numbers in lines.items():
            by_line = self.data.contexts_by_lineno(str(self.root / path))
            found |= {_test_of(context) for line in numbers for context in by_line.get(line, ())}
        return found - {""}

    def _lines_of(self, path: str) -> Iterable[int]:
        return self.data.lines(str(self.root / path)) or ()

    def _uses(self, path: str, names: Sequence[str]) -> dict[str, list[int]]:
        """Return the lines with one of the names, by file: other files have constants alone in common."""
        uses: dict[str, list[int]] = {}
        for file in sorted(self.data.measured_files()):
            other = Path(file).relative_to(self.root).as_posix()
            wanted = [name for name in names if other == path or name.isupper()]
            if wanted:
                pattern = re.compile(rf"\b({'|'.join(map(re.escape, wanted))})\b")
                text = Path(file).read_text("utf-8").splitlines()
                uses[other] = [number for number, line in enumerate(text, 1) if pattern.search(line)]
        return uses

    @cached_property
    def _sizes(self) -> dict[str, int]:
        """Number of files that each test executes."""
        sizes: Counter[str] = Counter()
        for file in self.data.measured_files():
            contexts = {c for found in self.data.contexts_by_lineno(file).values() for c in found}
            sizes.update({_test_of(context) for context in contexts})
        return sizes

    def _places(self, root: Path, path: str) -> dict[int, int]:
        """Return where each line of a file stood when it was measured; without those that are new."""
        before, now = self.root / path, root / path
        if not before.is_file():
            return {}
        old, new = (file.read_text("utf-8").splitlines() for file in (before, now))
        blocks = SequenceMatcher(None, old, new, autojunk=False).get_matching_blocks()
        return {block.b + i + 1: block.a + i + 1 for block in blocks for i in range(block.size)}


def _test_of(context: str) -> str:
    return context.partition("[")[0].partition("|")[0]


def names_defined(source: str, lines: range) -> list[str]:
    """Return the names that the statements of a module or of a class at these lines define."""
    found: list[str] = []
    statements: list[ast.stmt] = list(ast.parse(source).body)
    for statement in statements:
        if not (statement.lineno < lines.stop and lines.start <= (statement.end_lineno or statement.lineno)):
            continue
        match statement:
            case ast.ClassDef():
                statements += statement.body  # also what is appended is visited
            case ast.Assign(targets=targets):
                found += [node.id for node in targets if isinstance(node, ast.Name)]
            case ast.AnnAssign(target=ast.Name(id=name)) | ast.FunctionDef(name=name):
                found.append(name)
    return found


def measured(
    root: Path, folders: Sequence[str], marks: str, left_out: Sequence[str], jobs: int
) -> LineCoverage:
    """Run the tests of a copy of the checkout, and return what each of them executes in the folders.

    A test that fails under coverage, as those of import times may, is no error here.
    """
    sources = [word for folder in folders for word in ("--cov", folder)]
    ignored = [word for folder in left_out for word in ("--ignore", folder)]
    shared = ("-n", str(jobs), "--dist", "worksteal") if jobs > 1 else ("-n", "0")
    subprocess.run(
        [
            *(sys.executable, "-m", "pytest", "-q", *shared, "--tb=no", "-p", "no:cacheprovider"),
            *("-m", marks, "--cov-context=test", "--cov-report=", *sources, *ignored),
        ],
        cwd=root,
        env=os.environ | {"PYTHONPATH": str(root), "COVERAGE_FILE": str(root / DATA_FILE)},
        stdout=subprocess.DEVNULL,
        check=False,
    )
    return loaded(root)


def loaded(root: Path) -> LineCoverage:
    """Return what was measured in a copy of the checkout."""
    data = coverage.CoverageData(basename=str(root / DATA_FILE))
    data.read()
    return LineCoverage(data=data, root=root.resolve())
