"""A rehearsal in text and as a document: how each step ended, and what the evidence says of the training."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict

from launcher.commands.rehearsing import CONFIG, FIT
from launcher.core import Judgement, StepEnd
from launcher.core.verdict import VERDICT_OF
from launcher.decisions.fit import Fit
from launcher.decisions.left_out import bytes_text
from launcher.gate.manifest import Listing
from launcher.outputs.folder import OWN, name_of
from launcher.ui.render.documents import Document
from launcher.ui.render.fit import fit_document, fit_text
from launcher.ui.render.left_out import left_out_lines
from launcher.ui.render.summary import proof_lines
from launcher.ui.render.table import facts, table
from trainer.contract.scores import lines_of

_OF_PROGRAM = (OWN, "checkpoints")
_HEADER = ("STEP", "EXIT CODE", "SECONDS")


def rehearsal_text(
    performed: Sequence[StepEnd],
    judgement: Judgement | None,
    scores: Mapping[str, float],
    folder: str,
    fit: Fit | None = None,
    listing: Listing | None = None,
) -> str:
    """Show a line for each step, which GPUs hold the job, and the verdict."""
    rows = [(each.step, str(each.exit_code), f"{each.seconds:.1f}") for each in performed]
    parts = [table(_HEADER, rows, right=(1, 2)), *([] if fit is None else [fit_text(fit)])]
    told = [("folder", folder)] if {each.step for each in performed} - {CONFIG, FIT} else []
    if judgement is not None:
        verdict = ", ".join(filter(None, (VERDICT_OF[judgement.cause], judgement.detail)))
        told = [
            ("verdict", verdict),
            ("proofs", proof_lines(judgement.proofs)),
            ("score", "\n".join(lines_of(dict(scores)))),
            *told,
        ]
    files = []
    if listing is not None:
        files = [("download", _downloads(listing)), ("left out", left_out_lines(listing.left_out))]
    return "\n\n".join(filter(None, [*parts, facts([*told, *files])]))


def rehearsal_document(
    performed: Sequence[StepEnd],
    judgement: Judgement | None,
    scores: Mapping[str, float],
    folder: str,
    fit: Fit | None = None,
    listing: Listing | None = None,
) -> Document:
    """Describe a rehearsal for `rehearse --json`."""
    return {
        "steps": [asdict(each) for each in performed],
        "verdict": None if judgement is None else VERDICT_OF[judgement.cause],
        "judgement": None if judgement is None else asdict(judgement),
        "scores": dict(scores),
        "folder": folder,
        "fit": None if fit is None else fit_document(fit),
        "left_out": None if listing is None else asdict(listing.left_out),
    }


def _downloads(listing: Listing) -> str:
    """Say how much of what the program wrote would be downloaded."""
    files = [file for file in listing.files if name_of(file.path).parts[0] in _OF_PROGRAM]
    count = "1 file" if len(files) == 1 else f"{len(files)} files"
    return f"{count} of the program, {bytes_text(sum(file.size for file in files))}"
