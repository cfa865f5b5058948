"""A kind of programs in a package of its own, `greet_kind`, by the installed command."""

from pathlib import Path

import pytest

from tests.e2e.terminal import WITH_STUB_TORCH, Terminal

GREET = Path(__file__).parent / "greet_kind"
JOB = "name: demo\nresources: {gpus: 0, disk_gb: 8}\n"

pytestmark = pytest.mark.torch


@pytest.fixture
def greeter(terminal: Terminal) -> Terminal:
    """A terminal where the package is installed."""
    terminal.variables |= {"PYTHONPATH": str(GREET)}
    return terminal


def written(terminal: Terminal, text: str) -> str:
    """A job file of the user's."""
    (terminal.folder / "job.yaml").write_text(JOB + text)
    return "job.yaml"


def test_a_job_of_another_kind_runs_and_is_proven_by_its_own_proofs(greeter: Terminal) -> None:
    job = written(greeter, "greet: {whom: Ada}\n")
    assert "greetings" in greeter.type("plan", job).out

    done = greeter.type("launch", job, *WITH_STUB_TORCH)

    assert done.exit_code == 0, done.err
    assert (greeter.outputs() / "log.txt").read_text().count("hello Ada") == 3
    assert greeter.status()["run"]["verdict"] == "SUCCEEDED"
    again = greeter.type("launch", "--from", "last", "--set", "greet.steps=2", "--dry-run")
    assert "greetings" in again.out, again.err


def test_its_keys_are_checked_and_described_like_all_others(greeter: Terminal) -> None:
    wrong = greeter.type("plan", written(greeter, "ranks: 2\ngreet: {steps: 0, whon: Ada}\n"))
    assert wrong.exit_code == 2
    assert "job.yaml:4: greet.steps: expected a whole number of at least 1, got 0" in wrong.err
    assert "greet.whon: unknown key; did you mean whom?" in wrong.err
    two = greeter.type("plan", written(greeter, "ranks: 2\ngreet: {whom: Ada}\n"))
    assert "greet.whom: expected one rank, got 2" in two.err
    none = greeter.type("plan", written(greeter, ""))
    assert "or command (your own program) or greet (greetings)" in none.err


@pytest.mark.slow
def test_a_stored_job_whose_kind_is_gone_is_read_and_not_launched(greeter: Terminal) -> None:
    assert greeter.type("launch", written(greeter, "greet: {}\n"), *WITH_STUB_TORCH).exit_code == 0
    broken = greeter.folder / "greet_kind-1.0.dist-info"
    broken.symlink_to(GREET / broken.name)
    greeter.variables["PYTHONPATH"] = str(greeter.folder)  # names a module that is not there
    assert greeter.status()["run"]["verdict"] == "SUCCEEDED"
    del greeter.variables["PYTHONPATH"]
    assert greeter.status()["run"]["verdict"] == "SUCCEEDED"
    again = greeter.type("launch", "--from", "last")
    assert again.exit_code == 2
    assert "missing; give train" in again.err


def test_a_kind_that_does_not_load_is_one_error_and_hinders_no_other_job(greeter: Terminal) -> None:
    metadata = greeter.folder / "site" / "bad_kind-1.0.dist-info"
    metadata.mkdir(parents=True)
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: bad-kind\nVersion: 1.0\n")
    (metadata / "entry_points.txt").write_text(
        "[vastrun.program_kinds]\nbad = no_such_module:Bad\nodd = json:dumps\n"
    )
    greeter.variables |= {"PYTHONPATH": str(metadata.parent)}
    for key, told in (
        ("bad", "cannot be imported: ModuleNotFoundError"),
        ("odd", "is no subclass of Program"),
    ):
        wrong = greeter.type("plan", written(greeter, f"{key}: {{steps: 1}}\n"))
        assert wrong.exit_code == 2
        assert f"{key}: its kind of programs {told}" in wrong.err
    assert greeter.type("plan", written(greeter, "command: 'true'\nsuccess: {exit_code: 0}\n")).exit_code == 0
