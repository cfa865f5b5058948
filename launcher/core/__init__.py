"""The nouns: what was asked for, what is offered, what we pay for, what happened. Pure data."""

from launcher.core.boxes import (
    BoxStatus,
    Bundle,
    CheckpointCopy,
    Collected,
    Completed,
    Evidence,
    RankStatus,
    StepEnd,
)
from launcher.core.labels import LABEL_PREFIX, label_of, ledger_in, run_id_in
from launcher.core.market import AccountStatus, ExtraRates, Identity, Instance, Lease, Offer, RentalOrder
from launcher.core.phases import Phase
from launcher.core.runs import (
    NOTHING,
    PRUNING,
    Cost,
    Driver,
    Event,
    Judgement,
    Meter,
    Origin,
    Progress,
    Proof,
    Rental,
    Run,
    UserRequest,
)
from launcher.core.verdict import Cause, Verdict

__all__ = [
    "LABEL_PREFIX",
    "NOTHING",
    "PRUNING",
    "AccountStatus",
    "BoxStatus",
    "Bundle",
    "Cause",
    "CheckpointCopy",
    "Collected",
    "Completed",
    "Cost",
    "Driver",
    "Event",
    "Evidence",
    "ExtraRates",
    "Identity",
    "Instance",
    "Judgement",
    "Lease",
    "Meter",
    "Offer",
    "Origin",
    "Phase",
    "Progress",
    "Proof",
    "RankStatus",
    "Rental",
    "RentalOrder",
    "Run",
    "StepEnd",
    "UserRequest",
    "Verdict",
    "label_of",
    "ledger_in",
    "run_id_in",
]
