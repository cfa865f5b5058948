"""A rehearsal, as text and as a document: the end of each step, and the verdict on the training."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from vastrun.contract.scores import score_lines
from vastrun.launcher.commands.rehearse import CONFIG, FIT
from vastrun.launcher.core import LeftOutFiles, RunAssessment, StepEnd
from vastrun.launcher.core import Verdict as RunVerdict
from vastrun.launcher.core.left_out import bytes_text
from vastrun.launcher.decisions.workload import Fit
from vastrun.launcher.gate.manifest import Listing
from vastrun.launcher.outputs.folder import OWN, name_of
from vastrun.launcher.ui.documents.document import Document
from vastrun.launcher.ui.render.amounts import left_out_lines
from vastrun.launcher.ui.render.fit import fit_text
from vastrun.launcher.ui.render.summary import proof_lines
from vastrun.launcher.ui.render.table import facts, table

_OF_PROGRAM = (OWN, "checkpoints")
_HEADER = ("STEP", "EXIT CODE", "SECONDS")


class RehearsalDocument(Document):
    """A rehearsal of the steps of a job on this computer."""

    steps: Sequence[StepEnd]
    verdict: RunVerdict | None
    assessment: RunAssessment | None
    scores: Mapping[str, float]
    folder: str
    fit: Fit | None
    """Fit of the job on GPUs; null if not requested."""
    left_out: LeftOutFiles | None
    """Files of its program that would not be downloaded; null if it did not run."""


def rehearsal_text(shown: RehearsalDocument, listing: Listing | None = None) -> str:
    """Write a line for each step, the fit on GPUs, and the verdict."""
    rows = [(each.step, str(each.exit_code), f"{each.seconds:.1f}") for each in shown.steps]
    parts = [table(_HEADER, rows, right=(1, 2)), *([] if shown.fit is None else [fit_text(shown.fit)])]
    pairs = [("folder", shown.folder)] if {each.step for each in shown.steps} - {CONFIG, FIT} else []
    if shown.assessment is not None:
        verdict = ", ".join(filter(None, (shown.verdict, shown.assessment.detail)))
        pairs = [
            ("verdict", verdict),
            ("proofs", proof_lines(shown.assessment.proofs)),
            ("score", "\n".join(score_lines(dict(shown.scores)))),
            *pairs,
        ]
    files = []
    if listing is not None:
        files = [("download", _downloads(listing)), ("left out", left_out_lines(listing.left_out))]
    return "\n\n".join(filter(None, [*parts, facts([*pairs, *files])]))


def _downloads(listing: Listing) -> str:
    """Write the number and size of the program's files that would be downloaded."""
    files = [file for file in listing.files if name_of(file.path).parts[0] in _OF_PROGRAM]
    count = "1 file" if len(files) == 1 else f"{len(files)} files"
    return f"{count} of the program, {bytes_text(sum(file.size for file in files))}"
