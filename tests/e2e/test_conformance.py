"""A live service that is not as assumed: each deviation is named, nothing stays rented."""

import json
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click
import pytest

from tests.conformance.__main__ import command
from tests.conformance.assumptions import ASSUMPTIONS, State, When
from tests.conformance.examination import conformance_job, rent, settle
from tests.conformance.examined import DEVIATIONS, SETS, USD, Examined, honest_machines
from tests.conformance.recorder import Record, read_record, write_record
from tests.e2e.market import LOADING
from tests.e2e.terminal import Terminal
from tests.emulators.vast import VastEmulator
from tests.waiting import eventually
from vastrun.launcher.cost.reconciliation import ROUNDED_USD

pytestmark = pytest.mark.torch


@pytest.fixture
def vast() -> Iterator[VastEmulator]:
    with VastEmulator(honest_machines(4), pace=LOADING) as vast:
        yield vast


def test_every_assumption_has_a_deviation() -> None:
    assert list(DEVIATIONS) == list(ASSUMPTIONS)


@pytest.mark.slow
def test_all_agrees_with_the_emulator_as_it_is(tmp_path: Path) -> None:
    with Examined(tmp_path) as examined:
        record = examined.examine()
        assert [one for one in record.comparisons if one.state is not State.AGREES] == []
        assert record.exit_code == 0
        assert len(examined.vast.instances) == 0
        secrets = [examined.vast.account_key, *examined.vast.account.keys]
    file = tmp_path / "seen.json"
    write_record(file, record)
    assert not any(secret in file.read_text() for secret in secrets)
    _assert_behaves_like(file, "key.bad", "403 auth_error")


def _assert_behaves_like(file: Path, name: str, word: str) -> None:
    """An emulator that is told by the file, with one row changed, behaves so."""
    document = json.loads(file.read_text())
    document["seen"][name] = word
    file.write_text(json.dumps(document))
    command = [sys.executable, "-m", "tests.emulators.vast", "--like", str(file)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as emulator:
        assert emulator.stdout
        try:
            line = emulator.stdout.readline()
            url = next(item.partition("=")[2] for item in line.split() if item.startswith("VAST_URL="))
            request = urllib.request.Request(
                f"{url}/api/v0/users/current", headers={"Authorization": "Bearer no"}
            )
            with pytest.raises(urllib.error.HTTPError) as caught:
                urllib.request.urlopen(request)
        finally:
            emulator.terminate()
    assert caught.value.code == int(word.split()[0])


@pytest.mark.slow
def test_the_command_reports_what_it_saw_and_settles_its_bill(
    rented: Terminal, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(rented.folder)
    url = f"{rented.variables['VAST_URL']}/download/2000000"
    job = conformance_job(USD, SETS, time.time())
    with click.Context(command):
        assert rent(rented.variables, job, yes=True, download_url=url, watch_s=2.0) == 0
    [file] = rented.folder.glob("conformance-*.json")
    open_rows = {one.name for one in read_record(file).comparisons if one.state is not State.AGREES}
    assert open_rows == {name for name, row in ASSUMPTIONS.items() if row.when is When.SETTLE}
    assert f"--settle {file.name}" in capsys.readouterr().out

    def settled() -> Record | None:
        code, record = settle(rented.variables, file), read_record(file)
        return record if code == 0 and record.billed_usd else None

    bill = eventually(settled, what="the settled bill")
    assert all(one.state is State.AGREES for one in bill.comparisons)
    assert bill.counted.usd == pytest.approx(bill.billed_usd, rel=0.03, abs=ROUNDED_USD)


@pytest.mark.parametrize("name", DEVIATIONS)
@pytest.mark.slow
def test_a_deviation_is_named_and_nothing_stays_rented(name: str, tmp_path: Path) -> None:
    deviation = DEVIATIONS[name]
    with Examined(
        tmp_path,
        {name: deviation.value},
        factor=deviation.factor,
        watch_s=deviation.watch_s,
    ) as examined:
        record = examined.examine()
        states = {one.name: (one.state, one.seen_text) for one in record.comparisons}
        assert states[name][0] is State.DEVIATES, states
        assert record.exit_code in (11, 12)
        assert len(examined.vast.instances) == 0
        assert examined.vast.billing.total_usd() <= USD


FAULTS = (
    ("no_answer_done", {"endpoint": "create"}),
    ("no_answer_done", {"endpoint": "create", "after": 1}),
    ("create_twice", {"seconds": 5.0}),
    ("create_late", {"seconds": 30.0}),
    ("created_stopped", {}),
    ("hidden_row", {"seconds": 30.0}),
    ("relabelled", {}),
    ("ssh_impostor", {}),
    ("null_row", {"times": 3}),
    ("listed_loading", {"times": 10_000}),
)
"""Of those of a run, and of the second order: the others are in test_vast_faults.py."""


@pytest.mark.slow
@pytest.mark.parametrize(("fault", "details"), FAULTS, ids=[f"{one[0]}-{one[1]}" for one in FAULTS])
def test_fault_on_the_way_leaves_nothing_rented(fault: str, details: dict[str, Any], tmp_path: Path) -> None:
    with Examined(tmp_path) as examined:
        examined.vast.faults.add(fault, **details)
        examined.examine()
        assert fault in examined.vast.faults.struck
        assert len(examined.vast.instances) == 0
        assert examined.vast.billing.total_usd() <= USD


@pytest.mark.slow
def test_a_machine_that_a_second_order_made_is_on_the_bill_of_the_run(tmp_path: Path) -> None:
    with Examined(tmp_path, {"create.again": "200 success"}) as examined:
        record = examined.examine()
        first, second = examined.vast.billing.meters.values()
        assert second.total_usd > 0
        assert record.run_usd >= 0.99 * (first.total_usd + second.total_usd)
