"""The doctor: what keeps a launch from working is found before, each with its fix."""

import json
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.documents import hold
from tests.emulators.vast import VastEmulator
from tests.launcher.terminal import Terminal
from vastrun.launcher.app import App
from vastrun.launcher.cli import cli
from vastrun.launcher.commands.computer import free_memory_mb
from vastrun.launcher.commands.doctor import CheckedSetup, Finding, examine, permissions_json
from vastrun.launcher.core import Driver, Phase
from vastrun.launcher.providers.vast.calls import NEEDED

SCOPED = {"api": {category: {} for category in NEEDED}}


Examined = Callable[..., tuple[int, dict[str, dict[str, Any]]]]


@pytest.fixture(scope="module")
def vast() -> Iterator[VastEmulator]:
    with VastEmulator(rate_limits=False) as vast:
        yield vast


@pytest.fixture
def environ(tmp_path: Path) -> dict[str, str]:
    """No key anywhere, and a Python with all that the trainer needs."""
    return {
        "XDG_STATE_HOME": str(tmp_path / "state"),
        "XDG_CONFIG_HOME": str(tmp_path / "config"),
        "VASTRUN_PYTHON": str(python_with(tmp_path, "torch", "numpy", "h5py")),
    }


def python_with(folder: Path, *modules: str) -> Path:
    """A Python that finds these modules, and nothing that is installed here."""
    (folder / "modules").mkdir(exist_ok=True)
    for module in modules:
        (folder / "modules" / f"{module}.py").write_text("raise SystemExit('imported')\n")
    python = folder / "python"
    python.write_text(f'#!/bin/sh\nPYTHONPATH="{folder}/modules" exec {sys.executable} -S "$@"\n')
    python.chmod(0o755)
    return python


@pytest.fixture
def examined(capfd: pytest.CaptureFixture[str]) -> Examined:
    """`vastrun doctor --json` in that environment: its exit code, and its findings by name."""

    def examine(environ: Mapping[str, str], *options: str) -> tuple[int, dict[str, dict[str, Any]]]:
        code = cli.main(["doctor", "--json", *options], obj=App(environ), standalone_mode=False) or 0
        document = json.loads(capfd.readouterr().out)
        hold("doctor", document)
        assert document["healthy"] is (code == 0)
        return code, {finding["name"]: finding for finding in document["findings"]}

    return examine


def account(
    environ: dict[str, str], vast: VastEmulator, permissions: Mapping[str, Any] | None
) -> dict[str, str]:
    """The environment with a key of that reach."""
    key = vast.account.add_key("doctor", permissions=permissions).key
    return environ | {"VAST_URL": vast.url, "VAST_API_KEY": key}


def test_a_sound_computer_needs_no_account_for_local(examined: Examined, environ: dict[str, str]) -> None:
    code, findings = examined(environ)
    assert code == 0
    for name in ("state folder", "ledger", "tools", "python", "local orphans"):
        assert findings[name]["health"] == "ok", findings[name]
    assert findings["vast key"]["health"] == "warn"
    assert "VAST_API_KEY" in findings["vast key"]["fix"]
    assert findings["slurm"]["health"] == "warn"
    assert "vastrun config set slurm.login" in findings["slurm"]["fix"]


@pytest.mark.parametrize(
    ("free_mb", "health", "fix"),
    [
        (8000.0, "ok", ""),
        (200.0, "ok", ""),
        (199.0, "warn", "end other programs"),
        (109.0, "fail", "end other"),
    ],
)
def test_the_memory_that_a_launcher_needs_is_held_against_what_is_free(
    free_mb: float, health: str, fix: str, tmp_path: Path
) -> None:
    finding = _memory(free_mb, tmp_path)
    assert finding.health.value == health
    assert finding.text == (
        f"{free_mb:,.0f} MB free; a launcher uses up to 110 MB, 200 MB while a machine sends the maximum"
    )
    assert finding.fix.startswith(fix)


def test_where_the_system_does_not_say_what_is_free_the_need_is_stated(tmp_path: Path) -> None:
    finding = _memory(None, tmp_path)
    assert (finding.health.value, finding.text[:22]) == ("skip", "a launcher uses up to ")


def _memory(free_mb: float | None, folder: Path) -> Finding:
    app = Terminal(folder).app()
    setup = CheckedSetup(
        state=folder,
        python=sys.executable,
        ledger=app.ledger,
        provider=app.provider,
        chosen="local",
        now=app.now,
        memory_mb=lambda: free_mb,
    )
    return next(finding for finding in examine(setup) if finding.name == "memory")


def test_free_memory_is_what_programs_can_still_have(tmp_path: Path) -> None:
    (tmp_path / "meminfo").write_text("MemTotal:  64000000 kB\nMemFree: 1 kB\nMemAvailable:   2000000 kB\n")
    assert free_memory_mb(tmp_path) == 2048.0
    (tmp_path / "meminfo").write_text("MemTotal:  64000000 kB\n")
    assert free_memory_mb(tmp_path) is None
    assert free_memory_mb(tmp_path / "none") is None


def test_the_chosen_provider_must_have_its_key(examined: Examined, environ: dict[str, str]) -> None:
    code, findings = examined(environ, "--provider", "vast")
    assert code == 1
    assert findings["vast key"]["health"] == "fail"


def test_a_state_folder_that_cannot_be_written_fails_with_its_fix(
    examined: Examined, environ: dict[str, str], tmp_path: Path
) -> None:
    (tmp_path / "state").write_text("a file where a folder must be")
    code, findings = examined(environ)
    assert code == 1
    assert findings["state folder"]["health"] == "fail"
    assert "XDG_STATE_HOME" in findings["state folder"]["fix"]
    assert findings["ledger"]["health"] == "fail"


def test_a_damaged_ledger_fails_and_the_rest_is_examined(
    examined: Examined, environ: dict[str, str], tmp_path: Path
) -> None:
    ledger = tmp_path / "state" / "vastrun" / "ledger.db"
    ledger.parent.mkdir(parents=True)
    ledger.write_bytes(b"no database" * 1000)
    code, findings = examined(environ)
    assert code == 1
    assert "damaged" in findings["ledger"]["text"]
    assert findings["python"]["health"] == "ok"


def test_a_python_without_torch_is_found_without_importing_anything(
    examined: Examined, environ: dict[str, str], tmp_path: Path
) -> None:
    (tmp_path / "bare").mkdir()
    environ["VASTRUN_PYTHON"] = str(python_with(tmp_path / "bare", "numpy", "h5py"))
    code, findings = examined(environ)
    assert code == 1
    assert findings["python"]["text"].endswith("it has no torch")
    assert examined(environ, "--provider", "vast")[1]["python"]["health"] == "warn"


def test_a_python_that_is_missing_fails(examined: Examined, environ: dict[str, str], tmp_path: Path) -> None:
    environ["VASTRUN_PYTHON"] = str(tmp_path / "nowhere")
    assert "No such file" in examined(environ)[1]["python"]["text"]


def test_a_scoped_key_is_enough(examined: Examined, environ: dict[str, str], vast: VastEmulator) -> None:
    code, findings = examined(account(environ, vast, SCOPED), "--provider", "vast")
    assert code == 0
    assert findings["vast key"]["text"] == f"accepted; ${vast.account.credit:.2f} of credit"
    assert "instance_write to rent a machine, destroy a machine" in findings["vast rights"]["text"]
    assert findings["vast scheduled ends"]["health"] == "ok"
    assert findings["vast permissions"]["health"] == "ok"
    assert findings["vast clock"]["health"] == "ok"
    assert findings["vast orphans"]["health"] == "ok"


def test_search_checks_rent_nothing(examined: Examined, environ: dict[str, str], vast: VastEmulator) -> None:
    before = len(vast.instances)
    code, findings = examined(account(environ, vast, SCOPED), "--provider", "vast")
    names = ("search", "offers")
    found = {name: findings[f"vast {name}"] for name in names}
    assert code == 0
    assert {name: one["health"] for name, one in found.items()} == dict.fromkeys(names, "ok")
    assert "with a limit of 1,000" in found["search"]["text"]
    assert len(vast.instances) == before


def test_offers_that_cannot_be_read_are_counted_with_the_reason(
    examined: Examined, environ: dict[str, str], vast: VastEmulator
) -> None:
    vast.faults.add("odd_offers", times=9)
    findings = examined(account(environ, vast, SCOPED), "--provider", "vast")[1]
    vast.faults.clear()
    assert findings["vast offers"]["health"] == "warn", findings["vast offers"]
    assert "1 with no gpu_ram" in findings["vast offers"]["text"]
    assert "could not convert string to float: 'n/a'" in findings["vast offers"]["text"]
    assert "have no end_date" in findings["vast offers"]["text"]
    assert "attach that file" in findings["vast offers"]["fix"]


def test_a_search_that_is_not_answered_is_left_out(
    examined: Examined, environ: dict[str, str], vast: VastEmulator
) -> None:
    narrow = {"api": {category: {} for category in NEEDED if category != "misc"}}
    findings = examined(account(environ, vast, narrow), "--provider", "vast")[1]
    assert findings["vast search"]["health"] == "skip"
    assert "vast offers" not in findings


def test_a_key_that_may_do_more_is_a_warning_that_says_what_is_enough(
    examined: Examined, environ: dict[str, str], vast: VastEmulator
) -> None:
    code, findings = examined(account(environ, vast, None))
    assert code == 0
    assert findings["vast permissions"]["health"] == "warn"
    assert permissions_json(NEEDED) in findings["vast permissions"]["fix"]


@pytest.mark.parametrize("lacking", ["misc", "instance_read", "billing_read"])
def test_a_key_that_lacks_a_permission_fails(
    examined: Examined, environ: dict[str, str], vast: VastEmulator, lacking: str
) -> None:
    narrow = {"api": {category: {} for category in NEEDED if category != lacking}}
    code, findings = examined(account(environ, vast, narrow))
    assert code == 1
    assert findings["vast permissions"]["text"] == f"the key lacks {lacking}"


def test_a_key_that_may_not_read_the_account_is_told_from_one_that_is_not_accepted(
    examined: Examined, environ: dict[str, str], vast: VastEmulator
) -> None:
    code, findings = examined(account(environ, vast, {"api": {"instance_read": {}}}))
    assert code == 1
    assert "lacks the permission for this" in findings["vast key"]["text"]
    assert "user_read" in findings["vast key"]["fix"]


def test_a_key_that_is_not_accepted_fails_and_is_not_shown(
    examined: Examined, environ: dict[str, str], vast: VastEmulator
) -> None:
    environ = account(environ, vast, None) | {"VAST_API_KEY": "no-such-key"}
    code, findings = examined(environ)
    assert code == 1
    assert "rejects the API key" in findings["vast key"]["text"]
    assert "no-such-key" not in json.dumps(findings)


def test_an_account_without_credit_is_a_warning(examined: Examined, environ: dict[str, str]) -> None:
    with VastEmulator(rate_limits=False, credit_usd=0.2) as poor:
        code, findings = examined(account(environ, poor, SCOPED))
    assert code == 0
    assert findings["vast key"]["health"] == "warn"
    assert "billing" in findings["vast key"]["fix"]


def test_machines_that_no_open_run_claims_are_a_warning(tmp_path: Path) -> None:
    terminal = Terminal(tmp_path / "one")
    terminal.launch("--detach")
    (machine,) = terminal.market.instances()
    assert "no open run" not in terminal.type("doctor").stdout
    run = terminal.ledger.runs()[0]
    terminal.ledger.hold(run.id, Driver(who="desk:1:1.0", until=terminal.clock.now() + 600))
    terminal.ledger.save(replace(run, phase=Phase.ENDED), who="desk:1:1.0")
    end = terminal.type("doctor")
    assert f"no open run claims {machine.id}" in end.stdout
    assert "try: vastrun reap" in end.stdout
    assert terminal.machines() == 1


@pytest.mark.slow
def test_a_network_of_a_run_that_ended_is_a_warning_and_reap_removes_it(
    examined: Examined, environ: dict[str, str], vast: VastEmulator, capfd: pytest.CaptureFixture[str]
) -> None:
    environ = account(environ, vast, {"api": {category: {} for category in (*NEEDED, "user_write")}})
    _, findings = examined(environ)
    assert findings["vast networks"]["health"] == "ok"
    assert "user_write" in findings["vast networks"]["text"]
    ledger = findings["ledger"]["text"].partition(":")[0]
    names = [f"vastrun-calm-heron-3f1a-{ledger}", "vastrun-calm-heron-3f1b-01234567", "of-somebody-else"]
    with vast.lock:
        for name in names:
            vast.overlays.add(name, 7)

    _, findings = examined(environ)
    assert findings["vast networks"]["health"] == "warn"
    assert findings["vast networks"]["text"] == f"left over from ended runs: {names[0]}"
    assert "reap" in findings["vast networks"]["fix"]

    assert not cli.main(["reap", "--provider", "vast", "--yes"], obj=App(environ), standalone_mode=False)
    assert capfd.readouterr().out == f"{names[0]} destroyed\n"
    assert [overlay.name for overlay in vast.overlays] == names[1:]
