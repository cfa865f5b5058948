"""A provider in a package of its own, `examples/provider-ssh`: its tests, and runs by the command."""

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from tests.e2e.terminal import JOBS, WITH_STUB_TORCH, Terminal
from tests.emulators.sshd import Sshd
from tests.torch_builds import STUB_TORCH
from tests.waiting import eventually
from vastrun.launcher.ssh.keys import KeyRing

EXAMPLE = Path(__file__).parents[2] / "examples" / "provider-ssh"
SCRIPT = (
    "launch",
    str(JOBS / "script.yaml"),
    "--provider",
    "ssh-machines",
    "--set",
    "ranks=1",
    *WITH_STUB_TORCH,
)

pytestmark = pytest.mark.needs("sshd")


@pytest.fixture
def sshd(tmp_path: Path) -> Iterator[Sshd]:
    """A workstation."""
    with Sshd(tmp_path / "sshd") as sshd:
        yield sshd


def install(folder: Path) -> str:
    """Install the package as pip does: the module, and its metadata with the entry point."""
    package = folder / "site-packages"
    package.mkdir()
    (package / "vastrun_ssh_machines").symlink_to(EXAMPLE / "src" / "vastrun_ssh_machines")
    metadata = package / "vastrun_ssh_machines-0.1.0.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: vastrun-ssh-machines\nVersion: 0.1.0\n")
    (metadata / "entry_points.txt").write_text(
        "[vastrun.providers]\nssh-machines = vastrun_ssh_machines:SshMachinesProvider\n"
    )
    return str(package)


@pytest.fixture
def user(tmp_path: Path, sshd: Sshd) -> Iterator[Terminal]:
    """Somebody with that workstation in their list."""
    key = KeyRing(tmp_path / "keys").pair("me")
    sshd.authorize(key.public)
    host, port = sshd.address
    row = {"name": "turing", "host": host, "port": port, "user": sshd.user, "key": str(key.private_path)}
    row |= {"python": sys.executable, "folder": str(tmp_path / "boxes"), "host_key": sshd.fingerprint}
    config = tmp_path / "config" / "vastrun"
    config.mkdir(parents=True)
    (config / "ssh-machines.yaml").write_text(yaml.safe_dump({"machines": [row]}))
    terminal = Terminal(tmp_path, PYTHONPATH=install(tmp_path))
    yield terminal
    terminal.clean()


def boxes(terminal: Terminal) -> list[Path]:
    return list((terminal.folder / "boxes").glob("[!.]*"))


@pytest.mark.slow
def test_a_program_succeeds_on_a_workstation_and_nothing_of_it_is_left(user: Terminal) -> None:
    done = user.type(*SCRIPT)
    assert done.exit_code == 0, done.err
    assert "verdict   SUCCEEDED" in done.out
    assert (user.outputs() / "outputs" / "result.txt").read_text() == "42\n"
    assert boxes(user) == []
    assert user.leftovers() == []


@pytest.mark.slow
@pytest.mark.torch
def test_a_training_succeeds_as_on_this_computer(user: Terminal) -> None:
    done = user.type("launch", str(JOBS / "learn.yaml"), "--provider", "ssh-machines")
    assert done.exit_code == 0, done.err
    assert (user.outputs() / "checkpoints" / "step-000030" / "manifest.json").exists()
    assert boxes(user) == []


@pytest.mark.slow
def test_a_launcher_that_was_killed_is_followed_by_one_that_finds_the_machine(user: Terminal) -> None:
    launch = user.start(*SCRIPT, "--set", "command=python script.py waits")
    eventually(lambda: boxes(user), what="a box")
    launch.shows("step")
    launch.kill()
    assert boxes(user)

    stopped = user.type("stop", "last")  # without a launcher, it drives the run itself

    assert stopped.exit_code == 0, stopped.err
    assert boxes(user) == []
    assert user.leftovers() == []


@pytest.mark.slow
def test_a_workstation_is_held_and_a_batch_runs_on_its_slots(user: Terminal) -> None:
    (user.folder / "job.yaml").write_text(
        "name: own\nresources: {gpus: 0, disk_gb: 8}\nranks: 1\nlimits: {hours: 0.2}\n"
        f"env: {{PYTHONPATH: {STUB_TORCH}}}\n"
        "command: python -c \"print('n is {n}')\"\nsuccess: {log: 'n is'}\n"
    )
    held = user.type("hold", "job.yaml", "--provider", "ssh-machines", "--slots", "2", "-d")
    assert held.exit_code == 0, held.err
    assert "the machine takes slots: 2" in held.err
    assert len(boxes(user)) == 1

    done = user.type("sweep", "job.yaml", "n=1,2,3", "--provider", "pool", "--parallel", "2")
    assert done.exit_code == 0, done.err
    assert done.out.count("SUCCEEDED") == 3
    assert len(boxes(user)) == 1, "the slots lie on the machine that is held"

    (holder,) = [
        run["id"] for run in user.type("status", "--json").json()["runs"] if run["job"] == "hold-own"
    ]
    assert user.type("stop", holder).exit_code == 0
    assert boxes(user) == []
    assert user.leftovers() == []


@pytest.mark.slow
def test_its_own_tests_pass_the_contract_of_providers_on_real_servers(tmp_path: Path) -> None:
    words = [
        sys.executable,
        "-m",
        "pytest",
        "-q",
        "-p",
        "no:cacheprovider",
        "--basetemp",
        str(tmp_path / "t"),
    ]
    done = subprocess.run([*words, "-n", "4"], cwd=EXAMPLE, capture_output=True, text=True, timeout=550)
    assert done.returncode == 0, done.stdout[-4000:]
    assert "skipped" not in done.stdout.splitlines()[-1]
