"""Options of OpenSSH's client for one machine: as words of a command line, or as a `Host` block that the
user's ~/.ssh/config includes.

    config = UserSshConfig(Path.home() / ".ssh")
    config.write("vastrun-calm-heron-3f1a", entry_text)
    config.remove_stale(has_ended)

OpenSSH takes the first value that it finds for an option, so the line stands at the top of the file.
"""

from __future__ import annotations

import os
import re
import secrets
import shlex
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from vastrun.launcher.core import SshAccess
from vastrun.launcher.core.errors import ProviderError, StorageError, UsageError
from vastrun.launcher.gate import caps
from vastrun.launcher.gate.text import one_line
from vastrun.launcher.ssh.connection import Login
from vastrun.launcher.ssh.keys import Address

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
_MARK = "# Written by vastrun ssh-config for run "
_RUN = re.compile(rf"{re.escape(_MARK)}(\S+)\n")
_KEY = re.compile(r'^ *IdentityFile "(/.+)"$', re.MULTILINE)
LOGIN_SHELL = 'exec "${SHELL:-bash}" -l'
_HERE = "127.0.0.1"


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


class UserSshConfig:
    """The folder ~/.ssh. Every file is replaced as a whole; other people's files there are left alone."""

    def __init__(self, folder: Path) -> None:
        self._config, self._entries = folder / "config", folder / "vastrun.d"

    def write(self, name: str, run_id: str, block: str) -> Path:
        """Write the entry of that name, and the line that includes it. Raises StorageError.

        Raises UsageError where a file of the user has that name.
        """
        path = self._entries / f"{name}.conf"
        with _storage_errors(path):
            if os.path.lexists(path) and (path.is_symlink() or not _RUN.match(_text_of(path))):
                raise UsageError(f"{path} is not of vastrun", hint="choose another --name, or move that file")
            self._entries.mkdir(mode=0o700, parents=True, exist_ok=True)
            _replace(path, f"{_MARK}{run_id}\n{block}", mode=0o600)
        self._include()
        return path

    def remove_stale(self, has_ended: Callable[[str], bool]) -> Sequence[str]:
        """Remove the entries of runs that have ended, or whose key was deleted; return their names."""
        removed = []
        for path in sorted(self._entries.glob("*.conf")):
            with _storage_errors(path):
                text = _text_of(path)
                run, key = _RUN.match(text), _KEY.search(text)
                if run is None or key is None:
                    continue  # the user's own
                if has_ended(run[1]) or not Path(key[1].replace("%%", "%")).exists():
                    path.unlink(missing_ok=True)
                    removed.append(path.stem)
        return removed

    def _include(self) -> None:
        """Put the line at the top of the file, once."""
        path = self._config.resolve()  # a link into a folder of dotfiles stays one
        pattern = str(self._entries.absolute() / "*.conf")
        line = f'Include "{pattern}"' if re.search(r"\s", pattern) else f"Include {pattern}"
        with _storage_errors(path):
            text = path.read_bytes().decode("utf-8", "surrogateescape") if path.exists() else ""
            for_all_hosts = re.split(r"^[ \t]*(?:Host|Match)\b", text, maxsplit=1, flags=re.I | re.M)[0]
            if line in map(str.strip, for_all_hosts.splitlines()):
                return
            mode = path.stat().st_mode & 0o777 if path.exists() else 0o600
            _replace(path, f"# Added by vastrun ssh-config --write\n{line}\n\n{text}", mode=mode)


def _text_of(path: Path) -> str:
    return path.read_text(encoding="utf-8", errors="replace")


def _replace(path: Path, text: str, *, mode: int) -> None:
    """Write the file so that a reader sees the old or the new text."""
    part = path.with_name(f".{path.name}.{secrets.token_hex(4)}.part")
    try:
        part.touch(mode=0o600, exist_ok=False)
        part.write_bytes(text.encode("utf-8", "surrogateescape"))
        part.chmod(mode)
        part.replace(path)
    finally:
        part.unlink(missing_ok=True)


@contextmanager
def _storage_errors(path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise StorageError(
            f"cannot write {path}: {error.strerror}",
            hint="vastrun ssh-config RUN, without --write, prints it",
        ) from error


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
