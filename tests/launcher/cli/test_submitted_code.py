"""What is shipped is the code as it was submitted, whatever is in the folder by then."""

from pathlib import Path

import pytest

from tests.fakebox import Training
from tests.launcher import desk as desks
from tests.launcher.bundle.bundles import code_of, git
from tests.launcher.terminal import CRASH
from vastrun.launcher.app import App
from vastrun.launcher.bundle import Bundler
from vastrun.launcher.bundle.archive import CodeStore
from vastrun.launcher.core import Bundle, Origin, Run
from vastrun.launcher.core.job import JobSpec

JOB = """\
name: demo
resources: {gpus: 2}
limits: {hours: 1, usd: 3}
code: {path: code}
train: {steps: 10, batch: 8}
"""


class Desk(desks.Desk):
    """Its user edits the program each time that a run is packed. `shipped`: the versions that were."""

    def __init__(self, folder: Path, *trainings: Training) -> None:
        super().__init__(folder, *trainings)
        self.shipped: list[str] = []
        self.program = folder / "code" / "train.py"
        self.program.parent.mkdir()
        self.edit()
        self.job.write_text(JOB)

    def edit(self) -> None:
        self.program.write_text(f"version = {len(self.shipped) + 1}\n")

    def app(self) -> App:
        codes = CodeStore(self.folder / "kept", set)
        return super().app().with_changes(packer=lambda origin: Packer(self, origin, codes))

    def sweep(self) -> str:
        words = ("sweep", str(self.job), "train.seed=1,2", "--parallel", "1", "--usd", "20", "-y")
        return self.type(*words, "--set", "retry.signal=1", "--out", str(self.folder / "out")).stderr


class Packer(Bundler):
    def __init__(self, desk: Desk, origin: Origin, codes: CodeStore) -> None:
        super().__init__({}, origin=origin, codes=codes)
        self._desk, self._runs = desk, set[str]()

    def pack(self, run: Run, spec: JobSpec) -> Bundle:
        bundle = super().pack(run, spec)
        if run.id not in self._runs:
            self._runs.add(run.id)
            self._desk.shipped.append(code_of(bundle).strip())
            self._desk.edit()
        return bundle


@pytest.mark.slow
def test_all_points_of_a_sweep_and_their_retries_run_what_was_submitted(tmp_path: Path) -> None:
    desk = Desk(tmp_path, CRASH, Training())
    assert "2 of 2 points are new" in desk.sweep()
    assert desk.shipped == ["version = 1"] * 3
    results = desk.type("batch", "results", "last").stdout
    again = desk.sweep()
    assert (
        "2 of 2 points are new" in again and "the code has changed since the last submit: train.py" in again
    )
    assert desk.shipped[3:] == ["version = 4"] * 2
    assert "code=" not in results and "code=" in desk.type("batch", "results", "last").stdout
    desk.program.write_text("version = 4\n")
    assert "0 of 2 points are new" in desk.sweep()


def test_a_run_is_repeated_with_the_code_that_it_had(tmp_path: Path) -> None:
    desk = Desk(tmp_path)
    git(desk.program.parent, "init", "-q")
    git(desk.program.parent, "add", ".")
    git(desk.program.parent, "commit", "-qm", "first")
    assert desk.launch().exit_code == 0
    first = desk.ledger.runs()[0]
    again = desk.type("launch", "--again", first.id, "-y")
    assert again.exit_code == 0 and "may differ: the machine and its driver" in again.stderr
    assert desk.launch().exit_code == 0
    assert desk.shipped == ["version = 1", "version = 1", "version = 3"]
    assert desk.ledger.runs()[1].spec_json == first.spec_json
    refused = desk.type("launch", "--again", first.id, str(desk.job))
    assert refused.exit_code == 2 and "--again repeats a run as it was" in refused.stderr


def test_who_looks_at_an_open_run_learns_which_files_changed_since(tmp_path: Path) -> None:
    desk = Desk(tmp_path)
    assert desk.launch("-d").exit_code == 0
    assert "runs the code as it was submitted; changed since: train.py" in desk.type("status", "last").stderr
    assert "changed since: train.py" in desk.type("attach", "last").stderr
    assert "changed since" not in desk.type("status", "last").stderr  # it has ended
    assert desk.shipped == ["version = 1"]
