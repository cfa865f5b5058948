"""Two computers, one account: neither ends the other's machines unasked; both see all runs."""

import json
import time
from dataclasses import replace
from pathlib import Path

import pytest

from tests.e2e.terminal import Terminal as Shell
from tests.emulators.vast import VastEmulator
from tests.jobs import train_job
from tests.launcher.providers.vast.rentals import open_market, order
from tests.launcher.terminal import Terminal
from tests.launcher.world import World
from tests.runs import a_run
from vastrun.launcher.commands.reap import Owner, orphans
from vastrun.launcher.commands.takeover import follow
from vastrun.launcher.config import dump_job
from vastrun.launcher.core import Driver, Phase, Progress, Run
from vastrun.launcher.core.labels import label_of, ledger_in, run_id_in
from vastrun.launcher.ledger.sqlite import SqliteLedger

LONG = "vastrun-" + "x" * 4000 + ".3fa9c0de"
FORGED = "vastrun-a\n99999 gone\x1b[2J.3fa9c0de"


@pytest.fixture
def desk(tmp_path: Path) -> Terminal:
    return Terminal(tmp_path / "desk")


@pytest.fixture
def laptop(tmp_path: Path, desk: Terminal) -> Terminal:
    """A ledger of its own, on the market of the desk."""
    other = Terminal(tmp_path / "laptop")
    other.market, other.clock = desk.market, desk.clock
    return other


def forsake(terminal: Terminal) -> None:
    """The run of that computer ends in its ledger, and its machine stays."""
    run = terminal.ledger.runs()[0]
    terminal.ledger.hold(run.id, Driver(who="desk:1:1.0", until=terminal.clock.now() + 600))
    terminal.ledger.save(replace(run, phase=Phase.ENDED), who="desk:1:1.0")
    terminal.ledger.release(run.id, "desk:1:1.0")


def test_a_label_names_its_run_and_its_ledger_and_older_ones_are_read() -> None:
    new, old = label_of("calm-heron-3f1a", "9c41e02b"), label_of("calm-heron-3f1a", "")
    assert (new, old) == ("vastrun-calm-heron-3f1a.9c41e02b", "vastrun-calm-heron-3f1a")
    assert run_id_in(new) == run_id_in(old) == "calm-heron-3f1a"
    assert (ledger_in(new), ledger_in(old)) == ("9c41e02b", None)
    for broken in (
        "vastrun-",
        "vastrun-a.",
        "vastrun-a.9c41e02",
        "vastrun-a.9C41E02B",
        "vastrun-a.9c41e02b.1",
        "",
    ):
        assert ledger_in(broken) is None


def test_plain_reap_never_ends_what_another_computer_trains_on(desk: Terminal, laptop: Terminal) -> None:
    assert desk.launch("--detach").exit_code == 0
    for arguments in (("reap",), ("reap", "-y"), ("reap", "--yes", "--json")):
        assert laptop.type(*arguments).exit_code == 0
    assert desk.machines() == 1
    said = laptop.type("reap", "--dry-run").stdout
    assert f"another computer's (ledger {desk.ledger.id})" in said
    assert f"vastrun reap --from-ledger {desk.ledger.id}" in said
    assert max(map(len, said.splitlines())) <= 80
    (machine,) = laptop.document("reap", "--dry-run")["machines"]
    assert (machine["owner"], machine["ledger"], machine["run"]) == ("another ledger", desk.ledger.id, None)


def test_its_own_are_ended_and_the_other_computer_s_are_left(desk: Terminal, laptop: Terminal) -> None:
    desk.launch("--detach")
    laptop.launch("--detach")
    forsake(laptop)
    end = laptop.type("reap", "-y")
    assert (end.exit_code, end.stdout) == (0, "2 destroyed\n")
    assert [machine.id for machine in desk.market.instances()] == ["1"]


def test_another_computer_s_end_only_by_name_and_once_confirmed(desk: Terminal, laptop: Terminal) -> None:
    desk.launch("--detach")
    named = ("reap", "--from-ledger", desk.ledger.id)
    end = laptop.type(*named)
    assert end.exit_code == 2
    assert "stops that run" in end.stderr
    assert "lost" in end.stderr
    assert desk.machines() == 1
    assert laptop.type(*named, "-y").exit_code == 0
    assert desk.machines() == 0


@pytest.mark.parametrize("named", ["00000000", "unknown", "", "\x1b[2J"])
def test_ledger_without_machines_is_a_mistake_in_typing(desk: Terminal, laptop: Terminal, named: str) -> None:
    desk.launch("--detach")
    end = laptop.type("reap", "-y", "--from-ledger", named)
    assert end.exit_code == 2
    assert "vastrun reap --dry-run" in end.stderr
    assert desk.machines() == 1


def test_naming_one_s_own_ledger_ends_nothing_of_one_s_own(desk: Terminal) -> None:
    desk.launch("--detach")
    forsake(desk)
    assert desk.type("reap", "-y", "--from-ledger", desk.ledger.id).exit_code == 2
    assert desk.machines() == 1


@pytest.mark.parametrize("label", ["vastrun-warm-otter-77aa", "vastrun-", FORGED, LONG])
def test_the_owner_of_an_old_or_broken_label_is_unknown_and_nothing_is_ended(
    desk: Terminal, laptop: Terminal, label: str
) -> None:
    desk.launch("--detach")
    desk.market.rename("1", label)
    assert laptop.type("reap", "-y").exit_code == 0
    said = laptop.type("reap", "--dry-run").stdout
    assert "\x1b" not in said
    assert not any(line.startswith("99999") for line in said.splitlines())
    assert max(map(len, said.splitlines())) <= 90
    assert desk.machines() == 1
    (machine,) = laptop.document("reap", "--dry-run")["machines"]
    named = machine["ledger"] or "unknown"
    assert laptop.type("reap", "-y", "--from-ledger", named).exit_code == 0
    assert desk.machines() == 0


def test_a_run_of_before_ledgers_had_ids_is_this_computer_s(desk: Terminal) -> None:
    desk.launch("--detach")
    run = desk.ledger.runs()[0]
    desk.market.rename("1", label_of(run.id, ""))
    desk.ledger.hold(run.id, Driver(who="desk:1:1.0", until=desk.clock.now() + 600))
    desk.ledger.save(replace(run, ledger="", instance_id=None, phase=Phase.ENDED), who="desk:1:1.0")
    assert "no open run claims 1" in desk.type("doctor").stdout
    assert desk.type("reap", "-y").exit_code == 0
    assert desk.machines() == 0


def test_the_doctor_reports_others_machines_and_mends_nothing(desk: Terminal, laptop: Terminal) -> None:
    desk.launch("--detach")
    findings = {one["name"]: one for one in laptop.document("doctor")["findings"]}
    assert findings["vast orphans"]["health"] == "ok"
    others = findings["vast others"]
    assert (others["health"], others["fix"]) == ("ok", "")
    assert others["text"] == f"another computer's (ledger {desk.ledger.id}): 1"
    assert (
        desk.ledger.id in {one["name"]: one for one in desk.document("doctor")["findings"]}["ledger"]["text"]
    )


def test_a_ledger_keeps_its_id_and_no_two_have_the_same(tmp_path: Path) -> None:
    def opened(name: str) -> str:
        ledger = SqliteLedger(tmp_path / name, now=time.time, alive=lambda _: True)
        ledger.close()
        return ledger.id

    first, again, other = opened("one.db"), opened("one.db"), opened("other.db")
    assert first == again != other
    assert ledger_in(label_of("calm-heron-3f1a", first)) == first


def test_the_run_of_a_copied_ledger_is_not_ended_by_the_other_copy(desk: Terminal, laptop: Terminal) -> None:
    laptop.ledger.id = desk.ledger.id
    desk.launch("--detach")
    (found,) = orphans(laptop.ledger, laptop.market, laptop.clock.now())
    assert found.owner is Owner.COPY
    assert laptop.type("reap", "-y").exit_code == 0
    assert desk.machines() == 1


def test_machines_that_only_this_computer_sees_are_its_own(desk: Terminal, laptop: Terminal) -> None:
    desk.market.shared = False
    desk.launch("--detach")
    assert ledger_in(next(iter(desk.market.instances())).label) is None
    assert laptop.type("reap", "-y").exit_code == 0
    assert desk.machines() == 0


@pytest.mark.slow
def test_on_vast_the_second_computer_leaves_the_first_one_s_machine(tmp_path: Path) -> None:
    with VastEmulator(rate_limits=False) as vast:
        run = training(vast, tmp_path / "desk-state")
        (tmp_path / "laptop").mkdir()
        shell = Shell(tmp_path / "laptop", **vast.variables)
        plain = shell.type("reap", "-y", "--provider", "vast")
        assert plain.exit_code == 0, plain.err
        assert f"another computer's (ledger {run.ledger})" in plain.out
        doctor = shell.type("doctor", "--json", "--provider", "vast")
        findings = {one["name"]: one for one in json.loads(doctor.out)["findings"]}
        assert findings["vast orphans"]["health"] == findings["vast others"]["health"] == "ok"
        assert len(vast.instances) == 1
        assert shell.type("reap", "--from-ledger", run.ledger, "--provider", "vast").exit_code == 2
        assert len(vast.instances) == 1
        named = shell.type("reap", "-y", "--from-ledger", run.ledger, "--provider", "vast")
        assert named.exit_code == 0, named.err
        assert len(vast.instances) == 0


def training(vast: VastEmulator, state: Path) -> Run:
    """A run of another ledger, with its machine on that market."""
    ledger = SqliteLedger(state / "ledger.db", now=time.time, alive=lambda _: False)
    spec = train_job()
    run = a_run(
        job=spec.name,
        spec_json=dump_job(spec),
        provider="vast",
        phase=Phase.TRAIN,
        out_dir="/nowhere",
        created_at=time.time(),
        ledger=ledger.id,
    )
    ledger.add(run)
    ledger.close()
    provider = open_market(vast, state)
    provider.rent(order(provider, label=run.label))
    return run


HALFWAY = Progress(step=40, steps=100, left_s=30.0)


@pytest.mark.parametrize(("phase", "shown"), [(Phase.TRAIN, HALFWAY), (Phase.DESTROY, Progress())])
def test_the_remaining_time_is_shown_during_training(tmp_path: Path, phase: Phase, shown: Progress) -> None:
    world = World(tmp_path)
    standing = {"phase": phase, "step": 40, "steps": 100, "steps_per_s": 2.0}
    run = replace(world.begin(), id="bold-otter-1b46", out_dir=str(tmp_path), **standing)
    world.ledger.add(run)
    follow(run, world.services())
    assert world.screen.shown[-1] == (phase, shown)
