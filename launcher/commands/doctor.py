"""The doctor: is this computer, and each provider, ready for a launch? Changes nothing."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from vastrun.contract.texts import how_many
from vastrun.launcher.commands import computer
from vastrun.launcher.commands.reap import Owner, by_owner, leftover_ends, leftover_networks, orphans
from vastrun.launcher.core import AccountStatus
from vastrun.launcher.core.errors import AuthError, VastrunError
from vastrun.launcher.ledger.database import state_folder_hint
from vastrun.launcher.package_files import install_command
from vastrun.launcher.ports import Ledger, Provider
from vastrun.launcher.providers import PROVIDERS, plugin_names
from vastrun.launcher.providers.local import remote

LOW_CREDIT_USD = 1.0
LAUNCHER_MB, BUSY_LAUNCHER_MB = 110, 200
"""MB of a launcher with a run or a batch of 20 points, and of one while a machine sends the maximum.

Measured by `python -m benchmarks launcher-memory`: 50 and 66 MB on this computer, 91 and 103 MB on Vast. The
second is what `launcher/gate/caps.py` allows.
"""
_LAUNCHER_NEEDS = (
    f"a launcher uses up to {LAUNCHER_MB} MB, {BUSY_LAUNCHER_MB} MB while a machine sends the maximum"
)
_REPORT_HINT = "vastrun doctor --json >doctor.json, and attach that file to an issue"


class Health(StrEnum):
    """Severity of a finding."""

    OK = "ok"
    WARN = "warn"
    FAIL = "fail"
    SKIP = "skip"


@dataclass(frozen=True, kw_only=True)
class Finding:
    """One line of the doctor's."""

    name: str
    health: Health
    text: str
    fix: str = ""


@dataclass(frozen=True, kw_only=True)
class CheckedSetup:
    """Inputs of the examination. `chosen` names the provider that must work; the others are optional."""

    state: Path
    python: str
    ledger: Callable[[], Ledger]
    provider: Callable[[str], Provider]
    chosen: str
    now: Callable[[], float]
    memory_mb: Callable[[], float | None] = computer.free_memory_mb


def examine(setup: CheckedSetup) -> Iterator[Finding]:
    """Yield the findings, as they are made."""
    fault = computer.write_fault(setup.state)
    yield Finding(
        name="state folder",
        health=Health.OK if fault is None else Health.FAIL,
        text=f"{setup.state}" if fault is None else f"{setup.state}: {fault}",
        fix="" if fault is None else state_folder_hint(setup.state),
    )
    ledger, finding = _ledger(setup)
    yield finding
    yield _disk(setup.state)
    yield _memory(setup.memory_mb())
    wants, fix = remote.missing_requirement()
    health = _health_of(setup, "local") if wants else Health.OK
    text = f"local {wants}" if wants else ", ".join(remote.TOOLS)
    yield Finding(name="tools", health=health, text=text, fix=fix if wants else "")
    if not remote.other_system():
        yield _python(setup)
    for name in (*PROVIDERS, *plugin_names()):
        yield from _provider(setup, name, ledger)


def _ledger(setup: CheckedSetup) -> tuple[Ledger | None, Finding]:
    try:
        ledger = setup.ledger()
        runs = ledger.runs()
    except VastrunError as error:
        return None, _failure("ledger", error)
    counted = how_many(len(runs), "run")
    open_runs = len(ledger.runs(open_only=True))
    return ledger, Finding(name="ledger", health=Health.OK, text=f"{ledger.id}: {counted}, {open_runs} open")


def _disk(state: Path) -> Finding:
    free_gb = computer.free_gb(state)
    if free_gb is None:
        return Finding(name="disk", health=Health.SKIP, text=f"{state} cannot be read")
    health = Health.OK if free_gb >= 10 else Health.WARN if free_gb >= 1 else Health.FAIL
    fix = "free some space: logs, checkpoints and outputs are downloaded to this computer"
    fix = "" if health is Health.OK else fix
    return Finding(name="disk", health=health, text=f"{free_gb:.1f} GB free", fix=fix)


def _memory(free_mb: float | None) -> Finding:
    """A launcher that the kernel kills for lack of memory leaves its machines to their leases."""
    if free_mb is None:
        return Finding(name="memory", health=Health.SKIP, text=_LAUNCHER_NEEDS)
    health = Health.OK if free_mb >= BUSY_LAUNCHER_MB else Health.WARN
    if free_mb < LAUNCHER_MB:
        health = Health.FAIL
    fix = "" if health is Health.OK else "end other programs, or launch from a computer with more memory"
    return Finding(name="memory", health=health, text=f"{free_mb:,.0f} MB free; {_LAUNCHER_NEEDS}", fix=fix)


def _python(setup: CheckedSetup) -> Finding:
    fault = computer.python_fault(setup.python)
    if fault is None:
        return Finding(name="python", health=Health.OK, text=f"{setup.python} can run the trainer")
    fix = f"{install_command('trainer', python=setup.python)}, or export VASTRUN_PYTHON=/path/to/python"
    return Finding(name="python", health=_health_of(setup, "local"), text=f"{setup.python}: {fault}", fix=fix)


def _provider(setup: CheckedSetup, name: str, ledger: Ledger | None) -> Iterator[Finding]:
    try:
        provider = setup.provider(name)
    except VastrunError as error:
        yield _provider_failure(name, error, _health_of(setup, name))
        return
    if (account := provider.abilities.account) is not None:
        try:
            account_status = account.account_status()
            text = f"accepted; ${account_status.credit_usd:.2f} of credit"
            problem = text if account_status.credit_usd < LOW_CREDIT_USD else ""
            yield _warn_of(f"{name} key", problem, "add credit at https://cloud.vast.ai/billing/", text)
            yield _permissions(name, account_status)
            rights = (f"{right} to {', '.join(uses)}" for right, uses in account_status.purposes.items())
            yield Finding(name=f"{name} rights", health=Health.OK, text="; ".join(rights))
            yield _clock(name, account_status.clock_ahead_s)
        except VastrunError as error:
            yield _provider_failure(name, error)
            return
    if (search_findings := provider.abilities.search_findings) is not None:
        for found in search_findings():
            health = {True: Health.OK, False: Health.WARN, None: Health.SKIP}[found.is_expected]
            fix = _REPORT_HINT if health is Health.WARN else ""
            yield Finding(name=f"{name} {found.name}", health=health, text=found.text, fix=fix)
    if (describe := provider.abilities.describe) is not None:
        try:
            yield Finding(name=name, health=Health.OK, text=describe())
        except VastrunError as error:
            yield _failure(name, error, _health_of(setup, name))
            return
    if ledger is not None:
        yield from _orphans(ledger, provider, name, setup.now())


def _permissions(name: str, account_status: AccountStatus) -> Finding:
    needed = permissions_json(account_status.needed)
    scoped = (
        f"echo '{needed}' >permissions.json && "
        "vastai create api-key --name vastrun --permission_file permissions.json"
    )
    if account_status.refused:
        text = f"the key lacks {', '.join(account_status.refused)}"
        return Finding(name=f"{name} permissions", health=Health.FAIL, text=text, fix=scoped)
    problem = "the key may do more than a launch needs" if account_status.wider else ""
    fine = f"as far as can be seen without renting, the key has {needed}"
    return _warn_of(f"{name} permissions", problem, scoped, fine)


def permissions_json(categories: Sequence[str]) -> str:
    """Return the `permissions` of a key that may do just this."""
    return json.dumps({"api": {category: {} for category in categories}}, separators=(",", ":"))


def _clock(name: str, ahead_s: float | None) -> Finding:
    label = f"{name} clock"
    if ahead_s is None:
        return Finding(name=label, health=Health.SKIP, text="the server's response has no time")
    text = f"{abs(ahead_s):.0f} s {'ahead of' if ahead_s > 0 else 'behind'} the server's"
    fix = "set the clock, best by NTP: costs and deadlines depend on it"
    return _warn_of(label, text if abs(ahead_s) > 60.0 else "", fix, text)


def _orphans(ledger: Ledger, provider: Provider, name: str, now: float) -> Iterator[Finding]:
    label = f"{name} orphans"
    try:
        found = orphans(ledger, provider, now)
    except VastrunError as error:
        yield _failure(label, error)
        return
    ids = ", ".join(orphan.instance.id for orphan in found if orphan.owner is Owner.THIS)
    problem, fix = ids and f"no open run claims {ids}", f"vastrun reap --provider {name}"
    yield _warn_of(label, problem, fix, "every machine of this ledger belongs to an open run")
    for owner, found_machines in by_owner(found):
        ids = ", ".join(orphan.instance.id for orphan in found_machines)
        yield Finding(name=f"{name} others", health=Health.OK, text=f"{owner}: {ids}")
    if provider.abilities.ends_later is not None:
        yield _leftovers(
            name,
            "scheduled ends",
            lambda: [end.instance_id for end in leftover_ends(ledger, provider)],
            "left for machines that are gone",
            "a machine that outlives all of its limits is ended by the provider itself",
        )
    if provider.abilities.networks is not None:
        yield _leftovers(
            name,
            "networks",
            lambda: [network.name for network in leftover_networks(ledger, provider)],
            "left over from ended runs",
            "a run with several nodes also needs a key with user_write",
        )


def _leftovers(name: str, what: str, find: Callable[[], list[str]], found: str, none: str) -> Finding:
    """Say whether runs left something with the provider that `reap` removes. A launch does without."""
    label = f"{name} {what}"
    try:
        left = find()
    except VastrunError as error:
        return _failure(label, error, Health.SKIP)
    problem, fix = f"{found}: {', '.join(left)}" if left else "", f"vastrun reap --provider {name}"
    return _warn_of(label, problem, fix, f"none is left; {none}")


def _warn_of(name: str, problem: str, fix: str, fine: str) -> Finding:
    """Return a warning of the problem; without one, the finding that all is fine."""
    if problem:
        return Finding(name=name, health=Health.WARN, text=problem, fix=fix)
    return Finding(name=name, health=Health.OK, text=fine)


def _provider_failure(name: str, error: VastrunError, health: Health = Health.FAIL) -> Finding:
    return _failure(f"{name} key" if isinstance(error, AuthError) else name, error, health)


def _failure(name: str, error: VastrunError, health: Health = Health.FAIL) -> Finding:
    return Finding(name=name, health=health, text=str(error), fix=error.hint)


def _health_of(setup: CheckedSetup, provider: str) -> Health:
    """Return the severity of an unusable provider: FAIL for the chosen one, else WARN."""
    return Health.FAIL if setup.chosen == provider else Health.WARN
