"""Receipt: what a machine says that it lacks of the data that are sent to it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from vastrun.contract.records import RecordError, read_json
from vastrun.launcher.core import DataReceipt
from vastrun.launcher.core.errors import BoxError


@dataclass(frozen=True, kw_only=True)
class _Printed:
    missing: str
    """A digit for each content: 1 where it is missing."""
    at: int
    waits: bool
    damaged: int | None


def parse_receipt(text: str, sizes: Sequence[int]) -> DataReceipt:
    """Return what `onstart/transfer/receive.py` printed. `sizes`: of the contents. Raises BoxError."""
    try:
        printed: _Printed = read_json(_Printed, text)
    except RecordError as error:
        raise BoxError(f"the machine does not say which data it lacks: {error}") from error
    missing = tuple(i for i, digit in enumerate(printed.missing) if digit == "1")
    is_whole = len(printed.missing) == len(sizes) and printed.missing.count("0") == len(sizes) - len(missing)
    max_at = sizes[missing[0]] if is_whole and missing else 0
    if not is_whole or not 0 <= printed.at <= max_at or (printed.damaged or 0) not in range(len(sizes) or 1):
        raise BoxError("the machine lacks data that are not those of the job")
    return DataReceipt(missing=missing, at=printed.at, waits=printed.waits, damaged=printed.damaged)
