"""Nothing secret is in a transcript or a bug report, however a program wrote it."""

import base64
import html
import json
import shlex
import textwrap
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from urllib.parse import quote, quote_plus

import pytest

from tests.jobs import command_job
from vastrun.contract.texts import SECRET, hide_forms, hide_in_command, secrets_in
from vastrun.launcher.core.job import DataFile, NotifyUrl
from vastrun.launcher.core.secrets import Mask, public_job, public_values
from vastrun.launcher.transcript import to_jsonable

S = SECRET
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


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("https://me:pw@h.example/f?sig=abc&part=12#t=1", f"https://{S}@h.example/f?sig={S}&part={S}#t={S}"),
        ("https://tok@h.example/", f"https://{S}@h.example/"),
        ("ssh://me@h.example and postgresql://me:pw@db/x", f"ssh://me@h.example and postgresql://{S}@db/x"),
        ("s3://me:p@ss@bucket/x", f"s3://{S}@bucket/x"),
        ("https://h.example/f?only-a-token, then", f"https://h.example/f?{S}, then"),
        ("not found: bucket/x?access_token=abc&p=1", f"not found: bucket/x?access_token={S}&p=1"),
        ("hf_abcdefghijklmnopqrst is no good", f"{S} is no good"),
        ("AKIAABCDEFGHIJKLMNOP", S),
        ("eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0.sflKxwRJ", S),
        ("see https://hooks.slack.com/services/T0/B0/xyz", f"see https://hooks.slack.com/{S}"),
        ("https://docs.example/page and hf://datasets/o/n@main/f", None),
        ("tokens: 4096, key_padding_mask, docker://image@sha256:abc/x", None),
    ],
)
def test_what_is_secret_by_its_form_or_its_place_in_a_url_is_hidden(text: str, shown: str | None) -> None:
    assert hide_forms(text) == (text if shown is None else shown)


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("python x.py --api-key abc --lr 1", f"python x.py --api-key {S} --lr 1"),
        ("HF_TOKEN=abc python x.py", f"HF_TOKEN={S} python x.py"),
        ("export PASSWORD='a b'; run", f"export PASSWORD='{S} b'; run"),
        ('python x.py --token "$HF_TOKEN" --tokenizer gpt2 KEY=$K', None),
    ],
)
def test_what_a_command_gives_to_a_secret_name_is_hidden(text: str, shown: str | None) -> None:
    assert hide_in_command(text) == (text if shown is None else shown)


def test_a_job_is_shown_without_its_secrets_and_stays_as_it_is() -> None:
    job = replace(
        command_job(command=("python", "x.py", "--api-key", "abcdefgh")),
        env={"MY_PASSWORD": "abc", "SAME": "is abcdefgh here", "LR": "1"},
        data=(DataFile(url="https://h.example/f.bin?X-Amz-Signature=0123456789ab", size=1),),
        notify=(NotifyUrl(url="https://ntfy.sh/my-topic"), NotifyUrl(url_env="HOOK")),
    )
    shown = public_job(job)
    assert shown.env == {"MY_PASSWORD": S, "SAME": f"is {S} here", "LR": "1"}
    assert shown.data[0].url == f"https://h.example/f.bin?X-Amz-Signature={S}"
    assert shown.data[0].target == "f.bin"
    assert shown.notify == (NotifyUrl(url=S), NotifyUrl(url_env="HOOK"))
    assert "abcdefgh" not in str(shown.command) and "abcdefgh" in str(job.command)
    assert public_job(replace(job, env={}, notify=(), data=(), command=("a",))).command == ("a",)


def test_values_of_a_batch_are_shown_without_secrets_and_numbers_stay_numbers() -> None:
    values = {
        "env.MY_TOKEN": "abc",
        "train.optim.lr": 0.1,
        "tokens": 4096,
        "tokenizer": "gpt2",
        "data": [{"url": "https://h/f?key=1"}],
    }
    assert public_values(values) == {
        "env.MY_TOKEN": S,
        "train.optim.lr": 0.1,
        "tokens": 4096,
        "tokenizer": "gpt2",
        "data": ({"url": f"https://h/f?key={S}"},),
    }


@pytest.mark.parametrize(
    "part", ["a", "-", "?", "://", "://a@", "?key", "?x=1&", "key=", "--key", "eyJ", "sk-", "-----BEGIN A "]
)
def test_a_long_text_takes_no_longer_for_each_character(part: str) -> None:
    def seconds(count: int) -> float:
        text = part * count
        began = time.process_time()
        hide_in_command(text)
        list(secrets_in(text))
        return time.process_time() - began

    assert seconds(40_000) < 12 * seconds(10_000) + 0.05
