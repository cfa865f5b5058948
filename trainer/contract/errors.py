"""What ends a training, and is told in one line."""

from __future__ import annotations


class ConfigError(Exception):
    """The job asks for what these ranks, this device or this data set cannot do."""

    def __init__(self, text: str, *, told_elsewhere: bool = False) -> None:
        super().__init__(text)
        self.told_elsewhere = told_elsewhere
        """True when another rank explains it."""


class DivergedError(Exception):
    """Loss or gradient are no numbers any more: more steps would only cost. All ranks raise it alike."""

    def __init__(self, text: str, *, told_elsewhere: bool) -> None:
        super().__init__(text)
        self.told_elsewhere = told_elsewhere
        """True when another rank prints it."""


class UnsavedError(Exception):
    """This rank was asked to stop, and had to leave before it could save."""


class SaveError(Exception):
    """A checkpoint could not be saved; those before it are as they were."""


class DataError(Exception):
    """The data are missing, damaged, or not what the job file says. One line, for the user."""


class WorkerDiedError(Exception):
    """A signal ended a process that read data, as when the kernel wants memory: another start may help."""
