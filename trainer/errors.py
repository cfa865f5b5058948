"""Errors: the exceptions that end a training; most are shown to the user as one line."""

from __future__ import annotations


class SharedError(Exception):
    """An error that several ranks may raise at once."""

    def __init__(self, text: str, *, reported_elsewhere: bool = False) -> None:
        super().__init__(text)
        self.reported_elsewhere = reported_elsewhere
        """True when another rank prints the error."""


class ConfigError(SharedError):
    """The job requests something that these ranks, this device or this data set cannot do."""


class DivergedError(SharedError):
    """The loss or the gradient is not finite: more steps would only cost money. All ranks raise it."""


class StoppedWithoutSaveError(Exception):
    """The rank was asked to stop and had to end before it saved a checkpoint."""


class SaveError(Exception):
    """A checkpoint could not be saved; the earlier ones are unchanged."""


class DataError(Exception):
    """The data are missing, damaged, or do not match the job file. The text is one line, for the user."""


class DeviceError(Exception):
    """The device on which this rank must train does not exist."""


class WorkerDiedError(Exception):
    """A signal ended a process that read data, for instance when memory ran out: a restart may help."""
