"""Nothing secret is in a transcript or a bug report, however a program wrote it."""

from __future__ import annotations

import base64
import html
import json
import shlex
import textwrap
import time
from collections.abc import Callable, Mapping
from urllib.parse import quote, quote_plus

import pytest

from vastrun.launcher.core.secrets import SECRET, Mask
from vastrun.launcher.transcript.recorder import to_jsonable

PLAIN = "kept-from-everybody"
ODD = 'pä$s "w/o" <rd>\\&%+=\t;#'
LINES = ("MIIEvQIBADANBgkqhkiG9w0BAQEFAASC", "BKcwggSjAgEAAoIBAQC7VJTUt9Us8cKj")
KEY = "\n".join(("-----BEGIN KEY-----", *LINES, "-----END KEY-----"))
AROUND = "user:{}@host of the thing"


def _embedded(before: int) -> Callable[[str], str]:
    return lambda secret: base64.b64encode(b"u" * before + secret.encode() + b":and more").decode()


ENCODINGS: Mapping[str, Callable[[str], str]] = {
    "as it is": str,
    "JSON": json.dumps,
    "JSON in JSON": lambda secret: json.dumps(json.dumps({"key": secret})),
    "JSON in UTF-8": lambda secret: json.dumps(secret, ensure_ascii=False),
    "JSON with escaped slashes": lambda secret: json.dumps(secret).replace("/", "\\/"),
    "repr": repr,
    "shell": shlex.quote,
    "HTML": html.escape,
    "HTML without quotes": lambda secret: html.escape(secret, quote=False),
    "URL": quote,
    "URL, every character": lambda secret: quote(secret, safe=""),
    "URL, lower case": lambda secret: quote(secret, safe="").lower() if secret.islower() else quote(secret),
    "form": quote_plus,
    "URL in URL": lambda secret: quote(quote(secret, safe=""), safe=""),
    "percent of all bytes": lambda secret: "".join(f"%{byte:02X}" for byte in secret.encode()),
    "base64": lambda secret: base64.b64encode(secret.encode()).decode(),
    "base64 for URLs": lambda secret: base64.urlsafe_b64encode(secret.encode()).decode(),
    "base64 of a longer text": _embedded(0),
    "base64 of a longer text, shifted": _embedded(1),
    "base64 of a longer text, shifted twice": _embedded(2),
    "base64 in lines": lambda secret: base64.encodebytes(secret.encode() * 5).decode(),
    "base64 of UTF-16": lambda secret: base64.b64encode(secret.encode("utf-16-le")).decode(),
    "hex": lambda secret: secret.encode().hex(),
    "hex in capitals": lambda secret: secret.encode().hex().upper(),
    "hex with colons": lambda secret: secret.encode().hex(":"),
    "hex with spaces": lambda secret: secret.encode().hex(" ", 2),
    "hex in lines": lambda secret: "\n".join(textwrap.wrap(secret.encode().hex(), 10)),
    "bytes in Python": lambda secret: "".join(f"\\x{byte:02x}" for byte in secret.encode()),
    "bytes in JSON": lambda secret: json.dumps("".join(f"\\x{byte:02x}" for byte in secret.encode())),
    "wrapped": lambda secret: f"{secret[:5]}\n{secret[5:]}",
    "wrapped with an indent": lambda secret: f"{secret[:5]}\\\n    {secret[5:11]}\r\n    {secret[11:]}",
    "wrapped in quotes": lambda secret: f'"{secret[:5]}"\n    "{secret[5:]}"',
    "wrapped in JSON": lambda secret: json.dumps(f"{secret[:5]}\n{secret[5:]}"),
}


def _traces(text: str, secret: str) -> list[str]:
    """Half of the secret, in one of the encodings, in what a mask has left."""
    half = secret[: len(secret) // 2], secret[len(secret) // 2 :]
    bare = "".join(text.split())
    ways = (
        str,
        lambda part: base64.b64encode(part.encode()).decode()[3:-4],
        lambda part: part.encode().hex(),
    )
    return [way(part) for part in half for way in ways if "".join(way(part).split()) in bare]


@pytest.mark.parametrize("secret", [PLAIN, ODD], ids=["plain", "odd"])
@pytest.mark.parametrize("name", list(ENCODINGS))
def test_a_secret_is_hidden_in_every_encoding(name: str, secret: str) -> None:
    text = AROUND.format(ENCODINGS[name](secret))
    hidden = Mask([secret]).hide(text)
    assert SECRET in hidden
    assert not _traces(hidden, secret), hidden
    assert hidden.startswith("user:")
    assert hidden.endswith("@host of the thing")


@pytest.mark.parametrize("name", [name for name in ENCODINGS if "wrapped" not in name])
def test_so_is_one_of_several_lines(name: str) -> None:
    hidden = Mask([KEY]).hide(AROUND.format(ENCODINGS[name](KEY)))
    assert not any(_traces(hidden, line) for line in LINES), hidden


def test_two_secrets_of_which_one_is_a_part_of_the_other_are_both_hidden() -> None:
    mask = Mask(["abcdef", "abcdefghij"])
    assert mask.hide("abcdefghij abcdef abc\ndefghij") == f"{SECRET} {SECRET} {SECRET}"


def test_names_within_an_object_are_masked_like_its_values() -> None:
    assert to_jsonable({PLAIN: [PLAIN]}, Mask([PLAIN])) == {SECRET: [SECRET]}


def test_a_text_without_secrets_stays_as_it_is() -> None:
    text = "\n".join(f"step {n}: loss 0.{n}  \\n 'x'\n   and more" for n in range(1000))
    assert Mask([PLAIN, ODD, KEY]).hide(text) == text


def test_a_log_of_a_megabyte_is_masked_in_less_than_two_seconds() -> None:
    text = "".join(f"step {n}: loss 0.{n} 0x{n:08x} kept-from\n" for n in range(25_000))
    mask = Mask([f"{PLAIN}-{n}" for n in range(10)] + [KEY])
    began = time.process_time()
    mask.hide(text)
    assert time.process_time() - began < 2.0
