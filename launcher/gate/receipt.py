"""Receipt: what a machine says that it lacks of the data that are sent to it."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from vastrun.contract.data_files import DataReceipt
from vastrun.contract.records import RecordError, read_json
from vastrun.launcher.core.errors import BoxError


def parse_receipt(text: str, sizes: Sequence[int]) -> DataReceipt:
    """Return what `onstart/transfer/receive.py` printed. `sizes`: of the contents. Raises BoxError."""
    try:
        receipt: DataReceipt = read_json(DataReceipt, text)
    except RecordError as error:
        raise BoxError(f"the machine does not say which data it lacks: {error}") from error
    missing, damaged = receipt.missing, receipt.damaged
    indexes = range(len(sizes))
    is_known = all(
        index in indexes for index in (*missing[:1], *missing[-1:], *([] if damaged is None else [damaged]))
    )
    is_in_order = all(one < other for one, other in pairwise(missing))
    if not (is_known and is_in_order) or not 0 <= receipt.at <= (sizes[missing[0]] if missing else 0):
        raise BoxError("the machine lacks data that are not those of the job")
    return receipt
