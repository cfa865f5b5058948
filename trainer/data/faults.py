"""What can be wrong with data."""


class DataError(Exception):
    """The data are missing, damaged, or not what the job file says. One line, for the user."""


class WorkerDiedError(Exception):
    """A signal ended a process that read them, as when the kernel wants memory: another start may help."""
