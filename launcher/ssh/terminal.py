"""Command lines of OpenSSH's client: a shell on a box, or a tunnel to one of its ports."""

from __future__ import annotations

import shlex
from collections.abc import Sequence

from vastrun.launcher.core import SshAccess
from vastrun.launcher.ssh.client_options import client_words
from vastrun.launcher.ssh.connection import Login
from vastrun.launcher.ssh.keys import Address

LOGIN_SHELL = 'exec "${SHELL:-bash}" -l'
_HERE = "127.0.0.1"


def ssh_access(login: Login, address: Address, root: str) -> SshAccess:
    """Return how to log in at that address, which the launcher has checked."""
    return SshAccess(
        host=address[0],
        port=address[1],
        user=login.user,
        key_path=str(login.key.private_path.absolute()),
        known_hosts_path=str(login.hosts.path.absolute()),
        folder=root,
    )


def login_argv(login: Login, address: Address, root: str, command: str | None) -> Sequence[str]:
    """Return the argv that opens a shell in the folder `root`, or runs `command` there."""
    words = f"cd {shlex.quote(root)} && {LOGIN_SHELL if command is None else command}"
    terminal = "-t" if command is None else "-T"
    return (*_client(ssh_access(login, address, root)), terminal, "--", address[0], words)


def tunnel_argv(login: Login, address: Address, port: int, local_port: int) -> Sequence[str]:
    """Return the argv that forwards `local_port` of this computer, for local clients, to the box's `port`."""
    ends = f"{_HERE}:{local_port}:{_HERE}:{port}"
    options = ("-N", "-o", "ExitOnForwardFailure=yes", "-L", ends)
    return (*_client(ssh_access(login, address, "")), *options, "--", address[0])


def _client(access: SshAccess) -> Sequence[str]:
    # -F none: the user's own settings may add an agent or a proxy.
    return ("ssh", "-F", "none", "-o", "LogLevel=ERROR", *client_words(access))
