"""What the user asks of a running launcher."""

from __future__ import annotations

from enum import StrEnum


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
