"""Draw mutants at random, run the tests of each, and print which of them no test noticed.

Each mutant lives in a copy of the checkout. First come the tests that execute its lines, the nearest first,
until one fails; for a line that only an import executes, those that execute any of its module. Then come
all that are named after the module, import it, or are of its folder, since they may execute it in another
process, and those of pages and schemas. A test that also fails without the mutant does not count.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import queue
import random
import re
import shutil
import signal
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from importlib.util import cache_from_source
from pathlib import Path

from benchmarks.mutants.line_coverage import DATA_FILE, LineCoverage, loaded, measured
from benchmarks.mutants.mutations import Mutation, mutations_of

FOLDERS = (
    "launcher/decisions",
    "launcher/gate",
    "launcher/flow",
    "launcher/ledger",
    "launcher/outputs",
    "launcher/providers/vast",
    "vastrun/contract",
    "onstart/supervision",
)
"""Where mutants are drawn unless folders are named."""
OF_ALL_MODULES = (
    "tests/docs/test_written.py",
    "tests/launcher/config/test_json_schema.py",
    "tests/launcher/ui/test_schemas.py",
    "tests/test_bounds.py",
)
"""Tests that compare what a page or a schema says, such as a default, with whatever module has it."""
LEFT_OUT = ("tests/e2e/", "tests/docker/", "tests/gpu/")
_PYTEST = (
    "-m",
    "pytest",
    "-q",
    "-x",
    "-n",
    "0",
    "--tb=no",
    "-rfE",
    "-p",
    "no:cacheprovider",
    "--timeout=60",
)
_FAILED = re.compile(r"^(?:FAILED|ERROR) (tests/[^\s\[]+)", re.MULTILINE)
"""The test without the brackets of its case, which may hold spaces."""


@dataclass(frozen=True, kw_only=True)
class Mutant:
    """One mutation of one module."""

    folder: str
    path: str
    mutation: Mutation

    def __str__(self) -> str:
        old, new = (" ".join(text.split()) for text in (self.mutation.old, self.mutation.new))
        return f"{self.path}:{self.mutation.lines.start}: {old[:110]}  ->  {new[:110]}"


@dataclass
class Checkout:
    """A copy of the checkout, in which one mutant at a time is tried."""

    root: Path
    covered: LineCoverage
    marks: str
    limit_s: float
    _writes: int = 0
    _unusable: set[str] = field(default_factory=set)

    def try_out(self, mutant: Mutant) -> str:
        """Return the test that failed; `survived` or `undecided` where none did, or not within the limit."""
        executing = _executing_tests(self.root, mutant, self.covered)
        end = self._try_with(mutant, executing) if executing else "survived"
        if end == "survived":
            tried = [test for test in executing if not _begins_others(self.root, test)]
            end = self._try_with(mutant, _near_tests(self.root, mutant), tried)
        return end

    def _try_with(self, mutant: Mutant, tests: list[str], tried: Sequence[str] = ()) -> str:
        path = self.root / mutant.path
        source = path.read_bytes()
        try:
            while True:
                self._write(path, mutant.mutation.apply(source))
                failed = self._failing(tests, {*tried, *self._unusable})
                self._write(path, source)
                if not failed:
                    return "undecided" if failed is None else "survived"
                if self._failing([failed]) == "":
                    return failed
                if failed in self._unusable:
                    return "undecided"
                self._unusable.add(failed)
        finally:
            self._write(path, source)

    def _failing(self, tests: list[str], without: Iterable[str] = ()) -> str | None:
        """Return the first test that fails; empty: all pass; None: that is not known within the limit."""
        words = [*tests, *(word for test in sorted(without) for word in ("--deselect", test))]
        with subprocess.Popen(
            [sys.executable, *_PYTEST, "-m", self.marks, f"@{self._listed(words)}"],
            cwd=self.root,
            env=os.environ | {"PYTHONPATH": str(self.root)},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        ) as process:
            try:
                output, _ = process.communicate(timeout=self.limit_s)
            except subprocess.TimeoutExpired:
                return None
            finally:
                # Also what a test has left running.
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGKILL)
        if process.returncode in (0, 5):  # 5: none of these tests is wanted
            return ""
        found = _FAILED.search(output)
        return found[1] if found else tests[0]

    def _listed(self, words: list[str]) -> Path:
        """Write the tests to a file for pytest: they may be more than a command line holds."""
        listed = self.root / "tests.txt"
        listed.write_text("\n".join(words), encoding="utf-8")
        return listed

    def _write(self, path: Path, source: bytes) -> None:
        """Write a module, and never twice with one date: by it Python tells whether to compile again."""
        self._writes += 1
        path.write_bytes(source)
        os.utime(path, (self._writes, self._writes))
        Path(cache_from_source(str(path))).unlink(missing_ok=True)


def _executing_tests(root: Path, mutant: Mutant, covered: LineCoverage) -> list[str]:
    """Return the tests that execute a mutant's lines, the nearest first, and of those the smallest."""
    own, folder = _own_tests(mutant)
    tests = [
        test for test in covered.tests_of(root, mutant.path, mutant.mutation.lines) if _exists(root, test)
    ]
    return sorted(tests, key=lambda test: (not test.startswith(own), not test.startswith(folder)))


def _near_tests(root: Path, mutant: Mutant) -> list[str]:
    """Return the files of tests that are named after a module, import it, or are of its folder or of all."""
    own, folder = _own_tests(mutant)
    module = mutant.path.removesuffix(".py").removeprefix("vastrun/").replace("/", ".")
    package, _, name = module.rpartition(".")
    imports = re.compile(
        rf"(from|import) vastrun\.{re.escape(module)}\b"
        rf"|from vastrun\.{re.escape(package)} import (\([^)]*|.*)\b{name}\b"
    )
    found = []
    for path in (root / "tests").rglob("test_*.py"):
        test = path.relative_to(root).as_posix()
        is_own, is_near = test == own, test.startswith(folder)
        knows = imports.search(path.read_text(encoding="utf-8")) is not None
        if (is_own or is_near or knows) and not test.startswith(LEFT_OUT):
            found.append((not is_own, not knows, path.stat().st_size, test))
    near = [test for *_, test in sorted(found)]
    return [*near, *(test for test in OF_ALL_MODULES if test not in near and (root / test).is_file())]


def _own_tests(mutant: Mutant) -> tuple[str, str]:
    """Return the file of tests that is named after a mutant's module, and its folder."""
    own = "tests/" + re.sub(r"([^/]+)$", r"test_\1", mutant.path)
    return own, own.rpartition("/")[0] + "/"


def _exists(root: Path, test: str) -> bool:
    """Tell whether a test is still there: the coverage may be of an earlier checkout."""
    file, _, name = test.partition("::")
    return (root / file).is_file() and f"def {name.rpartition('::')[2]}(" in (root / file).read_text("utf-8")


def _begins_others(root: Path, test: str) -> bool:
    """Tell whether longer names of tests begin with this one: pytest would leave them out, too."""
    file, _, name = test.partition("::")
    return re.search(rf"def {name.rpartition('::')[2]}\w", (root / file).read_text("utf-8")) is not None


def drawn(root: Path, folders: list[str], number: int, seed: int) -> list[Mutant]:
    """Return that many mutants of the folders: the same ones for the same seed."""
    every = [
        Mutant(folder=folder, path=path.relative_to(root).as_posix(), mutation=mutation)
        for folder in folders
        for path in sorted((root / folder).glob("*.py"))
        for mutation in mutations_of(path.read_bytes())
    ]
    return random.Random(seed).sample(every, min(number, len(every)))


def copy_checkout(root: Path, target: Path) -> None:
    """Copy all that git tracks or would track."""
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=root,
        capture_output=True,
        check=True,
    )
    for name in filter(None, listed.stdout.decode().split("\0")):
        if (root / name).is_file() or (root / name).is_symlink():
            (target / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(root / name, target / name, follow_symlinks=False)


def main() -> None:
    parser = argparse.ArgumentParser(prog="make mutants", description=__doc__)
    parser.add_argument("--number", type=int, default=60)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--limit-s", type=float, default=300.0, help="for the tests of one mutant")
    parser.add_argument("--marks", default="not slow and not integration")
    parser.add_argument(
        "--covered", type=Path, metavar="DIR", help="keep what was measured there, and use it again"
    )
    parser.add_argument("folders", nargs="*", default=list(FOLDERS))
    options = parser.parse_args()
    root = Path(__file__).resolve().parents[2]
    counts: dict[str, Counter[str]] = {folder: Counter() for folder in options.folders}
    with tempfile.TemporaryDirectory(prefix="mutants-") as name, ThreadPoolExecutor(options.jobs) as pool:
        kept = options.covered.resolve() if options.covered else Path(name) / "covered"
        if not (kept / DATA_FILE).exists():
            copy_checkout(root, kept)
            measured(kept, options.folders, options.marks, LEFT_OUT, options.jobs)
        covered = loaded(kept)
        free: queue.Queue[Checkout] = queue.Queue()
        for number in range(options.jobs):
            copy_checkout(root, Path(name) / str(number))
            free.put(Checkout(Path(name) / str(number), covered, options.marks, options.limit_s))

        def tried(mutant: Mutant) -> tuple[Mutant, str]:
            checkout = free.get()
            try:
                return mutant, checkout.try_out(mutant)
            finally:
                free.put(checkout)

        for mutant, end in pool.map(tried, drawn(root, options.folders, options.number, options.seed)):
            counts[mutant.folder][end if end in ("survived", "undecided") else "killed"] += 1
            print(f"{end}\n    {mutant}", flush=True)
    print(f"\n{'folder':28}{'killed':>8}{'survived':>10}{'undecided':>11}  share")
    for folder, count in [*counts.items(), ("all", sum(counts.values(), Counter()))]:
        # At least this share: an undecided mutant may have survived.
        share = f"{count['killed'] / count.total():.0%}" if count else "-"
        print(f"{folder:28}{count['killed']:8}{count['survived']:10}{count['undecided']:11}  {share:>5}")


if __name__ == "__main__":
    main()
