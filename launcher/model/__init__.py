"""The nouns: what was asked for, what is offered, what we pay for, what happened. Pure data."""

from launcher.model.boxes import CheckpointCopy, Collected, Completed, Parcel, RankSighting, Sighting
from launcher.model.endings import Cause, Phase, Verdict, Wish
from launcher.model.market import Instance, Lease, Offer, Order, Standing
from launcher.model.runs import LABEL_PREFIX, Driver, Event, Judgement, Proof, Run

__all__ = [
    "LABEL_PREFIX",
    "Cause",
    "CheckpointCopy",
    "Collected",
    "Completed",
    "Driver",
    "Event",
    "Instance",
    "Judgement",
    "Lease",
    "Offer",
    "Order",
    "Parcel",
    "Phase",
    "Proof",
    "RankSighting",
    "Run",
    "Sighting",
    "Standing",
    "Verdict",
    "Wish",
]
