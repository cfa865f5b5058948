"""A conformance report: which exit code it has, what its job is, how it reads."""

from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from pathlib import Path

import pytest
from click.testing import CliRunner

from tests.conformance.__main__ import command
from tests.conformance.assumptions import ASSUMPTIONS, Value, When
from tests.conformance.examination import MAX_RUN_S, conformance_job, report
from tests.conformance.recorder import Record, read_record
from tests.emulators.vast import VastEmulator
from vastrun.launcher.core.errors import JobFileError
from vastrun.launcher.decisions.policy import deadline_of, reservation_usd

NOW = 1_800_000_000.0
USUAL: Mapping[str, Value] = {name: row.assumed.usual for name, row in ASSUMPTIONS.items()}
BY_RENT = {name: value for name, value in USUAL.items() if ASSUMPTIONS[name].when is When.RENT}
FILE = Path("seen.json")
DEVIATES = {"key.bad": "500 internal"}


def record(seen: Mapping[str, Value], *, exit_code: int = 0, billed_usd: float | None = None) -> Record:
    return Record(
        began_at=NOW,
        ended_at=NOW + 300,
        run="calm-heron-3f1a",
        instance="52607650",
        machine="1 x RTX 4090",
        verdict="SUCCEEDED",
        run_exit_code=exit_code,
        billed_usd=billed_usd,
        seen=seen,
    )


@pytest.mark.parametrize(
    ("made", "exit_code"),
    [
        pytest.param(record(USUAL, billed_usd=0.02), 0, id="all agrees"),
        pytest.param(record(BY_RENT), 0, id="the bill is not yet to be seen"),
        pytest.param(record(BY_RENT, billed_usd=0.02), 10, id="settled, and rows of the bill are missing"),
        pytest.param(record({}), 10, id="nothing was seen"),
        pytest.param(record({}, exit_code=8), 8, id="no offer fitted"),
        pytest.param(record(BY_RENT, exit_code=7), 7, id="the machine was lost"),
        pytest.param(record({**BY_RENT, **DEVIATES}), 12, id="a row deviates"),
        pytest.param(record({**BY_RENT, **DEVIATES}, exit_code=5), 12, id="and the run failed"),
        pytest.param(record({**BY_RENT, **DEVIATES}, exit_code=11), 11, id="and a machine may be there"),
    ],
)
def test_the_exit_code_says_what_matters_most(made: Record, exit_code: int) -> None:
    assert made.exit_code == exit_code


def test_the_job_holds_its_dollars_and_ends_after_ten_minutes() -> None:
    spec = conformance_job(0.1, ["resources.regions=[US]", "resources.gpus=2"], NOW)
    assert (reservation_usd(spec), spec.resources.gpus, spec.resources.regions) == (0.1, 2, ("US",))
    assert deadline_of(spec) == NOW + MAX_RUN_S == datetime.fromtimestamp(NOW + MAX_RUN_S, UTC).timestamp()
    assert spec.limits.hours * 3600 <= MAX_RUN_S
    assert spec.train is not None
    assert spec.train.steps == 20


def test_a_wrong_value_is_named_before_anything_is_asked_for() -> None:
    with pytest.raises(JobFileError, match=r"resources\.gpu_nam"):
        conformance_job(0.1, ["resources.gpu_nam=X"], NOW)


def test_the_report_names_what_deviates_and_what_rests_on_it() -> None:
    made = record({**USUAL, **DEVIATES}, billed_usd=0.02)
    text = report(made, FILE)
    assert all(len(line) <= 80 for line in text.splitlines() if not line.startswith(("rests", "how")))
    assert "deviates  key.bad" in text
    assert "500 internal" in text
    assert "errors._TABLE" in text
    assert f"{len(ASSUMPTIONS) - 1} agrees, 1 deviates" in text


def test_what_is_not_settled_says_how_to_settle_it() -> None:
    assert "python -m tests.conformance --settle seen.json" in report(record(BY_RENT), FILE)


@pytest.fixture
def vast() -> Iterator[VastEmulator]:
    with VastEmulator() as vast:
        yield vast


def rent(vast: VastEmulator, folder: Path, *options: str, key: str | None = None) -> int:
    """The exit code of a conformance run there, in a process without a terminal."""
    environ = {name: str(folder / name) for name in ("XDG_STATE_HOME", "XDG_CONFIG_HOME")}
    environ |= dict(vast.variables) | ({"VAST_API_KEY": key} if key is not None else {})
    return CliRunner().invoke(command, options, env=environ).exit_code


def orders(vast: VastEmulator) -> list[str]:
    return [path for method, path in vast.requests if method == "PUT" and "/asks/" in path]


def test_nothing_is_rented_without_the_users_word(vast: VastEmulator, tmp_path: Path) -> None:
    assert rent(vast, tmp_path) == 130
    assert orders(vast) == []


def test_a_key_that_is_refused_is_said_so_and_nothing_is_rented(vast: VastEmulator, tmp_path: Path) -> None:
    assert rent(vast, tmp_path, "-y", key="none") == 4
    assert orders(vast) == []


def test_where_no_offer_fits_the_searches_are_reported(
    vast: VastEmulator, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert rent(vast, tmp_path, "-y", "--set", "resources.gpu_names=['of tomorrow']") == 8
    seen = read_record(Path("conformance-no-offer.json")).seen
    assert seen["offer.units"] == USUAL["offer.units"]
    assert seen["limit.searches"] == 10
    assert seen["unknown.answer"] == "200 instances=null"
    assert orders(vast) == []
