"""Files on their way to a machine and back, over lines that break."""

import hashlib
import os
import random
import shutil
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from tests import disks, parts
from tests.emulators.cable import Cable
from tests.launcher.ssh.machine import Machine
from tests.waiting import LONGEST_S, eventually
from vastrun.launcher.core.errors import ProviderError, UnreachableError
from vastrun.launcher.ssh.remote import SshRemote

MB = 1 << 20
TOOLS = ("bash", "dd", "wc", "mkdir", "chmod", "mv", "rm", "tail", "head")


@pytest.fixture
def big(tmp_path: Path) -> Path:
    """A file of 12 MB on this computer."""
    path = tmp_path / "bundle.tar.gz"
    path.write_bytes(random.Random(7).randbytes(12 * MB))
    return path


@pytest.fixture
def small_disk(machine: Machine) -> Iterator[Path]:
    """The box lies on a disk of 1 MB."""
    parts.require("disks")
    with disks.small_disk(machine.box, "1m") as disk:
        # Its server has mounts of its own, as they were at its start.
        machine.sshd.stop()
        machine.sshd.start()
        yield disk


def hidden_in(folder: Path) -> list[str]:
    return [path.name for path in folder.iterdir() if path.name.startswith(".")]


def read_all(shell: SshRemote, path: str, *, at: int = 0, limit: int = MB) -> bytes:
    content = b""
    while chunk := shell.read(path, offset=at + len(content), limit=limit):
        content += chunk
    return content


def test_large_files_resume_after_a_cut(wired: SshRemote, cable: Cable, machine: Machine, big: Path) -> None:
    cable.cut_after(8 * MB)
    wired.put(str(big), "inbox/bundle.tar.gz")
    assert (machine.box / "inbox" / "bundle.tar.gz").read_bytes() == big.read_bytes()
    assert cable.connections >= 2
    assert cable.carried < 18 * MB
    assert hidden_in(machine.box / "inbox") == []


@pytest.mark.slow
def test_a_large_file_goes_on_when_another_launcher_sends_it(
    wired: SshRemote, cable: Cable, machine: Machine, big: Path
) -> None:
    wired.run("true", timeout_s=LONGEST_S)
    cable.stall_after(8 * MB)
    with pytest.raises(UnreachableError):
        wired.put(str(big), "bundle.tar.gz")
    assert not (machine.box / "bundle.tar.gz").exists()
    cable.cut()
    cable.mend()
    cable.carried = 0
    machine.shell(cable.address).put(str(big), "bundle.tar.gz")
    assert (machine.box / "bundle.tar.gz").read_bytes() == big.read_bytes()
    assert cable.carried < 10 * MB


def test_a_foreign_remainder_is_found_and_sent_anew(shell: SshRemote, machine: Machine, big: Path) -> None:
    name = f".bundle.{hashlib.sha256(big.read_bytes()).hexdigest()[:16]}.part"
    (machine.box / name).write_bytes(bytes(9 * MB))
    (machine.box / ".bundle.0123456789abcdef.part").write_bytes(b"of an older bundle")
    shell.put(str(big), "bundle")
    assert (machine.box / "bundle").read_bytes() == big.read_bytes()
    assert hidden_in(machine.box) == []


@pytest.mark.parametrize("sums", [["sha256sum"], ["python3"], []], ids=["coreutils", "python", "neither"])
def test_a_file_arrives_with_whatever_the_machine_has_to_check_it(machine: Machine, sums: list[str]) -> None:
    machine.shell_with(*TOOLS, *sums).write("a b/'note'", b"content")
    assert (machine.box / "a b" / "'note'").read_bytes() == b"content"


def test_putting_a_file_again_leaves_it_as_it_is(shell: SshRemote, machine: Machine, big: Path) -> None:
    for _ in range(2):
        shell.put(str(big), "bundle")
        assert (machine.box / "bundle").stat().st_size == 12 * MB


def test_an_empty_file_arrives(shell: SshRemote, machine: Machine) -> None:
    shell.write("collected", b"")
    assert (machine.box / "collected").read_bytes() == b""


def test_a_full_disk_is_told_and_nothing_is_left_there(shell: SshRemote, small_disk: Path, big: Path) -> None:
    with pytest.raises(ProviderError, match="no space left on the machine's disk"):
        shell.put(str(big), "bundle")
    assert list(small_disk.iterdir()) == []
    shell.write("stop", b"stopped\n")


def test_a_place_that_cannot_be_written_is_told(shell: SshRemote) -> None:
    shell.write("file", b"")
    with pytest.raises(ProviderError, match="rejected the file"):
        shell.write("file/below", b"x")


def test_a_secret_is_never_part_of_a_command(machine: Machine) -> None:
    (machine.sshd.home / ".bashrc").write_text('echo "$BASH_EXECUTION_STRING" >>$HOME/commands\n')
    machine.shell().write("inbox/secrets.env", b"KEY='hunter2'\n")
    assert "secrets.env" in (machine.sshd.home / "commands").read_text()
    assert "hunter2" not in (machine.sshd.home / "commands").read_text()


@pytest.mark.slow
def test_nothing_is_left_of_an_interrupted_secret(wired: SshRemote, cable: Cable, machine: Machine) -> None:
    wired.run("true", timeout_s=LONGEST_S)
    cable.stall_after(100_000)
    with pytest.raises(UnreachableError) as caught:
        wired.write("secrets.env", b"hunter2 " * 100_000)
    assert "hunter2" not in str(caught.value)
    cable.cut()
    machine.sshd.stop()
    assert eventually(lambda: not any(machine.box.iterdir()))


def test_a_large_file_is_read_whole_over_a_line_that_is_cut(
    wired: SshRemote, cable: Cable, machine: Machine, big: Path
) -> None:
    shutil.copy(big, machine.box / "weights")
    cable.cut_after(5 * MB)
    assert read_all(wired, "weights") == big.read_bytes()
    assert cable.connections >= 2


def test_reading_many_files_costs_one_command(shell: SshRemote, machine: Machine, big: Path) -> None:
    (machine.sshd.home / ".bashrc").write_text("echo >>$HOME/commands\n")
    shutil.copy(big, machine.box / "weights")
    for name in ("a", "b b", "line\nbreak"):
        (machine.box / name).write_bytes(name.encode() * 3)
        assert shell.read(name, offset=1) == (name.encode() * 3)[1:]
    assert read_all(shell, "weights") == big.read_bytes()
    assert len((machine.sshd.home / "commands").read_text().splitlines()) == 1


def test_a_file_that_is_not_read_to_its_end_does_not_mix_with_the_next(
    shell: SshRemote, machine: Machine, big: Path
) -> None:
    content = big.read_bytes()
    shutil.copy(big, machine.box / "weights")
    (machine.box / "note").write_bytes(b"short")
    for at in (0, 100, 200, 5 * MB, 5 * MB + 100, 12 * MB - 50):
        assert shell.read("weights", offset=at, limit=100) == content[at : at + 100]
        assert shell.read("weights", offset=at + 100, limit=10) == content[at + 100 : at + 110]
        assert shell.read("note") == b"short"


def test_a_file_that_shrinks_while_it_is_read_is_no_end_of_the_line(
    shell: SshRemote, machine: Machine, big: Path
) -> None:
    shutil.copy(big, machine.box / "log")
    assert len(shell.read("log", limit=MB)) == MB
    (machine.box / "log").write_bytes(b"begun anew")
    # What was on its way before may still arrive.
    assert big.read_bytes()[MB:].startswith(read_all(shell, "log", at=MB))
    assert shell.read("log") == b"begun anew"


def test_a_folder_is_no_file_to_read(shell: SshRemote, machine: Machine) -> None:
    (machine.box / "run").mkdir()
    with pytest.raises(ProviderError, match="cannot read run"):
        shell.read("run")


def test_a_long_log_is_followed_with_flat_memory(shell: SshRemote, machine: Machine) -> None:
    with (machine.box / "run.log").open("wb") as log:
        os.truncate(log.fileno(), 40 * MB)
    shell.read("run.log", limit=4 * MB)
    before = psutil.Process().memory_info().rss
    at = 4 * MB
    while chunk := shell.read("run.log", offset=at):
        at += len(chunk)
    assert at == 40 * MB
    assert psutil.Process().memory_info().rss - before < 12 * MB
