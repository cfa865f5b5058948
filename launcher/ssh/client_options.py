"""Options of OpenSSH's client for one machine: as words of a command line, and as a `Host` block."""

from __future__ import annotations

import re
from collections.abc import Sequence

from vastrun.launcher.core import SshAccess
from vastrun.launcher.core.errors import ProviderError, UsageError
from vastrun.launcher.gate import caps
from vastrun.launcher.gate.text import one_line

Option = tuple[str, str]

_SAFETY: Sequence[Option] = (
    ("BatchMode", "yes"),
    ("IdentitiesOnly", "yes"),
    ("ServerAliveInterval", "15"),
    # The launcher has checked and stored the host key: the client trusts that file alone.
    ("StrictHostKeyChecking", "yes"),
    ("GlobalKnownHostsFile", "/dev/null"),
    ("UpdateHostKeys", "no"),
    # The machine is a stranger's: it must not reach the user's agent or display.
    ("IdentityAgent", "none"),
    ("ForwardAgent", "no"),
    ("ForwardX11", "no"),
    ("PermitLocalCommand", "no"),
)
_AGAINST_OTHER_BLOCKS: Sequence[Option] = (
    # What a user's `Host *` may set, and the launcher's own connection does not use.
    ("PreferredAuthentications", "publickey"),
    ("ProxyCommand", "none"),
    ("VerifyHostKeyDNS", "no"),
    ("CheckHostIP", "no"),
    ("Tunnel", "no"),
    ("RemoteCommand", "none"),
)

# The first character is none of an option's, and none is special to the client: `%h`, a second word, a quote.
_HOST = re.compile(r"[A-Za-z0-9:][A-Za-z0-9.:_-]{0,253}", re.ASCII)
_USER = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.@+-]{0,127}", re.ASCII)
NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,62}", re.ASCII)
"""Names of `Host` blocks. Without a dot, so that none hides a real host's name."""


def client_options(access: SshAccess) -> Sequence[Option]:
    """Return keywords and values that lead to that machine alone, in the syntax of ssh_config(5).

    Raises ProviderError for an address that is no host name, UsageError for a path that the syntax cannot
    express.
    """
    _require(_HOST, access.host, "the address of the machine")
    _require(_USER, access.user, "the user name on the machine")
    if not 0 < access.port < 1 << 16:
        raise ProviderError(f"the SSH port of the machine is {access.port}")
    return (
        ("Port", str(access.port)),
        ("User", access.user),
        ("IdentityFile", _quoted(access.key_path)),
        ("UserKnownHostsFile", _quoted(access.known_hosts_path)),
        # The file has port 22 in brackets as every other port, where the client would not look for it.
        ("HostKeyAlias", f"[{access.host}]:{access.port}"),
        *_SAFETY,
    )


def client_words(access: SshAccess) -> Sequence[str]:
    """Return the options as words of a command line."""
    return [word for name, value in client_options(access) for word in ("-o", f"{name}={value}")]


def host_block(name: str, access: SshAccess, comments: Sequence[str]) -> str:
    """Return the `Host` block of that name, below its comments. Raises as `client_options`."""
    if not NAME.fullmatch(name):
        raise UsageError(
            f"not a name for a Host block: {name!r}", hint="letters, digits, - and _, at most 63 of them"
        )
    options = (("HostName", access.host), *client_options(access), *_AGAINST_OTHER_BLOCKS)
    lines = [f"# {one_line(comment)[: caps.SSH_COMMENT_CHARACTERS]}" for comment in comments]
    return "\n".join([*lines, f"Host {name}", *(f"    {key} {value}" for key, value in options)]) + "\n"


def _require(pattern: re.Pattern[str], value: str, what: str) -> None:
    if not pattern.fullmatch(value):
        raise ProviderError(f"{what} is malformed: {value[:80]!r}")


def _quoted(path: str) -> str:
    """Return the path as a value of the configuration, where `%` and `${` have a meaning."""
    if not path.startswith("/") or '"' in path or "\\" in path or "${" in path or not path.isprintable():
        raise UsageError(
            f"OpenSSH's client cannot be given this path: {path!r}",
            hint='export XDG_STATE_HOME=… to an absolute path without " and \\ and ${',
        )
    return f'"{path.replace("%", "%%")}"'
