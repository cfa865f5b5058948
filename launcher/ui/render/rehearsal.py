"""A rehearsal in text and as a document: how each step ended, and what the evidence says of the training."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict

from launcher.commands.rehearsing import CONFIG, FIT
from launcher.core import Judgement, StepEnd
from launcher.core.verdict import VERDICT_OF
from launcher.decisions.fit import Fit
from launcher.ui.render.documents import Document
from launcher.ui.render.fit import fit_document, fit_text
from launcher.ui.render.summary import proof_lines
from launcher.ui.render.table import facts, table
from trainer.contract.scores import lines_of

_HEADER = ("STEP", "EXIT CODE", "SECONDS")


def rehearsal_text(
    performed: Sequence[StepEnd],
    judgement: Judgement | None,
    scores: Mapping[str, float],
    folder: str,
    fit: Fit | None = None,
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
    return "\n\n".join(filter(None, [*parts, facts(told)]))


def rehearsal_document(
    performed: Sequence[StepEnd],
    judgement: Judgement | None,
    scores: Mapping[str, float],
    folder: str,
    fit: Fit | None = None,
) -> Document:
    """Describe a rehearsal for `rehearse --json`."""
    return {
        "steps": [asdict(each) for each in performed],
        "verdict": None if judgement is None else VERDICT_OF[judgement.cause],
        "judgement": None if judgement is None else asdict(judgement),
        "scores": dict(scores),
        "folder": folder,
        "fit": None if fit is None else fit_document(fit),
    }
