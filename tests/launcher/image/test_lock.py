"""The lock says which image runs on a machine, and changes only when its user wants it to."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from tests.launcher.image.fake_registry import FakeRegistry
from vastrun.launcher.core.errors import ImageError, UsageError
from vastrun.launcher.image.lock import (
    Capability,
    ImageRequirements,
    Lock,
    lacks_code,
    read_lock,
    shipped_lock,
    shipped_path,
    write_lock,
)
from vastrun.launcher.image.registry import Registry
from vastrun.launcher.image.relock import VARIANTS, lock_images, pins_of, relock

SHIPPED = shipped_lock()
REGISTRY = Registry(lambda _: None)
OURS = {
    "io.vastrun.variant": "cu130",
    "io.vastrun.torch": "2.13.0",
    "io.vastrun.cuda": "13.0",
    "io.vastrun.nccl": "2.29.7",
}
CPU = OURS | {"io.vastrun.variant": "cpu", "io.vastrun.cuda": "", "io.vastrun.nccl": ""}
DIGEST = f"@sha256:{64 * 'a'}"


@pytest.fixture
def fake_registry() -> Iterator[FakeRegistry]:
    with FakeRegistry() as fake_registry:
        yield fake_registry


@pytest.mark.parametrize(
    ("cuda_max", "compute_cap", "variant"),
    [
        (13.0, 890, "cu130"),
        (13.1, 1200, "cu130"),
        (12.9, 900, "cu126"),
        (12.6, 700, "cu126"),
        (12.9, 1200, None),
        (12.4, 900, None),
    ],
)
def test_the_newest_image_that_the_driver_and_the_gpus_run_is_taken(
    cuda_max: float, compute_cap: int, variant: str | None
) -> None:
    found = SHIPPED.fitting(Capability(cuda_max=cuda_max, compute_cap=compute_cap), gpus=1)
    assert found == (SHIPPED.images[variant] if variant else None)


def test_no_image_is_for_another_architecture() -> None:
    arm = Capability(cuda_max=13.0, compute_cap=900, architecture="arm64")
    assert SHIPPED.fitting(arm, gpus=1) is None


def test_a_job_takes_the_image_for_the_cpu_only_without_gpus(fake_registry: FakeRegistry) -> None:
    fake_registry.put("lab/vastrun:cpu-1", labels=CPU)
    lock = lock_images(SHIPPED, [f"{fake_registry.host}/lab/vastrun:cpu-1"], REGISTRY)
    machine = Capability(cuda_max=13.0, compute_cap=890)
    assert lock.fitting(machine, gpus=0) == lock.images["cpu"]
    assert lock.fitting(machine, gpus=1) == lock.images["cu130"]
    assert lock.fitting(Capability(cuda_max=12.0, compute_cap=890), gpus=1) is None


def test_what_the_lock_needs_is_told_in_words() -> None:
    assert SHIPPED.needs == "CUDA 12.6, or 13.0 on Blackwell"


def test_the_shipped_lock_has_the_bases_that_the_dockerfile_builds_on() -> None:
    for variant, image in SHIPPED.images.items():
        pins = pins_of(variant)
        assert pins.base == image.reference
        assert (pins.torch, pins.cuda, pins.nccl or None) == (image.torch, image.cuda, image.nccl)


@pytest.mark.parametrize("variant", VARIANTS)
def test_the_dockerfile_pins_every_variant(variant: str) -> None:
    pins = pins_of(variant)
    assert pins.target == ("cpu" if variant == "cpu" else "cuda")
    # Which NCCL runs decides the order of sums: no GPU image leaves it to its base.
    assert bool(pins.nccl) == bool(pins.cuda)


def test_an_image_of_ours_is_locked_by_its_name_alone(fake_registry: FakeRegistry, tmp_path: Path) -> None:
    digest = fake_registry.put("lab/vastrun:cu130-1", labels=OURS)
    name = f"{fake_registry.host}/lab/vastrun:cu130-1"
    write_lock(tmp_path / "image.lock", lock_images(SHIPPED, [name], REGISTRY))
    image = read_lock(tmp_path / "image.lock").images["cu130"]
    assert image.reference == f"{name}@{digest}"
    assert (image.size_mb, image.whole) == (150, True)
    assert (image.torch, image.cuda, image.nccl) == ("2.13.0", "13.0", "2.29.7")
    assert (image.driver_cuda, image.blackwell) == (13.0, True)


def test_a_foreign_image_is_locked_as_a_variant_with_known_versions(fake_registry: FakeRegistry) -> None:
    digest = fake_registry.put("torch/torch:new")
    image = lock_images(SHIPPED, [f"cu126={fake_registry.host}/torch/torch:new"], REGISTRY).images["cu126"]
    assert (image.digest, image.whole, image.cuda) == (digest, False, "12.6")
    with pytest.raises(UsageError, match="which variant"):
        lock_images(SHIPPED, [f"{fake_registry.host}/torch/torch:new"], REGISTRY)
    with pytest.raises(UsageError, match="no vastrun labels"):
        lock_images(SHIPPED, [f"cpu={fake_registry.host}/torch/torch:new"], REGISTRY)


def test_asking_again_adds_sizes_and_refuses_a_tag_of_another_image(fake_registry: FakeRegistry) -> None:
    name = f"{fake_registry.host}/lab/vastrun:cu130-1"
    locked_digest = fake_registry.put("lab/vastrun:cu130-1", labels=OURS)
    (image,) = lock_images(Lock({}), [name], REGISTRY).images.values()
    lock = Lock({"cu130": replace(image, size_mb=None)})
    assert relock(lock, REGISTRY).images["cu130"].size_mb == 150

    found_digest = fake_registry.put("lab/vastrun:cu130-1", labels=OURS | {"io.vastrun.torch": "2.12.0"})
    with pytest.raises(ImageError) as caught:
        relock(lock, REGISTRY)
    assert f"locked: {locked_digest}\nfound:  {found_digest}" in str(caught.value)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("images: {}", "it has no version"),
        ("version: 2\nimages: {}", "version 2, expected 1"),
        ("version: 1\nimages: {cpu: {name: x}}", "missing"),
        ("version: 1\nimages: [", "line 2: expected the node content"),
        ("3", "int"),
    ],
)
def test_a_file_that_is_no_lock_is_told_in_a_line(tmp_path: Path, text: str, why: str) -> None:
    (tmp_path / "image.lock").write_text(text)
    with pytest.raises(ImageError, match=f"is not a lock of images: .*{why}") as caught:
        read_lock(tmp_path / "image.lock")
    assert "\n" not in str(caught.value)
    assert caught.value.hint == f"cp {shipped_path()} {tmp_path}/image.lock"


def test_a_lock_without_a_digest_is_no_lock(tmp_path: Path) -> None:
    path = tmp_path / "image.lock"
    write_lock(path, Lock({"cu130": replace(SHIPPED.images["cu130"], digest="sha256:1234")}))
    with pytest.raises(ImageError, match="no digest"):
        read_lock(path)


def test_a_lock_that_cannot_be_read_or_written_is_told(tmp_path: Path) -> None:
    with pytest.raises(ImageError, match="cannot read"):
        read_lock(tmp_path / "nowhere")
    (tmp_path / "file").write_text("")
    with pytest.raises(ImageError, match="cannot write") as caught:
        write_lock(tmp_path / "file" / "image.lock", SHIPPED)
    assert "VASTRUN_IMAGE_LOCK" in caught.value.hint


@pytest.mark.parametrize(
    ("image", "cuda", "architecture"),
    [
        ("pytorch/pytorch:2.4.0-cuda12.4-cudnn9-runtime", 12.4, ""),
        ("pytorch/pytorch:2.13.0-cuda13.0-cudnn9-runtime" + DIGEST, 13.0, ""),
        ("vastai/pytorch:cuda-12.8.1-auto", 12.8, ""),
        ("nvidia/cuda:12.4.1-cudnn-devel-ubuntu22.04", 12.4, ""),
        ("nvcr.io/nvidia/cuda:11.8.0-base-ubuntu22.04", 11.8, ""),
        ("ghcr.io/me/mine:cu128-py312", 12.8, ""),
        ("ghcr.io/me/mine:CU118", 11.8, ""),
        ("me/mine:2.1_cuda12.6_arm64", 12.6, "arm64"),
        ("arm64v8/python:3.12", 0.0, "arm64"),
        ("me/mine:1.0-x86_64", 0.0, "amd64"),
        # Too little is said, or nothing.
        ("me/mine:cuda12", 0.0, ""),
        ("me/mine:cuda12.10", 0.0, ""),
        ("nvcr.io/nvidia/pytorch:24.10-py3", 0.0, ""),
        ("me/mine:12.4.1", 0.0, ""),
        ("me/mine:vacu124", 0.0, ""),
        ("me/mine:cu1284", 0.0, ""),
        ("me/mine:cu990", 0.0, ""),
        ("me/mine" + DIGEST, 0.0, ""),
        ("-v /:/host", 0.0, ""),
    ],
)
def test_name_says_the_cuda_version_and_the_architecture(image: str, cuda: float, architecture: str) -> None:
    assert ImageRequirements.of(image) == ImageRequirements(cuda=cuda, architecture=architecture)


def test_an_image_of_the_lock_is_known_by_its_digest() -> None:
    lock = shipped_lock()
    locked = lock.images["cu126"]
    found = ImageRequirements.of(f"mirror.example/torch@{locked.digest}", lock)
    assert found == ImageRequirements(cuda=12.6, architecture="amd64")


@pytest.mark.parametrize(
    ("cuda", "compute_cap", "lacks"),
    [
        *((12.4, 1200, True), (12.8, 1200, False), (12.6, 1000, True), (12.8, 1030, False)),
        *((11.7, 900, True), (11.8, 900, False), (11.0, 890, False), (10.2, 800, True)),
        *((13.0, 700, True), (12.9, 700, False), (13.0, 750, False), (13.0, 610, True), (12.4, 610, False)),
        *((0.0, 1200, False), (12.4, 0, False)),
    ],
)
def test_a_cuda_version_has_code_for_some_gpus(cuda: float, compute_cap: int, lacks: bool) -> None:
    assert lacks_code(cuda, compute_cap) is lacks


def test_what_is_known_of_an_image_keeps_it_from_machines() -> None:
    image = ImageRequirements(cuda=12.4, architecture="amd64")
    assert str(image) == "its name says CUDA 12.4 and amd64"
    assert str(ImageRequirements()) == "its name does not say its CUDA version"
    cases = {
        Capability(cuda_max=12.2, compute_cap=890): False,
        Capability(cuda_max=13.0, compute_cap=1200): False,
        Capability(cuda_max=13.0, compute_cap=900, architecture="arm64"): False,
        Capability(cuda_max=12.4, compute_cap=890): True,
    }
    assert {machine: image.fits(machine, gpus=1) for machine in cases} == cases
