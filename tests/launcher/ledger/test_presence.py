"""A launcher that the kernel killed for lack of memory is told from one that was killed otherwise."""

import subprocess
import sys
from pathlib import Path

import pytest

from vastrun.launcher.ledger.presence import (
    KillCount,
    Presence,
    killed_since,
    read_kill_count,
)

HOLDS = """
import sys
from pathlib import Path
from vastrun.launcher.ledger.presence import KillCount
from vastrun.launcher.ledger.presence import Presence
count = KillCount(boot="b", computer=3, cgroup="", in_cgroup=-1)
print(Presence(Path(sys.argv[1]), count=lambda: count).who, flush=True)
sys.stdin.read()
"""


class Kernel:
    """What a kernel says in files."""

    def __init__(self, folder: Path) -> None:
        self.proc, self.cgroups = folder / "proc", folder / "cgroup"
        self.says()

    def says(
        self, *, boot: str = "b", computer: int = 3, cgroup: str = "user/run.scope", kills: int | None = 1
    ) -> None:
        for path, text in {
            self.proc / "sys/kernel/random/boot_id": f"{boot}\n",
            self.proc / "vmstat": f"nr_free_pages 7\noom_kill {computer}\nunevictable_pgs_culled 0\n",
            self.proc / "self/cgroup": f"0::/{cgroup}\n",
        }.items():
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
        events = self.cgroups / cgroup / "memory.events"
        events.parent.mkdir(parents=True, exist_ok=True)
        events.unlink(missing_ok=True)
        if kills is not None:
            events.write_text(f"low 0\nhigh 0\nmax 4\noom 1\noom_kill {kills}\noom_group_kill 0\n")

    def count(self) -> KillCount:
        count = read_kill_count(self.proc, self.cgroups)
        assert count is not None
        return count

    def killed_since(self, count: KillCount) -> bool:
        return killed_since(count, self.proc, self.cgroups)


@pytest.fixture
def kernel(tmp_path: Path) -> Kernel:
    return Kernel(tmp_path)


def test_the_count_of_the_control_group_decides_where_it_can_be_read(kernel: Kernel) -> None:
    before = kernel.count()
    assert before == KillCount(boot="b", computer=3, cgroup="user/run.scope", in_cgroup=1)
    assert not kernel.killed_since(before)
    kernel.says(computer=9)
    assert not kernel.killed_since(before), "in another control group"
    kernel.says(computer=9, kills=2)
    assert kernel.killed_since(before)


@pytest.mark.parametrize(("computer", "killed"), [(3, False), (4, True)])
def test_the_computers_decides_once_the_group_is_gone(kernel: Kernel, computer: int, killed: bool) -> None:
    before = kernel.count()
    kernel.says(computer=computer, kills=None)
    assert kernel.killed_since(before) is killed


def test_after_a_restart_of_the_computer_nothing_is_known(kernel: Kernel) -> None:
    before = kernel.count()
    kernel.says(boot="other", computer=9, kills=9)
    assert not kernel.killed_since(before)


def test_a_system_that_does_not_say_has_no_count(tmp_path: Path) -> None:
    assert read_kill_count(tmp_path, tmp_path) is None
    assert not killed_since(KillCount(boot="b", computer=0, cgroup="", in_cgroup=-1), tmp_path, tmp_path)


def killed_launcher(folder: Path) -> str:
    """The name of a process that was there, and that a signal ended."""
    process = subprocess.Popen(
        [sys.executable, "-c", HOLDS, str(folder)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    who = process.stdout.readline().strip()
    process.kill()
    process.communicate()
    return who


@pytest.mark.parametrize("looked_at_first", [False, True])
def test_a_launcher_that_was_killed_for_memory_is_listed_until_it_was_reported(
    tmp_path: Path, looked_at_first: bool
) -> None:
    who = killed_launcher(tmp_path)
    presence = Presence(tmp_path, killed_since=lambda before: before.computer == 3)
    if looked_at_first:
        assert not presence.is_alive(who)
    for _ in range(2):
        assert presence.killed_for_memory() == [who]
    presence.forget(presence.killed_for_memory()[0])
    assert not presence.killed_for_memory()
    assert not list(tmp_path.iterdir())


def test_one_that_was_killed_otherwise_is_not_listed_and_leaves_nothing(tmp_path: Path) -> None:
    killed_launcher(tmp_path)
    assert not Presence(tmp_path, killed_since=lambda _: False).killed_for_memory()
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("text", ["", "{", "[]", "7", "{}", '{"boot": 1}', "[" * 100_000])
def test_one_whose_file_holds_no_count_is_not_listed_and_leaves_nothing(tmp_path: Path, text: str) -> None:
    (tmp_path / "7-0123abcd").write_text(text)
    assert not Presence(tmp_path, killed_since=lambda _: True).killed_for_memory()
    assert not list(tmp_path.iterdir())


def test_one_that_lives_is_not_listed(tmp_path: Path) -> None:
    presence = Presence(tmp_path, killed_since=lambda _: True)
    assert presence.is_alive(presence.who)
    assert not presence.killed_for_memory()
    assert presence.is_alive(presence.who)
