"""The config file on the disk, and the budgets that follow from it."""

import os
import subprocess
import sys
from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path

import pytest

from tests.runs import a_run
from tests.waiting import LONGEST_S
from vastrun.launcher.commands.settings import (
    budgets_of,
    read_settings,
    refusals_of,
    require_valid,
    set_value,
)
from vastrun.launcher.core import Phase, Run
from vastrun.launcher.core.errors import BudgetError, ConfigFileError, StorageError, UsageError
from vastrun.launcher.core.settings import BudgetSettings, LoadedSettings, Settings
from vastrun.launcher.ledger.sqlite import SqliteLedger

BOTH = BudgetSettings(month_usd=10.0, usd=25.0)


def run(number: int, created_at: float, *, cost_usd: float | None = None, reserved_usd: float = 6.0) -> Run:
    """An open run, or one that has ended and cost that."""
    ended = cost_usd is not None
    return a_run(
        id=f"run-{number}",
        provider="fake",
        phase=Phase.ENDED if ended else Phase.RENT,
        out_dir="/",
        created_at=created_at,
        usd_per_hour=3600.0,
        rented_at=created_at if ended else None,
        released_at=created_at + (cost_usd or 0.0) if ended else None,
        reserved_usd=reserved_usd,
    )


def test_a_month_begins_at_midnight_of_the_users_own_calendar() -> None:
    late = datetime(2027, 1, 31, 20, 0, tzinfo=UTC).timestamp()
    here, _ = budgets_of(BOTH, late, UTC)
    assert (here.name, here.since) == ("January 2027", datetime(2027, 1, 1, tzinfo=UTC).timestamp())
    tokyo = timezone(timedelta(hours=9))
    there, ever = budgets_of(BOTH, late, tokyo)
    assert (there.name, there.since) == ("February 2027", datetime(2027, 2, 1, tzinfo=tokyo).timestamp())
    assert (ever.name, ever.usd, ever.since) == ("all runs", 25.0, None)


@pytest.mark.parametrize(
    ("zone", "began"),
    [
        ("UTC0", "2027-04-01T00:00:00+00:00"),
        ("JST-9", "2027-04-01T00:00:00+09:00"),
        ("EST5EDT,M3.2.0,M11.1.0", "2027-03-01T00:00:00-05:00"),
    ],
)
def test_without_a_zone_this_computers_own_counts_also_where_clocks_changed(zone: str, began: str) -> None:
    now = datetime(2027, 4, 1, 2, 0, tzinfo=UTC).timestamp()  # 22:00 of March 31 in New York, by summer time
    program = (
        "from vastrun.launcher.commands.settings import budgets_of\n"
        "from vastrun.launcher.core.settings import BudgetSettings\n"
        f"print(budgets_of(BudgetSettings(month_usd=1), {now})[0].since)"
    )
    done = subprocess.run(
        [sys.executable, "-c", program],
        env={**os.environ, "TZ": zone},
        capture_output=True,
        text=True,
        timeout=LONGEST_S,
        check=True,
    )
    assert float(done.stdout) == datetime.fromisoformat(began).timestamp()


def test_a_new_month_frees_what_the_old_one_spent_but_not_what_is_open() -> None:
    january, february = (datetime(2027, month, 1, tzinfo=UTC).timestamp() for month in (1, 2))
    ledger = SqliteLedger(Path(":memory:"), now=lambda: february, alive=lambda _: True)
    ledger.add(run(1, january, cost_usd=4.0))
    ledger.add(run(2, february - 60))
    with pytest.raises(
        BudgetError,
        match=r"January 2027: \$4\.00 is spent or may still be billed, and \$6\.00 reserved, of \$10\.00",
    ):
        ledger.add(run(3, february - 30, reserved_usd=1.0), budgets_of(BOTH, february - 30, UTC))
    ledger.add(run(4, february, reserved_usd=4.0), budgets_of(BOTH, february, UTC))
    (use, ever) = map(ledger.use_of, budgets_of(BOTH, february, UTC))
    assert (use.spent_usd, use.reserved_usd, use.left_usd) == (0.0, 10.0, 0.0)
    assert (ever.spent_usd, ever.reserved_usd, ever.left_usd) == (4.0, 10.0, 11.0)


def test_every_budget_without_room_is_named() -> None:
    ledger = SqliteLedger(Path(":memory:"), now=lambda: 1e9, alive=lambda _: True)
    ledger.add(run(1, 1e9, reserved_usd=24.5))
    refused = refusals_of(ledger, budgets_of(BOTH, 1e9, UTC), 1.0)
    assert [str(error).partition(":")[0] for error in refused] == ["September 2001", "all runs"]
    assert not refusals_of(ledger, budgets_of(BOTH, 1e9, UTC), 0.0)


def test_a_file_that_is_not_there_sets_nothing_and_one_that_cannot_be_read_is_a_fault(tmp_path: Path) -> None:
    assert read_settings(None) == read_settings(tmp_path / "config.yaml") == LoadedSettings()
    (folder := tmp_path / "folder").mkdir()
    (binary := tmp_path / "binary").write_bytes(b"\xff\xfe")
    for file, why in ((folder, "Is a directory"), (binary, "it is not UTF-8 text")):
        with pytest.raises(ConfigFileError, match=f"{file}: cannot be read: {why}"):
            require_valid(read_settings(file))


def test_values_are_written_to_a_new_file(tmp_path: Path) -> None:
    file = tmp_path / "new" / "config.yaml"
    set_value(file, "budget.month_usd", "300")
    set_value(file, "provider", "vast")
    settings = Settings(provider="vast", budget=BudgetSettings(month_usd=300.0))
    assert require_valid(read_settings(file)) == settings
    assert [path.name for path in file.parent.iterdir()] == ["config.yaml"]


@pytest.mark.parametrize(
    ("key", "value", "told"),
    [
        ("usd", "3", r"^usd: unknown key; did you mean budget\.usd\?$"),
        ("budget.usd", "-1", r"^budget\.usd: expected a number of at least 0, got -1$"),
        ("budget.usd", "{a: 1}", r"^budget\.usd: expected a number of at least 0, got a section$"),
        ("budget", "3", r"^budget: unknown key; did you mean budget\.usd\?$"),
        (
            "provider",
            "vst",
            r"^provider: expected one of local, docker, vast, slurm, pool, got 'vst'; did you mean vast\?$",
        ),
        ("provider", "[", r"not valid YAML"),
    ],
)
def test_a_wrong_value_is_refused_and_the_file_stays(tmp_path: Path, key: str, value: str, told: str) -> None:
    file = tmp_path / "config.yaml"
    file.write_text("provider: vast # mine\n")
    with pytest.raises(UsageError, match=told):
        set_value(file, key, value)
    assert file.read_text() == "provider: vast # mine\n"


def test_a_file_with_faults_can_be_mended_by_setting_what_is_wrong(tmp_path: Path) -> None:
    file = tmp_path / "config.yaml"
    file.write_text("budget: {usd: lots, mont_usd: 3}\n")
    set_value(file, "budget.usd", "40")
    assert len(read_settings(file).faults) == 1
    file.write_text("budget: [\n")
    with pytest.raises(ConfigFileError, match="not valid YAML"):
        set_value(file, "budget.usd", "40")


def test_what_a_link_points_to_is_replaced_and_its_mode_stays(tmp_path: Path) -> None:
    real, link = tmp_path / "dotfiles.yaml", tmp_path / "config.yaml"
    real.write_text("")
    real.chmod(0o600)
    link.symlink_to(real)
    set_value(link, "provider", "vast")
    assert link.is_symlink() and real.read_text() == "provider: vast\n"
    assert real.stat().st_mode & 0o777 == 0o600


def test_a_place_where_no_file_can_be_is_told_and_nothing_is_left(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(StorageError, match=r"file/config\.yaml: cannot be read: Not a directory"):
        set_value(tmp_path / "file" / "config.yaml", "provider", "vast")
    (tmp_path / "config.yaml").mkdir()
    with pytest.raises(StorageError, match=r"config\.yaml: cannot be read: Is a directory"):
        set_value(tmp_path / "config.yaml", "provider", "vast")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["config.yaml", "file"]
