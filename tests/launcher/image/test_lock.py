"""The lock says which image runs on a machine, and changes only when its user wants it to."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from tests.launcher.image.fake_registry import FakeRegistry
from vastrun.launcher.core.errors import ImageError, UsageError
from vastrun.launcher.image.lock import Capability, Lock, read_lock, shipped_lock, shipped_path, write_lock
from vastrun.launcher.image.pins import VARIANTS, pins_of
from vastrun.launcher.image.registry import Registry
from vastrun.launcher.image.relock import lock_images, relock

SHIPPED = shipped_lock()
REGISTRY = Registry(lambda _: None)
OURS = {
    "io.vastrun.variant": "cu130",
    "io.vastrun.torch": "2.13.0",
    "io.vastrun.cuda": "13.0",
    "io.vastrun.nccl": "2.29.7",
}
CPU = {
    "io.vastrun.variant": "cpu",
    "io.vastrun.torch": "2.13.0",
    "io.vastrun.cuda": "",
    "io.vastrun.nccl": "",
}


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
    assert SHIPPED.images["cu130"].misfit(arm) == "it is for amd64, the machine is arm64"


def test_a_job_without_gpus_takes_the_image_for_the_cpu_and_one_with_gpus_never_does(
    fake_registry: FakeRegistry,
) -> None:
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


def test_an_image_of_ours_is_locked_by_its_name_alone(fake_registry: FakeRegistry, tmp_path: Path) -> None:
    digest = fake_registry.put("lab/vastrun:cu130-1", labels=OURS)
    name = f"{fake_registry.host}/lab/vastrun:cu130-1"
    write_lock(tmp_path / "image.lock", lock_images(SHIPPED, [name], REGISTRY))
    image = read_lock(tmp_path / "image.lock").images["cu130"]
    assert image.reference == f"{name}@{digest}"
    assert (image.size_mb, image.whole) == (150, True)
    assert (image.torch, image.cuda, image.nccl) == ("2.13.0", "13.0", "2.29.7")
    assert (image.driver_cuda, image.blackwell) == (13.0, True)


def test_an_image_of_somebody_else_is_locked_as_a_variant_whose_versions_are_known(
    fake_registry: FakeRegistry,
) -> None:
    digest = fake_registry.put("torch/torch:new")
    image = lock_images(SHIPPED, [f"cu126={fake_registry.host}/torch/torch:new"], REGISTRY).images["cu126"]
    assert (image.digest, image.whole, image.cuda) == (digest, False, "12.6")
    with pytest.raises(UsageError, match="which variant"):
        lock_images(SHIPPED, [f"{fake_registry.host}/torch/torch:new"], REGISTRY)
    with pytest.raises(UsageError, match="no vastrun labels"):
        lock_images(SHIPPED, [f"cpu={fake_registry.host}/torch/torch:new"], REGISTRY)


def test_asking_again_fills_in_sizes_and_refuses_a_tag_that_names_another_image_now(
    fake_registry: FakeRegistry,
) -> None:
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
