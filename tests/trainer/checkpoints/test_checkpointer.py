"""Saving: beside the training, agreed by all ranks, never the worse for a full disk, a death or a kill."""

import errno
import io
import os
import resource
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stdout
from pathlib import Path

import pytest
import torch
from torch import nn

from tests.trainer.checkpoints.models import Training
from tests.trainer.conftest import together
from vastrun.contract.checkpoint_folder import newest_first
from vastrun.trainer.checkpoints import tensors_of, verify
from vastrun.trainer.distributed.exit import reason_of
from vastrun.trainer.distributed.group import Ranks
from vastrun.trainer.errors import SaveError

pytestmark = pytest.mark.torch


@contextmanager
def files_no_larger_than(size: int) -> Iterator[None]:
    """The kernel refuses to write beyond `size` bytes of a file, as it refuses on a full disk."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def train_on_while_saving(ranks: Ranks, folder: Path, strategy: str) -> None:
    """The third step is saved while training goes on to the sixth, then the sixth is saved."""
    training = Training(ranks, folder, strategy)
    training.train(3)
    training.save(durable=False)
    training.train(6)
    training.save(durable=False)
    while newest_first(folder)[0].name != "step-000006":
        training.checkpoints.poll()


def save_at_rest(ranks: Ranks, folder: Path, strategy: str) -> None:
    training = Training(ranks, folder, strategy)
    for step in (3, 6):
        training.train(step)
        training.save()


@pytest.mark.parametrize("strategy", ["ddp", "fsdp2"])
def test_the_saved_state_is_that_of_its_step_though_training_goes_on(tmp_path: Path, strategy: str) -> None:
    together(train_on_while_saving, 2, tmp_path / "going", strategy)
    together(save_at_rest, 2, tmp_path / "resting", strategy)
    for step in ("step-000003", "step-000006"):
        assert verify(tmp_path / "going" / step) == verify(tmp_path / "resting" / step)


def fill_the_disk_of_rank_1(ranks: Ranks, folder: Path, width: int) -> tuple[str, str]:
    training = Training(ranks, folder, "ddp", width=width)
    training.train(1)
    training.save()
    training.train(2)
    with files_no_larger_than(4_000 if ranks.rank.rank == 1 else 1 << 30), pytest.raises(SaveError) as caught:
        training.save()
    return str(caught.value), reason_of(caught.value)


@pytest.mark.parametrize("width", [50, 1000], ids=["small tensors", "large tensors"])
def test_a_full_disk_of_one_rank_fails_all_and_keeps_the_last_checkpoint(tmp_path: Path, width: int) -> None:
    first, second = together(fill_the_disk_of_rank_1, 2, tmp_path, width)
    assert first == second
    text, reason = first
    assert text == f"the checkpoint of step 2 is not saved: rank 1: [Errno {errno.EFBIG}] File too large"
    assert reason == "disk"
    assert names(tmp_path) == ["best.json", "latest.json", "step-000001"]
    assert verify(tmp_path / "step-000001").step == 1


def fill_the_disk_of_rank_0_at_the_end(ranks: Ranks, folder: Path) -> str:
    """The ranks' own files fit; what rank 0 adds does not."""
    training = Training(ranks, folder, "fsdp2")
    training.train(1)
    folder.mkdir(exist_ok=True)
    blocked = folder / ".step-000001.part" / "state.json"
    if ranks.rank.is_first:
        blocked.mkdir(parents=True)
        (blocked / "in the way").touch()
    ranks.wait_for_all()
    with pytest.raises(SaveError) as caught:
        training.save()
    return str(caught.value)


def test_a_fault_of_rank_0_after_all_have_written_is_told_to_all(tmp_path: Path) -> None:
    first, second = together(fill_the_disk_of_rank_0_at_the_end, 2, tmp_path)
    assert first == second
    assert "the checkpoint of step 1 is not saved: rank 0:" in first
    assert names(tmp_path) == []


def lose_rank_1(ranks: Ranks, folder: Path) -> str:
    training = Training(ranks, folder)
    training.step = 1
    if ranks.rank.rank == 1:
        torch.distributed.destroy_process_group()  # its connections close, as those of a dead process do
        return ""
    with pytest.raises(RuntimeError) as caught:
        training.save()
    return reason_of(caught.value)


def test_a_rank_that_died_is_noticed_and_not_waited_for(tmp_path: Path) -> None:
    assert together(lose_rank_1, 2, tmp_path)[0] == "communication"
    assert newest_first(tmp_path) == []


def die_before_a_change_of_the_disk(ranks: Ranks, folder: Path, number: int) -> None:
    """Saves once, and then again until the kernel is asked the `number`-th time to change the folder."""
    training = Training(ranks, folder)
    training.train(1)
    training.save()
    training.train(2)
    left = number

    def count(event: str, arguments: tuple[object, ...]) -> None:
        nonlocal left
        if event in _CHANGES and str(folder) in str(arguments[0]):
            if event == "open" and not arguments[2] & (os.O_WRONLY | os.O_RDWR):  # type: ignore[operator]
                return
            left -= 1
            if left < 0:
                os.kill(os.getpid(), signal.SIGKILL)

    sys.addaudithook(count)
    training.save()


_CHANGES = {"open", "os.mkdir", "os.rename", "os.remove", "os.rmdir"}


@pytest.mark.slow
def test_a_kill_before_any_change_of_the_disk_leaves_a_good_checkpoint(tmp_path: Path) -> None:
    kills = 0
    for kills in range(100):
        folder = tmp_path / str(kills)
        try:
            together(die_before_a_change_of_the_disk, 1, folder, kills)
        except pytest.fail.Exception as death:
            assert "died without a word" in str(death)
            steps = [verify(checkpoint).step for checkpoint in newest_first(folder)]
            assert steps in ([1], [2, 1])
            continue
        break
    assert 8 < kills < 100, "a save changes the disk some dozen times"


def save_twice_at_once(ranks: Ranks, folder: Path) -> list[str]:
    training = Training(ranks, folder, "ddp")
    with redirect_stdout(io.StringIO()) as said:
        training.train(1)
        training.save(durable=False)
        training.train(2)
        training.save(durable=False)
        assert (folder / "step-000001").exists()
        training.save()  # of the same step, as when a run is asked to stop just after it saved
    assert verify(folder / "step-000002").step == 2
    return said.getvalue().splitlines()


def test_a_save_waits_for_the_one_before_and_a_step_is_saved_once(tmp_path: Path) -> None:
    said = ["checkpoint step-000001 saved", "checkpoint step-000002 saved"]
    assert together(save_twice_at_once, 2, tmp_path) == [said, []]


@pytest.mark.parametrize("graphs", [False, True], ids=["without gradients", "with those of CUDA graphs"])
def test_an_optimiser_that_made_no_step_has_its_moments(graphs: bool) -> None:
    model = nn.Linear(3, 2)
    optimizer = torch.optim.AdamW(model.parameters())
    if graphs:
        for parameter in model.parameters():
            parameter.grad = torch.zeros_like(parameter)
    before = [parameter.grad for parameter in model.parameters()]

    tensors = tensors_of(model, [optimizer], None)

    assert {"optimizer.weight.exp_avg", "optimizer.bias.exp_avg_sq"} <= tensors.keys()
    assert tensors["optimizer.weight.exp_avg"] is optimizer.state[model.weight]["exp_avg"]
    assert all(p.grad is grad for p, grad in zip(model.parameters(), before, strict=True))
