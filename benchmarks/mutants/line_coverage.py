"""Line coverage by test: which tests execute which lines, from one run of the tests under coverage.py."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import coverage


@dataclass(frozen=True, kw_only=True)
class LineCoverage:
    """The data file of a run, and the folder that its paths are relative to."""

    data: coverage.CoverageData
    root: Path

    def tests_of(self, path: str, lines: range) -> list[str]:
        """Return the test functions that execute any of the lines, as pytest names them without their cases.

        Empty for lines that only an import executes, and for those that only other processes execute.
        """
        by_line = self.data.contexts_by_lineno(str(self.root / path))
        contexts = {context for line in lines for context in by_line.get(line, ())}
        return sorted({context.partition("[")[0].partition("|")[0] for context in contexts} - {""})


def measured(root: Path, folders: Sequence[str], marks: str, left_out: Sequence[str]) -> LineCoverage:
    """Run the tests of a copy of the checkout, and return what each of them executes in the folders.

    A test that fails under coverage, as those of import times may, is no error here.
    """
    data_file = root / ".coverage"
    sources = [word for folder in folders for word in ("--cov", folder)]
    ignored = [word for folder in left_out for word in ("--ignore", folder)]
    subprocess.run(
        [
            *(sys.executable, "-m", "pytest", "-q", "-n", "auto", "--dist", "worksteal", "--tb=no"),
            *(
                "-p",
                "no:cacheprovider",
                "-m",
                marks,
                "--cov-context=test",
                "--cov-report=",
                *sources,
                *ignored,
            ),
        ],
        cwd=root,
        env=os.environ | {"PYTHONPATH": str(root), "COVERAGE_FILE": str(data_file)},
        stdout=subprocess.DEVNULL,
        check=False,
    )
    data = coverage.CoverageData(basename=str(data_file))
    data.read()
    return LineCoverage(data=data, root=root.resolve())
