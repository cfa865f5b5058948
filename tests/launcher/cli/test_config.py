"""`vastrun config`, and what its budgets and its provider do to the other commands."""

from pathlib import Path

import pytest

from tests.launcher.desk import Desk
from tests.launcher.terminal import CRASH, Terminal
from vastrun.launcher.app import App
from vastrun.launcher.core import Phase
from vastrun.launcher.ports import Provider

BROKEN = "budget:\n  mnth_usd: 3\n"


class Asked(Terminal):
    """A terminal that notes which providers were asked for."""

    def app(self) -> App:
        self.asked: list[str] = []

        def provider(name: str) -> Provider:
            self.asked.append(name)
            return self.market

        return super().app().with_changes(provider=provider)


@pytest.fixture(autouse=True)
def no_provider_in_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("VASTRUN_PROVIDER", raising=False)


def says(terminal: Terminal, text: str) -> None:
    """The user's config file is this."""
    (terminal.folder / "config.yaml").write_text(text)


def test_without_a_file_everything_is_the_default_and_what_was_spent_is_shown(terminal: Terminal) -> None:
    terminal.launch()
    result = terminal.type("config")
    assert result.exit_code == 0
    file, _, header, *rows = result.stdout.splitlines()
    assert file == f"file: {terminal.folder / 'config.yaml'}"
    assert header.split() == ["KEY", "VALUE", "FROM"]
    assert [row.split() for row in rows[:3]] == [
        ["provider", "local", "default"],
        ["budget.month_usd", "-", "default"],
        ["budget.usd", "-", "default"],
    ]
    budgets = rows[rows.index("") + 1 :]
    assert budgets[0].split() == ["BUDGET", "OF", "LIMIT", "SPENT", "RESERVED", "LEFT"]
    assert [row.split()[:3] for row in budgets[1:3]] == [["January", "2027", "-"], ["all", "runs", "-"]]
    assert all(len(line) <= 80 for line in result.stdout.splitlines()[2:])


def test_values_are_set_shown_with_their_lines_and_taken_out_again(terminal: Terminal) -> None:
    says(terminal, "# mine\n")
    done = terminal.type("config", "set", "budget.month_usd", "300")
    assert (done.exit_code, done.stdout) == (0, "")
    assert done.stderr == f"budget.month_usd is 300 in {terminal.folder / 'config.yaml'}\n"
    terminal.type("config", "set", "provider", "vast")
    document = terminal.document("config")
    settings = [(one["key"], one["value"], one["origin"]) for one in document["settings"]]
    assert [one for one in settings if not one[0].startswith("slurm.")] == [
        ("provider", "vast", "line 4"),
        ("budget.month_usd", 300.0, "line 3"),
        ("budget.usd", None, "default"),
    ]
    month, ever = document["budgets"]
    assert (month["limit_usd"], month["left_usd"], ever["limit_usd"], ever["left_usd"]) == (
        300,
        300,
        None,
        None,
    )


def test_a_file_that_cannot_be_edited_is_left_as_it_is(terminal: Terminal) -> None:
    twice = "provider: vast # mine\nprovider: local\n"
    says(terminal, twice)
    done = terminal.type("config", "set", "budget.usd", "3")
    assert done.exit_code == 2
    assert 'config.yaml:1: found duplicate key "provider"' in done.stderr
    assert "edit it by hand" in done.stderr
    assert (terminal.folder / "config.yaml").read_text() == twice


def test_path_prints_where_the_file_is(terminal: Terminal) -> None:
    assert terminal.type("config", "path").stdout == f"{terminal.folder / 'config.yaml'}\n"


def test_an_open_run_holds_its_reservation_and_one_that_ended_its_cost(terminal: Terminal) -> None:
    says(terminal, "budget: {month_usd: 300}\n")
    assert terminal.launch("-d").exit_code == 0
    (month, _) = terminal.document("config")["budgets"]
    assert month["spent_usd"] + month["reserved_usd"] == pytest.approx(3.0)
    terminal.type("attach", "last")
    (month, _) = terminal.document("config")["budgets"]
    assert month["reserved_usd"] == 0 and 0 < month["spent_usd"] < 3
    assert month["left_usd"] == pytest.approx(300 - month["spent_usd"])


@pytest.mark.parametrize("key", ["month_usd", "usd"])
def test_a_full_budget_refuses_a_launch_with_exit_code_9_and_no_row(terminal: Terminal, key: str) -> None:
    says(terminal, f"budget: {{{key}: 2.5}}\n")
    result = terminal.launch()
    assert result.exit_code == 9
    name = "January 2027" if key == "month_usd" else "all runs"
    assert (
        f"error: {name}: $0.00 is spent or may still be billed, and $0.00 reserved, of $2.50; a further run "
        f"may cost $3.00, which would take $3.00\ntry:   vastrun config set budget.{key} 3.00\n"
    ) in result.stderr
    assert not terminal.ledger.runs() and terminal.market.rentals == 0
    assert terminal.launch("--set", "limits.usd=2.5").exit_code == 0


def test_what_it_says_to_type_lets_the_launch_through(terminal: Terminal) -> None:
    says(terminal, "budget: {month_usd: 3} # agreed\n")
    assert terminal.launch().exit_code == 0
    refused = terminal.launch()
    assert refused.exit_code == 9
    words = refused.stderr.rpartition("try:   vastrun ")[2].split()
    assert terminal.type(*words).exit_code == 0
    assert terminal.launch().exit_code == 0
    assert (terminal.folder / "config.yaml").read_text().endswith("} # agreed\n")


@pytest.mark.parametrize("words", [("launch", "--dry-run"), ("plan",)])
def test_a_plan_says_which_budget_would_refuse(terminal: Terminal, words: tuple[str, ...]) -> None:
    says(terminal, "budget: {month_usd: 2}\n")
    command, *options = words
    result = terminal.type(command, str(terminal.job), *options)
    assert result.exit_code == 0
    assert "refused   January 2027: $0.00 is spent" in result.stdout
    assert "vastrun config set budget.month_usd 3.00" in result.stdout
    (refused,) = terminal.document(command, str(terminal.job), *options)["refused"]
    assert refused.startswith("January 2027: ")
    says(terminal, "")
    assert "refused" not in terminal.type(command, str(terminal.job), *options).stdout


def test_a_free_machine_is_no_matter_of_budgets(tmp_path: Path) -> None:
    terminal = Terminal(tmp_path, usd_per_hour=0.0)
    says(terminal, "budget: {month_usd: 0, usd: 0}\n")
    assert terminal.launch().exit_code == 0
    assert terminal.ledger.runs()[0].reserved_usd == 0


def test_a_retry_that_a_budget_has_no_room_for_is_not_begun_and_that_is_told(tmp_path: Path) -> None:
    terminal = Terminal(tmp_path, CRASH)
    says(terminal, "budget: {usd: 3}\n")
    lowered = "budget: {usd: 1}\n"
    terminal.at(1.0, lambda: says(terminal, lowered))
    result = terminal.launch("--set", "retry.signal=2")
    assert result.exit_code == 5
    assert "no other attempt: all runs: $" in result.stderr
    told = terminal.type("why", "last").stdout
    assert "retry    no other attempt: all runs: $" in told and "vastrun resume " in told
    assert len(terminal.ledger.runs()) == 1 and terminal.machines() == 0


def test_retries_go_on_within_the_budget_of_the_month(tmp_path: Path) -> None:
    terminal = Terminal(tmp_path, CRASH)
    says(terminal, "budget: {month_usd: 3}\n")
    assert terminal.launch("--set", "retry.signal=2").exit_code == 5
    runs = terminal.ledger.runs()
    assert len(runs) == 3
    assert runs[0].reserved_usd < runs[1].reserved_usd < runs[2].reserved_usd == 3.0


def test_a_broken_file_ends_what_spends_with_all_faults_and_nothing_else(terminal: Terminal) -> None:
    says(terminal, BROKEN)
    fault = f"{terminal.folder / 'config.yaml'}:2: budget.mnth_usd: unknown key; did you mean month_usd?"
    for words in (("launch", str(terminal.job), "-y"), ("launch", str(terminal.job), "--provider", "local")):
        result = terminal.type(*words)
        assert (result.exit_code, result.stdout) == (2, "")
        assert result.stderr == f"error: {fault}\n"
    assert not terminal.ledger.runs()
    for words in (("plan", str(terminal.job)), ("reap",), ("status",), ("cost",)):
        assert terminal.type(*words).exit_code == 0
    assert f"note: {fault}\n" in terminal.type("reap").stderr
    shown = terminal.type("config")
    assert shown.exit_code == 2 and f"error: {fault}" in shown.stderr and "KEY" in shown.stdout
    assert "launch" in terminal.type("launch", "--help").stdout


def test_run_whose_config_file_breaks_meanwhile_is_driven_to_its_end_without_a_retry(tmp_path: Path) -> None:
    terminal = Terminal(tmp_path, CRASH)
    terminal.at(1.0, lambda: says(terminal, BROKEN))
    result = terminal.launch("--set", "retry.signal=2")
    assert result.exit_code == 5 and terminal.machines() == 0
    assert "no other attempt: " in result.stderr and "budget.mnth_usd: unknown key" in result.stderr


def test_a_detached_run_is_stopped_and_resumed_whatever_the_file_says(terminal: Terminal) -> None:
    terminal.launch("-d")
    says(terminal, BROKEN)
    assert terminal.type("stop", "last").exit_code in (0, 3)
    assert terminal.type("resume", "last").exit_code in (0, 2, 3)
    assert terminal.ledger.runs()[0].phase is Phase.ENDED and terminal.machines() == 0


@pytest.mark.parametrize(
    ("file", "environment", "options", "asked", "told"),
    [
        ("", "", (), "local", "default"),
        ("provider: vast\n", "", (), "vast", "line 1"),
        ("provider: vast\n", "docker", (), "docker", "VASTRUN_PROVIDER"),
        ("provider: vast\n", "docker", ("--provider", "local"), "local", "VASTRUN_PROVIDER"),
    ],
)
def test_the_provider_is_the_command_lines_else_the_environments_else_the_files(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    file: str,
    environment: str,
    options: tuple[str, ...],
    asked: str,
    told: str,
) -> None:
    terminal = Asked(tmp_path)
    says(terminal, file)
    monkeypatch.setenv("VASTRUN_PROVIDER", environment)
    assert terminal.type("plan", str(terminal.job), *options).exit_code == 0
    assert terminal.asked == [asked]
    assert terminal.document("config")["settings"][0]["origin"] == told


def test_a_month_that_cannot_pay_for_one_point_refuses_a_batch_before_it_is_written(desk: Desk) -> None:
    says(desk, "budget: {month_usd: 2}\n")
    code, _, err = desk.submit()
    assert code == 9
    assert "error: January 2027: $0.00 is spent" in err and "config set budget.month_usd 3.00" in err
    assert not desk.ledger.batches.all() and not desk.ledger.runs()
    dry = desk.submit("--dry-run")
    assert dry[0] == 0 and "refused   January 2027: " in dry[1]
    assert desk.document("batch", "submit", str(desk.file), "--dry-run")["refused"]


def test_a_month_that_may_end_a_batch_is_named_by_its_plan(desk: Desk) -> None:
    says(desk, "budget: {month_usd: 5, usd: 100}\n")
    _, out, _ = desk.submit("--dry-run")
    assert "note      January 2027 has $5.00 left of $5.00: it may end the batch before" in out
    assert "all runs" not in out


def test_a_month_ends_a_batch_says_what_to_type_and_lets_it_go_on_once_raised(desk: Desk) -> None:
    says(desk, "budget: {month_usd: 3.1}\n")
    code, _, err = desk.submit()
    assert code == 9
    assert "points were not started: January 2027: $" in err
    assert "vastrun config set budget.month_usd " in err
    assert 0 < len(desk.ledger.runs()) < 6 and desk.machines() == 0
    month = desk.document("config")["budgets"][0]
    assert month["spent_usd"] <= 3.1
    says(desk, "budget: {month_usd: 30}\n")
    assert desk.type("batch", "resume", "widths").exit_code == 0
    assert len(desk.ledger.runs()) == 6


def test_a_batch_whose_points_have_ended_needs_no_room_in_the_month(desk: Desk) -> None:
    desk.submit()
    says(desk, "budget: {month_usd: 0.01}\n")
    assert desk.submit()[0] == 0


def test_a_broken_file_ends_a_submit_before_anything_is_written(desk: Desk) -> None:
    says(desk, BROKEN)
    code, _, err = desk.submit()
    assert code == 2 and "budget.mnth_usd: unknown key" in err
    assert not desk.ledger.batches.all()
