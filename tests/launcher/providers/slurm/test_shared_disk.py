"""What boxes leave on the shared disk: nothing that one of them writes is a row of another."""

import os
from pathlib import Path

import pytest

from tests.fakes import FakeClock
from tests.offers import rtx_4090
from tests.runs import a_run
from vastrun.launcher.core.errors import AccountMismatchError, UnreachableError
from vastrun.launcher.core.settings import SlurmSettings
from vastrun.launcher.providers.slurm import SlurmProvider

ONE, OTHER = "calm-heron-3f1a.0a0b0c0d", "still-otter-77aa.00000000"
JOBS = [
    f"{n}|RUNNING|0:04|1800000000|N/A|1|n{n}|None|vastrun-{box}|vastrun-{box.partition('.')[0]}"
    for n, box in enumerate((ONE, OTHER))
]
SQUEUE = "#!/bin/bash\n" + "".join(f"echo '{job}'\n" for job in JOBS)


@pytest.fixture
def provider(tmp_path: Path) -> SlurmProvider:
    for box in (ONE, OTHER, ".orders"):
        (tmp_path / "boxes" / box).mkdir(parents=True)
    place_of(tmp_path, ONE).write_text("n0:29400\n")
    place_of(tmp_path, OTHER).write_text("n1:29401\n")
    squeue = tmp_path / "squeue"
    squeue.write_text(SQUEUE)
    squeue.chmod(0o755)
    return provider_at(tmp_path)


def provider_at(tmp_path: Path, folder: str = "boxes", *, knows_run: bool = True) -> SlurmProvider:
    """The run of ONE was begun when the folder was `boxes`; by the settings it is `folder`."""
    offer = rtx_4090(place=str(tmp_path / "boxes"))
    runs = [a_run(provider="slurm", offer=offer, instance_id=ONE)] if knows_run else []
    clock = FakeClock(0.0)
    settings = SlurmSettings(folder=str(tmp_path / folder))
    environ = {**os.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}"}
    return SlurmProvider(
        settings, tmp_path, environ, "python3", clock=clock, uptime=clock.now, runs=lambda: runs
    )


def test_a_run_keeps_the_folder_with_which_it_was_begun(provider: SlurmProvider, tmp_path: Path) -> None:
    assert places(provider_at(tmp_path, "elsewhere", knows_run=False))[ONE] == ""
    assert places(provider_at(tmp_path, "elsewhere")) == places(provider)


@pytest.mark.parametrize("folder", ["boxes", "elsewhere"])
@pytest.mark.parametrize("state", ["RUNNING", "COMPLETED", "no longer known"])
def test_where_the_folder_of_a_run_is_not_on_this_computer_one_error_names_it(
    state: str, folder: str, provider: SlurmProvider, tmp_path: Path
) -> None:
    (tmp_path / "boxes").rename(tmp_path / "hidden")
    jobs = SQUEUE.replace("RUNNING", state) if state != "no longer known" else "#!/bin/bash\n"
    (tmp_path / "squeue").write_text(jobs)
    away = provider_at(tmp_path, folder)
    (machine,) = [one for one in away.instances() if one.id == ONE]
    says = rf"folder {tmp_path}/boxes \(slurm.folder when it began\) is not on this computer"
    waits = state == "RUNNING" and folder == "boxes"  # the disk may come back
    with pytest.raises(UnreachableError if waits else AccountMismatchError, match=says):
        away.connect(machine)
    if state != "RUNNING":
        with pytest.raises(AccountMismatchError, match=says):
            away.destroy(ONE)
        (tmp_path / "hidden" / ONE).rename(tmp_path / "away")
        (tmp_path / "hidden").rename(tmp_path / "boxes")
        assert all(one.id != ONE for one in away.instances())


def place_of(folder: Path, box: str) -> Path:
    return folder / "boxes" / box / ".rendezvous"


def places(provider: SlurmProvider) -> dict[str, str]:
    return {machine.id: machine.rendezvous for machine in provider.instances()}


def test_each_box_says_where_the_nodes_of_its_run_meet(provider: SlurmProvider) -> None:
    assert places(provider) == {ONE: "n0:29400", OTHER: "n1:29401"}


@pytest.mark.parametrize(
    "line", [f"1800000000.0 {OTHER} evil:1", f"9e9 {OTHER} evil:1\n@", "@\n@@\n7|RUNNING"]
)
def test_line_breaks_in_a_message_make_no_rows(provider: SlurmProvider, line: str, tmp_path: Path) -> None:
    place_of(tmp_path, ONE).write_text(f"n0:29400\n{line}\n")
    assert places(provider)[OTHER] == "n1:29401"


@pytest.mark.parametrize("of", ["boxes", "boxes/.over"])
def test_a_folder_whose_name_has_line_breaks_is_no_row_of_another(
    provider: SlurmProvider, of: str, tmp_path: Path
) -> None:
    name = f"x\n1800000000.0 {OTHER} evil:1"
    (tmp_path / of).mkdir(exist_ok=True)
    (tmp_path / of / name).mkdir() if of == "boxes" else (tmp_path / of / name).touch()
    assert places(provider) == {ONE: "n0:29400", OTHER: "n1:29401"}


def test_a_pipe_in_the_place_of_the_file_holds_nobody_up(provider: SlurmProvider, tmp_path: Path) -> None:
    place_of(tmp_path, ONE).unlink()
    os.mkfifo(place_of(tmp_path, ONE))
    assert places(provider)[OTHER] == "n1:29401"
