"""Where a run stands, why it left the road, how it ended, and what its user asks for."""

from __future__ import annotations

from enum import StrEnum


class Phase(StrEnum):
    """Where a run stands; `phases.NEXT` says what follows."""

    PLAN = "plan"
    RENT = "rent"
    BOOT = "boot"
    SHIP = "ship"
    TRAIN = "train"
    COLLECT = "collect"
    DESTROY = "destroy"
    ENDED = "ended"


class Cause(StrEnum):
    """Why a run left the straight road. The first one stays."""

    USER_ERROR = "user_error"
    SETUP = "setup"
    OUT_OF_MEMORY = "out_of_memory"
    SIGNAL = "signal"
    COMMUNICATION = "communication"
    DATA = "data"
    DISK = "disk"
    DIVERGED = "diverged"
    """Its loss or its gradient was no number any more."""
    HOST = "host"
    STORAGE = "storage"
    """This computer could not write, before anything was rented."""
    HANG = "hang"
    STOPPED = "stopped"
    TIME_LIMIT = "time_limit"
    MONEY_LIMIT = "money_limit"
    PREEMPTED = "preempted"
    LOST = "lost"
    NO_OFFER = "no_offer"
    PROVIDER = "provider"
    UNPROVEN = "unproven"
    CONTRADICTION = "contradiction"
    INTERNAL = "internal"


class Verdict(StrEnum):
    """How a run ended; follows from its cause by `phases.VERDICT_OF`."""

    SUCCEEDED = "SUCCEEDED"
    FAILED = "FAILED"
    HUNG = "HUNG"
    STOPPED = "STOPPED"
    LIMIT = "LIMIT"
    PREEMPTED = "PREEMPTED"
    LOST = "LOST"
    NO_OFFER = "NO_OFFER"
    UNKNOWN = "UNKNOWN"


class UserRequest(StrEnum):
    """What the user asks of a running launcher: by Ctrl-C here, or by `vastrun stop` elsewhere."""

    NONE = "none"
    DETACH_ONCE_TRAINING = "detach_once_training"
    """Stay until the training has begun."""
    DETACH = "detach"
    STOP = "stop"
    DESTROY = "destroy"

    @property
    def strength(self) -> int:
        """Of several requests the strongest holds."""
        return list(UserRequest).index(self)
