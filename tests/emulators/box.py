"""A box: what an instance is made of. As processes of this computer, or as a container of an image."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol


@dataclass(frozen=True, kw_only=True)
class Graphics:
    """The GPUs that the box's `nvidia-smi` shows."""

    names: Sequence[str]
    memory_mb: int
    driver: str
    used_mb: int = 0
    """Memory of each GPU that other programs hold."""
    cuda: float = 0.0
    """The newest that the driver supports; 0: it does not say."""


@dataclass(frozen=True, kw_only=True)
class Program:
    """What a container runs."""

    env: Mapping[str, str]
    onstart: str
    ports: Sequence[str] = ()
    """Published beside that of sshd, as `8000/tcp`."""
    by_sh: bool = False
    """The onstart text is given to /bin/sh, whatever its first line says."""
    addresses: Sequence[str] = ()
    """What `hostname -I` shows; empty: what it shows on this computer. A container has its own."""
    keys_flaw: str = ""
    """How the host leaves `~/.ssh`, at the start and whenever keys are written: `modes`: others may write it;
    `owner`: it is another user's, where the box may give files away.
    """
    session_env: Mapping[str, str] = field(default_factory=dict)
    """Seen by whoever logs in, too."""


class Box(Protocol):
    """Its disk and its log stay between `end` and the next `start`."""

    def start(self, program: Program, keys: Sequence[str]) -> None:
        """The first process runs soon, after the end of an earlier start, and so does the program."""

    def authorize(self, keys: Sequence[str]) -> None:
        """Exactly these public keys may log in."""

    def port(self, name: str) -> int | None:
        """Where a port, as `22/tcp` of sshd, answers on this computer now; None while it does not."""

    @property
    def exit_code(self) -> int | None:
        """None while the first process runs, or before the first start."""

    @property
    def over(self) -> bool:
        """No process of the box is left."""

    def end(self) -> None:
        """Asks for the end of every process; does not wait."""

    def wipe(self) -> None:
        """No process is left, and the disk is empty, as after a recycle."""

    def log(self) -> str:
        """What the container printed."""

    def note(self, text: str) -> None:
        """The text stands in the log, too."""
