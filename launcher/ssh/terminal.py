"""Command lines of OpenSSH's client: a shell on a box, or a tunnel to one of its ports."""

from __future__ import annotations

import shlex
from collections.abc import Sequence

from vastrun.launcher.ssh.connection import Login
from vastrun.launcher.ssh.hosts import Address

LOGIN_SHELL = 'exec "${SHELL:-bash}" -l'
_HERE = "127.0.0.1"
_OPTIONS = (
    *("BatchMode=yes", "IdentitiesOnly=yes", "LogLevel=ERROR", "ServerAliveInterval=15"),
    # The launcher has checked and stored the host key: the client trusts that file alone.
    *("StrictHostKeyChecking=yes", "GlobalKnownHostsFile=/dev/null", "UpdateHostKeys=no"),
    # The machine is a stranger's: it must not reach the user's agent or display.
    *("IdentityAgent=none", "ForwardAgent=no", "ForwardX11=no", "PermitLocalCommand=no"),
)


def login_argv(login: Login, address: Address, root: str, command: str | None) -> Sequence[str]:
    """Return the argv that opens a shell in the folder `root`, or runs `command` there."""
    words = f"cd {shlex.quote(root)} && {LOGIN_SHELL if command is None else command}"
    return (*_client(login, address), "-t" if command is None else "-T", *_at(login, address), words)


def tunnel_argv(login: Login, address: Address, port: int, local_port: int) -> Sequence[str]:
    """Return the argv that forwards `local_port` of this computer, for local clients, to the box's `port`."""
    ends = f"{_HERE}:{local_port}:{_HERE}:{port}"
    options = ("-N", "-o", "ExitOnForwardFailure=yes", "-L", ends)
    return (*_client(login, address), *options, *_at(login, address))


def _client(login: Login, address: Address) -> Sequence[str]:
    # -F none: the user's own settings may add an agent or a proxy.
    # HostKeyAlias: the file has port 22 in brackets as every other, where the client would not look for it.
    host, port = address
    host_options = (f'UserKnownHostsFile="{login.hosts.path}"', f"HostKeyAlias=[{host}]:{port}")
    options = [word for option in (*_OPTIONS, *host_options) for word in ("-o", option)]
    return ("ssh", "-F", "none", "-i", str(login.key.private_path), "-p", str(address[1]), *options)


def _at(login: Login, address: Address) -> Sequence[str]:
    return ("-l", login.user, "--", address[0])
