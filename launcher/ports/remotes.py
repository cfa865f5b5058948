"""Remotes: a shell on an instance, and optional interfaces."""

from __future__ import annotations

from collections.abc import Callable, Collection
from operator import attrgetter
from typing import Protocol, TypeVar, cast, runtime_checkable

from vastrun.launcher.core import CommandResult, LocalProgram, SshAccess

_W = TypeVar("_W")


class Remote(Protocol):
    """A shell on an instance. Paths are relative to the box's folder.

    Every method raises UnreachableError when the box cannot be reached, GoneError when it does not exist,
    BoxError when its response is invalid.
    """

    def run(self, command: str, *, timeout_s: float) -> CommandResult:
        """Run a shell command; return its result with any exit code.

        Raises UnreachableError after `timeout_s`, BoxError when it prints more than `caps` allows.
        """
        ...

    def put(self, local_path: str, path: str) -> None:
        """Upload the file to the box atomically. Raises ProviderError (no space)."""
        ...

    def write(self, path: str, content: bytes, *, mode: int = 0o600) -> None:
        """Write bytes to a file on the box, atomically."""
        ...

    def read(self, path: str, *, offset: int = 0, limit: int = 1 << 20) -> bytes:
        """Read up to `limit` bytes from `offset`; empty at the end of the file or when the file does not
        exist.

        Returns `caps.READ_S` after the first byte, with fewer bytes on a slow connection. Raises
        SliceOverError when the time for it is over before that byte.
        """
        ...

    def close(self) -> None:
        """Close the connection; the box continues."""
        ...


@runtime_checkable
class ChecksExchange(Protocol):
    """A remote of a run, whose exchanges can be stopped by the user, time or money."""

    def raise_if_stopped(self) -> None:
        """Raise RunStopped when the exchange must stop; otherwise return at once."""
        ...


@runtime_checkable
class ChecksIdentity(Protocol):
    """A remote that reports how it authenticated the machine."""

    @property
    def identity(self) -> str:
        """Description, once the machine was reached."""
        ...


@runtime_checkable
class Interruptible(Protocol):
    """A remote that can be interrupted while it waits."""

    def set_interrupt_check(self, check: Callable[[], None]) -> None:
        """Call `check` every second while a method waits for the machine; what it raises ends the method."""
        ...

    def abort(self) -> None:
        """Break the connection, from another thread: a method that waits for the machine raises soon.

        The next method connects again.
        """
        ...


@runtime_checkable
class OpensTerminal(Protocol):
    """A remote on which the user can open a terminal."""

    def terminal(self, command: str | None = None) -> LocalProgram:
        """Return the program that opens a shell in the box's folder, or runs `command` there.

        Connects to the box first, to authenticate it. Raises as the other methods.
        """
        ...

    def tunnel(self, port: int, local_port: int) -> LocalProgram | None:
        """Return the program that forwards `local_port` to the box's `port`; None: no forwarding is
        needed."""
        ...


@runtime_checkable
class AllowsSsh(Protocol):
    """A remote whose box the user's own programs reach by SSH: an editor, rsync, scp."""

    def ssh_access(self) -> SshAccess:
        """Return how to log in, at the address that answers now.

        Connects to the box first, to check and store its host key. Raises UsageError where the box has no
        SSH server after all, and as the other methods.
        """
        ...


@runtime_checkable
class SeesGrowth(Protocol):
    """A remote that sees a file of the box grow, without a request for each look."""

    def has_grown(self, path: str) -> bool | None:
        """Return whether `path` has bytes that no `read` has returned; None where that is not known.

        The first call says which file is meant: it is known from the next `read` of it on. A connection that
        breaks is for the next request to notice.
        """
        ...


REMOTE_ABILITIES: Collection[type] = (
    ChecksExchange,
    ChecksIdentity,
    Interruptible,
    OpensTerminal,
    AllowsSsh,
    SeesGrowth,
)
"""The optional interfaces of a remote."""


def with_abilities(wrapper: type[_W], inner: Remote, *, without: Collection[str] = ()) -> type[_W]:
    """Return a subclass of `wrapper`, a remote around `inner` as its `_inner`, with the abilities of `inner`.

    Members that `wrapper` defines stay; those named in `without` are not added. They are members of the class
    because since Python 3.12 `isinstance` does not call `__getattr__`.
    """
    able = (ability for ability in REMOTE_ABILITIES if isinstance(inner, ability))
    names = {name for ability in able for name in vars(ability) if not name.startswith("_")}
    members = {
        name: property(attrgetter(f"_inner.{name}"))
        for name in names.difference(without)
        if not hasattr(wrapper, name)
    }
    return cast("type[_W]", type(wrapper.__name__, (wrapper,), members))
