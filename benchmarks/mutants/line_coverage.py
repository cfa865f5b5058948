"""Line coverage by test: which tests execute which lines, from one run of the tests under coverage.py."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher
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

        For lines that no test executes, such as those of an import, and for those that have changed since,
        return the tests that execute any line of the file. Lines that another process executes are unknown.
        """
        by_line = self.data.contexts_by_lineno(str(self.root / path))
        places = self._places(root, path)
        tests = _names(by_line, [places[line] for line in lines if line in places])
        return tests or _names(by_line, by_line)

    def _places(self, root: Path, path: str) -> dict[int, int]:
        """Return where each line of a file stood when it was measured; without those that are new."""
        before, now = self.root / path, root / path
        if not before.is_file():
            return {}
        old, new = (file.read_text("utf-8").splitlines() for file in (before, now))
        blocks = SequenceMatcher(None, old, new, autojunk=False).get_matching_blocks()
        return {block.b + i + 1: block.a + i + 1 for block in blocks for i in range(block.size)}


def _names(by_line: Mapping[int, list[str]], lines: Iterable[int]) -> list[str]:
    contexts = {context for line in lines for context in by_line.get(line, ())}
    return sorted({context.partition("[")[0].partition("|")[0] for context in contexts} - {""})


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
