"""Names of images are read as Docker reads them."""

import pytest

from vastrun.launcher.core.image_ref import HUB, ImageReference


@pytest.mark.parametrize(
    ("text", "registry", "repository", "tag"),
    [
        ("ubuntu", HUB, "ubuntu", ""),
        ("pytorch/pytorch:2.13.0", HUB, "pytorch/pytorch", "2.13.0"),
        ("localhost/a:b", "localhost", "a", "b"),
        ("127.0.0.1:5000/a/b/c:d", "127.0.0.1:5000", "a/b/c", "d"),
        ("ghcr.io/lab/image_x", "ghcr.io", "lab/image_x", ""),
    ],
)
def test_a_name_is_split_and_joined_again(text: str, registry: str, repository: str, tag: str) -> None:
    for digest in ("", ("sha256:" + "ab" * 32)):
        found = ImageReference.of(f"{text}@{digest}" if digest else text)
        assert (found.registry, found.repository, found.tag, found.digest) == (
            registry,
            repository,
            tag,
            digest,
        )
        assert str(found) == (f"{text}@{digest}" if digest else text)
        assert found.is_pinned == bool(digest)
        assert found.tagged == text


@pytest.mark.parametrize(
    "text", ["", "A/b", "a b", "-v /:/host", "a:", "a@sha256:12", "http://x/y", "a//b", "/a"]
)
def test_what_is_no_name_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="expected an image like"):
        ImageReference.of(text)
