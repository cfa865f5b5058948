"""The nouns: what was asked for, what is offered, what we pay for, what happened. Pure data."""

from launcher.core.boxes import CheckpointCopy, Collected, Completed, Evidence, Parcel, RankSighting, Sighting
from launcher.core.endings import Cause, Phase, Verdict, Wish
from launcher.core.labels import LABEL_PREFIX, label_of, ledger_in, run_id_in
from launcher.core.market import Extras, Identity, Instance, Lease, Offer, Order, Standing
from launcher.core.origins import NOTHING, Origin
from launcher.core.progress import Progress
from launcher.core.runs import Cost, Driver, Event, Judgement, Meter, Proof, Rental, Run
from launcher.core.steps import StepEnd

__all__ = [
    "LABEL_PREFIX",
    "NOTHING",
    "Cause",
    "CheckpointCopy",
    "Collected",
    "Completed",
    "Cost",
    "Driver",
    "Event",
    "Evidence",
    "Extras",
    "Identity",
    "Instance",
    "Judgement",
    "Lease",
    "Meter",
    "Offer",
    "Order",
    "Origin",
    "Parcel",
    "Phase",
    "Progress",
    "Proof",
    "RankSighting",
    "Rental",
    "Run",
    "Sighting",
    "Standing",
    "StepEnd",
    "Verdict",
    "Wish",
    "label_of",
    "ledger_in",
    "run_id_in",
]
