"""Data frames of pandas, which is imported when the first one is made."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from importlib import import_module
from typing import Any

from vastrun.launcher.core.errors import UsageError
from vastrun.launcher.package_files import install_command


def data_frame(records: Sequence[Mapping[str, Any]], columns: Sequence[str]) -> Any:
    """Return a pandas.DataFrame with a row for each record; these columns come first, and always exist.

    Raises UsageError where pandas is not installed.
    """
    try:
        pandas = import_module("pandas")
    except ModuleNotFoundError as error:
        raise UsageError("pandas is not installed", hint=install_command("notebook")) from error
    names = list(dict.fromkeys((*columns, *(name for record in records for name in record))))
    return pandas.DataFrame(list(records), columns=names)
