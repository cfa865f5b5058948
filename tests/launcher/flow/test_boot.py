"""A machine that never gets ready, or is not what was offered, is given back, noted, and another is taken."""

import math
from itertools import pairwise
from pathlib import Path

import pytest

from tests.fakebox import FakeBox, Loading, Training
from tests.fakes import PRICE
from tests.launcher.faults import KILL_IN, launch_killed
from tests.launcher.terminal import CRASH, Market, Terminal
from tests.launcher.world import World
from tests.slow import slow
from vastrun.contract import layout
from vastrun.launcher.core import Cause, Instance, Phase, bills
from vastrun.launcher.core.errors import HostKeyError, KeyNotAttachedError, UnreachableError
from vastrun.launcher.decisions import policy
from vastrun.launcher.ports import Remote


def hosts(*numbers: int) -> set[str]:
    return {f"host-{number}" for number in numbers}


@pytest.mark.parametrize(
    ("trouble", "of"),
    [
        *slow(("loading", {"host-1": Loading(seconds=math.inf)})),
        *[("impostors", hosts(1)), ("overpriced", hosts(1))],
    ],
)
def test_another_machine_is_taken_when_one_never_gets_ready(
    terminal: Terminal, trouble: str, of: object
) -> None:
    setattr(terminal.market, trouble, of)
    end = terminal.launch()
    assert end.exit_code == 0, end.output
    good, bad = terminal.ledger.runs()
    assert (bad.host, bad.cause, bad.phase) == ("host-1", Cause.HOST, Phase.ENDED)
    assert (good.host, good.parent) == ("host-2", bad.id)
    assert terminal.market.most_at_once == 1
    assert terminal.machines() == 0


class SharedGpus(Market):
    """Programs of others hold the memory of the first machine's GPUs."""

    def shown_by(self, box: FakeBox) -> str:
        used_mib = 23424 if box.instance.host == "host-1" else 400
        return super().shown_by(box) + f"gpu_used {used_mib}, 24564\n" * box.gpus


def test_a_machine_whose_gpus_others_use_is_left_before_anything_is_shipped(terminal: Terminal) -> None:
    terminal.market = SharedGpus(terminal.clock, [Training()], usd_per_hour=PRICE)
    end = terminal.launch()
    assert end.exit_code == 0, end.output
    good, bad = terminal.ledger.runs()
    assert (bad.host, bad.cause, bad.failed_in) == ("host-1", Cause.HOST, Phase.BOOT)
    assert "GPU 1: 23.4 of 24.6 GB in use by other programs" in bad.detail
    assert bad.detail in terminal.type("why", bad.id).stdout.replace("\n          ", " ")
    assert (good.host, good.parent) == ("host-2", bad.id)


def test_where_machines_cost_nothing_gpus_in_use_are_no_reason_to_refuse(terminal: Terminal) -> None:
    terminal.market = SharedGpus(terminal.clock, [Training()], usd_per_hour=0.0)
    assert terminal.launch().exit_code == 0
    assert [run.host for run in terminal.ledger.runs()] == ["host-1"]


def test_the_next_attempt_says_what_the_bad_machine_cost_and_why(terminal: Terminal) -> None:
    terminal.market.impostors = hosts(1)
    end = terminal.launch()
    (line,) = [line for line in end.stderr.splitlines() if "attempt 2: " in line]
    assert " ended with host for $0.0" in line
    assert "Tesla T4 instead of RTX 4090" in end.stderr


def test_the_outputs_come_to_the_folder_that_the_user_named(terminal: Terminal) -> None:
    terminal.market.impostors = hosts(1)
    terminal.launch()
    assert terminal.ledger.runs()[0].out_dir == str(terminal.folder / "out")


@pytest.mark.parametrize("training", [Training(), CRASH], ids=["never ready", "retried"])
def test_each_run_has_a_folder_of_its_own(training: Training, tmp_path: Path) -> None:
    terminal = Terminal(tmp_path, training, Training())
    if training is not CRASH:
        terminal.market.impostors = hosts(1)
    end = terminal.type("launch", str(terminal.job), "-y", "--set", "retry.signal=1")
    second, first = terminal.ledger.runs()
    assert end.exit_code == 0, end.output
    assert [run.out_dir for run in (first, second)] == [
        str(tmp_path / "runs" / run.id) for run in (first, second)
    ]
    assert f"this is {second.id}, outputs in {second.out_dir}" in end.stderr
    assert (tmp_path / "runs" / second.id / "details" / "outcome.json").is_file()


def test_a_retry_beside_the_folder_that_the_user_named_takes_one_that_is_free(tmp_path: Path) -> None:
    terminal = Terminal(tmp_path, CRASH, Training())
    (tmp_path / "out-2").mkdir()
    (tmp_path / "out-2" / "thesis.tex").write_text("years of work")
    end = terminal.launch("--set", "retry.signal=1")
    assert end.exit_code == 0, end.output
    assert [run.out_dir for run in terminal.ledger.runs()] == [str(tmp_path / "out-3"), str(tmp_path / "out")]


def test_after_three_other_machines_it_gives_up(terminal: Terminal) -> None:
    terminal.market.impostors = hosts(*range(1, 8))
    end = terminal.launch()
    assert end.exit_code == 5
    assert [run.host for run in reversed(terminal.ledger.runs())] == ["host-1", "host-2", "host-3", "host-4"]
    assert terminal.machines() == 0


def test_a_host_that_failed_is_avoided_and_listed_until_it_is_allowed_again(terminal: Terminal) -> None:
    terminal.market.impostors = hosts(1)
    terminal.launch()
    terminal.launch()
    assert terminal.ledger.runs()[0].host == "host-2"
    worst = terminal.document("hosts")["hosts"][0]
    assert (worst["host"], worst["failures"], worst["avoided"]) == ("host-1", 1, "machine")
    table = terminal.type("hosts").stdout
    assert table.splitlines()[1].split()[:3] == ["host-1", "1", "1"]
    assert max(map(len, table.splitlines())) <= 80
    terminal.market.impostors = hosts()
    assert "1 failure of host-1 no longer counts" in terminal.type("hosts", "--allow", "host-1").stderr
    assert terminal.document("hosts")["hosts"][0]["avoided"] is None
    assert terminal.type("hosts", "--allow", "host-1").exit_code == 2
    terminal.launch()
    assert terminal.ledger.runs()[0].host == "host-1"


def test_when_every_offer_is_on_a_host_that_failed_the_error_says_so(terminal: Terminal) -> None:
    terminal.market.impostors = hosts(*range(1, 8))
    terminal.launch()
    terminal.launch()
    end = terminal.launch()
    assert end.exit_code == 8
    assert "7 offers fit, all of them on hosts that failed before" in end.stderr
    assert "vastrun hosts" in end.stderr


def test_a_machine_that_does_not_move_on_is_given_up_and_its_progress_told(world: World) -> None:
    world.market.loading["host-1"] = Loading(seconds=math.inf)
    run = world.launch()
    assert (run.cause, run.failed_in) == (Cause.HOST, Phase.BOOT)
    assert run.detail == (
        f"it makes no progress (loading: layer 0: Pulling fs layer) after {policy.NO_PROGRESS_S:.0f} s"
    )
    told = [event.text for event in world.screen.events if event.phase is Phase.BOOT]
    assert told[0] == "loading: layer 0: Pulling fs layer"
    assert len(told) == 2, "what does not change is told once"


def test_a_machine_that_waits_for_its_turn_says_for_what_and_costs_nothing_meanwhile(world: World) -> None:
    world.market.loading["host-1"] = Loading(seconds=1.2 * policy.BOOT_S, queued=True)
    run = world.launch()
    assert run.cause is None, run.detail
    shown = [event for event in world.screen.events if event.text.startswith("waits for its turn")]
    assert "Priority: other jobs come first" in shown[0].text
    assert all(15 <= late.at - early.at <= 31 for early, late in pairwise(shown))
    assert shown[-1].usd == 0
    assert bills.cost_usd(run, run.ended_at or 0.0) < 3 * run.usd_per_hour / 60
    told = [event for event in world.ledger.events(run.id) if event.text.startswith("waits for its turn")]
    assert len(told) == 1, "what does not change is in the diary once"


class CutOffImpostors(Market):
    """Somebody else answers in the place of the first machine, and for a while nobody can ask the market."""

    cut: tuple[float, float] = (0.0, 20.0)

    def connect(self, instance: Instance) -> Remote:
        if instance.host != "host-1":
            return super().connect(instance)
        began, ended = self.cut
        if began <= self.clock.now() - instance.rented_at < ended:
            error = UnreachableError("off line")
            error.cause = Cause.PROVIDER
            raise error
        raise HostKeyError("it has another key")


@pytest.mark.parametrize("cut", [(0.0, 20.0), (policy.HOST_KEY_WAIT_S - 10, policy.HOST_KEY_WAIT_S + 20)])
def test_an_impostor_beside_a_cut_is_the_machine_s_fault_and_another_is_taken(
    terminal: Terminal, cut: tuple[float, float]
) -> None:
    terminal.market = market = CutOffImpostors(terminal.clock, [Training()], usd_per_hour=PRICE)
    market.cut = cut
    assert terminal.launch().exit_code == 0
    good, bad = terminal.ledger.runs()
    assert (bad.host, bad.cause, good.host) == ("host-1", Cause.HOST, "host-2")


class Unarmed(Market):
    """Its machines' start scripts failed with these errors."""

    errors = b""

    def box(self, instance_id: str) -> FakeBox:
        box = super().box(instance_id)
        box.files |= {layout.LEASE_STATE: b"", layout.ONSTART_ERRORS: self.errors}
        return box


@pytest.mark.parametrize(
    "errors",
    [b"onstart.sh: 6: gzip: not found\n", b"onstart.sh: line 6: gzip: command not found\n\x1b[2J"],
    ids=["dash", "bash"],
)
def test_an_image_that_lacks_what_its_start_needs_ends_the_run_and_blames_no_host(
    terminal: Terminal, errors: bytes
) -> None:
    terminal.market = market = Unarmed(terminal.clock, [Training()], usd_per_hour=PRICE)
    market.errors = errors
    end = terminal.launch()
    (run,) = terminal.ledger.runs()
    assert (run.cause, run.phase) == (Cause.SETUP, Phase.ENDED)
    assert "the image lacks gzip, which the lease needs to start" in end.stderr
    assert terminal.machines() == 0


class Rejecting(Market):
    """Its machines reject the key, which it refused to attach, until some seconds after the rent."""

    until_s = math.inf

    def connect(self, instance: Instance) -> Remote:
        if self.clock.now() - instance.rented_at < self.until_s:
            raise KeyNotAttachedError("Vast did not attach the key: HTTP 403")
        return super().connect(instance)


def test_a_key_that_the_provider_does_not_attach_is_told_at_once_and_ends_the_run(terminal: Terminal) -> None:
    terminal.market = Rejecting(terminal.clock, [Training()], usd_per_hour=PRICE)
    terminal.launch()
    (run,) = terminal.ledger.runs()
    assert (run.cause, run.phase) == (Cause.PROVIDER, Phase.ENDED)
    assert run.detail == f"Vast did not attach the key: HTTP 403 after {policy.KEY_S:.0f} s"
    told = [event for event in terminal.ledger.events(run.id) if event.text.startswith("Vast did not attach")]
    assert told and told[0].at - (run.rented_at or 0.0) < 10
    assert terminal.machines() == 0


def test_a_machine_that_takes_the_key_from_its_environment_meanwhile_is_used(terminal: Terminal) -> None:
    terminal.market = market = Rejecting(terminal.clock, [Training()], usd_per_hour=PRICE)
    market.until_s = policy.KEY_S - 10
    assert terminal.launch().exit_code == 0


def test_a_launcher_that_saw_its_machine_become_ready_notes_how_long_that_took(world: World) -> None:
    world.market.loading["host-1"] = Loading(seconds=120.0)
    assert world.launch().boot_s == pytest.approx(120.0, abs=5.0)


def test_a_launcher_that_finds_its_machine_ready_does_not_note_when_it_became_so(world: World) -> None:
    launch_killed(world, *KILL_IN[Phase.BOOT])
    world.expect()
    assert world.run().phase is Phase.BOOT
    world.pass_time(600.0)
    run = world.resume()
    assert (run.cause, run.boot_s) == (None, None)


def test_the_row_has_the_offer_before_the_machine_is_asked_for(world: World) -> None:
    began = world.clock.now()
    launch_killed(world, "provider.rent", "before")
    run = world.run()
    assert run.offer is not None
    assert (run.usd_per_hour, run.host, run.image) == (PRICE, run.offer.host, run.offer.image or "")
    assert run.rented_at is not None
    assert began <= run.rented_at <= world.clock.now()
    assert run.meter.extras == run.offer.extras
