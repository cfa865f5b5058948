"""The user's settings: the config file read, changed in place, and the budgets that follow from it."""

from __future__ import annotations

import math
from collections.abc import Sequence
from datetime import datetime, tzinfo
from pathlib import Path

from vastrun.contract.records import write_atomically
from vastrun.launcher.core.batch import Budget
from vastrun.launcher.core.errors import BudgetError, ConfigFileError, StorageError, UsageError
from vastrun.launcher.core.settings import BudgetSettings, LoadedSettings, Settings
from vastrun.launcher.decisions.estimates import budget_error
from vastrun.launcher.ports import Ledger
from vastrun.launcher.providers import PROVIDERS, plugin_names


def read_settings(file: Path | None) -> LoadedSettings:
    """Return what the config file says, and its faults. One that is not there says nothing."""
    try:
        text = "" if file is None else _text(file)
    except StorageError as error:
        return LoadedSettings(faults=(str(error),))
    if not text:
        return LoadedSettings()
    from vastrun.launcher.config.settings_file import load_settings  # slow to import: pydantic, yaml

    return load_settings(text, str(file), tuple(PROVIDERS), plugin_names)


def require_valid(loaded: LoadedSettings) -> Settings:
    """Return the settings. Raises ConfigFileError with every fault of the file."""
    if loaded.faults:
        raise ConfigFileError(tuple(loaded.faults))
    return loaded.settings


def budgets_of(budget: BudgetSettings, now: float, zone: tzinfo | None = None) -> list[Budget]:
    """Return the user's budgets as they are at that moment; one that is not set is infinite.

    `zone`: whose calendar counts; None: this computer's.
    """
    start = datetime.fromtimestamp(now, zone).replace(day=1, hour=0, minute=0, second=0, microsecond=0)
    return [
        _budget("budget.month_usd", f"{start:%B %Y}", budget.month_usd, start.timestamp()),
        _budget("budget.usd", "all runs", budget.usd, None),
    ]


def _budget(key: str, name: str, usd: float | None, since: float | None) -> Budget:
    hint = f"vastrun config set {key} USD"
    return Budget(name=name, usd=math.inf if usd is None else usd, since=since, hint=hint)


def refusals_of(ledger: Ledger, budgets: Sequence[Budget], usd: float) -> tuple[BudgetError, ...]:
    """Return an error for each budget without room for `usd` more."""
    found = (budget_error(ledger.use_of(budget), usd) for budget in budgets)
    return tuple(error for error in found if error is not None)


def set_value(file: Path, key: str, value: str) -> None:
    """Write the value into the config file. Raises UsageError for a wrong key or value, StorageError."""
    from vastrun.launcher.config.settings_file import load_settings, value_of, with_value  # slow to import
    from vastrun.launcher.config.source import SyntaxFault

    value_of(Settings(), key)
    try:
        alone = with_value("", key, key, value)
        if faults := load_settings(alone, key, tuple(PROVIDERS), plugin_names).faults:
            raise UsageError(faults[0].partition(": ")[2])
        edited = with_value(_text(file), str(file), key, value)
    except SyntaxFault as error:
        raise ConfigFileError((str(error.fault),)) from error
    _write(file, edited)


def _text(file: Path) -> str:
    try:
        return file.read_text(encoding="utf-8")
    except FileNotFoundError:
        return ""
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8 text"
        raise StorageError(f"{file}: cannot be read: {reason}") from error


def _write(file: Path, text: str) -> None:
    """Replace the file, whole at any moment. Where it is a link, what it points to is replaced."""
    try:
        target = file.resolve()
        mode = target.stat().st_mode & 0o777 if target.exists() else 0o644
        write_atomically(target, text, mode=mode)
    except (OSError, RuntimeError) as error:
        reason = error.strerror if isinstance(error, OSError) else str(error)
        raise StorageError(f"cannot write {file}: {reason}") from error
