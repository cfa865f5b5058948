"""A run of two nodes on a team's database: its computer sleeps, another one takes it, and it wakes up."""

import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.e2e.market import LOADING
from tests.e2e.terminal import JOBS, WITH_STUB_TORCH, Terminal
from tests.e2e.test_vast_nodes import cluster
from tests.emulators.vast import VastEmulator
from tests.launcher.ledger.postgres import PostgresServer

# Without torch there is no all-reduce.
LAUNCH = (
    *("launch", str(JOBS / "script.yaml"), "--provider", "vast", "-y", *WITH_STUB_TORCH),
    *("--set", "nodes=2", "--set", "ranks=1", "--set", "resources.link_mbps=0", "--set", "limits.usd=1"),
    *("--set", "command=python script.py waits"),
)


@pytest.fixture
def vast() -> Iterator[VastEmulator]:
    with VastEmulator(cluster(2), pace=LOADING) as vast:
        yield vast


def joined(folder: Path, vast: VastEmulator, url: str) -> Terminal:
    """Another computer of the team, with a state folder of its own."""
    folder.mkdir()
    return Terminal(folder, **vast.variables, VASTRUN_LEDGER=url, VASTRUN_TEAM_KEY="k" * 44)


@pytest.mark.slow
def test_a_run_of_two_nodes_goes_on_at_a_desk_while_its_laptop_sleeps_and_is_left_to_it(
    tmp_path: Path, vast: VastEmulator, postgres: PostgresServer
) -> None:
    url = postgres.database()
    laptop, desk = (joined(tmp_path / name, vast, url) for name in ("laptop", "desk"))
    launch = laptop.start(*LAUNCH)
    launch.shows("[n1] training: ")
    run_id = laptop.outputs().name
    launch.send(signal.SIGSTOP)
    postgres.ask("UPDATE launchers SET until = 0", url)  # a minute in which nobody hears of it

    taken = desk.start("resume", run_id)
    taken.shows("taken over from ")
    taken.shows("[n1] rank1 step ")
    launch.send(signal.SIGCONT)
    launch.shows(f"{run_id} is driven by ")
    assert desk.type("stop", run_id).exit_code == 0

    assert [one.end().exit_code for one in (taken, launch)] == [3, 3], launch.err
    assert (len(vast.instances), len(vast.overlays), len(vast.billing.meters)) == (0, 0, 2)
    home = desk.folder / "runs" / run_id
    for log in (home / "log.txt", home / "node-1" / "log.txt"):
        assert "step 1" in log.read_text()
    shown = laptop.type("status", run_id, "--json").json()["run"]
    assert (shown["verdict"], {node["phase"] for node in shown["nodes"]}) == ("STOPPED", {"ended"})
