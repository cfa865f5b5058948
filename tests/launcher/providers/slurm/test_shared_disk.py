"""What boxes leave on the shared disk: no row of another, and they stay until their programs have ended."""

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
    install_squeue(tmp_path, SQUEUE)
    return provider_at(tmp_path)


def install_squeue(folder: Path, script: str) -> None:
    (folder / "squeue").write_text(script)
    (folder / "squeue").chmod(0o755)


def provider_at(
    tmp_path: Path, folder: str = "boxes", *, knows_run: bool = True, clock: FakeClock | None = None
) -> SlurmProvider:
    """The run of ONE was begun when the folder was `boxes`; by the settings it is `folder`."""
    offer = rtx_4090(place=str(tmp_path / "boxes"))
    runs = [a_run(provider="slurm", offer=offer, instance_id=ONE)] if knows_run else []
    clock = clock or FakeClock(0.0)
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


COMPLETING = f"""\
#!/bin/bash
# The first looks, as many as `ends_after` says, find the job COMPLETING. Notes whether the box is there.
cd "${{0%/*}}"
[[ -d boxes/{ONE} ]] && echo box >>looks || echo none >>looks
(($(grep -c . looks) > $(<ends_after))) || echo '{JOBS[0].replace("RUNNING", "COMPLETING")}'
"""


@pytest.mark.parametrize(("ends_after", "waited_s"), [(5, 1.2), (1000, 15.3)], ids=["in a while", "never"])
def test_a_box_is_removed_when_the_programs_have_ended_or_a_silent_node_does_not_say(
    tmp_path: Path, ends_after: int, waited_s: float
) -> None:
    place_of(tmp_path, ONE).parent.mkdir(parents=True)
    install_squeue(tmp_path, COMPLETING)
    (tmp_path / "ends_after").write_text(str(ends_after))
    clock = FakeClock(0.0)

    provider_at(tmp_path, clock=clock).destroy(ONE)

    assert clock.now() == pytest.approx(waited_s, abs=0.35)  # to one look
    assert set((tmp_path / "looks").read_text().split()) == {"box"}
    assert not place_of(tmp_path, ONE).parent.exists()
