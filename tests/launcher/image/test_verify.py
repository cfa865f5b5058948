"""What an image has is compared with its pins, and with what a machine can run."""

from __future__ import annotations

import json
from typing import Any

import pytest

from vastrun.launcher.image.lock import Capability, shipped_lock
from vastrun.launcher.image.verify import checks, contents_in

STOCK = shipped_lock().images["cu126"]
FOUND: dict[str, Any] = {
    "python": "3.12.3",
    "torch": "2.13.0+cu126",
    "cuda": "12.6",
    "nccl": "2.29.3",
    "vastrun": None,
    "missing": ["h5py", "tini"],
}


def failing(found: dict[str, Any], machine: Capability | None = None) -> dict[str, tuple[str, str]]:
    return {
        row.name: (row.found, row.wanted) for row in checks(found, STOCK, "0.1.0", machine) if not row.holds
    }


def test_an_image_of_somebody_else_may_lack_what_is_installed_at_boot() -> None:
    assert failing(FOUND) == {}


def test_another_torch_cuda_or_nccl_than_was_pinned_is_shown_beside_it() -> None:
    assert failing(FOUND | {"torch": "2.12.1+cu126", "cuda": "12.8", "nccl": "2.29.7"}) == {
        "torch": ("2.12.1+cu126", "2.13.0"),
        "cuda": ("12.8", "12.6"),
        "nccl": ("2.29.7", "2.29.3"),
    }
    assert failing(FOUND | {"torch": None})["torch"] == ("none", "2.13.0")


def test_a_machine_that_cannot_run_it_says_why() -> None:
    old = Capability(cuda_max=12.4, compute_cap=900)
    blackwell = Capability(cuda_max=12.9, compute_cap=1200)
    assert failing(FOUND, Capability(cuda_max=12.8, compute_cap=900)) == {}
    assert "driver for CUDA 12.6" in failing(FOUND, old)["machine"][0]
    assert "compute capability 12" in failing(FOUND, blackwell)["machine"][0]


def test_an_image_in_no_lock_is_taken_for_one_of_ours() -> None:
    rows = {row.name: row.holds for row in checks(FOUND, None, "0.1.0", None)}
    assert (rows["vastrun"], rows["missing"], rows["torch"]) == (False, False, True)


def test_what_an_image_says_of_itself_is_its_last_line() -> None:
    assert contents_in(f"a warning\n{json.dumps(FOUND | {'more': 1})}\n") == FOUND


@pytest.mark.parametrize(
    "said",
    [
        "",
        "x",
        "[]",
        "7",
        "{}",
        '{"missing": "h5py"}',
        '{"missing": [7]}',
        '{"missing": [], "torch": 7}',
        "[" * 200_000,
    ],
)
def test_what_makes_no_sense_is_a_value_error(said: str) -> None:
    with pytest.raises(ValueError):
        contents_in(said)
