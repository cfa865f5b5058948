"""Receipt: what a machine says that it lacks of the data that are sent to it."""

from __future__ import annotations

from collections.abc import Sequence

from vastrun.contract.data_files import DataReceipt
from vastrun.contract.records import RecordError, read_json
from vastrun.launcher.core.errors import BoxError


def parse_receipt(text: str, sizes: Sequence[int]) -> DataReceipt:
    """Return what `onstart/transfer/receive.py` printed. `sizes`: of the contents. Raises BoxError."""
    try:
        receipt: DataReceipt = read_json(DataReceipt, text)
    except RecordError as error:
        raise BoxError(f"the machine does not say which data it lacks: {error}") from error
    missing = receipt.missing
    is_known = {*missing, receipt.damaged} <= {*range(len(sizes)), None} and [*missing] == sorted({*missing})
    if not is_known or not 0 <= receipt.at <= (sizes[missing[0]] if missing else 0):
        raise BoxError("the machine lacks data that are not those of the job")
    return receipt
