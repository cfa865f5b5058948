"""Jobs that a team keeps: another computer ships the code and the secrets that the first one had."""

import os
from dataclasses import replace
from pathlib import Path

import pytest

from tests.launcher.bundle.bundles import code_of
from tests.runs import a_run
from vastrun.launcher.bundle import Bundler
from vastrun.launcher.bundle.shared_jobs import SharedJobs
from vastrun.launcher.core import Run
from vastrun.launcher.core.errors import UsageError
from vastrun.launcher.core.job import Code, DataFile, JobSpec, Secret
from vastrun.launcher.ports import SecretStore

LAPTOP, SERVER = "laptop~1", "server~2"
RUN = a_run(job="j", provider="vast", home=LAPTOP)


class FakeStore:
    """Secrets in memory."""

    def __init__(self) -> None:
        self.secrets: dict[str, bytes] = {}
        self.replaced = 0

    def put(self, name: str, secret: bytes) -> bytes:
        return self.secrets.setdefault(name, secret)

    def replace(self, name: str, secret: bytes) -> None:
        self.replaced += 1
        self.secrets[name] = secret

    def get(self, name: str) -> bytes | None:
        return self.secrets.get(name)

    def remove(self, name: str) -> None:
        self.secrets.pop(name, None)


@pytest.fixture
def spec(tmp_path: Path) -> JobSpec:
    (tmp_path / "code").mkdir()
    (tmp_path / "code" / "train.py").write_text("print(1)\n")
    return JobSpec(
        name="j",
        command=("python", "train.py"),
        code=Code(path=str(tmp_path / "code")),
        secrets=(Secret(name="TOKEN"),),
    )


def bundler(store: SecretStore | None, here: str, environment: dict[str, str]) -> Bundler:
    return Bundler(environment, shared_jobs=SharedJobs(store, here))


def test_data_of_another_computers_job_are_not_read_here(spec: JobSpec, tmp_path: Path) -> None:
    theirs = replace(spec, data=(DataFile(path=str(tmp_path)),))
    with (
        bundler(FakeStore(), SERVER, {}) as server,
        pytest.raises(UsageError, match=r"the data of .* are files on laptop"),
    ):
        server.data_contents(RUN, theirs)


def leave(spec: JobSpec) -> None:
    """What the laptop had is not where this computer would look for it."""
    assert spec.code is not None
    (Path(spec.code.path) / "train.py").write_text("another program\n")


@pytest.mark.parametrize(
    "later",
    [RUN, replace(RUN, id="next", parent=RUN.id), replace(RUN, id="third", parent="next")],
    ids=["the same run", "its retry", "the retry of that one"],
)
def test_another_computer_ships_what_the_first_one_had(spec: JobSpec, later: Run) -> None:
    store = FakeStore()
    bundler(store, LAPTOP, {"TOKEN": "hunter2"}).pack(RUN, spec)
    leave(spec)
    if later.parent == "next":
        bundler(store, SERVER, {}).pack(replace(RUN, id="next", parent=RUN.id), spec)
    elsewhere = bundler(store, SERVER, {"TOKEN": "of the server"})
    assert code_of(elsewhere.pack(later, spec)) == "print(1)\n"
    assert elsewhere.secrets(spec, later) == b"TOKEN='hunter2'\n"


def test_the_points_of_a_batch_are_kept_once_and_as_they_were_last(spec: JobSpec) -> None:
    store = FakeStore()
    shared_jobs = SharedJobs(store, LAPTOP)
    for number in range(3):
        Bundler({"TOKEN": "a"}, shared_jobs=shared_jobs).pack(
            replace(RUN, id=f"r{number}", batch="widths"), spec
        )
    assert store.replaced == 1
    leave(spec)
    Bundler({"TOKEN": "a"}, shared_jobs=shared_jobs).pack(replace(RUN, id="r4", batch="widths"), spec)
    later = replace(RUN, id="r5", batch="widths")
    assert code_of(bundler(store, SERVER, {}).pack(later, spec)) == "another program\n"


def test_the_job_of_a_teams_run_starts_no_command_of_its_secrets(spec: JobSpec, tmp_path: Path) -> None:
    """`launch --from RUN` without a job file: the job is what a ledger says, which others write to."""
    started = tmp_path / "started"
    faulty = replace(spec, secrets=(Secret(name="TOKEN", command=f"touch {started}"),))
    with pytest.raises(
        UsageError, match="TOKEN comes from a command of a job file that this launcher did not"
    ):
        bundler(FakeStore(), LAPTOP, dict(os.environ)).check(faulty, is_own_job=False)
    assert not started.exists()
    bundler(FakeStore(), LAPTOP, {"TOKEN": "hunter2"}).check(faulty, is_own_job=False)


def test_a_computer_ships_its_own_jobs_from_its_own_disk(spec: JobSpec) -> None:
    store = FakeStore()
    bundler(store, LAPTOP, {"TOKEN": "a"}).pack(RUN, spec)
    leave(spec)
    assert code_of(bundler(store, LAPTOP, {"TOKEN": "a"}).pack(RUN, spec)) == "another program\n"


@pytest.mark.parametrize("store", [None, FakeStore()], ids=["no key", "nothing was kept"])
def test_what_was_not_kept_is_on_its_own_computer(spec: JobSpec, store: SecretStore | None) -> None:
    leave(spec)
    with pytest.raises(UsageError, match="the code and the secrets of calm-heron-3f1a are only on laptop"):
        bundler(store, SERVER, {"TOKEN": "a"}).pack(RUN, spec)


def test_a_job_without_code_and_secrets_goes_on_anywhere(spec: JobSpec) -> None:
    bare = replace(spec, code=None, secrets=(), command=("true",))
    assert bundler(None, SERVER, {}).pack(RUN, bare).size > 0


def test_what_a_command_prints_is_kept_nowhere(spec: JobSpec) -> None:
    store = FakeStore()
    printing = replace(spec, secrets=(*spec.secrets, Secret(name="PRINTED", command="echo from-a-command")))
    first = bundler(store, LAPTOP, {"TOKEN": "hunter2", "PATH": os.environ["PATH"]})
    assert first.secrets(printing) == b"TOKEN='hunter2'\nPRINTED='from-a-command'\n"
    first.pack(RUN, printing)
    (kept,) = store.secrets.values()
    assert b"from-a-command" not in kept

    elsewhere = bundler(store, SERVER, {"PRINTED": "of the server"})
    assert elsewhere.secrets(printing, RUN) == b"TOKEN='hunter2'\nPRINTED='of the server'\n"


@pytest.mark.parametrize("here", [LAPTOP, SERVER])
def test_a_command_that_stands_in_the_ledger_of_a_team_is_not_run(
    here: str, spec: JobSpec, tmp_path: Path
) -> None:
    command = f"touch {tmp_path}/was-run"
    printing = replace(spec, code=None, secrets=(Secret(name="PRINTED", command=command),))
    with pytest.raises(UsageError, match="that this launcher did not read") as caught:
        bundler(FakeStore(), here, {"PATH": os.environ["PATH"]}).secrets(printing, RUN)
    assert f'export PRINTED="$({command})"' in caught.value.hint
    assert not (tmp_path / "was-run").exists()


def test_a_launcher_runs_the_command_of_the_job_that_it_checked(spec: JobSpec) -> None:
    printing = replace(spec, code=None, secrets=(Secret(name="PRINTED", command="echo word"),))
    here = bundler(FakeStore(), LAPTOP, {"PATH": os.environ["PATH"]})
    here.check(printing)
    assert here.secrets(printing, RUN) == b"PRINTED='word'\n"
