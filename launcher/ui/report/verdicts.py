"""How a verdict is shown: its colour, which never says more than its word."""

from __future__ import annotations

from collections.abc import Mapping

from launcher.core import Verdict
from launcher.ui.report.markup import Html, element

TONES: Mapping[Verdict | None, str] = {
    Verdict.SUCCEEDED: "good",
    Verdict.FAILED: "bad",
    Verdict.HUNG: "bad",
    Verdict.LOST: "bad",
    Verdict.UNKNOWN: "bad",
    Verdict.NO_OFFER: "warn",
    Verdict.LIMIT: "warn",
    Verdict.PREEMPTED: "warn",
    Verdict.STOPPED: "calm",
    Verdict.PRUNED: "calm",
    None: "calm",
}
"""Class of how a verdict is shown; None: the run is open."""


def badge(verdict: Verdict | None, words: str) -> Html:
    """Return a verdict, or the state of what has none."""
    return element("span", words, class_=f"badge {TONES[verdict]}")
