"""torch.compile under every strategy: the losses of the same training without it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.trainer import engine
from tests.trainer.conftest import together
from trainer.dist import Ranks

pytestmark = [
    pytest.mark.torch,
    pytest.mark.timeout(900),  # without its cache, a C++ compiler runs some forty times
    pytest.mark.needs("g++"),
]

TINY: dict[str, Any] = {"unroll": 1, "model": {"dim": 32, "depth": 1, "heads": 2}}
ONE = {
    "off": {"micro_batch": 4},
    "blocks": {"micro_batch": 4, "compile": "blocks"},
    "whole": {"micro_batch": 4, "compile": "whole"},
}
TWO = {
    "ddp blocks": {"strategy": "ddp", "compile": "blocks"},
    "ddp whole": {"strategy": "ddp", "compile": "whole"},
    "fsdp2 blocks": {"strategy": "fsdp2", "compile": "blocks"},
    "fsdp2 whole": {"strategy": "fsdp2", "compile": "whole"},
}


def compiled(ranks: Ranks, box: Path, jobs: dict[str, dict[str, Any]]) -> dict[str, tuple[list[float], int]]:
    """Losses, and how many functions were compiled."""
    import torch._dynamo.utils
    import torch._inductor.config

    torch._inductor.config.compile_threads = 1  # no pool of workers that each import torch
    found = {}
    for name, settings in jobs.items():
        torch._dynamo.reset()
        torch._dynamo.utils.counters.clear()
        losses = engine.curve(ranks, box, {**settings, **TINY}).losses
        found[name] = losses, torch._dynamo.utils.counters["frames"]["ok"]
    return found


def test_a_compiled_model_learns_along_the_same_curve(tmp_path: Path) -> None:
    box = engine.prepare(tmp_path / "box")
    # One rank first: it fills the cache that the two others then find.
    (one,) = together(compiled, 1, box, ONE, within_s=600)
    two, _ = together(compiled, 2, box, TWO, within_s=600)
    expected, none = one.pop("off")
    assert none == 0
    for name, (losses, functions) in {**one, **two}.items():
        assert losses == pytest.approx(expected, abs=1e-5), name
        assert functions > 0, name
