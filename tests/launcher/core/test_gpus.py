"""GPU names and sizes, as a market, a driver and a user write them."""

import pytest

from vastrun.launcher.core.gpus import has_memory, is_named, is_same_name, nearest_names, spellings


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        ("RTX 4090D", "RTX 4090 D", True),
        ("RTX_4090", "RTX 4090", True),
        ("rtx 3060 ti", "RTX 3060Ti", True),
        ("RTX 4070S Ti", "RTX 4070 SUPER Ti", True),
        ("RTX 6000Ada", "RTX 6000 Ada", True),
        ("RTX 4090", "RTX 4090 D", False),
        ("A100 SXM4", "A100 PCIE", False),
        ("L40", "L40S", False),
    ],
)
def test_a_name_has_several_spellings(one: str, other: str, same: bool) -> None:
    assert is_same_name(one, other) is same


@pytest.mark.parametrize(
    ("requested", "shown", "named"),
    [
        ("RTX_4090", "RTX 4090", True),
        ("A100_SXM4", "NVIDIA A100-SXM4-80GB", True),
        ("RTX 4090D", "NVIDIA GeForce RTX 4090 D", True),
        ("a100", "A100 PCIE", True),
        ("A100 SXM4", "A100 PCIE", False),
        ("L40", "NVIDIA L40S", False),
    ],
)
def test_a_request_names_a_gpu_by_its_words(requested: str, shown: str, named: bool) -> None:
    assert is_named(requested, shown) is named


MARKET = ["L4", "A100 SXM4", "RTX 4090D", "RTX_3090", "H100 SXM", "RTX 4090", "GTX 1080 Ti"]


@pytest.mark.parametrize(
    ("requested", "nearest"),
    [
        ("RTX 409", ["RTX 4090", "RTX 4090D", "RTX_3090"]),
        ("rtx4090", ["RTX 4090", "RTX 4090D", "RTX_3090"]),
        ("NVIDIA H100 80GB HBM3", ["H100 SXM"]),
        ("A100-80GB", ["A100 SXM4"]),
        ("TPU v5", []),
        ("", []),
    ],
)
def test_the_nearest_names_share_the_model_or_most_letters(requested: str, nearest: list[str]) -> None:
    assert nearest_names(requested, MARKET) == nearest


def test_a_market_is_asked_for_every_spelling() -> None:
    assert spellings("RTX_4090D") == ["RTX_4090D", "RTX 4090D", "RTX 4090 D", "RTX_4090_D"]
    assert spellings("RTX 4090") == ["RTX 4090", "RTX_4090"]


@pytest.mark.parametrize(
    ("gpu_gb", "wanted_gb", "enough"),
    [
        (46.07, 48, True),
        (23.03, 24, True),
        (15.36, 16, True),
        (39.0, 40, True),
        (39.0, 48, False),
        (0.0, 0, True),
    ],
)
def test_memory_is_wanted_by_its_nominal_size(gpu_gb: float, wanted_gb: float, enough: bool) -> None:
    assert has_memory(gpu_gb, wanted_gb) is enough
