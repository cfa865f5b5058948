"""A registry is asked what a tag names, as Docker asks it, and every refusal is one clear error."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from launcher.core.errors import ImageError
from launcher.core.image_ref import Reference
from launcher.image.registry import Registry
from tests.launcher.image.shop import PASSWORD, USER, Shop

ANYBODY = Registry(lambda _: None)
MEMBER = Registry(lambda _: (USER, PASSWORD))


@pytest.fixture
def shop() -> Iterator[Shop]:
    with Shop() as shop:
        yield shop


def reference(shop: Shop, name: str = "lab/vastrun:cpu-1") -> Reference:
    return Reference.of(f"{shop.host}/{name}")


@pytest.mark.parametrize("index", [False, True])
def test_a_tag_is_its_digest_its_size_and_its_labels(shop: Shop, index: bool) -> None:
    digest = shop.put("lab/vastrun:cpu-1", labels={"io.vastrun.variant": "cpu"}, index=index)
    found = ANYBODY.look_up(reference(shop))
    assert found.reference == Reference.of(f"{shop.host}/lab/vastrun:cpu-1@{digest}")
    assert (found.size_mb, found.architecture) == (150, "amd64")
    assert found.labels == {"io.vastrun.variant": "cpu"}


@pytest.mark.parametrize("asks", ["Bearer", "Basic"])
def test_a_registry_that_asks_for_a_login_gets_the_one_of_docker(asks: str) -> None:
    with Shop(asks) as shop:
        shop.put("lab/vastrun:cpu-1")
        assert MEMBER.look_up(reference(shop)).size_mb == 150
        with pytest.raises(ImageError, match=r"refuses .*HTTP 401") as caught:
            ANYBODY.look_up(reference(shop))
    assert caught.value.hint == f"docker login {shop.host}"


def test_the_login_is_not_sent_on_to_where_the_registry_points() -> None:
    with Shop("Basic") as shop, Shop() as elsewhere:
        shop.put("lab/vastrun:cpu-1")
        elsewhere.put("lab/vastrun:cpu-1")
        shop.moved_to = elsewhere.host
        MEMBER.look_up(reference(shop))
    assert [given for _, given in elsewhere.asked] == [""]


@pytest.mark.parametrize("realm", ["file://{file}", "ftp://host/x", "http://203.0.113.9/token", "", "//x"])
def test_a_registry_that_sends_for_a_token_anywhere_else_gets_nothing(realm: str, tmp_path: Path) -> None:
    file = tmp_path / "token.json"
    file.write_text('{"token": "s3cret of the user"}')
    with Shop("Bearer") as shop:
        shop.put("lab/vastrun:cpu-1")
        shop.realm = realm.format(file=file) or "?"
        with pytest.raises(ImageError, match="sends us for a token to"):
            MEMBER.look_up(reference(shop))
        assert {given for _, given in shop.asked} == {""}


@pytest.mark.parametrize(
    ("status", "said"), [(403, "refuses .*HTTP 403"), (404, "has no .*HTTP 404"), (500, "answers HTTP 500")]
)
def test_a_refusal_is_told_with_its_status(shop: Shop, status: int, said: str) -> None:
    shop.refuses = status
    with pytest.raises(ImageError, match=said):
        ANYBODY.look_up(reference(shop))


def test_an_unknown_tag_is_told(shop: Shop) -> None:
    shop.put("lab/vastrun:cpu-1")
    with pytest.raises(ImageError, match=r"has no .*lab/vastrun:cpu-2"):
        ANYBODY.look_up(reference(shop, "lab/vastrun:cpu-2"))


def test_a_registry_that_is_not_there_is_told() -> None:
    with Shop() as shop:
        gone = reference(shop)
    with pytest.raises(ImageError, match="does not answer"):
        ANYBODY.look_up(gone)


@pytest.mark.parametrize("index", [False, True])
def test_an_image_for_other_machines_is_refused(shop: Shop, index: bool) -> None:
    shop.put("lab/vastrun:arm", architecture="arm64", index=index)
    with pytest.raises(ImageError, match=re.escape("is for arm64; the machines that are rented are amd64")):
        ANYBODY.look_up(reference(shop, "lab/vastrun:arm"))


def test_bytes_that_are_not_what_their_digest_says_are_refused(shop: Shop) -> None:
    shop.put("lab/vastrun:cpu-1")
    blob = next(path for path in shop.things if "/blobs/" in path)
    shop.things[blob] = ("application/octet-stream", b'{"architecture": "amd64"}')
    with pytest.raises(ImageError, match="damaged"):
        ANYBODY.look_up(reference(shop))
