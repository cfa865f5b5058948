"""A program that leaves weights behind: its machine is kept, they are pulled by their path, nothing stays."""

import pytest

from tests.e2e.terminal import Terminal
from tests.waiting import eventually

JOB = """
name: leaves
resources: {gpus: 0, disk_gb: 8}
ranks: 1
code: {path: code}
command: |
  mkdir -p checkpoints elsewhere
  head -c SIZE /dev/zero >checkpoints/step_1.pt
  echo 1 >metrics.csv
  ln -s /etc/hostname leak
  echo done
success: {log: done}
OUTPUTS
"""


LARGE, SMALL = 101_000_000, 2_000_000


def write(terminal: Terminal, outputs: str, size: int = LARGE) -> None:
    (terminal.folder / "code").mkdir()
    (terminal.folder / "code" / "notes.txt").write_text("shipped")
    (terminal.folder / "job.yaml").write_text(JOB.replace("OUTPUTS", outputs).replace("SIZE", str(size)))


@pytest.mark.slow
def test_without_outputs_the_weights_are_downloaded(terminal: Terminal) -> None:
    write(terminal, "")
    done = terminal.type("launch", "job.yaml", "-y")
    assert done.exit_code == 0, done.err
    folder = terminal.outputs() / "outputs"
    files = sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file())
    assert files == ["checkpoints/step_1.pt", "metrics.csv"]
    assert "not downloaded" not in done.err + done.out


@pytest.mark.slow
def test_small_weights_that_are_left_are_downloaded_without_a_wait(terminal: Terminal) -> None:
    write(terminal, "outputs: '*.csv'", SMALL)
    done = terminal.type("launch", "job.yaml", "-y")
    assert done.exit_code == 0, done.err
    assert "1 more file, not named in outputs: 2.0 MB" in done.err
    assert (terminal.outputs() / "outputs" / "checkpoints" / "step_1.pt").stat().st_size == SMALL
    assert terminal.type("why", "last", "--json").json()["left_out"]["count"] == 0
    eventually(lambda: not terminal.leftovers(), what="nothing that is left")


@pytest.mark.slow
def test_weights_that_are_left_are_kept_until_they_are_pulled(terminal: Terminal) -> None:
    write(terminal, "outputs: '*.csv'")
    launch = terminal.start("launch", "job.yaml", "-y")
    launch.shows("these look like weights and are only on the machine")
    assert "checkpoints/step_1.pt (101.0 MB, not named in outputs)" in launch.err
    for refused in ("/etc/hostname", "leak", "../job.json", "checkpoints/none.pt"):
        assert terminal.type("pull", "last", refused).exit_code == 2
    told = terminal.type("why", "last", "--json").json()["left_out"]
    assert [file["path"] for file in told["files"]] == ["code/checkpoints/step_1.pt"]

    pulled = terminal.type("pull", "last", "checkpoints", "--json").json()

    assert (pulled["files"], pulled["bytes"], pulled["damaged"]) == (1, LARGE, [])
    done = launch.end()
    assert done.exit_code == 0, done.err
    assert (terminal.outputs() / "outputs" / "checkpoints" / "step_1.pt").stat().st_size == LARGE
    assert terminal.type("why", "last", "--json").json()["left_out"]["count"] == 0
    eventually(lambda: not terminal.leftovers(), what="nothing that is left")


@pytest.mark.slow
def test_a_stop_gives_the_machine_back_without_them(terminal: Terminal) -> None:
    write(terminal, "outputs: '*.csv'")
    launch = terminal.start("launch", "job.yaml", "-y")
    launch.shows("these look like weights and are only on the machine")
    assert terminal.type("stop", "last").exit_code == 0
    done = launch.end()
    assert done.exit_code == 0, done.err
    assert "WARNING: 1 not downloaded (101.0 MB): code/checkpoints/step_1.pt" in done.out
    eventually(lambda: not terminal.leftovers(), what="nothing that is left")


@pytest.mark.slow
def test_weights_that_are_left_behind_on_purpose_are_not_kept(terminal: Terminal) -> None:
    write(terminal, "outputs: ['*.csv', '!checkpoints/*']")
    done = terminal.type("launch", "job.yaml", "-y")
    assert done.exit_code == 0, done.err
    assert "not downloaded" not in done.err + done.out
