"""Commands on a machine: their output, their environment, and their end."""

import subprocess
import time
from collections.abc import Iterator

import pytest

from tests.emulators.cable import Cable
from tests.launcher.ssh.machine import Machine
from tests.waiting import LONGEST_S, eventually, has_ended
from vastrun.launcher.core.errors import UnreachableError
from vastrun.launcher.core.job import Resources
from vastrun.launcher.decisions import offer_check
from vastrun.launcher.ssh.remote import SshRemote

SECRET = "64-hex-chars-of-a-key"


@pytest.fixture
def lease(machine: Machine) -> Iterator[None]:
    """A process with the container's environment, as the lease is, known by its state file."""
    env = {"PATH": "/opt/tools:/usr/bin:/bin", "VASTRUN_INSTANCE": "7", "LEASE_LIFE_S": "3600"}
    secrets = {"CONTAINER_ID": "7", "CONTAINER_API_KEY": SECRET, "WANDB_API_KEY": SECRET}
    process = subprocess.Popen(["sleep", "60"], env=env | secrets)
    (machine.box / "lease.state").write_text(f"state=armed\npid={process.pid}\n")
    yield
    process.kill()
    process.wait()


def test_a_command_sees_the_containers_environment_but_no_secret_of_it(shell: SshRemote, lease: None) -> None:
    seen = shell.run("env", timeout_s=LONGEST_S).stdout.splitlines()
    expected = {"PATH=/opt/tools:/usr/bin:/bin", "VASTRUN_INSTANCE=7", "LEASE_LIFE_S=3600", "CONTAINER_ID=7"}
    assert expected <= set(seen)
    assert not [line for line in seen if SECRET in line]


def test_a_command_sees_what_the_provider_adds(machine: Machine) -> None:
    shell = machine.shell(env={"VASTRUN_PYTHON": "/opt/two words/python"})
    assert shell.run('echo "$VASTRUN_PYTHON"', timeout_s=LONGEST_S).stdout == "/opt/two words/python\n"


def test_much_output_on_both_streams_does_not_block(shell: SshRemote) -> None:
    both = "head -c 1000000 /dev/zero | tr '\\0' o; head -c 1000000 /dev/zero | tr '\\0' e >&2"
    done = shell.run(both, timeout_s=60)
    assert (done.stdout, done.stderr) == ("o" * 1000000, "e" * 1000000)


def test_what_a_machine_says_on_every_login_is_no_output(machine: Machine) -> None:
    (machine.sshd.home / ".bashrc").write_text("echo Have fun!; printf 'no newline'; echo oops >&2\n")
    shell = machine.shell()
    shell.write("note", b"\n1 2\n")
    done = shell.run("echo out; echo err >&2", timeout_s=LONGEST_S)
    assert (done.stdout, done.stderr) == ("out\n", "err\n")
    assert shell.read("note") == b"\n1 2\n"


def test_known_noise_is_not_shown(machine: Machine) -> None:
    (machine.sshd.home / ".bashrc").write_text("echo Have fun!\n")
    complaint = "Warning: remote port forwarding failed for listen port 21234"
    done = machine.shell().run(f"echo '{complaint}' >&2; echo real >&2", timeout_s=LONGEST_S)
    assert done.stderr == "real\n"


def test_a_machine_tells_over_ssh_that_it_reaches_nothing(shell: SshRemote) -> None:
    wanted = Resources()
    command = offer_check.command(wanted, "http://127.0.0.1:9/it's here")
    done = shell.run(command, timeout_s=offer_check.TIMEOUT_S)
    assert offer_check.fault(done.stdout, wanted) == "it cannot download from files.pythonhosted.org"


def test_a_command_reads_no_input(shell: SshRemote) -> None:
    assert shell.run("cat; echo end", timeout_s=LONGEST_S).stdout == "end\n"


def test_what_a_command_leaves_running_goes_on(shell: SshRemote, machine: Machine) -> None:
    shell.run("setsid bash -c 'sleep 0.2; : >done' >/dev/null 2>&1 &", timeout_s=LONGEST_S)
    shell.close()
    assert eventually((machine.box / "done").exists)


def test_a_command_that_is_killed_has_the_exit_code_of_its_signal(shell: SshRemote) -> None:
    assert shell.run("kill -KILL $$", timeout_s=LONGEST_S).exit_code == 137


def test_a_command_and_its_children_end_at_the_limit_even_when_the_line_is_silent(
    wired: SshRemote, cable: Cable, machine: Machine
) -> None:
    wired.run("true", timeout_s=LONGEST_S)
    with pytest.raises(UnreachableError, match="no answer within"):
        cable.stall_after(20_000)  # the command gets through, its output does not
        # Time enough for a busy computer to begin it.
        wired.run("sleep 60 & echo $! >child; head -c 100000 /dev/zero; wait", timeout_s=4)
    pid = (machine.box / "child").read_text().strip()
    assert eventually(lambda: has_ended(pid))


def test_a_connection_that_was_cut_is_made_again_for_the_next_command(wired: SshRemote, cable: Cable) -> None:
    wired.run("true", timeout_s=LONGEST_S)
    cable.cut()
    assert wired.run("echo back", timeout_s=LONGEST_S).stdout == "back\n"


def test_a_broken_connection_runs_no_command_twice(wired: SshRemote, cable: Cable, machine: Machine) -> None:
    wired.run("true", timeout_s=LONGEST_S)
    cable.cut_after(20_000)
    with pytest.raises(UnreachableError, match="the connection broke"):
        wired.run("echo ran >>ran; head -c 100000 /dev/zero; sleep 60", timeout_s=LONGEST_S)
    assert eventually((machine.box / "ran").exists)
    assert (machine.box / "ran").read_text() == "ran\n"


@pytest.mark.slow
def test_a_silent_machine_costs_no_more_than_the_timeouts(wired: SshRemote, cable: Cable) -> None:
    wired.run("true", timeout_s=LONGEST_S)
    cable.stall()
    began = time.monotonic()
    with pytest.raises(UnreachableError):
        wired.run("true", timeout_s=2)
    assert time.monotonic() - began < LONGEST_S  # without the time-outs: for ever
    cable.mend()
    assert wired.run("echo back", timeout_s=LONGEST_S).stdout == "back\n"
