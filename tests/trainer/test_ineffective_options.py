"""A key of `train:` that does nothing is refused."""

import pytest

from tests.trainer import sessions
from tests.trainer.options import DARCY, FNO, TWO, Options, with_options
from vastrun.trainer.job.config_checks import faults_of

pytestmark = pytest.mark.torch


@pytest.mark.parametrize(
    ("options", "keys"),
    [
        ({"optim.drop": 0.1}, ["optim.drop"]),
        ({"optim.drop_after": 7, "optim.schedule": "linear"}, ["optim.drop_after"]),
        ({"optim.drop_after": 7, "optim.schedule": "step"}, []),
        ({"temperature": 3.0}, ["temperature"]),
        ({"mixing": "proportional"}, ["mixing"]),
        (TWO | {"mixing": "temperature", "temperature": 3.0}, []),
        ({"loader.workers": 4, "loader.prefetch": 4}, ["loader.prefetch", "loader.workers"]),
        ({"loader.workers": 4, "loader.prefetch": 4, "data.keep": "host"}, ["loader.workers"]),
        ({"fsdp2.cpu_offload": True, "strategy": "ddp"}, ["fsdp2.cpu_offload"]),
        ({"fsdp2.reshard_after_forward": False, "strategy": "single"}, ["fsdp2.reshard_after_forward"]),
        ({"fsdp2.reshard_after_forward": False, "strategy": "fsdp2"}, []),
        (FNO | {"data.patch": 8}, ["data.patch"]),
        (FNO | {"model.points": 16}, ["model.points"]),
        ({"data.patch": 8, "model.patch": 4}, ["model.patch"]),
        (DARCY | {"unroll": 2}, ["unroll"]),
        (DARCY | {"model.keep_mean": True, "unroll": 3}, ["model.keep_mean"]),
        ({"data": {**DARCY["data"], "frames": 9, "dt": 0.2}, "unroll": 3}, ["data.frames", "data.dt"]),
        ({"data.nus": [0.5]}, ["data.nus"]),
        ({"probe": "on", "micro_batch": 2}, ["probe"]),
        ({"probe": "on", "strategy": "fsdp2"}, ["probe"]),
        ({"limits.compile_s": 7.0}, ["limits.compile_s"]),
        ({"sampler.draws": 3}, ["sampler"]),
    ],
)
def test_what_does_nothing_is_refused_before_money_is_spent(options: Options, keys: list[str]) -> None:
    faults = faults_of(sessions.config(**with_options(options)), 1)
    assert [key for key, _ in faults] == keys
    assert all("no effect" in fault for _, fault in faults)
