"""A registry is asked what a tag names, as Docker asks it, and every refusal is one clear error."""

import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.launcher.image.fake_registry import PASSWORD, USER, FakeRegistry, digest
from vastrun.launcher.core.errors import ImageError
from vastrun.launcher.core.image_ref import ImageReference
from vastrun.launcher.image.registry import Registry

ANYBODY = Registry(lambda _: None)
MEMBER = Registry(lambda _: (USER, PASSWORD))


@pytest.fixture
def fake_registry() -> Iterator[FakeRegistry]:
    with FakeRegistry() as fake_registry:
        yield fake_registry


def reference(fake_registry: FakeRegistry, name: str = "lab/vastrun:cpu-1") -> ImageReference:
    return ImageReference.of(f"{fake_registry.host}/{name}")


@pytest.mark.parametrize("index", [False, True])
def test_a_tag_is_its_digest_its_size_and_its_labels(fake_registry: FakeRegistry, index: bool) -> None:
    digest = fake_registry.put("lab/vastrun:cpu-1", labels={"io.vastrun.variant": "cpu"}, index=index)
    found = ANYBODY.look_up(reference(fake_registry))
    assert found.reference == ImageReference.of(f"{fake_registry.host}/lab/vastrun:cpu-1@{digest}")
    assert found.size_mb == 150
    assert found.labels == {"io.vastrun.variant": "cpu"}


@pytest.mark.parametrize("asks", ["Bearer", "Basic"])
def test_a_registry_that_asks_for_a_login_gets_the_one_of_docker(asks: str) -> None:
    with FakeRegistry(asks) as fake_registry:
        fake_registry.put("lab/vastrun:cpu-1")
        assert MEMBER.look_up(reference(fake_registry)).size_mb == 150
        with pytest.raises(ImageError, match=r"refuses .*HTTP 401") as caught:
            ANYBODY.look_up(reference(fake_registry))
    assert caught.value.hint == f"docker login {fake_registry.host}"


def test_the_login_is_not_sent_on_to_where_the_registry_points() -> None:
    with FakeRegistry("Basic") as fake_registry, FakeRegistry() as elsewhere:
        fake_registry.put("lab/vastrun:cpu-1")
        elsewhere.put("lab/vastrun:cpu-1")
        fake_registry.moved_to = elsewhere.host
        MEMBER.look_up(reference(fake_registry))
    assert [given for _, given in elsewhere.asked] == [""]


@pytest.mark.parametrize("realm", ["file://{file}", "ftp://host/x", "http://203.0.113.9/token", "", "//x"])
def test_a_registry_that_sends_for_a_token_anywhere_else_gets_nothing(realm: str, tmp_path: Path) -> None:
    file = tmp_path / "token.json"
    file.write_text('{"token": "s3cret of the user"}')
    with FakeRegistry("Bearer") as fake_registry:
        fake_registry.put("lab/vastrun:cpu-1")
        fake_registry.realm = realm.format(file=file) or "?"
        with pytest.raises(ImageError, match="asks for a token from"):
            MEMBER.look_up(reference(fake_registry))
        assert {given for _, given in fake_registry.asked} == {""}


@pytest.mark.parametrize(
    ("status", "said"), [(403, "refuses .*HTTP 403"), (404, "has no .*HTTP 404"), (500, "answers HTTP 500")]
)
def test_a_refusal_is_told_with_its_status(fake_registry: FakeRegistry, status: int, said: str) -> None:
    fake_registry.refuses = status
    with pytest.raises(ImageError, match=said):
        ANYBODY.look_up(reference(fake_registry))


def test_a_registry_that_is_not_there_is_told() -> None:
    with FakeRegistry() as fake_registry:
        gone = reference(fake_registry)
    with pytest.raises(ImageError, match="does not answer"):
        ANYBODY.look_up(gone)


def test_answers_that_are_larger_together_than_the_budget_are_refused(fake_registry: FakeRegistry) -> None:
    fake_registry.put("lab/vastrun:cpu-1")
    path = "/v2/lab/vastrun/manifests/cpu-1"
    kind, content = fake_registry.things[path]
    fake_registry.things[path] = (kind, content + b" " * (4 << 20))
    with pytest.raises(ImageError, match=r"the registry of .* sent more than 4194304 bytes"):
        ANYBODY.look_up(reference(fake_registry))


def test_answers_that_take_longer_together_than_the_budget_are_refused(fake_registry: FakeRegistry) -> None:
    fake_registry.put("lab/vastrun:cpu-1")
    clock = iter(range(0, 10_000, 45))
    with pytest.raises(ImageError, match=r"the registry of .* did not answer within 120 s"):
        Registry(lambda _: None, now=lambda: float(next(clock))).look_up(reference(fake_registry))


DEEP = "[" * 200_000
ANSWERS = {
    "no JSON": "<html>",
    "no text": b"\xff\xfe",
    "deep": DEEP,
    "long number": "1" * 5000,
    "null": "null",
    "a list": "[]",
    "an empty object": "{}",
    "null fields": '{"config": null, "layers": null, "manifests": null}',
    "other types": '{"config": [], "layers": {}}',
    "a text for the configuration": '{"config": "x", "layers": []}',
    "a digest that is none": '{"config": {"digest": "../../x"}, "layers": []}',
    "a digest of another type": '{"config": {"digest": 7}, "layers": []}',
    "manifests of other types": '{"manifests": [7, null]}',
    "manifests without a digest": '{"manifests": [{"platform": {"os": "linux", "architecture": "amd64"}}]}',
    "a platform of another type": '{"manifests": [{"platform": "linux", "digest": "x"}]}',
    "too many manifests": '{"manifests": [' + "{}," * 5000 + "{}]}",
}
LAYERS = {
    "no layers": {},
    "layers of other types": {"layers": [7]},
    "a layer without a size": {"layers": [{}]},
    "a size that is no number": {"layers": [{"size": float("nan")}]},
    "a size below 0": {"layers": [{"size": -1}]},
    "a size without an end": {"layers": [{"size": 10**30}]},
}
CONFIGS = {name: text for name, text in ANSWERS.items() if text[:2] not in ('{"', b'{"') and text != "{}"} | {
    "an architecture of another type": '{"architecture": ["amd64"]}',
    "no architecture": "{}",
    "a configuration of another type": '{"architecture": "amd64", "config": 7}',
    "labels of another type": '{"architecture": "amd64", "config": {"Labels": "x"}}',
}


def _bytes(answer: str | bytes) -> bytes:
    return answer if isinstance(answer, bytes) else answer.encode()


@pytest.mark.parametrize("name", list(ANSWERS))
def test_a_malformed_manifest_is_one_clear_error(fake_registry: FakeRegistry, name: str) -> None:
    fake_registry.things["/v2/lab/vastrun/manifests/cpu-1"] = ("application/json", _bytes(ANSWERS[name]))
    with pytest.raises(ImageError):
        ANYBODY.look_up(reference(fake_registry))


@pytest.mark.parametrize("name", list(LAYERS))
def test_so_are_malformed_layers(fake_registry: FakeRegistry, name: str) -> None:
    fake_registry.put("lab/vastrun:cpu-1")
    path = "/v2/lab/vastrun/manifests/cpu-1"
    kind, content = fake_registry.things[path]
    manifest = {key: value for key, value in json.loads(content).items() if key != "layers"}
    fake_registry.things[path] = (kind, json.dumps(manifest | LAYERS[name]).encode())
    with pytest.raises(ImageError, match="malformed answer"):
        ANYBODY.look_up(reference(fake_registry))


@pytest.mark.parametrize("name", list(CONFIGS))
def test_so_is_a_malformed_configuration(fake_registry: FakeRegistry, name: str) -> None:
    config = _bytes(CONFIGS[name])
    manifest = {"config": {"digest": digest(config)}, "layers": []}
    fake_registry.things |= {
        "/v2/lab/vastrun/manifests/cpu-1": ("application/json", json.dumps(manifest).encode()),
        f"/v2/lab/vastrun/blobs/{digest(config)}": ("application/octet-stream", config),
    }
    with pytest.raises(ImageError):
        ANYBODY.look_up(reference(fake_registry))


@pytest.mark.parametrize(
    "token", ["<html>", "[]", "{}", DEEP, '{"token": 7}', '{"token": "a\\nb: c"}', '{"token": "\u00e4"}']
)
def test_a_malformed_token_is_one_clear_error(token: str) -> None:
    with FakeRegistry("Bearer") as fake_registry:
        fake_registry.put("lab/vastrun:cpu-1")
        fake_registry.token = token.encode()
        with pytest.raises(ImageError):
            MEMBER.look_up(reference(fake_registry))


@pytest.mark.parametrize("realm", ["https://[", "https://\u00e4/token", "https://127.0.0.1:99999/token"])
def test_a_place_for_a_token_that_is_no_address_is_one_clear_error(realm: str) -> None:
    with FakeRegistry("Bearer") as fake_registry:
        fake_registry.put("lab/vastrun:cpu-1")
        fake_registry.realm = realm
        with pytest.raises(ImageError):
            MEMBER.look_up(reference(fake_registry))


def test_an_image_with_labels_that_are_no_texts_is_refused(fake_registry: FakeRegistry) -> None:
    labels = {"io.vastrun.variant": "cpu", "odd": 7}
    fake_registry.put("lab/vastrun:cpu-1", labels=labels)  # type: ignore[arg-type]
    with pytest.raises(ImageError, match=r"malformed answer: config\.Labels\.odd: expected a string, not 7"):
        ANYBODY.look_up(reference(fake_registry))


@pytest.mark.parametrize("index", [False, True])
def test_an_image_for_other_machines_is_refused(fake_registry: FakeRegistry, index: bool) -> None:
    fake_registry.put("lab/vastrun:arm", architecture="arm64", index=index)
    with pytest.raises(ImageError, match=re.escape("is for arm64; the machines that are rented are amd64")):
        ANYBODY.look_up(reference(fake_registry, "lab/vastrun:arm"))


def test_bytes_that_are_not_what_their_digest_says_are_refused(fake_registry: FakeRegistry) -> None:
    fake_registry.put("lab/vastrun:cpu-1")
    blob = next(path for path in fake_registry.things if "/blobs/" in path)
    fake_registry.things[blob] = ("application/octet-stream", b'{"architecture": "amd64"}')
    with pytest.raises(ImageError, match="damaged"):
        ANYBODY.look_up(reference(fake_registry))
