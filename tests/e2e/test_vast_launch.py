"""The road to Vast and back, with the installed command, an emulated market and real ranks on real boxes."""

import json
import re
import time
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.terminal import JOBS, WITH_STUB_TORCH, Terminal
from tests.emulators.instance import Pace
from tests.emulators.machines import Machine
from tests.emulators.vast import VastEmulator
from tests.waiting import eventually
from vastrun.launcher.cost.reconciliation import ROUNDED_USD

pytestmark = pytest.mark.torch

ON_VAST = ("--provider", "vast", "--set", "limits.usd=1", "-y")
QUICKSTART = (  # in seconds instead of a minute
    str(Path(__file__).parents[2] / "configs" / "quickstart.yaml"),
    *("--set", "train.steps=20", "--set", "train.batch=8", "--set", "train.log_every=5"),
    *("--set", "train.checkpoint_every=10", "--set", "train.data.train=16", "--set", "train.data.test=4"),
    *("--set", "train.model.dim=16", "--set", "train.model.depth=1"),
    *("--set", "train.plots=false"),
)
SCRIPT = (
    *("launch", str(JOBS / "script.yaml"), *ON_VAST),
    *("--set", "ranks=1", "--set", "resources.gpus=1", *WITH_STUB_TORCH),
)


def losses(outputs: Path) -> list[tuple[int, float]]:
    """Of the metrics that came home."""
    points = map(json.loads, (outputs / "metrics.jsonl").read_text().splitlines())
    return [(point["step"], point["loss"]) for point in points]


def told(outputs: Path) -> list[str]:
    """What the ranks said of their steps, without what depends on the hour and the load: also the order."""
    log = (outputs / "log.txt").read_text()
    return sorted(re.findall(r"rank0 (step \d+/\d+  loss \S+|checkpoint \S+ saved|rollout nRMSE \S+)", log))


def names(outputs: Path) -> set[str]:
    """Of all files, without W&B's own folder, which is named after the hour."""
    paths = (str(path.relative_to(outputs)) for path in outputs.rglob("*") if path.is_file())
    return {path for path in paths if not path.startswith("details/wandb/")}


def costs(terminal: Terminal) -> Any:
    """What the newest run cost, part by part."""
    (run,) = terminal.type("cost", "last", "--json").json()["runs"]
    return run


def charged_usd(terminal: Terminal) -> Any:
    """What was charged for the only run."""
    (run,) = terminal.type("cost", "reconcile", "--json").json()["runs"]
    return run["charged_usd"]


@pytest.mark.slow
def test_the_quickstart_on_vast_ends_as_it_does_on_this_computer_and_costs_what_is_billed(
    terminal: Terminal, rented: Terminal, vast: VastEmulator
) -> None:
    here = terminal.type("launch", *QUICKSTART)
    there = rented.type("launch", *QUICKSTART, *ON_VAST)

    assert there.exit_code == here.exit_code == 0, here.err + there.err
    assert "SUCCEEDED" in here.out
    assert "rollout nRMSE" in here.out
    assert "outputs" in here.out
    assert (terminal.outputs() / "checkpoints" / "step-000020" / "state.json").exists()
    assert terminal.outcome()["wandb"]["mode"] == "offline"
    assert terminal.outcome()["wandb"]["state"] == "finished"
    assert "wandb sync details/wandb/offline-run-" in (terminal.outputs() / "README.md").read_text()
    assert terminal.leftovers() == []
    assert terminal.status()["run"]["verdict"] == rented.status()["run"]["verdict"] == "SUCCEEDED"
    assert losses(rented.outputs()) == losses(terminal.outputs())
    assert told(rented.outputs()) == told(terminal.outputs())
    assert names(rented.outputs()) == names(terminal.outputs()) | {"onstart.sh"}  # the order, readable
    assert len(vast.instances) == 0
    (meter,) = vast.billing.meters.values()
    counted = costs(rented)
    a_second_usd = rented.status()["run"]["usd_per_hour"] / 3600
    assert meter.total_usd * 0.998 <= counted["usd"] <= meter.total_usd + 2 * a_second_usd
    assert counted["gpu_usd"] == pytest.approx(meter.usd("gpu"), rel=0.02)
    assert counted["storage_usd"] == pytest.approx(meter.usd("disk"), rel=0.02)
    assert counted["traffic_usd"] == pytest.approx(meter.usd("bwd") + meter.usd("bwu"), rel=0.02)
    charged = eventually(lambda: charged_usd(rented), what="the settled bill")
    assert charged == pytest.approx(meter.total_usd, abs=ROUNDED_USD)


@pytest.mark.slow
@pytest.mark.parametrize("has_sdk", [True, False])
def test_the_whole_way_is_the_same_with_and_without_vast_s_own_package(
    rented: Terminal, vast: VastEmulator, tmp_path: Path, has_sdk: bool
) -> None:
    if not has_sdk:
        (tmp_path / "vastai.py").write_text("raise ImportError('not installed')\n")
        rented.variables |= {"PYTHONPATH": str(tmp_path)}
    done = rented.type(*SCRIPT, "--set", "command=python script.py passes")
    assert done.exit_code == 0, done.err
    assert len(vast.instances) == 0
    assert vast.schedules.jobs == {}, "the end that was scheduled is removed"
    assert rented.type("doctor", "--provider", "vast").exit_code in (0, 1)
    assert "SUCCEEDED" in rented.type("why", "last").out


@pytest.mark.slow
@pytest.mark.parametrize(
    ("behaviour", "limit", "most_usd"),
    [
        pytest.param("passes", "limits.hours=1", 0.02, id="success"),
        pytest.param("exits_3", "limits.hours=1", 0.02, id="failure"),
        pytest.param("hangs", "limits.stall_s=5", 0.02, id="hang"),
        pytest.param("waits", "limits.hours=0.006", 0.02, id="deadline"),
        pytest.param("waits", "limits.usd=0.06", 0.02, id="money"),
    ],
)
def test_a_box_whose_launcher_is_gone_for_good_ends_by_itself(
    behaviour: str, limit: str, most_usd: float, rented: Terminal, vast: VastEmulator
) -> None:
    told = ("--set", f"command=python script.py {behaviour}", "--set", "limits.collect_s=2", "--set", limit)
    launch = rented.start(*SCRIPT, *told)
    launch.shows("supervisor starting")
    launch.kill()
    assert len(vast.instances) == 1

    unseen_since = time.time()
    eventually(lambda: len(vast.instances) == 0, what="the end of the box by its lease")
    assert rented.type("resume", "last").exit_code == 7
    bill_usd, counted = vast.billing.total_usd(), costs(rented)
    unseen_usd = (time.time() - unseen_since) / 3600 * counted["usd_per_hour"]
    assert bill_usd <= most_usd
    assert bill_usd * 0.99 <= counted["usd"] <= bill_usd * 1.01 + unseen_usd


LEASE_KILLER = "import os, re; os.kill(int(re.search(r'pid=(\\d+)', open('../lease.state').read())[1]), 9)"


@pytest.mark.slow
def test_a_lease_killed_by_the_program_is_restarted_by_any_look(rented: Terminal, vast: VastEmulator) -> None:
    """With the instance's own key, which no session and no program is given."""
    program = ("--set", f'command=python -c "{LEASE_KILLER}; import time; time.sleep(600)"')
    launch = (*SCRIPT, *program, "--set", "success={exit_code: 0}", "--detach")
    assert rented.type(*launch).exit_code == 0
    eventually(lambda: rented.status()["box"]["lease"] == "armed" and told_by(rented), what="a new lease")
    assert rented.type("stop", "--now", "last").exit_code == 0
    assert len(vast.instances) == 0


def told_by(terminal: Terminal) -> bool:
    return any("a new one is armed" in event["text"] for event in terminal.status()["events"])


@pytest.mark.slow
def test_a_detached_run_is_over_at_its_deadline_though_its_lease_counts_from_later(tmp_path: Path) -> None:
    machine = Machine(id=41000, inet_down=90_000.0)
    with VastEmulator([machine], pace=Pace(created_s=1.0, loading_s=6.0)) as vast:
        terminal = Terminal(tmp_path, **vast.variables)
        by = datetime.now() + timedelta(seconds=40)
        waits = ("--set", "command=python script.py waits", "--by", f"{by:%Y-%m-%d %H:%M:%S}")
        launch = terminal.type(*SCRIPT, *waits, "--detach")
        assert launch.exit_code == 0, launch.err
        terminal.kill_drivers()
        assert len(vast.instances) == 1

        eventually(lambda: len(vast.instances) == 0, what="the end of the box at the deadline")
        assert time.time() <= by.timestamp() + 2
        terminal.clean()
