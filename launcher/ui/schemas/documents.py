"""Documents: the shapes that each command prints with --json."""

from __future__ import annotations

from collections.abc import Mapping

from launcher.ui.schemas import batches, computer, market, runs
from launcher.ui.schemas.shape import JsonShape

RESULT = "result"
"""The file of that name in a run's folder; all others are commands."""

Shapes = tuple[type[JsonShape], ...]
_DRIVEN: Shapes = (runs.Ending,)
_BATCH: Shapes = (batches.Results, batches.PlannedBatch)

DOCUMENTS: Mapping[str, Shapes] = {
    "attach": _DRIVEN,
    "batch-results": (batches.Results,),
    "batch-resume": (batches.Results,),
    "batch-retry": (batches.Results,),
    "batch-status": (batches.BatchList, batches.BatchInDetail),
    "batch-submit": _BATCH,
    "batch-watch": (batches.Results,),
    "bugreport": (runs.BugReport,),
    "config": (computer.ShownSettings,),
    "cost": (market.Costs, market.GroupedCosts),
    "cost-reconcile": (market.Reconciled,),
    "diff": (runs.Differences,),
    "doctor": (computer.Findings, computer.Conformance),
    "export": (runs.Exported,),
    "hold": _DRIVEN,
    "hosts": (market.Hosts,),
    "image-ls": (computer.Images,),
    "image-verify": (computer.VerifiedImage,),
    "launch": (runs.Ending, market.ShownPlan),
    "logs": (runs.ShownLine,),
    "plan": (market.ShownPlan, market.ExplainedMarket),
    "profile": (runs.Profiled,),
    "pull": (runs.Pulled,),
    "reap": (market.Orphans,),
    "rehearse": (runs.Rehearsed,),
    "report": (runs.WrittenReport,),
    RESULT: (runs.ResultFile,),
    "resume": _DRIVEN,
    "status": (runs.Runs, runs.RunInDetail),
    "stop": _DRIVEN,
    "sweep": _BATCH,
    "wait": _DRIVEN,
    "why": (runs.Explained, batches.ExplainedBatch),
}
"""What each command prints with --json. Each may print one of several."""

WITHOUT_VERSION = ("logs",)
"""These say no version of their form: each line is one document."""


def title(name: str) -> str:
    """Return what a document is, in words."""
    return "result.json of a run" if name == RESULT else f"vastrun {name.replace('-', ' ')} --json"
