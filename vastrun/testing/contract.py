"""The contract of a provider and of its machines, as tests that a provider's own package runs.

    from vastrun.testing.contract import ProviderContract, ProviderSetup, RemoteContract, provider_context

    @pytest.fixture(scope="module")
    def provider_setup(tmp_path_factory) -> Iterator[ProviderSetup]:
        folder = tmp_path_factory.mktemp("state")
        make = lambda: MyProvider.of(provider_context(folder, **os.environ))
        setup = ProviderSetup(provider=make(), again=make)
        yield setup
        setup.clear()

    class TestProvider(ProviderContract): ...
    class TestRemote(RemoteContract): ...

The machines are real ones, or processes of this computer that stand for them: Linux with bash and coreutils.
"""

from __future__ import annotations

import shlex
import shutil
import subprocess
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from vastrun.launcher.core import Instance, errors
from vastrun.launcher.core.job import Resources
from vastrun.launcher.ports import AllowsSsh, OpensTerminal, Remote, SeesGrowth
from vastrun.launcher.ssh.client_options import client_words
from vastrun.testing.setup import LEASE as LEASE
from vastrun.testing.setup import TIMEOUT_S, eventually, small_job
from vastrun.testing.setup import ProviderSetup as ProviderSetup
from vastrun.testing.setup import provider_context as provider_context


class ProviderContract:
    """Tests of a provider's promises. The fixture `provider_setup` is the subclass's, or its module's."""

    @pytest.fixture
    def fresh_setup(self, provider_setup: ProviderSetup) -> Iterator[ProviderSetup]:
        """Destroy all machines before the test and after it."""
        provider_setup.clear()
        yield provider_setup
        provider_setup.clear()

    @pytest.fixture
    def instance(self, fresh_setup: ProviderSetup) -> Instance:
        """Rent a machine for this test."""
        return fresh_setup.provider.rent(fresh_setup.order("vastrun-calm-heron-3f1a"))

    def test_a_job_that_fits_gets_an_offer_with_a_price_and_a_host(self, fresh_setup: ProviderSetup) -> None:
        offer = fresh_setup.provider.search(small_job())[0]
        assert offer.usd_per_hour >= 0
        assert offer.host
        assert offer.description

    def test_a_job_that_fits_nowhere_gets_no_offer(self, fresh_setup: ProviderSetup) -> None:
        impossible = replace(small_job(), resources=Resources(gpus=64, gpu_memory_gb=10_000))
        try:
            assert not fresh_setup.provider.search(impossible)
        except errors.NoOfferError as error:
            assert "64 GPUs" in str(error)

    def test_searching_rents_nothing(self, fresh_setup: ProviderSetup) -> None:
        fresh_setup.provider.search(small_job())
        assert not fresh_setup.provider.instances()

    def test_free_says_whether_its_offers_cost_nothing(self, fresh_setup: ProviderSetup) -> None:
        assert fresh_setup.provider.free == (fresh_setup.offer().usd_per_hour == 0)

    def test_a_rented_machine_is_as_it_was_ordered_and_every_launcher_sees_it(
        self, fresh_setup: ProviderSetup
    ) -> None:
        order = fresh_setup.order("vastrun-calm-heron-3f1a")
        instance = fresh_setup.provider.rent(order)
        assert instance.label == "vastrun-calm-heron-3f1a"
        assert instance.usd_per_hour == order.offer.usd_per_hour
        assert instance.rented_at > 0
        for launcher in (fresh_setup.provider, fresh_setup.again()):
            assert _unmetered(launcher.instances()) == _unmetered([instance])
        state = fresh_setup.provider.connect(instance).read("lease.state")
        assert b"state=armed" in state.splitlines()

    def test_renting_twice_makes_two_machines_of_which_one_can_be_destroyed(
        self, fresh_setup: ProviderSetup
    ) -> None:
        first = fresh_setup.provider.rent(fresh_setup.order("vastrun-calm-heron-3f1a"))
        second = fresh_setup.provider.rent(fresh_setup.order("vastrun-calm-heron-3f1a"))
        assert first.id != second.id
        assert {found.id for found in fresh_setup.provider.instances()} == {first.id, second.id}

        fresh_setup.provider.destroy(first.id)
        fresh_setup.provider.destroy(first.id)  # twice is no error

        assert _unmetered(fresh_setup.provider.instances()) == _unmetered([second])
        with pytest.raises(errors.GoneError):
            fresh_setup.provider.connect(first)

    def test_destroying_what_never_was_is_no_error(self, fresh_setup: ProviderSetup) -> None:
        fresh_setup.provider.destroy("nothing-0000.0000")

    def test_another_launcher_can_destroy_a_machine(
        self, fresh_setup: ProviderSetup, instance: Instance
    ) -> None:
        fresh_setup.again().destroy(instance.id)
        assert not fresh_setup.provider.instances()


class RemoteContract:
    """Tests of the promises of a machine's shell. The fixture `provider_setup` as in ProviderContract."""

    @pytest.fixture
    def remote(self, provider_setup: ProviderSetup) -> Iterator[Remote]:
        """Connect to a machine that all tests share."""
        remote = provider_setup.provider.connect(provider_setup.shared_machine())
        yield remote
        remote.close()

    @pytest.fixture
    def shell(self, remote: Remote) -> Remote:
        """Return a shell that runs any command."""
        return remote

    def test_what_is_written_is_read(self, remote: Remote) -> None:
        content = bytes(range(256)) * 10
        remote.write("inbox/data", content)
        assert remote.read("inbox/data") == content

    def test_writing_again_replaces_the_whole_file(self, remote: Remote) -> None:
        remote.write("note", b"a long first version")
        remote.write("note", b"short")
        assert remote.read("note") == b"short"

    def test_a_file_that_was_put_is_read(self, remote: Remote, tmp_path: Path) -> None:
        (tmp_path / "here").write_bytes(b"\0content")
        remote.put(str(tmp_path / "here"), "inbox/there")
        assert remote.read("inbox/there") == b"\0content"

    def test_reading_starts_at_the_offset_and_ends_at_the_limit(self, remote: Remote) -> None:
        remote.write("digits", b"0123456789")
        assert remote.read("digits", offset=3, limit=4) == b"3456"

    def test_reading_past_the_end_gives_nothing(self, remote: Remote) -> None:
        remote.write("digits", b"0123456789")
        assert remote.read("digits", offset=10) == b""
        assert remote.read("digits", offset=99) == b""

    def test_reading_what_is_not_there_gives_nothing(self, remote: Remote) -> None:
        assert remote.read("no/such/file") == b""

    def test_a_file_that_was_read_is_seen_to_grow(self, remote: Remote) -> None:
        if not isinstance(remote, SeesGrowth):
            pytest.skip("every read asks the machine")
        remote.write("grows", b"one\n")
        assert remote.has_grown("grows") is None
        assert remote.read("grows") == b"one\n"
        if remote.has_grown("grows") is None:
            pytest.skip("its tail cannot follow a file")
        assert not remote.has_grown("grows")
        for number, line in enumerate((b"two\n", b"six\n"), start=1):
            done = remote.run(f"echo {line.decode().strip()} >>grows", timeout_s=TIMEOUT_S)
            assert done.exit_code == 0
            eventually(lambda: remote.has_grown("grows"), what="the new line")
            assert remote.read("grows", offset=4 * number - 4) == (b"one\n", b"two\n")[number - 1] + line
            assert not remote.has_grown("grows")

    def test_a_box_goes_on_when_its_connection_is_closed(
        self, provider_setup: ProviderSetup, remote: Remote
    ) -> None:
        remote.write("note", b"still here")
        remote.close()
        assert provider_setup.provider.connect(provider_setup.shared_machine()).read("note") == b"still here"

    def test_every_verb_on_a_box_that_is_no_more_says_so(
        self, provider_setup: ProviderSetup, tmp_path: Path
    ) -> None:
        (tmp_path / "here").write_bytes(b"content")
        verbs: tuple[Callable[[Remote], object], ...] = (
            lambda remote: remote.run("true", timeout_s=TIMEOUT_S),
            lambda remote: remote.write("note", b"content"),
            lambda remote: remote.put(str(tmp_path / "here"), "inbox/there"),
            lambda remote: remote.read("note"),
        )
        provider = provider_setup.provider
        ended = provider.rent(provider_setup.order("vastrun-warm-otter-77aa"))
        remotes = [provider.connect(ended) for _ in verbs]
        provider.destroy(ended.id)
        for verb, remote in zip(verbs, remotes, strict=True):
            with pytest.raises(errors.GoneError):
                verb(remote)
        assert ended.id not in [instance.id for instance in provider.instances()]

    def test_a_command_gives_its_exit_code_and_both_its_outputs(self, shell: Remote) -> None:
        done = shell.run("echo out; echo err >&2; exit 3", timeout_s=TIMEOUT_S)
        assert (done.exit_code, done.stdout, done.stderr) == (3, "out\n", "err\n")

    def test_a_command_runs_in_the_folder_of_the_box(self, shell: Remote) -> None:
        shell.write("note", b"from the box")
        assert shell.run("cat note", timeout_s=TIMEOUT_S).stdout == "from the box"
        assert shell.run('[ "$PWD" = "$VASTRUN_BOX" ]', timeout_s=TIMEOUT_S).exit_code == 0

    def test_a_command_sees_the_order_s_variables(self, shell: Remote) -> None:
        assert shell.run("echo $LEASE_LIFE_S", timeout_s=TIMEOUT_S).stdout == "3600\n"

    @pytest.mark.parametrize("make", ["mkfifo odd", "mkdir odd", "ln -s /dev/zero odd"])
    def test_what_is_no_file_is_not_read(self, shell: Remote, make: str) -> None:
        assert shell.run(f"rm -rf odd && {make}", timeout_s=TIMEOUT_S).exit_code == 0
        with pytest.raises(errors.BoxError, match="cannot read odd: it is not a file"):
            shell.read("odd")

    def test_output_that_is_not_text_is_no_error(self, shell: Remote) -> None:
        assert "\N{REPLACEMENT CHARACTER}" in shell.run("printf '\\377'", timeout_s=TIMEOUT_S).stdout

    def test_a_command_without_an_answer_in_time_is_unreachable_and_ended(self, shell: Remote) -> None:
        with pytest.raises(errors.UnreachableError, match="no answer within"):
            shell.run("echo $$ >pid; sleep 60", timeout_s=4)  # enough for a busy computer to begin it
        pid = shell.read("pid").decode().strip()
        assert pid.isdigit()
        alive = f"grep -s '^State:.[^Z]' /proc/{pid}/status"  # Z: ended, and nobody has asked how
        eventually(lambda: shell.run(alive, timeout_s=TIMEOUT_S).exit_code != 0, what="its end")

    def test_a_written_file_has_the_mode_that_was_asked_for(self, shell: Remote) -> None:
        shell.write("inbox/secrets.env", b"A='b'\n", mode=0o600)
        assert shell.run("stat -c %a inbox/secrets.env", timeout_s=TIMEOUT_S).stdout == "600\n"

    def test_nothing_of_an_unfinished_file_is_left(self, shell: Remote, tmp_path: Path) -> None:
        before = shell.run("ls -A inbox", timeout_s=TIMEOUT_S).stdout
        with pytest.raises(errors.ProviderError, match="No such file"):
            shell.put(str(tmp_path / "not here"), "inbox/new")
        assert shell.run("ls -A inbox", timeout_s=TIMEOUT_S).stdout == before

    def test_the_users_own_command_runs_in_the_folder_of_the_box(self, shell: Remote) -> None:
        if not isinstance(shell, OpensTerminal):
            pytest.skip("this provider has no login")
        if shutil.which("ssh") is None:
            pytest.skip("OpenSSH's client is not installed")
        shell.write("note", b"from the box")
        program = shell.terminal("cat note; exit 3")
        done = subprocess.run(
            program.argv, cwd=program.cwd, env=program.env, capture_output=True, text=True, timeout=TIMEOUT_S
        )
        assert (done.returncode, done.stdout) == (3, "from the box"), done.stderr

    def test_the_users_own_programs_reach_the_folder_of_the_box_by_ssh(self, shell: Remote) -> None:
        if not isinstance(shell, AllowsSsh):
            pytest.skip("this provider has no SSH server")
        if shutil.which("ssh") is None:
            pytest.skip("OpenSSH's client is not installed")
        shell.write("note", b"from the box")
        try:
            access = shell.ssh_access()
        except errors.UsageError:
            pytest.skip("the machines of this provider have no SSH server")
        command = f"cat {shlex.quote(access.folder)}/note"
        argv = ["ssh", "-F", "none", *client_words(access), "--", access.host, command]
        done = subprocess.run(argv, capture_output=True, text=True, timeout=TIMEOUT_S)
        assert (done.returncode, done.stdout) == (0, "from the box"), done.stderr


def _unmetered(instances: Sequence[Instance]) -> Sequence[Instance]:
    """The machines without what grows while they run."""
    return [replace(instance, up_s=None, down_gb=0.0, up_gb=0.0) for instance in instances]
