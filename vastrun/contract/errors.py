"""Errors: the exceptions that end a training; most are reported to the user in one line."""

from __future__ import annotations


class ConfigError(Exception):
    """The job asks for something that these ranks, this device or this data set cannot do."""

    def __init__(self, text: str, *, told_elsewhere: bool = False) -> None:
        super().__init__(text)
        self.told_elsewhere = told_elsewhere
        """True when another rank prints it."""


class DivergedError(Exception):
    """The loss or the gradient is not finite: more steps would only cost money. All ranks raise it."""

    def __init__(self, text: str, *, told_elsewhere: bool) -> None:
        super().__init__(text)
        self.told_elsewhere = told_elsewhere
        """True when another rank prints it."""


class UnsavedError(Exception):
    """This rank was asked to stop and had to end before it could save."""


class SaveError(Exception):
    """A checkpoint could not be saved; the earlier ones are unchanged."""


class DataError(Exception):
    """The data are missing, damaged, or not what the job file says. The text is one line, for the user."""


class DeviceError(Exception):
    """The device on which this rank must train does not exist."""


class WorkerDiedError(Exception):
    """A process that read data was ended by a signal, as when memory ran out: another start may help."""
