"""Remotes: a shell on an instance, and what some can do besides."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Protocol, runtime_checkable

from vastrun.launcher.core import Completed, LocalProgram


class Remote(Protocol):
    """A shell on an instance. Paths are relative to the box's folder.

    Every verb raises UnreachableError when the box cannot be reached, GoneError when it is no more, BoxError
    when it answers as no honest box does.
    """

    def run(self, command: str, *, timeout_s: float) -> Completed:
        """Run a shell command; return it once it is finished, whatever its exit code.

        Raises UnreachableError after `timeout_s`, BoxError when it prints more than `caps` allows.
        """
        ...

    def put(self, local_path: str, path: str) -> None:
        """Put the file on the box, whole: a reader never sees half of it. Raises ProviderError (no space)."""
        ...

    def write(self, path: str, content: bytes, *, mode: int = 0o600) -> None:
        """Put bytes from memory into a file on the box, as `put`."""
        ...

    def read(self, path: str, *, offset: int = 0, limit: int = 1 << 20) -> bytes:
        """Read up to `limit` bytes from `offset`; empty at the end of the file or when there is no such file.

        Fewer than there are when they come slowly: it returns within `caps.READ_S`.
        """
        ...

    def close(self) -> None:
        """Close the connection; the box goes on."""
        ...


@runtime_checkable
class ChecksExchange(Protocol):
    """A remote of a run, whose user, time or money may end an exchange with it."""

    def raise_if_stopped(self) -> None:
        """Raise what ends the exchange; else return at once."""
        ...


@runtime_checkable
class ChecksIdentity(Protocol):
    """A remote that can say how it knows the machine."""

    @property
    def identity(self) -> str:
        """In words, once the machine was reached."""
        ...


@runtime_checkable
class Interruptible(Protocol):
    """A remote that can be interrupted while it waits."""

    def set_interrupt_check(self, check: Callable[[], None]) -> None:
        """Call `check` every second while a verb waits for the machine; what it raises ends the verb."""
        ...

    def abort(self) -> None:
        """Break the connection, from another thread: a verb that waits for the machine raises soon.

        The next verb connects again.
        """
        ...


@runtime_checkable
class OpensTerminal(Protocol):
    """A remote that the user can work on from this computer."""

    def terminal(self, command: str | None = None) -> LocalProgram:
        """Return what opens a shell in the box's folder, or runs `command` there.

        Reaches the box first, so that it is known to be ours. Raises as its other verbs do.
        """
        ...

    def tunnel(self, port: int, local_port: int) -> LocalProgram | None:
        """Return what makes the box's `port` one of this computer's until interrupted; None: it is one."""
        ...


@runtime_checkable
class CountsNoise(Protocol):
    """A remote whose machine prints lines that mean nothing."""

    @property
    def left_out(self) -> Mapping[str, int]:
        """How many were not shown in this run so far, by kind."""
        ...
