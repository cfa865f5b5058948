"""A user's own image says by its name what it needs, or nothing is known of it."""

from __future__ import annotations

import pytest

from vastrun.launcher.image.lock import Capability, lacks_code, shipped_lock
from vastrun.launcher.image.requirements import ImageRequirements

DIGEST = f"@sha256:{64 * 'a'}"


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
def test_a_name_says_the_cuda_version_and_the_architecture(
    image: str, cuda: float, architecture: str
) -> None:
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


def test_a_misfit_is_said_in_words() -> None:
    image = ImageRequirements(cuda=12.4, architecture="amd64")
    assert str(image) == "its name says CUDA 12.4 and amd64"
    assert str(ImageRequirements()) == "its name does not say its CUDA version"
    cases = {
        Capability(
            cuda_max=12.2, compute_cap=890
        ): "it needs a driver for CUDA 12.4, the machine's is for 12.2",
        Capability(cuda_max=13.0, compute_cap=1200): "CUDA 12.4 has no code for compute capability 12",
        Capability(cuda_max=13.0, compute_cap=900, architecture="arm64"): (
            "it is for amd64, the machine is arm64"
        ),
        Capability(cuda_max=12.4, compute_cap=890): "",
    }
    assert {machine: image.misfit(machine, gpus=1) for machine in cases} == cases


def test_a_job_without_gpus_asks_for_no_driver() -> None:
    image = ImageRequirements(cuda=12.4)
    assert image.misfit(Capability(cuda_max=11.0, compute_cap=700), gpus=0) == ""
