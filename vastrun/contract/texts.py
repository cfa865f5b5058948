"""Texts: numbers with their noun, and secrets by their name, by a token's form, as a part of a URL. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterator
from urllib.parse import unquote, unquote_plus

SECRET = "<secret>"
_MIN_QUERY_CHARACTERS = 16
"""A shorter value of a query, under a name that says nothing, may be a common word."""
_SECRET_NAME = re.compile(
    r"KEY|TOKEN(?!IZ)|SECRET|PASSW|PASSPHRASE|CREDENTIAL|SIGNATURE|^SIG$|AUTH$|_(?:PWD|PASS|PAT)$|^VASTRUN_NOTIFY",
    re.IGNORECASE,
)
_URL = re.compile(r"""(https?)?://([^\s"'<>`\\]+)""", re.IGNORECASE)
_QUERY = re.compile(r"""(?<=[?&])([\w.~-]*)=[^\s&;#"'<>`\\]+""")
"""A part of a query, of a URL without its scheme, as a library's error may show it."""
_TOKEN = re.compile(
    r"""(?<![\w-])(?:
    hf_\w{16,} | gh[opsur]_\w{16,} | github_pat_\w{16,} | glpat-[\w-]{16,} | sk-[\w-]{16,}
    | xox[a-z]-[\w-]{10,} | A[KS]IA[0-9A-Z]{16} | AIza[\w-]{30,} | ya29\.[\w-]{16,}
    | eyJ[\w-]{10,}\.[\w-]{10,}(?:\.[\w-]*)?
    | npm_\w{16,} | pypi-[\w-]{16,} | dckr_pat_[\w-]{16,} | nvapi-[\w-]{16,} | wandb_v1_\w{16,} | r8_\w{16,}
    )|-----BEGIN[ ][A-Z ]{0,40}PRIVATE[ ]KEY-----[^-"]*
    |(?<=hooks\.slack\.com/)[^\s"'<>`\\?]+|(?<=/api/webhooks/)[^\s"'<>`\\?]+""",
    re.VERBOSE,
)
"""Tokens of Hugging Face, GitHub, GitLab, OpenAI and Anthropic, Slack, AWS, Google, npm, PyPI, Docker,
NVIDIA, W&B and Replicate; web tokens (JWT), private keys, webhooks."""
_ASSIGNED = re.compile(
    r"""(?<![\w-])
    ((?:--?[\w-]*(?:KEY|TOKEN|SECRET|PASSW(?:OR)?D)[=\ ]|\w*(?:KEY|TOKEN|SECRET|PASSW(?:OR)?D)=)["']?)
    ([^\s"'$\\][^\s"'\\]*)""",
    re.IGNORECASE | re.VERBOSE,
)
"""`NAME_KEY=value` and `--some-token value`, in a command. `$NAME` is no secret."""


def is_secret_name(name: str) -> bool:
    """Return whether the name of a variable, or of a part of a query, says that its value is secret."""
    return _SECRET_NAME.search(name) is not None


def hide_forms(text: str) -> str:
    """Return the text without tokens of a known form, and without the logins and queries of its URLs."""
    if "://" in text:
        text = _URL.sub(_public_address, text)
    if "?" in text:
        text = _QUERY.sub(lambda part: f"{part[1]}={SECRET}" if is_secret_name(part[1]) else part[0], text)
    return _TOKEN.sub(SECRET, text)


def _public_address(found: re.Match[str]) -> str:
    """Hide the login, and each value of the query and the fragment, of a URL."""
    address = found[2].rstrip(".,:;)")
    place, mark, rest = re.split(r"([?#]|$)", address, maxsplit=1)
    host, slash, path = place.partition("/")
    login, at, host = host.rpartition("@")
    shown = re.sub(r"[^&;#?]+", lambda part: _public_part(part[0]), rest)
    user = SECRET if _is_secret_login(found[1], login) else login
    return f"{found[1] or ''}://{user}{at}{host}{slash}{path}{mark}{shown}{found[2][len(address) :]}"


def _is_secret_login(scheme: str | None, login: str) -> bool:
    """Return whether a login is more than a user's name. What stands there alone for HTTP is a token."""
    return ":" in login or bool(login and scheme)


def _public_part(part: str) -> str:
    name, equals, value = part.partition("=")
    return f"{name}={value and SECRET}" if equals else SECRET


def hide_in_command(text: str) -> str:
    """Return a command as `hide_forms`, and without the values that it gives to secret names."""
    return _ASSIGNED.sub(rf"\1{SECRET}", hide_forms(text))


def secrets_in(text: str) -> Iterator[str]:
    """Yield the values in a text that are secret by their form or place."""
    yield from (found[0] for found in _TOKEN.finditer(text))
    yield from (found[2] for found in _ASSIGNED.finditer(text))
    for found in _URL.finditer(text):
        place, _, rest = re.split(r"([?#]|$)", found[2], maxsplit=1)
        login = place.partition("/")[0].rpartition("@")[0]
        password = login.partition(":")[2] or (login if _is_secret_login(found[1], login) else "")
        parts = [part.partition("=")[::2] for part in re.split("[&;#?]", rest)]
        for name, value in [("PASSWORD", password), *parts]:
            if value and (is_secret_name(name) or len(value) >= _MIN_QUERY_CHARACTERS):
                yield from (value, unquote(value), unquote_plus(value))


def how_many(number: int, noun: str) -> str:
    """Write a number with its noun: `1 run`, `1,000 runs`."""
    return f"{number:,} {noun}{'' if number == 1 else 's'}"
