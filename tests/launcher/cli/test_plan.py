"""`plan --explain`: what each limit removes, and why an offer comes before another."""

import re
from dataclasses import replace
from pathlib import Path

import pytest

from tests.jobs import train_job, workloads
from tests.launcher.terminal import CRASH, Terminal
from tests.offers import rtx_4090
from vastrun.launcher.cli.plan import market_report_text
from vastrun.launcher.commands.estimate import EstimateError
from vastrun.launcher.config import dump_job
from vastrun.launcher.core import ExtraRates, Forecast
from vastrun.launcher.core.job import Limits
from vastrun.launcher.decisions.estimates import Constraint, MarketReport, Relaxation
from vastrun.launcher.decisions.policy import MIN_TRAINING_S, lease_of, min_usd
from vastrun.launcher.flow.drive import create_run
from vastrun.launcher.run_services import services_for

REPORT = MarketReport(
    offers=256,
    unreadable=1,
    constraints=(
        Constraint(name="nvlink", text="NVLink", removed=200),
        Constraint(name="disk_mbps", text="3000 MB/s", removed=55),
    ),
    relaxations=(Relaxation(name="disk_mbps", left=3),),
    quotes=(),
    strictest=Constraint(name="disk_mbps", text="3000 MB/s", removed=250),
    truncated=True,
    beyond=7,
)


def test_the_funnel_and_the_ranking_are_shown_within_80_columns(terminal: Terminal) -> None:
    end = terminal.type("plan", str(terminal.job), "--explain")
    assert end.exit_code == 0
    lines = end.stdout.splitlines()
    assert lines[0].split() == ["10", "offers", "on", "the", "market"]
    assert lines[1].split() == ["-3", "fail", "gpu_memory_gb", "20", "GB"]
    assert lines[2].split() == ["7", "left"]
    assert lines[3] == "relax gpu_memory_gb to get 10"
    assert "$7.30  7.200  0.100  3.600  host-1  2 x RTX 4090" in end.stdout
    assert "reliability 99%" in end.stdout
    assert max(map(len, lines)) <= 80


def test_offers_on_hosts_that_failed_are_left_out_and_counted(terminal: Terminal) -> None:
    terminal.market.impostors = {"host-1"}
    terminal.launch()
    end = terminal.type("plan", str(terminal.job), "--explain")
    assert "-1  on hosts to avoid" in end.stdout
    assert "host-1 " not in end.stdout
    document = terminal.document("plan", str(terminal.job), "--explain")
    assert (document["avoided"], document["left"]) == (1, 6)


def test_the_explanation_as_a_document_has_every_term(terminal: Terminal) -> None:
    document = terminal.document("plan", str(terminal.job), "--explain")
    assert document["constraints"] == [{"name": "gpu_memory_gb", "text": "20 GB", "removed": 3}]
    assert document["quotes"][0]["usd"] == pytest.approx(7.3)
    assert document["quotes"][0]["terms"][0] == {"name": "GPU", "usd": 7.2, "text": "2.0 h"}


def test_a_market_where_nothing_fits_is_explained_and_is_no_offer(terminal: Terminal) -> None:
    terminal.market.change = lambda _: []
    end = terminal.type("plan", str(terminal.job), "--explain")
    assert end.exit_code == 8
    assert "relax gpu_memory_gb to get 3" in end.stdout


def test_a_command_is_shown_as_a_shell_reads_it(terminal: Terminal) -> None:
    terminal.job.write_text(
        "name: quoted\nresources: {gpus: 0, disk_gb: 8}\nlimits: {hours: 0.1, usd: 1}\n"
        "ranks: 1\ncommand: sh -c 'echo a; echo b'\nsuccess: {exit_code: 0}\n"
    )
    assert "trains    sh -c 'echo a; echo b'\n" in terminal.type("plan", str(terminal.job)).stdout


@pytest.mark.parametrize("command", ["plan", "launch"])
def test_more_machines_than_a_run_can_have_are_refused_early(terminal: Terminal, command: str) -> None:
    end = terminal.type(command, str(terminal.job), "--set", "nodes=2")
    assert end.exit_code == 2
    assert "nodes: the job asks for 2 machines; fake rents at most 1" in end.stderr
    assert not terminal.market.instances()


PINNED = "lab/own:1@sha256:" + "0" * 64


@pytest.mark.parametrize("command", ["plan", "launch"])
def test_an_image_without_a_digest_is_refused_before_money_is_spent(terminal: Terminal, command: str) -> None:
    end = terminal.type(command, str(terminal.job), "--set", "image=lab/own:1")
    assert end.exit_code == 2
    assert "image: lab/own:1 has no digest" in end.stderr
    assert "image_unpinned: true" in end.stderr
    assert not terminal.market.instances()


@pytest.mark.parametrize(
    ("sets", "image", "chosen"),
    [
        (("image=" + PINNED,), PINNED, "the job's own"),
        (("image=lab/own:1", "image_unpinned=true"), "lab/own:1", "not pinned by a digest"),
        ((), "lab/ours@sha256:" + "1" * 64, "vastrun's image for this machine"),
    ],
)
def test_the_plan_says_which_image_runs_and_who_chose_it_and_the_run_keeps_it(
    terminal: Terminal, sets: tuple[str, ...], image: str, chosen: str
) -> None:
    terminal.market.image = "lab/ours@sha256:" + "1" * 64
    options = [word for value in sets for word in ("--set", value)]
    said = terminal.type("plan", str(terminal.job), *options).stdout
    assert image in said
    assert chosen in said
    assert "missing packages are installed at boot" in said
    assert terminal.launch(*options).exit_code == 0
    assert terminal.document("status", "last")["run"]["image"] == image
    assert image in terminal.type("status", "last").stdout


def test_where_nothing_is_charged_an_image_needs_no_digest(tmp_path: Path) -> None:
    terminal = Terminal(tmp_path, usd_per_hour=0)
    assert terminal.type("plan", str(terminal.job), "--set", "image=lab/own:1").exit_code == 0


OFFER = rtx_4090(id="offer-1", host="host-1", usd_per_hour=0.4)


def sums_in(text: str) -> set[tuple[str, str]]:
    """What the text says an offer is expected to cost, and at most."""
    return set(re.findall(r"expected (\$[\d.]+), at most (\$[\d.]+)", text))


def test_plan_explain_and_launch_tell_the_same_sums_of_an_offer(terminal: Terminal) -> None:
    plan = terminal.type("plan", str(terminal.job)).stdout
    dry = terminal.launch("--dry-run").stdout
    launch = terminal.launch()
    assert sums_in(plan) == sums_in(dry) == sums_in(launch.stderr) == {("$3.00", "$3.00")}
    asked = terminal.type("launch", str(terminal.job), "--out", str(terminal.folder / "asked"))
    assert sums_in(asked.stderr) == {("$3.00", "$3.00")}
    assert re.search(r"offer-1 +host-1 +2 x RTX 4090 .* \$3\.00 +\$3\.00\n", plan)
    explained = terminal.type("plan", str(terminal.job), "--explain").stdout
    assert re.search(r"^to finish +\$7\.30 ", explained, re.MULTILINE)
    assert re.search(r"^expected +\$3\.00 ", explained, re.MULTILINE)
    assert re.search(r"^at most +\$3\.00 ", explained, re.MULTILINE)

    offers = terminal.document("plan", str(terminal.job))["offers"]
    quotes = terminal.document("plan", str(terminal.job), "--explain")["quotes"]
    assert [quote["offer"] for quote in quotes] == offers
    assert {(one["expected_usd"], one["at_most_usd"]) for one in offers} == {(3.0, 3.0)}
    assert {round(one["finishing_usd"], 6) for one in offers} == {7.3}
    assert [quote["usd"] for quote in quotes] == [one["finishing_usd"] for one in offers]


def test_a_plan_says_when_the_limits_may_end_the_job_before_it_is_finished(terminal: Terminal) -> None:
    warning = "may end this job before it finishes; finishing should cost $7.30 in total"
    assert warning in terminal.type("plan", str(terminal.job)).stdout
    enough = ("--set", "limits.usd=20", "--set", "limits.hours=5")
    assert "before it is finished" not in terminal.type("plan", str(terminal.job), *enough).stdout


def test_a_guess_is_no_reason_to_say_that_the_limits_are_too_low(terminal: Terminal) -> None:
    guess = Forecast(ready_s=60.0, train_s=4000.0, basis="guess")
    terminal.market.change = lambda offers: [replace(one, forecast=guess) for one in offers]
    told = terminal.type("plan", str(terminal.job)).stdout
    assert "a guess" in told and "before it is finished" not in told


def test_the_plan_shows_the_sum_that_offers_are_sorted_by_within_80_columns(terminal: Terminal) -> None:
    costs = (1.012, 1.011, 1.5, 1.2, 9.0, 8.0, 7.0)
    terminal.market.change = lambda offers: [
        replace(one, expected_usd=usd) for one, usd in zip(offers, costs, strict=True)
    ]
    for limits, column in (("limits.usd=20", -2), ("limits.usd=1.1", -3)):
        sets = (str(terminal.job), "--set", limits, "--set", "limits.hours=12")
        lines = terminal.type("plan", *sets).stdout.splitlines()
        header = next(number for number, line in enumerate(lines) if line.startswith("OFFER"))
        assert max(map(len, lines[header:])) <= 80
        shown = [line.split()[column] for line in lines[header + 1 : header + 8]]
        assert shown == ["$1.01", "$1.01", "$1.20", "$1.50", "$7.00", "$8.00", "$9.00"]
    assert any("by which offers are sorted" in line for line in lines)


TOO_LITTLE = {
    "usd": ("limits.usd=0.0001", "limits.usd: $0.0001 is too low", "$0.060", "--set limits.usd=0.06"),
    "hours": ("limits.hours=0.003", "limits.hours: 0.003 h is 11 s", "20 s", "--set limits.hours="),
}


@pytest.mark.parametrize(
    "command", [("plan",), ("plan", "--explain"), ("launch", "--dry-run"), ("launch", "-y")]
)
@pytest.mark.parametrize("limit", TOO_LITTLE)
def test_a_limit_that_leaves_no_time_to_train_is_refused_before_anything_is_rented(
    terminal: Terminal, limit: str, command: tuple[str, ...]
) -> None:
    value, *words = TOO_LITTLE[limit]
    end = terminal.type(*command, str(terminal.job), "--set", value)
    assert end.exit_code == 2
    for word in words:
        assert word in end.stderr
    assert not terminal.ledger.runs()
    assert terminal.market.rentals == 0


def test_the_limit_that_the_error_names_is_enough(terminal: Terminal) -> None:
    refused = terminal.type("plan", str(terminal.job), "--set", "limits.usd=0.0001")
    named = re.search(r"limits\.usd=([\d.]+)", refused.stderr)
    assert named is not None
    assert terminal.type("plan", str(terminal.job), "--set", f"limits.usd={named[1]}").exit_code == 0


def test_what_loading_a_machine_costs_counts_too(terminal: Terminal) -> None:
    terminal.market.loading_usd = 0.30
    assert terminal.type("plan", str(terminal.job), "--set", "limits.usd=0.35").exit_code == 2
    assert terminal.type("plan", str(terminal.job), "--set", "limits.usd=0.37").exit_code == 0


def test_what_the_lease_keeps_back_of_the_money_counts_too() -> None:
    offer = replace(OFFER, extras=ExtraRates(storage_usd_per_hour=0.6, down_usd_per_gb=0.5))
    for factor, enough in ((0.99, False), (1.01, True)):
        spec = train_job(limits=Limits(hours=10, usd=min_usd(offer) * factor))
        assert (lease_of(spec, offer).life_s >= MIN_TRAINING_S) is enough


def test_offers_that_the_money_does_not_start_are_left_out_and_the_others_taken(terminal: Terminal) -> None:
    terminal.market.change = lambda offers: [replace(offers[0], loading_usd=5.0), *offers[1:]]
    assert terminal.document("plan", str(terminal.job))["offers"][0]["id"] == "offer-2"


def test_where_nothing_is_charged_no_limit_is_too_small(tmp_path: Path) -> None:
    terminal = Terminal(tmp_path, usd_per_hour=0)
    limits = ("--set", "limits.usd=0.0001", "--set", "limits.hours=0.001")
    assert terminal.type("plan", str(terminal.job), *limits).exit_code == 0


def test_an_hourly_price_below_all_offers_is_answered_with_the_cheapest(terminal: Terminal) -> None:
    end = terminal.type("plan", str(terminal.job), "--set", "limits.usd_per_hour=0.5")
    assert end.exit_code == 8
    assert "limits.usd_per_hour: $0.5 excludes every offer" in end.stderr
    assert "$3.60/h" in end.stderr
    assert "--set limits.usd_per_hour=3.60" in end.stderr


def test_a_resumed_run_whose_limit_is_too_small_rents_nothing(terminal: Terminal) -> None:
    spec = train_job(limits=Limits(usd=0.0001))
    services = services_for(terminal.app(), "fake", terminal.clock.now())
    run = create_run(
        spec, dump_job(spec), services, run_id="calm-heron-3f1a", out_dir=str(terminal.folder / "out")
    )
    end = terminal.type("resume", run.id)
    assert end.exit_code != 0
    assert "limits.usd: $0.0001 is too low" in end.output
    assert terminal.market.rentals == 0


def test_no_attempt_is_begun_with_less_money_than_it_takes(tmp_path: Path) -> None:
    terminal = Terminal(tmp_path, CRASH)
    end = terminal.launch("--set", "retry.signal=1", "--set", "limits.usd=0.08")
    assert end.exit_code == 5
    assert "no other attempt: $0.0" in end.stderr
    assert len(terminal.ledger.runs()) == terminal.market.rentals == 1


def test_what_a_step_needs_is_told_before_anything_is_rented(terminal: Terminal) -> None:
    terminal.estimator.answer = workloads(strategy="ddp", small_gb=2.0, large_gb=40.0)
    told = terminal.type("plan", str(terminal.job)).stdout
    assert "45.3 GB with 48 windows at once and 3.5 GB with 1 window at once" in " ".join(told.split())
    assert "1 TFLOP a step and rank" in told
    assert terminal.document("plan", str(terminal.job))["workloads"]["workloads"][0]["flops"] == 1e12


def test_without_torch_a_line_says_so_and_all_else_is_as_before(terminal: Terminal) -> None:
    before = terminal.type("plan", str(terminal.job)).stdout
    terminal.estimator.answer = EstimateError("python has no torch")
    after = terminal.type("plan", str(terminal.job))
    assert after.exit_code == 0
    assert "no estimate: python has no torch" in after.stdout
    assert len(after.stdout.splitlines()) == len(before.splitlines()) + 1


def test_what_the_download_of_the_data_takes_is_told_before_anything_is_rented(tmp_path: Path) -> None:
    terminal = Terminal(tmp_path, usd_per_hour=1.0)
    terminal.market.change = lambda offers: [
        replace(one, data_s=560.0, sent_s=200.0, bucket_s=60.0) for one in offers
    ]
    (terminal.job.parent / "x").mkdir()
    with (terminal.job.parent / "x" / "b").open("wb") as file:
        file.truncate(5 * 10**8)
    files = "data=[{url: 'hf://datasets/lab/waves/a.h5', size: 9000000000}, {path: x}]"
    said = terminal.type("plan", str(terminal.job), "--set", files, "--set", "resources.disk_gb=20").stdout
    sends = "1 file, 500.0 MB from this computer at 20 Mbit/s (assumed): 3m 20s, $0.056 of waiting; a bucket"
    assert f"{sends} would take 1m 00s" in " ".join(said.split())
    assert "9 GB from the Hugging Face Hub: about 6m 00s and $0.100" in said
    assert "without a checksum: a.h5" in said
    assert not terminal.market.instances()


def test_each_limit_is_listed_and_the_one_that_most_offers_fail_is_named() -> None:
    lines = market_report_text(REPORT, train_job()).splitlines()
    assert lines[0].split(maxsplit=1) == ["256", "offers on the market  the cheapest ones; more may exist"]
    assert [line.split()[0] for line in lines[1:6]] == ["-200", "-55", "-1", "-7", "0"]
    assert lines[4].split()[1:3] == ["not", "examined"]
    assert lines[6:] == [
        "250 of 256 offers fail disk_mbps, more than any other limit",
        "relax disk_mbps to get 3",
    ]
