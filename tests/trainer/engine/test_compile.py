"""torch.compile under every strategy: the losses of the same training without it."""

from pathlib import Path
from typing import Any

import pytest

from tests.trainer import sessions
from tests.trainer.conftest import together
from tests.trainer.engine.test_several_tasks import TASKS
from vastrun.trainer.distributed.group import Ranks

pytestmark = [
    pytest.mark.torch,
    pytest.mark.slow,
    pytest.mark.timeout(900),  # without its cache, a C++ compiler runs some forty times
    pytest.mark.needs("g++"),
]

TINY: dict[str, Any] = {"unroll": 1, "model": {"dim": 32, "depth": 1, "heads": 2, "patch": 4}}
ALONE = {
    "off": {"micro_batch": 4, **TINY},
    "blocks": {"micro_batch": 4, "compile": "blocks", **TINY},
    "whole": {"micro_batch": 4, "compile": "whole", **TINY},
    "max-autotune": {"micro_batch": 4, "compile": "max-autotune", **TINY},
    "full": {"micro_batch": 4, "compile": "blocks", "activation_checkpointing": "full", **TINY},
    "selective": {"micro_batch": 4, "compile": "blocks", "activation_checkpointing": "selective", **TINY},
}
SPREAD = {
    "off": {"strategy": "ddp", **TINY},
    "ddp blocks": {"strategy": "ddp", "compile": "blocks", **TINY},
    "ddp whole": {"strategy": "ddp", "compile": "whole", **TINY},
    "fsdp2 blocks": {"strategy": "fsdp2", "compile": "blocks", **TINY},
    "fsdp2 whole": {"strategy": "fsdp2", "compile": "whole", **TINY},
    "fsdp2 max-autotune": {"strategy": "fsdp2", "compile": "max-autotune", **TINY},
    "fsdp2 selective": {
        "strategy": "fsdp2",
        "compile": "blocks",
        "activation_checkpointing": "selective",
        **TINY,
    },
}
SEVERAL = {
    "off": {"strategy": "ddp", **TASKS},
    "fsdp2 blocks": {"strategy": "fsdp2", "compile": "blocks", **TASKS},
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
        losses = sessions.curve(ranks, box, settings).losses
        found[name] = losses, torch._dynamo.utils.counters["frames"]["ok"]
    return found


@pytest.mark.parametrize(
    ("ranks", "trainings"),
    [(1, ALONE), (2, SPREAD), (2, SEVERAL)],
    ids=["one rank", "two ranks", "several tasks"],
)
def test_a_compiled_model_learns_along_the_same_curve(
    ranks: int, trainings: dict[str, dict[str, Any]], tmp_path: Path
) -> None:
    box = sessions.prepare(tmp_path / "box", **(TASKS if trainings is SEVERAL else {}))
    first = together(compiled, ranks, box, trainings, within_s=600)[0]
    expected, none = first.pop("off")
    assert none == 0
    assert expected[-1] < 0.9 * expected[0]
    for name, (losses, functions) in first.items():
        assert losses == pytest.approx(expected, abs=1e-5), name
        assert functions > 0, name
