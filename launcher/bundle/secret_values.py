"""The values of secrets: from the environment, from files, and from commands."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping
from pathlib import Path

from vastrun.launcher.bundle.secret_command import CommandSecrets
from vastrun.launcher.core.errors import JobValueError
from vastrun.launcher.core.job import Secret

_MAX_ENV_FILE_BYTES = 1 << 20


class SecretValues:
    """Finds the values of a job's secrets, as lines of `NAME='value'` for a POSIX shell."""

    def __init__(self, environment: Mapping[str, str], commands: CommandSecrets) -> None:
        self._environment, self._commands = environment, commands

    def stored(self, secrets: Iterable[Secret]) -> bytes:
        """Return the secrets that no command prints. Raises JobValueError when one has no value."""
        return b"".join(_line(each, self._stored_value(each)) for each in secrets if each.command is None)

    def printed(self, secrets: Iterable[Secret], *, is_own_job: bool) -> bytes:
        """Return the secrets that commands print. Raises JobValueError when one does not.

        `is_own_job`: the job was read on this computer. Of others, only those commands are run that a job has
        that was: a writer of a team's ledger must not make other computers run programs.
        """
        lines = []
        for each in secrets:
            if each.command is not None:
                if is_own_job:
                    self._commands.trust(each.command)
                lines.append(_line(each, self._printed_value(each)))
        return b"".join(lines)

    def remembered(self, secrets: Iterable[Secret]) -> bytes | None:
        """Return what commands printed before, without running one; None: a value is not known."""
        values = {each: self._commands.known(each) for each in secrets if each.command is not None}
        if None in values.values():
            return None
        return b"".join(_line(each, value) for each, value in values.items() if value is not None)

    def _stored_value(self, secret: Secret) -> str:
        if secret.file is not None:
            path = _path(secret.file)
            text = _text_of(secret.name, path).rstrip("\r\n")
            if not text or "\0" in text:
                raise JobValueError(f"secrets: {secret.name} in {path} is empty or contains a NUL character")
            return text
        if secret.env_file is not None:
            return _from_env_file(secret.name, _path(secret.env_file))
        value = self._environment.get(secret.name, "")
        if not value:
            name = secret.name
            hint = f"export {name}=…, or in the job file: secrets: [{{name: {name}, file: PATH}}]"
            if name == "WANDB_API_KEY":
                hint += ", or record without a key: env: {WANDB_MODE: offline} instead of the secret"
            raise JobValueError(f"secrets: {name} is not set in the environment", hint=hint)
        return value

    def _printed_value(self, secret: Secret) -> str:
        command = secret.command or ""
        if self._commands.is_trusted(command):
            return self._commands.read(secret)
        if value := self._environment.get(secret.name):
            return value
        raise JobValueError(
            f"secrets: {secret.name} comes from a command of a job file that this launcher did not read",
            hint=f'look at the command before you run it: export {secret.name}="$({command})"',
        )


def _path(text: str) -> Path:
    return Path(os.path.expanduser(text))  # noqa: PTH111 (Path raises RuntimeError on an unknown ~user)


def _from_env_file(name: str, path: Path) -> str:
    """Return the value of the line `NAME=value`. No error has anything of it."""
    try:
        value = value_in(_text_of(name, path, _MAX_ENV_FILE_BYTES), name)
    except ValueError as error:
        raise JobValueError(f"secrets: the value of {name} in {path} cannot be read: {error}") from None
    if value is None:
        hint = f"add the line {name}=… to {path}"
        raise JobValueError(f"secrets: {path} has no line {name}=…", hint=hint)
    if not value or "\0" in value:
        raise JobValueError(f"secrets: {name} in {path} is empty or contains a NUL character")
    return value


def _text_of(name: str, path: Path, max_bytes: int = -1) -> str:
    try:
        with path.open("rb") as file:
            content = file.read(max_bytes + 1 if max_bytes > 0 else -1)
        if 0 < max_bytes < len(content):
            raise JobValueError(f"secrets: {name}: {path} has more than {max_bytes >> 20} MB")
        return content.decode()
    except OSError as error:
        raise JobValueError(f"secrets: {name} cannot be read from {path}: {error.strerror}") from error
    except UnicodeDecodeError:
        raise JobValueError(f"secrets: {name} in {path} is not text in UTF-8") from None


def _line(secret: Secret, value: str) -> bytes:
    quoted = "'" + value.replace("'", "'\\''") + "'"
    return f"{secret.name}={quoted}\n".encode("utf-8", "surrogateescape")


_ENTRY = re.compile(
    r"""^[ \t]*(?:export[ \t]+)?(?P<name>[A-Za-z_]\w*)[ \t]*=[ \t]*
    (?:(?P<quoted>'[^']*'|"(?:\\.|[^"\\])*")[ \t]*(?:\#[^\n]*)?$|(?P<bare>[^\n]*)$)""",
    re.MULTILINE | re.VERBOSE | re.DOTALL | re.ASCII,
)
_COMMENT = re.compile(r"(?:^|(?<=\s))#.*")
_ESCAPE = re.compile(r"\\(.)", re.DOTALL)
_ESCAPED = {"n": "\n", "r": "\r", "t": "\t"}


def value_in(text: str, name: str) -> str | None:
    """Return the last value that the file gives a variable; None where it gives none.

    Between single quotes text stands for itself; between double quotes `\\n`, `\\t`, `\\"` and the like are
    escapes. Quoted text may go over several lines. Without quotes, a `#` after a space begins a comment.
    `$NAME` is not replaced. Raises ValueError when a quote is never closed, or text follows the closing one.
    """
    found = None
    for entry in _ENTRY.finditer(text.replace("\r\n", "\n")):
        if entry["name"] == name:
            found = entry
    if found is None:
        return None
    if (quoted := found["quoted"]) is not None:
        return quoted[1:-1] if quoted[0] == "'" else _ESCAPE.sub(_unescaped, quoted[1:-1])
    if found["bare"][:1] in ("'", '"'):
        raise ValueError(f"expected nothing after the closing {found['bare'][0]}, or it is never closed")
    return _COMMENT.sub("", found["bare"]).strip()


def _unescaped(escape: re.Match[str]) -> str:
    return _ESCAPED.get(escape[1], escape[1] if escape[1] in "\\\"'$`\n" else escape[0])
