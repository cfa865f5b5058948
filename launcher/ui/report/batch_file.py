"""The page of a batch as a file beside the outputs of its runs, written at its end."""

from __future__ import annotations

from pathlib import Path

from launcher.batch.reporting import batch_report_of
from launcher.core.errors import StorageError
from launcher.outputs.store import PAGE_FAULTS, REPORT
from launcher.outputs.storing import IGNORE, need_space, stored, storing
from launcher.ports import Ledger
from launcher.ui.report.batch_page import batch_page_file


def leave_report(ledger: Ledger, name: str, now: float) -> str:
    """Write the page, and say where it is, or why it is not, which changes nothing else."""
    try:
        file = write_batch_report(ledger, name, now)
    except StorageError as error:
        return f"the report of the batch was not written: {error}"
    return "" if file is None else f"report: {file}"


def write_batch_report(ledger: Ledger, name: str, now: float) -> Path | None:
    """Write the page as the batch stands; None where nothing came home. Raises StorageError."""
    folder = Path(ledger.batches.get(name).folder)
    if not folder.is_dir() or all(entry.name == IGNORE for entry in folder.iterdir()):
        return None
    try:
        content = batch_page_file(batch_report_of(ledger, name, now), folder.resolve()).encode(
            errors="replace"
        )
    except PAGE_FAULTS as fault:
        raise StorageError(f"{REPORT} cannot be made: {type(fault).__name__}: {fault}") from fault
    with storing(folder):
        need_space(folder, len(content))
        stored(folder / REPORT, content)
    return folder / REPORT
